//! The notification of a watched queue, called when a transfer can be reaped.

use std::fmt;
use std::sync::Arc;

use diorite_block::Notify;

#[derive(Default)]
pub(crate) struct Watched(Option<Notify>);

impl Watched {
    pub(crate) fn set(&mut self, notify: &Notify) {
        self.0 = Some(Arc::clone(notify));
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn call(&self) {
        if let Some(notify) = &self.0 {
            notify();
        }
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "watched" } else { "not watched" })
    }
}

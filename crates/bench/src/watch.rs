//! How a measurement reports progress, and how it is asked to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Error;

/// Is called with what a measurement is doing. The program shows it on a terminal; others may ignore it.
pub trait Observer: Send + Sync {
    /// A phase begins, of about `total` bytes or operations (0: unknown).
    fn begin(&self, what: &str, total: u64);
    /// So much more of it is done.
    fn advance(&self, amount: u64);
    /// It is done.
    fn end(&self);
}

/// Ignores it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn begin(&self, _: &str, _: u64) {}
    fn advance(&self, _: u64) {}
    fn end(&self) {}
}

/// A wish to stop, shared between the one who has it and the work.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Ask the work to stop at the next good moment.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the work was asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error if the work was asked to stop.
    pub fn check(&self) -> Result<(), Error> {
        if self.is_cancelled() { Err(Error::Interrupted) } else { Ok(()) }
    }
}

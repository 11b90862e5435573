//! A watcher of requests, such as the recorder of a power-cut test.

use std::fmt;
use std::sync::Arc;

/// The function: the name of the request, the process, and the number of the inode.
type Note = dyn Fn(&'static str, u32, u64) + Send + Sync;

/// A function that gets each request before it is carried out: its name, such as `FSync`, the process that is
/// charged for it, and the inode. It must not use the mount.
#[derive(Clone)]
pub struct Observer(Arc<Note>);

impl Observer {
    /// An observer that calls `note`.
    pub fn new(note: impl Fn(&'static str, u32, u64) + Send + Sync + 'static) -> Self {
        Self(Arc::new(note))
    }

    pub(crate) fn note(&self, name: &'static str, process: u32, inode: u64) {
        (self.0)(name, process, inode);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

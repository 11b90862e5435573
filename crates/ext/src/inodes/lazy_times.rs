//! Inodes whose access time is only in memory: see [`crate::Volume::note_access_lazily`].

use std::sync::Arc;

use diorite_block::sync::{Mutex, MutexGuard, Rank};

use crate::inode::Inode;

/// Inodes whose access time is only in memory. They are not evicted.
#[derive(Debug)]
pub(crate) struct LazyTimes(Mutex<Waiting>);

#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) inodes: Vec<Arc<Inode>>,
    /// When the first one came, in seconds.
    pub(crate) since: i64,
}

impl Default for LazyTimes {
    fn default() -> Self {
        Self(Mutex::ranked(Rank::LazyTimes, Waiting::default()))
    }
}

impl LazyTimes {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock()
    }
}

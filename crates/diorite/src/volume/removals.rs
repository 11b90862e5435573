//! Removals in progress, which a close of the volume waits for.
//!
//! A file loses its last name or user at one moment. Freeing its blocks may take seconds more, in the thread of that call, and the inode is in no
//! table meanwhile.

use diorite_block::sync::{Condvar, Mutex, Rank};

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Removals {
    /// A leaf lock.
    count: Mutex<usize>,
    ended: Condvar,
}

/// A removal, until it is dropped.
#[derive(Debug)]
pub(crate) struct Removal<'a>(&'a Removals);

impl Removals {
    pub(crate) fn new() -> Self {
        Self { count: Mutex::ranked(Rank::Removals, 0), ended: Condvar::new() }
    }

    /// Begin a removal, before a table no longer shows the inode.
    pub(crate) fn begin(&self) -> Removal<'_> {
        *self.count.lock() += 1;
        Removal(self)
    }

    /// Wait for the end of all removals.
    pub(crate) fn wait(&self) {
        let mut count = self.count.lock();
        while *count > 0 {
            count = self.ended.wait(count);
        }
    }
}

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        let mut count = self.0.count.lock();
        *count -= 1;
        if *count == 0 {
            self.0.ended.notify_all();
        }
    }
}

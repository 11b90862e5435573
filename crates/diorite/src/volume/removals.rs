//! Removals that are under way, which a volume waits for before it is closed.
//!
//! A file loses its last name or user in one moment; to free its blocks may take seconds more, in the thread whose call it was. The inode
//! is in no table then, so that a close could not see it.

use std::sync::atomic::{AtomicUsize, Ordering};

use diorite_block::sync::{Condvar, Mutex, Rank};

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Removals {
    count: AtomicUsize,
    /// Threads wait for the end of all. A leaf lock.
    is_awaited: Mutex<bool>,
    ended: Condvar,
}

/// A removal, until it is dropped.
#[derive(Debug)]
pub(crate) struct Removal<'a>(&'a Removals);

impl Removals {
    pub(crate) fn new() -> Self {
        let is_awaited = Mutex::ranked(Rank::Removals, false);
        Self { count: AtomicUsize::new(0), is_awaited, ended: Condvar::new() }
    }

    /// One begins: before a table no longer shows it.
    pub(crate) fn begin(&self) -> Removal<'_> {
        self.count.fetch_add(1, Ordering::SeqCst);
        Removal(self)
    }

    /// Wait until none is under way.
    pub(crate) fn wait(&self) {
        let mut is_awaited = self.is_awaited.lock();
        while self.count.load(Ordering::SeqCst) > 0 {
            *is_awaited = true;
            is_awaited = self.ended.wait(is_awaited);
        }
    }
}

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        // The lock orders this after a look at the count that was too early.
        let is_awaited = std::mem::take(&mut *self.0.is_awaited.lock());
        if is_awaited {
            self.0.ended.notify_all();
        }
    }
}

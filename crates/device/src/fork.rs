//! Forked children: what belongs to the process that made it.
//!
//! A ring is shared memory: a child that used its parent's would take the parent's completions and submit into the parent's memory.
//! So each ring remembers its process by the number of forks on the way to it. Threads are not there in a child at all, and a lock that one of them
//! had is never released: what threads share is [`OfProcess`].
//!
//! Safety policy: what [`OfProcess`] points to is never freed.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

pub use diorite_block::forks;

/// A value of which each process has its own: a child begins with a new one.
pub(crate) struct OfProcess<T>(AtomicPtr<Made<T>>);

struct Made<T> {
    forks: u64,
    value: T,
}

impl<T: Default + Send + Sync> OfProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// That of this process.
    pub(crate) fn get(&self) -> &T {
        let forks = forks();
        let found = self.0.load(Ordering::Acquire);
        // SAFETY: null, or made below and never freed.
        if let Some(made) = unsafe { found.as_ref() }
            && made.forks == forks
        {
            return &made.value;
        }
        let new = Box::into_raw(Box::new(Made { forks, value: T::default() }));
        let result = self.0.compare_exchange(found, new, Ordering::AcqRel, Ordering::Acquire);
        let current = result.map_or_else(
            |others| {
                // SAFETY: no other thread has seen it.
                drop(unsafe { Box::from_raw(new) });
                others
            },
            |_| new,
        );
        // SAFETY: made here, or by another thread of this process in the same way, and never freed.
        unsafe { &(*current).value }
    }
}

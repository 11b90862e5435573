//! The right to run, for one thread of the operating system.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

/// A plain lock: a panic while it is held is reported by the simulation.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right to run, for one thread.
#[derive(Default)]
pub(super) struct Baton {
    pub(super) here: AtomicBool,
    pub(super) thread: Mutex<Option<Thread>>,
}

impl Baton {
    pub(super) fn give(&self) {
        self.here.store(true, Ordering::Release);
        if let Some(thread) = &*lock(&self.thread) {
            thread.unpark();
        }
    }

    pub(super) fn take(&self) {
        while !self.here.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}

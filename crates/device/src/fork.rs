//! Values of one process, which a forked child must not use.
//!
//! A ring is shared memory: a child that used its parent's ring would take the parent's completions and submit into the parent's memory.
//! So each ring records the number of forks before it. A child has no threads of its parent, and a lock that one of them held is never
//! released. So state shared by threads is in [`OfProcess`].
//!
//! Safety policy: the value of an [`OfProcess`] is never freed.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

pub use diorite_block::forks;

/// A value of each process, for a `static`: a forked child starts with a new one.
///
/// ```
/// use std::sync::Mutex;
/// use diorite_device::OfProcess;
///
/// static CALLS: OfProcess<Mutex<u32>> = OfProcess::new();
/// *CALLS.get().lock().unwrap() += 1;
/// ```
pub struct OfProcess<T>(AtomicPtr<Made<T>>);

struct Made<T> {
    forks: u64,
    value: T,
}

impl<T> std::fmt::Debug for OfProcess<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OfProcess").finish_non_exhaustive()
    }
}

impl<T: Default + Send + Sync> OfProcess<T> {
    /// No value yet.
    #[expect(clippy::new_without_default, reason = "for statics")]
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The value of this process.
    pub fn get(&self) -> &T {
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

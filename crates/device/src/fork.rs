//! Forked children: what belongs to the process that made it.
//!
//! A ring is shared memory: a child that used its parent's would take the parent's completions and submit into the parent's memory.
//! So each ring remembers its process by the number of forks on the way to it.
#![allow(unsafe_code)]

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often this process is a fork's child, counted from the first process that asked.
pub(crate) fn forks() -> u64 {
    static FORKS: AtomicU64 = AtomicU64::new(0);
    static WATCH: Once = Once::new();
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    WATCH.call_once(|| {
        // SAFETY: the handler only adds to an atomic number, which is allowed between fork and exec.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    FORKS.load(Ordering::Relaxed)
}

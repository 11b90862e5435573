//! Forked children: which process made an object.
//!
//! A child has a copy of all that its parent had in memory: changes that are not written yet, transfers that wait, marks that it keeps on a device. They
//! are the parent's to write. Written by a child too, they would replace what the parent has written since. So what writes when it is dropped remembers
//! its [`Process`], and in any other it does nothing.
//!
//! Safety policy: the one unsafe block registers a function that only adds to an atomic number.
#![allow(unsafe_code)]

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often this process is a fork's child, counted from the first process that asked. What was made under another number belongs to a parent of this
/// process, whose threads do not exist here.
pub fn forks() -> u64 {
    static FORKS: AtomicU64 = AtomicU64::new(0);
    static WATCH: Once = Once::new();
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    if cfg!(miri) {
        return 0;
    }
    WATCH.call_once(|| {
        // SAFETY: the handler only adds to an atomic number, which is allowed between fork and exec.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    FORKS.load(Ordering::Relaxed)
}

/// The process that made an object.
#[derive(Clone, Copy, Debug)]
pub struct Process(u64);

impl Process {
    /// This one.
    pub fn current() -> Self {
        Self(forks())
    }

    /// Whether it is this one, and no parent of it.
    #[inline]
    pub fn is_current(self) -> bool {
        self.0 == forks()
    }
}

impl Default for Process {
    fn default() -> Self {
        Self::current()
    }
}

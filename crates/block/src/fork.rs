//! Forked children: which process made an object.
//!
//! A child has a copy of its parent's memory: unwritten changes, waiting transfers, and marks on a device. The parent writes them. If the child
//! wrote them too, it would replace later writes of the parent. So an object that writes when it is dropped records its [`Process`], and does nothing
//! in another process.
//!
//! Safety policy: the one unsafe block registers a function that only adds to an atomic number.
#![allow(unsafe_code)]

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of forks between the first process that called this function and this process. An object with another number belongs to a parent,
/// whose threads do not exist here.
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

    /// Whether it is this process and not a parent.
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

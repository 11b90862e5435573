//! The child of a fork, for tests of this crate and of crates above it. Such tests run in processes of their own (`own_process`): another thread
//! could hold a lock at the moment of the fork, and the child would never get it.
#![allow(unsafe_code, reason = "fork and exit have no safe form")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Do something in a child, which is ended if that takes long.
pub(crate) fn in_child(act: impl FnOnce()) {
    in_child_after(|| (), act);
}

/// Do something in a child, after what the parent does meanwhile.
pub(crate) fn in_child_after(meanwhile: impl FnOnce(), act: impl FnOnce()) {
    let (mut parent, mut inherited) = UnixStream::pair().expect("a socket");
    // SAFETY: the child does nothing but `act` in this thread, and leaves without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: has no memory.
        unsafe { libc::alarm(10) };
        let result = catch_unwind(AssertUnwindSafe(|| {
            inherited.read_exact(&mut [0]).expect("the parent's word");
            act();
        }));
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(i32::from(result.is_err())) };
    }
    assert!(child > 0, "fork");
    meanwhile();
    parent.write_all(&[0]).expect("the child reads it");
    let mut status = 0;
    // SAFETY: our own child, and a valid place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child failed, or waited for a thread that it does not have");
}

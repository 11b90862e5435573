//! Whether standard output was there when the program was started.
//!
//! Before `main` the standard library opens `/dev/null` in place of a standard stream that is closed: what is written there is lost, and no
//! write fails. `/dev/null` may as well be what the caller chose, so it is found out before that.
//!
//! Safety policy: the section holds addresses of functions that the loader calls, once each, before `main` (System V gABI,
//! "Initialization and Termination Functions"). The one here makes a system call and stores a flag; it uses nothing that must be
//! initialised, and cannot panic.
#![allow(unsafe_code, reason = "see the module's head")]

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

#[used]
// SAFETY: a function of the type that the section is for, as the policy says.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    let descriptor = rustix::io::fcntl_getfd(rustix::stdio::stdout());
    WAS_CLOSED.store(descriptor == Err(Errno::BADF), Ordering::Relaxed);
}

/// Whether it was closed.
pub(crate) fn was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}

/// What a write to a closed standard output gives.
pub(crate) fn closed_error() -> io::Error {
    io::Error::other("it is closed")
}

/// Standard output, which fails where it was closed.
pub(crate) struct Stdout(io::StdoutLock<'static>);

impl Stdout {
    pub(crate) fn lock() -> Self {
        Self(io::stdout().lock())
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if was_closed() { Err(closed_error()) } else { self.0.write(bytes) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

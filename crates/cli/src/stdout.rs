//! Detects a standard output that was closed at the start of the program, or whose reader closed it.
//!
//! Before `main` the standard library replaces a closed standard stream by `/dev/null`, so writes succeed and the output is lost. The caller may
//! also choose `/dev/null`, so the check must run earlier.
//!
//! Safety policy: the section holds addresses of functions that the loader calls, once each, before `main` (System V gABI,
//! "Initialization and Termination Functions"). The function makes a system call and stores a flag. It needs no initialisation and cannot
//! panic.
#![allow(unsafe_code, reason = "see the module's head")]

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);
/// Set by the first write that fails for it, and never cleared.
static HAS_LOST_READER: AtomicBool = AtomicBool::new(false);

#[used]
// SAFETY: the function has the type that the section needs (see the policy).
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    let descriptor = rustix::io::fcntl_getfd(rustix::stdio::stdout());
    WAS_CLOSED.store(descriptor == Err(Errno::BADF), Ordering::Relaxed);
}

/// Whether standard output was closed.
pub(crate) fn was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}

/// Whether the reader of standard output has ended. Then every command ends without a message, and the exit status says why.
pub(crate) fn has_lost_reader() -> bool {
    HAS_LOST_READER.load(Ordering::Relaxed)
}

fn noted<T>(result: io::Result<T>) -> io::Result<T> {
    result.inspect_err(|error| {
        if error.kind() == io::ErrorKind::BrokenPipe {
            HAS_LOST_READER.store(true, Ordering::Relaxed);
        }
    })
}

/// The error of a write to a closed standard output.
pub(crate) fn closed_error() -> io::Error {
    io::Error::other("it is closed")
}

/// Standard output. Writes fail if it was closed.
pub(crate) struct Stdout(io::StdoutLock<'static>);

impl Stdout {
    pub(crate) fn lock() -> Self {
        Self(io::stdout().lock())
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if was_closed() { Err(closed_error()) } else { noted(self.0.write(bytes)) }
    }

    fn flush(&mut self) -> io::Result<()> {
        noted(self.0.flush())
    }
}

//! The cleaner: a thread of the command that writes back and drops pages of files that a process closes, so that no close waits for
//! the disk.
//!
//! It gets a second descriptor of each file, opened for reading: a lock of the program's own (`flock`) ends with its close, and a new program
//! can be executed. Without a cleaner, pages are written back and dropped before the close.

use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crate::file::{File, ProcPath, socket_inode};
use crate::shared::cleaning::Range;
use crate::sys;

/// The socket, or -1.
static SOCKET: AtomicI32 = AtomicI32::new(-1);
/// Its inode, by which it is known that the program did not replace the descriptor.
static INODE: AtomicU64 = AtomicU64::new(0);

/// Begin, with the value of the variable [`crate::shared::CLEANER`].
pub(crate) fn init(value: Option<&[u8]>) {
    let mut numbers = value.unwrap_or_default().split(|byte| *byte == b' ').map(number);
    if let (Some(Some(fd)), Some(Some(inode))) = (numbers.next(), numbers.next()) {
        INODE.store(inode, Ordering::Relaxed);
        SOCKET.store(i32::try_from(fd).unwrap_or(-1), Ordering::Relaxed);
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    core::str::from_utf8(digits).ok()?.parse().ok()
}

/// The descriptor of the socket, if there is a cleaner and the program has not replaced the descriptor.
pub(crate) fn socket() -> Option<u32> {
    let fd = u32::try_from(SOCKET.load(Ordering::Relaxed)).ok()?;
    (socket_inode(fd as i32) == Some(INODE.load(Ordering::Relaxed))).then_some(fd)
}

/// Whether a descriptor is the cleaner's socket.
pub(crate) fn is_socket(fd: i32) -> bool {
    SOCKET.load(Ordering::Relaxed) == fd && socket().is_some()
}

/// A second descriptor of a file, to send.
pub(crate) struct Second {
    fd: i32,
    socket: i32,
}

impl Second {
    /// `None` without a cleaner, or if the file cannot be opened. The process must have no POSIX locks on the file: they would end with the
    /// second descriptor.
    pub(crate) fn of(file: &File) -> Option<Self> {
        let socket = socket()? as i32;
        Some(Self { fd: sys::open(ProcPath::of(file.fd).bytes(), 0)?, socket })
    }

    /// Whether the cleaner will drop this range.
    pub(crate) fn send(&self, range: &Range) -> bool {
        sys::send_with(self.socket, range, self.fd)
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        sys::close(self.fd);
    }
}

//! Kernel locks that show whether the process of a slot still has the memory of the pool.
//!
//! Each process locks the byte of its slot in the memory's file, through its own file description. The kernel closes the description when the
//! process ends or executes another program. The number and start time of a process stay the same after the latter.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use super::{Mapping, ProcessSlot};

/// The lock of a slot, until it is dropped. Forked children have it too, until they end or execute a program.
#[derive(Debug)]
pub(crate) struct Life {
    _description: OwnedFd,
}

impl Life {
    /// Lock the byte of a slot; none while a child of its last process still has the lock.
    ///
    /// # Errors
    /// The memory's file cannot be opened again through `/proc`, or not be locked.
    pub(crate) fn lock(mapping: &Mapping, slot: ProcessSlot) -> io::Result<Option<Self>> {
        let path = format!("/proc/self/fd/{}", mapping.fd().as_raw_fd());
        let description = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        match fcntl(description.as_fd(), libc::F_OFD_SETLK, &mut write_lock(slot)) {
            Ok(()) => Ok(Some(Self { _description: description })),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a process may have the lock of a slot. An unknown state counts as locked.
    pub(crate) fn is_locked(mapping: &Mapping, slot: ProcessSlot) -> bool {
        // The mapping's description has no lock, so F_OFD_GETLK reports that of this process, too.
        let mut lock = write_lock(slot);
        fcntl(mapping.fd(), libc::F_OFD_GETLK, &mut lock).is_err() || i32::from(lock.l_type) != libc::F_UNLCK
    }
}

fn write_lock(slot: ProcessSlot) -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: slot.index() as i64,
        l_len: 1,
        l_pid: 0,
    }
}

fn fcntl(fd: BorrowedFd<'_>, command: i32, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: both commands read and write the structure during the call, and nothing else.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), command, std::ptr::from_mut(lock)) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

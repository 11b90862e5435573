//! Locks of the kernel by which the processes of a shared pool know that a slot's process still has its memory.
//!
//! Each process locks the byte of its slot in the memory's file, through a description of its own that is closed when the process ends or
//! executes another program. A number and a start time cannot tell the latter: they stay.

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
    /// Lock the byte of a slot; none while a child of its last process has it still.
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

    /// Whether a process has the lock of a slot. It may, where that cannot be found out.
    pub(crate) fn is_locked(mapping: &Mapping, slot: ProcessSlot) -> bool {
        // The mapping's description has no lock itself, so that this process's own one is seen.
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

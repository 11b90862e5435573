//! The system calls that have no safe form elsewhere: three `ioctl`s, a table of descriptors for one thread, namespaces, and one
//! setting of the allocator.
//!
//! Safety policy: each `ioctl` takes a descriptor of the device that it is for, and numbers or plain structures of the kernel's layout; none
//! keeps a pointer after it returned.
//! A thread with a table of its own uses descriptors that it has opened itself, and no others.
#![allow(unsafe_code, reason = "see the module's head")]

use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, Result};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// `FUSE_DEV_IOC_CLONE`: `_IOR(229, 0, u32)`.
const FUSE_DEV_IOC_CLONE: Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);
const LOOP_CONFIGURE: Opcode = 0x4C0A;
const LOOP_CTL_GET_FREE: Opcode = 0x4C82;
/// The loop device goes with its last user.
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LOOP_NAME_LEN: usize = 64;

/// Have the allocator of this process keep few arenas for its threads. For a program that serves a mount and little else, before it starts
/// threads: a mount has many, each is idle most of the time, and the arena of one is memory that no other uses.
pub fn keep_few_arenas() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it sets a number inside the allocator, which may be done at any time.
    let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, 2) };
}

/// Programs that this one starts inherit only the standard streams: a daemon would keep the locks and pipes of its caller.
pub fn keep_descriptors_here() {
    // SAFETY: it sets a flag of descriptors, which has no effect in this process.
    let _ = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Move this process, which has one thread, to a copy of its mount namespace.
///
/// # Errors
/// As `unshare(2)`.
pub(super) fn unshare_mounts() -> Result<()> {
    unshare(libc::CLONE_NEWNS)
}

/// Give this thread a working directory of its own, with which it may enter another mount namespace.
///
/// # Errors
/// As `unshare(2)`.
pub(super) fn unshare_working_directory() -> Result<()> {
    unshare(libc::CLONE_FS)
}

fn unshare(what: i32) -> Result<()> {
    // SAFETY: it takes no pointer, and changes what paths lead to, no memory and no descriptor.
    if unsafe { libc::unshare(what) } == 0 { Ok(()) } else { Err(last_error()) }
}

/// Open `/dev/fuse`.
///
/// # Errors
/// As `open(2)`.
pub(super) fn open_fuse() -> Result<OwnedFd> {
    open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// One more channel of a session: requests that are read from it are answered through it.
///
/// # Errors
/// As `open(2)`; `EINVAL` if the session has none yet.
pub(super) fn clone_channel(session: &OwnedFd) -> Result<OwnedFd> {
    let channel = open_fuse()?;
    let session = session.as_raw_fd() as u32;
    // SAFETY: the ioctl reads one u32, the number of a descriptor of /dev/fuse.
    unsafe { ioctl(&channel, Setter::<FUSE_DEV_IOC_CLONE, u32>::new(session))? };
    Ok(channel)
}

/// Give this thread a table of descriptors of its own, which is empty. The thread must not use, nor drop, a descriptor that it has not opened
/// after this.
///
/// # Errors
/// As `close_range(2)`.
pub(super) fn leave_descriptors() -> Result<()> {
    // SAFETY: the table is this thread's alone from the call on, so that no other loses a descriptor; the descriptors that this thread may use are named above.
    let result = unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, libc::CLOSE_RANGE_UNSHARE) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// `struct loop_config` with its `struct loop_info64` in place.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct LoopConfig {
    file: u32,
    block_size: u32,
    device_numbers: [u64; 3],
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; LOOP_NAME_LEN],
    crypt_name: [u8; LOOP_NAME_LEN],
    encrypt_key: [u8; 32],
    init: [u64; 2],
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopConfig>() == 304);

struct GetFree;

// SAFETY: the ioctl has no argument and returns a number.
unsafe impl Ioctl for GetFree {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> Result<u32> {
        u32::try_from(output).map_err(|_| Errno::INVAL)
    }
}

/// A loop device over an open file, or over its first `limit` bytes if that is not 0, by path, with a descriptor that keeps it.
///
/// # Errors
/// As `open(2)` of `/dev/loop-control` and the device; `EBUSY` if others take every free one first.
pub(super) fn attach_loop(file: impl AsFd, name: &[u8], limit: u64) -> Result<(String, OwnedFd)> {
    const TRIES: usize = 16;
    let control = open("/dev/loop-control", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let mut config = LoopConfig::new_zeroed();
    config.file = file.as_fd().as_raw_fd() as u32;
    config.flags = LO_FLAGS_AUTOCLEAR;
    config.size_limit = limit;
    let shown = name.len().min(LOOP_NAME_LEN - 1);
    config.file_name[..shown].copy_from_slice(&name[..shown]);
    for _ in 0..TRIES {
        // SAFETY: see `GetFree`.
        let number = unsafe { ioctl(&control, GetFree)? };
        let path = format!("/dev/loop{number}");
        let device = open(path.as_str(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        // SAFETY: the ioctl reads a `struct loop_config`, whose layout this is.
        let set = unsafe { ioctl(&device, Configure(&mut config)) };
        match set {
            Ok(()) => return Ok((path, device)),
            Err(Errno::BUSY) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::BUSY)
}

struct Configure<'a>(&'a mut LoopConfig);

// SAFETY: the ioctl reads the structure that the pointer leads to, which lives as long as the call.
unsafe impl Ioctl for Configure<'_> {
    type Output = ();
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CONFIGURE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(self.0).cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> Result<()> {
        Ok(())
    }
}

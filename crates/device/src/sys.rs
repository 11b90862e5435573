//! System calls that no crate wraps safely.
//!
//! Safety policy: every function takes a borrowed file descriptor, and either plain numbers or memory whose validity the caller of an
//! `unsafe fn` promises. Results are checked before use.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use diorite_block::Access;
use rustix::fs::{AtFlags, StatxFlags};

const BLKROGET: libc::Ioctl = 0x125e;
const BLKDISCARD: libc::Ioctl = 0x1277;
const BLKZEROOUT: libc::Ioctl = 0x127f;

/// The answer of `statx(2)` about direct I/O on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirectAlignment {
    /// The kernel or the filesystem does not say.
    Unknown,
    /// Direct I/O is not possible.
    Refused,
    /// Direct I/O is possible with these alignments in bytes.
    Supported { memory: u32, offset: u32 },
}

/// Ask for a file's alignment of direct I/O. Reads may have a finer one than writes (`STATX_DIO_READ_ALIGN`, Linux 6.16): a write to shared
/// blocks of XFS replaces whole blocks.
pub(crate) fn direct_alignment(fd: BorrowedFd<'_>, access: Access) -> DirectAlignment {
    /// `STATX_DIO_READ_ALIGN`.
    const READ_ALIGN: StatxFlags = StatxFlags::from_bits_retain(0x2_0000);
    let result = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN | READ_ALIGN);
    let answer = result.ok().filter(|statx| statx.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    let Some(statx) = answer else { return DirectAlignment::Unknown };
    let has_read_align = statx.stx_mask & READ_ALIGN.bits() != 0 && statx.stx_dio_read_offset_align != 0;
    let offset = if access == Access::ReadOnly && has_read_align {
        statx.stx_dio_read_offset_align
    } else {
        statx.stx_dio_offset_align
    };
    match (statx.stx_dio_mem_align, offset) {
        (0, _) | (_, 0) => DirectAlignment::Refused,
        (memory, offset) if memory.is_power_of_two() && offset.is_power_of_two() => {
            DirectAlignment::Supported { memory, offset }
        }
        _ => DirectAlignment::Unknown,
    }
}

/// Whether a block device is read-only.
pub(crate) fn is_read_only(fd: BorrowedFd<'_>) -> bool {
    let mut read_only: libc::c_int = 0;
    // SAFETY: BLKROGET writes one int.
    let result = check(unsafe { libc::ioctl(fd.as_raw_fd(), BLKROGET, &raw mut read_only) });
    result.is_ok() && read_only != 0
}

/// Inform a block device that a range is no longer needed.
pub(crate) fn block_discard(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let range = [offset, len];
    // SAFETY: BLKDISCARD reads two 64-bit numbers.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), BLKDISCARD, range.as_ptr()) })
}

/// Fill a range of a block device with zeros.
pub(crate) fn block_zero(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let range = [offset, len];
    // SAFETY: BLKZEROOUT reads two 64-bit numbers.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), BLKZEROOUT, range.as_ptr()) })
}

/// Whether a file supports transfers that do not wait. `io_uring` passes transfers of other files to kernel threads.
pub(crate) fn can_be_asynchronous(fd: BorrowedFd<'_>, memory: &mut [u8]) -> bool {
    /// After the end of every file, so that nothing is read.
    const OFFSET: libc::off_t = 1 << 62;
    let segment = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
    // SAFETY: the segment is memory that is borrowed mutably during the call.
    let read = unsafe { libc::preadv2(fd.as_raw_fd(), &raw const segment, 1, OFFSET, libc::RWF_NOWAIT) };
    read >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EOPNOTSUPP)
}

/// Begin to write back dirty pages of a range of a file (`sync_file_range(2)`). Nothing becomes durable by it.
///
/// # Errors
/// An earlier or this writeback failed.
pub fn begin_writeback(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    sync_file_range(fd, offset, len, libc::SYNC_FILE_RANGE_WRITE)
}

/// As [`begin_writeback`], and wait until the pages are written.
///
/// # Errors
/// As of [`begin_writeback`].
pub fn write_back(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let all =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_file_range(fd, offset, len, all)
}

fn sync_file_range(fd: BorrowedFd<'_>, offset: u64, len: u64, flags: libc::c_uint) -> io::Result<()> {
    let (offset, len) = (offset as libc::off64_t, len as libc::off64_t);
    // SAFETY: numbers only.
    check(unsafe { libc::sync_file_range(fd.as_raw_fd(), offset, len, flags) })
}

/// The name of this host, as `uname -n` prints it.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The time of the clock's last tick, never 0.
#[inline]
pub(crate) fn tick() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    1 + (time.tv_sec as u64).wrapping_mul(1_000_000_000) + time.tv_nsec as u64
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Register memory in a slot of the table of a ring, or empty the slot (`len` 0).
pub(crate) fn update_registered(
    ring: BorrowedFd<'_>,
    slot: u32,
    address: usize,
    len: usize,
) -> io::Result<()> {
    /// `struct io_uring_rsrc_update2` of `linux/io_uring.h`.
    #[repr(C)]
    struct Update {
        offset: u32,
        reserved: u32,
        data: u64,
        tags: u64,
        count: u32,
        reserved2: u32,
    }
    const BUFFERS_UPDATE: libc::c_uint = 16;
    let memory = libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(address), iov_len: len };
    let data = std::ptr::from_ref(&memory).expose_provenance() as u64;
    let update = Update { offset: slot, reserved: 0, data, tags: 0, count: 1, reserved2: 0 };
    // SAFETY: the kernel reads the two structures, which live until the call returns, and pins the pages. Transfers name the slot only
    // for memory that they own (`memory/registered.rs`).
    let returned = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring.as_raw_fd(),
            BUFFERS_UPDATE,
            &raw const update,
            size_of::<Update>(),
        )
    };
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Enter an `io_uring`: submit this number of entries, and wait for a completion or until the timeout (`ETIME`).
pub(crate) fn enter_ring(ring: BorrowedFd<'_>, submit: u32, timeout: Option<Duration>) -> io::Result<()> {
    /// `struct io_uring_getevents_arg` and `struct __kernel_timespec` of `linux/io_uring.h`.
    #[repr(C)]
    struct Argument {
        signals: u64,
        signals_len: u32,
        min_wait_us: u32,
        timeout: u64,
    }
    #[repr(C)]
    struct Timespec {
        seconds: i64,
        nanoseconds: i64,
    }
    const GETEVENTS: libc::c_uint = 1;
    const EXT_ARG: libc::c_uint = 1 << 3;
    let time = timeout.map(|timeout| Timespec {
        seconds: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        nanoseconds: i64::from(timeout.subsec_nanos()),
    });
    let timeout = time.as_ref().map_or(0, |time| std::ptr::from_ref(time).expose_provenance() as u64);
    let argument = Argument { signals: 0, signals_len: 0, min_wait_us: 0, timeout };
    // SAFETY: the kernel reads the argument and the time, which live until the call returns. What the entries refer to is promised to
    // whom pushed them.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_io_uring_enter,
            ring.as_raw_fd(),
            submit,
            1 as libc::c_uint,
            GETEVENTS | EXT_ARG,
            &raw const argument,
            size_of::<Argument>(),
        )
    };
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `pread(2)`, or `preadv2(2)` for several segments: the bytes read, or minus the error number, as `io_uring` reports it.
///
/// # Safety
/// `segments` must describe memory that is valid for writes and not accessed otherwise during the call.
pub(crate) unsafe fn preadv(fd: libc::c_int, segments: &[libc::iovec], offset: u64) -> i64 {
    if let [segment] = segments
        && segment.iov_len > 0
    {
        // SAFETY: promised by the caller; the descriptor is open during the call.
        let (fd, memory) = unsafe {
            let memory = std::slice::from_raw_parts_mut(segment.iov_base.cast::<u8>(), segment.iov_len);
            (BorrowedFd::borrow_raw(fd), memory)
        };
        // Without the cancellation points of the C library.
        return of_rustix(rustix::io::pread(fd, memory, offset));
    }
    let count = segments.len().min(libc::UIO_MAXIOV as usize) as libc::c_int;
    // SAFETY: promised by the caller.
    result(unsafe { libc::preadv2(fd, segments.as_ptr(), count, offset as libc::off_t, 0) })
}

/// `pwrite(2)`, or `pwritev2(2)` for flags or several segments: the bytes written, or minus the error number, as `io_uring`
/// reports it.
///
/// # Safety
/// `segments` must describe memory that is valid for reads and not changed during the call.
pub(crate) unsafe fn pwritev(
    fd: libc::c_int,
    segments: &[libc::iovec],
    offset: u64,
    flags: libc::c_int,
) -> i64 {
    if let ([segment], 0) = (segments, flags)
        && segment.iov_len > 0
    {
        // SAFETY: promised by the caller; the descriptor is open during the call.
        let (fd, memory) = unsafe {
            let memory = std::slice::from_raw_parts(segment.iov_base.cast::<u8>(), segment.iov_len);
            (BorrowedFd::borrow_raw(fd), memory)
        };
        return of_rustix(rustix::io::pwrite(fd, memory, offset));
    }
    let count = segments.len().min(libc::UIO_MAXIOV as usize) as libc::c_int;
    // SAFETY: promised by the caller.
    result(unsafe { libc::pwritev2(fd, segments.as_ptr(), count, offset as libc::off_t, flags) })
}

fn of_rustix(returned: rustix::io::Result<usize>) -> i64 {
    match returned {
        Ok(len) => len as i64,
        Err(errno) => -i64::from(errno.raw_os_error()),
    }
}

fn result(returned: libc::ssize_t) -> i64 {
    if returned >= 0 {
        returned as i64
    } else {
        -i64::from(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }
}

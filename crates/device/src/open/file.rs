//! An image file or a block device of the host.
//!
//! Where it sits: the device that a filesystem usually lives on. This module has the open file, and the calls that one
//! thread makes on it. `transfers/device.rs` is the file as a block device, above the batches and queues that know this file.
//!
//! Interface:
//! - Exclusive while it is open for writing, shared among readers otherwise (`open/mod.rs`).
//! - The size is fixed while it is open. A transfer beyond the end is refused, and a file that another process truncated is not written any
//!   more. [`Growth::Free`] lifts this for files that are no disks.
//! - [`FileDevice::is_direct`] tells whether the host's page cache is bypassed.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use diorite_block::{Geometry, IoCounters, IoErrorKind, Op};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;

use super::Opened;
use super::abilities::abilities;
use super::direct::{HostCache, set_direct};
use super::kind::Kind;
use super::shared::{FileVersion, SharedOpen};
use crate::error::{OpenError, os_error};
use crate::memory::buffer::AlignedBuf;
use crate::options::{Access, Backend, DirectIo, Growth, OpenOptions, Polling};
use crate::sys;

/// Environment variables for options that the program leaves at `Auto`.
const BACKEND_VARIABLE: &str = "DIORITE_IO_BACKEND";
const POLLING_VARIABLE: &str = "DIORITE_IO_POLLING";

/// tmpfs, ramfs and hugetlbfs, as `statfs(2)` lists them.
const MEMORY_MAGICS: [u32; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];

/// Length and alignment of a read that any direct I/O takes.
const PROBE_BYTES: usize = 4096;

/// The granularity of a file whose end is no error to a read.
pub(crate) const GROWING: u32 = 0;

/// The host's kind of transfers for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostIo {
    /// Direct I/O that the kernel completes without a thread of its own.
    Asynchronous,
    /// The file lies in memory (tmpfs): a transfer is a copy.
    Memory,
    /// The page cache, or a filesystem without asynchronous I/O: a transfer may sleep.
    Synchronous,
}

/// See the module's head.
#[derive(Debug)]
pub struct FileDevice {
    fd: OwnedFd,
    /// The same file, open for writing since another open joined ([`FileDevice::join`]).
    writer: OnceLock<OwnedFd>,
    /// The backing file of a loop device, with the same lock.
    backing: Option<OwnedFd>,
    path: PathBuf,
    kind: Kind,
    host_cache: HostCache,
    growth: Growth,
    uses_ring: bool,
    host_io: HostIo,
    /// The tick of the clock of the last check for truncation.
    checked_at: AtomicU64,
    polling: Polling,
    /// The process that holds the lock.
    locked_by: u32,
    pub(crate) geometry: Geometry,
    pub(crate) counters: IoCounters,
}

impl FileDevice {
    /// Open an image file or a block device.
    ///
    /// # Errors
    /// The file does not exist, is in use, or cannot be opened with these options. The error says what to do.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Arc<Self>, OpenError> {
        let path = path.as_ref();
        let uses_ring = chooses_ring(path, options.backend)?;
        let polling = chooses_polling(options.polling)?;
        let opened = super::open(path, options)?;
        Ok(Self::of_opened(path, options, opened, uses_ring, polling))
    }

    fn of_opened(
        path: &Path,
        options: &OpenOptions,
        opened: Opened,
        uses_ring: bool,
        polling: Polling,
    ) -> Arc<Self> {
        let is_direct = opened.host_cache.alignment().is_some();
        let host_io = host_io(uses_ring && is_direct, opened.fd.as_fd());
        Arc::new(Self {
            fd: opened.fd,
            writer: OnceLock::new(),
            backing: opened.backing,
            path: path.to_owned(),
            kind: opened.kind,
            host_cache: opened.host_cache,
            growth: options.growth,
            uses_ring,
            host_io,
            checked_at: AtomicU64::new(0),
            polling,
            locked_by: std::process::id(),
            geometry: opened.geometry,
            counters: IoCounters::default(),
        })
    }

    /// The device of a file that is open and has no device yet in this process.
    ///
    /// # Errors
    /// As [`FileDevice::open`].
    pub fn of_shared(file: SharedOpen) -> Result<Arc<Self>, OpenError> {
        let SharedOpen { path, options, fd, made } = file;
        let chosen = chooses_ring(&path, options.backend)
            .and_then(|uses_ring| Ok((uses_ring, chooses_polling(options.polling)?)));
        let (uses_ring, polling) = chosen.inspect_err(|_| super::remove_made(&path, made))?;
        let opened = super::finish_made(&path, &options, fd, made)?;
        Ok(Self::of_opened(&path, &options, opened, uses_ring, polling))
    }

    /// Another open of the same file in this process. The file becomes writable if that open is for writing, and is locked exclusively from
    /// then on. All opens have one alignment.
    ///
    /// # Errors
    /// Direct I/O is required and refused; another process has the file open; the error of the system.
    pub fn join(&self, file: SharedOpen) -> Result<(), OpenError> {
        let path = || file.path.clone();
        if file.options.direct == DirectIo::Required
            && let Some(why) = self.direct_refusal()
        {
            return Err(OpenError::DirectRefused { path: path(), why: why.to_owned() });
        }
        if file.options.access == Access::ReadOnly || self.is_writable() {
            return Ok(());
        }
        self.lock_for_writing(&file)?;
        if self.is_direct() {
            set_direct(&file.fd, true).map_err(os_error(&file.path, "turn direct I/O on"))?;
        }
        // Another thread may have been faster.
        let _ = self.writer.set(file.fd);
        Ok(())
    }

    /// Exchange the reader's lock for a writer's.
    fn lock_for_writing(&self, file: &SharedOpen) -> Result<(), OpenError> {
        super::check_writable(&file.path, &file.fd, self.kind)?;
        match rustix::fs::flock(&self.fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(()),
            Err(Errno::WOULDBLOCK) => {
                // A failed exchange may release the lock.
                let _ = rustix::fs::flock(&self.fd, FlockOperation::NonBlockingLockShared);
                let holder = super::lock_holder(&file.fd);
                Err(OpenError::Locked { path: file.path.clone(), holder, used: "open" })
            }
            Err(errno) => Err(OpenError::NoLocks { path: file.path.clone(), source: errno.into() }),
        }
    }

    /// Whether some open of it is for writing.
    fn is_writable(&self) -> bool {
        self.writer.get().is_some()
            || rustix::fs::fcntl_getfl(&self.fd).is_ok_and(|flags| flags.contains(OFlags::RDWR))
    }

    /// The descriptor for reads and writes.
    fn descriptor(&self) -> &OwnedFd {
        self.writer.get().unwrap_or(&self.fd)
    }

    /// Whether transfers bypass the host's page cache.
    pub fn is_direct(&self) -> bool {
        matches!(self.host_cache, HostCache::Bypassed(_))
    }

    /// Why transfers do not bypass the host's page cache, although the options prefer that.
    pub fn direct_refusal(&self) -> Option<&str> {
        match &self.host_cache {
            HostCache::Refused(why) => Some(why),
            HostCache::Bypassed(_) | HostCache::Wanted => None,
        }
    }

    /// The back end in use: [`Backend::IoUring`] or [`Backend::Threads`].
    pub fn backend(&self) -> Backend {
        if self.uses_ring { Backend::IoUring } else { Backend::Threads }
    }

    pub(crate) fn uses_ring(&self) -> bool {
        self.uses_ring
    }

    pub(crate) fn host_io(&self) -> HostIo {
        self.host_io
    }

    pub(crate) fn polling(&self) -> Polling {
        self.polling
    }

    /// Whether it is a block device rather than a file.
    pub fn is_block_device(&self) -> bool {
        self.kind == Kind::BlockDevice
    }

    /// Bytes of a sector of the disk, with and without direct I/O; 512 for an image.
    pub(crate) fn disk_sector_bytes(&self) -> u32 {
        let block = self.is_block_device().then(|| rustix::fs::ioctl_blksszget(&self.fd).ok()).flatten();
        block.filter(|bytes| bytes.is_power_of_two() && *bytes >= 512).unwrap_or(512)
    }

    /// The size of the file at this moment, or the capacity of the block device.
    ///
    /// # Errors
    /// The error of the system.
    pub fn file_size(&self) -> io::Result<u64> {
        match self.kind {
            Kind::BlockDevice => Ok(self.geometry.capacity_bytes),
            Kind::File => {
                let stat = rustix::fs::fstat(&self.fd)?;
                Ok(u64::try_from(stat.st_size).unwrap_or(0))
            }
        }
    }

    /// The attributes of the open file, also after it was renamed or removed.
    ///
    /// # Errors
    /// The error of the system.
    pub fn metadata(&self) -> io::Result<std::fs::Metadata> {
        std::fs::File::from(self.fd.try_clone()?).metadata()
    }

    /// The version of the file's content, as far as the host records it.
    ///
    /// # Errors
    /// The error of the system.
    pub fn version(&self) -> io::Result<FileVersion> {
        Ok(FileVersion::of(&rustix::fs::fstat(&self.fd)?))
    }

    /// Fail if the image was truncated since it was opened: a write past its new end would extend it again, with a hole in place of the
    /// rest of the filesystem. The check runs once in a tick of the coarse clock (up to 10 ms), because it costs half of a small
    /// write to memory. Before a flush it always runs ([`FileDevice::check_size`]).
    #[inline]
    pub(crate) fn check_not_truncated(&self) -> Result<(), IoErrorKind> {
        let tick = sys::tick();
        if self.checked_at.load(Ordering::Relaxed) == tick {
            return Ok(());
        }
        self.check_size()?;
        self.checked_at.store(tick, Ordering::Relaxed);
        Ok(())
    }

    /// Fail if the file is shorter than when it was opened.
    pub(crate) fn check_size(&self) -> Result<(), IoErrorKind> {
        let capacity = self.geometry.capacity_bytes;
        if self.growth == Growth::Free {
            return Ok(());
        }
        match self.file_size().map_err(IoErrorKind::Device)? {
            bytes if bytes >= capacity => Ok(()),
            bytes => Err(IoErrorKind::Device(io::Error::other(format!(
                "the file was truncated to {bytes} bytes while it is open; it had {capacity}"
            )))),
        }
    }

    /// Set the size of a file that was opened with [`Growth::Free`].
    ///
    /// # Errors
    /// The file was opened without it, or the error of the system.
    pub fn set_file_size(&self, bytes: u64) -> io::Result<()> {
        if self.growth != Growth::Free || self.kind != Kind::File {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        Ok(rustix::fs::ftruncate(self.descriptor(), bytes)?)
    }

    /// Allocate blocks of the host's filesystem for a range of the file. Its size and content stay.
    ///
    /// # Errors
    /// The host has no space, or its filesystem does not support this.
    pub fn reserve_blocks(&self, offset: u64, len: u64) -> io::Result<()> {
        self.allocate(FallocateFlags::KEEP_SIZE, offset, len)
    }

    /// The path given to [`FileDevice::open`].
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.descriptor().as_raw_fd()
    }

    /// A transfer that stops inside a block of this size has reached the end of the file.
    pub(crate) fn granularity(&self) -> u32 {
        if self.growth == Growth::Free && self.kind == Kind::File {
            return GROWING;
        }
        if self.is_direct() { self.geometry.logical_block_size } else { 1 }
    }

    /// Make all completed writes durable, in this thread.
    pub(crate) fn flush_now(&self) -> Result<(), IoErrorKind> {
        loop {
            match rustix::fs::fdatasync(self.descriptor()) {
                Err(rustix::io::Errno::INTR) => {}
                result => return result.map_err(|errno| IoErrorKind::Device(errno.into())),
            }
        }
    }

    /// Discard a range or fill it with zeros, in this thread.
    pub(crate) fn without_memory_now(&self, op: Op, offset: u64, len: u64) -> Result<(), IoErrorKind> {
        if len == 0 {
            return Ok(());
        }
        let keep = FallocateFlags::KEEP_SIZE;
        let result = match (op, self.kind) {
            (Op::Discard, Kind::File) => self.allocate(keep | FallocateFlags::PUNCH_HOLE, offset, len),
            (Op::Discard, Kind::BlockDevice) => sys::block_discard(self.fd.as_fd(), offset, len),
            // A hole first, because zeros of a sparse image must not take space.
            (Op::WriteZeroes, Kind::File) => self
                .allocate(keep | FallocateFlags::PUNCH_HOLE, offset, len)
                .or_else(|_| self.allocate(keep | FallocateFlags::ZERO_RANGE, offset, len)),
            (_, Kind::BlockDevice) => sys::block_zero(self.fd.as_fd(), offset, len),
            (_, Kind::File) => Ok(()),
        };
        match result {
            Ok(()) => Ok(()),
            Err(error) if !self.is_unsupported(&error) => Err(IoErrorKind::Device(error)),
            Err(_) if op == Op::WriteZeroes => self.write_zeros(offset, len),
            Err(_) => Err(IoErrorKind::Unsupported),
        }
    }

    /// Whether an error means that the call is not supported. A block device without direct I/O refuses ranges of partial blocks with EINVAL.
    fn is_unsupported(&self, error: &io::Error) -> bool {
        match error.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY) => true,
            Some(libc::EINVAL) => self.kind == Kind::BlockDevice && !self.is_direct(),
            _ => false,
        }
    }

    fn allocate(&self, flags: FallocateFlags, offset: u64, len: u64) -> io::Result<()> {
        loop {
            match rustix::fs::fallocate(self.descriptor(), flags, offset, len) {
                Err(rustix::io::Errno::INTR) => {}
                result => return result.map_err(io::Error::from),
            }
        }
    }

    fn write_zeros(&self, mut offset: u64, mut len: u64) -> Result<(), IoErrorKind> {
        let step = len.min(u64::from(self.geometry.max_transfer_bytes));
        let alignment = self.geometry.memory_alignment.max(512) as usize;
        let zeros = AlignedBuf::try_zeroed(step as usize, alignment).map_err(IoErrorKind::Device)?;
        while len > 0 {
            let now = len.min(step) as usize;
            let written = match rustix::io::pwrite(self.descriptor(), &zeros[..now], offset) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(IoErrorKind::Device(errno.into())),
                Ok(0) => return Err(IoErrorKind::Short { done: 0 }),
                Ok(written) => written as u64,
            };
            offset += written;
            len -= written;
        }
        Ok(())
    }
}

/// The host's kind of transfers for a file, detected by a read that must not wait.
fn host_io(can_be_asynchronous: bool, fd: BorrowedFd<'_>) -> HostIo {
    let mut memory = AlignedBuf::zeroed(PROBE_BYTES, PROBE_BYTES);
    if can_be_asynchronous && sys::can_be_asynchronous(fd, &mut memory) {
        return HostIo::Asynchronous;
    }
    let is_in_memory =
        rustix::fs::fstatfs(fd).is_ok_and(|found| MEMORY_MAGICS.contains(&(found.f_type as u32)));
    if is_in_memory { HostIo::Memory } else { HostIo::Synchronous }
}

/// Whether transfers use rings.
fn chooses_ring(path: &Path, wanted: Backend) -> Result<bool, OpenError> {
    let from_environment = || match std::env::var(BACKEND_VARIABLE).as_deref() {
        Err(_) | Ok("" | "auto") => Ok(Backend::Auto),
        Ok("io_uring") => Ok(Backend::IoUring),
        Ok("threads") => Ok(Backend::Threads),
        Ok(other) => Err(bad_choice(BACKEND_VARIABLE, other, r#""threads", "io_uring" or "auto""#)),
    };
    let wanted = if wanted == Backend::Auto { from_environment()? } else { wanted };
    match (wanted, abilities()) {
        (Backend::Threads, _) | (Backend::Auto, Err(_)) => Ok(false),
        (_, Ok(_)) => Ok(true),
        (Backend::IoUring, Err(source)) => Err(OpenError::NoIoUring { path: path.to_owned(), source }),
    }
}

/// Whether a thread may poll for small transfers.
fn chooses_polling(wanted: Polling) -> Result<Polling, OpenError> {
    match std::env::var(POLLING_VARIABLE).as_deref() {
        _ if wanted == Polling::Never => Ok(wanted),
        Err(_) | Ok("" | "auto") => Ok(Polling::Auto),
        Ok("never") => Ok(Polling::Never),
        Ok(other) => Err(bad_choice(POLLING_VARIABLE, other, r#""never" or "auto""#)),
    }
}

fn bad_choice(variable: &'static str, value: &str, choices: &'static str) -> OpenError {
    OpenError::BadChoice { variable, value: value.to_owned(), choices }
}

impl FileDevice {
    /// Release the locks. A forked child must not release locks of its parent.
    pub(crate) fn unlock(&self) {
        if self.locked_by == std::process::id() {
            let _ = rustix::fs::flock(&self.fd, FlockOperation::Unlock);
            if let Some(backing) = &self.backing {
                let _ = rustix::fs::flock(backing, FlockOperation::Unlock);
            }
        }
    }
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        // A child of another thread, or a request that is being freed, may keep the open file for a moment. The lock ends now.
        self.unlock();
    }
}

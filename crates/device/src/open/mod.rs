//! Opens a file or a block device: existence, kind, lock, size, alignment of direct I/O.
//!
//! Where it sits: all that [`crate::FileDevice::open`] does before the device exists.
//!
//! Order: kind -> open -> lock -> size -> direct I/O and its alignment -> a real read as proof. The lock is taken before any change.
//! A file created here is removed again when a later step fails.
//!
//! Locking: writers hold an exclusive `flock` and readers a shared one, so an image has either one writer or any number of readers, in
//! all processes. Cooperating writers hold a shared lock. A block device is opened for writing with `O_EXCL`, which the kernel refuses while
//! it is mounted. The backing file of a loop device is locked, too.

pub(crate) mod abilities;
mod direct;
pub(crate) mod file;
mod kind;
mod lock_holder;
mod loop_holder;
pub(crate) mod shared;
mod sysfs;

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use diorite_block::Geometry;
use rustix::fs::{FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use self::direct::{Alignment, HostCache, make_direct};
use self::kind::Kind;
use self::lock_holder::lock_holder;
use self::loop_holder::{backing_file, busy_loop_device};
use self::sysfs::QueueLimits;
use crate::error::{DIRECTORY, LockHolder, OpenError, os_error};
use crate::options::{Access, Create, Growth, OpenOptions, Sharing};
use crate::sys;

/// Largest transfer of an image file.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Memory segments of one system call (`UIO_MAXIOV`).
const SEGMENTS_MAX: u16 = 1024;
/// Larger than the largest file of any filesystem.
const FILE_BYTES_MAX: u64 = 1 << 62;
/// The time to retry while the holder is about to release the device (udev, a request that is being freed).
const BUSY_TIMEOUT: Duration = Duration::from_millis(200);
/// The time to retry for the lock of a dead process, which the kernel releases when its transfers in flight are done.
pub(crate) const STALE_LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// An opened and locked file, ready to be used.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) fd: OwnedFd,
    /// The backing file of a loop device, locked as long as it is open.
    pub(crate) backing: Option<OwnedFd>,
    pub(crate) kind: Kind,
    pub(crate) host_cache: HostCache,
    pub(crate) geometry: Geometry,
}

/// See the module's head.
pub(crate) fn open(path: &Path, options: &OpenOptions) -> Result<Opened, OpenError> {
    let (fd, made) = open_or_make(path, options)?;
    finish_made(path, options, fd, made)
}

/// Finish an open. A file that was created for it is removed if that fails.
fn finish_made(path: &Path, options: &OpenOptions, fd: OwnedFd, made: bool) -> Result<Opened, OpenError> {
    finish(path, options, fd).inspect_err(|_| remove_made(path, made))
}

fn remove_made(path: &Path, made: bool) {
    if made {
        // If the removal fails too, the first error is reported.
        let _ = rustix::fs::unlink(path);
    }
}

fn finish(path: &Path, options: &OpenOptions, fd: OwnedFd) -> Result<Opened, OpenError> {
    let kind = Kind::of_open(path, &fd)?;
    lock(path, options, &fd, kind)?;
    let backing = match kind {
        Kind::File => None,
        Kind::BlockDevice => lock_backing_file(path, options, &fd)?,
    };
    if options.access == Access::ReadWrite {
        check_writable(path, &fd, kind)?;
    }
    let bytes = size(path, options, &fd, kind)?;
    // A file that may grow can be opened for writing later (`FileDevice::join`).
    let transfers = if options.growth == Growth::Free { Access::ReadWrite } else { options.access };
    let host_cache = make_direct(path, options.direct, &fd, kind, transfers)?;
    let geometry = geometry(path, options, &fd, kind, bytes, host_cache.alignment())?;
    Ok(Opened { fd, backing, kind, host_cache, geometry })
}

fn open_or_make(path: &Path, options: &OpenOptions) -> Result<(OwnedFd, bool), OpenError> {
    let access = match options.access {
        Access::ReadOnly => OFlags::RDONLY,
        Access::ReadWrite => OFlags::RDWR,
    };
    let flags = access | OFlags::CLOEXEC | OFlags::NOCTTY;
    let error = |errno: Errno| open_error(path, options.access, errno);
    if options.create != Create::Never && options.access == Access::ReadWrite {
        let mode = Mode::from_raw_mode(if options.growth == Growth::Free { 0o666 } else { 0o644 });
        match rustix::fs::open(path, flags | OFlags::CREATE | OFlags::EXCL, mode) {
            Ok(fd) => return Ok((fd, true)),
            Err(Errno::EXIST) if matches!(options.create, Create::Sized(_)) => {}
            Err(errno) => return Err(error(errno)),
        }
    }
    // Opening a fifo would wait for its other end.
    let stat = rustix::fs::stat(path).map_err(error)?;
    let kind = Kind::of(path, &stat)?;
    let exclusive = kind == Kind::BlockDevice && locks_exclusively(options);
    let flags = if exclusive { flags | OFlags::EXCL } else { flags };
    let open =
        |flags| retry_while(BUSY_TIMEOUT, Errno::BUSY, || rustix::fs::open(path, flags, Mode::empty()));
    // An access time costs the host a tenth of a small read. The owner of a file may switch it off.
    let quiet = if options.growth == Growth::Fixed { OFlags::NOATIME } else { OFlags::empty() };
    let fd = match open(flags | quiet) {
        Err(Errno::PERM) if !quiet.is_empty() => open(flags),
        result => result,
    };
    Ok((fd.map_err(error)?, false))
}

fn open_error(path: &Path, access: Access, errno: Errno) -> OpenError {
    let path = path.to_owned();
    match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::NXIO | Errno::NODEV => OpenError::NotFound { path },
        Errno::ROFS => {
            let why = "its filesystem is mounted read-only; open it read-only, or copy it elsewhere";
            OpenError::ReadOnly { path, why: why.to_owned() }
        }
        Errno::PERM if access == Access::ReadWrite => {
            let why =
                "it is immutable or append-only; open it read-only, or clear the flag (lsattr, chattr -i)";
            OpenError::ReadOnly { path, why: why.to_owned() }
        }
        Errno::ACCESS | Errno::PERM => {
            let access = if access == Access::ReadOnly { "reading" } else { "writing" };
            OpenError::Permission { path, access }
        }
        Errno::EXIST => OpenError::Exists { path },
        Errno::BUSY => OpenError::Busy { path, through: None },
        Errno::ISDIR => OpenError::NotADevice { path, kind: DIRECTORY },
        _ => OpenError::Os { path, what: "open", source: errno.into() },
    }
}

/// Repeat `call` while it gives `errno`, until the timeout.
fn retry_while<T>(
    timeout: Duration,
    errno: Errno,
    mut call: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    const STEP: Duration = Duration::from_millis(5);
    let mut waited = Duration::ZERO;
    loop {
        match call() {
            Err(error) if error == errno && waited < timeout => {
                std::thread::sleep(STEP);
                waited += STEP;
            }
            result => return result,
        }
    }
}

fn locks_exclusively(options: &OpenOptions) -> bool {
    options.access == Access::ReadWrite && options.sharing == Sharing::Exclusive
}

fn lock(path: &Path, options: &OpenOptions, fd: &OwnedFd, kind: Kind) -> Result<(), OpenError> {
    let access = options.access;
    let (operation, used) = if locks_exclusively(options) {
        (FlockOperation::NonBlockingLockExclusive, "open")
    } else {
        (FlockOperation::NonBlockingLockShared, "being written")
    };
    let path = || path.to_owned();
    let mut result = rustix::fs::flock(fd, operation);
    if result == Err(Errno::WOULDBLOCK) {
        let timeout = match kind {
            // udev locks a device for a moment while it looks at it.
            Kind::BlockDevice => BUSY_TIMEOUT,
            Kind::File if lock_holder(fd) == LockHolder::Unknown => STALE_LOCK_TIMEOUT,
            Kind::File => Duration::ZERO,
        };
        result = retry_while(timeout, Errno::WOULDBLOCK, || rustix::fs::flock(fd, operation));
    }
    match result {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(OpenError::Locked { path: path(), holder: lock_holder(fd), used }),
        // A reader without a lock endangers nothing.
        Err(_) if access == Access::ReadOnly => Ok(()),
        Err(errno) => Err(OpenError::NoLocks { path: path(), source: errno.into() }),
    }
}

/// Lock the backing file of a loop device. A device that shows a part of the file takes a shared lock, which excludes writers of the whole.
fn lock_backing_file(path: &Path, options: &OpenOptions, fd: &OwnedFd) -> Result<Option<OwnedFd>, OpenError> {
    let Some(backing) = backing_file(fd) else { return Ok(None) };
    let operation = if locks_exclusively(options) && backing.is_whole {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    match retry_while(BUSY_TIMEOUT, Errno::WOULDBLOCK, || rustix::fs::flock(&backing.fd, operation)) {
        Err(Errno::WOULDBLOCK) => Err(OpenError::Locked {
            path: format!("{} (on {})", path.display(), backing.path.display()).into(),
            holder: lock_holder(&backing.fd),
            used: "open",
        }),
        // A filesystem without locks: only the kernel's claim on the device protects it.
        _ => Ok(Some(backing.fd)),
    }
}

/// Check that a device opened for writing is writable, and not in use through a loop device.
fn check_writable(path: &Path, fd: &OwnedFd, kind: Kind) -> Result<(), OpenError> {
    match kind {
        Kind::File => {
            let mut through = None;
            // After `umount` a loop device keeps its file and its claim for a moment.
            let free = retry_while(BUSY_TIMEOUT, Errno::BUSY, || {
                through = busy_loop_device(fd);
                if through.is_none() { Ok(()) } else { Err(Errno::BUSY) }
            });
            free.map_err(|_| OpenError::Busy { path: path.to_owned(), through })
        }
        // The kernel opens some read-only devices for writing, and refuses each write.
        Kind::BlockDevice if sys::is_read_only(fd.as_fd()) => {
            let why = "the device is read-only; open it read-only, or make it writable (blockdev --setrw)";
            Err(OpenError::ReadOnly { path: path.to_owned(), why: why.to_owned() })
        }
        Kind::BlockDevice => Ok(()),
    }
}

/// Set the requested size of the file, if any. Returns the size.
fn size(path: &Path, options: &OpenOptions, fd: &OwnedFd, kind: Kind) -> Result<u64, OpenError> {
    let wanted = match options.create {
        Create::Sized(bytes) | Create::NewSized(bytes)
            if options.access == Access::ReadWrite && options.growth == Growth::Fixed =>
        {
            Some(bytes)
        }
        _ => None,
    };
    match kind {
        Kind::File => {
            if let Some(bytes) = wanted {
                // EINVAL means that the size exceeds the limit of the filesystem.
                let sized = rustix::fs::ftruncate(fd, bytes)
                    .map_err(|errno| if errno == Errno::INVAL { Errno::FBIG } else { errno });
                sized.map_err(os_error(path, "set the size"))?;
            }
            let stat = rustix::fs::fstat(fd).map_err(os_error(path, "examine"))?;
            Ok(u64::try_from(stat.st_size).unwrap_or(0))
        }
        Kind::BlockDevice => {
            let capacity =
                rustix::fs::seek(fd, SeekFrom::End(0)).map_err(os_error(path, "ask for the size"))?;
            match wanted {
                Some(wanted) if wanted > capacity => {
                    Err(OpenError::CannotGrow { path: path.to_owned(), wanted, capacity })
                }
                _ => Ok(capacity),
            }
        }
    }
}

fn geometry(
    path: &Path,
    options: &OpenOptions,
    fd: &OwnedFd,
    kind: Kind,
    bytes: u64,
    alignment: Option<Alignment>,
) -> Result<Geometry, OpenError> {
    let stat = rustix::fs::fstat(fd).map_err(os_error(path, "examine"))?;
    let (logical_block_size, memory_alignment) = alignment.map_or((512, 1), |a| (a.offset, a.memory));
    let bytes = if options.growth == Growth::Free && kind == Kind::File { FILE_BYTES_MAX } else { bytes };
    let capacity_bytes = bytes - bytes % u64::from(logical_block_size);
    if capacity_bytes == 0 {
        return Err(OpenError::TooSmall { path: path.to_owned(), bytes, block: logical_block_size });
    }
    let read_only =
        options.access == Access::ReadOnly && (options.growth == Growth::Fixed || kind == Kind::BlockDevice);
    let file = Geometry {
        capacity_bytes,
        logical_block_size,
        physical_block_size: u32::try_from(stat.st_blksize).unwrap_or(4096).max(logical_block_size),
        memory_alignment,
        max_transfer_bytes: TRANSFER_BYTES_MAX,
        max_segments: SEGMENTS_MAX,
        // fdatasync writes the caches of the host's filesystem and disk.
        atomic_write_bytes: 0,
        volatile_cache: true,
        // On a file, a durable write is a write and an fdatasync in one call.
        fua: false,
        discard: true,
        rotational: false,
        read_only,
    };
    if kind == Kind::File {
        return Ok(file);
    }
    let limits = QueueLimits::of_device(stat.st_rdev);
    let direct = alignment.is_some();
    let physical = rustix::fs::ioctl_blkpbszget(fd).unwrap_or(logical_block_size);
    Ok(Geometry {
        physical_block_size: physical.max(logical_block_size),
        max_transfer_bytes: limits.max_transfer_bytes(TRANSFER_BYTES_MAX).max(logical_block_size),
        max_segments: limits.max_segments.clamp(1, SEGMENTS_MAX),
        atomic_write_bytes: if direct { limits.atomic_write_bytes(TRANSFER_BYTES_MAX) } else { 0 },
        volatile_cache: limits.write_cache || !direct,
        fua: limits.fua && limits.write_cache && direct,
        discard: limits.discard,
        rotational: limits.rotational,
        ..file
    })
}

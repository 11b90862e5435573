//! Errors of opening a device.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use diorite_block::IoError;

/// Why a device cannot be opened. Every message is `OBJECT: what happened: why; what to do`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The path does not exist.
    #[error("{}: cannot open: no such file or device; check the path, or create the image first", path.display())]
    NotFound {
        /// The path.
        path: PathBuf,
    },
    /// The user lacks permission.
    #[error("{}: cannot open for {access}: permission denied; change the file's mode or run as its owner{}", path.display(),
        if *access == "writing" { ", or open it read-only" } else { "" })]
    Permission {
        /// The path.
        path: PathBuf,
        /// `"reading"` or `"writing"`.
        access: &'static str,
    },
    /// [`Create::NewSized`](crate::Create::NewSized): the file already exists.
    #[error("{}: cannot create: it already exists; remove it or choose another name", path.display())]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// Another process has the image open.
    #[error("{}: locked by {holder}: it is {used} there; {}", path.display(), holder.cure())]
    Locked {
        /// The path.
        path: PathBuf,
        /// The process that has it open.
        holder: LockHolder,
        /// The use by that process: `"open"` or `"being written"`.
        used: &'static str,
    },
    /// The block device is mounted, or in use by another device.
    #[error("{}: in use{}: it is mounted or belongs to another device or program; unmount it, or open it read-only", path.display(),
        through.as_ref().map_or_else(String::new, |device| format!(" through {}", device.display())))]
    Busy {
        /// The path.
        path: PathBuf,
        /// The loop device through which an image file is in use.
        through: Option<PathBuf>,
    },
    /// The file, its filesystem or the device is read-only.
    #[error("{}: cannot open for writing: {why}", path.display())]
    ReadOnly {
        /// The path.
        path: PathBuf,
        /// The reason, and what to do.
        why: String,
    },
    /// The filesystem that has the image has no file locks.
    #[error("{}: cannot lock: {source}; open it read-only, or copy it to a filesystem with file locks", path.display())]
    NoLocks {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Direct I/O is required and not possible.
    #[error("{}: direct I/O refused: {why}; move the image to a filesystem that supports O_DIRECT, or open it with \
             direct I/O `preferred` or `off` (--buffered)", path.display())]
    DirectRefused {
        /// The path.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The path is not a file or a block device: a directory, a socket, a terminal.
    #[error("{}: not a block device: it is {kind}; give an image file or a block device", path.display())]
    NotADevice {
        /// The path.
        path: PathBuf,
        /// Its kind, in words.
        kind: &'static str,
    },
    /// The file is smaller than one logical block.
    #[error("{}: too small: it has {bytes} bytes and one block is {block}; give it a size (truncate -s) or make a filesystem", path.display())]
    TooSmall {
        /// The path.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// Bytes of one logical block.
        block: u32,
    },
    /// The requested size exceeds that of the block device.
    #[error("{}: cannot be {wanted} bytes large: the device has {capacity}; use at most that size", path.display())]
    CannotGrow {
        /// The path.
        path: PathBuf,
        /// The requested size in bytes.
        wanted: u64,
        /// Its size in bytes.
        capacity: u64,
    },
    /// The requested back end is not available.
    #[error("{}: io_uring is not available: {source}; use the thread back end (DIORITE_IO_BACKEND=threads)", path.display())]
    NoIoUring {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// An environment variable has an unknown value.
    #[error("{variable}: {value:?} is unknown: use {choices}")]
    BadChoice {
        /// The environment variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The known values.
        choices: &'static str,
    },
    /// Another error of the system.
    #[error("{}: cannot {what}: {source}", path.display())]
    Os {
        /// The path.
        path: PathBuf,
        /// The operation that failed.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The target does not follow the grammar.
    #[error("{spec}: not a device name: {why}")]
    BadTarget {
        /// The target.
        spec: String,
        /// The problem, and what to do.
        why: String,
    },
    /// A bound name that leads to no device (`diorite raw`).
    #[error("{spec}: not a device name: {why}")]
    Unbound {
        /// The target.
        spec: String,
        /// The problem, and what to do.
        why: String,
    },
    /// The device has no partition table, or a damaged one.
    #[error("{device}: no usable partition table: {why}")]
    NoPartitionTable {
        /// The device.
        device: String,
        /// The problem, and what to do.
        why: String,
    },
    /// The table has no partition with this number.
    #[error("{device}: no partition {number}: {existing}")]
    NoSuchPartition {
        /// The device.
        device: String,
        /// The number.
        number: u32,
        /// The existing partitions, in words.
        existing: String,
    },
    /// A window beyond the end of the device, or not aligned to its blocks.
    #[error("{device}: cannot open a part of it: {why}")]
    BadWindow {
        /// The device.
        device: String,
        /// The problem.
        why: String,
    },
    /// Devices that cannot be joined.
    #[error("{spec}: cannot join the devices: {why}")]
    BadJoin {
        /// The target.
        spec: String,
        /// The problem.
        why: String,
    },
    /// The device is a member of a mirror and was opened for writing.
    #[error(
        "{device}: cannot open for writing: it is {mirror}: a write to one member alone makes the members differ; if the array no longer \
         exists, remove its superblock (mdadm --zero-superblock)"
    )]
    MirrorMember {
        /// The device.
        device: String,
        /// The mirror, and the target that opens it.
        mirror: String,
    },
    /// A part of a member of an array, or of a physical volume, was opened for writing.
    #[error(
        "{device}: cannot open a part for writing: it is {whole}: the whole would not receive the writes; open that, or open the part \
         read-only; if the whole no longer exists, remove its metadata (wipefs -a)"
    )]
    PartOfMember {
        /// The device.
        device: String,
        /// The array or group, and the target that opens it.
        whole: String,
    },
    /// The blocks of the volume are smaller than the blocks of the device, with and without direct I/O.
    #[error(
        "{device}: cannot use the volume on it: its blocks have {volume_block} bytes, and the blocks of the device {device_block}; \
         copy it to a device with smaller blocks, such as an image file"
    )]
    BlockTooLarge {
        /// The device.
        device: String,
        /// Bytes of a block of the volume.
        volume_block: u64,
        /// Bytes of a logical block of the device.
        device_block: u32,
    },
    /// A read during the open failed.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// The process that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockHolder {
    /// This process.
    ThisProcess,
    /// A process with this number and name.
    Process(u32, String),
    /// The system does not say.
    Unknown,
}

impl LockHolder {
    /// The remedy.
    fn cure(&self) -> &'static str {
        match self {
            Self::ThisProcess => {
                "use the open one, close it first, or copy in two steps, through a file of the host"
            }
            Self::Process(..) | Self::Unknown => "close it there, or wait and try again",
        }
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ThisProcess => f.write_str("this process"),
            Self::Process(number, name) => write!(f, "another process, {name} ({number})"),
            Self::Unknown => f.write_str("another process"),
        }
    }
}

/// The word for a directory in [`OpenError::NotADevice`].
pub(crate) const DIRECTORY: &str = "a directory";

impl OpenError {
    /// The path or target of the error.
    pub fn object(&self) -> Option<&Path> {
        match self {
            Self::NotFound { path }
            | Self::Permission { path, .. }
            | Self::Exists { path }
            | Self::Locked { path, .. }
            | Self::Busy { path, .. }
            | Self::ReadOnly { path, .. }
            | Self::NoLocks { path, .. }
            | Self::DirectRefused { path, .. }
            | Self::NotADevice { path, .. }
            | Self::TooSmall { path, .. }
            | Self::CannotGrow { path, .. }
            | Self::NoIoUring { path, .. }
            | Self::Os { path, .. } => Some(path),
            Self::BadTarget { spec: name, .. }
            | Self::Unbound { spec: name, .. }
            | Self::BadJoin { spec: name, .. }
            | Self::NoPartitionTable { device: name, .. }
            | Self::NoSuchPartition { device: name, .. }
            | Self::BadWindow { device: name, .. }
            | Self::MirrorMember { device: name, .. }
            | Self::PartOfMember { device: name, .. }
            | Self::BlockTooLarge { device: name, .. } => Some(Path::new(name)),
            Self::BadChoice { .. } | Self::Io(_) => None,
        }
    }

    /// The corresponding `errno`.
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotFound { .. } => libc::ENOENT,
            Self::Permission { .. } => libc::EACCES,
            Self::ReadOnly { .. } => libc::EROFS,
            Self::Exists { .. } => libc::EEXIST,
            Self::Locked { .. }
            | Self::Busy { .. }
            | Self::MirrorMember { .. }
            | Self::PartOfMember { .. } => libc::EBUSY,
            Self::NotADevice { kind: DIRECTORY, .. } => libc::EISDIR,
            Self::NotADevice { .. } => libc::ENOTBLK,
            Self::CannotGrow { .. } => libc::ENOSPC,
            Self::NoSuchPartition { .. } => libc::ENXIO,
            Self::NoIoUring { source, .. } | Self::NoLocks { source, .. } | Self::Os { source, .. } => {
                source.raw_os_error().unwrap_or(libc::EIO)
            }
            Self::Io(error) => error.kind.errno(),
            Self::DirectRefused { .. }
            | Self::TooSmall { .. }
            | Self::BadTarget { .. }
            | Self::Unbound { .. }
            | Self::BadChoice { .. }
            | Self::NoPartitionTable { .. }
            | Self::BadWindow { .. }
            | Self::BlockTooLarge { .. }
            | Self::BadJoin { .. } => libc::EINVAL,
        }
    }
}

/// Make an error of the system from a failed operation `what` on `path`.
pub(crate) fn os_error<E: Into<io::Error>>(path: &Path, what: &'static str) -> impl FnOnce(E) -> OpenError {
    move |source| OpenError::Os { path: path.to_owned(), what, source: source.into() }
}

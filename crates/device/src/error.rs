//! Why a device could not be opened, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use diorite_block::IoError;

use crate::lock_holder::LockHolder;

/// A device that could not be opened. Every message is `OBJECT: what happened: why`, with the cure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Nothing has that name.
    #[error("{}: cannot open: no such file or device; check the path, or create the image first", path.display())]
    NotFound {
        /// What was to be opened.
        path: PathBuf,
    },
    /// The operating system does not let this user.
    #[error("{}: cannot open for {access}: permission denied; change the file's mode or run as its owner{}", path.display(),
        if *access == "writing" { ", or open it read-only" } else { "" })]
    Permission {
        /// What was to be opened.
        path: PathBuf,
        /// `"reading"` or `"writing"`.
        access: &'static str,
    },
    /// It already exists and was to be new.
    #[error("{}: cannot create: it already exists; remove it or choose another name", path.display())]
    Exists {
        /// What was to be created.
        path: PathBuf,
    },
    /// Another process has the image open.
    #[error("{}: locked by {holder}: it is {used} there; {}", path.display(), holder.cure())]
    Locked {
        /// What was to be opened.
        path: PathBuf,
        /// Who has it open.
        holder: LockHolder,
        /// What the other does with it: `"open"` or `"being written"`.
        used: &'static str,
    },
    /// The block device is mounted, or part of something else.
    #[error("{}: in use{}: it is mounted or belongs to another device or program; unmount it, or open it read-only", path.display(),
        through.as_ref().map_or_else(String::new, |device| format!(" through {}", device.display())))]
    Busy {
        /// What was to be opened.
        path: PathBuf,
        /// The loop device through which an image file is in use.
        through: Option<PathBuf>,
    },
    /// it is read-only for everyone.
    #[error("{}: cannot open for writing: {why}", path.display())]
    ReadOnly {
        /// What was to be opened.
        path: PathBuf,
        /// The reason, with the cure.
        why: String,
    },
    /// The filesystem that holds the image knows no locks.
    #[error("{}: cannot lock: {source}; open it read-only, or copy it to a filesystem with file locks", path.display())]
    NoLocks {
        /// What was to be opened.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Direct I/O was required.
    #[error("{}: direct I/O refused: {why}; move the image to a filesystem that supports O_DIRECT, or open it with \
             direct I/O `preferred` or `off` (--buffered)", path.display())]
    DirectRefused {
        /// What was to be opened.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A directory, a socket, a terminal: nothing with sectors.
    #[error("{}: not a block device: it is {kind}; give an image file or a block device", path.display())]
    NotADevice {
        /// What was to be opened.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// Not even one logical block.
    #[error("{}: too small: it has {bytes} bytes and one block is {block}; give it a size (truncate -s) or make a filesystem", path.display())]
    TooSmall {
        /// What was opened.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The smallest that would do.
        block: u32,
    },
    /// A block device cannot be given a size.
    #[error("{}: cannot be {wanted} bytes large: the device has {capacity}; ask for at most that", path.display())]
    CannotGrow {
        /// What was opened.
        path: PathBuf,
        /// The size that was asked for.
        wanted: u64,
        /// The size that it has.
        capacity: u64,
    },
    /// The back end that was demanded is not there.
    #[error("{}: io_uring is not available: {source}; use the thread back end (DIORITE_IO_BACKEND=threads)", path.display())]
    NoIoUring {
        /// What was to be opened.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The environment asks for something that there is none of.
    #[error("{variable}: there is no {value:?}: use {choices}")]
    BadChoice {
        /// The environment variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The values that it can have.
        choices: &'static str,
    },
    /// Something else that the operating system refused.
    #[error("{}: cannot {what}: {source}", path.display())]
    Os {
        /// What was to be opened.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// The name cannot be understood.
    #[error("{spec}: not a device name: {why}")]
    BadTarget {
        /// As it was given.
        spec: String,
        /// What is wrong with it, and what would be right.
        why: String,
    },
    /// A name of [`RawBindings`](crate::RawBindings) that leads to no device.
    #[error("{spec}: not a device name: {why}")]
    Unbound {
        /// As it was given.
        spec: String,
        /// Why, and what to do.
        why: String,
    },
    /// There is no partition table, or it is damaged.
    #[error("{device}: no usable partition table: {why}")]
    NoPartitionTable {
        /// The device.
        device: String,
        /// What is missing or wrong, with the cure.
        why: String,
    },
    /// The table lists no such partition.
    #[error("{device}: no partition {number}: {existing}")]
    NoSuchPartition {
        /// The device.
        device: String,
        /// What was asked for.
        number: u32,
        /// Which there are, in words.
        existing: String,
    },
    /// A window that the device does not have, or that its blocks cannot express.
    #[error("{device}: cannot open this part of it: {why}")]
    BadWindow {
        /// The device.
        device: String,
        /// What is wrong.
        why: String,
    },
    /// Several devices that do not fit together.
    #[error("{spec}: cannot join the devices: {why}")]
    BadJoin {
        /// As it was given.
        spec: String,
        /// What is wrong.
        why: String,
    },
    /// It is a member of a mirror.
    #[error(
        "{device}: not opened for writing: it is {mirror}: what is written to one member alone makes them differ; if the array is no more, \
         remove its superblock (mdadm --zero-superblock)"
    )]
    MirrorMember {
        /// The device.
        device: String,
        /// The mirror, and how it is opened.
        mirror: String,
    },
    /// A part of a member of an array or of a physical volume.
    #[error(
        "{device}: no part of it is opened for writing: it is {whole}: the whole would not get what is written here; open that, or open it \
         read-only; if the whole is no more, remove what says so (wipefs -a)"
    )]
    PartOfMember {
        /// The device.
        device: String,
        /// What it belongs to, and how that is opened.
        whole: String,
    },
    /// A volume whose blocks are smaller than what the device moves, in whatever way it is opened.
    #[error(
        "{device}: the volume on it cannot be used there: its blocks have {volume_block} bytes, and the device moves {device_block} at least; \
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
    /// The device was opened, but could not be read.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// The word for a directory in [`OpenError::NotADevice`].
pub(crate) const DIRECTORY: &str = "a directory";

impl OpenError {
    /// What could not be opened: a path, or another name of a device.
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

    /// The `errno` that says the same.
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

/// What the operating system refused while `path` was being opened: `what` was tried.
pub(crate) fn os_error<E: Into<io::Error>>(path: &Path, what: &'static str) -> impl FnOnce(E) -> OpenError {
    move |source| OpenError::Os { path: path.to_owned(), what, source: source.into() }
}

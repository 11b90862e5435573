//! Errors of the library, with their paths.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diorite_block::{IoError, IoErrorKind};
use diorite_device::OpenError;
use diorite_ext_tools::mkfs::MkfsError;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The part of a direct transfer that is not aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AlignedPart {
    /// The offset in the file.
    Offset,
    /// The length of the transfer.
    Length,
    /// The length of one of several memory segments.
    SegmentLength {
        /// The number of the segment, from 0.
        segment: usize,
    },
    /// The address of the memory.
    Memory,
    /// The address of one of several memory segments.
    SegmentMemory {
        /// Which, counted from 0.
        segment: usize,
    },
}

impl std::fmt::Display for AlignedPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Offset => f.write_str("the offset"),
            Self::Length => f.write_str("the length"),
            Self::SegmentLength { segment } => write!(f, "segment {segment}'s length"),
            Self::Memory => f.write_str("the memory address"),
            Self::SegmentMemory { segment } => write!(f, "segment {segment}'s memory address"),
        }
    }
}

/// The class of an [`Error`], whatever layer it comes from, for programs to match on, as [`io::ErrorKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No such file or directory (`ENOENT`).
    NotFound,
    /// No extended attribute of that name (`ENODATA`).
    NoAttribute,
    /// The name or attribute exists (`EEXIST`).
    AlreadyExists,
    /// A directory was needed (`ENOTDIR`).
    NotADirectory,
    /// Anything but a directory was needed (`EISDIR`).
    IsADirectory,
    /// The directory has entries (`ENOTEMPTY`).
    DirectoryNotEmpty,
    /// No free block or inode (`ENOSPC`).
    StorageFull,
    /// A quota limit is reached (`EDQUOT`).
    QuotaExceeded,
    /// The format cannot address that offset, or the file cannot be that large (`EFBIG`).
    FileTooLarge,
    /// The volume, the device or the file is read-only, or a write of the volume has failed before (`EROFS`).
    ReadOnly,
    /// The operation is not permitted (`EPERM`, `EACCES`).
    PermissionDenied,
    /// The argument is invalid for this object (`EINVAL`).
    InvalidInput,
    /// A direct transfer is not aligned (`EINVAL`).
    InvalidAlignment,
    /// Not available on this file, volume or device (`EOPNOTSUPP`).
    Unsupported,
    /// The volume is inconsistent (`EUCLEAN`), or there is none.
    Corrupt,
    /// In use, here or by another host (`EBUSY`).
    Busy,
    /// The end of the file came early.
    UnexpectedEof,
    /// The content does not have the expected form, such as UTF-8 (`EILSEQ`).
    InvalidData,
    /// A queue is full, or a call that must not wait would have to (`EAGAIN`).
    WouldBlock,
    /// Too many symbolic links in a path (`ELOOP`).
    FilesystemLoop,
    /// The file is not open for that (`EBADF`).
    NotOpen,
    /// No hole or no data at or after the offset (`ENXIO`).
    BeyondEnd,
    /// The device failed, or the volume is shut down after a write failed (`EIO`; `ENOSPC` and `EDQUOT` of a host that has no
    /// space for the image).
    Io,
    /// Any other; see [`Error::errno`].
    Other,
}

/// An error of a layer below this library.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct StackError(Layer);

/// The layer with the error.
#[derive(Debug, thiserror::Error)]
enum Layer {
    /// The image or device cannot be opened.
    #[error(transparent)]
    Open(OpenError),
    /// The volume: its format, its space or its names.
    #[error(transparent)]
    Volume(diorite_ext::Error),
    /// The options of a new volume contradict each other, or its device failed.
    #[error("cannot make the filesystem: {0}")]
    Mkfs(#[source] MkfsError),
    /// The device failed.
    #[error(transparent)]
    Io(IoError),
}

/// An error of the library. Match on [`Error::kind`] if the class is enough.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of this path.
    #[error("{}: {source}", path.display())]
    At {
        /// The path, as it was given.
        path: PathBuf,
        /// The error.
        source: Box<Error>,
    },
    /// A layer below failed: the volume or its device. [`Error::kind`] has the class.
    #[error(transparent)]
    Stack(StackError),
    /// A new volume would overwrite existing content (`EEXIST`).
    #[error("not made: {0}")]
    HasContent(FoundContent),
    /// The operating system failed a call that is not a transfer.
    #[error("{what}: {source}")]
    Os {
        /// The attempted operation.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// An unaligned direct transfer; a file with [`crate::Unaligned::Bounce`] accepts it.
    #[error(
        "direct I/O: {what} {given:#x} is {} bytes past a multiple of {needed}; it must be a multiple of {needed}",
        given % u64::from(*needed)
    )]
    InvalidAlignment {
        /// The argument.
        what: AlignedPart,
        /// Its value.
        given: u64,
        /// The required alignment in bytes.
        needed: u32,
    },
    /// Direct I/O was required and is not possible.
    #[error("direct I/O is not possible: {0}")]
    DirectRefused(String),
    /// The file is not open for this.
    #[error("the file is not open for {0}")]
    NotOpenFor(&'static str),
    /// An argument is invalid.
    #[error("{0}")]
    InvalidArgument(&'static str),
    /// The root, `.` and `..` cannot be removed or renamed (`EBUSY`).
    #[error("{0}")]
    FixedName(&'static str),
    /// Not available on this kind of file.
    #[error("{0}")]
    Unsupported(&'static str),
    /// More symbolic links than any sensible path has.
    #[error("too many levels of symbolic links")]
    TooManyLinks,
    /// The file ended before the buffer was full.
    #[error("the file ends at byte {end}, before the buffer was filled")]
    UnexpectedEnd {
        /// The end in bytes.
        end: u64,
    },
    /// No hole or no data at or after the offset (`ENXIO`).
    #[error("the offset is at or after the end of the file")]
    BeyondEnd,
    /// The filesystem is still in use.
    #[error("still in use: {0} open files")]
    Busy(usize),
    /// A [`DirectQueue`](crate::DirectQueue) has as many transfers in flight as it is deep.
    #[error("the queue is full; reap a completion first")]
    QueueFull,
    /// A call with [`IoFlags::NOWAIT`](crate::IoFlags::NOWAIT) would have to wait for this. Nothing was done.
    #[error("the call would have to wait for {0}")]
    WouldBlock(&'static str),
    /// The file is not text in UTF-8.
    #[error("the content is not text in UTF-8")]
    NotText,
    /// Data that was written earlier, through the cache, is not on the device. It stays in the cache, and the next sync tries again.
    #[error("data written earlier is not on the device: {0}")]
    WriteBack(#[source] Arc<Error>),
    /// The first error of a [`DirectWriter`](crate::DirectWriter), which every later call repeats.
    #[error(transparent)]
    Stream(Arc<Error>),
}

pub(crate) const PARTITION_TABLE: &str = "a partition table";

/// Content that a new volume would overwrite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundContent {
    /// The content: "a partition table", "swap space".
    pub what: String,
    /// The device with it, if the target has several devices, or is a part of this one.
    pub device: Option<String>,
}

impl FoundContent {
    /// Whether it is a partition table of the target itself, so that a partition can be named instead.
    pub fn is_partition_table(&self) -> bool {
        self.device.is_none() && self.what == PARTITION_TABLE
    }
}

impl std::fmt::Display for FoundContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(device) = &self.device {
            write!(f, "on {device} ")?;
        }
        write!(f, "there is {}", self.what)
    }
}

impl Error {
    /// The same with a path, unless it has one.
    #[must_use]
    pub fn at(self, path: impl AsRef<Path>) -> Self {
        match self {
            Self::At { .. } => self,
            source => Self::At { path: path.as_ref().to_owned(), source: Box::new(source) },
        }
    }

    /// The error without its path.
    pub fn without_path(&self) -> &Self {
        match self {
            Self::At { source, .. } => source.without_path(),
            Self::Stream(first) => first.without_path(),
            other => other,
        }
    }

    /// The path, if the error has one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::At { path, .. } => Some(path),
            Self::Stream(first) => first.path(),
            _ => None,
        }
    }

    /// The `errno` that says the same.
    pub fn errno(&self) -> i32 {
        match self {
            Self::At { source, .. } => source.errno(),
            Self::Stack(StackError(layer)) => layer.errno(),
            Self::Os { source, .. } => source.raw_os_error().unwrap_or(5),
            Self::InvalidAlignment { .. } | Self::DirectRefused(_) | Self::InvalidArgument(_) => 22,
            Self::NotOpenFor(_) => 9,
            Self::HasContent(_) => 17,
            Self::Unsupported(_) => 95,
            Self::TooManyLinks => 40,
            Self::UnexpectedEnd { .. } => 5,
            Self::BeyondEnd => 6,
            Self::QueueFull | Self::WouldBlock(_) => 11,
            Self::NotText => 84,
            Self::Busy(_) | Self::FixedName(_) => 16,
            Self::WriteBack(source) | Self::Stream(source) => source.errno(),
        }
    }

    /// The class of the failure.
    ///
    /// ```no_run
    /// # fn main() -> diorite::Result<()> {
    /// # let filesystem = diorite::Filesystem::open("disk.img")?;
    /// match filesystem.open_file("/settings") {
    ///     Err(error) if error.kind() == diorite::ErrorKind::NotFound => println!("defaults"),
    ///     other => drop(other?),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn kind(&self) -> ErrorKind {
        match self.without_path() {
            Self::InvalidAlignment { .. } => ErrorKind::InvalidAlignment,
            Self::UnexpectedEnd { .. } => ErrorKind::UnexpectedEof,
            Self::DirectRefused(_) => ErrorKind::Unsupported,
            Self::WriteBack(source) => source.kind(),
            other => match other.device_error() {
                Some(error) => ErrorKind::of_device(&error.kind),
                None => ErrorKind::from_errno(other.errno()),
            },
        }
    }

    /// The layer below that failed.
    fn layer(&self) -> Option<&Layer> {
        match self.without_path() {
            Self::Stack(StackError(layer)) => Some(layer),
            _ => None,
        }
    }

    /// The error of a failed transfer.
    fn device_error(&self) -> Option<&IoError> {
        match self.layer()? {
            Layer::Io(error)
            | Layer::Mkfs(MkfsError::Io(error))
            | Layer::Open(OpenError::Io(error))
            | Layer::Volume(diorite_ext::Error::Io(error)) => Some(error),
            _ => None,
        }
    }

    /// Whether a transfer failed, whatever its `errno`: an image on a full filesystem of the host gives `ENOSPC`.
    pub fn is_of_device(&self) -> bool {
        self.device_error().is_some()
    }

    /// Why the image or device cannot be opened. The error names it.
    pub fn open_error(&self) -> Option<&OpenError> {
        match self.layer()? {
            Layer::Open(error) => Some(error),
            _ => None,
        }
    }

    /// Why a new volume cannot be made.
    pub fn mkfs_error(&self) -> Option<&MkfsError> {
        match self.layer()? {
            Layer::Mkfs(error) => Some(error),
            _ => None,
        }
    }

    /// The error of the volume.
    pub(crate) fn volume_error(&self) -> Option<&diorite_ext::Error> {
        match self.layer()? {
            Layer::Volume(error) => Some(error),
            _ => None,
        }
    }

    /// A remedy for the program that uses this library, if there is one. It is not part of the text, which people read who cannot change
    /// the program.
    pub fn hint(&self) -> Option<&'static str> {
        match self.without_path() {
            Self::InvalidAlignment { .. } => Some("open the file with Unaligned::Bounce"),
            _ => None,
        }
    }

    /// Whether there is no ext2, ext3 or ext4 volume.
    pub fn is_no_volume(&self) -> bool {
        use diorite_ext::{Corrupt, Error as Volume};
        matches!(self.volume_error(), Some(Volume::Corrupt(Corrupt::Magic { .. })))
    }

    /// Whether the volume cannot hold this one extended attribute: it is too large, its namespace is unknown, or the
    /// kind of file has none.
    pub fn is_about_attribute(&self) -> bool {
        use diorite_ext::Error as Volume;
        matches!(
            self.volume_error(),
            Some(
                Volume::AttributeTooLarge
                    | Volume::Unsupported(_)
                    | Volume::InvalidArgument(_)
                    | Volume::NotPermitted(_)
                    | Volume::NameTooLong
            )
        )
    }

    /// Whether there are no free blocks (`ENOSPC`).
    pub(crate) fn is_no_space(&self) -> bool {
        self.kind() == ErrorKind::StorageFull
    }

    /// Whether the writer gets no more blocks (`ENOSPC`, `EDQUOT`). Bytes written before stay.
    pub(crate) fn is_out_of_space(&self) -> bool {
        matches!(self.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
    }

    /// Whether there is no such file.
    pub fn is_not_found(&self) -> bool {
        self.kind() == ErrorKind::NotFound
    }
}

impl ErrorKind {
    /// The class of a failed transfer: never that of an error of the volume with the same number.
    fn of_device(kind: &IoErrorKind) -> Self {
        match kind {
            IoErrorKind::Misaligned { .. } | IoErrorKind::ReadOnly | IoErrorKind::Unsupported => {
                Self::from_errno(kind.errno())
            }
            _ => Self::Io,
        }
    }

    /// The class that an `errno` belongs to.
    pub fn from_errno(errno: i32) -> Self {
        match errno {
            2 => ErrorKind::NotFound,
            61 => ErrorKind::NoAttribute,
            17 => ErrorKind::AlreadyExists,
            20 => ErrorKind::NotADirectory,
            21 => ErrorKind::IsADirectory,
            39 => ErrorKind::DirectoryNotEmpty,
            28 => ErrorKind::StorageFull,
            122 => ErrorKind::QuotaExceeded,
            27 => ErrorKind::FileTooLarge,
            30 => ErrorKind::ReadOnly,
            1 | 13 => ErrorKind::PermissionDenied,
            22 => ErrorKind::InvalidInput,
            95 | 38 => ErrorKind::Unsupported,
            117 => ErrorKind::Corrupt,
            16 | 26 => ErrorKind::Busy,
            5 => ErrorKind::Io,
            6 => ErrorKind::BeyondEnd,
            9 => ErrorKind::NotOpen,
            11 => ErrorKind::WouldBlock,
            40 => ErrorKind::FilesystemLoop,
            84 => ErrorKind::InvalidData,
            _ => ErrorKind::Other,
        }
    }
}

impl Layer {
    fn errno(&self) -> i32 {
        match self {
            Self::Open(error) => error.errno(),
            Self::Volume(error) => error.errno(),
            Self::Io(error) | Self::Mkfs(MkfsError::Io(error)) => error.kind.errno(),
            Self::Mkfs(_) => 22,
        }
    }
}

impl From<diorite_ext::Error> for Error {
    fn from(error: diorite_ext::Error) -> Self {
        let layer = match error {
            diorite_ext::Error::Io(error) => Layer::Io(error),
            error => Layer::Volume(error),
        };
        Self::Stack(StackError(layer))
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        Self::Stack(StackError(Layer::Open(error)))
    }
}

impl From<MkfsError> for Error {
    fn from(error: MkfsError) -> Self {
        Self::Stack(StackError(Layer::Mkfs(error)))
    }
}

impl From<IoError> for Error {
    fn from(error: IoError) -> Self {
        Self::Stack(StackError(Layer::Io(error)))
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind =
            match error.without_path() {
                Error::UnexpectedEnd { .. } => io::ErrorKind::UnexpectedEof,
                Error::Stack(StackError(Layer::Io(IoError {
                    kind: IoErrorKind::Device(source), ..
                }))) if source.raw_os_error().is_none() => source.kind(),
                other => io::Error::from_raw_os_error(other.errno()).kind(),
            };
        Self::new(kind, error)
    }
}

/// Adds a path to errors.
pub(crate) trait AtPath<T> {
    /// The same result, its error with a path.
    fn at_path(self, path: impl AsRef<Path>) -> Result<T>;
}

impl<T, E: Into<Error>> AtPath<T> for Result<T, E> {
    fn at_path(self, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|error| error.into().at(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misalignment_names_the_argument_the_excess_and_the_need() {
        let error = Error::InvalidAlignment { what: AlignedPart::Offset, given: 1000, needed: 512 };
        let error = error.at("/a");
        assert_eq!(
            error.to_string(),
            "/a: direct I/O: the offset 0x3e8 is 488 bytes past a multiple of 512; it must be a multiple of 512"
        );
        assert_eq!(error.hint(), Some("open the file with Unaligned::Bounce"));
    }

    #[test]
    fn errors_keep_their_number_and_kind_on_the_way_to_std() {
        let error = Error::from(diorite_ext::Error::NotFound).at("/x");
        assert_eq!((error.errno(), error.kind()), (2, ErrorKind::NotFound));
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::NotFound);
        let error = Error::from(diorite_ext::Error::NoSpace);
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::StorageFull);
    }
}

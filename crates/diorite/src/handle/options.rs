//! Options to open a file.

use std::sync::Arc;

use diorite_device::OpenOptions as DeviceOptions;

use crate::store::map::SyncKind;
use crate::{BlockDevice, DirectIo, Error, File, HostFile, Owner, RawFile, Result};

/// The treatment of an unaligned transfer of a direct file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unaligned {
    /// Reject it ([`Error::InvalidAlignment`]).
    #[default]
    Error,
    /// Make it through aligned memory: the bytes are copied (and counted), without the page cache.
    Bounce,
}

/// The options that a [`File`] keeps of its [`OpenOptions`].
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, each named")]
pub(crate) struct Opening {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
    /// The file was append-only (`chattr +a`) when it was opened: its bytes are never overwritten.
    pub(crate) append_only: bool,
    pub(crate) truncate: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) direct: DirectIo,
    pub(crate) unaligned: Unaligned,
    /// `O_DSYNC`.
    pub(crate) dsync: bool,
    /// `O_SYNC`.
    pub(crate) sync: bool,
    pub(crate) permissions: u16,
    pub(crate) owner: Owner,
}

impl Opening {
    fn new(direct: DirectIo) -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            append_only: false,
            truncate: false,
            create: false,
            create_new: false,
            direct,
            unaligned: Unaligned::Error,
            dsync: false,
            sync: false,
            permissions: 0o644,
            owner: Owner::default(),
        }
    }

    /// Whether the file may be read.
    pub(crate) fn can_read(&self) -> bool {
        self.read
    }

    /// Whether the file may be changed.
    pub(crate) fn can_write(&self) -> bool {
        self.write || self.append
    }

    /// The durability of each write when it returns.
    pub(crate) fn sync_kind(&self) -> Option<SyncKind> {
        if self.sync { Some(SyncKind::All) } else { self.dsync.then_some(SyncKind::Data) }
    }

    /// The options to open the device of a raw or host file.
    pub(crate) fn device_options(&self) -> DeviceOptions {
        let options = if self.can_write() { DeviceOptions::read_write() } else { DeviceOptions::read_only() };
        if self.direct == DirectIo::Required { options.direct(DirectIo::Required) } else { options }
    }

    /// Fails if `std` would fail.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.can_read() && !self.can_write() {
            return Err(Error::InvalidArgument("a file must be opened with read, write or append"));
        }
        if !self.can_write() && (self.truncate || self.create || self.create_new) {
            return Err(Error::InvalidArgument("create and truncate need write or append"));
        }
        if self.append && self.truncate {
            return Err(Error::InvalidArgument("append and truncate cannot be combined"));
        }
        Ok(())
    }
}

/// Options to open a file, like `std::fs::OpenOptions`. Each source of options opens files of one kind:
///
/// | from | opens |
/// | --- | --- |
/// | [`Filesystem::open_options`](crate::Filesystem::open_options) | a path of the filesystem: `open(path)` |
/// | [`NodeRef::open_options`](crate::NodeRef::open_options) | that inode: `open()` |
/// | [`HostFile::options`] | a file of the host: `open(path)` |
/// | [`RawFile::options`] | a whole device: `open(target)`, `open_device(device, cache_bytes)` |
///
/// Only options of [`Filesystem`](crate::Filesystem) and [`HostFile`] can create or truncate a file, and only those of `Filesystem` set its
/// permissions and owner.
///
/// ```no_run
/// use diorite::{DirectIo, Filesystem, HostFile};
///
/// # fn main() -> diorite::Result<()> {
/// let filesystem = Filesystem::open("disk.img")?;
/// let log = filesystem.open_options().append(true).create(true).mode(0o600).open("/log")?;
/// let pages = HostFile::options().read(true).write(true).direct(DirectIo::Required).open("pages.db")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct OpenOptions<T> {
    pub(crate) target: T,
    pub(crate) opening: Opening,
}

/// Types on which files can be created and truncated by path: [`Filesystem`](crate::Filesystem) and [`HostFile`].
pub trait Creates: sealed::Sealed {}

impl Creates for HostFile {}

pub(crate) mod sealed {
    pub trait Sealed {}
    impl Sealed for super::HostFile {}
}

impl<T> OpenOptions<T> {
    pub(crate) fn of(target: T, direct: DirectIo) -> Self {
        Self { target, opening: Opening::new(direct) }
    }

    /// Open for reading.
    pub fn read(mut self, read: bool) -> Self {
        self.opening.read = read;
        self
    }

    /// Open for writing.
    pub fn write(mut self, write: bool) -> Self {
        self.opening.write = write;
        self
    }

    /// Open for writing at the end of the file.
    pub fn append(mut self, append: bool) -> Self {
        self.opening.append = append;
        self
    }

    /// Whether data bypasses the page cache.
    pub fn direct(mut self, direct: DirectIo) -> Self {
        self.opening.direct = direct;
        self
    }

    /// Set the treatment of unaligned transfers by direct I/O.
    pub fn unaligned(mut self, unaligned: Unaligned) -> Self {
        self.opening.unaligned = unaligned;
        self
    }

    /// Each write is durable as `O_DSYNC` says.
    pub fn dsync(mut self, dsync: bool) -> Self {
        self.opening.dsync = dsync;
        self
    }

    /// Each write is durable as `O_SYNC` says, whatever [`dsync`](Self::dsync) is.
    pub fn sync(mut self, sync: bool) -> Self {
        self.opening.sync = sync;
        self
    }
}

impl<T: Creates> OpenOptions<T> {
    /// Truncate the file when it is opened.
    pub fn truncate(mut self, truncate: bool) -> Self {
        self.opening.truncate = truncate;
        self
    }

    /// Create the file if it does not exist.
    pub fn create(mut self, create: bool) -> Self {
        self.opening.create = create;
        self
    }

    /// Create the file; an error if it exists.
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.opening.create_new = create_new;
        self
    }
}

impl OpenOptions<RawFile> {
    /// Open an image, a device or another target of `diorite_device::open_target`, with a page cache of 64 MiB.
    ///
    /// # Errors
    /// The error of the host, and [`InvalidInput`](crate::ErrorKind::InvalidInput) if the options contradict each other.
    pub fn open(&self, target: &str) -> Result<File> {
        RawFile::open_with(target, &self.opening)
    }

    /// Open on a device that is already open, with a page cache of `cache_bytes`.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the options contradict each other; there is no memory for the page cache.
    pub fn open_device(&self, device: Arc<dyn BlockDevice>, cache_bytes: usize) -> Result<File> {
        RawFile::with_device(device, &self.opening, cache_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One switch does not turn off what the other asks for.
    #[test]
    fn sync_and_dsync_are_independent() {
        let kind = |options: OpenOptions<HostFile>| options.opening.sync_kind();
        let options = HostFile::options;
        assert_eq!(kind(options()), None);
        assert_eq!(kind(options().dsync(true).sync(false)), Some(SyncKind::Data));
        assert_eq!(kind(options().sync(true).dsync(false)), Some(SyncKind::All));
        assert_eq!(kind(options().sync(true).dsync(true)), Some(SyncKind::All));
        assert_eq!(kind(options().sync(true).dsync(true).sync(false)), Some(SyncKind::Data));
    }
}

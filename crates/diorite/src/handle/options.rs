//! How a file is opened.

use std::path::Path;
use std::sync::Arc;

use crate::store::map::SyncKind;
use crate::volume::node::NodeRef;
use crate::{BlockDevice, DirectIo, Error, File, Filesystem, HostFile, Owner, RawFile, Result};

/// What a direct file does with a transfer that is not aligned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unaligned {
    /// Refuse it ([`Error::InvalidAlignment`]).
    #[default]
    Error,
    /// Take it through aligned memory: the bytes are copied (and counted), the page cache stays out of it.
    Bounce,
}

/// Who sets the modification time of a file whose content changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentTimes {
    /// Each write.
    #[default]
    ByWrite,
    /// The caller, who keeps it for content that it caches.
    ByCaller,
}

/// How a file is open: what a [`File`] keeps of its [`OpenOptions`].
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, each named")]
pub(crate) struct Opening {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
    /// The file was append-only (`chattr +a`) when it was opened: what it has is not written again.
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

    /// What each write makes durable before it returns.
    pub(crate) fn sync_kind(&self) -> Option<SyncKind> {
        if self.sync { Some(SyncKind::All) } else { self.dsync.then_some(SyncKind::Data) }
    }

    /// Fails where `std` would.
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

/// How to open a file, in the manner of `std::fs::OpenOptions`. Options come from what they open, so that all of them can:
///
/// | from | opens |
/// | --- | --- |
/// | [`Filesystem::open_options`] | a path of the filesystem: `open(path)` |
/// | [`NodeRef::open_options`] | that inode: `open()` |
/// | [`HostFile::options`] | a file of the host: `open(path)` |
/// | [`RawFile::options`] | a whole device: `open(target)`, `open_device(device, cache_bytes)` |
///
/// Only options of [`Filesystem`] and [`HostFile`] can create or truncate a file, and only those of [`Filesystem`] set its
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
pub struct OpenOptions<P = Filesystem> {
    place: P,
    opening: Opening,
}

/// Where files can be created and truncated by path: [`Filesystem`] and [`HostFile`].
pub trait Creates: sealed::Sealed {}

impl Creates for Filesystem {}
impl Creates for HostFile {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Filesystem {}
    impl Sealed for super::HostFile {}
}

impl<P> OpenOptions<P> {
    pub(crate) fn of(place: P, direct: DirectIo) -> Self {
        Self { place, opening: Opening::new(direct) }
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

    /// Open for writing at the end, wherever that is at the moment of the write.
    pub fn append(mut self, append: bool) -> Self {
        self.opening.append = append;
        self
    }

    /// Whether data bypasses the page cache.
    pub fn direct(mut self, direct: DirectIo) -> Self {
        self.opening.direct = direct;
        self
    }

    /// What direct I/O does with a transfer that is not aligned.
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

impl<P: Creates> OpenOptions<P> {
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

impl OpenOptions<Filesystem> {
    /// Permission bits of a created file; 0644 by default.
    pub fn mode(mut self, permissions: u16) -> Self {
        self.opening.permissions = permissions & 0o7777;
        self
    }

    /// Owner of a created file; 0:0 by default.
    pub fn owner(mut self, owner: Owner) -> Self {
        self.opening.owner = owner;
        self
    }

    /// Open the file at a path of the filesystem.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the options contradict each other (no access at all, append with
    /// truncate), [`NotFound`](crate::ErrorKind::NotFound), [`AlreadyExists`](crate::ErrorKind::AlreadyExists) with
    /// [`create_new`](Self::create_new), [`IsADirectory`](crate::ErrorKind::IsADirectory), and what a full, read-only or damaged
    /// volume says. [`Error::DirectRefused`] where direct I/O is required and the file's data goes through the journal.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        self.place.open_with(path.as_ref(), &self.opening)
    }
}

impl OpenOptions<NodeRef> {
    /// Open the inode.
    ///
    /// # Errors
    /// As for a path; [`Error::Unsupported`] if it is no regular file.
    pub fn open(&self) -> Result<File> {
        self.place.open_as(&self.opening, None)
    }
}

impl OpenOptions<HostFile> {
    /// Open the host's file at `path`, with a page cache of 64 MiB.
    ///
    /// # Errors
    /// What the host says, and [`InvalidInput`](crate::ErrorKind::InvalidInput) if the options contradict each other.
    /// [`Error::open_error`] where direct I/O is required and the host's filesystem does not have it.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        HostFile::open_with(path.as_ref(), &self.opening)
    }
}

impl OpenOptions<RawFile> {
    /// Open an image, a device or another target ([`open_target`](crate::open_target)), with a page cache of 64 MiB.
    ///
    /// # Errors
    /// What the host says, and [`InvalidInput`](crate::ErrorKind::InvalidInput) if the options contradict each other.
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

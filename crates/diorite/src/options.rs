//! How a file is opened.

use std::path::Path;

use crate::node::NodeRef;
use crate::{Error, File, Filesystem, Owner, Result};

/// Whether a file's data bypasses the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectIo {
    /// Through the cache.
    #[default]
    Off,
    /// Directly where a transfer is aligned, through the cache where it is not.
    Preferred,
    /// Directly, or an error that says why not.
    Required,
}

/// What a direct file does with a transfer that is not aligned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unaligned {
    /// Refuse it ([`Error::InvalidAlignment`]).
    #[default]
    Error,
    /// Take it through aligned memory: the bytes are copied (and counted), the page cache stays out of it.
    Bounce,
}

/// How durable a write is when it returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyncMode {
    /// Not before the next sync.
    #[default]
    None,
    /// The data, and what is needed to read it back (`O_DSYNC`).
    Data,
    /// The data and everything of the inode (`O_SYNC`).
    All,
}

/// How to open a file, in the manner of `std::fs::OpenOptions`.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, each named")]
pub struct OpenOptions {
    filesystem: Option<Filesystem>,
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
    pub(crate) truncate: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) direct: DirectIo,
    pub(crate) unaligned: Unaligned,
    pub(crate) sync: SyncMode,
    pub(crate) permissions: u16,
    pub(crate) owner: Owner,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenOptions {
    /// Nothing is set: with [`NodeRef::open`], [`crate::RawFile`] and [`crate::HostFile`]. Files of a filesystem are opened by path
    /// through [`Filesystem::open_options`].
    pub fn new() -> Self {
        Self {
            filesystem: None,
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            direct: DirectIo::Off,
            unaligned: Unaligned::Error,
            sync: SyncMode::None,
            permissions: 0o644,
            owner: Owner::default(),
        }
    }

    pub(crate) fn of(filesystem: Filesystem, direct: DirectIo) -> Self {
        Self { filesystem: Some(filesystem), direct, ..Self::new() }
    }

    /// The same as an open file keeps them: without the filesystem, which would otherwise never be closed.
    pub(crate) fn without_filesystem(&self) -> Self {
        Self { filesystem: None, ..self.clone() }
    }

    /// For reading.
    #[must_use]
    pub fn read(mut self, read: bool) -> Self {
        self.read = read;
        self
    }

    /// For writing.
    #[must_use]
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// For writing at the end, wherever that is at the moment of the write.
    #[must_use]
    pub fn append(mut self, append: bool) -> Self {
        self.append = append;
        self
    }

    /// Emptied when opened.
    #[must_use]
    pub fn truncate(mut self, truncate: bool) -> Self {
        self.truncate = truncate;
        self
    }

    /// Made if there is none.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Made; an error if there is one.
    #[must_use]
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.create_new = create_new;
        self
    }

    /// Whether data bypasses the page cache.
    #[must_use]
    pub fn direct(mut self, direct: DirectIo) -> Self {
        self.direct = direct;
        self
    }

    /// What direct I/O does with a transfer that is not aligned.
    #[must_use]
    pub fn unaligned(mut self, unaligned: Unaligned) -> Self {
        self.unaligned = unaligned;
        self
    }

    /// Each write is durable as `O_DSYNC` says.
    #[must_use]
    pub fn dsync(mut self, dsync: bool) -> Self {
        self.sync = if dsync { self.sync.max(SyncMode::Data) } else { SyncMode::None };
        self
    }

    /// Each write is durable as `O_SYNC` says.
    #[must_use]
    pub fn sync(mut self, sync: bool) -> Self {
        self.sync = if sync { SyncMode::All } else { SyncMode::None };
        self
    }

    /// Permission bits of a file that is made; 0644 by default.
    #[must_use]
    pub fn mode(mut self, permissions: u16) -> Self {
        self.permissions = permissions & 0o7777;
        self
    }

    /// Owner of a file that is made; 0:0 by default.
    #[must_use]
    pub fn owner(mut self, owner: Owner) -> Self {
        self.owner = owner;
        self
    }

    /// Open a file of the filesystem that these options came from.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        match &self.filesystem {
            Some(filesystem) => filesystem.open_with(path, self),
            None => {
                Err(Error::InvalidArgument("options for a path come from Filesystem::open_options").at(path))
            }
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

    /// What `std` would refuse, too.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.can_read() && !self.can_write() {
            return Err(Error::InvalidArgument("a file is opened for reading, writing or appending"));
        }
        if !self.can_write() && (self.truncate || self.create || self.create_new) {
            return Err(Error::InvalidArgument("a file that is made or emptied is opened for writing"));
        }
        if self.append && self.truncate {
            return Err(Error::InvalidArgument("a file is opened for appending or emptied, not both"));
        }
        Ok(())
    }

    /// Open an inode that is at hand.
    pub fn open_node(&self, node: &NodeRef) -> Result<File> {
        node.open(self)
    }
}

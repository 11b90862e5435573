//! Files opened by path and by inode.

use std::path::{Path, PathBuf};

use diorite_ext::ContentUse;

use crate::error::AtPath;
use crate::handle::file::FileOwner;
use crate::handle::options::{Creates, Opening, sealed};
use crate::volume::nodes::{NodeRef, while_stale};
use crate::{DirectIo, File, FileKind, Filesystem, NodeSpec, OpenOptions, Owner, Result};

impl Creates for Filesystem {}
impl sealed::Sealed for Filesystem {}

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
    /// [`create_new`](Self::create_new), [`IsADirectory`](crate::ErrorKind::IsADirectory), and the errors of a full, read-only or damaged
    /// volume. [`Error::DirectRefused`](crate::Error::DirectRefused) where direct I/O is required and the file's data goes through the journal.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        self.target.open_with(path.as_ref(), &self.opening)
    }
}

impl OpenOptions<NodeRef> {
    /// Open the inode.
    ///
    /// # Errors
    /// As for a path; [`Error::Unsupported`](crate::Error::Unsupported) if it is no regular file.
    pub fn open(&self) -> Result<File> {
        self.target.open_as(&self.opening, None)
    }
}

impl Filesystem {
    /// Options to set before opening a file.
    pub fn open_options(&self) -> OpenOptions<Filesystem> {
        OpenOptions::of(self.clone(), self.direct)
    }

    /// Open for reading.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_options().read(true).open(path)
    }

    /// Create or truncate a file and open it for reading and writing.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_options().read(true).write(true).create(true).truncate(true).open(path)
    }

    pub(crate) fn open_with(&self, path: &Path, options: &Opening) -> Result<File> {
        options.check().at_path(path)?;
        let node = while_stale(|| self.find_or_make(path, options)).at_path(path)?;
        node.open_as(options, Some(path.to_owned())).at_path(path)
    }

    /// `Stale` if the path has changed meanwhile.
    fn find_or_make(&self, path: &Path, options: &Opening) -> Result<NodeRef> {
        if !options.create && !options.create_new {
            return self.nodes().find(path, true);
        }
        let found = if options.create_new {
            self.nodes().search_new(path)?
        } else {
            self.nodes().search_to_make(path)?
        };
        if let Some(inode) = found.inode {
            return self.nodes().acquire(inode);
        }
        if found.has_slash {
            return Err(diorite_ext::Error::IsADirectory.into());
        }
        let spec = NodeSpec {
            kind: FileKind::Regular,
            permissions: options.permissions,
            umask: 0,
            owner: options.owner,
            device: (0, 0),
        };
        match self.nodes().create(&found.directory, &found.name, &spec) {
            // Another thread was faster. Its file may be a link, or removed again: the caller resolves the path
            // again.
            Err(error)
                if !options.create_new
                    && matches!(error.volume_error(), Some(diorite_ext::Error::Exists)) =>
            {
                Err(diorite_ext::Error::Stale.into())
            }
            node => node,
        }
    }
}

impl NodeRef {
    /// Options to set before opening a regular file.
    pub fn open_options(&self) -> OpenOptions<NodeRef> {
        OpenOptions::of(self.clone(), DirectIo::Off)
    }

    pub(crate) fn open_as(&self, options: &Opening, path: Option<PathBuf>) -> Result<File> {
        options.check()?;
        let content = self.content()?;
        let wanted = if !options.can_write() {
            ContentUse::Read
        } else if options.append && !options.truncate {
            ContentUse::Append
        } else {
            ContentUse::Write
        };
        self.volume().check_content_use(self.inode(), wanted)?;
        // Before the truncation: a rejected open changes nothing.
        let direct = self.direct_io(options.direct)?;
        if options.truncate && content.store.size() > 0 {
            content.set_len(0)?;
        }
        let append_only = wanted != ContentUse::Read && self.inode().attributes().is_append_only();
        let opening = Opening { append_only, direct, ..options.clone() };
        Ok(File::new(content, Box::new(self.clone()), opening, path))
    }
}

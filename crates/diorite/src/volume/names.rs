//! Names made, removed and renamed by path, with the rules of POSIX for the end of a path.
//!
//! Where it sits: beside `filesystem.rs`, above `resolve.rs`. `tests/it/names_like_the_kernel.rs` compares it with the host.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use diorite_ext::{Inode, Volume};

use crate::error::AtPath;
use crate::volume::nodes::NodeRef;
use crate::volume::resolve::{LastName, Resolved};
use crate::{Error, ErrorKind, FileKind, Filesystem, NodeSpec, Owner, RenameMode, Result};

impl Filesystem {
    /// Make a directory with permissions 0755.
    ///
    /// # Errors
    /// [`AlreadyExists`](crate::ErrorKind::AlreadyExists); [`NotFound`](crate::ErrorKind::NotFound) or
    /// [`NotADirectory`](crate::ErrorKind::NotADirectory) if the parent is not there; [`StorageFull`](crate::ErrorKind::StorageFull),
    /// [`ReadOnly`](crate::ErrorKind::ReadOnly); the device or the volume failed.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let spec = NodeSpec {
            kind: FileKind::Directory,
            permissions: 0o755,
            umask: 0,
            owner: Owner::default(),
            device: (0, 0),
        };
        self.create_node(path, &spec).map(drop)
    }

    /// Make a directory and all missing parents.
    ///
    /// # Errors
    /// As [`Self::create_dir`], but directories that exist are none; [`NotADirectory`](crate::ErrorKind::NotADirectory) if something else has
    /// one of the names, [`AlreadyExists`](crate::ErrorKind::AlreadyExists) if the last is a symbolic link that leads nowhere.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let mut at = PathBuf::new();
        for component in path.components() {
            at.push(component);
            match self.nodes().find(&at, true) {
                Ok(node) if node.kind() == FileKind::Directory => {}
                Ok(_) => return Err(Error::from(diorite_ext::Error::NotADirectory).at(&at)),
                Err(error) if error.is_not_found() => self.create_missing_dir(&at)?,
                Err(error) => return Err(error.at(&at)),
            }
        }
        Ok(())
    }

    /// Make a directory that was missing a moment ago, unless another thread has made it since.
    fn create_missing_dir(&self, at: &Path) -> Result<()> {
        let is_there = || self.nodes().find(at, true).is_ok_and(|node| node.kind() == FileKind::Directory);
        match self.create_dir(at) {
            // Also the name of a link that leads nowhere.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && is_there() => Ok(()),
            result => result,
        }
    }

    /// Make a file, directory or device node.
    ///
    /// # Errors
    /// As [`Self::create_dir`].
    pub fn create_node(&self, path: impl AsRef<Path>, spec: &NodeSpec) -> Result<NodeRef> {
        let path = path.as_ref();
        let create = |at: Resolved<'_>| self.nodes().create(&at.directory, &at.name, spec);
        let is_directory = spec.kind == FileKind::Directory;
        let parent =
            if is_directory { self.nodes().search_new(path) } else { self.nodes().search_new_file(path) };
        parent.and_then(create).at_path(path)
    }

    /// Remove a name of anything but a directory.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound), [`IsADirectory`](crate::ErrorKind::IsADirectory),
    /// [`ReadOnly`](crate::ErrorKind::ReadOnly), [`PermissionDenied`](crate::ErrorKind::PermissionDenied) if it is immutable or
    /// append-only; the device or the volume failed.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let remove = |at: Resolved<'_>| {
            if at.last != LastName::Name {
                return Err(diorite_ext::Error::IsADirectory.into());
            }
            if at.has_slash
                && self.volume().names.lookup(&at.directory, &at.name)?.kind() != FileKind::Directory
            {
                return Err(diorite_ext::Error::NotADirectory.into());
            }
            self.nodes().unlink(&at.directory, &at.name)
        };
        self.nodes().search_parent(path).and_then(remove).at_path(path)
    }

    /// Remove an empty directory.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound), [`NotADirectory`](crate::ErrorKind::NotADirectory),
    /// [`DirectoryNotEmpty`](crate::ErrorKind::DirectoryNotEmpty), [`Busy`](crate::ErrorKind::Busy) for the root, and as [`Self::remove_file`].
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let remove = |at: Resolved<'_>| {
            at.last.check_removable()?;
            Ok(self.volume().names.remove_directory(&at.directory, &at.name)?)
        };
        self.nodes().search_parent(path).and_then(remove).at_path(path)
    }

    /// Rename, replacing the target if it exists, as POSIX says.
    ///
    /// # Errors
    /// As [`Self::rename_with`].
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameMode::Replace)
    }

    /// Rename as `mode` says.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound); the inode at `to` cannot be replaced
    /// ([`AlreadyExists`](crate::ErrorKind::AlreadyExists),
    /// [`IsADirectory`](crate::ErrorKind::IsADirectory), [`NotADirectory`](crate::ErrorKind::NotADirectory),
    /// [`DirectoryNotEmpty`](crate::ErrorKind::DirectoryNotEmpty)); [`InvalidInput`](crate::ErrorKind::InvalidInput) if a directory would go
    /// below itself; [`StorageFull`](crate::ErrorKind::StorageFull), [`ReadOnly`](crate::ErrorKind::ReadOnly); the device or the volume failed.
    pub fn rename_with(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, mode: RenameMode) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let source = self.nodes().search_parent(from).at_path(from)?;
        let target = self.nodes().search_parent(to).at_path(to)?;
        let fixed = || Error::FixedName("the root, `.` and `..` cannot be renamed");
        if source.last != LastName::Name {
            return Err(fixed().at(from));
        }
        match (target.last, mode) {
            (LastName::Name, _) => {}
            (_, RenameMode::NoReplace) => return Err(Error::from(diorite_ext::Error::Exists).at(to)),
            _ => return Err(fixed().at(to)),
        }
        // So that an error names the right one of the two paths.
        let moved = self.volume().names.lookup(&source.directory, &source.name).at_path(from)?;
        check_slashes(self.volume(), &moved, &source, &target, mode).at_path(to)?;
        let (old, new) = ((&source.directory, &*source.name), (&target.directory, &*target.name));
        self.nodes().rename(old, new, mode).at_path(to)
    }

    /// Give a file another name.
    ///
    /// # Errors
    /// As [`Self::create_dir`]; [`PermissionDenied`](crate::ErrorKind::PermissionDenied) if `original` is a directory.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (original, link) = (original.as_ref(), link.as_ref());
        let node = self.nodes().find(original, false).at_path(original)?;
        let make = |at: Resolved<'_>| {
            self.nodes().with_space(|volume| volume.names.link(node.inode(), &at.directory, &at.name))
        };
        self.nodes().search_new_file(link).and_then(make).at_path(link)
    }

    /// Make a symbolic link.
    ///
    /// # Errors
    /// As [`Self::create_dir`].
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (target, link) = (target.as_ref().as_os_str().as_bytes(), link.as_ref());
        let owner = Owner::default();
        let make = |at: Resolved<'_>| {
            self.nodes().with_space(|volume| volume.names.symlink(&at.directory, &at.name, target, owner))
        };
        self.nodes().search_new_file(link).and_then(make).map(drop).at_path(link)
    }
}

/// A trailing slash requires a directory: the source, or both for an exchange.
fn check_slashes(
    volume: &Volume,
    moved: &Inode,
    source: &Resolved<'_>,
    target: &Resolved<'_>,
    mode: RenameMode,
) -> Result<()> {
    if !source.has_slash && !target.has_slash {
        return Ok(());
    }
    let not_a_directory = || Err(diorite_ext::Error::NotADirectory.into());
    let is_file = |inode: &Inode| inode.kind() != FileKind::Directory;
    match (mode, volume.names.lookup(&target.directory, &target.name)) {
        // The error of `rename` itself takes precedence.
        (RenameMode::NoReplace, Ok(_)) | (RenameMode::Exchange, Err(_)) => return Ok(()),
        (RenameMode::Exchange, Ok(other)) if target.has_slash && is_file(&other) => {
            return not_a_directory();
        }
        _ => {}
    }
    let wants_directory = source.has_slash || mode != RenameMode::Exchange;
    if wants_directory && is_file(moved) { not_a_directory() } else { Ok(()) }
}

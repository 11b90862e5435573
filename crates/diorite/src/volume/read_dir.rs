//! Listing of a directory, block by block: memory does not depend on the number of names.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diorite_ext::EntryBatch;

use crate::error::AtPath;
use crate::volume::nodes::{NodeRef, while_stale};
use crate::{Attributes, FileKind, Filesystem, InodeNumber, Result, os_name};

/// The directory that is listed.
#[derive(Debug)]
struct Listed {
    node: NodeRef,
    /// As the caller gave it; empty without a path.
    path: PathBuf,
}

/// An entry of a directory. It keeps the directory in use: drop it before [`Filesystem::close`].
#[derive(Clone)]
pub struct DirEntry {
    /// Name, any bytes but `/` and NUL.
    pub name: Vec<u8>,
    /// Inode.
    pub inode: InodeNumber,
    /// Kind, if the directory stores it.
    pub kind: Option<FileKind>,
    directory: Arc<Listed>,
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = String::from_utf8_lossy(&self.name);
        let mut entry = f.debug_struct("DirEntry");
        entry.field("name", &name).field("inode", &self.inode).field("kind", &self.kind);
        entry.finish_non_exhaustive()
    }
}

impl DirEntry {
    /// The name, as part of a path.
    pub fn file_name(&self) -> &OsStr {
        os_name(&self.name)
    }

    /// The path that was listed and the name; the name alone after [`NodeRef::read_dir`].
    pub fn path(&self) -> PathBuf {
        self.directory.path.join(self.file_name())
    }

    /// The attributes; a symbolic link is not followed.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if the name was removed; the device or the volume failed.
    pub fn metadata(&self) -> Result<Attributes> {
        let looked_up = while_stale(|| self.directory.node.lookup_attributes(&self.name));
        looked_up.map(|(_, attributes)| attributes).at_path(self.path())
    }

    /// The kind; a symbolic link is not followed. Reads the inode if the directory does not store the kind.
    ///
    /// # Errors
    /// As [`Self::metadata`].
    pub fn file_type(&self) -> Result<FileKind> {
        self.kind.map_or_else(|| self.metadata().map(|attributes| attributes.kind), Ok)
    }
}

/// An iterator over the entries of a directory without `.` and `..`, in no particular order. Names may be made and removed
/// meanwhile: names that exist all the time are returned exactly once. After an error it ends. Damage that hides some entries is an error
/// after the others.
#[derive(Debug)]
pub struct ReadDir {
    directory: Arc<Listed>,
    cursor: u64,
    batch: EntryBatch,
    /// The next one of the batch.
    nth: usize,
    is_at_end: bool,
}

impl ReadDir {
    /// Read the next entries.
    fn read_batch(&mut self) -> Result<()> {
        self.nth = 0;
        self.directory.node.list_batch(self.cursor, &mut self.batch)?;
        match self.batch.next_cursor() {
            Some(next) => self.cursor = next,
            None => self.is_at_end = true,
        }
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while let Some(entry) = self.batch.get(self.nth) {
                self.nth += 1;
                if entry.name != b"." && entry.name != b".." {
                    let directory = Arc::clone(&self.directory);
                    let (name, inode, kind) = (entry.name, entry.inode, entry.kind);
                    return Some(Ok(DirEntry { name, inode, kind, directory }));
                }
            }
            if self.is_at_end {
                return None;
            }
            if let Err(error) = self.read_batch() {
                self.is_at_end = true;
                let path = &self.directory.path;
                return Some(Err(if path.as_os_str().is_empty() { error } else { error.at(path) }));
            }
        }
    }
}

impl NodeRef {
    /// The entries of this directory without `.` and `..`, read as they are taken.
    ///
    /// # Errors
    /// It is no directory, or its first block cannot be read.
    pub fn read_dir(&self) -> Result<ReadDir> {
        self.read_dir_at(PathBuf::new())
    }

    fn read_dir_at(&self, path: PathBuf) -> Result<ReadDir> {
        let directory = Arc::new(Listed { node: self.clone(), path });
        let batch = EntryBatch::default();
        let mut entries = ReadDir { directory, cursor: 0, batch, nth: 0, is_at_end: false };
        entries.read_batch()?;
        Ok(entries)
    }
}

impl Filesystem {
    /// The entries of a directory without `.` and `..`, read as they are taken.
    ///
    /// # Errors
    /// There is no directory at `path`, or its first block cannot be read.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        self.nodes().find(path, true).and_then(|node| node.read_dir_at(path.to_owned())).at_path(path)
    }
}

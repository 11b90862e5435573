//! Walking a tree of directories that may not be one.
//!
//! Where it sits: behind [`Filesystem::walk`]. A directory of a sound volume has one name; on a damaged or hostile one it may have
//! several, also beneath itself, and then a walk that believed it would have no end, or double at each level.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::AtPath;
use crate::{Attributes, FileKind, Filesystem, InodeNumber, Result};

/// The directories that a walk has met.
#[derive(Debug, Default)]
pub struct SeenDirectories(HashSet<InodeNumber>);

impl SeenDirectories {
    /// Note a directory; an error if it was met before.
    pub fn note(&mut self, inode: InodeNumber) -> Result<()> {
        if self.0.insert(inode) {
            return Ok(());
        }
        let what = "a directory that has more than one name";
        Err(diorite_ext::Error::from(diorite_ext::Corrupt::Inode { inode, what }).into())
    }
}

/// An iterator over everything beneath a path.
#[derive(Debug)]
pub struct Walk {
    filesystem: Filesystem,
    pending: Vec<(PathBuf, usize)>,
    seen: SeenDirectories,
}

/// Something that a walk met.
#[derive(Clone, Debug)]
pub struct WalkEntry {
    /// Its path.
    pub path: PathBuf,
    /// Steps below the start.
    pub depth: usize,
    /// What `lstat` tells.
    pub attributes: Attributes,
}

impl Walk {
    pub(crate) fn new(filesystem: Filesystem, path: &Path) -> Self {
        Self { filesystem, pending: vec![(path.to_owned(), 0)], seen: SeenDirectories::default() }
    }

    fn visit(&mut self, path: PathBuf, depth: usize) -> Result<WalkEntry> {
        let attributes = self.filesystem.symlink_metadata(&path)?;
        if attributes.kind == FileKind::Directory {
            self.seen.note(attributes.inode).at_path(&path)?;
            let mut entries = self.filesystem.read_dir(&path)?;
            entries.sort_unstable_by(|a, b| b.name.cmp(&a.name));
            self.pending
                .extend(entries.iter().map(|entry| (path.join(OsStr::from_bytes(&entry.name)), depth + 1)));
        }
        Ok(WalkEntry { path, depth, attributes })
    }
}

impl Iterator for Walk {
    type Item = Result<WalkEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let (path, depth) = self.pending.pop()?;
        Some(self.visit(path, depth))
    }
}

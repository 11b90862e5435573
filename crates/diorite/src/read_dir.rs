//! Listing a directory a block at a time: memory does not depend on how many names it has.

use std::path::{Path, PathBuf};

use diorite_ext::EntryBatch;

use crate::error::AtPath;
use crate::node::NodeRef;
use crate::{DirectoryEntry, Filesystem, Result};

/// An iterator over the entries of a directory without `.` and `..`, in no particular order. Names may be made and removed
/// meanwhile: names that exist all the time are returned exactly once. After an error it ends.
#[derive(Debug)]
pub struct ReadDir {
    node: NodeRef,
    /// For messages.
    path: Option<PathBuf>,
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
        self.node.list_batch(self.cursor, &mut self.batch)?;
        match self.batch.next_cursor() {
            Some(next) => self.cursor = next,
            None => self.is_at_end = true,
        }
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirectoryEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while let Some(entry) = self.batch.get(self.nth) {
                self.nth += 1;
                if entry.name != b"." && entry.name != b".." {
                    return Some(Ok(entry));
                }
            }
            if self.is_at_end {
                return None;
            }
            if let Err(error) = self.read_batch() {
                self.is_at_end = true;
                let error = match &self.path {
                    Some(path) => error.at(path),
                    None => error,
                };
                return Some(Err(error));
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
        let (node, batch) = (self.clone(), EntryBatch::default());
        let mut entries = ReadDir { node, path: None, cursor: 0, batch, nth: 0, is_at_end: false };
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
        let entries = self.find(path, true).and_then(|node| node.read_dir()).at_path(path)?;
        Ok(ReadDir { path: Some(path.to_owned()), ..entries })
    }
}

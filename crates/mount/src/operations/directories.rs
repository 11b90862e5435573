//! Directories, listed.

use diorite::{DirectoryEntry, InodeNumber, Result};

use super::{Entry, Operations};

impl Operations {
    /// Entries from `cursor` on (0: the first), the dots included, until `each` returns `false`. An entry's `next_cursor` is where to go
    /// on after it, also when names were made and removed since.
    ///
    /// # Errors
    /// As [`diorite::NodeRef::read_directory`].
    pub fn read_directory(
        &self,
        directory: InodeNumber,
        cursor: u64,
        each: &mut dyn FnMut(&DirectoryEntry) -> bool,
    ) -> Result<()> {
        let node = self.node(directory)?;
        if cursor == 0 {
            self.note_access(&node)?;
        }
        node.read_directory(cursor, each)
    }

    /// The inode of an entry that was listed.
    ///
    /// # Errors
    /// As [`Operations::node`]: it may be gone since.
    pub fn listed(&self, entry: &DirectoryEntry) -> Result<Entry> {
        self.entry(self.node(entry.inode)?)
    }
}

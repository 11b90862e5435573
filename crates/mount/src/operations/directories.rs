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
        let made = if cursor == 0 {
            self.note_access(&node)?;
            None
        } else {
            self.listing_ahead.take(directory, cursor)
        };
        let (mut next, mut taken, mut is_at_end) = (cursor, 0, true);
        let mut give = |entry: &DirectoryEntry| {
            is_at_end = each(entry);
            if is_at_end {
                (next, taken) = (entry.next_cursor, taken + 1);
            }
            is_at_end
        };
        match made {
            Some(part) => is_at_end = part.give(&mut give),
            None => node.read_directory(cursor, &mut give)?,
        }
        if !is_at_end && taken > 0 {
            self.listing_ahead.go_on(directory, next, taken);
        }
        Ok(())
    }

    /// The inode of an entry that was listed.
    ///
    /// # Errors
    /// As [`Operations::node`]: it may be gone since.
    pub fn listed(&self, entry: &DirectoryEntry) -> Result<Entry> {
        self.entry(self.node(entry.inode)?)
    }
}

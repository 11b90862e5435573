//! Directories, listed.

use diorite::front_end::DirectoryEntry;
use diorite::{InodeNumber, Result};

use super::Operations;

/// Entries whose inodes are read together at most.
const TOGETHER_MAX: usize = 4096;

/// The content of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// Names and inode numbers.
    Names,
    /// The attributes of each inode, too.
    Attributes {
        /// Entries that the client has space for.
        most: usize,
    },
}

impl Operations {
    /// Entries from `cursor` on (0: the first), the dots included, until `each` returns `false`. An entry's `next_cursor` is where to go
    /// on after it, also when names were made and removed since. With [`Listed::Attributes`] the inodes are read many at a time.
    ///
    /// # Errors
    /// As [`diorite::NodeRef::read_directory`].
    pub fn read_directory(
        &self,
        directory: InodeNumber,
        cursor: u64,
        listed: Listed,
        each: &mut dyn FnMut(&DirectoryEntry) -> bool,
    ) -> Result<()> {
        let node = self.node(directory)?;
        if cursor == 0 {
            self.view.note_access(&node)?;
        }
        let Listed::Attributes { most } = listed else { return node.read_directory(cursor, each) };
        let most = most.clamp(1, TOGETHER_MAX);
        let mut entries = Vec::with_capacity(most);
        node.read_directory(cursor, &mut |entry| {
            entries.push(entry.clone());
            entries.len() < most
        })?;
        self.filesystem().read_ahead_nodes(entries.iter().map(|entry| entry.inode));
        let is_full = !entries.iter().all(&mut *each);
        match entries.last() {
            Some(last) if !is_full && entries.len() == most => node.read_directory(last.next_cursor, each),
            _ => Ok(()),
        }
    }
}

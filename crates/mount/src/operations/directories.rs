//! Directories, listed.

use diorite::{DirectoryEntry, InodeNumber, Result};

use super::{Entry, Operations};

/// What a client took of a listing.
struct Taken {
    /// Where the rest begins.
    next: u64,
    count: usize,
    /// It refused one.
    is_full: bool,
}

impl Taken {
    fn offer(&mut self, entry: &DirectoryEntry, each: &mut dyn FnMut(&DirectoryEntry) -> bool) -> bool {
        self.is_full = !each(entry);
        if !self.is_full {
            (self.next, self.count) = (entry.next_cursor, self.count + 1);
        }
        !self.is_full
    }
}

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
            self.listing_ahead.take(&node, cursor)
        };
        let mut taken = Taken { next: cursor, count: 0, is_full: false };
        if let Some(part) = &made {
            part.give(&mut |entry| taken.offer(entry, each));
        }
        if !taken.is_full && !made.is_some_and(|part| part.is_last()) {
            node.read_directory(taken.next, &mut |entry| taken.offer(entry, each))?;
        }
        if taken.is_full {
            self.listing_ahead.go_on(&node, taken.next, taken.count);
        }
        Ok(())
    }

    /// A client that caches listings begins one: [`Self::take_listed`] says so after a change. Until the client forgets the directory.
    pub fn note_listed(&self, directory: InodeNumber) {
        self.known.note_listed(directory);
    }

    /// Names of the directory have changed: whether a client has begun a listing since the last time.
    pub fn take_listed(&self, directory: InodeNumber) -> bool {
        self.known.take_listed(directory)
    }

    /// The inode of an entry that was listed.
    ///
    /// # Errors
    /// As [`Operations::node`]: it may be gone since.
    pub fn listed(&self, entry: &DirectoryEntry) -> Result<Entry> {
        self.entry(self.node(entry.inode)?)
    }
}

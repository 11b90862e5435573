//! Directories, listed.

use diorite::{DirectoryEntry, InodeNumber, IoOwner, NodeRef, Result};

use super::listing_ahead::{Listed, PART_LEN_MAX, Part, Wanted};
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
    /// on after it, also when names were made and removed since. With [`Listed::Attributes`] the inodes are read many at a time. Returns
    /// whether a call from there has more to say: entries, or an error.
    ///
    /// # Errors
    /// As [`diorite::NodeRef::read_directory`].
    pub fn read_directory(
        &self,
        directory: InodeNumber,
        cursor: u64,
        listed: Listed,
        each: &mut dyn FnMut(&DirectoryEntry) -> bool,
    ) -> Result<bool> {
        let node = self.node(directory)?;
        if cursor == 0 {
            self.note_access(&node)?;
        }
        let made = self.made_part(&node, cursor, listed)?;
        let mut taken = Taken { next: cursor, count: 0, is_full: false };
        if let Some(part) = &made {
            part.give(&mut |entry| taken.offer(entry, each));
        }
        if !taken.is_full && !made.is_some_and(|part| part.is_last()) {
            let listed = node.read_directory(taken.next, &mut |entry| taken.offer(entry, each));
            if let Err(error) = listed {
                // After the last entry that can be read: the client asks for the rest, and receives the error alone.
                return if taken.count == 0 { Err(error) } else { Ok(true) };
            }
        }
        if taken.is_full {
            // A client that lists attributes may do so of the first part alone, to see whether they are of use.
            let next = if cursor == 0 { Listed::Names } else { listed };
            self.listing_ahead.go_on(&node, taken.next, taken.count, next);
        }
        Ok(taken.is_full)
    }

    /// A part whose entries are known before the first is given: one that was made ahead, or if each inode will be looked at, one whose
    /// inodes have been read at once.
    fn made_part(&self, node: &NodeRef, cursor: u64, listed: Listed) -> Result<Option<Part>> {
        let ahead = if cursor == 0 { None } else { self.listing_ahead.take(node, cursor) };
        match (ahead, listed) {
            (None, Listed::Attributes { most }) => {
                let (directory, owner) = (node.number(), IoOwner::current());
                let wanted = Wanted { directory, cursor, len: most.clamp(1, PART_LEN_MAX), listed, owner };
                Part::make(self.filesystem(), &wanted).map(Some)
            }
            (ahead, _) => Ok(ahead),
        }
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
        self.found(entry.inode)
    }
}

//! Listing a directory.

use super::{Names, is_directory};
use crate::{DirectoryEntry, EntryBatch, Error, Inode, Result};

impl Names {
    /// Call `each` for the entries from `cursor` on (0: the first), `.` and `..` included, until it returns `false`.
    /// Entries present during the whole listing come exactly once. No lock is held while `each` runs.
    ///
    /// # Errors
    /// After the last entry, if damage hides others.
    pub fn read_directory(
        &self,
        directory: &Inode,
        mut cursor: u64,
        each: &mut dyn FnMut(&DirectoryEntry) -> bool,
    ) -> Result<()> {
        let mut batch = EntryBatch::default();
        loop {
            self.list_directory(directory, cursor, &mut batch)?;
            match batch.next_cursor() {
                Some(next) if batch.for_each(each) => cursor = next,
                _ => return Ok(()),
            }
        }
    }

    /// Fill `batch` with the entries from `cursor` on (0: the first), `.` and `..` included, about one block of them; none at the end.
    ///
    /// # Errors
    /// At the end, if damage hides entries.
    pub fn list_directory(&self, directory: &Inode, cursor: u64, batch: &mut EntryBatch) -> Result<()> {
        if !is_directory(directory) {
            return Err(Error::NotADirectory);
        }
        let state = directory.read_in_use()?;
        self.with_directory(directory, &state, |entries| {
            entries.list(cursor, batch)?;
            if batch.is_damaged() {
                directory.note_damaged_names();
            }
            if batch.is_empty() && directory.has_damaged_names() { entries.check_entries() } else { Ok(()) }
        })
    }
}

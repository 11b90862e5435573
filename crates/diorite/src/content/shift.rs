//! Moved ranges: a part of a file is removed, or a hole is inserted, without a copy.
//!
//! Everything from the range on changes its offset, so it is locked to the end of all offsets, and its cached pages
//! are written back and dropped before the mapping changes. The move is durable before the lock is released: a crash
//! must not show a later write to moved blocks at the old offset.

use crate::content::Content;
use crate::store::map::SyncKind;
use crate::{Error, Result};

impl Content {
    /// Remove a range of whole blocks; the following blocks move to the front.
    pub(crate) fn collapse_range(&self, offset: u64, len: u64) -> Result<()> {
        self.check_blocks(offset, len)?;
        let _range = self.store.ranges.exclusive(self.store.locked_range(offset, 0).start..u64::MAX);
        let size = self.store.size();
        if offset.checked_add(len).is_none_or(|end| end >= size) {
            return Err(Error::InvalidArgument(
                "a range to collapse must end before the end of the file; set_len truncates it",
            ));
        }
        self.write_back_from(offset)?;
        self.engine.with_space(|| self.store.map.collapse_range(offset, len))?;
        self.store.set_size(size - len);
        self.store.note_modified();
        self.store.map.sync(SyncKind::Data)
    }

    /// Insert a hole of whole blocks; the following blocks move towards the end.
    pub(crate) fn insert_range(&self, offset: u64, len: u64) -> Result<()> {
        self.check_blocks(offset, len)?;
        let _range = self.store.ranges.exclusive(self.store.locked_range(offset, 0).start..u64::MAX);
        let size = self.store.size();
        if offset >= size {
            return Err(Error::InvalidArgument(
                "a range can only be inserted before the end of the file; set_len makes it longer",
            ));
        }
        let grown = self.store.end_of_write(size, len)?;
        self.write_back_from(offset)?;
        self.engine.with_space(|| self.store.map.insert_range(offset, len))?;
        self.store.set_size(grown);
        self.store.note_modified();
        self.store.map.sync(SyncKind::Data)
    }

    fn check_blocks(&self, offset: u64, len: u64) -> Result<()> {
        let block = self.store.map.block_size();
        if len == 0 || !offset.is_multiple_of(block) || !len.is_multiple_of(block) {
            return Err(Error::InvalidArgument("offset and length must be multiples of the block size"));
        }
        Ok(())
    }

    /// Write back and drop everything from `offset` on, and record the size. The caller has that range exclusively.
    fn write_back_from(&self, offset: u64) -> Result<()> {
        self.move_out_of_inode()?;
        let start = self.store.locked_range(offset, 0).start;
        self.cache.settle(&(start..u64::MAX))?;
        self.store.record_size()
    }
}

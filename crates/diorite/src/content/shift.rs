//! Ranges that move: a part of a file is taken out, or a hole is made in it, and nothing is copied.
//!
//! Everything from the range on changes its place in the file, so it is locked to the end of all offsets; what the cache has of it
//! is written back and dropped before the mapping changes. The move is durable before the lock goes: else a later write to moved blocks, in
//! place, would be seen at the old offset after a crash, in bytes that were synced there.

use std::sync::Arc;

use crate::content::Content;
use crate::store::map::SyncKind;
use crate::store::reservation::Reservation;
use crate::{Error, Result};

impl Content {
    /// Take a range of whole blocks out; what follows it moves to the front.
    pub(crate) fn collapse_range(self: &Arc<Self>, offset: u64, len: u64) -> Result<()> {
        self.check_blocks(offset, len)?;
        let _range = self.ranges.exclusive(self.store.locked_range(offset, 0).start..u64::MAX);
        let size = self.store.size();
        if offset.checked_add(len).is_none_or(|end| end >= size) {
            return Err(Error::InvalidArgument(
                "a range to collapse must end before the end of the file; set_len truncates it",
            ));
        }
        self.write_back_from(offset)?;
        self.with_blocks(|| self.store.map.collapse_range(offset, len))?;
        self.store.set_size(size - len);
        self.store.note_modified();
        self.store.map.sync(SyncKind::Data)
    }

    /// Make a hole of whole blocks; what follows it moves towards the end.
    pub(crate) fn insert_range(self: &Arc<Self>, offset: u64, len: u64) -> Result<()> {
        self.check_blocks(offset, len)?;
        let _range = self.ranges.exclusive(self.store.locked_range(offset, 0).start..u64::MAX);
        let size = self.store.size();
        if offset >= size {
            return Err(Error::InvalidArgument(
                "a range can only be inserted before the end of the file; set_len makes it longer",
            ));
        }
        let grown = self.store.end_of_write(size, len)?;
        self.write_back_from(offset)?;
        self.with_blocks(|| self.store.map.insert_range(offset, len))?;
        self.store.set_size(grown);
        self.store.note_modified();
        self.store.map.sync(SyncKind::Data)
    }

    /// A move cuts an extent, which may take a block.
    fn with_blocks(&self, mut change: impl FnMut() -> Result<()>) -> Result<()> {
        Reservation::new(&self.engine).retry(|_| change())
    }

    fn check_blocks(&self, offset: u64, len: u64) -> Result<()> {
        let block = self.store.map.block_size();
        if len == 0 || !offset.is_multiple_of(block) || !len.is_multiple_of(block) {
            return Err(Error::InvalidArgument("offset and length must be multiples of the block size"));
        }
        Ok(())
    }

    /// Bring everything from `offset` on to the device, and its size to the volume. The caller has that range alone.
    fn write_back_from(&self, offset: u64) -> Result<()> {
        self.store.move_out_of_inode()?;
        let start = self.store.locked_range(offset, 0).start;
        self.cache.settle(&(start..u64::MAX))?;
        self.store.record_size()
    }
}

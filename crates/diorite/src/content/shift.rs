//! Moved ranges: a part of a file is removed, or a hole is inserted, without a copy.
//!
//! All data after the start of the range changes its offset. It is therefore locked to the end of all offsets, and its
//! cached pages are written back and dropped before the mapping changes. The move is durable before the lock is
//! released: a crash must not show a later write to moved blocks at the old offset.

use crate::content::Content;
use crate::store::map::SyncKind;
use crate::{Error, Result};

/// The direction of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shift {
    /// Remove the range; the following blocks move to the front.
    Collapse,
    /// Insert a hole; the following blocks move towards the end.
    Insert,
}

impl Content {
    /// Remove or insert a range of whole blocks.
    pub(crate) fn shift_range(&self, offset: u64, len: u64, shift: Shift) -> Result<()> {
        let (store, block) = (&self.store, self.store.map.block_size());
        if len == 0 || !offset.is_multiple_of(block) || !len.is_multiple_of(block) {
            return Err(Error::InvalidArgument("offset and length must be multiples of the block size"));
        }
        let range = store.locked_range(offset, 0).start..u64::MAX;
        let _range = store.ranges.exclusive(range.clone());
        let old = store.size();
        let size = match shift {
            Shift::Collapse if offset.checked_add(len).is_none_or(|end| end >= old) => {
                return Err(Error::InvalidArgument(
                    "a range to collapse must end before the end of the file; set_len truncates it",
                ));
            }
            Shift::Insert if offset >= old => {
                return Err(Error::InvalidArgument(
                    "a range can only be inserted before the end of the file; set_len makes it longer",
                ));
            }
            Shift::Collapse => old - len,
            Shift::Insert => store.end_of_write(old, len)?,
        };
        self.move_out_of_inode()?;
        self.cache.settle(&range)?;
        store.record_size()?;
        self.engine.with_space(|| match shift {
            Shift::Collapse => store.map.collapse_range(offset, len),
            Shift::Insert => store.map.insert_range(offset, len),
        })?;
        store.set_size(size);
        store.note_modified();
        store.map.sync(SyncKind::Data)
    }
}

//! Changes of a file's size and of its holes.
//!
//! Each takes the range that it changes exclusively: up to the end of all offsets where the size changes. So a read or a write
//! sees the file before or after it.

use std::ops::Range;

use diorite_block::BioFlags;

use crate::cache::file_cache::PinnedPages;
use crate::content::write::{LockedRange, Position, WantedRange, WriteRange};
use crate::content::{Content, pages_of};
use crate::store::PAGE_SIZE;
use crate::store::backing::BackingStore;
use crate::store::map::{MappingKind, WriteCommit};
use crate::store::range_lock::LockMode;
use crate::store::reservation::Reservation;
use crate::{Error, ErrorKind, Result};

/// Effect of an allocation beyond the end of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BeyondEnd {
    /// The file grows.
    Grow,
    /// The size stays, and the blocks lie beyond it.
    KeepSize,
}

/// Bytes of zeros that one step of an allocation writes.
const ALLOCATE_STEP: u64 = 4 << 20;

impl Content {
    /// Set the size.
    pub(crate) fn set_len(&self, size: u64) -> Result<()> {
        self.set_len_with(size, false, || self.store.map.truncate(size))
    }

    /// Set the size by `record`, which records it, and with `sets_modified` the modification time too.
    pub(crate) fn set_len_with(
        &self,
        size: u64,
        sets_modified: bool,
        record: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        self.store.end_of_write(0, size)?;
        loop {
            let old = self.store.size();
            let _range =
                self.store.ranges.exclusive(self.store.locked_range(old.min(size), 0).start..u64::MAX);
            if self.store.size() < old.min(size) {
                continue;
            }
            return self.set_len_locked(size, sets_modified, record);
        }
    }

    fn set_len_locked(
        &self,
        size: u64,
        sets_modified: bool,
        mut record: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let old = self.store.size();
        if size > old {
            self.move_out_of_inode()?;
            self.store.zero_end()?;
        }
        if size < old && self.store.map.block_size() > PAGE_SIZE {
            // The page with the claim of the block that the file will end in may be one that is cut off.
            self.cache.write_back(self.store.locked_range(size, size), BioFlags::SYNC)?;
        }
        if size < old && !size.is_multiple_of(PAGE_SIZE) {
            PinnedPages::own_cached(&self.cache, size / PAGE_SIZE)?;
        }
        if sets_modified {
            self.engine.with_space(|| self.store.time.record(|_| record()))?;
            self.store.set_size(size);
        } else {
            self.engine.with_space(record)?;
            self.store.set_size(size);
            self.store.note_modified();
        }
        if size < old {
            self.cache.drop_pages(size.div_ceil(PAGE_SIZE)..u64::MAX);
            self.cache.zero_tail(size);
            self.store.forget_end();
            self.store.zero_end()?;
        }
        Ok(())
    }

    /// Another program has changed the recorded size. The caller has recorded the new one, and has everything after the smaller size exclusively.
    pub(crate) fn adopt_size(&self, old: u64, new: u64) -> Result<()> {
        self.store.forget_end();
        if new > old {
            self.cache.drop_clean_in(old / PAGE_SIZE..u64::MAX);
            self.store.grow(new);
            return Ok(());
        }
        if !new.is_multiple_of(PAGE_SIZE) {
            PinnedPages::own_cached(&self.cache, new / PAGE_SIZE)?;
        }
        self.store.set_size(new);
        self.cache.drop_pages(new.div_ceil(PAGE_SIZE)..u64::MAX);
        self.cache.zero_tail(new);
        Ok(())
    }

    /// Make a range read as zeros, and free its whole blocks.
    pub(crate) fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        let end = offset.saturating_add(len).min(self.store.map.max_size());
        if offset >= end {
            return Ok(());
        }
        let range = self.store.locked_range(offset, end);
        let _range = self.store.ranges.exclusive(range.clone());
        if self.store.is_inline()? {
            self.store.map.zero_inline(offset, end)?;
            self.cache.drop_pages(pages_of(range.start, range.end));
            self.store.note_modified();
            return Ok(());
        }
        let block = self.store.map.block_size();
        if end >= self.store.size() {
            // The pages that would have had the size recorded when they are written back are dropped.
            self.store.record_size()?;
        }
        // Bytes that share a page or a block with the range are written back, and keep their content.
        self.cache.write_back(range.start..(range.start + self.store.unit()), BioFlags::SYNC)?;
        self.cache.write_back(range.end.saturating_sub(self.store.unit())..range.end, BioFlags::SYNC)?;
        // After the end of the file no byte is kept: the last block is freed whole.
        let stop = if end >= self.store.size() { end.next_multiple_of(block) } else { end };
        let whole = offset.next_multiple_of(block)..stop / block * block;
        if whole.start < whole.end {
            match self.store.map.punch(whole.start, whole.end - whole.start) {
                // No block is left to split a node of the mapping: the blocks stay, and become zero.
                Err(error) if error.is_no_space() => {
                    // Nothing stays cached: if that fails on the way, a part of the range is zero on the device.
                    self.cache.settle(&range)?;
                    let is_mapped = |kind: MappingKind| matches!(kind, MappingKind::Mapped(_));
                    let mut reservation = Reservation::new(&self.store.shared);
                    let recorded = self.store.map.recorded_size();
                    self.store.zero_where(whole.clone(), recorded, is_mapped, &mut reservation)?;
                }
                punched => punched?,
            }
        }
        self.store.note_modified();
        self.cache.drop_pages(pages_of(range.start, range.end));
        if whole.start > whole.end {
            // Within one block.
            return self.cache.zero_mapped(offset, end.min(self.store.size()));
        }
        self.cache.zero_mapped(offset, whole.start.min(self.store.size()))?;
        self.cache.zero_mapped(whole.end, end.min(self.store.size()))
    }

    /// Allocate the blocks of a range, which keeps its content. The file grows to the end of the range, or gets
    /// blocks beyond its end. After a failure the size is the old one, and blocks beyond it are freed.
    pub(crate) fn allocate(&self, offset: u64, len: u64, beyond: BeyondEnd) -> Result<()> {
        if len == 0 {
            return Err(Error::InvalidArgument("the range to allocate is empty"));
        }
        let keeps_size = beyond == BeyondEnd::KeepSize;
        let may_grow = !keeps_size && offset.saturating_add(len) > self.store.size();
        // The range reaches to the end of all offsets, so that no other call owns blocks that are freed.
        let LockedRange { range, id } = loop {
            let wanted = WantedRange::new(&self.store, Position::At(offset), len)?;
            let stop = if may_grow { u64::MAX } else { wanted.lock.end };
            let id = self.store.ranges.acquire(wanted.lock.start..stop, LockMode::Exclusive);
            if let Some(locked) = wanted.confirm(&self.store, id)? {
                break locked;
            }
        };
        let _lock = self.store.ranges.guard(id);
        let old = self.store.size();
        self.move_out_of_inode()?;
        self.cache.write_back(range.whole.clone(), BioFlags::SYNC)?;
        let file_end = if keeps_size { range.end.min(self.store.size()) } else { range.end };
        let mut reservation = Reservation::new(&self.store.shared);
        let allocated = self
            .engine
            .retry(&mut reservation, |reservation| self.store.allocate_locked(&range, file_end, reservation));
        drop(reservation);
        if allocated.is_ok() {
            self.store.grow(file_end);
            self.store.note_modified();
        } else if may_grow && self.store.map.recorded_size() > old {
            // Without unwritten blocks, zeros were written as far as there was space, and recorded.
            self.store.map.truncate(old)?;
        } else {
            self.store.grow(file_end.min(self.store.map.recorded_size()));
        }
        allocated
    }

    /// Make a range of the file read as zeros; its size stays, and its blocks are there afterwards.
    pub(crate) fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        let asked = offset.saturating_add(len);
        let _range = self.store.ranges.exclusive(self.store.locked_range(offset, asked));
        // Sampled under the lock: a write that extends the file takes effect wholly before this call or after it.
        let end = asked.min(self.store.size());
        if offset >= end {
            return Ok(());
        }
        let range = self.store.locked_range(offset, end);
        self.move_out_of_inode()?;
        // Bytes that share a page or a block with the range are written back, and claims become blocks. No page stays
        // cached: without enough space, a part of the range is zero on the device.
        self.cache.settle(&range)?;
        let block = self.store.map.block_size();
        let whole_start = offset.next_multiple_of(block);
        let whole_end =
            if end == self.store.size() { end.next_multiple_of(block) } else { end / block * block };
        self.store.note_modified();
        let whole = whole_start..whole_end;
        let mut reservation = Reservation::new(&self.store.shared);
        self.engine.retry(&mut reservation, |reservation| {
            self.store.zero_blocks(offset..end, whole.clone(), reservation)
        })?;
        drop(reservation);
        if whole_start > whole_end {
            return self.cache.zero_mapped(offset, end);
        }
        self.cache.zero_mapped(offset, whole_start.min(end))?;
        self.cache.zero_mapped(whole_end.max(offset), end)
    }
}

impl BackingStore {
    fn allocate_locked(
        &self,
        range: &WriteRange,
        file_end: u64,
        reservation: &mut Reservation<'_>,
    ) -> Result<()> {
        let block = self.map.block_size();
        let (start, stop) = (range.offset / block * block, range.end.next_multiple_of(block));
        // Also if the size in memory is larger: blocks beyond the recorded size would be an error after a crash.
        let size_at_least = (file_end > self.map.recorded_size()).then_some(file_end);
        self.map.check_quota(start, stop - start)?;
        match self.map.allocate(start, stop - start, size_at_least) {
            Err(error) if error.kind() == ErrorKind::Unsupported && file_end == range.end => {
                self.note_modified();
                self.zero_where(start..stop, file_end, is_hole, reservation)
            }
            result => result,
        }
    }

    /// Write zeros to the mappings of a kind that `is_wanted` accepts, with new blocks for holes. The file ends at or after `file_end`, which is
    /// in the last block.
    pub(super) fn zero_where(
        &self,
        range: Range<u64>,
        file_end: u64,
        is_wanted: impl Fn(MappingKind) -> bool,
        reservation: &mut Reservation<'_>,
    ) -> Result<()> {
        for mapping in self.map.mappings(range) {
            let mapping = mapping?;
            let mut at = mapping.offset;
            while at < mapping.end() && is_wanted(mapping.kind) {
                let window = at..mapping.end().min(at + ALLOCATE_STEP);
                let stop = window.end.min(file_end);
                let done = self.write_zeros(window.clone(), stop, reservation)?;
                at = if done == stop { window.end } else { done };
            }
        }
        let size_at_least = (file_end > self.map.recorded_size()).then_some(file_end);
        self.commit(WriteCommit { size_at_least, ..WriteCommit::default() })
    }

    /// Make the whole blocks of a range read as zeros, and give blocks to all of it.
    fn zero_blocks(
        &self,
        range: Range<u64>,
        whole: Range<u64>,
        reservation: &mut Reservation<'_>,
    ) -> Result<()> {
        let block = self.map.block_size();
        let (start, stop) = (range.start / block * block, range.end.next_multiple_of(block));
        self.map.check_quota(start, stop - start)?;
        if whole.start < whole.end {
            match self.map.zero(whole.start, whole.end - whole.start) {
                // Also where no block is left to cut an extent: overwriting takes none.
                Err(error) if error.kind() == ErrorKind::Unsupported || error.is_no_space() => {
                    self.zero_where(whole.clone(), range.end.min(whole.end), |_| true, reservation)?;
                }
                zeroed => zeroed?,
            }
        }
        // The blocks at the ends are there, if only in part within the range.
        self.zero_where(start..stop, range.end, is_hole, reservation)
    }
}

fn is_hole(kind: MappingKind) -> bool {
    kind == MappingKind::Hole
}

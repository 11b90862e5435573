//! Changes of a file's size and of its holes.
//!
//! Each takes the range that it changes exclusively: up to the end of all offsets where the size changes. So a read or a write
//! sees the file before or after it.

use std::sync::Arc;

use diorite_block::BioFlags;

use crate::cache::arena::PAGE_SIZE;
use crate::content::plan::{Room, plan_write};
use crate::content::{Attempt, Content, Position, pages_of};
use crate::map::{MapCommit, StretchKind};
use crate::{Error, Result};

/// `EOPNOTSUPP`.
const UNSUPPORTED: i32 = 95;
/// What an allocation does beyond the end of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BeyondEnd {
    /// The file grows.
    Grow,
    /// The size stays, and the blocks lie beyond it.
    KeepSize,
}

/// Whether zeros go over data too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overwrite {
    No,
    Yes,
}

/// Bytes of zeros that one step of an allocation writes.
const ALLOCATE_STEP: u64 = 4 << 20;

impl Content {
    /// Set the size.
    pub(crate) fn set_len(self: &Arc<Self>, size: u64) -> Result<()> {
        self.end_of_write(0, size)?;
        loop {
            let old = self.size();
            let _range = self.ranges.exclusive(self.locked_range(old.min(size), 0).start..u64::MAX);
            if self.size() < old.min(size) {
                continue;
            }
            return self.set_len_locked(size);
        }
    }

    fn set_len_locked(self: &Arc<Self>, size: u64) -> Result<()> {
        let old = self.size();
        self.leave_inode()?;
        let block = self.map.block_size();
        if size > old {
            self.zero_mapped(old, old.next_multiple_of(block).min(size))?;
        }
        if size < old && block > PAGE_SIZE {
            // The page with the claim of the block that the file will end in may be one that is cut off.
            self.write_back_locked(self.locked_range(size, size), BioFlags::SYNC)?;
        }
        if size < old && !size.is_multiple_of(PAGE_SIZE) {
            self.own_cached_page(size / PAGE_SIZE)?;
        }
        self.map.truncate(size)?;
        self.note_unsynced();
        self.size.store(size, std::sync::atomic::Ordering::Release);
        if size < old {
            self.drop_pages(size.div_ceil(PAGE_SIZE)..u64::MAX);
            self.zero_mapped(size, size.next_multiple_of(block).min(size.next_multiple_of(PAGE_SIZE)))?;
            self.zero_cached_tail(size);
        }
        self.note_modified();
        Ok(())
    }

    /// A cached page that the end of the file lies in is zero behind it, and nothing behind it is dirty or has a claim.
    fn zero_cached_tail(&self, size: u64) {
        let (page, within) = (size / PAGE_SIZE, (size % PAGE_SIZE) as usize);
        if within == 0 {
            return;
        }
        let keep = size.div_ceil(self.part_size()) - page * (PAGE_SIZE / self.part_size());
        let mut unwanted = 0;
        self.pages.update(page..page + 1, |_, state| {
            let mut frame = self.engine.cache.arena.write(state.frame).expect("the range is ours alone");
            frame[within..].fill(0);
            state.dirty &= ((1_u16 << keep) - 1) as u8;
            // A part has at most one claim.
            let kept = state.claimed.min(state.dirty.count_ones() as u8);
            unwanted = u64::from(state.claimed - kept);
            state.claimed = kept;
        });
        if unwanted > 0 {
            self.map.release_claim(unwanted);
        }
    }

    /// Make a range read as zeros, and give up its whole blocks.
    pub(crate) fn punch_hole(self: &Arc<Self>, offset: u64, len: u64) -> Result<()> {
        let end = offset.saturating_add(len).min(self.map.max_size());
        if offset >= end {
            return Ok(());
        }
        let range = self.locked_range(offset, end);
        let _range = self.ranges.exclusive(range.clone());
        self.leave_inode()?;
        let block = self.map.block_size();
        // What shares a page or a block with the range keeps its content through the device.
        self.write_back_locked(range.start..(range.start + self.unit()), BioFlags::SYNC)?;
        self.write_back_locked(range.end.saturating_sub(self.unit())..range.end, BioFlags::SYNC)?;
        // Behind the end of the file nothing is kept: its last block goes as a whole.
        let stop = if end >= self.size() { end.next_multiple_of(block) } else { end };
        let whole = offset.next_multiple_of(block)..stop / block * block;
        if whole.start < whole.end {
            self.map.punch(whole.start, whole.end - whole.start)?;
            self.note_unsynced();
        }
        self.drop_pages(pages_of(range.start, range.end));
        if whole.start > whole.end {
            // Within one block.
            self.zero_mapped(offset, end.min(self.size()))?;
        } else {
            self.zero_mapped(offset, whole.start.min(self.size()))?;
            self.zero_mapped(whole.end, end.min(self.size()))?;
        }
        self.note_modified();
        Ok(())
    }

    /// Give a range blocks. It keeps its content; the file grows if it ends before the range does, or gets blocks beyond its end.
    pub(crate) fn allocate(self: &Arc<Self>, offset: u64, len: u64, beyond: BeyondEnd) -> Result<()> {
        self.with_room(|attempt| self.allocate_once(offset, len, beyond, attempt))
    }

    fn allocate_once(
        self: &Arc<Self>,
        offset: u64,
        len: u64,
        beyond: BeyondEnd,
        attempt: Attempt,
    ) -> Result<()> {
        if len == 0 {
            return Err(Error::InvalidArgument("a range to allocate is not empty"));
        }
        let end = self.end_of_write(offset, len)?;
        let range = self.locked_range(offset, end);
        let (_, _range) = self.lock_for_write(Position::At(offset), len)?;
        self.leave_inode()?;
        self.write_back_locked(range, BioFlags::SYNC)?;
        let block = self.map.block_size();
        let (start, stop) = (offset / block * block, end.next_multiple_of(block));
        let new_end = if beyond == BeyondEnd::KeepSize { end.min(self.size()) } else { end };
        // Also where the size in memory is larger: blocks beyond the recorded one would be an error after a crash.
        let size_at_least = (new_end > self.map.recorded_size()).then_some(new_end);
        let _taking = self.take_blocks(attempt)?;
        self.map.check_room(start, stop - start)?;
        match self.map.allocate(start, stop - start, size_at_least) {
            Ok(()) => self.note_unsynced(),
            Err(error) if error.errno() == UNSUPPORTED => {
                if new_end < end {
                    return Err(error);
                }
                self.note_modified();
                self.allocate_zeros(start, stop, size_at_least, Overwrite::No)?;
            }
            Err(error) => return Err(error),
        }
        if new_end > self.size() {
            // The last block may have held something else behind the old end.
            let old = self.size();
            if old >= offset {
                self.zero_mapped(old, old.next_multiple_of(block).min(end))?;
            }
            self.grow(new_end);
        }
        Ok(())
    }

    /// Where there are no unwritten blocks, holes are filled with zeros, and data is if it is to be overwritten.
    fn allocate_zeros(
        &self,
        start: u64,
        stop: u64,
        size_at_least: Option<u64>,
        overwrite: Overwrite,
    ) -> Result<()> {
        let mut at = start;
        while at < stop {
            let stretch = self.map.map(at, stop - at)?;
            let end = stretch.end().min(stop);
            if stretch.kind != StretchKind::Hole && overwrite == Overwrite::No {
                at = end;
                continue;
            }
            let end = end.min(at + ALLOCATE_STEP);
            let zeros = &self.engine.zeros;
            let mut parts: Vec<(u64, &[u8])> = Vec::new();
            let mut part = at;
            while part < end {
                let take = (end - part).min(zeros.len() as u64);
                parts.push((part, &zeros[..take as usize]));
                part += take;
            }
            let (summary, mut commit) =
                plan_write(&*self.map, &parts, zeros, BioFlags::SYNC, Room::Unclaimed)?.submit(&*self.map)?;
            self.engine.counters.bios.add(summary.bios);
            commit.size_at_least = size_at_least.map(|size| size.min(end));
            self.commit(commit)?;
            at = end;
        }
        self.commit(MapCommit { size_at_least, ..MapCommit::default() })
    }

    /// Make a range of the file read as zeros; its size stays, and its blocks are there afterwards.
    pub(crate) fn zero_range(self: &Arc<Self>, offset: u64, len: u64) -> Result<()> {
        self.with_room(|attempt| self.zero_range_once(offset, len, attempt))
    }

    fn zero_range_once(self: &Arc<Self>, offset: u64, len: u64, attempt: Attempt) -> Result<()> {
        let end = offset.saturating_add(len).min(self.size());
        if offset >= end {
            return Ok(());
        }
        let range = self.locked_range(offset, end);
        let _range = self.ranges.exclusive(range.clone());
        // It may have become shorter before the range was ours.
        let end = end.min(self.size());
        if offset >= end {
            return Ok(());
        }
        self.leave_inode()?;
        // What shares a page or a block with the range keeps its content through the device; claims become blocks.
        self.write_back_locked(range.clone(), BioFlags::SYNC)?;
        let block = self.map.block_size();
        let start = offset / block * block;
        let stop = end.next_multiple_of(block);
        let whole_start = offset.next_multiple_of(block);
        let whole_end = if end == self.size() { stop } else { end / block * block };
        let _taking = self.take_blocks(attempt)?;
        self.map.check_room(start, stop - start)?;
        let size_at_least = (end > self.map.recorded_size()).then_some(end);
        self.note_modified();
        if whole_start < whole_end {
            let zeroed = self.map.zero(whole_start, whole_end - whole_start);
            // Also where no block is left to cut an extent: overwriting takes none.
            if zeroed.as_ref().is_err_and(|error| error.errno() == UNSUPPORTED || Self::is_no_space(error)) {
                self.allocate_zeros(whole_start, whole_end, size_at_least, Overwrite::Yes)?;
            } else {
                zeroed?;
            }
            self.note_unsynced();
        }
        self.drop_pages(pages_of(range.start, range.end));
        // The blocks at the ends are there, if only in part within the range.
        self.allocate_zeros(start, stop, size_at_least, Overwrite::No)?;
        if whole_start > whole_end {
            return self.zero_mapped(offset, end);
        }
        self.zero_mapped(offset, whole_start.min(end))?;
        self.zero_mapped(whole_end.max(offset), end)
    }
}

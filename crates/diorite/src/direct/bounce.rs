//! Transfers of any alignment, through aligned memory: `Unaligned::Bounce`.
//!
//! The page cache stays out of it; the CPU copies, and that is counted. At the edges of a write the rest of a block is read
//! first, under the same exclusive range.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use diorite_block::BioFlags;
use diorite_block::sync::{Work, work};

use crate::content::plan::plan_read;
use crate::content::{Attempt, Content, Position, pages_of};
use crate::direct::write::Durable;
use crate::{AlignedBuf, Error, Result, SyncMode};

/// Aligned memory of one transfer.
const WINDOW: u64 = 1 << 20;

impl Content {
    fn bounce_buffer(&self, len: u64) -> Result<AlignedBuf> {
        let alignment = self.geometry().memory_alignment.max(self.geometry().logical_block_size);
        let len = len.min(WINDOW).next_multiple_of(u64::from(self.geometry().logical_block_size));
        AlignedBuf::try_zeroed(len as usize, alignment as usize)
            .map_err(|source| Error::Os { what: "cannot get memory for an unaligned transfer", source })
    }

    fn logical(&self) -> u64 {
        u64::from(self.geometry().logical_block_size)
    }

    /// Read with any alignment.
    pub(crate) fn read_bounced(&self, memory: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        let wanted: u64 = memory.iter().map(|segment| segment.len() as u64).sum();
        if wanted == 0 {
            return Ok(0);
        }
        let range = self.locked_range(offset, offset.saturating_add(wanted));
        let _range = self.ranges.shared(range.clone());
        let size = self.size();
        if offset >= size {
            return Ok(0);
        }
        self.write_back_locked(range, BioFlags::SYNC)?;
        let end = offset + wanted.min(size - offset);
        let start = offset / self.logical() * self.logical();
        let mut buffer = self.bounce_buffer(end - start)?;
        let mut segments = memory.iter_mut().map(|segment| &mut segment[..]);
        let mut rest: &mut [u8] = &mut [];
        let (mut at, mut window) = (offset, start);
        while window < end {
            let window_end = (window + buffer.len() as u64).min(end.next_multiple_of(self.logical()));
            self.read_block_range(window..window_end, &mut buffer[..(window_end - window) as usize])?;
            let stop = window_end.min(end);
            while at < stop {
                if rest.is_empty() {
                    rest = segments.next().unwrap_or_default();
                    continue;
                }
                let take = rest.len().min((stop - at) as usize);
                let (now, later) = std::mem::take(&mut rest).split_at_mut(take);
                now.copy_from_slice(&buffer[(at - window) as usize..(at - window) as usize + take]);
                (at, rest) = (at + take as u64, later);
            }
            window = window_end;
        }
        self.count_bounce(end - offset);
        Ok((end - offset) as usize)
    }

    fn count_bounce(&self, bytes: u64) {
        self.engine.counters.bounces.add(1);
        self.engine.counters.bytes_copied.add(bytes);
        work(Work::Copy(bytes));
    }

    fn read_block_range(&self, range: Range<u64>, memory: &mut [u8]) -> Result<()> {
        let plan = plan_read(&*self.map, [(range.start, memory)], BioFlags::SYNC)?;
        let summary = plan.submit(&*self.map)?;
        self.engine.counters.bios.add(summary.bios);
        self.engine.counters.direct_bios.add(summary.bios);
        Ok(())
    }

    /// Write with any alignment; less than all only when the volume filled up on the way.
    pub(crate) fn write_bounced(
        self: &Arc<Self>,
        data: &[IoSlice<'_>],
        position: Position,
        sync: SyncMode,
    ) -> Result<(u64, usize)> {
        self.with_room(|attempt| self.write_bounced_once(data, position, sync, attempt))
    }

    /// One attempt of [`Content::write_bounced`].
    pub(crate) fn write_bounced_once(
        self: &Arc<Self>,
        data: &[IoSlice<'_>],
        position: Position,
        sync: SyncMode,
        attempt: Attempt,
    ) -> Result<(u64, usize)> {
        let len: u64 = data.iter().map(|segment| segment.len() as u64).sum();
        let (offset, range_lock) = self.lock_for_write(position, len)?;
        if len == 0 {
            return Ok((offset, 0));
        }
        self.leave_inode()?;
        let end = offset + len;
        let range = self.locked_range(offset, end);
        self.write_back_locked(range.clone(), BioFlags::SYNC)?;
        self.drop_pages(pages_of(range.start, range.end));
        let mut done = offset;
        let result = self.write_bounced_windows(data, offset..end, sync, attempt, &mut done);
        drop(range_lock);
        match result {
            Err(error) if done == offset || !Self::is_no_space(&error) => return Err(error),
            _ => {}
        }
        self.count_bounce(done - offset);
        self.finish_sync(sync, Durable::ByFua)?;
        Ok((offset, (done - offset) as usize))
    }

    /// Write window by window. `done` is where what was written ends.
    fn write_bounced_windows(
        &self,
        data: &[IoSlice<'_>],
        range: Range<u64>,
        sync: SyncMode,
        attempt: Attempt,
        done: &mut u64,
    ) -> Result<()> {
        let Range { start: offset, end } = range;
        let start = offset / self.logical() * self.logical();
        let mut buffer = self.bounce_buffer(end - start)?;
        let mut segments = data.iter().map(|segment| &segment[..]);
        let mut rest: &[u8] = &[];
        let (mut at, mut window) = (offset, start);
        let _taking = self.take_blocks(attempt)?;
        while window < end {
            let window_end = (window + buffer.len() as u64).min(end.next_multiple_of(self.logical()));
            let memory = &mut buffer[..(window_end - window) as usize];
            self.read_edges(memory, window, offset, end)?;
            let stop = window_end.min(end);
            while at < stop {
                if rest.is_empty() {
                    rest = segments.next().unwrap_or_default();
                    continue;
                }
                let (now, later) = rest.split_at(rest.len().min((stop - at) as usize));
                memory[(at - window) as usize..(at - window) as usize + now.len()].copy_from_slice(now);
                (at, rest) = (at + now.len() as u64, later);
            }
            match attempt {
                Attempt::First => self.write_window_to(&[(window, memory)], stop, sync)?,
                Attempt::Alone => self.write_what_fits(window, memory, stop, sync, done)?,
            }
            *done = stop;
            window = window_end;
        }
        Ok(())
    }

    /// Read the blocks of a window that the write `[offset, end)` covers in part; zeros behind the end of the file.
    fn read_edges(&self, memory: &mut [u8], window: u64, offset: u64, end: u64) -> Result<()> {
        let (logical, size) = (self.logical(), self.size());
        let window_end = window + memory.len() as u64;
        let mut edge = |start: u64| -> Result<()> {
            let block = &mut memory[(start - window) as usize..(start - window + logical) as usize];
            self.read_block_range(start..start + logical, block)?;
            let keep = size.saturating_sub(start).min(logical) as usize;
            block[keep..].fill(0);
            Ok(())
        };
        if window < offset {
            edge(window)?;
        }
        let last = window_end - logical;
        if window_end > end && (last > window || window >= offset) {
            edge(last)?;
        }
        Ok(())
    }
}

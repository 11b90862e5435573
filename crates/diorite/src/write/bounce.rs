//! Writes of any alignment, through aligned memory: `Unaligned::Bounce`, and cached writes for which no space can be promised.
//!
//! The CPU copies, and that is counted. At the edges the rest of a logical block is read first, under the same exclusive range.

use std::io::IoSlice;
use std::ops::Range;

use diorite_block::sync::{Work, work};
use diorite_block::{BioFlags, BlockDevice};

use crate::content::Content;
use crate::map::SyncKind;
use crate::placement::{PlugReads, place_read};
use crate::write::space::Blocks;
use crate::write::{Position, WriteRange, Written, bytes_from, len_of};
use crate::{AlignedBuf, Error, Result};

/// Aligned memory of one transfer.
const WINDOW: u64 = 1 << 20;

impl Content {
    /// Aligned memory for at most `len` bytes at once.
    pub(crate) fn bounce_buffer(&self, len: u64) -> Result<AlignedBuf> {
        let geometry = self.geometry();
        let alignment = geometry.memory_alignment.max(geometry.logical_block_size);
        let len = len.min(WINDOW).next_multiple_of(self.logical());
        AlignedBuf::try_zeroed(len as usize, alignment as usize)
            .map_err(|source| Error::Os { what: "cannot get memory for an unaligned transfer", source })
    }

    /// The device's logical block size.
    pub(crate) fn logical(&self) -> u64 {
        u64::from(self.geometry().logical_block_size)
    }

    pub(crate) fn count_bounce(&self, bytes: u64) {
        self.engine.counters.bounces.add(1);
        self.engine.counters.bytes_copied.add(bytes);
        work(Work::Copy(bytes));
    }

    /// Read whole logical blocks.
    pub(crate) fn read_block_range(&self, range: Range<u64>, memory: &mut [u8]) -> Result<()> {
        let device: &dyn BlockDevice = &**self.map.device();
        let mut target = PlugReads::new(device.geometry(), BioFlags::SYNC, std::iter::once(memory));
        place_read(&*self.map, std::iter::once(range), &mut target)?;
        let summary = target.submit(device, BioFlags::SYNC)?;
        self.engine.counters.bios.add(summary.bios);
        self.engine.counters.direct_bios.add(summary.bios);
        Ok(())
    }

    /// Write with any alignment; less than all only when the volume filled up on the way.
    pub(crate) fn write_bounced(
        &self,
        data: &[IoSlice<'_>],
        position: Position,
        sync: Option<SyncKind>,
    ) -> Result<Written> {
        let mut buffer = self.bounce_buffer(len_of(data) + 2 * self.logical())?;
        let any = |_| Ok(());
        let written = self.write_through(data, position, sync, any, |range, at, blocks| {
            self.write_bounced_window(data, range, at, &mut buffer, blocks, sync)
        })?;
        if written.len > 0 {
            self.count_bounce(written.len as u64);
        }
        Ok(written)
    }

    /// Write what fits in the buffer, from `at` on. Returns how far that came. The caller has the range exclusively.
    pub(crate) fn write_bounced_window(
        &self,
        data: &[IoSlice<'_>],
        range: &WriteRange,
        mut at: u64,
        buffer: &mut AlignedBuf,
        blocks: &mut Blocks<'_>,
        sync: Option<SyncKind>,
    ) -> Result<u64> {
        let start = at / self.logical() * self.logical();
        let end = (start + buffer.len() as u64).min(range.end.next_multiple_of(self.logical()));
        let stop = end.min(range.end);
        let memory = &mut buffer[..(end - start) as usize];
        self.read_edges(memory, start, at..range.end)?;
        for segment in bytes_from(data, (at - range.offset) as usize) {
            let take = segment.len().min((stop - at) as usize);
            memory[(at - start) as usize..][..take].copy_from_slice(&segment[..take]);
            at += take as u64;
        }
        self.write_window(start..end, std::iter::once(&*memory), stop, blocks, sync)
    }

    /// Read the blocks of a window at `start` that `written` covers in part.
    fn read_edges(&self, memory: &mut [u8], start: u64, written: Range<u64>) -> Result<()> {
        let (logical, size) = (self.logical(), self.size());
        let end = start + memory.len() as u64;
        let mut edge = |at: u64| -> Result<()> {
            let block = &mut memory[(at - start) as usize..(at - start + logical) as usize];
            self.read_block_range(at..at + logical, block)?;
            // What a file that does not grow has after its end stays unread.
            block[size.saturating_sub(at).min(logical) as usize..].fill(0);
            Ok(())
        };
        if start < written.start {
            edge(start)?;
        }
        let last = end - logical;
        if end > written.end && (last > start || start >= written.start) {
            edge(last)?;
        }
        Ok(())
    }
}

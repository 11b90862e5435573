//! Transfers of any alignment, through aligned memory: `Unaligned::Bounce`, and cached writes without a reservation.
//!
//! The CPU copies, which is counted. At the edges of a write the rest of a logical block is read first, under the
//! same exclusive range.

use std::io::IoSlice;
use std::ops::{Deref, Range};

use diorite_block::BioFlags;
use diorite_block::sync::{Work, work};

use crate::content::Content;
use crate::content::no_wait::check_direct_write;
use crate::content::write::{Position, Step, WriteMode, WriteOp, Written, bytes_from, len_of};
use crate::store::backing::BackingStore;
use crate::store::placement::Segments;
use crate::store::reservation::Reservation;
use crate::{AlignedBuf, Error, IoFlags, Result};

/// Aligned memory of one transfer.
const WINDOW: u64 = 1 << 20;

/// Aligned memory between a file's blocks and data of any alignment.
#[derive(Debug)]
pub(crate) struct BounceBuffer<'s> {
    store: &'s BackingStore,
    memory: AlignedBuf,
}

impl<'s> BounceBuffer<'s> {
    /// Memory for transfers of `len` bytes with the rest of the logical blocks around them, in windows of at most 1
    /// MiB.
    pub(crate) fn new(store: &'s BackingStore, len: u64) -> Result<Self> {
        let geometry = store.geometry();
        let alignment = geometry.memory_alignment.max(geometry.logical_block_size);
        let len = (len + 2 * store.logical()).min(WINDOW).next_multiple_of(store.logical());
        let memory = AlignedBuf::try_zeroed(len as usize, alignment as usize)
            .map_err(|source| Error::Os { what: "cannot get memory for an unaligned transfer", source })?;
        Ok(Self { store, memory })
    }

    /// Read from the logical block of `at` up to `end`, or up to the end of the memory. Returns the bytes from `at`
    /// on.
    pub(crate) fn read(&mut self, at: u64, end: u64) -> Result<&[u8]> {
        let logical = self.store.logical();
        let start = at / logical * logical;
        let whole_end = (start + self.memory.len() as u64).min(end.next_multiple_of(logical));
        let memory = &mut self.memory[..(whole_end - start) as usize];
        read_blocks(self.store, start, memory)?;
        Ok(&memory[(at - start) as usize..(whole_end.min(end) - start) as usize])
    }

    /// The step of a write.
    pub(crate) fn step(&self) -> Step {
        Step { bytes: self.memory.len() as u64, alignment: 1 }
    }

    /// Fill the memory with the window that `op` has placed: bytes of `data`, which begins with the first byte of the
    /// write, and the rest of the logical blocks around them. Returns those blocks.
    pub(crate) fn fill<C: Deref<Target = Content>>(
        &mut self,
        op: &WriteOp<C>,
        data: &[IoSlice<'_>],
    ) -> Result<&[u8]> {
        let (window, range, mut at) = (op.window(), op.range(), op.at());
        let stop = window.end.min(range.end);
        self.read_edges(window.clone(), at..range.end)?;
        let memory = &mut self.memory[..(window.end - window.start) as usize];
        for segment in bytes_from(data, (at - range.start) as usize) {
            let take = segment.len().min((stop - at) as usize);
            memory[(at - window.start) as usize..][..take].copy_from_slice(&segment[..take]);
            at += take as u64;
        }
        Ok(memory)
    }

    /// All windows of a write whose first one is placed.
    pub(crate) fn write<C: Deref<Target = Content>>(
        &mut self,
        mut op: WriteOp<C>,
        data: &[IoSlice<'_>],
        mut reservation: Reservation<'_>,
    ) -> Result<Written> {
        loop {
            let moved = self.fill(&op, data).and_then(|memory| op.execute(std::iter::once(memory)));
            if !op.advance(moved, &mut reservation) {
                break;
            }
        }
        drop(reservation);
        op.complete(Ok(()))
    }

    /// Read the blocks at the ends of a window that `written` covers in part.
    fn read_edges(&mut self, window: Range<u64>, written: Range<u64>) -> Result<()> {
        let (logical, size) = (self.store.logical(), self.store.size());
        let mut edge = |at: u64| -> Result<()> {
            let block = &mut self.memory[(at - window.start) as usize..][..logical as usize];
            read_blocks(self.store, at, block)?;
            // Bytes after the end of a file that does not grow stay hidden.
            block[size.saturating_sub(at).min(logical) as usize..].fill(0);
            Ok(())
        };
        if window.start < written.start {
            edge(window.start)?;
        }
        let last = window.end - logical;
        if window.end > written.end && (last > window.start || window.start >= written.start) {
            edge(last)?;
        }
        Ok(())
    }
}

/// Fill the rest of the one logical block that has `written` in it, and that `memory` begins with. The caller has it exclusively.
pub(crate) fn fill_block(store: &BackingStore, memory: &mut [u8], written: Range<u64>) -> Result<()> {
    let start = written.start / store.logical() * store.logical();
    let (before, after) = ((written.start - start) as usize, (written.end - start) as usize);
    let mut buffer = BounceBuffer::new(store, 0)?;
    buffer.read_edges(start..start + store.logical(), written)?;
    let block = &buffer.memory[..store.logical() as usize];
    memory[..before].copy_from_slice(&block[..before]);
    memory[after..block.len()].copy_from_slice(&block[after..]);
    count_bounce(store, (after - before) as u64);
    Ok(())
}

/// Read whole logical blocks.
fn read_blocks(store: &BackingStore, at: u64, memory: &mut [u8]) -> Result<()> {
    let range = at..at + memory.len() as u64;
    let mut segments = Segments::new(std::iter::once(memory));
    let (_, bios) = store.read_parts(std::iter::once(range), &mut segments, BioFlags::SYNC)?;
    store.shared.counters.direct_bios.add(bios);
    Ok(())
}

/// Count bytes that went through aligned memory.
pub(crate) fn count_bounce(store: &BackingStore, bytes: u64) {
    if bytes > 0 {
        store.shared.counters.bounces.add(1);
        store.shared.counters.bytes_copied.add(bytes);
        work(Work::Copy(bytes));
    }
}

impl Content {
    /// Write with any alignment; less than all only when the volume filled up on the way.
    pub(crate) fn write_bounced(
        &self,
        data: &[IoSlice<'_>],
        position: Position,
        mode: impl Into<WriteMode>,
    ) -> Result<Written> {
        let len = len_of(data);
        if len == 0 {
            return Ok(Written { offset: self.store.offset_of(position), len: 0, stopped: None });
        }
        let mode = mode.into();
        if mode.flags.contains(IoFlags::NOWAIT) {
            check_direct_write(self, position, len)?;
        }
        let mut buffer = BounceBuffer::new(&self.store, len)?;
        let mut reservation = Reservation::new(&self.store.shared);
        let op = WriteOp::begin(self, position, len, mode, buffer.step(), &mut reservation)?;
        let written = buffer.write(op, data, reservation)?;
        count_bounce(&self.store, written.len as u64);
        Ok(written)
    }
}

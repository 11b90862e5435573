//! One write of a file, below all callers: direct, bounced, queued and asynchronous.
//!
//! Where it sits: above the walk over mappings (`placement.rs`), reservations (`reservation.rs`) and [`MapBlocks`](crate::store::map::MapBlocks). Writeback has
//! the same steps for cached pages ([`Writeback`](crate::cache::file_cache::Writeback)).
//!
//! Interface: [`WriteOp::begin`], [`WriteOp::execute`], [`WriteOp::complete`]. A queue begins with a range that it has locked
//! ([`WriteOp::begin_locked`], [`WriteOp::place`]), moves the data itself, and completes when the transfer is reaped. A write that is larger than one step
//! [advances](WriteOp::advance) between them: memory does not grow with the size of a write.
//!
//! The steps, in this order (ARCHITECTURE, "A write"):
//! 1. *Lock* the range exclusively. If the file grows, the rest of its last block is zero on the device from then on (`end.rs`).
//! 2. *Settle cached pages*: dirty ones are written back, all are dropped.
//! 3. *Reserve* blocks for holes, in memory, and *place* the data, with zeros around it in new blocks.
//! 4. *Submit*, and wait now or later.
//! 5. *Commit*: one transaction allocates, maps and sizes (ARCHITECTURE invariant 5).
//! 6. *Grow* the size that readers see, *invalidate* the cached pages once more, and *release* the range.
//! 7. *Make durable* (`durable.rs`), as far as the handle asks for it.
//!
//! A write that is dropped before it is complete releases its range and its blocks; data that it has written is not
//! reachable.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::content::write::atomic::prepare_atomic;
use crate::content::write::{LockedRange, Position, WriteMode, WriteRange, Written};
use crate::content::{Content, pages_of};
use crate::store::durable::Durable;
use crate::store::placement::Placed;
use crate::store::range_lock::LockId;
use crate::store::reservation::Reservation;
use crate::{AlignedPart, Error, IoFlags, Result};

/// Most bytes of a write that are placed at once, and the alignment of its offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) bytes: u64,
    /// A power of two.
    pub(crate) alignment: u32,
}

/// See the module's head.
pub(crate) struct WriteOp<C: Deref<Target = Content>> {
    content: C,
    range: WriteRange,
    /// Until it is released.
    lock: Option<LockId>,
    mode: WriteMode,
    step: Step,
    /// The bytes before this offset are recorded.
    at: u64,
    /// The whole logical blocks that are placed, or were last.
    window: Range<u64>,
    /// The bytes before this offset are placed.
    stop: u64,
    placed: Option<Placed>,
    /// Why the write is short.
    stopped: Option<Error>,
}

impl<'c> WriteOp<&'c Content> {
    /// Steps 1 to 3, for a caller that waits.
    pub(crate) fn begin(
        content: &'c Content,
        position: Position,
        len: u64,
        mode: WriteMode,
        step: Step,
        reservation: &mut Reservation<'_>,
    ) -> Result<Self> {
        let locked = content.lock_range(position, len)?;
        let mut op = Self::begin_locked(content, locked, mode, step)?;
        content.engine.retry(reservation, |reservation| op.place(reservation))?;
        Ok(op)
    }
}

impl<C: Deref<Target = Content>> WriteOp<C> {
    /// Step 2 of a write whose range is locked.
    pub(crate) fn begin_locked(content: C, locked: LockedRange, mode: WriteMode, step: Step) -> Result<Self> {
        let LockedRange { range, id } = locked;
        let (at, window) = (range.offset, range.offset..range.offset);
        let op = Self {
            content,
            range,
            lock: Some(id),
            mode,
            step,
            at,
            window,
            stop: at,
            placed: None,
            stopped: None,
        };
        if op.range.offset & u64::from(step.alignment - 1) != 0 {
            let (what, given, needed) = (AlignedPart::Offset, op.range.offset, step.alignment);
            return Err(Error::InvalidAlignment { what, given, needed });
        }
        op.content.move_out_of_inode()?;
        op.content.cache.settle(&op.range.whole)?;
        if mode.flags.contains(IoFlags::ATOMIC) {
            prepare_atomic(&op.content, &op.range)?;
        }
        Ok(op)
    }

    /// Step 3 for the next bytes that are not recorded.
    pub(crate) fn place(&mut self, reservation: &mut Reservation<'_>) -> Result<()> {
        let logical = self.content.store.logical();
        let start = self.at / logical * logical;
        let end = start.saturating_add(self.step.bytes).min(self.range.end.next_multiple_of(logical));
        let placed = self.content.store.place(start..end, reservation)?;
        (self.window, self.stop) = (start..end, placed.end.min(end).min(self.range.end));
        self.placed = Some(placed);
        Ok(())
    }

    /// The bytes that are written.
    pub(crate) fn range(&self) -> Range<u64> {
        self.range.offset..self.range.end
    }

    /// The first placed byte.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The whole logical blocks that are placed.
    pub(crate) fn window(&self) -> Range<u64> {
        self.window.clone()
    }

    /// Bytes that are recorded or placed.
    pub(crate) fn len(&self) -> u64 {
        self.stop - self.range.offset
    }

    /// The placed window.
    pub(crate) fn placed(&self) -> Option<&Placed> {
        self.placed.as_ref()
    }

    /// Step 4: write the window from `memory`, which begins with its first byte.
    pub(crate) fn execute<'m>(&self, memory: impl Iterator<Item = &'m [u8]> + Clone) -> Result<()> {
        let Some(placed) = &self.placed else { return Ok(()) };
        let store = &self.content.store;
        let bios = store.execute_placed(placed, memory, store.write_flags(self.mode))?;
        self.content.store.shared.counters.direct_bios.add(bios);
        Ok(())
    }

    /// The window was written with this result: record it, and place the next one. Returns whether there is one.
    pub(crate) fn advance(&mut self, moved: Result<()>, reservation: &mut Reservation<'_>) -> bool {
        self.record(moved);
        if self.stopped.is_none() && self.at < self.range.end {
            let placed =
                Arc::clone(&self.content.engine).retry(reservation, |reservation| self.place(reservation));
            self.stopped = placed.err();
        }
        self.placed.is_some()
    }

    /// Step 5.
    fn record(&mut self, moved: Result<()>) {
        let Some(placed) = self.placed.take() else { return };
        match moved.and_then(|()| self.content.store.commit_written(placed.commit, self.stop)) {
            Ok(()) => self.at = self.stop,
            Err(error) => self.stopped = Some(error),
        }
    }

    /// Steps 5 to 7. The window that is placed, if one is, was written with this result.
    pub(crate) fn complete(mut self, moved: Result<()>) -> Result<Written> {
        self.record(moved);
        if self.at > self.range.offset {
            self.content.store.grow(self.at);
        }
        // The lock excludes other pages; this is the second half of a paired check.
        self.content.cache.drop_pages(pages_of(self.range.whole.start, self.range.whole.end));
        self.release();
        let written = Written::up_to(self.range.offset, self.at, self.stopped.take())?;
        self.content.store.make_durable(self.mode.sync, Durable::ByFua)?;
        Ok(written)
    }

    fn release(&mut self) {
        if let Some(id) = self.lock.take() {
            self.content.store.ranges.release(id);
        }
    }
}

impl<C: Deref<Target = Content>> fmt::Debug for WriteOp<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (range, at) = (&self.range, self.at);
        f.debug_struct("WriteOp").field("range", range).field("at", &at).finish_non_exhaustive()
    }
}

impl<C: Deref<Target = Content>> Drop for WriteOp<C> {
    fn drop(&mut self) {
        // Blocks that were not recorded are free before another call has the range.
        self.placed = None;
        self.release();
    }
}

//! Write-back: dirty pages become data on the device, in file order and in full bios.
//!
//! A [`Writeback`] has the steps of every write ([`WriteOp`](crate::content::write::WriteOp)), with pages as its data and a range that is held shared: it begins by
//! placing the pages, its bios are submitted alone or with those of other files, and it is complete when they are recorded and the pages clean
//! (ARCHITECTURE invariant 5). No thread changes a page while it is written.
//!
//! Invariant: a page is clean only when it is on the device (ARCHITECTURE invariant 9). What could not be written stays dirty, and each sync, direct
//! transfer and writer short of frames that needs it written tries again and reports what fails; the background waits a while ([`Retry`](crate::cache::errors::Retry)).
//!
//! Locking: `one_write_back`, across I/O, makes one write-back at a time of a file: two of them would otherwise reserve a block twice that
//! is larger than a page.

use std::ops::Range;

use diorite_block::sync::{MutexGuard, Work, work};
use diorite_block::{BioFlags, Plug};

use crate::cache::arena::{FrameRead, PAGE_SIZE};
use crate::cache::file_cache::FileCache;
use crate::cache::pages::PageState;
use crate::cache::pages_of;
use crate::store::placement::{Placed, place_write, submit};
use crate::store::reservation::Reservation;
use crate::{Error, Result};

/// Most pages of one batch: 8 MiB. A multiple of the pages of any block.
pub(crate) const BATCH_PAGES: usize = 2048;

/// Dirty pages of one file that are being written, under a range that the caller holds.
pub(crate) struct Writeback<'c> {
    cache: &'c FileCache,
    batch: Vec<(u64, PageState)>,
    frames: Vec<FrameRead<'c>>,
    flags: BioFlags,
    placed: Result<Placed>,
    /// The end of the last dirty part.
    end: u64,
    _one_at_a_time: MutexGuard<'c, ()>,
}

impl<'c> Writeback<'c> {
    /// Reserve blocks for the dirty parts of a batch, and place them. Where that fails, [`Writeback::complete`] says so.
    pub(crate) fn begin(
        cache: &'c FileCache,
        batch: Vec<(u64, PageState)>,
        flags: BioFlags,
        one_at_a_time: MutexGuard<'c, ()>,
    ) -> Self {
        cache.engine.counters.pages_scanned.add(batch.len() as u64);
        work(Work::Page(batch.len() as u64));
        let (placed, end) = cache.place_batch(&batch);
        let frames = cache.frames_of(&batch);
        Self { cache, batch, frames, flags, placed, end, _one_at_a_time: one_at_a_time }
    }

    /// The bios that write it; none where it has no place.
    pub(crate) fn plug(&self) -> Option<Plug<'_>> {
        let placed = self.placed.as_ref().ok()?;
        let segments = self.cache.dirty_segments(&self.batch, &self.frames);
        let geometry = self.cache.store.geometry();
        Some(placed.plug(geometry, self.flags, segments.into_iter(), &self.cache.engine.zeros))
    }

    /// The bios were written with this result: record the pages, which are clean then. Pages that could not be written stay dirty.
    pub(crate) fn complete(self, moved: Result<()>) -> Result<usize> {
        let Self { cache, batch, frames, flags, placed, end, _one_at_a_time } = self;
        drop(frames);
        let recorded = moved.and(placed).and_then(|placed| {
            cache.engine.counters.writeback_pages.add(batch.len() as u64);
            cache.store.commit_written_back(placed.commit, end, flags)
        });
        let result = match recorded {
            // The batch as a whole may not find what it asks for: each mapping of it reserves as if it stood alone.
            Err(error) if error.is_no_space() => cache.write_by_blocks(&batch, flags),
            recorded => recorded.inspect(|()| cache.mark_clean(&batch)),
        };
        match result {
            Ok(()) => Ok(batch.len()),
            Err(error) => Err(Error::WriteBack(cache.retry.failed(error))),
        }
    }
}

impl FileCache {
    /// Write back the dirty pages of a range of bytes, which the caller holds. Returns how many.
    pub(crate) fn write_back(&self, range: Range<u64>, flags: BioFlags) -> Result<usize> {
        let mut pages = pages_of(range.start, range.end);
        if self.pages.dirty() == 0 {
            return Ok(0);
        }
        // What a sync writes is waited for once, and nothing follows it.
        let flags = if flags.contains(BioFlags::SYNC) { flags | BioFlags::NO_IDLE } else { flags };
        let mut written = 0;
        loop {
            let one_at_a_time = self.one_write_back.lock();
            let mut batch = self.pages.dirty_in(pages.clone(), BATCH_PAGES);
            self.cut_at_block(&mut batch);
            let Some((last, _)) = batch.last() else { return Ok(written) };
            pages.start = last + 1;
            let op = Writeback::begin(self, batch, flags, one_at_a_time);
            let moved = op.plug().map_or(Ok(()), |plug| self.submit(plug));
            written += op.complete(moved)?;
        }
    }

    fn submit(&self, plug: Plug<'_>) -> Result<()> {
        let summary = submit(plug, self.store.device())?;
        self.engine.counters.bios.add(summary.bios);
        self.engine.counters.writeback_bios.add(summary.bios);
        Ok(())
    }

    /// A block that is larger than a page is written as a whole: a full batch ends before the block that it cuts.
    fn cut_at_block(&self, batch: &mut Vec<(u64, PageState)>) {
        let per_block = self.store.map.block_size() / PAGE_SIZE;
        if batch.len() < BATCH_PAGES || per_block <= 1 {
            return;
        }
        if let Some((last, _)) = batch.last() {
            let block = last / per_block;
            if (last + 1) % per_block != 0 {
                batch.retain(|(page, _)| page / per_block < block);
            }
        }
    }

    /// The memory of the pages of a batch.
    fn frames_of(&self, batch: &[(u64, PageState)]) -> Vec<FrameRead<'_>> {
        let arena = &self.engine.cache.arena;
        let frame = |(_, state): &(u64, PageState)| arena.read(state.frame);
        batch
            .iter()
            .map(|page| frame(page).expect("no thread writes a page of a range that is held"))
            .collect()
    }

    /// The runs of dirty bytes of a page, within the page.
    fn dirty_runs(&self, state: &PageState) -> impl Iterator<Item = Range<u64>> + use<> {
        let (part, dirty, mut at) = (self.part_size(), state.dirty, 0);
        std::iter::from_fn(move || {
            let left = u64::from(dirty) >> at;
            if left == 0 {
                return None;
            }
            let first = at + u64::from(left.trailing_zeros());
            at = first + u64::from((u64::from(dirty) >> first).trailing_ones());
            Some(first * part..at * part)
        })
    }

    /// Reserve blocks for the dirty parts of a batch, and place them. Also the end of the last.
    fn place_batch(&self, batch: &[(u64, PageState)]) -> (Result<Placed>, u64) {
        let mut parts: Vec<Range<u64>> = Vec::new();
        for (page, state) in batch {
            for run in self.dirty_runs(state) {
                let (start, end) = (page * PAGE_SIZE + run.start, page * PAGE_SIZE + run.end);
                match parts.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => parts.push(start..end),
                }
            }
        }
        let end = parts.last().map_or(0, |last| last.end);
        (place_write(&*self.store.map, &parts, &mut Reservation::delayed(&self.engine)), end)
    }

    /// The memory of the dirty parts of a batch.
    fn dirty_segments<'f>(&self, batch: &[(u64, PageState)], frames: &'f [FrameRead<'_>]) -> Vec<&'f [u8]> {
        let mut segments: Vec<&[u8]> = Vec::with_capacity(batch.len());
        for ((_, state), frame) in batch.iter().zip(frames) {
            segments.extend(self.dirty_runs(state).map(|run| &frame[run.start as usize..run.end as usize]));
        }
        segments
    }

    /// Write a batch a block at a time, each recorded before the next. The caller has `one_write_back`.
    fn write_by_blocks(&self, batch: &[(u64, PageState)], flags: BioFlags) -> Result<()> {
        let per_block = (self.store.map.block_size() / PAGE_SIZE).max(1);
        let mut result = Ok(());
        for pages in batch.chunk_by(|(a, _), (b, _)| a / per_block == b / per_block) {
            let written = self.write_block(pages, flags).inspect(|()| self.mark_clean(pages));
            result = result.and(written);
        }
        result
    }

    fn write_block(&self, batch: &[(u64, PageState)], flags: BioFlags) -> Result<()> {
        let (placed, end) = self.place_batch(batch);
        let (placed, frames) = (placed?, self.frames_of(batch));
        let segments = self.dirty_segments(batch, &frames).into_iter();
        self.submit(placed.plug(self.store.geometry(), flags, segments, &self.engine.zeros))?;
        self.engine.counters.writeback_pages.add(batch.len() as u64);
        self.store.commit_written_back(placed.commit, end, flags)
    }

    /// The batch is on the device.
    fn mark_clean(&self, batch: &[(u64, PageState)]) {
        let mut claimed = 0;
        let mut at = 0;
        while at < batch.len() {
            let mut next = at + 1;
            while next < batch.len() && batch[next].0 == batch[next - 1].0 + 1 {
                next += 1;
            }
            self.pages.update(batch[at].0..batch[next - 1].0 + 1, |_, state| {
                claimed += u64::from(state.claimed);
                (state.dirty, state.claimed) = (0, 0);
            });
            at = next;
        }
        if claimed > 0 {
            self.store.map.release_claim(claimed);
        }
    }
}

//! Writeback: dirty pages become data on the device, in file order and in full bios.
//!
//! A [`Writeback`] has the steps of every write (`content/write/op.rs`), with pages as its data and a shared range.
//! It places the pages. Its bios are submitted alone or with bios of other files. It is complete when the blocks
//! are recorded and the pages are clean (ARCHITECTURE invariant 5). No thread changes a page while it is written.
//!
//! Invariant: a page is clean only when it is on the device (ARCHITECTURE invariant 9). After a failure it stays
//! dirty. Each sync, direct transfer and writer that needs it written retries and reports the error; the background
//! waits a while ([`Retry`](crate::cache::errors::Retry)).
//!
//! Locking: `one_write_back` is held across I/O, so that a file has one writeback at a time. Two of them could
//! reserve a block twice that is larger than a page.

use std::ops::Range;

use diorite_block::sync::{MutexGuard, Work, work};
use diorite_block::{BioFlags, Plug};

use crate::cache::arena::FrameRead;
use crate::cache::file_cache::{FileCache, dirty_runs};
use crate::cache::pages::PageState;
use crate::cache::pages_of;
use crate::store::PAGE_SIZE;
use crate::store::placement::{Placed, execute, place_write};
use crate::store::reservation::Reservation;
use crate::{Error, Result};

/// Most pages of one batch: 8 MiB. A multiple of the pages of any block.
pub(crate) const BATCH_PAGES: usize = 2048;

/// Dirty pages of one file that are being written, under a range that the caller holds.
pub(crate) struct Writeback<'c> {
    pages: PlacedPages<'c>,
    _one_at_a_time: MutexGuard<'c, ()>,
}

impl<'c> Writeback<'c> {
    /// Reserve blocks for the dirty parts of a batch, and place them. [`Writeback::complete`] reports a failure.
    pub(crate) fn begin(
        cache: &'c FileCache,
        batch: Vec<(u64, PageState)>,
        flags: BioFlags,
        one_at_a_time: MutexGuard<'c, ()>,
    ) -> Self {
        cache.store.shared.counters.pages_scanned.add(batch.len() as u64);
        work(Work::Page(batch.len() as u64));
        Self { pages: PlacedPages::new(cache, batch, flags), _one_at_a_time: one_at_a_time }
    }

    /// The bios that write the batch; none if it could not be placed.
    pub(crate) fn plug(&self) -> Option<Plug<'_>> {
        self.pages.plug()
    }

    /// The bios have ended with this result: record the pages, which are clean then. Pages that could not be written stay dirty.
    pub(crate) fn complete(self, moved: Result<()>) -> Result<usize> {
        let Self { pages, _one_at_a_time } = self;
        let PlacedPages { cache, flags, .. } = pages;
        let (batch, recorded) = pages.record(moved);
        let result = match recorded {
            // Each mapping of a batch reserves for its own worst case, so a part of it may succeed.
            Err(error) if error.is_no_space() => PlacedPages::write_by_blocks(cache, &batch, flags),
            recorded => recorded,
        };
        match result {
            Ok(()) => Ok(batch.len()),
            Err(error) => Err(Error::WriteBack(cache.retry.failed(error))),
        }
    }
}

/// Pages with their places on the device.
struct PlacedPages<'c> {
    cache: &'c FileCache,
    batch: Vec<(u64, PageState)>,
    frames: Vec<FrameRead<'c>>,
    flags: BioFlags,
    placed: Result<Placed>,
    /// The end of the last dirty part.
    end: u64,
}

impl<'c> PlacedPages<'c> {
    /// Reserve blocks for the dirty parts of a batch, and place them.
    fn new(cache: &'c FileCache, batch: Vec<(u64, PageState)>, flags: BioFlags) -> Self {
        let (store, arena) = (&cache.store, &cache.engine.cache.arena);
        let parts = dirty_runs(&batch, store.part_size());
        let end = parts.last().map_or(0, |last| last.end);
        let placed = place_write(&*store.map, &parts, &mut Reservation::delayed(&store.shared));
        let frame = |(_, state): &(u64, PageState)| arena.read(state.frame);
        let frames = batch
            .iter()
            .map(|page| frame(page).expect("no thread writes a page of a range that is held"))
            .collect();
        Self { cache, batch, frames, flags, placed, end }
    }

    fn plug(&self) -> Option<Plug<'_>> {
        let (placed, store) = (self.placed.as_ref().ok()?, &self.cache.store);
        let part = store.part_size();
        let segments = self.batch.iter().zip(&self.frames).flat_map(|((_, state), frame)| {
            state.dirty_runs(part).map(move |run| &frame[run.start as usize..run.end as usize])
        });
        Some(placed.plug(store.geometry(), self.flags, segments, &store.shared.zeros))
    }

    fn execute(&self) -> Result<()> {
        let Some(plug) = self.plug() else { return Ok(()) };
        let store = &self.cache.store;
        let bios = execute(plug, store.device())?;
        store.shared.counters.bios.add(bios);
        store.shared.counters.writeback_bios.add(bios);
        Ok(())
    }

    /// The bios have ended with this result: record the pages, mark them clean and release their claims. Also returns
    /// the pages.
    fn record(self, moved: Result<()>) -> (Vec<(u64, PageState)>, Result<()>) {
        let Self { cache, batch, frames, flags, placed, end } = self;
        drop(frames);
        let recorded = moved.and(placed).and_then(|placed| {
            cache.store.shared.counters.writeback_pages.add(batch.len() as u64);
            cache.store.commit_written_back(placed.commit, end, flags)
        });
        if recorded.is_ok() {
            let mut claimed = 0;
            for run in batch.chunk_by(|(a, _), (b, _)| a + 1 == *b) {
                cache.pages.update(run[0].0..run[run.len() - 1].0 + 1, |_, state| {
                    claimed += u64::from(state.claimed);
                    (state.dirty, state.claimed) = (0, 0);
                });
            }
            if claimed > 0 {
                cache.store.map.release_claim(claimed);
            }
        }
        (batch, recorded)
    }

    /// Write a batch block by block, each recorded before the next. The caller has `one_write_back`.
    fn write_by_blocks(cache: &FileCache, batch: &[(u64, PageState)], flags: BioFlags) -> Result<()> {
        let per_block = (cache.store.map.block_size() / PAGE_SIZE).max(1);
        let mut result = Ok(());
        for pages in batch.chunk_by(|(a, _), (b, _)| a / per_block == b / per_block) {
            let pages = PlacedPages::new(cache, pages.to_vec(), flags);
            let moved = pages.execute();
            result = result.and(pages.record(moved).1);
        }
        result
    }
}

/// A block that is larger than a page is written whole, so a full batch ends before a block that it would cut.
fn cut_at_block(batch: &mut Vec<(u64, PageState)>, per_block: u64) {
    if batch.len() == BATCH_PAGES
        && per_block > 1
        && let Some((last, _)) = batch.last()
        && (last + 1) % per_block != 0
    {
        let block = last / per_block;
        batch.retain(|(page, _)| page / per_block < block);
    }
}

impl FileCache {
    /// Write back the dirty pages of a range of bytes, which the caller has locked. Returns their number.
    pub(crate) fn write_back(&self, range: Range<u64>, flags: BioFlags) -> Result<usize> {
        let mut pages = pages_of(range.start, range.end);
        if self.pages.dirty() == 0 {
            return Ok(0);
        }
        // A sync waits once, and no request of its thread follows.
        let flags = if flags.contains(BioFlags::SYNC) { flags | BioFlags::NO_IDLE } else { flags };
        let mut written = 0;
        loop {
            let one_at_a_time = self.one_write_back.lock();
            let mut batch = self.pages.dirty_in(pages.clone(), BATCH_PAGES);
            cut_at_block(&mut batch, self.store.map.block_size() / PAGE_SIZE);
            let (Some((first, _)), Some((last, _))) = (batch.first(), batch.last()) else {
                return Ok(written);
            };
            let range = *first..last + 1;
            pages.start = range.end;
            let op = Writeback::begin(self, batch, flags, one_at_a_time);
            let moved = op.pages.execute();
            written += op.complete(moved)?;
            self.drop_uncached(range);
        }
    }
}

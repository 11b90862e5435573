//! The page cache of one file. A [`FileCache`] has one concern: the cached pages, and their transfers from and to the backing store.
//!
//! Where it sits: above [`BackingStore`] and the memory of pages (`cache/`), below the reads and writes of a file (`content/`), which hold
//! the range locks. `load.rs` reads pages. [`PinnedPages`] (`change.rs`) makes them dirty. [`Writeback`] (`write_back.rs`) writes them, and
//! `batches.rs` locks the ranges for that.
//!
//! Invariants:
//! 1. Page content is read under a shared range lock and changed under an exclusive one.
//! 2. Bytes of a cached page at or after the size are zero.
//! 3. A dirty part whose block is a hole has a claim on it.

mod batches;
mod change;
mod load;
mod write_back;

use std::ops::Range;
use std::sync::Arc;

use diorite_block::sync::{Mutex, Rank, Work, work};
use diorite_block::{BioFlags, BlockDevice};

use crate::Result;
use crate::cache::engine::Engine;
use crate::cache::errors::Retry;
use crate::cache::pages::{PageState, Pages};
use crate::cache::pages_of;
use crate::store::PAGE_SIZE;
use crate::store::backing::BackingStore;
pub(crate) use change::PinnedPages;
pub(crate) use load::PageRead;
pub(crate) use write_back::{BATCH_PAGES, Writeback};

/// See the module's head.
pub(crate) struct FileCache {
    pub(crate) pages: Arc<Pages>,
    pub(crate) retry: Retry,
    pub(crate) one_write_back: Mutex<()>,
    pub(crate) store: Arc<BackingStore>,
    pub(crate) engine: Arc<Engine>,
}

diorite_block::short_debug!(FileCache);

impl FileCache {
    /// No page.
    pub(crate) fn new(store: Arc<BackingStore>, engine: Arc<Engine>) -> Arc<Self> {
        Arc::new(Self {
            pages: Arc::new(Pages::new(Arc::clone(&engine.cache.dirty_total))),
            retry: Retry::default(),
            one_write_back: Mutex::ranked(Rank::WritingBack, ()),
            store,
            engine,
        })
    }

    /// The device that the file's data is on.
    pub(crate) fn device(&self) -> &dyn BlockDevice {
        self.store.device()
    }

    /// A number that is unique in the engine.
    pub(crate) fn id(&self) -> u64 {
        self.pages.id()
    }

    /// The dirty runs of bytes in a range, of at most `most` dirty pages.
    pub(crate) fn dirty_runs(&self, range: Range<u64>, most: usize) -> impl Iterator<Item = Range<u64>> {
        let pages = self.pages.dirty_in(pages_of(range.start, range.end), most);
        let runs = dirty_runs(&pages, self.store.part_size());
        runs.into_iter()
            .map(move |run| run.start.max(range.start)..run.end.min(range.end))
            .filter(|run| !run.is_empty())
    }

    /// Evict the pages of a range that only calls without a use of the cache have used.
    pub(crate) fn drop_uncached(&self, pages: Range<u64>) {
        let unused = self.pages.uncached_in(pages);
        if !unused.is_empty() {
            self.engine.cache.drop_unused(&self.pages, &unused);
        }
    }

    /// Write back the dirty pages of a range of bytes and drop its pages. The caller has it exclusively.
    pub(crate) fn settle(&self, range: &Range<u64>) -> Result<()> {
        let pages = pages_of(range.start, range.end);
        self.write_back(range.clone(), BioFlags::SYNC)?;
        self.drop_pages(pages);
        Ok(())
    }

    /// Drop all pages, dirty or not. The caller has them all exclusively.
    pub(crate) fn discard(&self) {
        self.drop_pages(0..u64::MAX);
    }

    /// Drop the clean pages.
    pub(crate) fn drop_clean(&self) {
        let removed = self.pages.remove_clean(0..u64::MAX);
        self.engine.cache.release(removed.iter().map(|state| state.frame));
    }

    /// Evict the clean pages that no thread uses at this moment.
    pub(crate) fn evict_clean(&self) {
        let cache = &self.engine.cache;
        let mut gone = self.pages.clean();
        gone.retain(|(page, frame)| self.pages.evict(*page, *frame, &cache.arena));
        cache.release(gone.iter().map(|(_, frame)| *frame));
    }

    /// Drop the clean pages of a range (in pages). The caller has it exclusively.
    pub(crate) fn drop_clean_in(&self, pages: Range<u64>) {
        let removed = self.pages.remove_clean(pages);
        self.engine.cache.release(removed.iter().map(|state| state.frame));
    }

    /// Whether no page is dirty.
    pub(crate) fn is_clean(&self) -> bool {
        self.pages.dirty() == 0
    }

    /// Drop the pages of a range (in pages), dirty or not, and their claims. The caller has the range exclusively.
    pub(crate) fn drop_pages(&self, pages: Range<u64>) {
        let removed = self.pages.remove(pages);
        if removed.is_empty() {
            return;
        }
        let claimed: u64 = removed.iter().map(|state| u64::from(state.claimed)).sum();
        if claimed > 0 {
            self.store.map.release_claim(claimed);
        }
        self.store.shared.counters.invalidated_pages.add(removed.len() as u64);
        self.store.shared.counters.pages_scanned.add(removed.len() as u64);
        work(Work::Page(removed.len() as u64));
        self.engine.cache.release(removed.iter().map(|state| state.frame));
    }
}

/// The dirty runs of bytes of a list of pages, in file order.
fn dirty_runs(pages: &[(u64, PageState)], part: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for (page, state) in pages {
        for run in state.dirty_runs(part) {
            let (start, end) = (page * PAGE_SIZE + run.start, page * PAGE_SIZE + run.end);
            match runs.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => runs.push(start..end),
            }
        }
    }
    runs
}

impl Drop for FileCache {
    fn drop(&mut self) {
        self.discard();
    }
}

//! The page cache: a fixed number of pages for all files of a volume.
//!
//! Where it sits: below the content of files (`content/`), which decides when pages are read and written. The cache
//! has the frames, evicts pages, and writes dirty pages back.
//!
//! Locking: a hit takes neither the replacement lock nor any other that files share.

pub(crate) mod arena;
pub(crate) mod engine;
pub(crate) mod errors;
pub(crate) mod file_cache;
pub(crate) mod model;
pub(crate) mod pages;
pub(crate) mod read_ahead;
pub(crate) mod replacement;
mod space;
pub(crate) mod workers;
mod write_back_together;

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use diorite_block::sync::{Mutex, Rank};

use crate::stats::Counters;
use crate::store::PAGE_SIZE;
use arena::{Arena, FrameId, FrameRead};
use pages::Pages;
use replacement::{Replacement, ScanBudget, Uses};

/// The fewest frames a cache can work with.
const FRAMES_MIN: usize = 64;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(crate) arena: Arena,
    pub(crate) uses: Uses,
    replacement: Mutex<Replacement>,
    pub(crate) dirty_total: Arc<AtomicUsize>,
    /// Frames that views have pinned.
    pinned: AtomicUsize,
    counters: Arc<Counters>,
}

impl Cache {
    /// A cache of `bytes`, rounded to pages; at least 64 pages.
    pub(crate) fn new(bytes: usize, counters: Arc<Counters>) -> std::io::Result<Self> {
        let frames = (bytes / PAGE_SIZE as usize).clamp(FRAMES_MIN, u32::MAX as usize / 2) as u32;
        Ok(Self {
            arena: Arena::new(frames)?,
            uses: Uses::new(frames),
            replacement: Mutex::ranked(Rank::CacheReplacement, Replacement::new(frames)),
            dirty_total: Arc::default(),
            pinned: AtomicUsize::new(0),
            counters,
        })
    }

    /// Number of frames.
    pub(crate) fn frames(&self) -> usize {
        self.arena.len() as usize
    }

    /// Frames that hold pages.
    pub(crate) fn used(&self) -> usize {
        self.frames() - self.replacement.lock().free_count() as usize
    }

    /// Dirty pages of all files.
    pub(crate) fn dirty(&self) -> usize {
        self.dirty_total.load(Ordering::Relaxed)
    }

    /// Evict pages that were used only by calls that leave no page in the cache.
    pub(crate) fn drop_unused(&self, pages: &Pages, unused: &[(u64, FrameId)]) {
        let mut gone = unused.to_vec();
        gone.retain(|(page, frame)| self.uses.get(*frame) == 0 && pages.evict(*page, *frame, &self.arena));
        self.release(gone.iter().map(|(_, frame)| *frame));
    }

    /// Frames for `wanted` pages, by eviction if none are free. Fewer when too many are dirty or in use.
    pub(crate) fn allocate(&self, pages: &Arc<Pages>, wanted: &[u64]) -> Vec<(u64, FrameId)> {
        let mut replacement = self.replacement.lock();
        let mut budget = ScanBudget::of((wanted.len() as u32).saturating_mul(8).max(64));
        let mut evicted = 0;
        let mut frames = Vec::with_capacity(wanted.len());
        for page in wanted {
            if replacement.free_count() == 0 {
                let freed = replacement.evict_one(&self.uses, &mut budget, |owner, page, frame| {
                    owner.evict(page, frame, &self.arena)
                });
                if !freed {
                    break;
                }
                evicted += 1;
            }
            let Some(frame) = replacement.take_free(pages, *page, &self.uses) else { break };
            frames.push((*page, frame));
        }
        drop(replacement);
        self.counters.evictions.add(evicted);
        frames
    }

    /// Pages of readahead have arrived: their age counts from now.
    pub(crate) fn renew(&self, list: &[(u64, FrameId)]) {
        let mut replacement = self.replacement.lock();
        for (_, frame) in list {
            replacement.renew(*frame);
        }
    }

    /// Free frames, in reverse order, so that consecutive pages get consecutive memory again: one segment of a
    /// transfer.
    pub(crate) fn release<Frames>(&self, frames: Frames)
    where
        Frames: IntoIterator<Item = FrameId, IntoIter: DoubleEndedIterator>,
    {
        let mut replacement = self.replacement.lock();
        let free = frames.into_iter().rev().filter(|frame| self.arena.release(*frame));
        free.for_each(|frame| replacement.release(frame));
    }

    /// Keep the content of a frame until the pin is dropped, also if its page is evicted. At most a quarter of all
    /// frames can be pinned, since half of them may be dirty; beyond that the borrow is returned.
    pub(crate) fn pin<'a>(
        &'a self,
        frame: FrameId,
        content: FrameRead<'a>,
    ) -> Result<PinnedFrame<'a>, FrameRead<'a>> {
        if self.pinned.fetch_add(1, Ordering::Relaxed) >= self.frames() / 4 {
            self.pinned.fetch_sub(1, Ordering::Relaxed);
            return Err(content);
        }
        Ok(PinnedFrame { cache: self, frame, content: Some(content) })
    }
}

/// A frame whose content does not change. See [`Cache::pin`].
#[derive(Debug)]
pub(crate) struct PinnedFrame<'a> {
    cache: &'a Cache,
    frame: FrameId,
    /// `None` in the drop only.
    content: Option<FrameRead<'a>>,
}

impl Deref for PinnedFrame<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.content.as_deref().unwrap_or_default()
    }
}

impl Drop for PinnedFrame<'_> {
    fn drop(&mut self) {
        self.cache.pinned.fetch_sub(1, Ordering::Relaxed);
        if self.content.take().is_some_and(FrameRead::end) {
            self.cache.replacement.lock().release(self.frame);
        }
    }
}

/// The pages that a range of bytes touches.
pub(crate) fn pages_of(start: u64, end: u64) -> Range<u64> {
    start / PAGE_SIZE..end.div_ceil(PAGE_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Under a scheduler a read ahead waits while others read as much as the cache holds; when it came it was the oldest of all, and
    /// was evicted before its reader had seen it.
    #[test]
    fn what_was_read_ahead_late_is_not_evicted_first() {
        let cache = Cache::new(4 << 20, Arc::default()).expect("memory");
        let pages = Arc::new(Pages::new(Arc::clone(&cache.dirty_total)));
        let read = |wanted: &[u64]| {
            let mut list = cache.allocate(&pages, wanted);
            assert!(pages.begin_loading(&mut list).is_empty());
            list
        };
        let late = read(&(0..64).collect::<Vec<_>>());
        let others = read(&(1000..1960).collect::<Vec<_>>());
        pages.end_loading(&others, |_| true);
        cache.renew(&late);
        pages.end_loading(&late, |_| true);
        let more = read(&(5000..5256).collect::<Vec<_>>());
        pages.end_loading(&more, |_| true);
        assert_eq!(more.len(), 256);
        assert!(pages.missing(0..64).is_empty(), "{:?}", pages.missing(0..64));
    }

    #[test]
    fn frames_that_come_back_in_order_go_out_in_order() {
        let cache = Cache::new(1 << 20, Arc::default()).expect("memory");
        let pages = Arc::new(Pages::new(Arc::clone(&cache.dirty_total)));
        let wanted: Vec<u64> = (0..100).collect();
        let first = cache.allocate(&pages, &wanted);
        assert_eq!(first.len(), wanted.len());
        cache.release(first.iter().map(|(_, frame)| *frame));
        let second = cache.allocate(&pages, &wanted);
        assert!(second.windows(2).all(|pair| pair[0].1.0 + 1 == pair[1].1.0), "{second:?}");
    }
}

//! What all files of one volume share: the cache, the counters, the workers.
//!
//! Where it sits: one per filesystem, raw device or host file; held by every file's content.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use diorite_block::BioFlags;
use diorite_block::sync::{Mutex, Rank, RwLock};

use crate::cache::Cache;
use crate::cache::arena::PAGE_SIZE;
use crate::cache::errors::ErrorLatch;
use crate::cache::file_cache::FileCache;
use crate::cache::read_ahead::WINDOW_MIN;
use crate::cache::workers::{Dirty, Workers};
use crate::content::Content;
use crate::stats::Counters;
use crate::{AlignedBuf, Clock, ContentTimes, Error, Result, SystemClock};

/// What zeros are written from; blocks have at most this many bytes.
const ZEROS_BYTES: usize = 64 << 10;

/// Largest read-ahead window, in pages, of a reader who shares the device with others: 2 MiB.
const WINDOW_OF_MANY: u64 = 512;
/// Pages under way that keep a device busy: a larger window of one reader would only take the others' place in the cache.
const ENOUGH_PAGES: usize = 2048;

/// Memory of a page cache, unless the caller says otherwise.
pub(crate) const CACHE_BYTES: usize = 64 << 20;

/// Settings of an [`Engine`].
#[derive(Clone, Debug)]
pub(crate) struct EngineOptions {
    /// Memory of the page cache.
    pub(crate) cache_bytes: usize,
    /// Largest read-ahead window; 0 for none.
    pub(crate) read_ahead_bytes: usize,
    /// Age at which dirty pages are written back.
    pub(crate) dirty_age: Duration,
    /// Where times come from.
    pub(crate) clock: Arc<dyn Clock>,
    /// Who sets the times of content that changes.
    pub(crate) content_times: ContentTimes,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            cache_bytes: CACHE_BYTES,
            read_ahead_bytes: 8 << 20,
            dirty_age: Duration::from_secs(5),
            clock: SystemClock::shared(),
            content_times: ContentTimes::ByWrite,
        }
    }
}

/// See the module's head.
pub(crate) struct Engine {
    pub(crate) cache: Cache,
    pub(crate) counters: Arc<Counters>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) content_times: ContentTimes,
    pub(crate) zeros: AlignedBuf,
    /// Of files that are gone from memory.
    pub(crate) errors: ErrorLatch,
    /// See `store/reservation.rs`.
    pub(crate) reserving: RwLock<()>,
    /// Queued writes that have blocks reserved and are not reaped.
    queued_reservations: AtomicUsize,
    read_ahead_pages: u64,
    dirty_files: Mutex<BTreeMap<u64, Weak<Content>>>,
    pub(crate) workers: Workers,
}

diorite_block::short_debug!(Engine);

impl Engine {
    /// A cache and its workers, which start when they are first needed.
    pub(crate) fn new(options: &EngineOptions) -> Result<Arc<Self>> {
        let counters = Arc::new(Counters::default());
        let no_memory = |source| Error::Os { what: "cannot get memory for the page cache", source };
        let cache = Cache::new(options.cache_bytes, Arc::clone(&counters)).map_err(no_memory)?;
        let zeros = AlignedBuf::try_zeroed(ZEROS_BYTES, PAGE_SIZE as usize).map_err(no_memory)?;
        // Half of the queue that new pages are in: what is read ahead must not push itself out unread.
        let read_ahead_pages = (options.read_ahead_bytes as u64 / PAGE_SIZE).min(cache.frames() as u64 / 20);
        Ok(Arc::new(Self {
            cache,
            counters,
            clock: Arc::clone(&options.clock),
            content_times: options.content_times,
            zeros,
            errors: ErrorLatch::default(),
            reserving: RwLock::ranked(Rank::Reserving, ()),
            queued_reservations: AtomicUsize::new(0),
            read_ahead_pages,
            dirty_files: Mutex::ranked(Rank::DirtyFiles, BTreeMap::new()),
            workers: Workers::new(options.dirty_age),
        }))
    }

    /// Largest read-ahead window at this moment: where many read, each has a small one. Half of the cache is for what is under way,
    /// and a window takes at most an eighth of what is left of that: what is read ahead must stay until it is read.
    #[inline]
    pub(crate) fn read_ahead_pages(&self) -> u64 {
        let under_way = self.workers.pages_ahead();
        if under_way <= ENOUGH_PAGES {
            return self.read_ahead_pages;
        }
        let left = (self.cache.frames() / 2).saturating_sub(under_way) as u64;
        self.read_ahead_pages.min(WINDOW_OF_MANY).min((left / 8).max(WINDOW_MIN))
    }

    /// Dirty pages above which writers write back themselves.
    pub(crate) fn dirty_limit(&self) -> usize {
        self.cache.frames() / 2
    }

    /// Most pages that one step of an operation works on.
    pub(crate) fn pages_per_step(&self) -> u64 {
        (self.cache.frames() as u64 / 16).clamp(4, 256)
    }

    /// Queued writes that have blocks reserved and are not reaped.
    pub(crate) fn queued_reservations(&self) -> usize {
        self.queued_reservations.load(Ordering::Acquire)
    }

    /// A queued write has reserved blocks, until the guard is dropped.
    pub(crate) fn note_queued_reservation(self: &Arc<Self>) -> QueuedReservation {
        self.queued_reservations.fetch_add(1, Ordering::AcqRel);
        QueuedReservation(Arc::clone(self))
    }

    /// A file has dirty pages.
    pub(crate) fn note_dirty(self: &Arc<Self>, content: &Arc<Content>) {
        self.dirty_files.lock().entry(content.cache.id()).or_insert_with(|| Arc::downgrade(content));
        self.workers.note_dirty(self);
    }

    /// All files that have dirty pages.
    pub(crate) fn dirty_files(&self) -> Vec<Arc<Content>> {
        let mut files = self.dirty_files.lock();
        files.retain(|_, content| content.strong_count() > 0);
        files.values().filter_map(Weak::upgrade).collect()
    }

    /// The file with dirty pages that follows the one with the number `after`.
    pub(crate) fn dirty_file_after(&self, after: u64) -> Option<Arc<Content>> {
        let mut files = self.dirty_files.lock();
        loop {
            let (number, content) = files.range(after.checked_add(1)?..).next()?;
            if let Some(content) = content.upgrade() {
                return Some(content);
            }
            let number = *number;
            files.remove(&number);
        }
    }

    /// A file may have no dirty pages any more.
    pub(crate) fn forget_if_clean(&self, file: &FileCache) {
        let mut files = self.dirty_files.lock();
        if file.is_clean() {
            files.remove(&file.id());
        }
    }
}

/// See [`Engine::note_queued_reservation`].
#[derive(Debug)]
pub(crate) struct QueuedReservation(Arc<Engine>);

impl Drop for QueuedReservation {
    fn drop(&mut self) {
        self.0.queued_reservations.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Dirty for Engine {
    fn dirty(&self) -> usize {
        self.cache.dirty()
    }

    fn dirty_background(&self) -> usize {
        self.cache.frames() / 5
    }

    fn may_be_dirty(&self) -> bool {
        self.cache.dirty() > 0
    }

    fn write_back_to(&self, target: usize) {
        while self.cache.dirty() > target {
            if self.write_back_round(0, BioFlags::NONE, |_| self.cache.dirty() <= target) == 0 {
                break;
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.workers.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::read_ahead::ReadAhead;
    use crate::content::toy_map::ToyMap;

    #[test]
    fn one_reader_has_a_large_window_and_many_have_small_ones() {
        let engine = Engine::new(&EngineOptions::default()).expect("memory");
        let large = engine.cache.frames() as u64 / 20;
        let map = ToyMap::new(4096, 8192, false);
        let view = map.reopen();
        let content = Content::new(Box::new(map), Arc::clone(&engine)).expect("content");
        content.store.grow(32 << 20);
        let ahead = ReadAhead::default();

        let stalled = view.stall();
        engine.workers.read_ahead(&content, ahead.pieces(0..8 * 256));
        assert_eq!(engine.read_ahead_pages(), large);
        engine.workers.read_ahead(&content, ahead.pieces(8 * 256..8 * 256 + 1));
        assert_eq!(engine.read_ahead_pages(), WINDOW_OF_MANY);
        // Other pages: what is on its way already is not read ahead again.
        engine.workers.read_ahead(&content, ahead.pieces(9 * 256..25 * 256));
        assert!(engine.read_ahead_pages() < WINDOW_OF_MANY / 2, "{}", engine.read_ahead_pages());
        drop(stalled);
        while engine.workers.pages_ahead() > ENOUGH_PAGES {
            std::thread::yield_now();
        }
        assert_eq!(engine.read_ahead_pages(), large);
    }
}

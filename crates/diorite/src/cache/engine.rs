//! The cache and the workers that all files of one volume share.
//!
//! Where it sits: one per filesystem, raw device or host file; held by every file's content.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use diorite_block::BioFlags;
use diorite_block::sync::{Mutex, Rank};
use diorite_ext::{Clock, SystemClock};

use crate::cache::Cache;
use crate::cache::file_cache::FileCache;
use crate::cache::read_ahead::WINDOW_MIN;
use crate::cache::workers::Workers;
use crate::store::PAGE_SIZE;
use crate::store::pending_time::ContentTimes;
use crate::store::shared::SharedStore;
use crate::{Error, Result};

/// Largest readahead window, in pages, of a reader that shares the device with others: 2 MiB.
const WINDOW_OF_MANY: u64 = 512;
/// Pages in flight that keep a device busy. Larger windows would only use up the cache.
const ENOUGH_PAGES: usize = 2048;

/// Default memory of a page cache.
pub(crate) const CACHE_BYTES: usize = 64 << 20;

/// The thread that writes back dirty pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteBack {
    /// A background thread, by the number and the age of dirty pages.
    #[default]
    Background,
    /// The writing thread: all dirty pages, in the order in which the files were opened, each time a fixed part of the cache is dirty. The
    /// same calls of one thread then take the same blocks each time.
    ByWriter,
}

/// Settings of an [`Engine`].
#[derive(Clone, Debug)]
pub(crate) struct EngineOptions {
    /// Memory of the page cache.
    pub(crate) cache_bytes: usize,
    /// Largest readahead window; 0 for none.
    pub(crate) read_ahead_bytes: usize,
    /// Age at which dirty pages are written back.
    pub(crate) dirty_age: Duration,
    /// The thread that writes back dirty pages.
    pub(crate) write_back: WriteBack,
    /// The clock.
    pub(crate) clock: Arc<dyn Clock>,
    /// The owner of the times of changed content.
    pub(crate) content_times: ContentTimes,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            cache_bytes: CACHE_BYTES,
            read_ahead_bytes: 8 << 20,
            dirty_age: Duration::from_secs(5),
            write_back: WriteBack::Background,
            clock: SystemClock::shared(),
            content_times: ContentTimes::ByWrite,
        }
    }
}

/// See the module's head.
pub(crate) struct Engine {
    pub(crate) cache: Cache,
    pub(crate) shared: Arc<SharedStore>,
    read_ahead_pages: u64,
    write_back: WriteBack,
    dirty_files: Mutex<BTreeMap<u64, Weak<FileCache>>>,
    pub(crate) workers: Workers,
}

diorite_block::short_debug!(Engine);

impl Engine {
    /// A cache and its workers, which start when they are first needed.
    pub(crate) fn new(options: &EngineOptions) -> Result<Arc<Self>> {
        let shared = SharedStore::new(Arc::clone(&options.clock), options.content_times)?;
        let cache = Cache::new(options.cache_bytes, Arc::clone(&shared.counters))
            .map_err(|source| Error::Os { what: "cannot get memory for the page cache", source })?;
        // Half of the queue of new pages: readahead must not evict its own pages before they are read.
        let read_ahead_pages = (options.read_ahead_bytes as u64 / PAGE_SIZE).min(cache.frames() as u64 / 20);
        Ok(Arc::new(Self {
            cache,
            shared,
            read_ahead_pages,
            write_back: options.write_back,
            dirty_files: Mutex::ranked(Rank::DirtyFiles, BTreeMap::new()),
            workers: Workers::new(options.dirty_age),
        }))
    }

    /// Largest readahead window at this moment; small if many threads read. Half of the cache is for readahead in
    /// flight. A window takes at most an eighth of the rest of that half, so that pages stay until they are read.
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
        match self.write_back {
            WriteBack::Background => self.cache.frames() / 2,
            WriteBack::ByWriter => self.dirty_background(),
        }
    }

    /// Dirty pages that a writer above the limit leaves.
    pub(crate) fn dirty_left(&self) -> usize {
        match self.write_back {
            WriteBack::Background => self.dirty_limit(),
            WriteBack::ByWriter => 0,
        }
    }

    /// Most pages that one step of an operation works on.
    pub(crate) fn pages_per_step(&self) -> u64 {
        (self.cache.frames() as u64 / 16).clamp(4, 256)
    }

    /// Dirty pages above which the background writeback runs.
    pub(crate) fn dirty_background(&self) -> usize {
        self.cache.frames() / 5
    }

    /// Write back until at most `target` pages are dirty, or no more can be written. The caller holds no range.
    pub(crate) fn write_back_to(&self, target: usize) {
        while self.cache.dirty() > target {
            if self.write_back_round(0, BioFlags::NONE, |_| self.cache.dirty() <= target) == 0 {
                break;
            }
        }
    }

    /// A file has dirty pages.
    pub(crate) fn note_dirty(self: &Arc<Self>, file: &Arc<FileCache>) {
        self.dirty_files.lock().entry(file.id()).or_insert_with(|| Arc::downgrade(file));
        if self.write_back == WriteBack::Background {
            self.workers.note_dirty(self);
        }
    }

    /// All files that have dirty pages.
    pub(crate) fn dirty_files(&self) -> Vec<Arc<FileCache>> {
        let mut files = self.dirty_files.lock();
        files.retain(|_, file| file.strong_count() > 0);
        files.values().filter_map(Weak::upgrade).collect()
    }

    /// The file with dirty pages that follows the number `after`.
    pub(crate) fn dirty_file_after(&self, after: u64) -> Option<Arc<FileCache>> {
        let mut files = self.dirty_files.lock();
        loop {
            let (number, file) = files.range(after.checked_add(1)?..).next()?;
            if let Some(file) = file.upgrade() {
                return Some(file);
            }
            let number = *number;
            files.remove(&number);
        }
    }

    /// Remove a file without dirty pages from the list.
    pub(crate) fn forget_if_clean(&self, file: &FileCache) {
        let mut files = self.dirty_files.lock();
        if file.is_clean() {
            files.remove(&file.id());
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
    use crate::content::Content;
    use crate::store::toy_map::ToyMap;

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
        engine.workers.read_ahead(&content.cache, ahead.pieces(0..8 * 256));
        assert_eq!(engine.read_ahead_pages(), large);
        engine.workers.read_ahead(&content.cache, ahead.pieces(8 * 256..8 * 256 + 1));
        assert_eq!(engine.read_ahead_pages(), WINDOW_OF_MANY);
        // Other pages: what is on its way already is not read ahead again.
        engine.workers.read_ahead(&content.cache, ahead.pieces(9 * 256..25 * 256));
        assert!(engine.read_ahead_pages() < WINDOW_OF_MANY / 2, "{}", engine.read_ahead_pages());
        drop(stalled);
        while engine.workers.pages_ahead() > ENOUGH_PAGES {
            std::thread::yield_now();
        }
        assert_eq!(engine.read_ahead_pages(), large);
    }
}

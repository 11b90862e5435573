//! Write-back of one file: range by range, each locked shared.

use std::ops::Range;

use diorite_block::BioFlags;

use crate::Result;
use crate::cache::arena::PAGE_SIZE;
use crate::cache::file_cache::BATCH_PAGES;
use crate::content::Content;
use crate::content::range_lock::RangeGuard;

impl Content {
    /// Write back everything. No range without dirty pages is waited for: the caller may have a queued write in flight there.
    pub(crate) fn write_back_all(&self) -> Result<()> {
        let mut from = 0;
        let mut result = Ok(());
        while let Some(page) = self.cache.pages.first_dirty(from..u64::MAX / PAGE_SIZE) {
            let (_range, range) = self.lock_batch(page);
            from = range.end / PAGE_SIZE;
            let written = self.cache.write_back(range, BioFlags::SYNC);
            result = result.and(written.map(drop));
        }
        self.engine.forget_if_clean(&self.cache);
        result.inspect(|()| self.cache.retry.succeeded())
    }

    /// A batch from `page`, which is dirty, on; where another call has a part of it, the dirty pages that follow each other.
    fn lock_batch(&self, page: u64) -> (RangeGuard<'_>, Range<u64>) {
        let batch = self.batch_range(page);
        if let Some(guard) = self.ranges.try_shared(batch.clone()) {
            return (guard, batch);
        }
        let dirty = self.cache.pages.dirty_in(page..batch.end.div_ceil(PAGE_SIZE), BATCH_PAGES);
        let count = (page..).zip(&dirty).take_while(|(next, (number, _))| next == number).count() as u64;
        let run = self.store.locked_range(page * PAGE_SIZE, (page + count.max(1)) * PAGE_SIZE);
        (self.ranges.shared(run.clone()), run)
    }

    /// Write back everything whose range is free at this moment: whether that was all, but for what failed.
    pub(crate) fn try_write_back_all(&self) -> bool {
        let (mut from, mut all) = (0, true);
        if self.cache.retry.is_waiting() {
            return all;
        }
        while let Some(page) = self.cache.pages.first_dirty(from..u64::MAX / PAGE_SIZE) {
            let locked = self.try_lock_batch(page);
            from = locked.as_ref().map_or(page + 1, |(_, range)| range.end / PAGE_SIZE);
            match locked {
                Some((_range, range)) => drop(self.cache.write_back(range, BioFlags::NONE)),
                None => all = false,
            }
        }
        // What another thread is writing back has its claims until that is done.
        drop(self.cache.one_write_back.lock());
        self.engine.forget_if_clean(&self.cache);
        all
    }

    /// A batch from `page` on whose range is free at this moment: what lies around a range that another thread has goes in small pieces.
    pub(super) fn try_lock_batch(&self, page: u64) -> Option<(RangeGuard<'_>, Range<u64>)> {
        let at = page * PAGE_SIZE;
        let ranges = [self.batch_range(page), self.store.locked_range(at, at + PAGE_SIZE)];
        ranges.into_iter().find_map(|range| Some((self.ranges.try_shared(range.clone())?, range)))
    }

    /// One batch from `page` on, as a range to lock.
    pub(super) fn batch_range(&self, page: u64) -> Range<u64> {
        let start = page * PAGE_SIZE;
        self.store.locked_range(start, start.saturating_add(BATCH_PAGES as u64 * PAGE_SIZE))
    }

    /// Write back a batch of dirty pages whose range is free at this moment; all others too where one fails, since the file is left
    /// alone then for a while. Returns how many pages were written.
    pub(crate) fn write_back_step(&self) -> usize {
        let (mut from, mut written, mut has_failed) = (0, 0, false);
        if self.cache.retry.is_waiting() {
            return written;
        }
        // Nothing is written where another thread was writing the same batch: then the next one.
        while (written == 0 || has_failed)
            && let Some(page) = self.cache.pages.first_dirty(from..u64::MAX / PAGE_SIZE)
        {
            let locked = self.try_lock_batch(page);
            from = locked.as_ref().map_or(page + 1, |(_, range)| range.end / PAGE_SIZE);
            let Some((_range, range)) = locked else { continue };
            match self.cache.write_back(range, BioFlags::NONE) {
                Ok(pages) => written += pages,
                Err(_) => has_failed = true,
            }
        }
        written
    }
}

//! Writeback of one file, batch by batch, each under a shared lock on its range.

use std::ops::Range;

use diorite_block::BioFlags;

use crate::Result;
use crate::cache::file_cache::{BATCH_PAGES, FileCache, Writeback};
use crate::store::PAGE_SIZE;
use crate::store::range_lock::RangeGuard;

/// A range of bytes, locked shared.
type Locked<'c> = (RangeGuard<'c>, Range<u64>);

/// The batches of dirty pages whose ranges are free at this moment, in file order.
struct FreeBatches<'c> {
    file: &'c FileCache,
    from: u64,
    /// Another call had the range of a dirty page.
    has_skipped: bool,
}

impl<'c> Iterator for FreeBatches<'c> {
    type Item = Locked<'c>;

    fn next(&mut self) -> Option<Locked<'c>> {
        loop {
            let page = self.file.dirty_from(self.from)?;
            if let Some((guard, range)) = self.file.try_lock_batch(page) {
                self.from = range.end / PAGE_SIZE;
                return Some((guard, range));
            }
            (self.from, self.has_skipped) = (page + 1, true);
        }
    }
}

impl FileCache {
    fn dirty_from(&self, page: u64) -> Option<u64> {
        self.pages.first_dirty(page..u64::MAX / PAGE_SIZE)
    }

    fn free_batches(&self) -> FreeBatches<'_> {
        FreeBatches { file: self, from: 0, has_skipped: false }
    }

    /// Write back everything. No range without dirty pages is waited for: the caller may have a queued write in flight there.
    pub(crate) fn write_back_all(&self) -> Result<()> {
        let mut from = 0;
        let mut result = Ok(());
        while let Some(page) = self.dirty_from(from) {
            let (_guard, range) = self.lock_batch(page);
            from = range.end / PAGE_SIZE;
            let written = self.write_back(range, BioFlags::SYNC);
            result = result.and(written.map(drop));
        }
        self.engine.forget_if_clean(self);
        result.inspect(|()| self.retry.succeeded())
    }

    /// Lock a batch that begins with the dirty `page`; where another call has a part of it, the dirty pages that follow each other.
    fn lock_batch(&self, page: u64) -> Locked<'_> {
        let batch = self.batch_range(page);
        if let Some(guard) = self.store.ranges.try_shared(batch.clone()) {
            return (guard, batch);
        }
        let dirty = self.pages.dirty_in(page..batch.end.div_ceil(PAGE_SIZE), BATCH_PAGES);
        let count = (page..).zip(&dirty).take_while(|(next, (number, _))| next == number).count() as u64;
        let run = self.store.locked_range(page * PAGE_SIZE, (page + count.max(1)) * PAGE_SIZE);
        (self.store.ranges.shared(run.clone()), run)
    }

    /// Lock a batch that begins with the dirty `page`, or where another call has a part of it, that page alone.
    fn try_lock_batch(&self, page: u64) -> Option<Locked<'_>> {
        let at = page * PAGE_SIZE;
        let ranges = [self.batch_range(page), self.store.locked_range(at, at + PAGE_SIZE)];
        ranges.into_iter().find_map(|range| Some((self.store.ranges.try_shared(range.clone())?, range)))
    }

    fn batch_range(&self, page: u64) -> Range<u64> {
        let start = page * PAGE_SIZE;
        self.store.locked_range(start, start.saturating_add(BATCH_PAGES as u64 * PAGE_SIZE))
    }

    /// Write back every batch whose range is free at this moment. Returns whether none was skipped; failures count as written.
    pub(crate) fn try_write_back_all(&self) -> bool {
        if self.retry.is_waiting() {
            return true;
        }
        let mut batches = self.free_batches();
        for (_guard, range) in batches.by_ref() {
            let _ = self.write_back(range, BioFlags::NONE);
        }
        // A writeback of another thread keeps its claims until it ends.
        drop(self.one_write_back.lock());
        self.engine.forget_if_clean(self);
        !batches.has_skipped
    }

    /// Write back one batch whose range is free at this moment; after a failure all others as well, since the background then leaves the
    /// file alone for a while. Returns the pages written.
    pub(crate) fn write_back_step(&self) -> usize {
        let (mut written, mut has_failed) = (0, false);
        if self.retry.is_waiting() {
            return written;
        }
        for (_guard, range) in self.free_batches() {
            match self.write_back(range, BioFlags::NONE) {
                Ok(pages) => written += pages,
                Err(_) => has_failed = true,
            }
            // No page is written where another thread was writing the same batch.
            if written > 0 && !has_failed {
                break;
            }
        }
        written
    }

    /// Begin the writeback of all dirty pages, if they are at most `most` and free at this moment. The guard holds their range.
    pub(crate) fn try_begin_small(
        &self,
        most: usize,
        flags: BioFlags,
    ) -> Option<(Writeback<'_>, RangeGuard<'_>)> {
        if self.retry.is_waiting() {
            return None;
        }
        let (guard, range) = self.free_batches().next()?;
        let one_at_a_time = self.one_write_back.try_lock()?;
        let batch = self.pages.dirty_in(range.start / PAGE_SIZE..range.end / PAGE_SIZE, most + 1);
        if batch.is_empty() || batch.len() > most {
            return None;
        }
        Some((Writeback::begin(self, batch, flags, one_at_a_time), guard))
    }
}

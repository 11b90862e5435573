//! Writeback of one file, batch by batch, each under a shared lock on its range.

use std::ops::Range;

use diorite_block::BioFlags;

use crate::Result;
use crate::cache::file_cache::{BATCH_PAGES, FileCache, Writeback};
use crate::store::PAGE_SIZE;
use crate::store::range_lock::RangeGuard;

/// A range of bytes, locked shared.
type Locked<'c> = (RangeGuard<'c>, Range<u64>);

/// The batches of dirty pages of a file, in file order. The iterator skips ranges that another call has.
struct Batches<'c> {
    file: &'c FileCache,
    from: u64,
    has_skipped: bool,
}

impl<'c> Batches<'c> {
    fn of(file: &'c FileCache) -> Self {
        Self { file, from: 0, has_skipped: false }
    }

    /// The next dirty page, and the range of a batch that begins with it.
    fn peek(&self) -> Option<(u64, Range<u64>)> {
        let page = self.file.pages.first_dirty(self.from..u64::MAX / PAGE_SIZE)?;
        let end = (page * PAGE_SIZE).saturating_add(BATCH_PAGES as u64 * PAGE_SIZE);
        Some((page, self.file.store.locked_range(page * PAGE_SIZE, end)))
    }

    fn try_lock(&mut self, range: Range<u64>) -> Option<Locked<'c>> {
        let guard = self.file.store.ranges.try_shared(range.clone())?;
        self.from = range.end / PAGE_SIZE;
        Some((guard, range))
    }

    /// Lock the next batch; where another call has a part of it, wait for the contiguous dirty pages.
    fn lock(&mut self) -> Option<Locked<'c>> {
        let (page, batch) = self.peek()?;
        if let Some(locked) = self.try_lock(batch.clone()) {
            return Some(locked);
        }
        let dirty = self.file.pages.dirty_in(page..batch.end.div_ceil(PAGE_SIZE), BATCH_PAGES);
        let count = (page..).zip(&dirty).take_while(|(next, (number, _))| next == number).count() as u64;
        let run = self.file.store.locked_range(page * PAGE_SIZE, (page + count.max(1)) * PAGE_SIZE);
        self.from = run.end / PAGE_SIZE;
        Some((self.file.store.ranges.shared(run.clone()), run))
    }
}

impl<'c> Iterator for Batches<'c> {
    type Item = Locked<'c>;

    /// Lock the next batch that is free; where another call has a part of it, its first page alone.
    fn next(&mut self) -> Option<Locked<'c>> {
        loop {
            let (page, batch) = self.peek()?;
            let one = self.file.store.locked_range(page * PAGE_SIZE, (page + 1) * PAGE_SIZE);
            if let Some(locked) = self.try_lock(batch).or_else(|| self.try_lock(one)) {
                return Some(locked);
            }
            (self.from, self.has_skipped) = (page + 1, true);
        }
    }
}

impl FileCache {
    /// Write back everything. No range without dirty pages is waited for: the caller may have a queued write in flight there.
    pub(crate) fn write_back_all(&self) -> Result<()> {
        let (mut batches, mut result) = (Batches::of(self), Ok(()));
        while let Some((_guard, range)) = batches.lock() {
            let written = self.write_back(range, BioFlags::SYNC);
            result = result.and(written.map(drop));
        }
        self.engine.forget_if_clean(self);
        result.inspect(|()| self.retry.succeeded())
    }

    /// Write back every batch whose range is free at this moment. Returns whether none was skipped; failures count as written.
    pub(crate) fn try_write_back_all(&self) -> bool {
        if self.retry.is_waiting() {
            return true;
        }
        let mut batches = Batches::of(self);
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
        for (_guard, range) in Batches::of(self) {
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
        let (guard, range) = Batches::of(self).next()?;
        let one_at_a_time = self.one_write_back.try_lock()?;
        let batch = self.pages.dirty_in(range.start / PAGE_SIZE..range.end / PAGE_SIZE, most + 1);
        if batch.is_empty() || batch.len() > most {
            return None;
        }
        Some((Writeback::begin(self, batch, flags, one_at_a_time), guard))
    }
}

//! Calls that do not wait (`IoFlags::NOWAIT`), and those that leave nothing in the cache (`IoFlags::DONTCACHE`).
//!
//! A call that does not wait tries the locks that it needs, and looks under them whether anything would have to be waited for. Then it
//! is like any other.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use diorite_block::BioFlags;

use crate::cache::arena::PAGE_SIZE;
use crate::content::{Content, ReadAhead, pages_of};
use crate::map::MappingKind;
use crate::range_lock::{LockMode, RangeGuard, SharedGuard};
use crate::write::space::Blocks;
use crate::write::{Position, WriteRange, Written, len_of};
use crate::{Error, IoFlags, Result};

const RANGE: Error = Error::WouldBlock("another call on the range");

impl Content {
    /// Shared access to a range of bytes, rounded to what is locked.
    pub(crate) fn lock_read(&self, range: Range<u64>, flags: IoFlags) -> Result<SharedGuard<'_>> {
        if !flags.contains(IoFlags::NOWAIT) {
            return Ok(self.ranges.shared_by_many(range));
        }
        let guard = self.ranges.try_shared(range.clone()).ok_or(RANGE)?;
        self.check_settled(&pages_of(range.start, range.end))?;
        Ok(SharedGuard::Listed { _guard: guard })
    }

    /// The range of a write that does not wait, locked.
    pub(crate) fn try_lock_write(
        &self,
        position: Position,
        len: u64,
    ) -> Result<(WriteRange, RangeGuard<'_>)> {
        let offset = self.store.offset_of(position);
        let end = self.store.end_of_write(offset, len)?;
        let whole = self.store.locked_range(offset, end);
        let id = self.ranges.try_acquire(whole.clone(), LockMode::Exclusive).ok_or(RANGE)?;
        let guard = self.ranges.guard(id);
        position.check(self.store.size())?;
        if end > self.store.size() {
            return Err(Error::WouldBlock("the file to become longer"));
        }
        Ok((WriteRange { offset, end, whole }, guard))
    }

    /// Fails where a range has data to write back. The caller holds it.
    pub(crate) fn check_settled(&self, pages: &Range<u64>) -> Result<()> {
        if self.cache.pages.first_dirty(pages.clone()).is_some() {
            return Err(Error::WouldBlock("data to be written back"));
        }
        Ok(())
    }

    /// Fails where a range has blocks to allocate, or to mark as written.
    pub(crate) fn check_mapped(&self, range: Range<u64>) -> Result<()> {
        for mapping in self.store.map.mappings(range) {
            if !matches!(mapping?.kind, MappingKind::Mapped(_)) {
                return Err(Error::WouldBlock("blocks to be allocated"));
            }
        }
        Ok(())
    }

    /// Read what is cached.
    pub(crate) fn read_cached_no_wait(
        &self,
        memory: &mut [IoSliceMut<'_>],
        offset: u64,
        ahead: &ReadAhead,
    ) -> Result<usize> {
        let wanted: u64 = memory.iter().map(|segment| segment.len() as u64).sum();
        let range = self.store.locked_range(offset, offset.saturating_add(wanted));
        let _range = self.ranges.try_shared(range).ok_or(RANGE)?;
        let len = wanted.min(self.store.size().saturating_sub(offset)) as usize;
        let mut at = 0;
        for segment in memory {
            let take = segment.len().min(len - at);
            self.cache
                .copy_if_cached(&mut segment[..take], offset + at as u64, ahead)
                .map_err(|_| Error::WouldBlock("pages to be read"))?;
            at += take;
        }
        self.cache.count_copied(offset, len);
        Ok(len)
    }

    /// Write to pages that are cached and need no block.
    pub(crate) fn write_cached_no_wait(
        self: &Arc<Self>,
        data: &[IoSlice<'_>],
        position: Position,
    ) -> Result<Written> {
        let len = len_of(data);
        if len == 0 {
            return Ok(Written { offset: self.store.offset_of(position), len: 0, stopped: None });
        }
        let (range, _lock) = self.try_lock_write(position, len)?;
        let pages = pages_of(range.offset, range.end);
        if self.engine.cache.dirty() as u64 + (pages.end - pages.start) > self.engine.dirty_limit() as u64 {
            return Err(Error::WouldBlock("data to be written back"));
        }
        let written = self.pin_to_write(&pages).and_then(|()| {
            self.check_mapped(range.offset..range.end)?;
            let (mut at, mut blocks) = (range.offset, Blocks::unclaimed(&self.engine));
            let written =
                data.iter().try_for_each(|segment| self.write_locked(segment, &range, &mut at, &mut blocks));
            Ok((at, written))
        });
        self.cache.pages.unpin(pages);
        let (at, written) = written?;
        if at > range.offset {
            self.store.note_modified();
            self.engine.note_dirty(self);
        }
        Written::up_to(range.offset, at, written.err())
    }

    /// Pin pages that are cached and can be written where they are; some may be pinned also where that fails. A page that is not pinned may
    /// go at any time, and its frame be another's: nothing is asked of the frame before. The caller has the range exclusively.
    fn pin_to_write(&self, pages: &Range<u64>) -> Result<()> {
        let states =
            self.cache.pages.pin(pages.clone()).map_err(|_| Error::WouldBlock("pages to be read"))?;
        for state in states {
            if state.loading {
                return Err(Error::WouldBlock("pages to be read"));
            }
            if self.engine.cache.arena.write(state.frame).is_none() {
                return Err(Error::WouldBlock("a page that a view shows"));
            }
        }
        Ok(())
    }

    /// Read through the cache, in which no page stays that was not there.
    pub(crate) fn read_uncached(
        self: &Arc<Self>,
        memory: &mut [IoSliceMut<'_>],
        offset: u64,
        ahead: &ReadAhead,
    ) -> Result<usize> {
        let wanted: u64 = memory.iter().map(|segment| segment.len() as u64).sum();
        let pages = pages_of(offset, offset.saturating_add(wanted).min(self.store.size()).max(offset));
        let new = self.cache.pages.missing(pages.clone());
        let got = self.read_cached_vectored(memory, offset, ahead);
        self.cache.pages.mark_uncached(&new);
        self.cache.drop_uncached(pages);
        got
    }

    /// Write back what was written at `offset`, and drop the pages that were not there before.
    pub(crate) fn finish_uncached(&self, written: &Written, new: &[u64]) -> Result<()> {
        let end = written.offset + written.len as u64;
        let range = self.store.locked_range(written.offset, end);
        let result = {
            let _range = self.ranges.shared(range.clone());
            self.cache.write_back(range, BioFlags::SYNC)
        };
        self.cache.pages.mark_uncached(new);
        self.cache.drop_uncached(pages_of(written.offset, end));
        self.engine.forget_if_clean(&self.cache);
        result.map(drop)
    }

    /// Pages that a write of `len` bytes would make.
    pub(crate) fn pages_to_make(&self, position: Position, len: u64) -> Vec<u64> {
        let offset = self.store.offset_of(position);
        self.cache.pages.missing(pages_of(offset, offset.saturating_add(len).min(u64::MAX - PAGE_SIZE)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::content::engine::{Engine, EngineOptions};
    use crate::content::toy_map::ToyMap;

    /// A write that must not wait looked at the frame of a page that could be evicted meanwhile: the frame was another page's by then, and
    /// the thread that was filling it ended in a panic. From the look to the copy no page may go.
    #[test]
    fn a_page_that_was_looked_at_stays_until_it_is_written() {
        let options = EngineOptions {
            cache_bytes: 1 << 20,
            read_ahead_bytes: 0,
            dirty_age: Duration::from_secs(3600),
            ..EngineOptions::default()
        };
        let map = ToyMap::new(PAGE_SIZE, 64, false);
        let view = map.reopen();
        let engine = Engine::new(&options).expect("memory");
        let content = Content::new(Box::new(map), engine).expect("content");
        let old = [1; 4 * PAGE_SIZE as usize];
        content.write_cached(&[IoSlice::new(&old)], Position::At(0)).expect("written");
        content.write_back_all().expect("written back");
        let is_kept = std::thread::scope(|scope| {
            let stalled = view.stall();
            let new = [2; 4 * PAGE_SIZE as usize];
            let content = &content;
            let writer =
                scope.spawn(move || content.write_cached_no_wait(&[IoSlice::new(&new)], Position::At(0)));
            let limit = Instant::now() + Duration::from_secs(5);
            let is_pinned =
                || (0..4).all(|page| content.cache.pages.get(page).is_some_and(|state| state.pinned));
            while !is_pinned() && Instant::now() < limit {
                std::thread::sleep(Duration::from_millis(1));
            }
            content.cache.drop_clean();
            let is_kept = content.cache.pages.missing(0..4).is_empty();
            drop(stalled);
            let written = writer.join().expect("no panic");
            is_kept && written.is_ok_and(|written| written.len == old.len())
        });
        assert!(is_kept, "the pages could go while they were written");
        let states = (0..4).map(|page| content.cache.pages.get(page).expect("written"));
        assert!(states.into_iter().all(|state| state.dirty != 0 && !state.pinned));
        let uncached = content.write_cached_no_wait(&[IoSlice::new(&[3])], Position::At(5 * PAGE_SIZE));
        assert!(uncached.is_err(), "after the end");
    }
}

//! Calls that do not wait (`IoFlags::NOWAIT`), and calls that leave no page in the cache (`IoFlags::DONTCACHE`).
//!
//! A call that does not wait is one check before an ordinary call. It may wait for a call of another thread that
//! begins in between.

use std::io::IoSliceMut;
use std::ops::Range;

use diorite_block::BioFlags;

use crate::content::write::{Position, WriteRange, Written};
use crate::content::{Content, ReadAhead, pages_of};
use crate::store::PAGE_SIZE;
use crate::store::map::MappingKind;
use crate::store::range_lock::{LockMode, RangeGuard};
use crate::{Error, Result};

const RANGE: Error = Error::WouldBlock("another call on the range");

/// Whether a direct read would have to wait before its own transfer.
///
/// # Errors
/// `WouldBlock`.
pub(crate) fn check_direct_read(content: &Content, range: &Range<u64>) -> Result<()> {
    let _range = content.store.ranges.try_shared(range.clone()).ok_or(RANGE)?;
    check_settled(content, &pages_of(range.start, range.end))
}

/// Whether a direct write would have to wait before its own transfer.
///
/// # Errors
/// `WouldBlock`.
pub(crate) fn check_direct_write(content: &Content, position: Position, len: u64) -> Result<()> {
    let (range, _lock) = try_lock_write(content, position, len)?;
    check_settled(content, &pages_of(range.whole.start, range.whole.end))?;
    check_mapped(content, range.offset..range.end)
}

/// Whether a read through the cache would have to read pages.
///
/// # Errors
/// `WouldBlock`.
pub(crate) fn check_cached_read(content: &Content, offset: u64, len: u64) -> Result<()> {
    let end = offset.saturating_add(len);
    let _range = content.store.ranges.try_shared(content.store.locked_range(offset, end)).ok_or(RANGE)?;
    let end = end.min(content.store.size());
    if offset < end { check_pages(content, pages_of(offset, end)) } else { Ok(()) }
}

/// Whether a write through the cache would need a missing page or block.
///
/// # Errors
/// `WouldBlock`.
pub(crate) fn check_cached_write(content: &Content, position: Position, len: u64) -> Result<()> {
    if len == 0 {
        return Ok(());
    }
    let (range, _lock) = try_lock_write(content, position, len)?;
    let pages = pages_of(range.offset, range.end);
    if content.engine.cache.dirty() as u64 + (pages.end - pages.start) > content.engine.dirty_limit() as u64 {
        return Err(Error::WouldBlock("data to be written back"));
    }
    check_pages(content, pages)?;
    check_mapped(content, range.offset..range.end)
}

/// The range of a write, if it is free and the file does not become longer.
fn try_lock_write(content: &Content, position: Position, len: u64) -> Result<(WriteRange, RangeGuard<'_>)> {
    let offset = content.store.offset_of(position);
    let end = content.store.end_of_write(offset, len)?;
    let whole = content.store.locked_range(offset, end);
    let id = content.store.ranges.try_acquire(whole.clone(), LockMode::Exclusive).ok_or(RANGE)?;
    let guard = content.store.ranges.guard(id);
    position.check(content.store.size())?;
    if end > content.store.size() {
        return Err(Error::WouldBlock("the file to become longer"));
    }
    Ok((WriteRange { offset, end, whole }, guard))
}

/// Fails if a page is not cached.
fn check_pages(content: &Content, mut pages: Range<u64>) -> Result<()> {
    let is_there = |page| content.cache.pages.get(page).is_some_and(|state| !state.loading);
    if pages.all(is_there) { Ok(()) } else { Err(Error::WouldBlock("pages to be read")) }
}

/// Fails if a range has data to write back. The caller holds it.
fn check_settled(content: &Content, pages: &Range<u64>) -> Result<()> {
    if content.cache.pages.first_dirty(pages.clone()).is_some() {
        return Err(Error::WouldBlock("data to be written back"));
    }
    Ok(())
}

/// Fails if a range has blocks to allocate, or to mark as written.
fn check_mapped(content: &Content, range: Range<u64>) -> Result<()> {
    for mapping in content.store.map.mappings(range) {
        if !matches!(mapping?.kind, MappingKind::Mapped(_)) {
            return Err(Error::WouldBlock("blocks to be allocated"));
        }
    }
    Ok(())
}

/// Pages that a write of `len` bytes brings into the cache.
pub(crate) fn pages_to_make(content: &Content, position: Position, len: u64) -> Vec<u64> {
    let offset = content.store.offset_of(position);
    content.cache.pages.missing(pages_of(offset, offset.saturating_add(len).min(u64::MAX - PAGE_SIZE)))
}

impl Content {
    /// Read through the cache, in which no page stays that was not there.
    pub(crate) fn read_uncached(
        &self,
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

    /// Write back a write, and drop the pages that it has brought into the cache.
    pub(crate) fn finish_uncached(&self, written: &Written, new: &[u64]) -> Result<()> {
        let end = written.offset + written.len as u64;
        let range = self.store.locked_range(written.offset, end);
        let result = {
            let _range = self.store.ranges.shared(range.clone());
            self.cache.write_back(range, BioFlags::SYNC)
        };
        self.cache.pages.mark_uncached(new);
        self.cache.drop_uncached(pages_of(written.offset, end));
        self.engine.forget_if_clean(&self.cache);
        result.map(drop)
    }
}

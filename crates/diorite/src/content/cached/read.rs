//! Reads through the page cache.
//!
//! A read of cached pages takes the fast lock and copies. Otherwise the read starts over: it locks its range shared,
//! reads the missing pages (in full bios), and copies, so that it sees one state of the file.
//!
//! A view pins the frames of its pages under the range lock and shows them without the lock: the file at that moment.
//! No thread waits for a view. A page that is changed meanwhile gets another frame
//! ([`PinnedPages`](crate::cache::file_cache::PinnedPages)).

use std::io::IoSliceMut;
use std::ops::{Deref, Range};
use std::sync::Arc;

use diorite_block::BioFlags;
use diorite_block::sync::{Work, work};

use crate::cache::PinnedFrame;
use crate::cache::file_cache::{FileCache, PageRead};
use crate::content::{Content, ReadAhead, pages_of};
use crate::store::PAGE_SIZE;
use crate::{AlignedBuf, Result};

/// A page as it was when it was pinned.
#[derive(Debug)]
enum Pinned<'a> {
    Frame(PinnedFrame<'a>),
    Copy(Vec<u8>),
    Own(AlignedBuf),
}

impl Deref for Pinned<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Frame(frame) => frame,
            Self::Copy(memory) => memory,
            Self::Own(memory) => memory,
        }
    }
}

impl Content {
    /// Read at `offset`; fewer bytes only at the end of the file.
    #[inline]
    pub(crate) fn read_cached(&self, memory: &mut [u8], offset: u64, ahead: &ReadAhead) -> Result<usize> {
        let mut counted = 0;
        if let Some(fast) = self.store.ranges.try_shared_fast() {
            let len = clamp(memory.len() as u64, offset, self.store.size());
            if len == 0 {
                return Ok(0);
            }
            let memory = &mut memory[..len];
            match self.cache.copy_if_cached(memory, offset, ahead) {
                Ok(()) => {
                    drop(fast);
                    self.cache.count_copied(offset, len);
                    let read = CachedRead { cache: &self.cache, ahead, counted };
                    read.note(pages_of(offset, offset + len as u64), None);
                    return Ok(len);
                }
                Err(missing) => counted = missing,
            }
        }
        CachedRead { cache: &self.cache, ahead, counted }.read(&mut [IoSliceMut::new(memory)], offset)
    }

    /// As [`Content::read_cached`], into several segments.
    pub(crate) fn read_cached_vectored(
        &self,
        memory: &mut [IoSliceMut<'_>],
        offset: u64,
        ahead: &ReadAhead,
    ) -> Result<usize> {
        match memory {
            [] => Ok(0),
            [one] => self.read_cached(one, offset, ahead),
            many => CachedRead { cache: &self.cache, ahead, counted: 0 }.read(many, offset),
        }
    }

    /// Show a range to `each`, page by page, without a copy and without a lock. The pages of one step are of one
    /// moment.
    pub(crate) fn view_cached(
        &self,
        offset: u64,
        len: usize,
        ahead: &ReadAhead,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<usize> {
        if offset >= self.store.size() {
            return Ok(0);
        }
        let end = offset.saturating_add(len as u64);
        let read = CachedRead { cache: &self.cache, ahead, counted: 0 };
        let mut at = offset;
        while at < end {
            let step_end = end.min((at / PAGE_SIZE + self.engine.pages_per_step()) * PAGE_SIZE);
            let pinned = read.pin(at, step_end)?;
            work(Work::Page(pinned.len() as u64));
            for (page, within) in pinned {
                at += within.len() as u64;
                each(&page[within]);
            }
            if at < step_end {
                break;
            }
        }
        Ok((at - offset) as usize)
    }
}

/// One read through the cache.
#[derive(Clone, Copy)]
struct CachedRead<'a> {
    cache: &'a Arc<FileCache>,
    ahead: &'a ReadAhead,
    /// The uses of pages before it have been counted.
    counted: u64,
}

impl<'a> CachedRead<'a> {
    /// Pin the pages of a range up to the end of the file, each with its part of the range.
    fn pin(&self, offset: u64, end: u64) -> Result<Vec<(Pinned<'a>, Range<usize>)>> {
        let (store, cache) = (&self.cache.store, &self.cache.engine.cache);
        let _range = store.ranges.shared(store.locked_range(offset, end));
        let len = clamp(end - offset, offset, store.size());
        if len == 0 {
            return Ok(Vec::new());
        }
        let pages = pages_of(offset, offset + len as u64);
        let mut pinned = Vec::with_capacity((pages.end - pages.start) as usize);
        self.visit_locked(offset, len, &mut |page, within| {
            let page = match page {
                PageRead::Own(memory) => Pinned::Own(memory),
                PageRead::Cached(frame, content) => match cache.pin(frame, content) {
                    Ok(frame) => Pinned::Frame(frame),
                    Err(content) => {
                        store.shared.counters.bytes_copied.add(PAGE_SIZE);
                        Pinned::Copy(content.to_vec())
                    }
                },
            };
            pinned.push((page, within));
        })?;
        Ok(pinned)
    }

    /// Pages were read. Readahead ends at `end`, or at the end of the file.
    #[inline]
    fn note(&self, pages: Range<u64>, end: Option<u64>) {
        let end = || end.unwrap_or_else(|| self.cache.store.size().div_ceil(PAGE_SIZE));
        if let Some(range) = self.ahead.note(pages, self.cache.engine.read_ahead_pages(), end) {
            self.cache.engine.workers.read_ahead(self.cache, self.ahead.pieces(range));
        }
    }

    /// Not all of `pages` are cached. As [`CachedRead::note`].
    fn start_read_ahead(&self, pages: Range<u64>, end: Option<u64>) {
        let end = || end.unwrap_or_else(|| self.cache.store.size().div_ceil(PAGE_SIZE));
        if let Some(range) = self.ahead.before_miss(pages, self.cache.engine.read_ahead_pages(), end) {
            self.cache.engine.workers.read_ahead(self.cache, self.ahead.pieces(range));
        }
    }

    /// Read a range, also if pages are missing.
    fn read(&self, memory: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        let (wanted, store) = (memory.iter().map(|segment| segment.len() as u64).sum(), &self.cache.store);
        let _range = store.ranges.shared(store.locked_range(offset, offset.saturating_add(wanted)));
        let len = clamp(wanted, offset, store.size());
        if len == 0 {
            return Ok(0);
        }
        let mut segments = memory.iter_mut();
        let mut rest: &mut [u8] = &mut [];
        self.visit_locked(offset, len, &mut |page, within| {
            let mut content = &page[within];
            while !content.is_empty() {
                let take = rest.len().min(content.len());
                let (now, later) = std::mem::take(&mut rest).split_at_mut(take);
                now.copy_from_slice(&content[..take]);
                (rest, content) = (later, &content[take..]);
                if rest.is_empty() {
                    let Some(next) = segments.next() else { return };
                    rest = next;
                }
            }
        })?;
        self.cache.count_copied(offset, len);
        Ok(len)
    }

    /// Pass a range to `each`, page by page, and read missing pages. Readahead sees each step as a read, so that the
    /// rest of a long range is read while its beginning is used. The caller has locked the range, which lies within
    /// the file.
    fn visit_locked(
        &self,
        mut offset: u64,
        len: usize,
        each: &mut dyn FnMut(PageRead<'a>, Range<usize>),
    ) -> Result<()> {
        let (end, cache) = (offset + len as u64, self.cache);
        let pages = pages_of(offset, end);
        // A random read: readahead ends with it.
        let ahead_end = (!self.ahead.is_followed_by(&pages)).then_some(pages.end);
        while offset < end {
            let step = pages_of(offset, end);
            let step = step.start..step.end.min(step.start + cache.engine.pages_per_step());
            let missing = cache.pages.missing(step.clone());
            let counters = &cache.store.shared.counters;
            counters.cache_misses.add(missing.len() as u64);
            counters.cache_hits.add((step.end - step.start).saturating_sub(missing.len() as u64));
            if !missing.is_empty() {
                self.start_read_ahead(step.clone(), ahead_end);
                cache.load(&missing, BioFlags::SYNC)?;
            }
            for page in step.clone() {
                let base = page * PAGE_SIZE;
                let within = (offset - base) as usize..((base + PAGE_SIZE).min(end) - base) as usize;
                offset = base + within.end as u64;
                let content = cache.read_page(page)?;
                if let PageRead::Cached(frame, _) = &content
                    && page >= self.counted
                {
                    cache.count_use(page, *frame, self.ahead);
                }
                each(content, within);
            }
            self.note(step, ahead_end);
        }
        Ok(())
    }
}

/// Bytes of a read of `len` at `offset` that lie before the end of the file.
fn clamp(len: u64, offset: u64, size: u64) -> usize {
    len.min(size.saturating_sub(offset)) as usize
}

//! Reads of pages from the backing store.

use std::ops::{Deref, Range};

use diorite_block::BioFlags;
use diorite_block::sync::{Work, work};

use crate::cache::arena::{FrameId, FrameRead, FrameWrite};
use crate::cache::file_cache::FileCache;
use crate::cache::pages_of;
use crate::cache::read_ahead::{Ahead, ReadAhead};
use crate::store::PAGE_SIZE;
use crate::store::placement::Segments;
use crate::{AlignedBuf, Error, Result};

/// The content of a page, while the range is locked.
#[derive(Debug)]
pub(crate) enum PageRead<'a> {
    Cached(FrameId, FrameRead<'a>),
    /// In memory of one reader.
    Own(AlignedBuf),
}

impl Deref for PageRead<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Cached(_, frame) => frame,
            Self::Own(memory) => memory,
        }
    }
}

/// Memory for pages outside the cache.
pub(super) fn memory_of_pages(pages: usize) -> Result<AlignedBuf> {
    AlignedBuf::try_zeroed(pages * PAGE_SIZE as usize, PAGE_SIZE as usize)
        .map_err(|source| Error::Os { what: "cannot get memory for a page", source })
}

impl FileCache {
    /// Copy a range whose pages are all cached. Otherwise the error is the first missing page, the pages before it
    /// have been counted as used, and the content of `memory` is undefined.
    #[inline]
    pub(crate) fn copy_if_cached(
        &self,
        mut memory: &mut [u8],
        mut offset: u64,
        ahead: &ReadAhead,
    ) -> std::result::Result<(), u64> {
        let mut hits = 0;
        while !memory.is_empty() {
            let (page, within) = (offset / PAGE_SIZE, (offset % PAGE_SIZE) as usize);
            let take = memory.len().min(PAGE_SIZE as usize - within);
            let (now, later) = memory.split_at_mut(take);
            if let Some((frame, content)) = self.pages.read(page, &self.engine.cache.arena) {
                now.copy_from_slice(&content[within..within + take]);
                drop(content);
                self.count_use(page, frame, ahead);
            } else {
                return Err(page);
            }
            hits += 1;
            (memory, offset) = (later, offset + take as u64);
        }
        self.store.shared.counters.cache_hits.add(hits);
        Ok(())
    }

    /// Consecutive reads of one page are one use, so that a scan in small steps is a scan.
    #[inline]
    pub(crate) fn count_use(&self, page: u64, frame: FrameId, ahead: &ReadAhead) {
        if ahead.enter_page(page) && !ahead.is_uncached() {
            self.engine.cache.uses.count(frame);
        }
    }

    #[inline]
    pub(crate) fn count_copied(&self, offset: u64, len: usize) {
        self.store.shared.counters.bytes_copied.add(len as u64);
        let pages = pages_of(offset, offset + len as u64);
        work(Work::Copy(len as u64));
        work(Work::Page(pages.end - pages.start));
    }

    /// Read one page, into the cache if there is a frame for it.
    pub(crate) fn read_page(&self, page: u64) -> Result<PageRead<'_>> {
        loop {
            if let Some((frame, content)) = self.pages.read(page, &self.engine.cache.arena) {
                return Ok(PageRead::Cached(frame, content));
            }
            if self.pages.get(page).is_some() {
                self.pages.wait_loaded(page);
            } else if self.load(&[page], BioFlags::SYNC)? == 0 && self.pages.get(page).is_none() {
                return self.read_past_cache(page).map(PageRead::Own);
            }
        }
    }

    /// Every frame is dirty or in use: read the page for this caller only.
    pub(crate) fn read_past_cache(&self, page: u64) -> Result<AlignedBuf> {
        let mut content = memory_of_pages(1)?;
        let start = page * PAGE_SIZE;
        let segments = &mut Segments::new(std::iter::once(&mut content[..]));
        self.store.read_parts(std::iter::once(start..start + PAGE_SIZE), segments, BioFlags::SYNC)?;
        Ok(content)
    }

    /// Read absent pages into the cache; `wanted` is in order. Returns how many this call read: fewer if other
    /// threads were faster or frames are short. The caller has locked their range.
    pub(crate) fn load(&self, wanted: &[u64], flags: BioFlags) -> Result<usize> {
        let mut list = self.engine.cache.allocate(&self.pages, wanted);
        let unused = self.pages.begin_loading(&mut list);
        if !unused.is_empty() {
            self.engine.cache.release(unused);
        }
        if list.is_empty() {
            return Ok(0);
        }
        match self.fill_frames(&list, flags) {
            Ok(unmapped) => {
                if flags.contains(BioFlags::READ_AHEAD) {
                    self.engine.cache.renew(&list);
                }
                self.pages.end_loading(&list, |page| {
                    let (start, end) = (page * PAGE_SIZE, (page + 1) * PAGE_SIZE);
                    let next = unmapped.partition_point(|range| range.end <= start);
                    unmapped.get(next).is_none_or(|range| range.start >= end)
                });
                Ok(list.len())
            }
            Err(error) => {
                self.pages.abandon_loading(&list);
                self.engine.cache.release(list.iter().map(|(_, frame)| *frame));
                Err(error)
            }
        }
    }

    /// Run a readahead job. A range that another call has exclusively is skipped.
    pub(crate) fn read_ahead(&self, ahead: &Ahead) {
        let pages = ahead.left();
        if pages.is_empty() {
            return;
        }
        let bytes = self.store.locked_range(pages.start * PAGE_SIZE, pages.end * PAGE_SIZE);
        let Some(_range) = self.store.ranges.try_shared(bytes) else { return };
        let end = self.store.size().div_ceil(PAGE_SIZE);
        let missing = self.pages.missing(pages.start..pages.end.min(end));
        if missing.is_empty() {
            return;
        }
        // The reader meets the same error, and reports it.
        if let Ok(count) = self.load(&missing, BioFlags::READ_AHEAD) {
            self.store.shared.counters.readahead_pages.add(count as u64);
            if ahead.uncached {
                self.pages.mark_uncached(&missing);
            }
        }
    }

    /// Read pages into their frames. Returns the ranges without data.
    pub(crate) fn fill_frames(&self, list: &[(u64, FrameId)], flags: BioFlags) -> Result<Vec<Range<u64>>> {
        let mut frames = self.borrow_new(list);
        let parts = list.iter().map(|(page, _)| page * PAGE_SIZE..(page + 1) * PAGE_SIZE);
        let segments = &mut Segments::new(frames.iter_mut().map(|frame| &mut frame[..]));
        let (unmapped, _) = self.store.read_parts(parts, segments, flags)?;
        // Bytes after the end of the file read as zero.
        let size = self.store.size();
        if let Some(last) = list.last()
            && (last.0 + 1) * PAGE_SIZE > size
        {
            for ((page, _), frame) in list.iter().zip(&mut frames).rev() {
                let within = size.saturating_sub(page * PAGE_SIZE).min(PAGE_SIZE) as usize;
                frame[within..].fill(0);
                if within == PAGE_SIZE as usize {
                    break;
                }
            }
        }
        Ok(unmapped)
    }

    /// Borrow the frames of pages that this thread has entered as loading.
    pub(crate) fn borrow_new(&self, list: &[(u64, FrameId)]) -> Vec<FrameWrite<'_>> {
        let arena = &self.engine.cache.arena;
        list.iter()
            .map(|(_, frame)| arena.write(*frame).expect("a new frame belongs to the thread that entered it"))
            .collect()
    }
}

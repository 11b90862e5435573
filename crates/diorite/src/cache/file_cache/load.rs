//! Pages that are read from the backing store.

use std::ops::{Deref, Range};

use diorite_block::BioFlags;
use diorite_block::sync::{Work, work};

use crate::cache::arena::{FrameId, FrameRead, FrameWrite, PAGE_SIZE};
use crate::cache::file_cache::FileCache;
use crate::cache::pages_of;
use crate::cache::read_ahead::ReadAhead;
use crate::store::placement::PlugReads;
use crate::{AlignedBuf, Error, Result};

/// A page that can be read, while the range is held.
#[derive(Debug)]
pub(crate) enum PageRead<'a> {
    Cached(FrameId, FrameRead<'a>),
    /// In memory for one reader alone.
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

/// Memory that one caller reads pages to.
pub(super) fn memory_of_pages(pages: usize) -> Result<AlignedBuf> {
    AlignedBuf::try_zeroed(pages * PAGE_SIZE as usize, PAGE_SIZE as usize)
        .map_err(|source| Error::Os { what: "cannot get memory for a page", source })
}

impl FileCache {
    /// Copy a range whose pages are all there. If they are not, `memory` holds anything, and the first that is missing is the
    /// error: those before it have been counted as used.
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
        self.engine.counters.cache_hits.add(hits);
        Ok(())
    }

    /// Several reads of one page in a row are one use: a scan in small steps is a scan.
    #[inline]
    pub(crate) fn count_use(&self, page: u64, frame: FrameId, ahead: &ReadAhead) {
        if ahead.enter_page(page) && !ahead.is_uncached() {
            self.engine.cache.uses.count(frame);
        }
    }

    #[inline]
    pub(crate) fn count_copied(&self, offset: u64, len: usize) {
        self.engine.counters.bytes_copied.add(len as u64);
        let pages = pages_of(offset, offset + len as u64);
        work(Work::Copy(len as u64));
        work(Work::Page(pages.end - pages.start));
    }

    /// One page, whatever it takes to have it.
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

    /// No frame is free: every page is dirty or in use. The page is read for this caller alone.
    pub(crate) fn read_past_cache(&self, page: u64) -> Result<AlignedBuf> {
        let mut content = memory_of_pages(1)?;
        let start = page * PAGE_SIZE;
        let mut target =
            PlugReads::new(self.store.geometry(), BioFlags::SYNC, std::iter::once(&mut content[..]));
        self.store.read_parts(std::iter::once(start..start + PAGE_SIZE), &mut target)?;
        drop(target);
        Ok(content)
    }

    /// Read absent pages into the cache; `wanted` in order. Returns how many were read here: fewer where others were
    /// faster or frames are short. The caller holds the range lock on them.
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

    /// Read pages into their frames. Returns the ranges without data.
    pub(crate) fn fill_frames(&self, list: &[(u64, FrameId)], flags: BioFlags) -> Result<Vec<Range<u64>>> {
        let mut frames = self.borrow_new(list);
        let parts = list.iter().map(|(page, _)| page * PAGE_SIZE..(page + 1) * PAGE_SIZE);
        let segments = frames.iter_mut().map(|frame| &mut frame[..]);
        let mut target = PlugReads::new(self.store.geometry(), flags, segments);
        let unmapped = self.store.read_parts(parts, &mut target)?.unmapped;
        drop(target);
        // What the device has after the end of the file is not shown.
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

    /// Borrow the frames of pages that were just entered as loading.
    pub(crate) fn borrow_new(&self, list: &[(u64, FrameId)]) -> Vec<FrameWrite<'_>> {
        let arena = &self.engine.cache.arena;
        list.iter()
            .map(|(_, frame)| arena.write(*frame).expect("a new frame belongs to the thread that entered it"))
            .collect()
    }
}

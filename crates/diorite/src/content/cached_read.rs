//! Reads through the page cache.
//!
//! A read whose pages are all there takes the fast lock, copies and is done. Otherwise it takes its range shared, reads
//! what is missing (in full bios), and copies. It starts over then, so that the whole read sees one state of the file.
//!
//! A view pins the frames of its pages under the range lock, gives the lock back, and shows them: what it shows is the file at
//! that moment, and no thread waits for it. A page that is changed meanwhile gets another frame ([`Content::own_frame`]).

use std::io::IoSliceMut;
use std::ops::{Deref, Range};

use diorite_block::sync::{Work, work};
use diorite_block::{BioFlags, BlockDevice};

use crate::cache::PinnedFrame;
use crate::cache::arena::{FrameId, FrameRead, FrameWrite, PAGE_SIZE};
use crate::content::{Content, ReadAhead, pages_of};
use crate::placement::{PlugReads, place_read};
use crate::{AlignedBuf, Error, Result};

/// A page that can be read, while the range is held.
#[derive(Debug)]
enum PageRead<'a> {
    Cached(FrameId, FrameRead<'a>),
    /// In memory for one reader alone.
    Own(AlignedBuf),
}

/// A page as it was when it was pinned.
#[derive(Debug)]
enum Pinned<'a> {
    Frame(PinnedFrame<'a>),
    Copy(Vec<u8>),
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
    pub(crate) fn read_cached(
        self: &std::sync::Arc<Self>,
        memory: &mut [u8],
        offset: u64,
        ahead: &ReadAhead,
    ) -> Result<usize> {
        let mut counted = 0;
        if let Some(fast) = self.ranges.try_shared_fast() {
            let len = clamp(memory.len() as u64, offset, self.size());
            if len == 0 {
                return Ok(0);
            }
            let memory = &mut memory[..len];
            match self.copy_if_cached(memory, offset, ahead) {
                Ok(()) => {
                    drop(fast);
                    self.count_copied(offset, len);
                    self.note_read(pages_of(offset, offset + len as u64), ahead, None);
                    return Ok(len);
                }
                Err(missing) => counted = missing,
            }
        }
        self.read_missing(&mut [IoSliceMut::new(memory)], offset, ahead, counted)
    }

    /// As [`Content::read_cached`], into several segments.
    pub(crate) fn read_cached_vectored(
        self: &std::sync::Arc<Self>,
        memory: &mut [IoSliceMut<'_>],
        offset: u64,
        ahead: &ReadAhead,
    ) -> Result<usize> {
        match memory {
            [] => Ok(0),
            [one] => self.read_cached(one, offset, ahead),
            many => self.read_missing(many, offset, ahead, 0),
        }
    }

    /// Show a range to `each`, page by page, without a copy and without a lock. What fits in one step is of one moment.
    pub(crate) fn view_cached(
        self: &std::sync::Arc<Self>,
        offset: u64,
        len: usize,
        ahead: &ReadAhead,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<usize> {
        let end = offset.saturating_add(len as u64);
        let mut at = offset;
        while at < end {
            let step_end = end.min((at / PAGE_SIZE + self.engine.pages_per_step()) * PAGE_SIZE);
            let pinned = self.pin_view(at, step_end, ahead)?;
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

    /// The pages of a range as they are now, as far as the file reaches, each with the part of it that lies in the range.
    fn pin_view(
        self: &std::sync::Arc<Self>,
        offset: u64,
        end: u64,
        ahead: &ReadAhead,
    ) -> Result<Vec<(Pinned<'_>, Range<usize>)>> {
        let _range = self.ranges.shared(self.locked_range(offset, end));
        let len = clamp(end - offset, offset, self.size());
        if len == 0 {
            return Ok(Vec::new());
        }
        let pages = pages_of(offset, offset + len as u64);
        let mut pinned = Vec::with_capacity((pages.end - pages.start) as usize);
        self.visit_locked(offset, len, ahead, 0, &mut |page, within| {
            let page = match page {
                PageRead::Own(memory) => Pinned::Own(memory),
                PageRead::Cached(frame, content) => match self.engine.cache.pin(frame, content) {
                    Ok(frame) => Pinned::Frame(frame),
                    Err(content) => {
                        self.engine.counters.bytes_copied.add(PAGE_SIZE);
                        Pinned::Copy(content.to_vec())
                    }
                },
            };
            pinned.push((page, within));
        })?;
        Ok(pinned)
    }

    fn end_in_pages(&self) -> u64 {
        self.size().div_ceil(PAGE_SIZE)
    }

    /// Pages are about to be read that are not all there. What is read ahead of them ends at `end`, or else with the file.
    fn start_read_ahead(self: &std::sync::Arc<Self>, pages: Range<u64>, ahead: &ReadAhead, end: Option<u64>) {
        let end = || end.unwrap_or_else(|| self.end_in_pages());
        if let Some(range) = ahead.before_miss(pages, self.engine.read_ahead_pages(), end) {
            self.engine.workers.read_ahead(self, ahead.pieces(range));
        }
    }

    /// Pages were read. As [`Content::start_read_ahead`].
    #[inline]
    fn note_read(self: &std::sync::Arc<Self>, pages: Range<u64>, ahead: &ReadAhead, end: Option<u64>) {
        let end = || end.unwrap_or_else(|| self.end_in_pages());
        if let Some(range) = ahead.note(pages, self.engine.read_ahead_pages(), end) {
            self.engine.workers.read_ahead(self, ahead.pieces(range));
        }
    }

    fn count_copied(&self, offset: u64, len: usize) {
        self.engine.counters.bytes_copied.add(len as u64);
        let pages = pages_of(offset, offset + len as u64);
        work(Work::Copy(len as u64));
        work(Work::Page(pages.end - pages.start));
    }

    /// Copy a range whose pages are all there. If they are not, `memory` holds anything, and the first that is missing is the
    /// error: those before it have been counted as used.
    #[inline]
    fn copy_if_cached(
        &self,
        mut memory: &mut [u8],
        mut offset: u64,
        ahead: &ReadAhead,
    ) -> std::result::Result<(), u64> {
        let mut hits = 0;
        while !memory.is_empty() {
            let (page, within) = (offset / PAGE_SIZE, (offset % PAGE_SIZE) as usize);
            let Some((frame, content)) = self.pages.read(page, &self.engine.cache.arena) else {
                return Err(page);
            };
            let take = memory.len().min(content.len() - within);
            let (now, later) = memory.split_at_mut(take);
            now.copy_from_slice(&content[within..within + take]);
            drop(content);
            self.count_use(page, frame, ahead);
            hits += 1;
            (memory, offset) = (later, offset + take as u64);
        }
        self.engine.counters.cache_hits.add(hits);
        Ok(())
    }

    /// Several reads of one page in a row are one use: a scan in small steps is a scan.
    #[inline]
    fn count_use(&self, page: u64, frame: FrameId, ahead: &ReadAhead) {
        if ahead.enter_page(page) {
            self.engine.cache.uses.count(frame);
        }
    }

    /// Read what may have to come from the device. The uses of pages before `counted` have been counted.
    fn read_missing(
        self: &std::sync::Arc<Self>,
        memory: &mut [IoSliceMut<'_>],
        offset: u64,
        ahead: &ReadAhead,
        counted: u64,
    ) -> Result<usize> {
        let wanted: u64 = memory.iter().map(|segment| segment.len() as u64).sum();
        let _range = self.ranges.shared(self.locked_range(offset, offset.saturating_add(wanted)));
        let len = clamp(wanted, offset, self.size());
        if len == 0 {
            return Ok(0);
        }
        let mut segments = memory.iter_mut();
        let mut rest: &mut [u8] = &mut [];
        self.visit_locked(offset, len, ahead, counted, &mut |page, within| {
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
        self.count_copied(offset, len);
        Ok(len)
    }

    /// Give a range to `each`, page by page, reading what is missing: step by step, each a read to the read-ahead, so that a long
    /// range is read on while its beginning is used. The caller holds the range, which lies within the file.
    fn visit_locked<'a>(
        self: &'a std::sync::Arc<Self>,
        mut offset: u64,
        len: usize,
        ahead: &ReadAhead,
        counted: u64,
        each: &mut dyn FnMut(PageRead<'a>, Range<usize>),
    ) -> Result<()> {
        let end = offset + len as u64;
        let pages = pages_of(offset, end);
        // Whoever comes from elsewhere will want this range, and it is not known what else.
        let ahead_end = (!ahead.is_followed_by(&pages)).then_some(pages.end);
        while offset < end {
            let step = pages_of(offset, end);
            let step = step.start..step.end.min(step.start + self.engine.pages_per_step());
            let missing = self.pages.missing(step.clone());
            let counters = &self.engine.counters;
            counters.cache_misses.add(missing.len() as u64);
            counters.cache_hits.add((step.end - step.start).saturating_sub(missing.len() as u64));
            if !missing.is_empty() {
                self.start_read_ahead(step.clone(), ahead, ahead_end);
                self.load(&missing, BioFlags::SYNC)?;
            }
            for page in step.clone() {
                let base = page * PAGE_SIZE;
                let within = (offset - base) as usize..((base + PAGE_SIZE).min(end) - base) as usize;
                offset = base + within.end as u64;
                let content = self.read_page(page)?;
                if let PageRead::Cached(frame, _) = &content
                    && page >= counted
                {
                    self.count_use(page, *frame, ahead);
                }
                each(content, within);
            }
            self.note_read(step, ahead, ahead_end);
        }
        Ok(())
    }

    /// One page, whatever it takes to have it.
    fn read_page(&self, page: u64) -> Result<PageRead<'_>> {
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
    fn read_past_cache(&self, page: u64) -> Result<AlignedBuf> {
        let no_memory = |source| Error::Os { what: "cannot get memory for a page", source };
        let mut content =
            AlignedBuf::try_zeroed(PAGE_SIZE as usize, PAGE_SIZE as usize).map_err(no_memory)?;
        let start = page * PAGE_SIZE;
        let (part, segment) = (std::iter::once(start..start + PAGE_SIZE), std::iter::once(&mut content[..]));
        self.read_parts(part, segment, BioFlags::SYNC)?;
        Ok(content)
    }

    /// Read parts of the file into memory in the same order. Returns the ranges without data.
    fn read_parts<'a>(
        &self,
        parts: impl IntoIterator<Item = Range<u64>>,
        segments: impl Iterator<Item = &'a mut [u8]>,
        flags: BioFlags,
    ) -> Result<Vec<Range<u64>>> {
        let device: &dyn BlockDevice = &**self.map.device();
        let mut target = PlugReads::new(device.geometry(), flags, segments);
        let found = place_read(&*self.map, parts, &mut target)?;
        self.engine.counters.bytes_copied.add(found.copied);
        let summary = target.submit(device, flags)?;
        self.engine.counters.bios.add(summary.bios);
        Ok(found.unmapped)
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
    fn fill_frames(&self, list: &[(u64, FrameId)], flags: BioFlags) -> Result<Vec<Range<u64>>> {
        let mut frames = self.borrow_new(list);
        let parts = list.iter().map(|(page, _)| page * PAGE_SIZE..(page + 1) * PAGE_SIZE);
        let unmapped = self.read_parts(parts, frames.iter_mut().map(|frame| &mut frame[..]), flags)?;
        // What lies behind the end of the file on the device is nobody's business.
        let size = self.size();
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
            .map(|(_, frame)| arena.write(*frame).expect("a new frame belongs to who entered it"))
            .collect()
    }
}

/// Bytes of a read of `len` at `offset` that lie before the end of the file.
fn clamp(len: u64, offset: u64, size: u64) -> usize {
    len.min(size.saturating_sub(offset)) as usize
}

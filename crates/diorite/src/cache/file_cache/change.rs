//! Changes of cached pages: pin them, give them memory of their own, fill them, and mark them dirty with claims on
//! blocks for holes.
//!
//! The caller has the range exclusively.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use diorite_block::BioFlags;
use diorite_block::sync::{Work, sleep, work};

use crate::Result;
use crate::cache::file_cache::FileCache;
use crate::cache::pages::PageState;
use crate::cache::pages_of;
use crate::store::PAGE_SIZE;
use crate::store::map::MappingKind;
use crate::store::reservation::Reservation;

/// The time that a writer waits for writeback by other threads before it looks for free frames again.
const FRAMES_RETRY: Duration = Duration::from_millis(1);
/// The number of attempts before it fails with the error of a file that cannot be written back.
const FRAMES_TRIES: u32 = 50;

/// Pages that are pinned for a change. Without [`PinnedPages::end`] the change does not happen, and clean pages are
/// removed, since frames of new pages are not initialised.
pub(crate) struct PinnedPages<'c> {
    cache: &'c FileCache,
    pages: Range<u64>,
    states: Vec<PageState>,
}

impl<'c> PinnedPages<'c> {
    /// Bring all of `pages` into the cache and pin them. Pages that a write of the bytes `covered` covers in part are
    /// read; the bytes that it covers are not initialised in the others. The caller has the range `held` locked.
    fn pin(cache: &'c FileCache, pages: Range<u64>, held: &Range<u64>, covered: &Range<u64>) -> Result<Self> {
        let size = cache.store.size();
        let must_read = |page: u64| {
            let (start, stop) = (page * PAGE_SIZE, (page + 1) * PAGE_SIZE);
            start < size && (start < covered.start || covered.end < stop.min(size))
        };
        let mut waits = 0;
        let mut pinned = Self { cache, pages, states: Vec::new() };
        loop {
            let counters = &cache.store.shared.counters;
            let missing = match cache.pages.pin(pinned.pages.clone()) {
                Ok(states) => {
                    counters.cache_hits.add(states.len() as u64);
                    pinned.states = states;
                    if pinned.own_frames() {
                        return Ok(pinned);
                    }
                    Vec::new()
                }
                Err(missing) => missing,
            };
            counters.cache_misses.add(missing.len() as u64);
            let (read, fresh): (Vec<u64>, Vec<u64>) = missing.into_iter().partition(|page| must_read(*page));
            let mut made = 0;
            if !read.is_empty() {
                made += cache.load(&read, BioFlags::SYNC)?;
            }
            if !fresh.is_empty() {
                made += pinned.make_fresh(&fresh, covered);
            }
            if made == 0 {
                pinned.wait_for_frames(held, &mut waits)?;
            }
        }
    }

    /// If a view shows `page`, give it another frame. Nothing happens if the page is not cached. The caller has it
    /// exclusively.
    pub(crate) fn own_cached(cache: &'c FileCache, page: u64) -> Result<()> {
        let held = cache.store.locked_range(page * PAGE_SIZE, (page + 1) * PAGE_SIZE);
        let mut waits = 0;
        while let Ok(states) = cache.pages.pin(page..page + 1) {
            let mut pinned = Self { cache, pages: page..page + 1, states };
            if pinned.own_frames() {
                pinned.end(|_, _| {});
                break;
            }
            pinned.wait_for_frames(&held, &mut waits)?;
        }
        Ok(())
    }

    /// Make pages for a write of the bytes `covered`. The bytes that it does not cover lie after the end of the file
    /// and become zero; the others are not initialised.
    fn make_fresh(&self, fresh: &[u64], covered: &Range<u64>) -> usize {
        let cache = self.cache;
        let mut list = cache.engine.cache.allocate(&cache.pages, fresh);
        let unused = cache.pages.begin_loading(&mut list);
        cache.engine.cache.release(unused);
        for ((page, _), frame) in list.iter().zip(&mut cache.borrow_new(&list)) {
            let within = |at: u64| at.saturating_sub(page * PAGE_SIZE).min(PAGE_SIZE) as usize;
            frame[..within(covered.start)].fill(0);
            frame[within(covered.end)..].fill(0);
        }
        cache.pages.end_loading(&list, |_| false);
        list.len()
    }

    /// Give pages that a view shows other frames. Returns whether there were enough.
    fn own_frames(&mut self) -> bool {
        let (file, cache) = (self.cache, &self.cache.engine.cache);
        for (page, state) in self.pages.clone().zip(&mut self.states) {
            while cache.arena.write(state.frame).is_none() {
                let Some((_, frame)) = cache.allocate(&file.pages, &[page]).pop() else { return false };
                let shown = cache.arena.read(state.frame).expect("the range is ours alone");
                cache.arena.write(frame).expect("a new frame").copy_from_slice(&shown);
                drop(shown);
                file.pages.update(page..page + 1, |_, state| state.frame = frame);
                cache.release([state.frame]);
                state.frame = frame;
                file.store.shared.counters.bytes_copied.add(PAGE_SIZE);
            }
        }
        true
    }

    /// All frames are dirty or in use: write back the range that the caller has locked, which no other thread can, or
    /// else another file. The pages are unpinned first: threads that wait for frames must not hold frames. `waits`
    /// counts attempts without a page to write.
    fn wait_for_frames(&self, held: &Range<u64>, waits: &mut u32) -> Result<()> {
        self.give_up();
        let (cache, engine) = (self.cache, &self.cache.engine);
        let written = cache.write_back(held.clone(), BioFlags::NONE)?;
        if written == 0 && engine.write_back_round(cache.id(), BioFlags::NONE, |written| written > 0) == 0 {
            *waits += 1;
            if *waits > FRAMES_TRIES {
                engine.dirty_files().iter().try_for_each(|file| file.retry.check())?;
            }
            sleep(FRAMES_RETRY);
        }
        Ok(())
    }

    /// Claim blocks for the parts of the pages that become dirty and have no written block on the device: an unwritten
    /// one needs space for the mapping that says so. Returns the claims per page. A block that is larger than a page
    /// is claimed by one of its pages.
    fn claim(&self, range: &Range<u64>) -> Result<Vec<u8>> {
        let store = &self.cache.store;
        let block = store.map.block_size();
        let mut claims = Vec::with_capacity(self.states.len());
        // The end of the last mapping, and whether it needs a claim.
        let mut known = (0, false);
        // The block that was claimed last, if blocks are larger than pages.
        let mut claimed_block = None;
        for (page, state) in self.pages.clone().zip(&self.states) {
            let wanted = if state.mapped { 0 } else { store.parts(page, range) & !state.dirty };
            let mut claim = 0;
            for part in (0..8).filter(|part| wanted >> part & 1 == 1) {
                let at = page * PAGE_SIZE + part * store.part_size();
                if at >= known.0 {
                    let mapping = store.map.map(at, range.end.max(at + 1) - at)?;
                    let claims = matches!(mapping.kind, MappingKind::Hole | MappingKind::Unwritten(_));
                    known = (mapping.end(), claims);
                }
                let is_claimed = block > PAGE_SIZE
                    && (claimed_block == Some(at / block) || self.is_block_claimed(at / block));
                if known.1 && !is_claimed {
                    claimed_block = Some(at / block);
                    claim += 1;
                }
            }
            claims.push(claim);
        }
        let total = claims.iter().map(|claim| u64::from(*claim)).sum();
        if total > 0 {
            store.map.claim(total)?;
        }
        Ok(claims)
    }

    /// Whether a page of a block that is larger than a page has claimed it.
    fn is_block_claimed(&self, number: u64) -> bool {
        let per_block = self.cache.store.map.block_size() / PAGE_SIZE;
        let pages = number * per_block..(number + 1) * per_block;
        let dirty = self.cache.pages.dirty_in(pages, per_block as usize);
        dirty.iter().any(|(_, state): &(u64, PageState)| state.claimed > 0)
    }

    /// The change is made: update the states of the pages and unpin them.
    fn end(mut self, mut change: impl FnMut(u64, &mut PageState)) {
        let pages = std::mem::take(&mut self.pages);
        self.cache.pages.update(pages, |page, state| {
            change(page, state);
            state.pinned = false;
        });
    }

    fn give_up(&self) {
        self.cache.pages.unpin(self.pages.clone());
        let removed = self.cache.pages.remove_clean(self.pages.clone());
        self.cache.engine.cache.release(removed.iter().map(|state| state.frame));
    }
}

impl Drop for PinnedPages<'_> {
    fn drop(&mut self) {
        if !self.pages.is_empty() {
            self.give_up();
        }
    }
}

impl FileCache {
    /// Write a few pages of a write that has the range `held` locked.
    pub(crate) fn write_step(
        &self,
        data: &[u8],
        offset: u64,
        held: &Range<u64>,
        reservation: &mut Reservation<'_>,
    ) -> Result<()> {
        let range = offset..offset + data.len() as u64;
        let pinned = PinnedPages::pin(self, pages_of(range.start, range.end), held, &range)?;
        reservation.share()?;
        let mut claims = pinned.claim(&range)?.into_iter();
        let mut at = offset;
        for (page, state) in pinned.pages.clone().zip(&pinned.states) {
            let to = range.end.min((page + 1) * PAGE_SIZE);
            let now = &data[(at - offset) as usize..(to - offset) as usize];
            self.put(state, (at - page * PAGE_SIZE) as usize, now);
            at = to;
        }
        pinned.end(|page, state| {
            state.dirty |= self.store.parts(page, &range);
            state.claimed += claims.next().unwrap_or(0);
        });
        self.store.shared.counters.bytes_copied.add(data.len() as u64);
        work(Work::Copy(data.len() as u64));
        self.store.grow(range.end);
        Ok(())
    }

    /// Change bytes of a page, from `at` on. The caller has it exclusively.
    fn put(&self, state: &PageState, at: usize, bytes: &[u8]) {
        let mut frame = self.engine.cache.arena.write(state.frame).expect("the range is ours alone");
        frame[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Zero a part of one block in the cache, unless it is zero on the device. The caller has the block exclusively.
    pub(crate) fn zero_mapped(self: &Arc<Self>, start: u64, end: u64) -> Result<()> {
        if start >= end {
            return Ok(());
        }
        let mapping = self.store.map.map(start, end - start)?;
        let is_mapped = matches!(mapping.kind, MappingKind::Mapped(_));
        if !is_mapped && self.pages.first_dirty(pages_of(start, end)).is_none() {
            return Ok(());
        }
        let mut at = start;
        while at < end {
            let page = at / PAGE_SIZE;
            let base = page * PAGE_SIZE;
            let to = end.min(base + PAGE_SIZE);
            let held = self.store.locked_range(base, base + PAGE_SIZE);
            // A write of no bytes: the page is read.
            let pinned = PinnedPages::pin(self, page..page + 1, &held, &(base..base))?;
            self.put(&pinned.states[0], (at - base) as usize, &self.store.shared.zeros[..(to - at) as usize]);
            // A part in a hole is dirty, with its claim, or zero anyway.
            let mask = if is_mapped { self.store.parts(page, &(at..to)) } else { 0 };
            pinned.end(|_, state| state.dirty |= mask);
            at = to;
        }
        self.engine.note_dirty(self);
        Ok(())
    }

    /// Blocks that writeback of the dirty pages will allocate, without claims for unwritten blocks, which exist already.
    pub(crate) fn blocks_to_allocate(&self) -> Result<u64> {
        let size = self.store.size();
        // The end of the mapping that was looked at last, and whether it is a hole.
        let (mut known, mut blocks) = ((0, false), 0);
        for (page, state) in self.pages.dirty_in(0..size.div_ceil(PAGE_SIZE), usize::MAX) {
            let mut of_page = 0;
            for part in (0..8).filter(|part| state.claimed > 0 && state.dirty >> part & 1 == 1) {
                let at = page * PAGE_SIZE + part * self.store.part_size();
                if at >= known.0 {
                    let mapping = self.store.map.map(at, size.max(at + 1) - at)?;
                    known = (mapping.end(), mapping.kind == MappingKind::Hole);
                }
                of_page += u8::from(known.1);
            }
            blocks += u64::from(of_page.min(state.claimed));
        }
        Ok(blocks)
    }

    /// Zero the cached page in which the file ends, after the end. No part after it stays dirty or claimed.
    pub(crate) fn zero_tail(&self, size: u64) {
        let (page, within) = (size / PAGE_SIZE, (size % PAGE_SIZE) as usize);
        if within == 0 {
            return;
        }
        let keep = self.store.parts(page, &(page * PAGE_SIZE..size));
        let mut unwanted = 0;
        self.pages.update(page..page + 1, |_, state| {
            self.put(state, within, &self.store.shared.zeros[..PAGE_SIZE as usize - within]);
            state.dirty &= keep;
            // The blocks after it are gone.
            state.mapped = false;
            // A part has at most one claim.
            let kept = state.claimed.min(state.dirty.count_ones() as u8);
            unwanted = u64::from(state.claimed - kept);
            state.claimed = kept;
        });
        if unwanted > 0 {
            self.store.map.release_claim(unwanted);
        }
    }
}

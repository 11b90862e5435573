//! Changes of pages: pin them, give them memory of their own, fill them, and mark them dirty with claims on blocks
//! for holes.
//!
//! The caller has the range exclusively.

use std::ops::Range;
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

/// How long a writer waits for writeback by other threads before it looks for free frames again.
const FRAMES_RETRY: Duration = Duration::from_millis(1);
/// How often it looks before it fails with the error of a file that cannot be written back.
const FRAMES_TRIES: u32 = 50;

impl FileCache {
    /// Bytes of the unit in which a page is clean or dirty.
    pub(crate) fn part_size(&self) -> u64 {
        self.store.map.block_size().min(PAGE_SIZE)
    }

    /// The parts of `page` that `[start, end)` touches, one bit each.
    pub(crate) fn parts(&self, page: u64, start: u64, end: u64) -> u8 {
        let base = page * PAGE_SIZE;
        let part = self.part_size();
        let from = start.saturating_sub(base) / part;
        let to = (end.min(base + PAGE_SIZE) - base).div_ceil(part);
        let below = |count: u64| ((1_u16 << count) - 1) as u8;
        below(to) & !below(from)
    }

    /// Write a few pages of a write that has the range `held` locked.
    pub(crate) fn write_step(
        &self,
        data: &[u8],
        offset: u64,
        held: &Range<u64>,
        reservation: &mut Reservation<'_>,
    ) -> Result<()> {
        let end = offset + data.len() as u64;
        let pages = pages_of(offset, end);
        let prepared = self.pin_pages(&pages, held, offset, end).and_then(|states| {
            reservation.share()?;
            let claims = self.claim_for(&pages, &states, offset, end)?;
            Ok((states, claims))
        });
        let (states, claims) = prepared.inspect_err(|_| self.give_up_pinned(pages.clone()))?;
        let mut at = offset;
        for (page, state) in pages.clone().zip(states) {
            let to = end.min((page + 1) * PAGE_SIZE);
            let now = &data[(at - offset) as usize..(to - offset) as usize];
            self.put(&state, (at - page * PAGE_SIZE) as usize, now);
            at = to;
        }
        let mut claims = claims.into_iter();
        self.pages.update(pages, |page, state| {
            state.dirty |= self.parts(page, offset, end);
            state.claimed += claims.next().unwrap_or(0);
            state.pinned = false;
        });
        self.store.shared.counters.bytes_copied.add(data.len() as u64);
        work(Work::Copy(data.len() as u64));
        self.store.grow(end);
        Ok(())
    }

    /// Change bytes of a page, from `at` on. The caller has it exclusively.
    pub(crate) fn put(&self, state: &PageState, at: usize, bytes: &[u8]) {
        let mut frame = self.engine.cache.arena.write(state.frame).expect("the range is ours alone");
        frame[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Undo the pinning for a write that does not happen. Clean pages are removed, since frames of new pages are not
    /// initialised.
    pub(crate) fn give_up_pinned(&self, pages: Range<u64>) {
        self.pages.unpin(pages.clone());
        let removed = self.pages.remove_clean(pages);
        self.engine.cache.release(removed.iter().map(|state| state.frame));
    }

    /// Bring all of `pages` into the cache and pin them. Pages that the write covers in part are read; the bytes that
    /// it covers are not initialised in the others. Returns their states. After a failure, or without a write, the
    /// caller calls [`FileCache::give_up_pinned`]. The caller has the range `held` locked.
    pub(crate) fn pin_pages(
        &self,
        pages: &Range<u64>,
        held: &Range<u64>,
        offset: u64,
        end: u64,
    ) -> Result<Vec<PageState>> {
        let size = self.store.size();
        let must_read = |page: u64| {
            let (start, stop) = (page * PAGE_SIZE, (page + 1) * PAGE_SIZE);
            start < size && (start < offset || end < stop.min(size))
        };
        let mut waits = 0;
        loop {
            let counters = &self.store.shared.counters;
            let missing = match self.pages.pin(pages.clone()) {
                Ok(mut states) => {
                    counters.cache_hits.add(pages.end - pages.start);
                    if self.prepare_change(pages, &mut states) {
                        return Ok(states);
                    }
                    Vec::new()
                }
                Err(missing) => missing,
            };
            counters.cache_misses.add(missing.len() as u64);
            let (read, fresh): (Vec<u64>, Vec<u64>) = missing.into_iter().partition(|page| must_read(*page));
            let mut made = 0;
            if !read.is_empty() {
                made += self.load(&read, BioFlags::SYNC)?;
            }
            if !fresh.is_empty() {
                made += self.make_fresh(&fresh, offset, end);
            }
            if made == 0 {
                self.wait_for_frames(pages, held, &mut waits)?;
            }
        }
    }

    /// Bring one page into the cache and pin it. The caller has it exclusively.
    pub(crate) fn pin_one(&self, page: u64) -> Result<PageState> {
        let at = page * PAGE_SIZE;
        let held = self.store.locked_range(at, at + PAGE_SIZE);
        // A write of no bytes: the page is read.
        Ok(self.pin_pages(&(page..page + 1), &held, at, at)?[0])
    }

    /// Give pinned pages frames that no view shows. Returns whether there were enough frames. The caller has the
    /// pages exclusively.
    pub(crate) fn prepare_change(&self, pages: &Range<u64>, states: &mut [PageState]) -> bool {
        pages.clone().zip(states).all(|(page, state)| self.own_frame(page, state))
    }

    /// Wait for free frames, with the pages unpinned: threads that wait for frames must not hold frames.
    pub(crate) fn wait_for_frames(
        &self,
        pages: &Range<u64>,
        held: &Range<u64>,
        waits: &mut u32,
    ) -> Result<()> {
        self.give_up_pinned(pages.clone());
        self.free_frames(held, waits)
    }

    /// If a view shows a pinned page, give it another frame. Returns whether there was one. The caller has the page
    /// exclusively.
    pub(crate) fn own_frame(&self, page: u64, state: &mut PageState) -> bool {
        let cache = &self.engine.cache;
        while cache.arena.write(state.frame).is_none() {
            let Some((_, frame)) = cache.allocate(&self.pages, &[page]).pop() else { return false };
            let shown = cache.arena.read(state.frame).expect("the range is ours alone");
            cache.arena.write(frame).expect("a new frame").copy_from_slice(&shown);
            drop(shown);
            self.pages.update(page..page + 1, |_, state| state.frame = frame);
            cache.release([state.frame]);
            state.frame = frame;
            self.store.shared.counters.bytes_copied.add(PAGE_SIZE);
        }
        true
    }

    /// As [`FileCache::prepare_change`], for one page, if it is cached.
    pub(crate) fn own_cached_page(&self, page: u64) -> Result<()> {
        let (pages, mut waits) = (page..page + 1, 0);
        while let Ok(mut states) = self.pages.pin(pages.clone()) {
            if self.prepare_change(&pages, &mut states) {
                self.pages.unpin(pages);
                return Ok(());
            }
            let held = self.store.locked_range(page * PAGE_SIZE, (page + 1) * PAGE_SIZE);
            self.wait_for_frames(&pages, &held, &mut waits)?;
        }
        Ok(())
    }

    /// Make pages for a write of `[offset, end)`. The bytes that it does not cover lie after the end of the file and
    /// become zero; the others are not initialised.
    pub(crate) fn make_fresh(&self, fresh: &[u64], offset: u64, end: u64) -> usize {
        let mut list = self.engine.cache.allocate(&self.pages, fresh);
        let unused = self.pages.begin_loading(&mut list);
        self.engine.cache.release(unused);
        for ((page, _), frame) in list.iter().zip(&mut self.borrow_new(&list)) {
            let within = |at: u64| at.saturating_sub(page * PAGE_SIZE).min(PAGE_SIZE) as usize;
            frame[..within(offset)].fill(0);
            frame[within(end)..].fill(0);
        }
        self.pages.end_loading(&list, |_| false);
        list.len()
    }

    /// All frames are dirty or in use: write back the range that the caller has locked, which no other thread can, or
    /// else another file. `waits` counts attempts without a page to write.
    fn free_frames(&self, held: &Range<u64>, waits: &mut u32) -> Result<()> {
        let written = self.write_back(held.clone(), BioFlags::NONE)?;
        if written == 0 && self.engine.write_back_round(self.id(), BioFlags::NONE, |written| written > 0) == 0
        {
            *waits += 1;
            if *waits > FRAMES_TRIES {
                self.engine.dirty_files().iter().try_for_each(|file| file.retry.check())?;
            }
            sleep(FRAMES_RETRY);
        }
        Ok(())
    }

    /// Claim blocks for the parts of the pages that become dirty and have no written block on the device: an unwritten one needs space
    /// for the mapping that says so. Returns the claims per page.
    pub(crate) fn claim_for(
        &self,
        pages: &Range<u64>,
        states: &[PageState],
        offset: u64,
        end: u64,
    ) -> Result<Vec<u8>> {
        let claims = self.claims_needed(pages, states, offset, end)?;
        let total = claims.iter().map(|claim| u64::from(*claim)).sum();
        if total > 0 {
            self.store.map.claim(total)?;
        }
        Ok(claims)
    }

    /// The claims per page. A block that is larger than a page is claimed by one of its pages.
    fn claims_needed(
        &self,
        pages: &Range<u64>,
        states: &[PageState],
        offset: u64,
        end: u64,
    ) -> Result<Vec<u8>> {
        let block = self.store.map.block_size();
        let mut claims = Vec::with_capacity(states.len());
        // The end of the last mapping, and whether it needs a claim.
        let mut known = (0, false);
        // The block that was claimed last, where blocks are larger than pages.
        let mut claimed_block = None;
        for (page, state) in pages.clone().zip(states) {
            let wanted = self.parts(page, offset, end) & !state.dirty;
            let mut claim = 0;
            if wanted != 0 && !state.mapped {
                for part in 0..8 {
                    if wanted >> part & 1 == 0 {
                        continue;
                    }
                    let at = page * PAGE_SIZE + part * self.part_size();
                    if at >= known.0 {
                        let mapping = self.store.map.map(at, end.max(at + 1) - at)?;
                        let claims = matches!(mapping.kind, MappingKind::Hole | MappingKind::Unwritten(_));
                        known = (mapping.end(), claims);
                    }
                    let is_claimed = block > PAGE_SIZE
                        && (claimed_block == Some(at / block) || self.block_is_claimed(at / block));
                    if known.1 && !is_claimed {
                        claimed_block = Some(at / block);
                        claim += 1;
                    }
                }
            }
            claims.push(claim);
        }
        Ok(claims)
    }

    /// Blocks that writeback of the dirty pages will allocate. A claim for an unwritten block is none of them: the block is there.
    pub(crate) fn blocks_to_allocate(&self) -> Result<u64> {
        let size = self.store.size();
        // The end of the mapping that was looked at last, and whether it is a hole.
        let (mut known, mut blocks) = ((0, false), 0);
        for (page, state) in self.pages.dirty_in(0..size.div_ceil(PAGE_SIZE), usize::MAX) {
            let mut of_page = 0;
            for part in (0..8).filter(|part| state.claimed > 0 && state.dirty >> part & 1 == 1) {
                let at = page * PAGE_SIZE + part * self.part_size();
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

    /// Whether a page of a block that is larger than a page has claimed it.
    fn block_is_claimed(&self, number: u64) -> bool {
        let per_block = self.store.map.block_size() / PAGE_SIZE;
        let pages = number * per_block..(number + 1) * per_block;
        let dirty = self.pages.dirty_in(pages, per_block as usize);
        dirty.iter().any(|(_, state): &(u64, PageState)| state.claimed > 0)
    }

    /// Zero the cached page in which the file ends, after the end. No part after it stays dirty or claimed.
    pub(crate) fn zero_tail(&self, size: u64) {
        let (page, within) = (size / PAGE_SIZE, (size % PAGE_SIZE) as usize);
        if within == 0 {
            return;
        }
        let keep = size.div_ceil(self.part_size()) - page * (PAGE_SIZE / self.part_size());
        let mut unwanted = 0;
        self.pages.update(page..page + 1, |_, state| {
            let zeros = &self.store.shared.zeros[..PAGE_SIZE as usize - within];
            self.put(state, within, zeros);
            state.dirty &= ((1_u16 << keep) - 1) as u8;
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

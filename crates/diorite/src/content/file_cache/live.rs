//! Live pages: shown by windows of mapped views, in memory that is stored to without a call.
//!
//! Where it sits: beside the loading, changing and writing of other pages. A page becomes live when the first window on it opens
//! ([`FileCache::show_live`]) and ends when its range is held exclusively after the last one was closed ([`FileCache::end_windows`]).
//!
//! While it is live, its content is in the file's live memory. Its frame has, part by part, what the device has, or is being given: what
//! differs was stored by a window, and becomes dirty before anything is written back or read past the cache
//! ([`FileCache::note_stores`]). Write-back takes a copy ([`FileCache::take_live`]), so a store beside it tears nothing. What changes
//! below the cache (direct writes, holes, moved ranges) is brought in by a merge that keeps stores of the same moment; where the device cannot be read for
//! it the page is stale, and is read again before it is used.
//!
//! Invariants:
//! 1. A part of a live page that is not dirty and equals its frame equals the device.
//! 2. A store to bytes beyond the size is lost: they are zero when the file grows over them.
//! 3. Every block that a window for stores shows was written, or a dirty page has a claim on it, until a hole is made there. A block that is
//!    larger than a page has one claim, by one of its pages; a store to another of its pages needs no space, and so must not fail while another
//!    thread takes the last blocks.
//!
//! Locking: `show_live`, `end_windows`, `zero_live` and `reload_live` need the range exclusively. `note_stores` and `take_live` need it
//! shared, and `one_write_back`.

use std::ops::Range;

use diorite_block::BioFlags;

use super::load::memory_of_pages;
use crate::cache::arena::PAGE_SIZE;
use crate::cache::live::Mapping;
use crate::cache::pages::PageState;
use crate::content::file_cache::FileCache;
use crate::content::pages_of;
use crate::placement::PlugReads;
use crate::write::space::Blocks;
use crate::{AlignedBuf, Error, Result};

/// Pages that are read at once to refresh live ones.
const RELOAD_PAGES: usize = 256;

impl FileCache {
    /// Copy bytes of a live page; whether it is one, and not stale.
    pub(crate) fn read_live(&self, page: u64, at: usize, into: &mut [u8]) -> bool {
        let is_live =
            !self.live.is_empty() && self.pages.get(page).is_some_and(|state| state.live && !state.stale);
        if is_live {
            self.live.of_page(page).page(page).read(at, into);
        }
        is_live
    }

    /// A copy of a live page.
    pub(crate) fn copy_live(&self, page: u64) -> Result<AlignedBuf> {
        let mut content = memory_of_pages(1)?;
        {
            let _one_at_a_time = self.one_write_back.lock();
            if let Some(mut state) = self.pages.get(page).filter(|state| state.stale) {
                self.refresh_live(page, &mut state)?;
            }
        }
        self.live.of_page(page).page(page).read(0, &mut content);
        Ok(content)
    }

    /// Pinned pages are shown by one window more: copied to the live memory, where they are not yet. `claims` are those of the parts in
    /// `bytes` that have no block, for a window that stores.
    pub(crate) fn show_live(
        &self,
        pages: &Range<u64>,
        mapping: &Mapping,
        bytes: &Range<u64>,
        claims: Option<&[u8]>,
    ) -> Result<()> {
        let states: Vec<PageState> = pages.clone().filter_map(|page| self.pages.get(page)).collect();
        let new = states.iter().filter(|state| !state.live).count();
        if states.iter().any(|state| state.windows == u8::MAX) {
            return Err(Error::InvalidArgument("a page can be in at most 255 windows"));
        }
        if !self.engine.cache.add_live(new) {
            return Err(Error::InvalidArgument(
                "windows of mapped views have a quarter of the page cache at most; open smaller ones, or give the cache more memory",
            ));
        }
        self.live.add(new);
        let arena = &self.engine.cache.arena;
        for (page, state) in pages.clone().zip(&states).filter(|(_, state)| !state.live) {
            let frame = arena.read(state.frame).expect("the range is ours alone");
            mapping.page(page).write(0, &frame);
        }
        self.engine.counters.bytes_copied.add(new as u64 * PAGE_SIZE);
        let mut claims = claims.map(|claims| claims.iter());
        self.pages.update(pages.clone(), |page, state| {
            let is_new = !state.live;
            (state.live, state.pinned) = (true, false);
            state.windows += 1;
            if let Some(claims) = &mut claims {
                let claim = claims.next().copied().unwrap_or(0);
                if claim > 0 {
                    // What is dirty is taken from the live memory, so the frame's parts need not be right.
                    state.dirty |= self.parts(page, bytes.start, bytes.end);
                    state.claimed += claim;
                }
                state.stored = true;
            }
            state.stored &= !is_new || claims.is_some();
        });
        Ok(())
    }

    /// Make what windows have stored dirty. What cannot be made dirty, as where there is no space for it, stays where it is, and is found
    /// again.
    pub(crate) fn note_stores(&self, pages: Range<u64>) -> Result<()> {
        if self.live.is_empty() {
            return Ok(());
        }
        let mut result = Ok(());
        let mut live = self.pages.live_in(pages);
        live.retain(|(_, state)| state.stored || state.stale);
        for (page, mut state) in live {
            if let Err(error) = self.note_stores_of(page, &mut state) {
                result = Err(Error::WriteBack(self.retry.failed(error)));
            }
        }
        result
    }

    fn note_stores_of(&self, page: u64, state: &mut PageState) -> Result<()> {
        if state.stale {
            self.refresh_live(page, state)?;
        }
        let changed = self.changed_parts(page, state);
        let mut result = Ok(());
        // Part by part: one that has its block needs no space.
        for part in (0..8).map(|at| 1_u8 << at).filter(|part| changed & part != 0) {
            // Held until the part is dirty: no thread takes the last blocks meanwhile.
            let mut right = Blocks::unclaimed(&self.engine);
            match self.claim_part(page, state, part, &mut right) {
                Ok(claimed) => {
                    state.dirty |= part;
                    self.pages.update(page..page + 1, |_, state| {
                        state.dirty |= part;
                        state.claimed += claimed;
                    });
                }
                Err(error) => result = Err(error),
            }
        }
        result
    }

    /// Write what windows have stored in clean parts to the device, with blocks that are taken now.
    pub(crate) fn write_stores(&self, pages: Range<u64>, blocks: &mut Blocks<'_>) -> Result<()> {
        let mut result = Ok(());
        let mut live = self.pages.live_in(pages);
        live.retain(|(_, state)| state.stored && !state.stale);
        for (page, state) in live {
            let changed = self.changed_parts(page, &state);
            for at in (0..8).filter(|at| changed >> at & 1 == 1) {
                if let Err(error) = self.write_store(page, &state, at, blocks) {
                    result = Err(Error::WriteBack(self.retry.failed(error)));
                }
            }
        }
        result
    }

    fn write_store(&self, page: u64, state: &PageState, at: usize, blocks: &mut Blocks<'_>) -> Result<()> {
        let part = self.part_size() as usize;
        let within = at * part..(at + 1) * part;
        let mut memory = memory_of_pages(1)?;
        let memory = &mut memory[..part];
        let keep = self.bytes_before_end(page).saturating_sub(within.start).min(part);
        self.live.of_page(page).page(page).read(within.start, &mut memory[..keep]);
        let start = page * PAGE_SIZE + within.start as u64;
        let bytes = start..start + part as u64;
        let end = start + keep as u64;
        self.store.write_window(bytes, std::iter::once(&*memory), end, blocks, BioFlags::SYNC)?;
        let frame = self.engine.cache.arena.write(state.frame);
        let mut frame = frame.expect("write-back alone uses the frame of a live page");
        frame[within].copy_from_slice(memory);
        self.engine.counters.bytes_copied.add(2 * part as u64);
        Ok(())
    }

    /// The clean parts of a live page that were stored to.
    fn changed_parts(&self, page: u64, state: &PageState) -> u8 {
        let end = self.bytes_before_end(page);
        let mapping = self.live.of_page(page);
        let frame = self.engine.cache.arena.read(state.frame);
        let frame = frame.expect("write-back alone uses the frame of a live page");
        let part = self.part_size() as usize;
        let starts = (0..end).step_by(part).enumerate();
        let is_changed = |(at, start): &(usize, usize)| {
            state.dirty >> at & 1 == 0 && mapping.page(page).differs(*start..end.min(start + part), &frame)
        };
        starts.filter(is_changed).fold(0, |parts, (at, _)| parts | 1 << at)
    }

    /// Claim the block of one part, if it has none. The right to take blocks is needed only where one is taken (invariant 3).
    fn claim_part(&self, page: u64, state: &PageState, part: u8, right: &mut Blocks<'_>) -> Result<u8> {
        let start = page * PAGE_SIZE + u64::from(part.trailing_zeros()) * self.part_size();
        let (pages, end) = (page..page + 1, start + self.part_size());
        let claim = self.claims_needed(&pages, &[*state], start, end)?[0];
        if claim > 0 {
            right.share()?;
            self.store.map.claim(u64::from(claim))?;
        }
        Ok(claim)
    }

    /// Bytes of a page that the file has.
    fn bytes_before_end(&self, page: u64) -> usize {
        self.store.size().saturating_sub(page * PAGE_SIZE).min(PAGE_SIZE) as usize
    }

    /// Copy the dirty parts of live pages to their frames, from where they are written.
    pub(crate) fn take_live(&self, batch: &[(u64, PageState)]) {
        let part = self.part_size() as usize;
        for (page, state) in batch.iter().filter(|(_, state)| state.live) {
            let (mapping, end) = (self.live.of_page(*page), self.bytes_before_end(*page));
            let frame = self.engine.cache.arena.write(state.frame);
            let mut frame = frame.expect("write-back alone uses the frame of a live page");
            for start in (0..end).step_by(part).filter(|start| state.dirty >> (start / part) & 1 == 1) {
                let end = end.min(start + part);
                mapping.page(*page).read(start, &mut frame[start..end]);
                self.engine.counters.bytes_copied.add((end - start) as u64);
            }
        }
    }

    /// A window on these pages was closed.
    pub(crate) fn close_window(&self, pages: Range<u64>) {
        self.pages.update(pages, |_, state| state.windows -= 1);
    }

    /// Pages that no window shows any more have their content in their frames again. Those with stores that cannot be made dirty now stay
    /// live, and have their turn later.
    pub(crate) fn end_windows(&self, pages: Range<u64>) {
        if self.live.is_empty() {
            return;
        }
        let _one_at_a_time = self.one_write_back.lock();
        // What a window stored that is closed while stores are made dirty may have been missed: its pages stay live.
        let mut ended = self.pages.live_in(pages.clone());
        ended.retain(|(_, state)| state.windows == 0);
        if self.note_stores(pages).is_err() {
            ended.retain(|(page, _)| {
                let state = self.pages.get(*page).expect("a live page is cached");
                let is_noted = !state.stale && (!state.stored || self.changed_parts(*page, &state) == 0);
                if !is_noted {
                    self.live.close_later(*page..*page + 1);
                }
                is_noted
            });
        }
        self.end_live(&ended);
    }

    /// These pages have their content in their frames, and are not live any more.
    pub(super) fn end_live(&self, ended: &[(u64, PageState)]) {
        let whole = |(page, state): &(u64, PageState)| (*page, PageState { dirty: u8::MAX, ..*state });
        self.take_live(&ended.iter().map(whole).collect::<Vec<_>>());
        for run in ended.chunk_by(|(a, _), (b, _)| a + 1 == *b) {
            let pages = run[0].0..run[run.len() - 1].0 + 1;
            self.pages.update(pages, |_, state| (state.live, state.stored) = (false, false));
        }
        self.live.end(&ended.iter().map(|(page, _)| *page).collect::<Vec<_>>());
        self.engine.cache.end_live(ended.len());
    }

    /// Live pages have zeros in a range of bytes, whose blocks are gone, and nothing of whole pages waits for write-back.
    pub(crate) fn zero_live(&self, bytes: Range<u64>) {
        if self.live.is_empty() || bytes.is_empty() {
            return;
        }
        let mut unclaimed = 0;
        for (page, state) in self.pages.live_in(pages_of(bytes.start, bytes.end)) {
            let base = page * PAGE_SIZE;
            let within = |at: u64| at.saturating_sub(base).min(PAGE_SIZE) as usize;
            let zeros = &self.engine.zeros[..within(bytes.end) - within(bytes.start)];
            for live in [true, false] {
                self.put(page, &PageState { live, ..state }, within(bytes.start), zeros);
            }
            let is_whole = zeros.len() as u64 == PAGE_SIZE;
            self.pages.update(page..page + 1, |_, state| {
                state.mapped = false;
                if is_whole {
                    unclaimed += u64::from(state.claimed);
                    (state.dirty, state.claimed) = (0, 0);
                }
            });
        }
        if unclaimed > 0 {
            self.store.map.release_claim(unclaimed);
        }
    }

    /// Live pages of a range have what the device has now; what windows have stored meanwhile stays. Nothing of them was dirty before
    /// the device changed.
    pub(crate) fn reload_live(&self, bytes: &Range<u64>) {
        if self.live.is_empty() {
            return;
        }
        let live = self.pages.live_in(pages_of(bytes.start, bytes.end));
        for run in live.chunk_by(|(a, _), (b, _)| a + 1 == *b).flat_map(|run| run.chunks(RELOAD_PAGES)) {
            let content = self.read_below(run[0].0, run.len());
            for (at, (page, state)) in run.iter().enumerate() {
                match &content {
                    Ok(content) => {
                        self.merge_live(
                            *page,
                            state,
                            &content[at * PAGE_SIZE as usize..][..PAGE_SIZE as usize],
                        );
                    }
                    // What the device has is not known. It is read again before the page is used.
                    Err(_) => self.pages.update(*page..*page + 1, |_, state| {
                        (state.stale, state.mapped) = (true, false);
                    }),
                }
            }
        }
    }

    fn merge_live(&self, page: u64, state: &PageState, new: &[u8]) {
        let frame = self.engine.cache.arena.write(state.frame);
        let mut frame = frame.expect("the range is ours alone");
        self.live.of_page(page).page(page).merge(&frame, new);
        frame.copy_from_slice(new);
        drop(frame);
        self.engine.counters.bytes_copied.add(PAGE_SIZE);
        self.pages.update(page..page + 1, |_, state| (state.stale, state.mapped) = (false, false));
    }

    /// Read a stale page again. The caller has `one_write_back`, and the page at least shared.
    pub(crate) fn refresh_live(&self, page: u64, state: &mut PageState) -> Result<()> {
        let content = self.read_below(page, 1)?;
        self.merge_live(page, state, &content);
        (state.stale, state.mapped) = (false, false);
        Ok(())
    }

    /// Pages as the device has them.
    fn read_below(&self, first: u64, pages: usize) -> Result<AlignedBuf> {
        let mut content = memory_of_pages(pages)?;
        let (start, size) = (first * PAGE_SIZE, self.store.size());
        let keep = size.saturating_sub(start).min(content.len() as u64);
        if keep > 0 {
            let reach = keep.next_multiple_of(PAGE_SIZE);
            let segments = std::iter::once(&mut content[..reach as usize]);
            let mut target = PlugReads::new(self.store.geometry(), BioFlags::SYNC, segments);
            self.store.read_parts(std::iter::once(start..start + reach), &mut target)?;
            drop(target);
            content[keep as usize..].fill(0);
        }
        Ok(content)
    }
}

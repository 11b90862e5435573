//! Writes through the page cache.
//!
//! A write takes its range exclusively, claims blocks for holes, makes sure that its pages are there (reading those that it
//! covers only in part), copies, and marks them dirty. Where the blocks go is decided at write-back.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use diorite_block::BioFlags;
use diorite_block::sync::{Work, sleep, work};

use crate::cache::arena::PAGE_SIZE;
use crate::cache::pages::PageState;
use crate::content::workers::Dirty;
use crate::content::{Content, pages_of};
use crate::map::MappingKind;
use crate::write::space::Blocks;
use crate::write::{Position, WriteRange, Written, len_of};
use crate::{Error, Result};

/// How long a writer waits for others to write back before it looks for room again.
const ROOM_RETRY: Duration = Duration::from_millis(1);

impl Content {
    /// Write `data`; less than all only when the volume filled up on the way.
    pub(crate) fn write_cached(
        self: &Arc<Self>,
        data: &[IoSlice<'_>],
        position: Position,
    ) -> Result<Written> {
        let len = len_of(data);
        if len == 0 {
            return Ok(Written { offset: self.offset_of(position), len: 0, stopped: None });
        }
        if self.engine.cache.dirty() > self.engine.dirty_limit() {
            self.engine.write_back_to(self.engine.dirty_limit());
        }
        let (range, _lock) = self.lock_range(position, len)?;
        self.leave_inode()?;
        let (mut at, mut blocks) = (range.offset, Blocks::unclaimed(&self.engine));
        let copied =
            data.iter().try_for_each(|segment| self.write_locked(segment, &range, &mut at, &mut blocks));
        if at > range.offset {
            self.note_modified();
            self.engine.note_dirty(self);
        }
        let (end, stopped) = match copied {
            Err(error) if error.is_no_space() => self.write_rest_through(data, &range, at, &mut blocks)?,
            copied => (at, copied.err()),
        };
        Written::up_to(range.offset, end, stopped)
    }

    /// No space can be promised to what is left of a cached write: it goes to the device at once, as far as there is space.
    fn write_rest_through(
        &self,
        data: &[IoSlice<'_>],
        range: &WriteRange,
        at: u64,
        blocks: &mut Blocks<'_>,
    ) -> Result<(u64, Option<Error>)> {
        self.settle_cached_pages(&range.whole)?;
        blocks.make_exclusive();
        let mut buffer = self.bounce_buffer(range.end - at + 2 * self.logical())?;
        let (end, stopped) = blocks.write_windows(at, range.end, |at, blocks| {
            self.write_bounced_window(data, range, at, &mut buffer, blocks, None)
        });
        self.invalidate(&range.whole);
        self.count_bounce(end - at);
        Ok((end, stopped))
    }

    /// Zero a part of one block in the cache, if there may be anything else on the device. The caller has the block exclusively.
    pub(crate) fn zero_mapped(self: &Arc<Self>, start: u64, end: u64) -> Result<()> {
        if start >= end {
            return Ok(());
        }
        let mapping = self.map.map(start, end - start)?;
        let is_mapped = matches!(mapping.kind, MappingKind::Mapped(_));
        if !is_mapped && self.pages.first_dirty(pages_of(start, end)).is_none() {
            return Ok(());
        }
        let mut at = start;
        while at < end {
            let page = at / PAGE_SIZE;
            let to = end.min((page + 1) * PAGE_SIZE);
            let state = self.pin_one(page)?;
            let mut frame = self.engine.cache.arena.write(state.frame).expect("the range is ours alone");
            frame[(at - page * PAGE_SIZE) as usize..(to - page * PAGE_SIZE) as usize].fill(0);
            drop(frame);
            // A part in a hole is dirty, with its claim, or zero anyway.
            let mask = if is_mapped { self.parts(page, at, to) } else { 0 };
            self.pages.update(page..page + 1, |_, state| {
                state.dirty |= mask;
                state.pinned = false;
            });
            at = to;
        }
        self.engine.note_dirty(self);
        Ok(())
    }

    /// Bytes of a part of a page that is clean or dirty as one.
    pub(crate) fn part_size(&self) -> u64 {
        self.map.block_size().min(PAGE_SIZE)
    }

    /// The parts of `page` that `[start, end)` touches, one bit each.
    fn parts(&self, page: u64, start: u64, end: u64) -> u8 {
        let base = page * PAGE_SIZE;
        let part = self.part_size();
        let from = start.saturating_sub(base) / part;
        let to = (end.min(base + PAGE_SIZE) - base).div_ceil(part);
        let below = |count: u64| ((1_u16 << count) - 1) as u8;
        below(to) & !below(from)
    }

    /// Write the next segment of a write; the caller has the range of all of it exclusively. `at` is where what was written ends.
    fn write_locked(
        self: &Arc<Self>,
        mut data: &[u8],
        range: &WriteRange,
        at: &mut u64,
        blocks: &mut Blocks<'_>,
    ) -> Result<()> {
        while !data.is_empty() {
            let pages = pages_of(*at, *at + data.len() as u64);
            let last = pages.end.min(pages.start + self.engine.pages_per_step());
            let end = (*at + data.len() as u64).min(last * PAGE_SIZE);
            let (now, later) = data.split_at((end - *at) as usize);
            let written = self.write_step(now, *at, blocks);
            // Only until what was promised has its pages: making room in the cache must not stop other threads.
            blocks.give_up();
            written?;
            (*at, data) = (end, later);
            if !data.is_empty() && self.engine.cache.dirty() > self.engine.dirty_limit() {
                // Our own pages are the ones that no other thread can write back while we hold them, and the only ones that we hold.
                self.write_back_locked(self.locked_range(range.offset, end), BioFlags::NONE)?;
            }
        }
        Ok(())
    }

    /// Write a few pages' worth.
    fn write_step(&self, data: &[u8], offset: u64, blocks: &mut Blocks<'_>) -> Result<()> {
        let end = offset + data.len() as u64;
        let pages = pages_of(offset, end);
        let prepared = self.pin_pages(&pages, offset, end).and_then(|states| {
            blocks.share()?;
            let claims = self.claim_for(&pages, &states, offset, end)?;
            Ok((states, claims))
        });
        let (states, claims) = prepared.inspect_err(|_| self.give_up_pinned(pages.clone()))?;
        let arena = &self.engine.cache.arena;
        let mut at = offset;
        for (page, state) in pages.clone().zip(states) {
            let to = end.min((page + 1) * PAGE_SIZE);
            let mut frame = arena.write(state.frame).expect("the range is ours alone");
            let within = (at - page * PAGE_SIZE) as usize;
            let now = &data[(at - offset) as usize..(to - offset) as usize];
            frame[within..within + now.len()].copy_from_slice(now);
            at = to;
        }
        let mut claims = claims.into_iter();
        self.pages.update(pages, |page, state| {
            state.dirty |= self.parts(page, offset, end);
            state.claimed += claims.next().unwrap_or(0);
            state.pinned = false;
        });
        self.engine.counters.bytes_copied.add(data.len() as u64);
        work(Work::Copy(data.len() as u64));
        self.grow(end);
        Ok(())
    }

    /// Pages were pinned for a write that does not happen. The clean ones go: what stands in the frames of new ones is anything.
    fn give_up_pinned(&self, pages: Range<u64>) {
        self.pages.unpin(pages.clone());
        let removed = self.pages.remove_clean(pages);
        self.engine.cache.release(removed.iter().map(|state| state.frame));
    }

    /// Have all of `pages` in the cache and pinned: read where the write covers them in part, else with anything where it will go.
    /// Returns their states. If that fails, or the write does not follow, [`Content::give_up_pinned`] is due.
    fn pin_pages(&self, pages: &Range<u64>, offset: u64, end: u64) -> Result<Vec<PageState>> {
        let size = self.size();
        let must_read = |page: u64| {
            let (start, stop) = (page * PAGE_SIZE, (page + 1) * PAGE_SIZE);
            start < size && (start < offset || end < stop.min(size))
        };
        loop {
            let counters = &self.engine.counters;
            let missing = match self.pages.pin(pages.clone()) {
                Ok(mut states) => {
                    counters.cache_hits.add(pages.end - pages.start);
                    for (page, state) in pages.clone().zip(&mut states) {
                        self.own_frame(page, state)?;
                    }
                    return Ok(states);
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
                self.make_room(pages)?;
            }
        }
    }

    /// Give a pinned page that a view shows another frame, which can be written. The caller has the page exclusively.
    pub(crate) fn own_frame(&self, page: u64, state: &mut PageState) -> Result<()> {
        let cache = &self.engine.cache;
        while cache.arena.write(state.frame).is_none() {
            let Some((_, frame)) = cache.allocate(&self.pages, &[page]).pop() else {
                self.make_room(&(page..page + 1))?;
                continue;
            };
            let shown = cache.arena.read(state.frame).expect("the range is ours alone");
            cache.arena.write(frame).expect("a new frame").copy_from_slice(&shown);
            drop(shown);
            self.pages.update(page..page + 1, |_, state| state.frame = frame);
            cache.release([state.frame]);
            state.frame = frame;
            self.engine.counters.bytes_copied.add(PAGE_SIZE);
        }
        Ok(())
    }

    /// As [`Content::own_frame`], for a page that may be cached.
    pub(crate) fn own_cached_page(&self, page: u64) -> Result<()> {
        let Ok(mut states) = self.pages.pin(page..page + 1) else { return Ok(()) };
        let owned = self.own_frame(page, &mut states[0]);
        self.pages.unpin(page..page + 1);
        owned
    }

    /// Pages whose content comes from the writer of `[offset, end)`: what stands there is anything until it has. What it does not cover
    /// lies behind the end of the file, and is zero.
    fn make_fresh(&self, fresh: &[u64], offset: u64, end: u64) -> usize {
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

    /// All frames are dirty or in use.
    fn make_room(&self, ours: &Range<u64>) -> Result<()> {
        let written = self.write_back_locked(
            self.locked_range(ours.start * PAGE_SIZE, ours.end * PAGE_SIZE),
            BioFlags::NONE,
        )?;
        if written == 0 && self.engine.try_write_back_others(self) == 0 {
            sleep(ROOM_RETRY);
        }
        Ok(())
    }

    /// Claim blocks for the parts of the pages that become dirty and lie in holes. Returns the claims per page.
    fn claim_for(&self, pages: &Range<u64>, states: &[PageState], offset: u64, end: u64) -> Result<Vec<u8>> {
        let block = self.map.block_size();
        let mut claims = Vec::with_capacity(states.len());
        let mut total = 0;
        // The end of the mapping that was looked at last, and whether it is a hole.
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
                        let mapping = self.map.map(at, end.max(at + 1) - at)?;
                        known = (mapping.end(), mapping.kind == MappingKind::Hole);
                    }
                    let is_claimed = block > PAGE_SIZE
                        && (claimed_block == Some(at / block) || self.block_is_claimed(at / block));
                    if known.1 && !is_claimed {
                        claimed_block = Some(at / block);
                        claim += 1;
                    }
                }
            }
            total += u64::from(claim);
            claims.push(claim);
        }
        if total > 0 {
            self.map.claim(total)?;
        }
        Ok(claims)
    }

    /// Whether a page of a block that is larger than a page has claimed it.
    fn block_is_claimed(&self, number: u64) -> bool {
        let per_block = self.map.block_size() / PAGE_SIZE;
        let pages = number * per_block..(number + 1) * per_block;
        let dirty = self.pages.dirty_in(pages, per_block as usize);
        dirty.iter().any(|(_, state): &(u64, PageState)| state.claimed > 0)
    }

    /// Have one page in the cache and pinned. The caller has it exclusively.
    fn pin_one(&self, page: u64) -> Result<PageState> {
        loop {
            if let Ok(mut states) = self.pages.pin(page..page + 1) {
                self.own_frame(page, &mut states[0])?;
                return Ok(states[0]);
            }
            if self.load(&[page], BioFlags::SYNC)? == 0 {
                self.make_room(&(page..page + 1))?;
            }
        }
    }

    /// Move the content out of the inode, before it is written. The caller has the range exclusively.
    pub(crate) fn leave_inode(&self) -> Result<()> {
        if self.may_be_inline.load(Ordering::Acquire) {
            if self.map.map(0, 1)?.kind == MappingKind::Inline {
                Blocks::unclaimed(&self.engine).attempt(|_| self.map.make_not_inline())?;
            }
            self.may_be_inline.store(false, Ordering::Release);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::SystemClock;
    use crate::content::engine::{Engine, EngineOptions};
    use crate::content::toy_map::ToyMap;

    const BLOCK: u64 = 1024;

    /// A file with the smallest cache, whose dirty pages nobody writes back by age.
    fn file(block: u64) -> (Arc<Content>, ToyMap) {
        let options = EngineOptions {
            cache_bytes: 0,
            read_ahead_bytes: 0,
            dirty_age: Duration::from_secs(3600),
            clock: SystemClock::shared(),
            content_times: crate::ContentTimes::ByWrite,
        };
        let map = ToyMap::new(block, (4 << 20) / block, false);
        let view = map.reopen();
        let engine = Engine::new(&options).expect("memory");
        (Content::new(Box::new(map), engine).expect("content"), view)
    }

    fn write(content: &Arc<Content>, offset: u64, data: &[u8]) {
        let written = content.write_cached(&[IoSlice::new(data)], Position::At(offset)).expect("written");
        assert_eq!(written.len, data.len());
    }

    /// A long write makes room by writing back its own pages, and not those before it, into which somebody else may be writing.
    #[test]
    fn a_writer_that_makes_room_leaves_the_ranges_of_others_alone() {
        let (content, _) = file(BLOCK);
        write(&content, 0, &[1; PAGE_SIZE as usize]);
        let _theirs = content.ranges.exclusive(0..PAGE_SIZE);
        let frame = content.pages.get(0).expect("cached").frame;
        let _writing = content.engine.cache.arena.write(frame).expect("no thread reads it");
        write(&content, 1 << 20, &vec![2; 60 * PAGE_SIZE as usize]);
        assert!(content.pages.get(0).expect("cached").dirty != 0, "what they write is not on the device");
    }

    /// Blocks that were claimed for what lies behind the new end go back.
    #[test]
    fn a_file_that_shrinks_within_a_page_keeps_no_claim_for_what_it_lost() {
        let (content, view) = file(BLOCK);
        write(&content, 2 * BLOCK, &[1; 2 * BLOCK as usize]);
        assert_eq!(view.claimed(), 2);
        content.set_len(2 * BLOCK + 5).expect("shorter");
        assert_eq!(view.claimed(), 1);
        content.set_len(5).expect("shorter");
        assert_eq!(view.claimed(), 0);
    }

    /// The claim of a block that is larger than a page is with one of its pages, which may be cut off.
    #[test]
    fn a_block_that_the_file_still_ends_in_keeps_its_claim_until_it_is_written() {
        let (content, view) = file(4 * PAGE_SIZE);
        write(&content, 2 * PAGE_SIZE, &[1; PAGE_SIZE as usize]);
        write(&content, 0, &[2; PAGE_SIZE as usize]);
        assert_eq!(view.claimed(), 1);
        content.set_len(PAGE_SIZE).expect("shorter");
        let is_dirty = content.pages.dirty() > 0;
        assert_eq!(view.claimed(), u64::from(is_dirty));
    }
}

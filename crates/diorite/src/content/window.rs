//! Windows of mapped views: ranges of cached pages that are shown in live memory (`file_cache/live.rs`).
//!
//! Opening and closing one is a call like any other, on the range that it holds exclusively meanwhile. While it is open no lock is held, so
//! that nothing waits for it.

use std::ops::Range;
use std::sync::Arc;

use diorite_block::BioFlags;

use crate::cache::arena::PAGE_SIZE;
use crate::cache::live::Mapping;
use crate::cache::pages::PageState;
use crate::content::{Content, pages_of};
use crate::range_lock::LockMode;
use crate::write::space::Blocks;
use crate::{Error, Result};

/// What a window is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowUse {
    /// Loads.
    Load,
    /// Loads and stores.
    Store,
}

/// An open window.
#[derive(Debug)]
pub(crate) struct Window {
    content: Arc<Content>,
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) bytes: Range<u64>,
    /// Pages that are shown already.
    shown: Range<u64>,
}

impl Content {
    /// Show a range of bytes that the file has.
    pub(crate) fn open_window(
        self: &Arc<Self>,
        bytes: Range<u64>,
        mapping: Arc<Mapping>,
        usage: WindowUse,
    ) -> Result<Window> {
        self.close_waiting();
        let pages = pages_of(bytes.start, bytes.end);
        let mut window =
            Window { content: Arc::clone(self), mapping, bytes, shown: pages.start..pages.start };
        let bytes = &window.bytes;
        if bytes.is_empty() {
            return Ok(window);
        }
        // Dropped before the window, which closes what is open where this fails.
        let range = self.store.locked_range(bytes.start, bytes.end);
        let lock = self.ranges.exclusive(range);
        self.check_within(bytes.end)?;
        if usage == WindowUse::Store {
            self.store.move_out_of_inode()?;
            self.store.note_modified();
        }
        let mut opened = Ok(());
        while opened.is_ok() && window.shown.end < pages.end {
            let step = window.shown.end..pages.end.min(window.shown.end + self.engine.pages_per_step());
            opened =
                self.show_step(&step, &window, usage).inspect_err(|_| self.cache.pages.unpin(step.clone()));
            if opened.is_ok() {
                window.shown.end = step.end;
            }
        }
        if usage == WindowUse::Store {
            self.engine.note_dirty(self);
        }
        drop(lock);
        opened.map(|()| window)
    }

    fn show_step(&self, step: &Range<u64>, window: &Window, usage: WindowUse) -> Result<()> {
        let bytes = &window.bytes;
        let held = self.store.locked_range(bytes.start, bytes.end);
        let mut blocks = Blocks::unclaimed(&self.engine);
        let claims = match usage {
            WindowUse::Load => self.cache.pin_read(step, &held).map(|_| None)?,
            WindowUse::Store => Some(self.pin_and_claim(step, bytes, &held, &mut blocks)?),
        };
        self.cache.show_live(step, &window.mapping, bytes, claims.as_deref()).inspect_err(|_| {
            let claimed: u64 = claims.iter().flatten().map(|claim| u64::from(*claim)).sum();
            if claimed > 0 {
                self.store.map.release_claim(claimed);
            }
        })
    }

    /// Pin the pages of a step, and claim the blocks that stores to `bytes` of them need.
    fn pin_and_claim(
        &self,
        step: &Range<u64>,
        bytes: &Range<u64>,
        held: &Range<u64>,
        blocks: &mut Blocks<'_>,
    ) -> Result<Vec<u8>> {
        let states = self.cache.pin_read(step, held)?;
        let claim = |states: &[PageState]| self.cache.claim_for(step, states, bytes.start, bytes.end);
        match blocks.share().and_then(|()| claim(&states)) {
            Err(error) if error.is_no_space() => {
                // What is dirty in the range has claims for more than it takes, and no other thread can write it back.
                blocks.give_up();
                self.cache.pages.unpin(step.clone());
                self.engine.beside_the_last(|| self.cache.write_back(held.clone(), BioFlags::SYNC))?;
                let states = self.cache.pin_read(step, held)?;
                blocks.attempt(|_| claim(&states))
            }
            claims => claims,
        }
    }

    /// Fails if the file ends before `end`. The caller has the range.
    pub(crate) fn check_within(&self, end: u64) -> Result<()> {
        let size = self.store.size();
        if end <= size { Ok(()) } else { Err(Error::UnexpectedEnd { end: size }) }
    }

    /// Close what was closed while its range was in use.
    fn close_waiting(&self) {
        for pages in self.cache.live.take_closing() {
            self.end_windows(pages);
        }
    }

    /// End the windows on these pages that were closed, now or later: a thread may close one whose range its own queue has in flight. Whether
    /// that was now.
    fn end_windows(&self, pages: Range<u64>) -> bool {
        let range = self.store.locked_range(pages.start * PAGE_SIZE, pages.end * PAGE_SIZE);
        let Some(id) = self.ranges.try_acquire(range, LockMode::Exclusive) else {
            self.cache.live.close_later(pages);
            return false;
        };
        let _range = self.ranges.guard(id);
        self.cache.end_windows(pages);
        true
    }

    /// Make what windows have stored dirty.
    pub(crate) fn note_stores(&self) -> Result<()> {
        self.close_waiting();
        let mut result = Ok(());
        for pages in self.stored_runs() {
            let range = self.store.locked_range(pages.start * PAGE_SIZE, pages.end * PAGE_SIZE);
            let _range = self.ranges.shared(range);
            let _one_at_a_time = self.cache.one_write_back.lock();
            result = result.and(self.cache.note_stores(pages));
        }
        if result.as_ref().is_err_and(Error::is_no_space) { self.write_stores() } else { result }
    }

    /// What windows have stored goes to the device at once, as far as there is space: none can be promised to it.
    fn write_stores(&self) -> Result<()> {
        let mut blocks = Blocks::unclaimed(&self.engine);
        blocks.make_exclusive();
        let mut result = Ok(());
        for pages in self.stored_runs() {
            let range = self.store.locked_range(pages.start * PAGE_SIZE, pages.end * PAGE_SIZE);
            // Who takes blocks alone waits for no range.
            let Some(_range) = self.ranges.try_shared(range) else {
                result = result.and(Err(diorite_ext::Error::NoSpace.into()));
                continue;
            };
            let _one_at_a_time = self.cache.one_write_back.lock();
            let noted = self.cache.note_stores(pages.clone());
            let is_short = noted.as_ref().is_err_and(Error::is_no_space);
            result = result.and(if is_short { self.cache.write_stores(pages, &mut blocks) } else { noted });
        }
        result
    }

    /// As [`Content::note_stores`], where no other thread is in the way and nothing failed a moment ago.
    pub(crate) fn try_note_stores(&self) {
        if self.cache.retry.is_waiting() {
            return;
        }
        self.close_waiting();
        for pages in self.stored_runs() {
            let range = self.store.locked_range(pages.start * PAGE_SIZE, pages.end * PAGE_SIZE);
            let Some(_range) = self.ranges.try_shared(range) else { continue };
            let Some(_one_at_a_time) = self.cache.one_write_back.try_lock() else { continue };
            let _ = self.cache.note_stores(pages);
        }
    }

    /// Runs of pages that windows store to, or that are to be read again.
    fn stored_runs(&self) -> Vec<Range<u64>> {
        if self.cache.live.is_empty() {
            return Vec::new();
        }
        let mut pages = self.cache.pages.live_in(0..u64::MAX);
        pages.retain(|(_, state)| state.stored || state.stale);
        let runs = pages.chunk_by(|(a, _), (b, _)| a + 1 == *b);
        runs.map(|run| run[0].0..run[run.len() - 1].0 + 1).collect()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if self.shown.is_empty() {
            return;
        }
        self.content.cache.close_window(self.shown.clone());
        if !self.content.end_windows(self.shown.clone()) {
            // The background comes by, also where the window stored nothing.
            self.content.engine.note_dirty(&self.content);
        }
    }
}

impl crate::content::file_cache::FileCache {
    /// Have all of `pages` in the cache, pinned, with frames that no snapshot shows. Returns their states. The caller has them exclusively,
    /// and all of the bytes `held`.
    fn pin_read(&self, pages: &Range<u64>, held: &Range<u64>) -> Result<Vec<PageState>> {
        let mut waits = 0;
        loop {
            let is_loaded = match self.pages.pin(pages.clone()) {
                Ok(mut states) => {
                    if self.prepare_change(pages, &mut states)? {
                        return Ok(states);
                    }
                    false
                }
                Err(missing) => self.load(&missing, BioFlags::SYNC)? > 0,
            };
            if !is_loaded {
                self.wait_for_frames(pages, held, &mut waits)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::content::engine::{Engine, EngineOptions};
    use crate::content::toy_map::ToyMap;

    /// A window over a block that is larger than a page has one claim, by one of its pages. A store to another page is noted all the same
    /// while another thread takes the last blocks: it asked for the right to take blocks, and failed with ENOSPC for a block that it had.
    #[test]
    fn a_store_to_a_claimed_block_does_not_wait_for_the_last_blocks() {
        let options = EngineOptions {
            cache_bytes: 1 << 20,
            read_ahead_bytes: 0,
            dirty_age: Duration::from_secs(3600),
            ..EngineOptions::default()
        };
        for pages_per_block in [1, 2, 4] {
            let block = pages_per_block * PAGE_SIZE;
            let map = ToyMap::new(block, (4 << 20) / block, false);
            let view = map.reopen();
            let engine = Engine::new(&options).expect("memory");
            let content = Content::new(Box::new(map), engine).expect("content");
            content.set_len(64 << 10).expect("a hole");
            // Neither end is at a block.
            let bytes = PAGE_SIZE + 100..(3 * pages_per_block + 1) * PAGE_SIZE - 100;
            let pages = pages_of(bytes.start, bytes.end);
            let mapping = content.cache.live.map(pages.clone()).expect("memory");
            let window =
                content.open_window(bytes, Arc::clone(&mapping), WindowUse::Store).expect("blocks are free");
            let blocks = (pages.end - 1) / pages_per_block - pages.start / pages_per_block + 1;
            assert_eq!(view.claimed(), blocks, "{pages_per_block} pages");
            for page in pages.clone() {
                mapping.page(page).write(200, &[7; 100]);
            }
            std::thread::scope(|scope| {
                let (taken, is_taken) = std::sync::mpsc::channel();
                let (end, is_over) = std::sync::mpsc::channel::<()>();
                let engine = &content.engine;
                scope.spawn(move || {
                    let _last_blocks = engine.taking.write();
                    taken.send(()).expect("the test waits");
                    let _ = is_over.recv();
                });
                is_taken.recv().expect("the thread runs");
                // Where a store is not noted for lack of space, `Content::note_stores` waits for the last blocks.
                content.cache.note_stores(pages.clone()).expect("the window has its blocks");
                content.cache.write_back(0..64 << 10, BioFlags::SYNC).expect("the window has its blocks");
                drop(end);
            });
            drop(window);
            assert_eq!((view.claimed(), content.cache.pages.dirty()), (0, 0), "{pages_per_block} pages");
        }
    }
}

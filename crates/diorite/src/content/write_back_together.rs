//! Write-back of many files: small ones together, so that what lies side by side on the device is one bio, whatever files it is of.
//!
//! Where it sits: above the write-back of one file (`write_back.rs`); the background thread, writers that find too many dirty pages
//! and the sync of a volume come through here.
//!
//! Locking: nothing is waited for: what is in use is left out. So several files may be held at once.

use std::sync::Arc;

use diorite_block::sync::{MutexGuard, Work, work};
use diorite_block::{BioFlags, Plug};

use crate::cache::arena::{FrameRead, PAGE_SIZE};
use crate::cache::pages::PageState;
use crate::content::Content;
use crate::content::engine::Engine;
use crate::placement::{PlugWrites, place_write};
use crate::range_lock::RangeGuard;
use crate::write::space::Blocks;

/// Dirty pages of a file that is written with others: 256 KiB.
const SMALL_PAGES: usize = 64;
/// Dirty pages that are written together: 4 MiB. And files.
const TOGETHER_PAGES: usize = 1024;
const TOGETHER_FILES: usize = 256;

/// A small file whose dirty pages are being written.
struct Held<'c> {
    content: &'c Content,
    batch: Vec<(u64, PageState)>,
    frames: Vec<FrameRead<'c>>,
    _one_at_a_time: MutexGuard<'c, ()>,
    _range: RangeGuard<'c>,
}

impl Content {
    /// All dirty pages, if they are few and free at this moment.
    fn try_hold(&self) -> Option<Held<'_>> {
        if self.cache.retry.is_waiting() {
            return None;
        }
        let mut from = 0;
        let (guard, range) = loop {
            let page = self.cache.pages.first_dirty(from..u64::MAX / PAGE_SIZE)?;
            match self.try_lock_batch(page) {
                Some(locked) => break locked,
                None => from = page + 1,
            }
        };
        let pages = range.start / PAGE_SIZE..range.end / PAGE_SIZE;
        let one_at_a_time = self.cache.one_write_back.try_lock()?;
        let batch = self.cache.pages.dirty_in(pages, SMALL_PAGES + 1);
        if batch.is_empty() || batch.len() > SMALL_PAGES {
            return None;
        }
        let frames = self.cache.frames_of(&batch);
        Some(Held { content: self, batch, frames, _one_at_a_time: one_at_a_time, _range: guard })
    }
}

impl Engine {
    /// Write back the files that have dirty pages, from the one after the number `after` on, once round, until `is_enough` says so of
    /// the pages just written. What is in use is passed over. Cost follows what is written, not the number of dirty files. Returns
    /// the pages that were written.
    pub(crate) fn write_back_round(
        &self,
        after: u64,
        flags: BioFlags,
        mut is_enough: impl FnMut(usize) -> bool,
    ) -> usize {
        let (mut at, mut written, mut has_wrapped) = (after, 0, false);
        loop {
            let (mut small, mut pages, mut large) = (Vec::new(), 0, None);
            while pages < TOGETHER_PAGES && small.len() < TOGETHER_FILES && large.is_none() {
                let next = self.dirty_file_after(at).filter(|next| !has_wrapped || next.cache.id() <= after);
                let Some(content) = next else { break };
                at = content.cache.id();
                let dirty = content.cache.pages.dirty();
                if dirty > SMALL_PAGES {
                    large = Some(content);
                } else {
                    pages += dirty;
                    small.push(content);
                }
            }
            let is_round = small.is_empty() && large.is_none();
            if is_round && has_wrapped {
                return written;
            }
            if is_round {
                (at, has_wrapped) = (0, true);
                continue;
            }
            let mut pages = self.write_back_together(&small, flags);
            pages += large.as_ref().map_or(0, |content| content.write_back_step());
            small.iter().chain(&large).for_each(|content| self.forget_if_clean(&content.cache));
            written += pages;
            if is_enough(pages) {
                return written;
            }
        }
    }

    fn write_back_together(&self, files: &[Arc<Content>], flags: BioFlags) -> usize {
        // An error concerns one file.
        let alone = || files.iter().map(|content| content.write_back_step()).sum();
        if files.len() < 2 { alone() } else { self.try_write_together(files, flags).unwrap_or_else(alone) }
    }

    /// One submission for all files; `None` if anything failed before the first was recorded, and nothing was done.
    fn try_write_together(&self, files: &[Arc<Content>], flags: BioFlags) -> Option<usize> {
        let mut held: Vec<Held<'_>> = files.iter().filter_map(|content| content.try_hold()).collect();
        let Some(first) = held.first() else { return Some(0) };
        let device = first.content.store.map.device();
        let mut plug = Plug::new(device.geometry(), flags);
        let mut to_record = Vec::with_capacity(held.len());
        let mut pages = 0;
        for (at, file) in held.iter().enumerate() {
            let content = file.content;
            let (parts, segments) = content.cache.dirty_parts(&file.batch, &file.frames);
            let end = parts.last().map_or(0, |last| last.end);
            let mut blocks = Blocks::claimed(self);
            let mut target = PlugWrites::new(device.geometry(), flags, segments.into_iter(), &self.zeros);
            let placed = place_write(&*content.store.map, &parts, &mut blocks, &mut target).ok()?;
            plug.append(target.into_plug());
            to_record.push((at, placed.commit, end));
            pages += file.batch.len();
        }
        work(Work::Page(pages as u64));
        work(Work::Submit(plug.bios().len() as u64));
        let summary = plug.unplug(&**device).ok()?;
        let counters = &self.counters;
        counters.bios.add(summary.bios);
        counters.writeback_bios.add(summary.bios);
        counters.writeback_pages.add(pages as u64);
        counters.pages_scanned.add(pages as u64);
        let mut clean = 0;
        // They are filled again where a batch is tried again.
        for file in &mut held {
            file.frames.clear();
        }
        for (at, commit, end) in to_record {
            let Held { content, batch, .. } = &held[at];
            let recorded = content.store.commit_written_back(commit, end, flags);
            let is_clean = content.cache.end_batch(batch, flags, recorded).is_ok();
            clean += if is_clean { batch.len() } else { 0 };
        }
        Some(clean)
    }
}

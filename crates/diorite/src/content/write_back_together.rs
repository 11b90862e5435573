//! Write-back of many files: small ones together, so that what lies side by side on the device is one bio, whatever files it is of.
//!
//! Where it sits: above the write-back of one file (`write_back.rs`); the background thread, writers that find too many dirty pages
//! and the sync of a volume come through here.
//!
//! Locking: nothing is waited for: what is in use is left out. So several files may be held at once.

use std::sync::Arc;

use diorite_block::{BioFlags, Plug};

use crate::cache::arena::PAGE_SIZE;
use crate::cache::engine::Engine;
use crate::cache::file_cache::Writeback;
use crate::content::Content;
use crate::content::range_lock::RangeGuard;
use crate::store::placement::submit;

/// Dirty pages of a file that is written with others: 256 KiB.
const SMALL_PAGES: usize = 64;
/// Dirty pages that are written together: 4 MiB. And files.
const TOGETHER_PAGES: usize = 1024;
const TOGETHER_FILES: usize = 256;

impl Content {
    /// Begin to write all dirty pages, if they are few and free at this moment. Also their range, which is held until they are written.
    fn try_begin_small(&self, flags: BioFlags) -> Option<(Writeback<'_>, RangeGuard<'_>)> {
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
        Some((Writeback::begin(&self.cache, batch, flags, one_at_a_time), guard))
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
        let held: Vec<_> = files.iter().filter_map(|content| content.try_begin_small(flags)).collect();
        let Some(first) = files.first().filter(|_| !held.is_empty()) else { return Some(0) };
        let device = first.store.device();
        let mut all = Plug::new(device.geometry(), flags);
        for (op, _) in &held {
            all.append(op.plug()?);
        }
        let summary = submit(all, device).ok()?;
        self.counters.bios.add(summary.bios);
        self.counters.writeback_bios.add(summary.bios);
        let mut clean = 0;
        for (op, _range) in held {
            clean += op.complete(Ok(())).unwrap_or(0);
        }
        Some(clean)
    }
}

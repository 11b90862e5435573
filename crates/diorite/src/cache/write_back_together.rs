//! Writeback of many files. Small files are written together, so that their data is one bio where it is contiguous on
//! the device.
//!
//! Where it sits: above the writeback of one file (`file_cache/batches.rs`). Its callers are the background thread,
//! writers above the limit of dirty pages, and the sync of a volume.
//!
//! Locking: ranges of several files are held at once, so no lock is waited for. Ranges in use are skipped.

use std::sync::Arc;

use diorite_block::{BioFlags, Plug};

use crate::cache::engine::Engine;
use crate::cache::file_cache::FileCache;
use crate::store::placement::execute;

/// Most dirty pages of a small file: 256 KiB.
const SMALL_PAGES: usize = 64;
/// Most dirty pages of one submission: 4 MiB. And most files.
const TOGETHER_PAGES: usize = 1024;
const TOGETHER_FILES: usize = 256;

impl Engine {
    /// Write back the files with dirty pages once, beginning after the number `after`, until `is_enough` accepts the
    /// count of pages just written. Ranges in use are skipped. The cost follows the pages written, not the number of
    /// dirty files. Returns the pages written.
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
                let next = self.dirty_file_after(at).filter(|next| !has_wrapped || next.id() <= after);
                let Some(file) = next else { break };
                at = file.id();
                let dirty = file.pages.dirty();
                if dirty > SMALL_PAGES {
                    large = Some(file);
                } else {
                    pages += dirty;
                    small.push(file);
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
            pages += large.as_ref().map_or(0, |file| file.write_back_step());
            small.iter().chain(&large).for_each(|file| self.forget_if_clean(file));
            written += pages;
            if is_enough(pages) {
                return written;
            }
        }
    }

    fn write_back_together(&self, files: &[Arc<FileCache>], flags: BioFlags) -> usize {
        // After a failure, each file gets its own error.
        let alone = || files.iter().map(|file| file.write_back_step()).sum();
        if files.len() < 2 { alone() } else { self.try_write_together(files, flags).unwrap_or_else(alone) }
    }

    /// One submission for all files; `None` if it failed before the first file was recorded.
    fn try_write_together(&self, files: &[Arc<FileCache>], flags: BioFlags) -> Option<usize> {
        let held: Vec<_> = files.iter().filter_map(|file| file.try_begin_small(SMALL_PAGES, flags)).collect();
        let Some(first) = files.first().filter(|_| !held.is_empty()) else { return Some(0) };
        let device = first.device();
        let mut all = Plug::new(device.geometry(), flags);
        for (op, _) in &held {
            all.append(op.plug()?);
        }
        let bios = execute(all, device).ok()?;
        self.shared.counters.bios.add(bios);
        self.shared.counters.writeback_bios.add(bios);
        let mut clean = 0;
        for (op, _range) in held {
            clean += op.complete(Ok(())).unwrap_or(0);
        }
        Some(clean)
    }
}

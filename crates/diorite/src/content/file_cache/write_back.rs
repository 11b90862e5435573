//! Write-back: dirty pages become data on the device, in file order and in full bios.
//!
//! The steps are those of all writes (`write/`): blocks are reserved, the data is written, and only then recorded (ARCHITECTURE
//! invariant 5). No thread changes a page while it is written: write-back holds the range shared.
//!
//! Invariant: a page is clean only when it is on the device (ARCHITECTURE invariant 9). What could not be written stays dirty, and each sync, direct
//! transfer and writer short of frames that needs it written tries again and reports what fails; the background waits a while ([`Retry`](crate::content::errors::Retry)).
//!
//! Locking: `one_write_back`, across I/O, makes one write-back at a time of a file: two of them would otherwise reserve a block twice that
//! is larger than a page.

use std::ops::Range;

use diorite_block::BioFlags;
use diorite_block::sync::{Work, work};

use crate::cache::arena::{FrameRead, PAGE_SIZE};
use crate::cache::pages::PageState;
use crate::content::file_cache::FileCache;
use crate::content::pages_of;
use crate::placement::{PlugWrites, place_write};
use crate::write::space::Blocks;
use crate::{Error, Result};

/// Most pages of one batch: 8 MiB. A multiple of the pages of any block.
pub(crate) const BATCH_PAGES: usize = 2048;

impl FileCache {
    /// Write back the dirty pages of a range of bytes, which the caller holds. Returns how many.
    pub(crate) fn write_back(&self, range: Range<u64>, flags: BioFlags) -> Result<usize> {
        let mut pages = pages_of(range.start, range.end);
        if self.pages.dirty() == 0 {
            return Ok(0);
        }
        // What a sync writes is waited for once, and nothing follows it.
        let flags = if flags.contains(BioFlags::SYNC) { flags | BioFlags::NO_IDLE } else { flags };
        let mut written = 0;
        loop {
            let _one_at_a_time = self.one_write_back.lock();
            let mut batch = self.pages.dirty_in(pages.clone(), BATCH_PAGES);
            self.cut_at_block(&mut batch);
            let Some((last, _)) = batch.last() else { return Ok(written) };
            pages.start = last + 1;
            self.engine.counters.pages_scanned.add(batch.len() as u64);
            work(Work::Page(batch.len() as u64));
            let result = self.write_batch(&batch, flags);
            self.end_batch(&batch, flags, result)?;
            written += batch.len();
        }
    }

    /// A batch was written with this result: it is clean, or stays dirty.
    pub(crate) fn end_batch(
        &self,
        batch: &[(u64, PageState)],
        flags: BioFlags,
        result: Result<()>,
    ) -> Result<()> {
        let result = match result {
            Err(error) if error.is_no_space() => self.write_by_blocks(batch, flags),
            result => result.inspect(|()| self.mark_clean(batch)),
        };
        result.map_err(|error| Error::WriteBack(self.retry.failed(error)))
    }

    /// A block that is larger than a page is written as a whole: a full batch ends before the block that it cuts.
    pub(crate) fn cut_at_block(&self, batch: &mut Vec<(u64, PageState)>) {
        let per_block = self.store.map.block_size() / PAGE_SIZE;
        if batch.len() < BATCH_PAGES || per_block <= 1 {
            return;
        }
        if let Some((last, _)) = batch.last() {
            let block = last / per_block;
            if (last + 1) % per_block != 0 {
                batch.retain(|(page, _)| page / per_block < block);
            }
        }
    }

    /// The memory of the pages of a batch.
    pub(crate) fn frames_of(&self, batch: &[(u64, PageState)]) -> Vec<FrameRead<'_>> {
        let arena = &self.engine.cache.arena;
        let frame = |(_, state): &(u64, PageState)| arena.read(state.frame);
        batch
            .iter()
            .map(|page| frame(page).expect("no thread writes a page of a range that is held"))
            .collect()
    }

    /// The dirty parts of the pages of a batch: ranges of the file, and their memory.
    pub(crate) fn dirty_parts<'f>(
        &self,
        batch: &[(u64, PageState)],
        frames: &'f [FrameRead<'_>],
    ) -> (Vec<Range<u64>>, Vec<&'f [u8]>) {
        let part = self.part_size();
        let mut parts: Vec<Range<u64>> = Vec::new();
        let mut segments: Vec<&[u8]> = Vec::with_capacity(batch.len());
        for ((page, state), frame) in batch.iter().zip(frames) {
            let mut at = 0;
            while at < PAGE_SIZE / part {
                if state.dirty >> at & 1 == 0 {
                    at += 1;
                    continue;
                }
                let run = u64::from((state.dirty >> at).trailing_ones());
                let bytes = at * part..(at + run) * part;
                segments.push(&frame[bytes.start as usize..bytes.end as usize]);
                let (start, end) = (page * PAGE_SIZE + bytes.start, page * PAGE_SIZE + bytes.end);
                match parts.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => parts.push(start..end),
                }
                at += run;
            }
        }
        (parts, segments)
    }

    pub(crate) fn write_batch(&self, batch: &[(u64, PageState)], flags: BioFlags) -> Result<()> {
        let frames = self.frames_of(batch);
        let (parts, segments) = self.dirty_parts(batch, &frames);
        let Some(end) = parts.last().map(|last| last.end) else { return Ok(()) };
        let device = self.store.device();
        let mut blocks = Blocks::claimed(&self.engine);
        let mut target = PlugWrites::new(device.geometry(), flags, segments.into_iter(), &self.engine.zeros);
        let placed = place_write(&*self.store.map, &parts, &mut blocks, &mut target)?;
        let summary = target.submit(device)?;
        self.engine.counters.bios.add(summary.bios);
        self.engine.counters.writeback_bios.add(summary.bios);
        self.engine.counters.writeback_pages.add(batch.len() as u64);
        self.store.commit_written_back(placed.commit, end, flags)
    }

    /// Write a batch a block at a time, each recorded before the next. Where space is short the batch as a whole may not find what it
    /// asks for: each mapping of it reserves for the mapping as if it stood alone.
    pub(crate) fn write_by_blocks(&self, batch: &[(u64, PageState)], flags: BioFlags) -> Result<()> {
        let per_block = (self.store.map.block_size() / PAGE_SIZE).max(1);
        let mut result = Ok(());
        for pages in batch.chunk_by(|(a, _), (b, _)| a / per_block == b / per_block) {
            let written = self.write_batch(pages, flags).inspect(|()| self.mark_clean(pages));
            result = result.and(written);
        }
        result
    }

    /// The batch is on the device.
    fn mark_clean(&self, batch: &[(u64, PageState)]) {
        let mut claimed = 0;
        let mut at = 0;
        while at < batch.len() {
            let mut next = at + 1;
            while next < batch.len() && batch[next].0 == batch[next - 1].0 + 1 {
                next += 1;
            }
            self.pages.update(batch[at].0..batch[next - 1].0 + 1, |_, state| {
                claimed += u64::from(state.claimed);
                (state.dirty, state.claimed) = (0, 0);
            });
            at = next;
        }
        if claimed > 0 {
            self.store.map.release_claim(claimed);
        }
    }
}

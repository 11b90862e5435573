//! A file's content: one per inode, shared by everyone who has it open.
//!
//! Where it sits: above, the handles (`file.rs`, `queue.rs`); below, the page cache and [`MapBlocks`]. Buffered I/O is in
//! `cached_read.rs`, `cached_write.rs` and `write_back.rs`, direct I/O in `direct/`, what all writes share in `write/`, changes of size
//! and holes in `resize.rs`.
//!
//! Interface:
//! - The size in memory (`size`) is what readers see; [`MapBlocks::recorded_size`] follows when data is written back.
//! - Ranges are locked in units of [`Content::unit`]: whole pages and whole blocks.
//!
//! Invariants:
//! 1. Page content is read under a shared range lock and changed under an exclusive one.
//! 2. Bytes of a cached page at or after the size are zero.
//! 3. A dirty part whose block is a hole has a claim on it.
//!
//! Locking: in the order of [`Rank`]. No thread that holds a range waits for a range of another file.

mod cached_read;
mod cached_write;
pub(crate) mod engine;
mod errors;
#[cfg(test)]
pub(crate) mod model_tests;
mod read_ahead;
mod resize;
mod seek;
mod shift;
#[cfg(test)]
pub(crate) mod toy_map;
pub(crate) mod workers;
mod write_back;
mod write_back_together;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use diorite_block::Geometry;
use diorite_block::sync::{Mutex, Rank};

use crate::cache::arena::PAGE_SIZE;
use crate::cache::pages::Pages;
use crate::map::{MapBlocks, SyncKind, WriteCommit};
use crate::range_lock::RangeLock;
use crate::write::Position;
use crate::{ContentTimes, Error, Result, SetTime, Timestamp};
use engine::Engine;
pub(crate) use errors::{ErrorLatch, ErrorsSeen};
pub(crate) use read_ahead::ReadAhead;
pub(crate) use resize::BeyondEnd;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) map: Box<dyn MapBlocks>,
    pub(crate) engine: Arc<Engine>,
    size: AtomicU64,
    pub(crate) ranges: RangeLock,
    pub(crate) pages: Arc<Pages>,
    pub(crate) append: Mutex<()>,
    writing_back: Mutex<()>,
    /// When the content changed last, as long as that is not recorded.
    modified: Mutex<Option<Timestamp>>,
    /// Held across the commit that records a modification time, so that one set by hand is not overwritten by an older one.
    recording_times: Mutex<()>,
    pub(crate) errors: ErrorLatch,
    /// See `write/end.rs`.
    pub(crate) end_is_zero: AtomicBool,
    /// The content may lie in the inode.
    may_be_inline: AtomicBool,
}

impl Content {
    /// The content of a file as it is recorded now.
    pub(crate) fn new(map: Box<dyn MapBlocks>, engine: Arc<Engine>) -> Result<Arc<Self>> {
        let logical = u64::from(map.device().geometry().logical_block_size);
        if logical > PAGE_SIZE || map.block_size() < logical || map.block_size() > engine.zeros.len() as u64 {
            return Err(Error::Unsupported(
                "devices with logical blocks larger than 4096 bytes are not supported",
            ));
        }
        let is_inline = map.is_inline()?;
        let pages = Arc::new(Pages::new(Arc::clone(&engine.cache.dirty_total)));
        Ok(Arc::new(Self {
            size: AtomicU64::new(map.recorded_size()),
            map,
            engine,
            ranges: RangeLock::default(),
            pages,
            append: Mutex::ranked(Rank::Append, ()),
            writing_back: Mutex::ranked(Rank::WritingBack, ()),
            modified: Mutex::ranked(Rank::Modified, None),
            recording_times: Mutex::ranked(Rank::RecordingTimes, ()),
            errors: ErrorLatch::default(),
            end_is_zero: AtomicBool::new(false),
            may_be_inline: AtomicBool::new(is_inline),
        }))
    }

    /// A number that no other content of the engine has.
    pub(crate) fn id(&self) -> u64 {
        self.pages.id()
    }

    /// The size that readers see.
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// The size is at least `end` now.
    pub(crate) fn grow(&self, end: u64) {
        self.size.fetch_max(end, Ordering::AcqRel);
    }

    /// The device's geometry.
    pub(crate) fn geometry(&self) -> &Geometry {
        self.map.device().geometry()
    }

    /// Unit in which ranges are locked: whole pages and whole blocks.
    pub(crate) fn unit(&self) -> u64 {
        self.map.block_size().max(PAGE_SIZE)
    }

    /// A range rounded outwards to [`Content::unit`].
    pub(crate) fn locked_range(&self, start: u64, end: u64) -> Range<u64> {
        let unit = self.unit();
        start / unit * unit..end.checked_next_multiple_of(unit).unwrap_or(u64::MAX)
    }

    /// The end of a write of `len` bytes at `offset`, if the file can have it.
    pub(crate) fn end_of_write(&self, offset: u64, len: u64) -> Result<u64> {
        let max_bytes = self.map.max_size();
        match offset.checked_add(len) {
            Some(end) if end <= max_bytes => Ok(end),
            _ => Err(diorite_ext::Error::FileTooLarge { max_bytes }.into()),
        }
    }

    /// The content changed now.
    pub(crate) fn note_modified(&self) {
        if self.engine.content_times == ContentTimes::ByCaller {
            return;
        }
        *self.modified.lock() = Some(self.engine.clock.now());
    }

    /// When the content changed last, if that is not recorded yet.
    pub(crate) fn modified(&self) -> Option<Timestamp> {
        *self.modified.lock()
    }

    /// Set attributes with `set`, which follows every modification time that is pending now: that is recorded first, or forgotten
    /// where `set` sets one itself.
    pub(crate) fn with_times_recorded(
        &self,
        sets_modified: bool,
        set: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if !sets_modified {
            self.record(SyncKind::All)?;
            return set();
        }
        let _recording = self.recording_times.lock();
        let pending = self.modified();
        set()?;
        self.forget_modified(pending);
        Ok(())
    }

    /// This pending time is recorded, or one was set by hand. A later one stays.
    fn forget_modified(&self, recorded: Option<Timestamp>) {
        let mut modified = self.modified.lock();
        if *modified == recorded {
            *modified = None;
        }
    }

    /// Where a write goes, as the file is now.
    pub(crate) fn offset_of(&self, position: Position) -> u64 {
        if let Position::At(offset) = position { offset } else { self.size() }
    }

    /// Record a finished write, with the pending modification time.
    pub(crate) fn record_commit(&self, mut commit: WriteCommit) -> Result<()> {
        if commit.is_empty() {
            return Ok(());
        }
        let _recording = self.recording_times.lock();
        let pending = self.modified();
        commit.modified = pending.map(SetTime::To).or(commit.modified);
        self.map.commit(commit)?;
        self.forget_modified(pending);
        Ok(())
    }

    /// The file is gone, and with it what could not be written of it.
    pub(crate) fn forget_errors(&self) {
        let _ = self.errors.take_unreported();
    }

    /// Drop all cached pages without writing them back.
    pub(crate) fn discard(&self) {
        let _range = self.ranges.exclusive(0..u64::MAX);
        self.drop_pages(0..u64::MAX);
        self.engine.forget_if_clean(self);
    }

    /// Write back the dirty pages of a range of bytes and drop its pages.
    pub(crate) fn write_back_and_drop(&self, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let range = self.locked_range(offset, offset.saturating_add(len));
        let _range = self.ranges.exclusive(range.clone());
        self.write_back_locked(range.clone(), diorite_block::BioFlags::SYNC)?;
        self.drop_pages(pages_of(range.start, range.end));
        Ok(())
    }

    /// Drop the clean pages.
    pub(crate) fn drop_clean(&self) {
        let _range = self.ranges.exclusive(0..u64::MAX);
        let removed = self.pages.remove_clean(0..u64::MAX);
        self.engine.cache.release(removed.iter().map(|state| state.frame));
    }

    /// Drop the pages of a range (in pages), dirty or not, and their claims. The caller has the range exclusively.
    pub(crate) fn drop_pages(&self, pages: Range<u64>) {
        let removed = self.pages.remove(pages);
        if removed.is_empty() {
            return;
        }
        let claimed: u64 = removed.iter().map(|state| u64::from(state.claimed)).sum();
        if claimed > 0 {
            self.map.release_claim(claimed);
        }
        self.engine.counters.invalidated_pages.add(removed.len() as u64);
        self.engine.counters.pages_scanned.add(removed.len() as u64);
        diorite_block::sync::work(diorite_block::sync::Work::Page(removed.len() as u64));
        self.engine.cache.release(removed.iter().map(|state| state.frame));
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        if let Some(error) = self.errors.take_unreported() {
            self.engine.errors.set(error);
        }
        self.drop_pages(0..u64::MAX);
    }
}

/// The pages that a range of bytes touches.
pub(crate) fn pages_of(start: u64, end: u64) -> Range<u64> {
    start / PAGE_SIZE..end.div_ceil(PAGE_SIZE)
}

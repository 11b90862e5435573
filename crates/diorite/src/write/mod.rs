//! The path of every write to the device: direct, through aligned memory, queued, and the write-back of cached pages.
//!
//! Where it sits: below the ways to write (`direct/`, `queue/`, `content/cached_write.rs`, `content/file_cache/write_back.rs`), above the walk over
//! mappings (`placement.rs`) and [`MapBlocks`](crate::map::MapBlocks).
//!
//! The steps, in this order (ARCHITECTURE, "The path of a direct write"):
//! 1. *Lock range* ([`Content::lock_range`]), exclusively. If the file grows, the rest of its last block is zero on the device from
//!    then on (`end.rs`).
//! 2. *Settle cached pages* ([`Content::settle_cached_pages`]): dirty ones are written back, all are dropped.
//! 3. *Reserve* blocks for holes, in memory ([`place_write`], `space.rs`).
//! 4. *Zero the rest of new blocks*: the same walk adds zeros around the data.
//! 5. *Submit*, and wait: with memory that is borrowed in the same call; of a queued write the rest follows when it is reaped.
//! 6. *Commit* ([`BackingStore::commit_written`]): one transaction allocates, maps and sizes (ARCHITECTURE invariant 5).
//! 7. *Invalidate* ([`Content::invalidate`]): cached pages of the range are dropped once more.
//! 8. *Make durable* ([`BackingStore::make_durable`], `durable.rs`), as far as the handle wants it.
//!
//! Parts of one append that were announced as such commit in the order of their offsets (`parts.rs`).
//!
//! Write-back holds its range shared, its pages are the data, and in place of 7 they become clean.

mod atomic;
pub(crate) mod bounce;
pub(crate) mod durable;
mod end;
pub(crate) mod parts;
pub(crate) mod space;

use std::io::IoSlice;
use std::ops::Range;

use diorite_block::sync::{Work, work};
use diorite_block::{Bio, BioFlags};

use crate::content::store::BackingStore;
use crate::content::{Content, pages_of};
use crate::map::{SyncKind, WriteCommit};
use crate::placement::{PlugWrites, place_write};
use crate::range_lock::{LockId, LockMode, RangeGuard};
use crate::{Error, IoFlags, Result};
use durable::Durable;
pub use parts::AnnouncedWrite;
use parts::Turn;
use space::Blocks;

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// To this offset.
    At(u64),
    /// To this offset, which must not lie before the end once the range is locked: of an append-only file.
    NotBeforeEnd(u64),
    /// To the end, wherever that is.
    End,
}

impl Position {
    /// Where that is in a file of this size.
    pub(crate) fn offset(self, size: u64) -> u64 {
        match self {
            Self::At(offset) | Self::NotBeforeEnd(offset) => offset,
            Self::End => size,
        }
    }

    /// Whether a write may go there.
    pub(crate) fn check(self, size: u64) -> Result<()> {
        match self {
            Self::NotBeforeEnd(offset) if offset < size => {
                Err(diorite_ext::Error::NotPermitted("append-only").into())
            }
            _ => Ok(()),
        }
    }
}

/// How a write is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteMode {
    /// What is durable when it returns.
    pub(crate) sync: Option<SyncKind>,
    pub(crate) flags: IoFlags,
}

impl From<Option<SyncKind>> for WriteMode {
    fn from(sync: Option<SyncKind>) -> Self {
        Self { sync, flags: IoFlags::NONE }
    }
}

/// What became of a write.
#[derive(Debug)]
pub(crate) struct Written {
    /// Where it went.
    pub(crate) offset: u64,
    /// How much was written.
    pub(crate) len: usize,
    /// Why that is not all: the space ended.
    pub(crate) stopped: Option<Error>,
}

impl Written {
    /// What was written up to `end`, where it stopped; an error that is not for lack of space, or with nothing written, is the result.
    pub(crate) fn up_to(offset: u64, end: u64, stopped: Option<Error>) -> Result<Self> {
        match stopped {
            Some(error) if end == offset || !error.is_out_of_space() => Err(error),
            stopped => Ok(Self { offset, len: (end - offset) as usize, stopped }),
        }
    }
}

/// The range of a write, locked.
#[derive(Clone, Debug)]
pub(crate) struct WriteRange {
    /// The bytes that are written.
    pub(crate) offset: u64,
    pub(crate) end: u64,
    /// Whole pages and blocks around them.
    pub(crate) whole: Range<u64>,
}

/// Bytes of all segments.
pub(crate) fn len_of(data: &[IoSlice<'_>]) -> u64 {
    data.iter().map(|segment| segment.len() as u64).sum()
}

/// Bytes from `skip` on, segment by segment.
pub(crate) fn bytes_from<'a>(
    data: &'a [IoSlice<'a>],
    mut skip: usize,
) -> impl Iterator<Item = &'a [u8]> + Clone {
    let is_before = |segment: &&IoSlice<'_>| {
        let is_before = segment.len() <= skip;
        skip -= if is_before { segment.len() } else { 0 };
        is_before
    };
    let first = data.iter().take_while(is_before).count();
    data[first..].iter().enumerate().map(move |(at, segment)| &segment[if at == 0 { skip } else { 0 }..])
}

impl Content {
    /// Step 1, for a caller that waits.
    pub(crate) fn lock_range(&self, position: Position, len: u64) -> Result<(WriteRange, RangeGuard<'_>)> {
        let _append = (position == Position::End).then(|| self.append.lock());
        let acquire = |range| Ok(self.ranges.acquire(range, LockMode::Exclusive));
        let (range, id) = self.lock_range_with(position, len, acquire)?;
        Ok((range, self.ranges.guard(id)))
    }

    /// Step 1, with the caller's way to wait for a range. The caller releases what is locked.
    pub(crate) fn lock_range_with(
        &self,
        position: Position,
        len: u64,
        mut acquire: impl FnMut(Range<u64>) -> Result<LockId>,
    ) -> Result<(WriteRange, LockId)> {
        loop {
            let size = self.store.size();
            let offset = position.offset(size);
            let end = self.store.end_of_write(offset, len)?;
            // The first write by which the file grows also has the block in which it ends.
            let start = if end > size && self.locks_the_end() { offset.min(size) } else { offset };
            let id = acquire(self.store.locked_range(start, end))?;
            let guard = self.ranges.guard(id);
            let size = self.store.size();
            position.check(size)?;
            // The end may have moved before the lock was ours.
            if position == Position::End && size != offset {
                continue;
            }
            if end > size && self.locks_the_end() {
                if size < start {
                    continue;
                }
                self.store.zero_end()?;
            }
            guard.keep();
            return Ok((WriteRange { offset, end, whole: self.store.locked_range(offset, end) }, id));
        }
    }

    /// Whether a write by which the file grows locks the range from its end on.
    fn locks_the_end(&self) -> bool {
        !self.store.end_is_zero()
    }

    /// Step 2. The caller has the range exclusively.
    pub(crate) fn settle_cached_pages(&self, range: &Range<u64>) -> Result<()> {
        self.cache.settle(range)
    }

    /// Step 7. Nothing can have come between, by the lock; this is what holds if that ever changes.
    pub(crate) fn invalidate(&self, range: &Range<u64>) {
        self.cache.drop_pages(pages_of(range.start, range.end));
    }

    /// All steps of a write whose caller waits: `check` looks at the offset, `window` as in [`Blocks::write_windows`]. Less than all of
    /// `data` is written only when the volume filled up on the way.
    pub(crate) fn write_through(
        &self,
        data: &[IoSlice<'_>],
        position: Position,
        mode: WriteMode,
        check: impl Fn(u64) -> Result<()>,
        window: impl FnMut(&WriteRange, u64, &mut Blocks<'_>) -> Result<u64>,
    ) -> Result<Written> {
        let offset = self.store.offset_of(position);
        let len = len_of(data);
        if len == 0 {
            return Ok(Written { offset, len: 0, stopped: None });
        }
        check(offset)?;
        let Some(turn) = self.store.parts.claim_at(position, len) else {
            return self.write_steps(data, position, mode, None, check, window);
        };
        let written = self.write_steps(data, position, mode, Some(&turn), check, window);
        if let Ok(Written { stopped: Some(error), .. }) | Err(error) = &written {
            turn.fail(error);
        }
        written
    }

    fn write_steps(
        &self,
        data: &[IoSlice<'_>],
        position: Position,
        mode: WriteMode,
        turn: Option<&Turn<'_>>,
        check: impl Fn(u64) -> Result<()>,
        mut window: impl FnMut(&WriteRange, u64, &mut Blocks<'_>) -> Result<u64>,
    ) -> Result<Written> {
        let len = len_of(data);
        let no_wait = mode.flags.contains(IoFlags::NOWAIT);
        if let Some(turn) = turn {
            turn.wait_to_lock(self.locks_the_end())?;
        }
        let (range, lock) =
            if no_wait { self.try_lock_write(position, len)? } else { self.lock_range(position, len)? };
        check(range.offset)?;
        turn.inspect(|turn| turn.note_range());
        if no_wait {
            self.check_settled(&pages_of(range.whole.start, range.whole.end))?;
            self.check_mapped(range.offset..range.end)?;
        }
        self.store.move_out_of_inode()?;
        self.settle_cached_pages(&range.whole)?;
        if mode.flags.contains(IoFlags::ATOMIC) {
            self.store.prepare_atomic(&range)?;
        }
        let mut blocks = Blocks::unclaimed(&self.engine).in_turn(turn);
        let (end, stopped) =
            blocks.write_windows(range.offset, range.end, |at, blocks| window(&range, at, blocks));
        drop(blocks);
        if end > range.offset {
            self.store.grow(end);
        }
        self.invalidate(&range.whole);
        if let Some(turn) = turn.filter(|_| end == range.end) {
            turn.finish();
        }
        drop(lock);
        let written = Written::up_to(range.offset, end, stopped)?;
        self.store.make_durable(mode.sync, Durable::ByFua)?;
        Ok(written)
    }
}

impl BackingStore {
    /// The flags of a write's bios.
    pub(crate) fn write_flags(&self, mode: impl Into<WriteMode>) -> BioFlags {
        let mode = mode.into();
        let mut flags = BioFlags::SYNC;
        if mode.sync.is_some() && self.geometry().fua {
            flags |= BioFlags::FUA;
        }
        if mode.flags.contains(IoFlags::ATOMIC) {
            flags |= BioFlags::ATOMIC;
        }
        flags
    }

    /// Step 6. The write ends at `end`; the caller has its range, and lets the file [grow](BackingStore::grow) when all of the write is
    /// recorded.
    pub(crate) fn commit_written(&self, mut commit: WriteCommit, end: u64) -> Result<()> {
        commit.size_at_least = (end > self.map.recorded_size()).then_some(end);
        self.note_modified();
        self.commit(commit)
    }

    /// Step 6 of write-back. The data is recorded, and the size up to its `end`; the time of the change as well, where no sync asked for the
    /// write-back: a sync records it if it is to.
    pub(crate) fn commit_written_back(
        &self,
        mut commit: WriteCommit,
        end: u64,
        flags: BioFlags,
    ) -> Result<()> {
        let end = end.min(self.size());
        commit.size_at_least = (end > self.map.recorded_size()).then_some(end);
        self.commit(commit)?;
        if !flags.contains(BioFlags::SYNC) && self.time.get().is_some() {
            // An overwrite records nothing else. The volume latches what fails here: the data is on the device all the same.
            let _ = self.record_time();
        }
        Ok(())
    }

    /// Steps 5 and 6 of an overwrite within the file that is one bio: what small writes at random places mostly are. `false` where the write
    /// is something else.
    fn overwrite_one(&self, window: &Range<u64>, memory: &[u8], flags: BioFlags) -> Result<bool> {
        let len = window.end - window.start;
        // Beyond it, also in its last block, the mapping has a say: a file of the host would stay longer.
        if window.end > self.map.recorded_size() {
            return Ok(false);
        }
        let Some(sector) = self.whole_on_device(window.start, len)? else { return Ok(false) };
        self.map.check_process()?;
        work(Work::Submit(1));
        let mut bio = Bio::write(sector, &memory[..len as usize], flags);
        self.device().execute(std::slice::from_mut(&mut bio))?;
        self.engine.counters.bios.add(1);
        self.engine.counters.direct_bios.add(1);
        // Nothing to record but the time.
        self.note_modified();
        Ok(true)
    }

    /// Steps 3 to 6 for one range of borrowed memory, of which the file takes what lies before `end`. Returns where what was written
    /// ends; the size that others see is left to the caller, who may have more to write.
    pub(crate) fn write_window<'a>(
        &'a self,
        window: Range<u64>,
        segments: impl Iterator<Item = &'a [u8]> + Clone,
        end: u64,
        blocks: &mut Blocks<'_>,
        flags: BioFlags,
    ) -> Result<u64> {
        if let Some(memory) = segments.clone().next()
            && memory.len() as u64 >= window.end - window.start
            && self.overwrite_one(&window, memory, flags)?
        {
            return Ok(end);
        }
        self.map.check_quota(window.start, end - window.start)?;
        let geometry = self.geometry();
        let mut target = PlugWrites::new(geometry, flags, segments, &self.engine.zeros);
        let placed = place_write(&*self.map, std::slice::from_ref(&window), blocks, &mut target)?;
        if flags.contains(BioFlags::ATOMIC) && target.bios() != 1 {
            return Err(Error::Unsupported(
                "the memory of an atomic write has too many segments for one transfer",
            ));
        }
        let summary = target.submit(self.device())?;
        self.engine.counters.bios.add(summary.bios);
        self.engine.counters.direct_bios.add(summary.bios);
        let end = placed.end.min(end);
        blocks.wait_for_turn()?;
        self.commit_written(placed.commit, end)?;
        Ok(end)
    }
}

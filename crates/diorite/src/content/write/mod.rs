//! The common part of all writes to the device: positions, ranges, and the steps of a write ([`WriteOp`]).
//!
//! Where it sits: below the ways to write (`direct/`, `cached_write.rs`, queues), above the transfers of the backing store.

mod atomic;
pub(crate) mod bounce;
pub(crate) mod op;

use std::io::IoSlice;
use std::ops::Range;

use diorite_block::BioFlags;

use crate::content::{Content, pages_of};
use crate::store::backing::BackingStore;
use crate::store::map::SyncKind;
use crate::store::range_lock::{LockId, LockMode};
use crate::{Error, IoFlags, Result};
pub(crate) use op::{Step, WriteOp};

/// The position of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// To this offset.
    At(u64),
    /// To this offset, which must not lie before the end once the range is locked: of an append-only file.
    NotBeforeEnd(u64),
    /// To the end of the file.
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
    /// The durability when it returns.
    pub(crate) sync: Option<SyncKind>,
    pub(crate) flags: IoFlags,
}

impl From<Option<SyncKind>> for WriteMode {
    fn from(sync: Option<SyncKind>) -> Self {
        Self { sync, flags: IoFlags::NONE }
    }
}

/// The result of a write.
#[derive(Debug)]
pub(crate) struct Written {
    /// Where it went.
    pub(crate) offset: u64,
    /// How much was written.
    pub(crate) len: usize,
    /// Why the write is short: the volume is full.
    pub(crate) stopped: Option<Error>,
}

impl Written {
    /// A write that stopped at `end`. The error is the result if no byte was written, or if it is not for lack of
    /// space.
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

/// The range that a write must lock.
#[derive(Clone, Debug)]
pub(crate) struct WantedRange {
    position: Position,
    offset: u64,
    end: u64,
    /// Whole pages and blocks; from the end of the file on, where that must be zeroed.
    pub(crate) lock: Range<u64>,
}

/// The range of a write, and its lock, which the owner releases.
#[derive(Debug)]
pub(crate) struct LockedRange {
    pub(crate) range: WriteRange,
    pub(crate) id: LockId,
}

impl Content {
    /// Lock the range of a write exclusively.
    pub(crate) fn lock_range(&self, position: Position, len: u64) -> Result<LockedRange> {
        let _append = (position == Position::End).then(|| self.append.lock());
        loop {
            let wanted = self.wanted_range(position, len)?;
            let id = self.store.ranges.acquire(wanted.lock.clone(), LockMode::Exclusive);
            if let Some(locked) = self.confirm_range(&wanted, id)? {
                return Ok(locked);
            }
        }
    }

    /// The range that a write of `len` bytes must lock, with the current size of the file.
    pub(crate) fn wanted_range(&self, position: Position, len: u64) -> Result<WantedRange> {
        let size = self.store.size();
        let offset = position.offset(size);
        let end = self.store.end_of_write(offset, len)?;
        // The first write by which the file grows also has the block in which it ends.
        let start = if end > size && !self.store.end_is_zero() { offset.min(size) } else { offset };
        Ok(WantedRange { position, offset, end, lock: self.store.locked_range(start, end) })
    }

    /// Check a locked range. `None`: the end of the file has moved before it was locked, and another range is needed.
    /// The lock is released then, and after an error.
    pub(crate) fn confirm_range(&self, wanted: &WantedRange, id: LockId) -> Result<Option<LockedRange>> {
        let guard = self.store.ranges.guard(id);
        let size = self.store.size();
        wanted.position.check(size)?;
        if wanted.position == Position::End && size != wanted.offset {
            return Ok(None);
        }
        if wanted.end > size && !self.store.end_is_zero() {
            if size < wanted.lock.start {
                return Ok(None);
            }
            self.store.zero_end()?;
        }
        let whole = self.store.locked_range(wanted.offset, wanted.end);
        let range = WriteRange { offset: wanted.offset, end: wanted.end, whole };
        Ok(Some(LockedRange { range, id: guard.keep() }))
    }

    /// Write back and drop the cached pages of a range. The caller has it exclusively.
    pub(crate) fn settle_cached_pages(&self, range: &Range<u64>) -> Result<()> {
        self.cache.settle(range)
    }

    /// Drop the cached pages of a range that was written. The lock excludes other pages; this is the second half of a
    /// paired check.
    pub(crate) fn invalidate(&self, range: &Range<u64>) {
        self.cache.drop_pages(pages_of(range.start, range.end));
    }
}

impl BackingStore {
    /// The offset of a write, with the current size of the file.
    pub(crate) fn offset_of(&self, position: Position) -> u64 {
        position.offset(self.size())
    }

    /// The flags of a write's bios.
    pub(crate) fn write_flags(&self, mode: WriteMode) -> BioFlags {
        let mut flags = BioFlags::SYNC;
        if mode.sync.is_some() && self.geometry().fua {
            flags |= BioFlags::FUA;
        }
        if mode.flags.contains(IoFlags::ATOMIC) {
            flags |= BioFlags::ATOMIC;
        }
        flags
    }
}

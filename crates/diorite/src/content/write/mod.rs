//! The common part of all writes to the device: positions, ranges, and the steps of a write ([`WriteOp`]).
//!
//! Where it sits: below the ways to write (`direct/`, `cached/`, queues), above the transfers of the backing store.

mod atomic;
pub(crate) mod bounce;
pub(crate) mod op;

use std::io::IoSlice;
use std::ops::Range;

use diorite_block::BioFlags;

use crate::content::Content;
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
    /// This position as an offset in a file of this size.
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

/// The durability and the flags of a write.
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
    /// The offset of the write.
    pub(crate) offset: u64,
    /// The number of bytes written.
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

impl WantedRange {
    /// The range that a write of `len` bytes must lock, with the current size of the file.
    pub(crate) fn new(store: &BackingStore, position: Position, len: u64) -> Result<Self> {
        let size = store.size();
        let offset = position.offset(size);
        let end = store.end_of_write(offset, len)?;
        // The first write by which the file grows also has the block in which it ends.
        let start = if end > size && !store.end_is_zero() { offset.min(size) } else { offset };
        Ok(Self { position, offset, end, lock: store.locked_range(start, end) })
    }

    /// Check the locked range. `None`: the end of the file has moved before it was locked, and another range is
    /// needed. The lock is released then, and after an error.
    pub(crate) fn confirm(&self, store: &BackingStore, id: LockId) -> Result<Option<LockedRange>> {
        let guard = store.ranges.guard(id);
        let size = store.size();
        self.position.check(size)?;
        if self.position == Position::End && size != self.offset {
            return Ok(None);
        }
        if self.end > size && !store.end_is_zero() {
            if size < self.lock.start {
                return Ok(None);
            }
            store.zero_end()?;
        }
        let whole = store.locked_range(self.offset, self.end);
        let range = WriteRange { offset: self.offset, end: self.end, whole };
        Ok(Some(LockedRange { range, id: guard.keep() }))
    }
}

impl Content {
    /// Lock the range of a write exclusively.
    pub(crate) fn lock_range(&self, position: Position, len: u64) -> Result<LockedRange> {
        let _append = (position == Position::End).then(|| self.append.lock());
        loop {
            let wanted = WantedRange::new(&self.store, position, len)?;
            let id = self.store.ranges.acquire(wanted.lock.clone(), LockMode::Exclusive);
            if let Some(locked) = wanted.confirm(&self.store, id)? {
                return Ok(locked);
            }
        }
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

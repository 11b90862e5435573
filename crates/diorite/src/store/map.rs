//! The one seam between moving data and knowing where it is: a file's ranges as ranges of a device.
//!
//! Where it sits: above, the page cache and direct I/O, which both walk [`MapBlocks::map`] and know no format. Below,
//! a volume's file, a whole device, or a file of the host.
//!
//! Interface:
//! - Offsets and lengths are bytes; those of mappings are multiples of [`MapBlocks::block_size`].
//! - A write reserves blocks for holes ([`MapBlocks::reserve`]), moves the data, and then records it
//!   ([`MapBlocks::commit`]). A reservation that is dropped without that never happened.
//! - A mapping is valid while the caller holds the range lock that it was asked under, and no longer.
//!
//! Locking: callers hold the range lock; implementations take their own locks inside and call nothing above.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use diorite_block::{BlockDevice, Sector};

use crate::{Error, Result, SetTime};

/// What a mapping of a file is on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MappingKind {
    /// No blocks; reads as zeros.
    Hole,
    /// Data, from this sector on.
    Mapped(Sector),
    /// Allocated from this sector on and never written; reads as zeros.
    Unwritten(Sector),
    /// The content is stored with the metadata: [`MapBlocks::read_inline`].
    Inline,
}

/// A range of a file that is one thing on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes, at least one block.
    pub len: u64,
    /// What it is.
    pub kind: MappingKind,
}

impl Mapping {
    /// First byte after the mapping.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// What of it lies in `range`, which it overlaps.
    pub(crate) fn within(self, range: &Range<u64>) -> Self {
        let offset = self.offset.max(range.start);
        let skipped = offset - self.offset;
        let kind = match self.kind {
            MappingKind::Mapped(first) => MappingKind::Mapped(first.after_bytes(skipped)),
            MappingKind::Unwritten(first) => MappingKind::Unwritten(first.after_bytes(skipped)),
            kind => kind,
        };
        let end = self.end().min(range.end);
        assert!(offset < end, "a mapping overlaps the range that was asked for");
        Self { offset, len: end - offset, kind }
    }
}

impl dyn MapBlocks + '_ {
    /// The mappings of a range, in file order, cut to it.
    pub(crate) fn mappings(&self, range: Range<u64>) -> impl Iterator<Item = Result<Mapping>> {
        let mut rest = range;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let mapping = match self.map(rest.start, rest.end - rest.start) {
                Ok(mapping) => mapping.within(&rest),
                Err(error) => {
                    rest.start = rest.end;
                    return Some(Err(error));
                }
            };
            rest.start = mapping.end();
            Some(Ok(mapping))
        })
    }
}

/// Blocks kept for a range that is about to be written; given back when dropped without [`MapBlocks::commit`].
#[derive(Debug)]
pub(crate) struct Reserved {
    /// The blocks, in file order.
    pub runs: Vec<ReservedRun>,
    /// What the implementation needs to know of them.
    pub token: Box<dyn ReservationToken>,
}

/// Blocks on the device kept for a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReservedRun {
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// First sector on the device.
    pub sector: Sector,
}

/// An implementation's own part of a [`Reserved`].
pub(crate) trait ReservationToken: Any + Send + fmt::Debug {
    /// Whether space was so short that what the mapping needs was counted rather than promised at its most: another change of the
    /// file before the commit may make it more.
    fn is_counted(&self) -> bool {
        false
    }
    /// The value as its own type.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// What a finished write records.
#[derive(Debug, Default)]
pub(crate) struct WriteCommit {
    /// Reserved blocks that have been written.
    pub reserved: Vec<Reserved>,
    /// Unwritten ranges (offset, length) that have been written.
    pub converted: Vec<(u64, u64)>,
    /// The size is at least this now.
    pub size_at_least: Option<u64>,
    /// New modification time.
    pub modified: Option<SetTime>,
}

impl WriteCommit {
    /// Whether there is nothing to record.
    pub(crate) fn is_empty(&self) -> bool {
        self.reserved.is_empty()
            && self.converted.is_empty()
            && self.size_at_least.is_none()
            && self.modified.is_none()
    }
}

pub(crate) use diorite_ext::SyncKind;

/// A file's ranges as ranges of a device. See the module's head.
pub(crate) trait MapBlocks: Send + Sync + fmt::Debug {
    /// The device that the data is on.
    fn device(&self) -> &Arc<dyn BlockDevice>;

    /// Unit of mapping and allocation in bytes: a power of two, at least the device's logical block size.
    fn block_size(&self) -> u64;

    /// The size in bytes as it is recorded.
    fn recorded_size(&self) -> u64;

    /// The largest size that this file can have.
    fn max_size(&self) -> u64;

    /// The mapping at `offset`, at most `len` long (rounded up to whole blocks).
    fn map(&self, offset: u64, len: u64) -> Result<Mapping>;

    /// Whether the content is stored in the inode.
    fn is_inline(&self) -> Result<bool> {
        Ok(self.map(0, 1)?.kind == MappingKind::Inline)
    }

    /// Keep blocks for the holes of a range.
    fn reserve(&self, offset: u64, len: u64) -> Result<Reserved>;

    /// As [`MapBlocks::reserve`], for data that has claimed the blocks: the claims become the reservation, and are given back all the
    /// same when the data is clean.
    fn reserve_claimed(&self, offset: u64, len: u64) -> Result<Reserved> {
        self.reserve(offset, len)
    }

    /// Promise what it takes to record that a range of unwritten blocks has been written; `is_claimed` as in
    /// [`MapBlocks::reserve_claimed`].
    fn reserve_conversion(&self, offset: u64, len: u64, is_claimed: bool) -> Result<Option<Reserved>> {
        let _ = (offset, len, is_claimed);
        Ok(None)
    }

    /// Refuse a write or an allocation of a range for which its owner may not have the blocks (quota).
    fn check_quota(&self, offset: u64, len: u64) -> Result<()> {
        let _ = (offset, len);
        Ok(())
    }

    /// Promise that `blocks` blocks can be reserved later, or converted where they are unwritten, whatever others do.
    fn claim(&self, blocks: u64) -> Result<()>;

    /// Take such a promise back, or a part of it: its blocks are reserved, or no longer wanted.
    fn release_claim(&self, blocks: u64);

    /// Whether this process may write to the blocks of the file: in a volume no forked child may, since its parent gives them to other files.
    fn check_process(&self) -> Result<()> {
        Ok(())
    }

    /// For a transfer up to `end` (whole blocks) into blocks that are there: what must be committed with it, or dropped when it fails,
    /// since it reaches past the recorded end.
    fn reserve_past_end(&self, end: u64) -> Result<Option<Reserved>> {
        let _ = end;
        Ok(None)
    }

    /// Record what has been written. What makes it reachable has a sequence number from then on, which the map keeps:
    /// [`MapBlocks::is_durable`].
    fn commit(&self, commit: WriteCommit) -> Result<()>;

    /// Allocate the holes of a range without writing them; `Unsupported` where a file cannot have unwritten blocks.
    fn allocate(&self, offset: u64, len: u64, size_at_least: Option<u64>) -> Result<()>;

    /// Make whole blocks within the file read as zeros and keep them allocated, with blocks for holes too; `Unsupported` where that
    /// takes writing zeros.
    fn zero(&self, offset: u64, len: u64) -> Result<()> {
        let _ = (offset, len);
        Err(Error::Unsupported("blocks of this file cannot be converted to unwritten ones; write zeros"))
    }

    /// Set the size and give up all blocks beyond. The rest of the last block has been zeroed.
    fn truncate(&self, size: u64) -> Result<()>;

    /// Give up the blocks of a range; it reads as zeros from then on.
    fn punch(&self, offset: u64, len: u64) -> Result<()>;

    /// Take a range of whole blocks out of the file; what follows it moves to the front. Nothing of it is cached.
    fn collapse_range(&self, offset: u64, len: u64) -> Result<()> {
        let _ = (offset, len);
        Err(Error::Unsupported("a range of this file cannot be collapsed"))
    }

    /// Make a hole of whole blocks; what follows it moves towards the end. Nothing of that is cached.
    fn insert_range(&self, offset: u64, len: u64) -> Result<()> {
        let _ = (offset, len);
        Err(Error::Unsupported("a range cannot be inserted into this file"))
    }

    /// The content of a file whose mapping is [`MappingKind::Inline`].
    fn read_inline(&self) -> Result<Vec<u8>> {
        Err(Error::Unsupported("this file has no inline data"))
    }

    /// Make a range of a file whose mapping is [`MappingKind::Inline`] read as zeros.
    fn zero_inline(&self, offset: u64, end: u64) -> Result<()> {
        let _ = (offset, end);
        Err(Error::Unsupported("this file has no inline data"))
    }

    /// Move inline content into a block; nothing to do for others.
    fn make_not_inline(&self) -> Result<()> {
        Ok(())
    }

    /// Whether everything that was recorded is on the medium: a sync would have nothing but data to make durable.
    fn is_durable(&self, kind: SyncKind) -> bool;

    /// Make what was written and recorded durable.
    fn sync(&self, kind: SyncKind) -> Result<()>;
}

//! The seam between transfers and formats: ranges of a file as ranges of a device.
//!
//! Where it sits: above, the page cache and direct I/O, which both walk [`MapBlocks::map`] and know no format. Below,
//! a volume's file, a whole device, or a file of the host.
//!
//! Interface:
//! - Offsets and lengths are bytes; those of mappings are multiples of [`MapBlocks::block_size`].
//! - A write reserves blocks for holes ([`MapBlocks::reserve`]), moves the data, and then records it
//!   ([`MapBlocks::commit`]). A reservation that is dropped without that never happened.
//! - A mapping is valid while the caller holds the range lock under which it was looked up.
//!
//! Locking: callers hold the range lock; implementations take their own locks inside and call nothing above.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use diorite_block::{BlockDevice, Sector};

use crate::{Error, Result, SetTime};

/// The kind of a mapping.
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

/// A range of a file with one kind of blocks, contiguous on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes, at least one block.
    pub len: u64,
    /// The kind of the range.
    pub kind: MappingKind,
}

impl Mapping {
    /// The mapping at `offset` of a file whose bytes up to `end` have the same address on the device. `block` and `end` are in bytes.
    pub(crate) fn identity(offset: u64, len: u64, block: u64, end: u64) -> Self {
        let start = offset / block * block;
        let stop = offset.saturating_add(len.max(1)).div_ceil(block).saturating_mul(block);
        if start < end {
            let kind = MappingKind::Mapped(Sector::containing(start));
            Self { offset: start, len: stop.min(end) - start, kind }
        } else {
            Self { offset: start, len: stop - start, kind: MappingKind::Hole }
        }
    }

    /// First byte after the mapping.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// The part of it in `range`, which it overlaps.
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

/// Blocks reserved for a range that is about to be written. Dropped without [`MapBlocks::commit`], they are free
/// again.
#[derive(Debug)]
pub(crate) struct Reserved {
    /// The blocks, in file order.
    pub runs: Vec<ReservedRun>,
    /// The implementation's own part.
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
    /// Whether space was so short that the blocks of the mapping were counted instead of reserved for the worst case.
    /// Another change of the file before the commit may need more.
    fn is_counted(&self) -> bool {
        false
    }
}

/// The record of a finished write.
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

impl Reserved {
    /// The implementation's part as its own type, which it gave to the reservation.
    pub(crate) fn into_token<T: ReservationToken>(self) -> T {
        let token: Box<dyn Any> = self.token;
        *token.downcast().expect("a reservation is committed where it was made")
    }
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

    /// Reserve blocks for the holes of a range.
    fn reserve(&self, offset: u64, len: u64) -> Result<Reserved>;

    /// As [`MapBlocks::reserve`], for data that has claimed the blocks: the claims become the reservation, and are given back all the
    /// same when the data is clean.
    fn reserve_claimed(&self, offset: u64, len: u64) -> Result<Reserved> {
        self.reserve(offset, len)
    }

    /// Reserve the metadata blocks for a conversion of unwritten blocks to written ones; `is_claimed` as in
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

    /// Claim `blocks` blocks: they can be reserved, or converted if they are unwritten, at any later time.
    fn claim(&self, blocks: u64) -> Result<()>;

    /// Release claims: the blocks are reserved, or no longer needed.
    fn release_claim(&self, blocks: u64);

    /// Whether this process may write to the blocks of the file: in a volume no forked child may, since its parent gives them to other files.
    fn check_process(&self) -> Result<()> {
        Ok(())
    }

    /// A reservation for a transfer into mapped blocks up to `end` (whole blocks), if it reaches past the recorded
    /// end. It is committed with the transfer, or dropped when the transfer fails.
    fn reserve_past_end(&self, end: u64) -> Result<Option<Reserved>> {
        let _ = end;
        Ok(None)
    }

    /// Record a finished write. The map keeps the sequence number of its transaction:
    /// [`MapBlocks::is_durable`].
    fn commit(&self, commit: WriteCommit) -> Result<()>;

    /// Allocate the holes of a range without writing them; `Unsupported` if a file cannot have unwritten blocks.
    fn allocate(&self, offset: u64, len: u64, size_at_least: Option<u64>) -> Result<()>;

    /// Make whole blocks within the file read as zeros and keep them allocated, with blocks for holes too;
    /// `Unsupported` where zeros must be written.
    fn zero(&self, offset: u64, len: u64) -> Result<()> {
        let _ = (offset, len);
        Err(Error::Unsupported("blocks of this file cannot be converted to unwritten ones; write zeros"))
    }

    /// Set the size and free all blocks beyond. The rest of the last block has been zeroed.
    fn truncate(&self, size: u64) -> Result<()>;

    /// Free the blocks of a range; it reads as zeros from then on.
    fn punch(&self, offset: u64, len: u64) -> Result<()>;

    /// Remove a range of whole blocks; the following blocks move to the front. No page from the range on is cached.
    fn collapse_range(&self, offset: u64, len: u64) -> Result<()> {
        let _ = (offset, len);
        Err(Error::Unsupported("a range of this file cannot be collapsed"))
    }

    /// Insert a hole of whole blocks; the following blocks move towards the end. No page from there on is cached.
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

    /// Whether all commits are on the medium: a sync would only have data to make durable.
    fn is_durable(&self, kind: SyncKind) -> bool;

    /// Make all written data and all commits durable.
    fn sync(&self, kind: SyncKind) -> Result<()>;
}

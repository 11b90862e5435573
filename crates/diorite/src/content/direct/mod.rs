//! Direct I/O: data moves between the device and the caller's memory, and nowhere else.
//!
//! Where it sits: beside the cached reads and writes of [`Content`](crate::content::Content), on the same ranges, the same walk over
//! mappings (`placement.rs`) and, for writes, the same steps (`write/`).
//!
//! Invariants (numbers of ARCHITECTURE, "Invariants"):
//! - (1) The CPU touches no byte of the caller's data, and memory does not grow with the size of the transfer: a transfer is
//!   planned in windows.
//! - (2) The range is locked, shared by reads and exclusively by writes, from before the check of the cache until the
//!   transfer has ended.
//! - (3) Overlapping dirty data is written back first; metadata is never waited for, unless the caller requests durability.
//! - (5) Blocks are reserved, written, and only then recorded; the rest of a new block is zeroed.

mod bounce;
mod read;
mod write;

use std::io::IoSliceMut;

use diorite_block::{BioFlags, Geometry};

use crate::content::Content;
use crate::content::no_wait::check_direct_read;
use crate::store::range_lock::RangeGuard;
use crate::{AlignedPart, Error, IoFlags, Result};

/// Bytes that are planned and submitted at once.
pub(crate) const WINDOW: u64 = 64 << 20;

/// Check the alignment of the offset, the length and each memory segment (address, length).
pub(crate) fn check_alignment(
    geometry: &Geometry,
    offset: u64,
    segments: impl ExactSizeIterator<Item = (usize, usize)>,
) -> Result<()> {
    let block = geometry.logical_block_size;
    let aligned = |what, given: u64, needed: u32| {
        if given & u64::from(needed - 1) == 0 {
            Ok(())
        } else {
            Err(Error::InvalidAlignment { what, given, needed })
        }
    };
    aligned(AlignedPart::Offset, offset, block)?;
    let one = segments.len() == 1;
    // An empty segment may lie anywhere.
    for (segment, (address, len)) in segments.enumerate().filter(|(_, (_, len))| *len > 0) {
        let (length, memory) = if one {
            (AlignedPart::Length, AlignedPart::Memory)
        } else {
            (AlignedPart::SegmentLength { segment }, AlignedPart::SegmentMemory { segment })
        };
        aligned(length, len as u64, block)?;
        aligned(memory, address as u64, geometry.memory_alignment)?;
    }
    Ok(())
}

impl Content {
    /// Lock the range of a direct read, and write back its dirty pages. Returns the bytes before the end of the file;
    /// `None` if there are none.
    fn begin_read(
        &self,
        memory: &[IoSliceMut<'_>],
        offset: u64,
        flags: IoFlags,
    ) -> Result<Option<(RangeGuard<'_>, u64)>> {
        let wanted: u64 = memory.iter().map(|segment| segment.len() as u64).sum();
        let range = self.store.locked_range(offset, offset.saturating_add(wanted));
        if flags.contains(IoFlags::NOWAIT) {
            check_direct_read(self, &range)?;
        }
        let guard = self.store.ranges.shared(range.clone());
        // The size is sampled once, so that the read sees the file at one moment.
        let len = wanted.min(self.store.size().saturating_sub(offset));
        if len == 0 {
            return Ok(None);
        }
        self.cache.write_back(range, BioFlags::SYNC)?;
        Ok(Some((guard, len)))
    }
}

//! Direct I/O: data moves between the device and the caller's memory, and nowhere else.
//!
//! Where it sits: beside the cached reads and writes of [`Content`](crate::content::Content), on the same ranges, the same walk over
//! mappings (`placement.rs`) and, for writes, the same steps (`write/`).
//!
//! Invariants (numbers of ARCHITECTURE, "What always holds"):
//! - (1) The CPU touches no byte of the caller's data, and memory does not grow with the size of the transfer: a transfer is
//!   planned in windows.
//! - (2) The range is held, shared by reads and exclusively by writes, from before the cache is looked at until the transfer is over.
//! - (3) Overlapping dirty data is written back first; metadata is never waited for, unless the caller wants durability.
//! - (5) Blocks are reserved, written, and only then recorded; what is not covered of a new block is zeroed.

mod bounce;
mod read;
mod write;

use diorite_block::Geometry;

use crate::{AlignedPart, Error, Result};

/// Bytes that are planned and submitted at once.
pub(crate) const WINDOW: u64 = 64 << 20;

/// Check offset, length and each memory segment (address, length) against what the device needs.
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

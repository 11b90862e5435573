//! Merged reads: adjacent reads become one entry of a ring. Many adjacent small files cost as much as one large file.
//!
//! Where it sits: inside a ring queue, which holds a read back until the caller waits, and merges reads that continue it. Each
//! read keeps its own slot of the queue and its own completion.
//!
//! Invariants:
//! 1. A merged transfer is no longer than the device's largest transfer and [`MERGED_BYTES_MAX`], and has no more segments than the device takes.
//! 2. If a merged transfer fails, its reads are issued one by one: an error is reported to its own read only.

use diorite_block::Geometry;

use super::raw::RawTransfer;

/// Largest merged transfer: a stream keeps several in flight.
const MERGED_BYTES_MAX: u64 = 256 << 10;

/// Adjacent reads of one target that are not pushed yet.
#[derive(Debug)]
pub(crate) struct Held {
    /// Slots of the queue, each with this one part.
    slots: Vec<u32>,
    target: usize,
    /// The end of the last read, in bytes.
    end: u64,
    bytes: u64,
    segments: usize,
    bytes_max: u64,
    segments_max: usize,
}

impl Held {
    /// No reads, of a device of this geometry.
    pub(crate) fn new(geometry: &Geometry) -> Self {
        Self {
            slots: Vec::new(),
            target: 0,
            end: 0,
            bytes: 0,
            segments: 0,
            bytes_max: u64::from(geometry.max_transfer_bytes).min(MERGED_BYTES_MAX),
            segments_max: usize::from(geometry.max_segments).min(libc::UIO_MAXIOV as usize),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Hold a read if it continues where the last one ends and there is space. Returns whether it is held.
    pub(crate) fn join(&mut self, slot: u32, target: usize, transfer: &RawTransfer) -> bool {
        let segments = transfer.segments.as_slice().len();
        let fits = self.target == target
            && self.end == transfer.offset
            && self.bytes + transfer.len() <= self.bytes_max
            && self.segments + segments <= self.segments_max;
        if !self.is_empty() && !fits {
            return false;
        }
        self.slots.push(slot);
        (self.target, self.end) = (target, transfer.offset + transfer.len());
        self.bytes += transfer.len();
        self.segments += segments;
        true
    }

    /// Take a read that is alone: its slot and target.
    pub(crate) fn take_only(&mut self) -> Option<(u32, usize)> {
        if self.slots.len() != 1 {
            return None;
        }
        (self.bytes, self.segments) = (0, 0);
        Some((self.slots.pop()?, self.target))
    }

    /// Take all: the slots and their target.
    pub(crate) fn take(&mut self) -> (Vec<u32>, usize) {
        (self.bytes, self.segments) = (0, 0);
        (std::mem::take(&mut self.slots), self.target)
    }
}

/// Reads in flight as one transfer. Their slots keep the memory until the entry is popped.
#[derive(Debug)]
pub(crate) struct Merged {
    pub(crate) transfer: RawTransfer,
    pub(crate) target: usize,
    pub(crate) slots: Vec<u32>,
}

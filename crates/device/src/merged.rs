//! Reads that follow each other on the device, moved by one entry of a ring: many small files that lie side by side cost as much
//! as one large one.
//!
//! Where it sits: inside a ring queue, which holds a read back for as long as the device is busy with others; a read that goes on
//! where it ends joins it. Each of the reads keeps its own slot of the queue and its own end.
//!
//! Invariants:
//! 1. A merged transfer is no longer than the device's largest transfer, and has no more segments than the device takes.
//! 2. If a merged transfer fails, its reads are issued one by one: an error is reported to its own read only.

use diorite_block::Geometry;

use crate::transfer::Transfer;

/// A read of so many bytes is worth a system call of its own while the device works on one entry; so many times as much while it
/// works on several.
const WORTH_BYTES: u64 = 64 << 10;
/// So much is, however busy the device is.
const WORTH_BYTES_MAX: u64 = 256 << 10;

/// Reads of one target, each where the one before it ends, that the ring has not seen.
#[derive(Debug)]
pub(crate) struct Held {
    /// Slots of the queue, each with this one part.
    slots: Vec<u32>,
    target: usize,
    /// Where the last one ends, in bytes.
    end: u64,
    bytes: u64,
    segments: usize,
    /// Whether the last read went on where the one before it ended, held or not.
    goes_on: bool,
    bytes_max: u64,
    segments_max: usize,
}

impl Held {
    /// Nothing; what is held is no more than one transfer of a device of this geometry.
    pub(crate) fn new(geometry: &Geometry) -> Self {
        Self {
            slots: Vec::new(),
            target: 0,
            end: 0,
            bytes: 0,
            segments: 0,
            goes_on: false,
            bytes_max: u64::from(geometry.max_transfer_bytes),
            segments_max: usize::from(geometry.max_segments).min(libc::UIO_MAXIOV as usize),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether it is better to wait for what goes on where the last read ends, while the device works on so many entries: more of
    /// it the busier the device is.
    pub(crate) fn may_wait(&self, working: usize) -> bool {
        self.goes_on && self.bytes < WORTH_BYTES_MAX.min(WORTH_BYTES * working as u64)
    }

    /// Hold a read, if it goes on where the last one ends and there is space; whether it is held now.
    pub(crate) fn join(&mut self, slot: u32, target: usize, transfer: &Transfer) -> bool {
        let segments = transfer.segments.as_slice().len();
        let goes_on = self.target == target && self.end == transfer.offset;
        self.goes_on = goes_on;
        let fits = goes_on
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

    /// Let go of a read that is alone: its slot and target.
    pub(crate) fn take_only(&mut self) -> Option<(u32, usize)> {
        if self.slots.len() != 1 {
            return None;
        }
        (self.bytes, self.segments) = (0, 0);
        Some((self.slots.pop()?, self.target))
    }

    /// Let go of all: the slots and their target.
    pub(crate) fn take(&mut self) -> (Vec<u32>, usize) {
        (self.bytes, self.segments) = (0, 0);
        (std::mem::take(&mut self.slots), self.target)
    }
}

/// Reads on their way as one transfer, which refers to their memory: their slots keep it until the entry was popped.
#[derive(Debug)]
pub(crate) struct Merged {
    pub(crate) transfer: Transfer,
    pub(crate) target: usize,
    pub(crate) slots: Vec<u32>,
}

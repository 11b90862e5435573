//! A block device as the layers above see it: a geometry, counters, and two ways to move data.

use std::fmt;
use std::sync::Arc;

use crate::{
    Bio, BioFlags, BioMemory, Counter, IoError, IoErrorKind, IoQueue, Op, Piece, QueuedIo, QueuedMemory,
    Sector, SharedQueue,
};

/// Access of an open device or volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads only.
    ReadOnly,
    /// Reads and writes.
    ReadWrite,
}

/// Capabilities and requirements of a device. Constant while it is open.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent capabilities, each named")]
pub struct Geometry {
    /// Size in bytes; a multiple of `logical_block_size`.
    pub capacity_bytes: u64,
    /// Smallest transfer, in bytes, and the alignment of offset and length. A power of two, at least 512.
    pub logical_block_size: u32,
    /// Unit that the medium writes without read-modify-write, in bytes.
    pub physical_block_size: u32,
    /// Alignment of each memory segment's address, in bytes: a power of two; 1 for any address.
    pub memory_alignment: u32,
    /// Largest bio in bytes; a multiple of `logical_block_size`.
    pub max_transfer_bytes: u32,
    /// Most memory segments of one bio.
    pub max_segments: u16,
    /// Largest atomic write ([`BioFlags::ATOMIC`]), in bytes: a power of two, or 0 for none. After a power failure an atomic write is on the medium
    /// whole or not at all. Its length is a power of two, and its offset a multiple of its length.
    pub atomic_write_bytes: u32,
    /// Whether completed writes may be lost with the power until a flush.
    pub volatile_cache: bool,
    /// Whether a write with `FUA` is cheaper than a write and a flush.
    pub fua: bool,
    /// Whether `Op::Discard` has an effect.
    pub discard: bool,
    /// Whether seeks cost time.
    pub rotational: bool,
    /// Whether writes are rejected.
    pub read_only: bool,
}

/// A device that moves data between its sectors and memory.
///
/// Interface:
/// - Offsets and lengths are multiples of the logical block size and memory addresses of the memory alignment;
///   otherwise [`IoErrorKind::Misaligned`]. A bio larger than the largest transfer is the caller's bug.
/// - Bios of one call may run in any order and at once; bios that depend on each other go in separate calls.
/// - A completed write is visible to every read that starts afterwards, and durable after a later flush.
pub trait BlockDevice: Send + Sync + fmt::Debug {
    /// Its geometry.
    fn geometry(&self) -> &Geometry;

    /// Counts of operations so far.
    fn counters(&self) -> &IoCounters;

    /// The device's name in messages.
    fn name(&self) -> String;

    /// Submit all bios and wait until each has completed. The first error is returned, after all have ended.
    ///
    /// # Errors
    /// The device failed, or a bio does not fit its geometry.
    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError>;

    /// A queue for many transfers in flight from one thread. The default completes each at submission.
    ///
    /// # Errors
    /// The system has no resources for a queue.
    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError>;

    /// A queue that many threads share, at least `depth` deep. None (the default) if the device only executes transfers.
    fn open_shared_queue(self: Arc<Self>, depth: u32) -> Option<Box<dyn SharedQueue>> {
        let _ = depth;
        None
    }

    /// Release the locks against other programs before the value is dropped. The caller has closed its volume and sends no more transfers. The
    /// default has no locks.
    fn release(&self) {}

    /// Bytes of a sector in the device's partition table. 512 (the default) for an image, whatever its alignment.
    fn table_sector_bytes(&self) -> u32 {
        512
    }

    /// The device that this one is a window on, and its first sector there. None by default.
    fn part_of(&self) -> Option<(&Arc<dyn BlockDevice>, Sector)> {
        None
    }

    /// The device for a downcast by joined devices, which can run several children at once. None by default.
    fn as_any(&self) -> Option<&dyn std::any::Any> {
        None
    }
}

impl dyn BlockDevice + '_ {
    /// Read `memory.len()` bytes at a byte offset; both must be aligned as the geometry says.
    ///
    /// # Errors
    /// As [`BlockDevice::execute`].
    pub fn read_bytes(&self, offset_bytes: u64, memory: &mut [u8]) -> Result<(), IoError> {
        let step = self.geometry().max_transfer_bytes as usize;
        let mut bios: Vec<_> = memory
            .chunks_mut(step)
            .scan(offset_bytes, |at, chunk| {
                let sector = Sector::containing(*at);
                *at += chunk.len() as u64;
                Some(Bio::read(sector, chunk))
            })
            .collect();
        self.execute(&mut bios)
    }

    /// Write `memory` at a byte offset; both must be aligned as the geometry says.
    ///
    /// # Errors
    /// As [`BlockDevice::execute`].
    pub fn write_bytes(&self, offset_bytes: u64, memory: &[u8], flags: BioFlags) -> Result<(), IoError> {
        let step = self.geometry().max_transfer_bytes as usize;
        let mut bios: Vec<_> = memory
            .chunks(step)
            .scan(offset_bytes, |at, chunk| {
                let sector = Sector::containing(*at);
                *at += chunk.len() as u64;
                Some(Bio::write(sector, chunk, flags))
            })
            .collect();
        self.execute(&mut bios)
    }

    /// Make all completed writes durable. Without a volatile cache this does nothing.
    ///
    /// # Errors
    /// As [`BlockDevice::execute`]. It is unknown then which writes are durable.
    pub fn flush(&self) -> Result<(), IoError> {
        if self.geometry().volatile_cache { self.execute(&mut [Bio::flush()]) } else { Ok(()) }
    }

    /// Check bios against the geometry.
    ///
    /// # Errors
    /// The error of the first bio that does not fit.
    pub fn check(&self, bios: &[Bio<'_>]) -> Result<(), IoError> {
        let geometry = self.geometry();
        bios.iter().try_for_each(|bio| geometry.check(bio).map_err(|kind| self.error(bio, kind)))
    }

    /// The error for `bio` on this device.
    pub fn error(&self, bio: &Bio<'_>, kind: IoErrorKind) -> IoError {
        IoError { device: self.name(), op: bio.op, sector: bio.sector, len: bio.len(), kind }
    }
}

impl Geometry {
    /// Check one bio against this geometry: range, alignment of offset, length and each segment, write permission.
    ///
    /// # Errors
    /// The mismatch.
    pub fn check(&self, bio: &Bio<'_>) -> Result<(), IoErrorKind> {
        self.check_range(bio.op, bio.sector, bio.len())?;
        if bio.flags.contains(BioFlags::ATOMIC) {
            self.check_atomic(bio.sector, bio.len())?;
        }
        match &bio.memory {
            BioMemory::Read(segments) => {
                segments.iter().try_for_each(|s| self.check_segment(s.as_ptr().addr(), s.len()))
            }
            BioMemory::Write(segments) => {
                segments.iter().try_for_each(|s| self.check_segment(s.as_ptr().addr(), s.len()))
            }
            BioMemory::None(_) => Ok(()),
        }
    }

    /// The part of [`Geometry::check`] that needs no memory: write permission, alignment of offset and length, range.
    ///
    /// # Errors
    /// The mismatch.
    pub fn check_range(&self, op: Op, sector: Sector, len: u64) -> Result<(), IoErrorKind> {
        if self.read_only && op.is_write() {
            return Err(IoErrorKind::ReadOnly);
        }
        let offset = sector.to_bytes();
        aligned("offset", offset, self.logical_block_size)?;
        aligned("length", len, self.logical_block_size)?;
        match offset.checked_add(len) {
            Some(end) if end <= self.capacity_bytes => Ok(()),
            _ => Err(IoErrorKind::OutOfRange { capacity: self.capacity_bytes }),
        }
    }

    /// The part of [`Geometry::check`] for atomic writes.
    ///
    /// # Errors
    /// The device has no atomic write of this size at this offset.
    pub fn check_atomic(&self, sector: Sector, len: u64) -> Result<(), IoErrorKind> {
        let most = self.atomic_write_bytes;
        if len == 0 || !len.is_power_of_two() || len > u64::from(most) {
            return Err(IoErrorKind::Misaligned {
                what: "length of an atomic write",
                given: len,
                needed: most,
            });
        }
        aligned("offset of an atomic write", sector.to_bytes(), len as u32)
    }

    /// The part of [`Geometry::check`] for one memory segment.
    ///
    /// # Errors
    /// The mismatch.
    pub fn check_segment(&self, address: usize, len: usize) -> Result<(), IoErrorKind> {
        aligned("memory address", address as u64, self.memory_alignment)?;
        aligned("segment length", len as u64, self.memory_alignment.min(self.logical_block_size))
    }
}

fn aligned(what: &'static str, given: u64, needed: u32) -> Result<(), IoErrorKind> {
    if given.is_multiple_of(u64::from(needed)) {
        Ok(())
    } else {
        Err(IoErrorKind::Misaligned { what, given, needed })
    }
}

/// Running totals of a device, kept by its implementation.
#[derive(Debug, Default)]
pub struct IoCounters {
    reads: Counter,
    read_bytes: Counter,
    writes: Counter,
    write_bytes: Counter,
    flushes: Counter,
    discards: Counter,
}

impl IoCounters {
    /// Count one operation before it is issued.
    pub fn count(&self, op: Op, len: u64) {
        let (operations, bytes) = match op {
            Op::Read => (&self.reads, Some(&self.read_bytes)),
            Op::Write | Op::WriteZeroes => (&self.writes, Some(&self.write_bytes)),
            Op::Flush => (&self.flushes, None),
            Op::Discard => (&self.discards, None),
        };
        operations.add(1);
        if let Some(bytes) = bytes {
            bytes.add(len);
        }
    }

    /// The totals now.
    pub fn snapshot(&self) -> IoCounts {
        IoCounts {
            reads: self.reads.get(),
            read_bytes: self.read_bytes.get(),
            writes: self.writes.get(),
            write_bytes: self.write_bytes.get(),
            flushes: self.flushes.get(),
            discards: self.discards.get(),
        }
    }
}

/// Totals of a device at one moment: operations as issued to it, and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// Reads issued.
    pub reads: u64,
    /// Bytes of those.
    pub read_bytes: u64,
    /// Writes and write-zeroes issued.
    pub writes: u64,
    /// Bytes of those.
    pub write_bytes: u64,
    /// Flushes issued.
    pub flushes: u64,
    /// Discards issued.
    pub discards: u64,
}

impl IoCounts {
    /// The difference to `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            read_bytes: self.read_bytes - earlier.read_bytes,
            writes: self.writes - earlier.writes,
            write_bytes: self.write_bytes - earlier.write_bytes,
            flushes: self.flushes - earlier.flushes,
            discards: self.discards - earlier.discards,
        }
    }
}

impl QueuedIo {
    /// Check the pieces against owned memory and the geometry of `device`.
    ///
    /// # Errors
    /// A piece is outside the memory, or the device cannot transfer it.
    pub fn check(&self, device: &dyn BlockDevice) -> Result<(), IoError> {
        let memory = match &self.memory {
            QueuedMemory::Owned(memory) => memory.as_slice(),
            QueuedMemory::None => &[],
            QueuedMemory::Lent(_) => return Ok(()),
        };
        for Piece { sector, memory: range } in &self.pieces {
            let (op, sector, len) = (self.op, *sector, range.len() as u64);
            let outside = IoErrorKind::Device(std::io::Error::from_raw_os_error(libc::EFAULT));
            let slice = memory.get(range.clone()).ok_or(outside);
            let geometry = device.geometry();
            slice
                .and_then(|slice| {
                    geometry.check_range(op, sector, len)?;
                    geometry.check_segment(slice.as_ptr().addr(), slice.len())
                })
                .map_err(|kind| IoError { device: device.name(), op, sector, len, kind })?;
        }
        Ok(())
    }
}

//! The submitter's list of transfers that no queue has seen yet.
//!
//! Where it sits: between the walk over a file's mappings and the device. The submitter adds ranges in the order of the walk. Ranges that are
//! contiguous on the device become one bio, up to the device's largest transfer, independent of their offsets in the file. The submitter unplugs the
//! list explicitly.
//!
//! Invariants:
//! 1. A contiguous run of N bytes added in order becomes exactly ceil(N / largest transfer) bios
//!    (unless it has more segments than a bio can have).
//! 2. No bio is larger than the device's largest transfer or has more segments than it allows.

use std::io::{IoSlice, IoSliceMut};

use crate::{Bio, BioFlags, BioMemory, BlockDevice, Geometry, IoError, IoOwner, Op, Sector};

/// A list of bios of one kind, merged as they are added.
pub struct Plug<'a> {
    bios: Vec<Bio<'a>>,
    last_bio_bytes: u64,
    flags: BioFlags,
    owner: IoOwner,
    max_transfer_bytes: u64,
    max_segments: usize,
}

crate::short_debug!(Plug<'_>);

impl<'a> Plug<'a> {
    /// An empty list for a device of this geometry; every bio gets `flags` and the current owner.
    pub fn new(geometry: &Geometry, flags: BioFlags) -> Self {
        Self {
            bios: Vec::new(),
            last_bio_bytes: 0,
            flags,
            owner: IoOwner::current(),
            max_transfer_bytes: u64::from(geometry.max_transfer_bytes),
            max_segments: usize::from(geometry.max_segments).max(1),
        }
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.bios.is_empty()
    }

    /// The bios as they stand.
    pub fn bios(&self) -> &[Bio<'a>] {
        &self.bios
    }

    /// The bios, for a device that executes them with others.
    pub fn into_bios(self) -> Vec<Bio<'a>> {
        self.bios
    }

    /// Add a read of `memory.len()` bytes at `sector`.
    pub fn read(&mut self, mut sector: Sector, mut memory: &'a mut [u8]) {
        while !memory.is_empty() {
            let fits_bytes = self.space_for(Op::Read, sector);
            let (now, later) = memory.split_at_mut(memory.len().min(fits_bytes as usize));
            let len = now.len() as u64;
            match self.bios.last_mut().filter(|_| self.last_bio_bytes > 0).map(|bio| &mut bio.memory) {
                Some(BioMemory::Read(segments)) => segments.push(IoSliceMut::new(now)),
                _ => self.push(sector, Op::Read, BioMemory::Read(vec![IoSliceMut::new(now)])),
            }
            self.last_bio_bytes += len;
            sector = sector.after_bytes(len);
            memory = later;
        }
    }

    /// Add a write of `memory.len()` bytes at `sector`.
    pub fn write(&mut self, mut sector: Sector, mut memory: &'a [u8]) {
        while !memory.is_empty() {
            let fits_bytes = self.space_for(Op::Write, sector);
            let (now, later) = memory.split_at(memory.len().min(fits_bytes as usize));
            let len = now.len() as u64;
            match self.bios.last_mut().filter(|_| self.last_bio_bytes > 0).map(|bio| &mut bio.memory) {
                Some(BioMemory::Write(segments)) => segments.push(IoSlice::new(now)),
                _ => self.push(sector, Op::Write, BioMemory::Write(vec![IoSlice::new(now)])),
            }
            self.last_bio_bytes += len;
            sector = sector.after_bytes(len);
            memory = later;
        }
    }

    /// Add all of another list: its first bio grows onto the last one of this list if it is contiguous with it, has the same flags and the same
    /// owner.
    pub fn append(&mut self, other: Self) {
        for bio in other.bios {
            let len = bio.len();
            let fits = self.space_for(bio.op, bio.sector) >= len;
            let last = self.bios.last_mut().filter(|last| {
                fits && self.last_bio_bytes > 0
                    && (last.flags, last.owner) == (bio.flags, bio.owner)
                    && last.segment_count() + bio.segment_count() <= self.max_segments
            });
            match (last.map(|last| &mut last.memory), bio.memory) {
                (Some(BioMemory::Read(segments)), BioMemory::Read(more)) => segments.extend(more),
                (Some(BioMemory::Write(segments)), BioMemory::Write(more)) => segments.extend(more),
                (_, memory) => {
                    self.last_bio_bytes = 0;
                    self.bios.push(Bio { memory, ..bio });
                }
            }
            self.last_bio_bytes += len;
        }
    }

    /// Show the list to the device and wait for it. Returns the number of bios.
    ///
    /// # Errors
    /// The first error of a bio.
    pub fn unplug(mut self, device: &dyn BlockDevice) -> Result<u64, IoError> {
        if !self.bios.is_empty() {
            device.execute(&mut self.bios)?;
        }
        Ok(self.bios.len() as u64)
    }

    /// Bytes that may still go into the last bio at `sector`; opens a new bio (by zeroing `last_bio_bytes`) when
    /// the last one is full, of another kind, or not adjacent.
    fn space_for(&mut self, op: Op, sector: Sector) -> u64 {
        let mergeable = self.bios.last().is_some_and(|last| {
            last.op == op
                && last.sector.after_bytes(self.last_bio_bytes) == sector
                && last.segment_count() < self.max_segments
                && self.last_bio_bytes < self.max_transfer_bytes
        });
        if !mergeable {
            self.last_bio_bytes = 0;
        }
        self.max_transfer_bytes - self.last_bio_bytes
    }

    fn push(&mut self, sector: Sector, op: Op, memory: BioMemory<'a>) {
        let (flags, owner) = (self.flags, self.owner);
        self.bios.push(Bio { sector, memory, op, flags, owner });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(max_transfer_bytes: u32, max_segments: u16) -> Geometry {
        Geometry {
            capacity_bytes: 1 << 40,
            logical_block_size: 512,
            physical_block_size: 512,
            memory_alignment: 1,
            max_transfer_bytes,
            max_segments,
            atomic_write_bytes: 0,
            volatile_cache: false,
            fua: false,
            discard: false,
            rotational: false,
            read_only: false,
        }
    }

    /// ARCHITECTURE invariant 8: splitting the submission anywhere does not change the number of bios.
    #[test]
    fn contiguous_run_becomes_full_bios() {
        for step in [512, 4096, 48 * 1024, 1 << 20, 5 << 20] {
            let data = vec![0u8; 5 << 20];
            let mut plug = Plug::new(&geometry(1 << 20, 4096), BioFlags::SYNC);
            for (index, chunk) in data.chunks(step).enumerate() {
                plug.write(Sector::containing((index * step) as u64), chunk);
            }
            assert_eq!(plug.bios().len(), 5, "in steps of {step}");
            assert!(plug.bios().iter().all(|bio| bio.len() == 1 << 20));
        }
    }

    /// Lists of several files become full bios as one list would.
    #[test]
    fn lists_that_follow_each_other_on_the_device_merge() {
        let data = vec![0u8; 12 << 10];
        let geometry = geometry(8 << 10, 3);
        let mut all = Plug::new(&geometry, BioFlags::NONE);
        for sector in [0, 2, 4, 10, 12, 14, 16, 18, 20, 22, 24, 26] {
            let mut one = Plug::new(&geometry, BioFlags::NONE);
            one.write(Sector(sector), &data[..1024]);
            all.append(one);
        }
        let shape: Vec<_> = all.bios().iter().map(|bio| (bio.sector.0, bio.len())).collect();
        assert_eq!(shape, [(0, 3072), (10, 3072), (16, 3072), (22, 3072)]);
        let mut large = Plug::new(&geometry, BioFlags::NONE);
        large.write(Sector(28), &data);
        all.append(large);
        let shape: Vec<_> = all.bios().iter().skip(4).map(|bio| (bio.sector.0, bio.len())).collect();
        assert_eq!(shape, [(28, 8 << 10), (44, 4 << 10)]);
    }

    /// A durable write joined to a plain one would lose its FUA, or an owner would be charged for another.
    #[test]
    fn lists_with_other_flags_or_another_owner_stay_apart() {
        let data = vec![0u8; 1024];
        let geometry = geometry(1 << 20, 4096);
        let list = |sector, flags, owner: IoOwner| {
            let _charged = owner.enter();
            let mut list = Plug::new(&geometry, flags);
            list.write(Sector(sector), &data);
            list
        };
        let (mine, other) = (IoOwner::current(), IoOwner { task: crate::TaskId(7), ..IoOwner::current() });
        let durable = BioFlags::SYNC | BioFlags::FUA;
        let lists = [
            list(0, BioFlags::SYNC, mine),
            list(2, BioFlags::SYNC, mine),
            list(4, durable, mine),
            list(6, durable, mine),
            list(8, durable, other),
            list(10, BioFlags::SYNC, other),
        ];
        let mut all = Plug::new(&geometry, BioFlags::SYNC);
        for list in lists {
            all.append(list);
        }
        let found: Vec<_> =
            all.bios().iter().map(|bio| (bio.sector.0, bio.len(), bio.flags, bio.owner)).collect();
        let expected = [
            (0, 2048, BioFlags::SYNC, mine),
            (4, 2048, durable, mine),
            (8, 1024, durable, other),
            (10, 1024, BioFlags::SYNC, other),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn gaps_and_segment_limits_split() {
        let mut memory = vec![0u8; 8192];
        let mut plug = Plug::new(&geometry(1 << 20, 2), BioFlags::SYNC);
        let (a, rest) = memory.split_at_mut(1024);
        let (b, rest) = rest.split_at_mut(1024);
        let (c, d) = rest.split_at_mut(1024);
        plug.read(Sector(10), a);
        plug.read(Sector(12), b);
        plug.read(Sector(14), c);
        plug.read(Sector(100), d);
        let shape: Vec<_> = plug.bios().iter().map(|bio| (bio.sector.0, bio.len())).collect();
        assert_eq!(shape, [(10, 2048), (14, 1024), (100, 5120)]);
    }
}

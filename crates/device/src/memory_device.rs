//! A block device in memory. It allocates memory only for written ranges.
//!
//! Where it sits: beside [`crate::FileDevice`], for tests and for benchmarks without a disk.
//!
//! Invariants:
//! 1. An absent chunk reads as zeros. Discard and write-zeroes free whole chunks.
//!
//! Locking: one lock of the schedulable kind, held for the copy of at most one chunk.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use diorite_block::sync::{Rank, RwLock};
use diorite_block::{Bio, BioMemory, BlockDevice, Geometry, IoCounters, IoError, IoErrorKind, IoQueue, Op};

const CHUNK_BYTES: u64 = 64 << 10;

/// A sparse device in memory.
pub struct MemoryDevice {
    name: String,
    geometry: Geometry,
    counters: IoCounters,
    chunks: RwLock<HashMap<u64, Box<[u8]>>>,
}

impl MemoryDevice {
    /// A device of `capacity_bytes` (rounded down to 512), blocks of 512 bytes, memory at any address.
    pub fn new(capacity_bytes: u64) -> Arc<Self> {
        Self::with_geometry("memory", Self::geometry_for(capacity_bytes))
    }

    /// The geometry of [`MemoryDevice::new`], as a base for [`MemoryDevice::with_geometry`].
    pub fn geometry_for(capacity_bytes: u64) -> Geometry {
        Geometry {
            capacity_bytes: capacity_bytes / 512 * 512,
            logical_block_size: 512,
            physical_block_size: 512,
            memory_alignment: 1,
            max_transfer_bytes: 1 << 20,
            max_segments: 1024,
            atomic_write_bytes: 0,
            volatile_cache: false,
            fua: true,
            discard: true,
            rotational: false,
            read_only: false,
        }
    }

    /// A device of any geometry.
    pub fn with_geometry(name: &str, geometry: Geometry) -> Arc<Self> {
        let block = geometry.logical_block_size;
        assert!(block.is_power_of_two() && (512..=CHUNK_BYTES as u32).contains(&block), "block size {block}");
        assert!(geometry.capacity_bytes.is_multiple_of(u64::from(block)), "capacity is not whole blocks");
        let chunks = RwLock::ranked(Rank::MemoryShard, HashMap::new());
        Arc::new(Self { name: name.to_owned(), geometry, counters: IoCounters::default(), chunks })
    }

    /// Bytes of memory allocated for the content.
    pub fn allocated_bytes(&self) -> u64 {
        self.chunks.read().len() as u64 * CHUNK_BYTES
    }

    fn read(&self, mut offset: u64, mut memory: &mut [u8]) {
        while !memory.is_empty() {
            let (chunk, within, len) = split(offset, memory.len() as u64);
            let (now, later) = memory.split_at_mut(len);
            match self.chunks.read().get(&chunk) {
                Some(bytes) => now.copy_from_slice(&bytes[within..within + len]),
                None => now.fill(0),
            }
            offset += len as u64;
            memory = later;
        }
    }

    fn write(&self, mut offset: u64, mut memory: &[u8]) {
        while !memory.is_empty() {
            let (chunk, within, len) = split(offset, memory.len() as u64);
            let (now, later) = memory.split_at(len);
            let mut chunks = self.chunks.write();
            let bytes = chunks.entry(chunk).or_insert_with(|| vec![0; CHUNK_BYTES as usize].into());
            bytes[within..within + len].copy_from_slice(now);
            offset += len as u64;
            memory = later;
        }
    }

    fn zero(&self, mut offset: u64, len: u64) {
        let end = offset + len;
        let mut chunks = self.chunks.write();
        let whole = offset.div_ceil(CHUNK_BYTES)..end / CHUNK_BYTES;
        if !whole.is_empty() {
            // A long range costs its allocated blocks, not its length.
            chunks.retain(|chunk, _| !whole.contains(chunk));
        }
        while offset < end {
            let (chunk, within, len) = split(offset, end - offset);
            if whole.contains(&chunk) {
                offset = whole.end * CHUNK_BYTES;
                continue;
            }
            if let Some(bytes) = chunks.get_mut(&chunk) {
                bytes[within..within + len].fill(0);
            }
            offset += len as u64;
        }
    }

    fn run(&self, bio: &mut Bio<'_>) -> Result<(), IoErrorKind> {
        self.geometry.check(bio)?;
        self.counters.count(bio.op, bio.len());
        let mut offset = bio.sector.to_bytes();
        match &mut bio.memory {
            BioMemory::Read(segments) => {
                for segment in segments {
                    self.read(offset, segment);
                    offset += segment.len() as u64;
                }
            }
            BioMemory::Write(segments) => {
                for segment in segments {
                    self.write(offset, segment);
                    offset += segment.len() as u64;
                }
            }
            BioMemory::None(len) => match bio.op {
                Op::Discard if !self.geometry.discard => return Err(IoErrorKind::Unsupported),
                Op::Discard | Op::WriteZeroes => self.zero(offset, *len),
                Op::Read | Op::Write | Op::Flush => {}
            },
        }
        Ok(())
    }
}

/// The chunk at `offset`, the offset within it, and the part of `len` that lies in it.
fn split(offset: u64, len: u64) -> (u64, usize, usize) {
    let (chunk, within) = (offset / CHUNK_BYTES, offset % CHUNK_BYTES);
    (chunk, within as usize, len.min(CHUNK_BYTES - within) as usize)
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDevice")
            .field("name", &self.name)
            .field("geometry", &self.geometry)
            .finish_non_exhaustive()
    }
}

impl BlockDevice for MemoryDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn counters(&self) -> &IoCounters {
        &self.counters
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        let mut first_error = Ok(());
        for bio in bios {
            if let Err(kind) = self.run(bio)
                && first_error.is_ok()
            {
                first_error = Err((self as &dyn BlockDevice).error(bio, kind));
            }
        }
        first_error
    }

    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        Ok(<dyn BlockDevice>::immediate_queue(self, depth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_block::{BioFlags, Sector};

    #[test]
    fn sparse_device_of_16_tib_takes_memory_for_what_is_written() {
        let device: Arc<MemoryDevice> = MemoryDevice::new(16 << 40);
        let as_dyn: &dyn BlockDevice = &*device;
        let last = (16 << 40) - 512;
        as_dyn.write_bytes(last, &[7; 512], BioFlags::SYNC).unwrap();
        let mut back = [0; 512];
        as_dyn.read_bytes(last, &mut back).unwrap();
        assert_eq!(back, [7; 512]);
        assert_eq!(device.allocated_bytes(), CHUNK_BYTES);
        let whole = Bio::without_memory(Op::Discard, Sector(0), 1 << 20);
        device.execute(&mut [whole]).unwrap();
    }

    /// Invariant 1.
    #[test]
    fn zeroed_chunks_give_their_memory_back() {
        let device = MemoryDevice::new(1 << 20);
        let as_dyn: &dyn BlockDevice = &*device;
        as_dyn.write_bytes(0, &vec![1; 3 * CHUNK_BYTES as usize], BioFlags::SYNC).unwrap();
        let middle = Bio::without_memory(Op::WriteZeroes, Sector(1), 2 * CHUNK_BYTES);
        device.execute(&mut [middle]).unwrap();
        assert_eq!(device.allocated_bytes(), 2 * CHUNK_BYTES);
        let mut back = vec![9; 3 * CHUNK_BYTES as usize];
        as_dyn.read_bytes(0, &mut back).unwrap();
        let zero_to = 512 + 2 * CHUNK_BYTES as usize;
        assert!(back[..512].iter().all(|b| *b == 1) && back[zero_to..].iter().all(|b| *b == 1));
        assert!(back[512..zero_to].iter().all(|b| *b == 0));
    }
}

//! The content of a simulated device: sparse, copy-on-write, cheap to clone.
//!
//! Where it sits: below every simulated disk, and the images that a crash leaves. Chunks of 64 KiB exist
//! only where something other than zeros was written; a clone shares them until one side writes.

use std::collections::BTreeMap;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, PoisonError};

use diorite_block::{Bio, BioMemory, BlockDevice, Geometry, IoCounters, IoError, IoQueue, Op};

/// Bytes of one chunk.
const CHUNK: u64 = 64 * 1024;

/// Sparse bytes of a fixed size; unwritten bytes read as zeros.
#[derive(Clone, Debug, Default)]
pub struct SparseImage {
    len: u64,
    chunks: BTreeMap<u64, Arc<Vec<u8>>>,
}

impl SparseImage {
    /// All zeros.
    pub fn new(len_bytes: u64) -> Self {
        Self { len: len_bytes, chunks: BTreeMap::new() }
    }

    /// All of one byte, in shared memory.
    pub fn filled(len_bytes: u64, byte: u8) -> Self {
        let chunk = Arc::new(vec![byte; CHUNK as usize]);
        let chunks = (0..len_bytes.div_ceil(CHUNK)).map(|index| (index, Arc::clone(&chunk))).collect();
        Self { len: len_bytes, chunks }
    }

    /// The present content of `device`; reads all of it.
    pub fn copy_of(device: &dyn BlockDevice) -> Result<Self, IoError> {
        let len = device.geometry().capacity_bytes;
        let mut image = Self::new(len);
        let mut at = 0;
        let mut buffer = vec![0u8; 1 << 20];
        while at < len {
            let step = (len - at).min(buffer.len() as u64) as usize;
            device.read_bytes(at, &mut buffer[..step])?;
            image.write(at, &buffer[..step]);
            at += step as u64;
        }
        Ok(image)
    }

    /// Size in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the image has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory in use, chunks that clones share included.
    pub fn memory_bytes(&self) -> u64 {
        self.chunks.len() as u64 * CHUNK
    }

    /// Read `memory.len()` bytes. Bytes beyond the end read as zeros.
    pub fn read(&self, mut offset: u64, mut memory: &mut [u8]) {
        while !memory.is_empty() {
            let within = (offset % CHUNK) as usize;
            let step = memory.len().min(CHUNK as usize - within);
            let (now, later) = memory.split_at_mut(step);
            match self.chunks.get(&(offset / CHUNK)) {
                Some(chunk) => now.copy_from_slice(&chunk[within..within + step]),
                None => now.fill(0),
            }
            offset += step as u64;
            memory = later;
        }
    }

    /// Write `memory`. Bytes beyond the end are dropped.
    pub fn write(&mut self, mut offset: u64, memory: &[u8]) {
        let len = self.len.saturating_sub(offset).min(memory.len() as u64) as usize;
        let mut memory = &memory[..len];
        while !memory.is_empty() {
            let within = (offset % CHUNK) as usize;
            let step = memory.len().min(CHUNK as usize - within);
            let (now, later) = memory.split_at(step);
            if !self.chunks.contains_key(&(offset / CHUNK)) && now.iter().all(|byte| *byte == 0) {
                // Zeros in a missing chunk need no memory.
                offset += step as u64;
                memory = later;
                continue;
            }
            let chunk =
                self.chunks.entry(offset / CHUNK).or_insert_with(|| Arc::new(vec![0; CHUNK as usize]));
            Arc::make_mut(chunk)[within..within + step].copy_from_slice(now);
            offset += step as u64;
            memory = later;
        }
    }

    /// Make a range read as zeros, and free its whole chunks.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.len);
        let mut at = offset;
        while at < end {
            let within = at % CHUNK;
            let step = (end - at).min(CHUNK - within);
            if step == CHUNK {
                self.chunks.remove(&(at / CHUNK));
            } else if let Some(chunk) = self.chunks.get_mut(&(at / CHUNK)) {
                Arc::make_mut(chunk)[within as usize..(within + step) as usize].fill(0);
            }
            at += step;
        }
    }

    /// The same content on a device of another size: cut off, or followed by zeros.
    #[must_use]
    pub fn resized(mut self, len_bytes: u64) -> Self {
        if len_bytes < self.len {
            self.zero(len_bytes, self.len - len_bytes);
            self.chunks.retain(|index, _| index * CHUNK < len_bytes);
        }
        self.len = len_bytes;
        self
    }

    /// Execute one bio on this content.
    pub fn apply(&mut self, bio: &mut Bio<'_>) {
        let mut at = bio.sector.to_bytes();
        match &mut bio.memory {
            BioMemory::Read(segments) => {
                for segment in segments {
                    self.read(at, segment);
                    at += segment.len() as u64;
                }
            }
            BioMemory::Write(segments) => {
                for segment in segments {
                    self.write(at, segment);
                    at += segment.len() as u64;
                }
            }
            BioMemory::None(len) => match bio.op {
                Op::Discard | Op::WriteZeroes => self.zero(at, *len),
                Op::Read | Op::Write | Op::Flush => {}
            },
        }
    }

    /// Write the image into a file, leaving holes where nothing was written. The file must be empty and its length
    /// be set by the caller, or read as zeros.
    pub fn export(&self, to: &mut (impl Write + Seek)) -> io::Result<()> {
        for (index, chunk) in &self.chunks {
            let at = index * CHUNK;
            let len = self.len.saturating_sub(at).min(CHUNK) as usize;
            to.seek(SeekFrom::Start(at))?;
            to.write_all(&chunk[..len])?;
        }
        let last_is_there = self.chunks.contains_key(&(self.len.saturating_sub(1) / CHUNK));
        if self.len > 0 && !last_is_there {
            to.seek(SeekFrom::Start(self.len - 1))?;
            to.write_all(&[0])?;
        }
        to.flush()
    }

    /// The parts that this image does not share with `other`, and their offsets.
    pub fn parts_beside<'a>(&'a self, other: Option<&'a Self>) -> impl Iterator<Item = (u64, &'a [u8])> {
        static ZEROS: [u8; CHUNK as usize] = [0; CHUNK as usize];
        (0..self.len.div_ceil(CHUNK)).filter_map(move |index| {
            let chunk = self.chunks.get(&index);
            let is_shared = other.is_some_and(|other| match (chunk, other.chunks.get(&index)) {
                (Some(chunk), Some(known)) => Arc::ptr_eq(chunk, known),
                (chunk, known) => chunk.is_none() && known.is_none(),
            });
            let len = (self.len - index * CHUNK).min(CHUNK) as usize;
            let bytes = chunk.map_or(&ZEROS[..], |chunk| chunk.as_slice());
            (!is_shared).then(|| (index * CHUNK, &bytes[..len]))
        })
    }

    /// Whether both images read the same.
    pub fn same_content(&self, other: &Self) -> bool {
        let zeros =
            |chunk: Option<&Arc<Vec<u8>>>| chunk.is_none_or(|chunk| chunk.iter().all(|byte| *byte == 0));
        self.len == other.len
            && self.chunks.keys().chain(other.chunks.keys()).all(|index| {
                match (self.chunks.get(index), other.chunks.get(index)) {
                    (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
                    (a, b) => zeros(a) && zeros(b),
                }
            })
    }
}

/// A device that holds a [`SparseImage`] and takes no time.
#[derive(Debug)]
pub struct ImageDevice {
    image: Mutex<SparseImage>,
    geometry: Geometry,
    counters: IoCounters,
}

impl ImageDevice {
    /// A device of 512-byte sectors on `image`, with a volatile cache to speak of (so that flushes reach the device that
    /// wraps it).
    pub fn new(image: SparseImage) -> Arc<Self> {
        let geometry = Geometry { capacity_bytes: image.len() / 512 * 512, ..plain_geometry() };
        Self::with_geometry(image, geometry)
    }

    /// A device of `capacity_bytes` zeros, without a volatile cache.
    pub fn zeroed(capacity_bytes: u64) -> Arc<Self> {
        Self::zeroed_with(Self::geometry_for(capacity_bytes))
    }

    /// As [`ImageDevice::zeroed`], with the given geometry.
    pub fn zeroed_with(geometry: Geometry) -> Arc<Self> {
        Self::with_geometry(SparseImage::new(geometry.capacity_bytes), geometry)
    }

    /// The geometry of [`ImageDevice::zeroed`].
    pub fn geometry_for(capacity_bytes: u64) -> Geometry {
        let capacity_bytes = capacity_bytes / 512 * 512;
        Geometry { capacity_bytes, physical_block_size: 512, volatile_cache: false, ..plain_geometry() }
    }

    /// A device with the given geometry, whose capacity must not exceed the image.
    pub fn with_geometry(image: SparseImage, geometry: Geometry) -> Arc<Self> {
        assert!(geometry.capacity_bytes <= image.len(), "the image is smaller than the device");
        Arc::new(Self { image: Mutex::new(image), geometry, counters: IoCounters::default() })
    }

    /// A copy of the present content, which shares memory with the device.
    pub fn image(&self) -> SparseImage {
        self.image.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl BlockDevice for ImageDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn counters(&self) -> &IoCounters {
        &self.counters
    }

    fn name(&self) -> String {
        "image in memory".to_owned()
    }

    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        execute_each(self, bios, |bio| self.image.lock().unwrap_or_else(PoisonError::into_inner).apply(bio))
    }

    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        Ok(<dyn BlockDevice>::immediate_queue(self, depth))
    }
}

/// Check, count and apply each transfer of a device in memory. Returns the first error.
pub(crate) fn execute_each(
    device: &dyn BlockDevice,
    bios: &mut [Bio<'_>],
    mut apply: impl FnMut(&mut Bio<'_>),
) -> Result<(), IoError> {
    let mut first = Ok(());
    for bio in bios {
        match device.geometry().check(bio) {
            Ok(()) => {
                device.counters().count(bio.op, bio.len());
                apply(bio);
            }
            Err(kind) => first = first.and(Err(device.error(bio, kind))),
        }
    }
    first
}

/// The geometry of a plain device in memory; the capacity is still to be set.
pub(crate) fn plain_geometry() -> Geometry {
    Geometry {
        capacity_bytes: 0,
        logical_block_size: 512,
        physical_block_size: 4096,
        memory_alignment: 1,
        max_transfer_bytes: 1 << 20,
        max_segments: 1024,
        atomic_write_bytes: 0,
        volatile_cache: true,
        fua: true,
        discard: true,
        rotational: false,
        read_only: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_do_not_see_each_others_writes() {
        let mut image = SparseImage::new(1 << 20);
        image.write(70_000, &[7; 100]);
        let before = image.clone();
        image.write(70_050, &[9; 100]);
        let (mut old, mut new) = ([1; 160], [1; 160]);
        before.read(69_990, &mut old);
        image.read(69_990, &mut new);
        assert_eq!(old[10..110], [7; 100]);
        assert_eq!(old[110..], [0; 50]);
        assert_eq!((new[59], new[60], new[159]), (7, 9, 9));
        image.zero(0, 1 << 20);
        assert_eq!(image.memory_bytes(), 0);
        assert!(image.same_content(&SparseImage::new(1 << 20)));
    }

    #[test]
    fn exported_bytes_are_the_image() {
        let mut image = SparseImage::new(200_000);
        image.write(65_000, &[3; 2000]);
        let mut file = io::Cursor::new(Vec::new());
        image.export(&mut file).unwrap();
        let mut expected = vec![0; 200_000];
        expected[65_000..67_000].fill(3);
        assert_eq!(file.into_inner(), expected);
    }
}

//! A device in memory over another: written blocks stay here, other blocks are read from the log or from below.
//!
//! Where it sits: in place of the real device, for metadata and file data alike (volumes with data=journal have data in the log):
//!
//! - under a volume that is open read-only and has a journal to replay;
//! - under a volume on which fast commits are replayed. When that has succeeded, the blocks are written to the device below
//!   ([`ScratchDevice::write_out`]), or the volume is read through them ([`ScratchDevice::read_only`]).
//!
//! Locking: a write holds the lock of the written blocks across reads from below. Only a replay writes, in one thread.
//!
//! Cost: one small record for each block that the log has newer; its content stays in the log.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use diorite_block::sync::{Mutex, Rank};
use diorite_block::{
    Bio, BioFlags, BioMemory, BlockDevice, Geometry, IoCounters, IoError, IoQueue, Op, Plug, Sector,
};

use super::log_map::LogMap;
use super::replay::{Replay, ReplayedBlock};
use crate::memory::{BlockMemory, BlockPool};
use crate::{BlockSize, FsBlock, Result};

/// Written blocks.
type Blocks = BTreeMap<u64, BlockMemory>;

/// See the module's head.
#[derive(Debug)]
pub struct ScratchDevice {
    lower: Arc<dyn BlockDevice>,
    geometry: Geometry,
    block_size: BlockSize,
    memory: BlockPool,
    /// Blocks that the log has newer, by target; with the place of the content.
    log: Vec<(ReplayedBlock, FsBlock)>,
    blocks: Mutex<Blocks>,
}

impl ScratchDevice {
    /// `lower`, with nothing written yet.
    pub fn new(lower: Arc<dyn BlockDevice>, block_size: BlockSize) -> Self {
        let geometry =
            Geometry { read_only: false, volatile_cache: false, discard: false, ..lower.geometry().clone() };
        let memory = BlockPool::new(block_size.bytes() as usize, geometry.memory_alignment as usize);
        let blocks = Mutex::ranked(Rank::Scratch, Blocks::default());
        Self { lower, geometry, block_size, memory, log: Vec::new(), blocks }
    }

    /// The blocks of `replay` in their places.
    pub(super) fn with_log(mut self, replay: &Replay, map: &LogMap) -> Result<Self> {
        let place = |block: &ReplayedBlock| Ok((*block, map.place_of(block.log)?.0));
        self.log = replay.blocks.iter().map(place).collect::<Result<_>>()?;
        Ok(self)
    }

    /// The same for reading only.
    pub(super) fn read_only(&self) -> Arc<dyn BlockDevice> {
        let geometry = Geometry { read_only: true, ..self.geometry.clone() };
        let blocks = Mutex::ranked(Rank::Scratch, std::mem::take(&mut *self.blocks.lock()));
        let (lower, memory, log) = (self.lower.clone(), self.memory.clone(), self.log.clone());
        Arc::new(Self { lower, geometry, block_size: self.block_size, memory, log, blocks })
    }

    /// Forget the written blocks.
    pub(super) fn clear(&self) {
        self.blocks.lock().clear();
    }

    /// Look at the written blocks, which are in order.
    pub(super) fn with_blocks<R>(&self, look: impl FnOnce(&Blocks) -> R) -> R {
        look(&self.blocks.lock())
    }

    /// Blocks written.
    pub fn count(&self) -> usize {
        self.blocks.lock().len()
    }

    /// Write everything to its place on `device`. The caller flushes it.
    pub fn write_out(&self, device: &dyn BlockDevice) -> Result<()> {
        let blocks = self.blocks.lock();
        let mut plug = Plug::new(device.geometry(), BioFlags::META | BioFlags::SYNC);
        for (block, content) in &*blocks {
            plug.write(Sector::containing(self.block_size.address_of(FsBlock(*block))), content);
        }
        plug.unplug(device)?;
        Ok(())
    }

    /// Bytes `[start, start + len)` as parts of blocks: the block, where in it, how many bytes.
    fn parts(&self, start: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> + use<> {
        let size = self.block_size.bytes();
        let (mut at, end) = (start, start + len as u64);
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let part = (size - at % size).min(end - at);
            let result = (at / size, (at % size) as usize, part as usize);
            at += part;
            Some(result)
        })
    }

    /// Put the parts of blocks that `newer` gives into `memory`, which was read from byte `start` on.
    fn patch<M: std::ops::Deref<Target = [u8]>>(
        &self,
        start: u64,
        memory: &mut [u8],
        newer: impl Fn(u64) -> Result<Option<M>, IoError>,
    ) -> Result<(), IoError> {
        let mut done = 0;
        for (block, within, len) in self.parts(start, memory.len()) {
            if let Some(content) = newer(block)? {
                memory[done..done + len].copy_from_slice(&content[within..within + len]);
            }
            done += len;
        }
        Ok(())
    }

    /// The content of a block that the log has newer.
    fn read_log(&self, block: u64) -> Result<Option<BlockMemory>, IoError> {
        let Ok(index) = self.log.binary_search_by_key(&FsBlock(block), |(block, _)| block.target) else {
            return Ok(None);
        };
        let (replayed, place) = &self.log[index];
        let mut content = self.memory.zeroed();
        self.lower.read_bytes(self.block_size.address_of(*place), &mut content)?;
        replayed.unescape(&mut content);
        Ok(Some(content))
    }

    /// `None`: zeros.
    fn write(
        &self,
        blocks: &mut Blocks,
        start: u64,
        len: usize,
        content: Option<&[u8]>,
    ) -> Result<(), IoError> {
        let size = self.block_size.bytes();
        let mut done = 0;
        for (block, within, part) in self.parts(start, len) {
            let memory = match blocks.entry(block) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let content = if let Some(content) = self.read_log(block)? {
                        content
                    } else {
                        let mut content = self.memory.zeroed();
                        self.lower.read_bytes(block * size, &mut content)?;
                        content
                    };
                    entry.insert(content)
                }
            };
            let place = &mut memory[within..within + part];
            match content {
                Some(content) => place.copy_from_slice(&content[done..done + part]),
                None => place.fill(0),
            }
            done += part;
        }
        Ok(())
    }
}

impl BlockDevice for ScratchDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn counters(&self) -> &IoCounters {
        self.lower.counters()
    }

    fn name(&self) -> String {
        self.lower.name()
    }

    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        for bio in bios {
            (self as &dyn BlockDevice).check(std::slice::from_ref(bio))?;
            if bio.op == Op::Read {
                self.lower.execute(std::slice::from_mut(bio))?;
            }
            let mut at = bio.sector.to_bytes();
            match (&mut bio.memory, bio.op) {
                (BioMemory::Read(segments), _) => {
                    for segment in segments {
                        self.patch(at, segment, |block| self.read_log(block))?;
                        let blocks = self.blocks.lock();
                        self.patch(at, segment, |block| Ok(blocks.get(&block).map(|content| &**content)))?;
                        at += segment.len() as u64;
                    }
                }
                (BioMemory::Write(segments), _) => {
                    let mut blocks = self.blocks.lock();
                    for segment in segments {
                        self.write(&mut blocks, at, segment.len(), Some(segment))?;
                        at += segment.len() as u64;
                    }
                }
                (BioMemory::None(len), Op::WriteZeroes) => {
                    self.write(&mut self.blocks.lock(), at, *len as usize, None)?;
                }
                (BioMemory::None(_), _) => {}
            }
        }
        Ok(())
    }

    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        Ok(<dyn BlockDevice>::immediate_queue(self, depth))
    }
}

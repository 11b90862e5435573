//! A device that shows a volume as it will be after replay, without writing to it.
//!
//! Where it sits: in place of the real device under a volume that is open read-only and has a journal to replay, for
//! metadata and file data alike (volumes with data=journal have data in the log). Blocks that the log has newer are
//! read from the log, everything else passes through; a read that meets none of them costs one binary search.
//!
//! Cost: one small record for each overlaid block; contents stay on the device.

use std::sync::Arc;

use diorite_block::{
    Bio, BioMemory, BlockDevice, Completed, Geometry, IoCounters, IoError, IoQueue, Notify, Op, QueuedIo,
    Sector, Watch,
};

use super::log_map::LogMap;
use super::replay::{Replay, ReplayedBlock};
use crate::memory::BlockMemory;
use crate::{BlockSize, FsBlock, Result};

/// Serves replayed blocks from the log.
#[derive(Debug)]
pub(crate) struct OverlayDevice {
    lower: Arc<dyn BlockDevice>,
    geometry: Geometry,
    block_size: BlockSize,
    /// By target; with the place of the content.
    blocks: Vec<(ReplayedBlock, FsBlock)>,
}

impl OverlayDevice {
    /// `lower`, read-only, with the blocks of `replay` in their places.
    pub(crate) fn new(
        lower: Arc<dyn BlockDevice>,
        replay: &Replay,
        map: &LogMap,
        block_size: BlockSize,
    ) -> Result<Arc<Self>> {
        let geometry = Geometry { read_only: true, ..lower.geometry().clone() };
        let place = |block: &ReplayedBlock| Ok((*block, map.place_of(block.log)?.0));
        let blocks = replay.blocks.iter().map(place).collect::<Result<_>>()?;
        Ok(Arc::new(Self { lower, geometry, block_size, blocks }))
    }

    /// Put overlaid content into what was read from `sector` on.
    fn patch<'m>(&self, sector: Sector, segments: impl Iterator<Item = &'m mut [u8]>) -> Result<(), IoError> {
        let size = self.block_size.bytes();
        let mut start = sector.to_bytes();
        for segment in segments {
            let end = start + segment.len() as u64;
            let first = self.blocks.partition_point(|(block, _)| (block.target.0 + 1) * size <= start);
            for (block, place) in &self.blocks[first..] {
                let at = block.target.0 * size;
                if at >= end {
                    break;
                }
                let mut content = BlockMemory::zeroed(size as usize);
                self.lower.read_bytes(place.0 * size, &mut content)?;
                block.unescape(&mut content);
                let (from, to) = (at.max(start), (at + size).min(end));
                segment[(from - start) as usize..(to - start) as usize]
                    .copy_from_slice(&content[(from - at) as usize..(to - at) as usize]);
            }
            start = end;
        }
        Ok(())
    }
}

impl BlockDevice for OverlayDevice {
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
        (self as &dyn BlockDevice).check(bios)?;
        self.lower.execute(bios)?;
        for bio in bios {
            if let BioMemory::Read(segments) = &mut bio.memory {
                self.patch(bio.sector, segments.iter_mut().map(|segment| &mut **segment))?;
            }
        }
        Ok(())
    }

    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        let lower = self.lower.clone().open_queue(depth)?;
        Ok(Box::new(OverlayQueue { lower, device: self }))
    }
}

/// A queue of the lower device whose completions are patched.
#[derive(Debug)]
struct OverlayQueue {
    lower: Box<dyn IoQueue>,
    device: Arc<OverlayDevice>,
}

impl OverlayQueue {
    fn patch(&self, io: &mut QueuedIo) -> Result<(), IoError> {
        let (Op::Read, Some(memory)) = (io.op, io.memory.as_owned_mut()) else { return Ok(()) };
        for piece in &io.pieces {
            let memory = &mut memory.as_mut_slice()[piece.memory.clone()];
            self.device.patch(piece.sector, std::iter::once(memory))?;
        }
        Ok(())
    }
}

impl IoQueue for OverlayQueue {
    fn depth(&self) -> u32 {
        self.lower.depth()
    }

    fn in_flight(&self) -> u32 {
        self.lower.in_flight()
    }

    fn submit(&mut self, io: QueuedIo) -> Result<(), QueuedIo> {
        self.lower.submit(io)
    }

    fn issue(&mut self) -> Result<(), IoError> {
        self.lower.issue()
    }

    fn reap(&mut self, wait_for: u32, done: &mut Vec<Completed>) -> Result<usize, IoError> {
        let before = done.len();
        let count = self.lower.reap(wait_for, done)?;
        for completed in &mut done[before..] {
            if completed.result.is_ok() {
                completed.result = self.patch(&mut completed.io);
            }
        }
        Ok(count)
    }

    fn watch(&mut self, notify: Notify) -> Option<Watch> {
        self.lower.watch(notify)
    }
}

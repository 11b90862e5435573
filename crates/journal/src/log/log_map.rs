//! Where the journal's blocks are on the volume, and how they are read.
//!
//! Where it sits: between everything that thinks in log blocks and the device. The journal is a file; its mapping never
//! changes while the volume is in use, so it is walked once.

use diorite_block::BlockDevice;

use crate::memory::BlockMemory;
use crate::{BlockSize, Corrupt, FsBlock, Result};

/// A contiguous part of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// First block in the journal.
    log: u32,
    /// Where it is on the volume.
    block: FsBlock,
    blocks: u32,
}

/// The mapping of the journal's file.
#[derive(Clone, Debug, Default)]
pub struct LogMap {
    runs: Vec<Run>,
    /// Indices of `runs`, by place on the volume.
    by_place: Vec<u32>,
    blocks: u32,
}

impl LogMap {
    /// An empty mapping, to be filled in order.
    pub fn new() -> Self {
        Self::default()
    }

    /// Add the next `blocks` blocks of the file; they must be inside the volume of `volume_blocks`. Blocks beyond
    /// 2^32 cannot be addressed by a journal and are left out.
    pub fn push(&mut self, block: FsBlock, blocks: u64, volume_blocks: u64) -> Result<()> {
        let log = self.blocks;
        let inside = block.0.checked_add(blocks).is_some_and(|end| end <= volume_blocks);
        if !inside || block.0 == 0 {
            let what = "the journal's file lies outside the volume";
            return Err(Corrupt::Journal { block: log.into(), what }.into());
        }
        let blocks = blocks.min(u64::from(u32::MAX - self.blocks)) as u32;
        match self.runs.last_mut() {
            Some(last) if last.block.0 + u64::from(last.blocks) == block.0 => last.blocks += blocks,
            _ => self.runs.push(Run { log, block, blocks }),
        }
        self.blocks += blocks;
        Ok(())
    }

    /// All blocks were added; none may have been added twice.
    pub fn finish(mut self) -> Result<Self> {
        self.by_place = (0..self.runs.len() as u32).collect();
        let runs = &self.runs;
        self.by_place.sort_unstable_by_key(|index| runs[*index as usize].block);
        let sorted = |index: usize| runs[self.by_place[index] as usize];
        for index in 1..runs.len() {
            let (before, run) = (sorted(index - 1), sorted(index));
            if before.block.0 + u64::from(before.blocks) > run.block.0 {
                let what = "the journal's file has a block twice";
                return Err(Corrupt::Journal { block: run.log.into(), what }.into());
            }
        }
        Ok(self)
    }

    /// Blocks of the journal's file.
    pub fn blocks(&self) -> u64 {
        self.blocks.into()
    }

    /// Where a block of the journal is, and how many from there on are contiguous.
    pub fn place_of(&self, log: u32) -> Result<(FsBlock, u32)> {
        let index = self.runs.partition_point(|run| run.log <= log);
        index
            .checked_sub(1)
            .and_then(|index| self.runs.get(index))
            .filter(|run| log - run.log < run.blocks)
            .map(|run| (FsBlock(run.block.0 + u64::from(log - run.log)), run.blocks - (log - run.log)))
            .ok_or(Corrupt::Journal { block: log.into(), what: "the journal's file ends before it" }.into())
    }

    /// Whether a block of the volume belongs to the journal.
    pub fn contains(&self, block: FsBlock) -> bool {
        let index = self.by_place.partition_point(|index| self.runs[*index as usize].block <= block);
        index.checked_sub(1).is_some_and(|index| {
            let run = self.runs[self.by_place[index] as usize];
            block.0 - run.block.0 < u64::from(run.blocks)
        })
    }
}

/// Reads log blocks in large transfers, for sequential access.
#[derive(Debug)]
pub struct LogReader<'a> {
    device: &'a dyn BlockDevice,
    map: &'a LogMap,
    block_size: BlockSize,
    memory: BlockMemory,
    /// Log blocks that are in memory.
    window: std::ops::Range<u32>,
}

impl<'a> LogReader<'a> {
    /// Bytes read at once, if the journal is contiguous.
    const WINDOW_BYTES: u64 = 1 << 20;

    /// A reader with nothing in memory.
    pub fn new(device: &'a dyn BlockDevice, map: &'a LogMap, block_size: BlockSize) -> Self {
        let bytes = Self::WINDOW_BYTES.max(block_size.bytes()) as usize;
        Self { device, map, block_size, memory: BlockMemory::zeroed(bytes), window: 0..0 }
    }

    /// One block of the log.
    pub fn read(&mut self, log: u32) -> Result<&[u8]> {
        let size = self.block_size.bytes() as usize;
        if !self.window.contains(&log) {
            let (block, contiguous) = self.map.place_of(log)?;
            let count = contiguous.min((self.memory.len() / size) as u32);
            self.window = 0..0;
            let memory = &mut self.memory[..count as usize * size];
            self.device.read_bytes(block.0 * size as u64, memory)?;
            self.window = log..log + count;
        }
        let at = (log - self.window.start) as usize * size;
        Ok(&self.memory[at..at + size])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_membership_follow_the_runs() {
        let mut map = LogMap::new();
        map.push(FsBlock(100), 10, 1000).unwrap();
        map.push(FsBlock(110), 5, 1000).unwrap();
        map.push(FsBlock(50), 5, 1000).unwrap();
        assert!(map.push(FsBlock(990), 11, 1000).is_err());
        let mut twice = map.clone();
        twice.push(FsBlock(112), 1, 1000).unwrap();
        assert!(twice.finish().is_err());
        let map = map.finish().unwrap();
        assert_eq!(map.runs.len(), 2);
        assert_eq!(map.place_of(12).unwrap(), (FsBlock(112), 3));
        assert_eq!(map.place_of(15).unwrap(), (FsBlock(50), 5));
        assert!(map.place_of(20).is_err());
        let inside: Vec<_> = (0..200).filter(|block| map.contains(FsBlock(*block))).collect();
        assert_eq!(inside, (50..55).chain(100..115).collect::<Vec<_>>());
    }
}

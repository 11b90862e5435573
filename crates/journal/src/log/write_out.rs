//! Changes of fast commits go from memory to the disk as one transaction of the log.
//!
//! Where it sits: the last step of a replay with fast commits, after the blocks of the log are in their places.
//!
//! Order on the disk, each step flushed before the next: the journal's superblock says that the log is empty, from the block after
//! its last transaction on (fast commits on top of that transaction still count); the blocks of the new transaction; **its commit
//! block, from which on it counts and the fast commits do not**; the blocks in their places. So a crash at any moment leaves a log
//! that is replayed to the same.

use diorite_block::{BioFlags, BlockDevice};

use super::commit::LoggedTransaction;
use super::durable::write_superblock;
use super::log_map::LogMap;
use super::replay::Replay;
use super::scratch::ScratchDevice;
use crate::format::{CommitTime, CompatFeatures, JournalSuperblock};
use crate::memory::BlockMemory;
use crate::{BlockSize, FsBlock, Incompatible, Result};

/// A log to be written.
pub(super) struct Log<'a> {
    pub(super) device: &'a dyn BlockDevice,
    pub(super) map: &'a LogMap,
    pub(super) block_size: BlockSize,
    pub(super) superblock: &'a mut JournalSuperblock,
}

/// Write the changes of `scratch` on top of `replay`, whose blocks are in their places.
pub(super) fn write_out(log: &mut Log<'_>, replay: &Replay, scratch: &ScratchDevice) -> Result<()> {
    // Checksums of the first generation are not made here. The log is as good as empty.
    log.superblock.start = 0;
    log.superblock.set_features(CompatFeatures::empty(), log.superblock.incompat);
    let layout = log.superblock.layout(log.block_size.bytes());
    let blocks = scratch.count() as u64;
    let descriptors = blocks.div_ceil(layout.tags_per_descriptor() as u64);
    // One block stays free, so that a full log does not look like an empty one.
    if blocks + descriptors + 2 > u64::from(log.superblock.log_blocks()) {
        let what = "the journal's fast commits change more blocks than its log can take at once: let e2fsck replay them";
        return Err(Incompatible::Other(what).into());
    }
    // Sequence numbers are given once, but for that of a transaction that was cut off.
    let sequence = replay.next_sequence.wrapping_sub(1);
    (log.superblock.start, log.superblock.sequence) = (replay.head, sequence);
    write_superblock(log.device, log.map, log.block_size, log.superblock)?;
    log.clear(replay.head, blocks + descriptors + 1)?;
    scratch.with_blocks(|blocks| {
        let (time, revoked) = (CommitTime::default(), Vec::new());
        let blocks = blocks.iter().map(|(block, content)| (FsBlock(*block), content)).collect();
        let transaction = LoggedTransaction { sequence, time, revoked, blocks };
        let next = |at: &u32| Some(log.superblock.next(*at));
        let mut places = std::iter::successors(Some(replay.head), next);
        transaction.write(log.device, log.map, &layout, log.block_size, &mut places)
    })?;
    scratch.write_out(log.device)?;
    log.device.flush()?;
    Ok(())
}

impl Log<'_> {
    /// Nothing of a transaction that was cut off, which has the same number, may pass for a part of the new one.
    fn clear(&self, from: u32, blocks: u64) -> Result<()> {
        let zeros = BlockMemory::zeroed(self.block_size.bytes() as usize);
        let mut at = from;
        for _ in 0..blocks {
            let offset = self.block_size.address_of(self.map.place_of(at)?.0);
            self.device.write_bytes(offset, &zeros, BioFlags::META | BioFlags::SYNC)?;
            at = self.superblock.next(at);
        }
        Ok(self.device.flush()?)
    }
}

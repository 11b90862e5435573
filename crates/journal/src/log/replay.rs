//! Blocks that the log has newer than their places, and writing them there.
//!
//! Where it sits: [`super::scan`] finds it when a volume is opened, before anything else is read of it. [`Replay::apply`] puts the
//! blocks in their places, [`super::scratch::ScratchDevice`] serves them from the log instead.

use diorite_block::{BioFlags, BlockDevice, Plug, Sector};

use super::log_map::LogMap;
use crate::format::MAGIC;
use crate::memory::BlockMemory;
use crate::{BlockSize, Corrupt, FsBlock, Result};

/// Bytes that [`Replay::apply`] holds in memory.
const BATCH_BYTES: usize = 4 << 20;

/// A block that the log has newer than its place on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplayedBlock {
    /// Its place on the volume.
    pub(crate) target: FsBlock,
    /// Its newest content, as a block of the journal.
    pub(crate) log: u32,
    /// Whether its first four bytes were taken out because they look like a header.
    pub(crate) escaped: bool,
    /// Counted from the first one in the log.
    pub(super) transaction: u32,
    /// As its tag has it.
    pub(super) checksum: u32,
}

/// Content of a journal to replay.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replay {
    /// Blocks to replay, by target, each once.
    pub(crate) blocks: Vec<ReplayedBlock>,
    /// The log's block after the last complete transaction.
    pub(crate) head: u32,
    /// The sequence number that the next transaction must have: nothing that is left in the log matches it.
    pub(crate) next_sequence: u32,
    /// A committed transaction or fast commit that cannot be replayed. Everything after it is not replayed either.
    pub(crate) damage: Option<Corrupt>,
}

impl Replay {
    /// Write every block to its place. The caller flushes the device and marks the journal empty afterwards.
    pub(crate) fn apply(&self, device: &dyn BlockDevice, map: &LogMap, block_size: BlockSize) -> Result<()> {
        let size = block_size.bytes() as usize;
        let per_batch = (BATCH_BYTES / size).max(1);
        let mut memory = BlockMemory::zeroed(per_batch.min(self.blocks.len()) * size);
        for batch in self.blocks.chunks(per_batch) {
            let memory = &mut memory[..batch.len() * size];
            read_batch(batch, memory, device, map, block_size)?;
            let mut plug = Plug::new(device.geometry(), BioFlags::META | BioFlags::SYNC);
            for (block, content) in batch.iter().zip(memory.chunks(size)) {
                plug.write(Sector::containing(block_size.address_of(block.target)), content);
            }
            plug.unplug(device)?;
        }
        Ok(())
    }
}

/// Read the content of `batch` out of the log, in the log's order so that neighbours are one transfer.
fn read_batch(
    batch: &[ReplayedBlock],
    memory: &mut [u8],
    device: &dyn BlockDevice,
    map: &LogMap,
    block_size: BlockSize,
) -> Result<()> {
    let size = block_size.bytes() as usize;
    let mut in_log_order: Vec<_> = batch.iter().zip(memory.chunks_mut(size)).collect();
    in_log_order.sort_unstable_by_key(|(block, _)| block.log);
    let mut plug = Plug::new(device.geometry(), BioFlags::META | BioFlags::SYNC);
    for (block, to) in in_log_order {
        plug.read(Sector::containing(block_size.address_of(map.place_of(block.log)?.0)), to);
    }
    plug.unplug(device)?;
    for (block, content) in batch.iter().zip(memory.chunks_mut(size)) {
        block.unescape(content);
    }
    Ok(())
}

impl ReplayedBlock {
    /// Convert the content from its form in the log to its form on the volume.
    pub(crate) fn unescape(&self, content: &mut [u8]) {
        if self.escaped {
            content[..4].copy_from_slice(&MAGIC.to_be_bytes());
        }
    }
}

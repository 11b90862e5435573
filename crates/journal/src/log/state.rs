//! The journal of a volume, and its state that changes with every commit.
//!
//! Where it sits: [`Journal`] is shared by `commit.rs`, which writes closed transactions into the circular log, and `checkpoint.rs`, which
//! writes logged blocks to their places and frees log space. A committed transaction is checkpointed when every block is in
//! its place or in a later transaction: its log space is free then.
//!
//! Locking: `space` is held for a few instructions, never across I/O; `checkpointing` and `superblock` are held across I/O.

use std::sync::Arc;

use diorite_block::BlockDevice;
use diorite_block::sync::{Mutex, Rank};

use super::checkpoint_list::CheckpointList;
use super::log_map::LogMap;
use crate::buffer::BufferCache;
use crate::format::{JournalSuperblock, RecordLayout};
use crate::transaction::{AbortLatch, HomeWriter, TransactionId};
use crate::{BlockSize, Clock};

/// Parameters of a journal from its volume.
#[derive(Debug)]
pub struct JournalParts {
    /// The volume's device, which the journal is on.
    pub device: Arc<dyn BlockDevice>,
    /// The size of its blocks.
    pub block_size: BlockSize,
    /// Where the journal is.
    pub map: LogMap,
    /// With an empty log and the features to be written with.
    pub superblock: JournalSuperblock,
    /// The volume's metadata blocks.
    pub cache: Arc<BufferCache>,
    /// Set by the first write that fails.
    pub latch: Arc<AbortLatch>,
    /// For the times of commits.
    pub clock: Arc<dyn Clock>,
}

/// The journal of a volume that is open for writing.
#[derive(Debug)]
pub struct Journal {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) block_size: BlockSize,
    pub(super) map: LogMap,
    pub(super) layout: RecordLayout,
    pub(super) cache: Arc<BufferCache>,
    pub(super) latch: Arc<AbortLatch>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) home: HomeWriter,
    /// Blocks of the circular log, and its first block in the journal.
    pub(super) log_blocks: u64,
    pub(super) first: u32,
    /// Most blocks of one transaction.
    pub(super) blocks_max: u64,
    pub(super) space: Mutex<LogSpace>,
    pub(super) checkpoint: Mutex<CheckpointList>,
    /// Held while blocks are written to their places.
    pub(super) checkpointing: Mutex<()>,
    /// As it is on the disk.
    pub(super) superblock: Mutex<JournalSuperblock>,
}

/// The space of the log.
#[derive(Debug)]
pub(super) struct LogSpace {
    /// Log blocks written since the volume was opened, and those of them that are free again: their difference is in
    /// use.
    pub(super) head: u64,
    pub(super) tail: u64,
    /// The transaction that is being written, and the place of its first block.
    pub(super) writing: Option<(TransactionId, u64)>,
    /// The transaction after all that have a place.
    pub(super) next: TransactionId,
}

impl LogSpace {
    /// Log blocks that nothing needs.
    pub(super) fn free(&self, log_blocks: u64) -> u64 {
        // One block stays free, so that a full log does not look like an empty one.
        log_blocks - 1 - (self.head - self.tail)
    }

    /// The oldest transaction that the log must keep, or the one that is written to it next, and its place.
    pub(super) fn oldest_needed(&self, list: &CheckpointList) -> (TransactionId, u64) {
        list.oldest().or(self.writing).unwrap_or((self.next, self.head))
    }
}

impl Journal {
    /// Largest share of the log that one transaction may fill.
    const TRANSACTION_SHARE: u64 = 4;

    /// The journal on `parts`, and the number of its first transaction. Writes nothing before the first commit.
    pub fn new(parts: JournalParts) -> (Self, TransactionId) {
        let log_blocks = u64::from(parts.superblock.log_blocks());
        // Above all sequence numbers, so that no transaction has the number 0.
        let id = TransactionId(1 << 32 | u64::from(parts.superblock.sequence));
        let cached = parts.cache.transaction_blocks() as u64;
        let space = LogSpace { head: 0, tail: 0, writing: None, next: id };
        let journal = Self {
            home: HomeWriter::new(parts.device.clone(), parts.block_size),
            layout: parts.superblock.layout(parts.block_size.bytes()),
            log_blocks,
            first: parts.superblock.first,
            blocks_max: (log_blocks / Self::TRANSACTION_SHARE).min(cached).max(16),
            space: Mutex::ranked(Rank::JournalSpace, space),
            checkpoint: Mutex::ranked(Rank::JournalCheckpoint, CheckpointList::default()),
            checkpointing: Mutex::ranked(Rank::JournalCheckpointing, ()),
            superblock: Mutex::ranked(Rank::JournalSuperblock, parts.superblock),
            device: parts.device,
            block_size: parts.block_size,
            map: parts.map,
            cache: parts.cache,
            latch: parts.latch,
            clock: parts.clock,
        };
        (journal, id)
    }

    /// Log blocks that a transaction of `blocks` blocks and `revoked` revoke records takes.
    pub(super) fn log_blocks_for(&self, blocks: u64, revoked: u64) -> u64 {
        let descriptors = blocks.div_ceil(self.layout.tags_per_descriptor() as u64);
        let revokes = revoked.div_ceil(self.layout.revokes_per_block() as u64);
        blocks + descriptors + revokes + 1
    }

    /// The block of the journal at a place that is counted as [`LogSpace::head`] is.
    pub(super) fn log_block(&self, place: u64) -> u32 {
        self.first + (place % self.log_blocks) as u32
    }
}

//! What a volume is doing at one moment, for people who watch it.

use crate::Volume;
use crate::transaction::TransactionStatus;

pub use diorite_journal::transaction::LogUse;

/// Transactions, the log and the metadata cache at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeStatus {
    /// The transaction that changes join now. Numbers grow by one.
    pub running_transaction: u64,
    /// Blocks that it changes.
    pub running_blocks: u64,
    /// Operations that are changing metadata.
    pub open_handles: u32,
    /// The newest transaction that is durable.
    pub durable_transaction: u64,
    /// Whether a transaction is being written.
    pub is_committing: bool,
    /// The log of the journal; `None`: the volume has no journal, or is read-only.
    pub log: Option<LogUse>,
    /// Bytes of metadata blocks in memory, copies of them included.
    pub metadata_bytes: u64,
    /// Bytes that the metadata cache aims at.
    pub metadata_bytes_max: u64,
}

impl Volume {
    /// What it is doing now.
    pub fn status(&self) -> VolumeStatus {
        let buffers = &self.core.buffers;
        let block_bytes = self.block_size().bytes();
        let TransactionStatus {
            running_transaction,
            running_blocks,
            open_handles,
            durable_transaction,
            is_committing,
            log,
        } = self.core.transactions.status();
        VolumeStatus {
            running_transaction,
            running_blocks,
            open_handles,
            durable_transaction,
            is_committing,
            log,
            metadata_bytes: buffers.memory().in_use() as u64 * block_bytes,
            metadata_bytes_max: buffers.capacity_blocks() as u64 * block_bytes,
        }
    }

    /// Call `watch` once with the reason when a failed write makes the volume read-only (ARCHITECTURE invariant 9), or now if one did. It is
    /// called by the thread that met the error, and must not use the volume. Only the first watch counts.
    pub fn watch_abort(&self, watch: impl Fn(&str) + Send + Sync + 'static) {
        self.core.latch.watch(Box::new(watch));
    }
}

//! Activity of a volume at one moment, for status displays.

use crate::Volume;

pub use diorite_journal::transaction::{LogUse, TransactionStatus};

/// Transactions, the log and the metadata cache at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeStatus {
    /// Transactions and the log.
    pub transactions: TransactionStatus,
    /// Bytes of metadata blocks in memory, copies of them included.
    pub metadata_bytes: u64,
    /// Bytes that the metadata cache aims at.
    pub metadata_bytes_max: u64,
}

impl Volume {
    /// Its activity now.
    pub fn status(&self) -> VolumeStatus {
        let buffers = &self.core.buffers;
        let block_bytes = self.block_size().bytes();
        VolumeStatus {
            transactions: self.core.transactions.status(),
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

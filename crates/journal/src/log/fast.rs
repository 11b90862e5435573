//! What a filesystem does about fast commits: records of its own after the log, which count on top of the log's last transaction.

use std::sync::Arc;

use diorite_block::BlockDevice;

use super::log_map::LogReader;
use super::scratch::ScratchDevice;
use crate::format::JournalSuperblock;
use crate::{BlockSize, Corrupt, Error, Result};

/// Reads and replays fast commits. `E` is the filesystem's error.
pub trait FastCommits<E = Error> {
    /// Read those that are complete, on top of the transaction before `sequence`; what is damaged among them.
    fn read(
        &mut self,
        reader: &mut LogReader<'_>,
        superblock: &JournalSuperblock,
        sequence: u32,
    ) -> Result<Option<Corrupt>>;

    /// Forget what was read: it does not count.
    fn clear(&mut self);

    /// Whether there is nothing to replay.
    fn is_empty(&self) -> bool;

    /// Make the changes in memory, on the volume that `view` shows; or what of them is damaged.
    fn replay(
        &self,
        view: Arc<dyn BlockDevice>,
        block_size: BlockSize,
    ) -> Result<Result<Arc<ScratchDevice>, Corrupt>, E>;
}

/// For a filesystem without fast commits.
#[derive(Clone, Copy, Debug)]
pub struct NoFastCommits;

impl FastCommits for NoFastCommits {
    fn read(&mut self, _: &mut LogReader<'_>, _: &JournalSuperblock, _: u32) -> Result<Option<Corrupt>> {
        Ok(None)
    }

    fn clear(&mut self) {}

    fn is_empty(&self) -> bool {
        true
    }

    fn replay(
        &self,
        view: Arc<dyn BlockDevice>,
        block_size: BlockSize,
    ) -> Result<Result<Arc<ScratchDevice>, Corrupt>> {
        Ok(Ok(ScratchDevice::new(view, block_size)))
    }
}

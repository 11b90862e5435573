//! Interface to a filesystem's fast commits: records of its own after the log, which count on top of the log's last transaction.

use std::sync::Arc;

use super::log_map::LogReader;
use super::scratch::ScratchDevice;
use crate::format::JournalSuperblock;
use crate::{Corrupt, Error, Result};

/// Reads and replays fast commits. `E` is the filesystem's error.
pub trait FastCommits<E = Error> {
    /// Read complete fast commits, on top of the transaction before `sequence`; returns damage among them.
    fn read(
        &mut self,
        reader: &mut LogReader<'_>,
        superblock: &JournalSuperblock,
        sequence: u32,
    ) -> Result<Option<Corrupt>>;

    /// Forget the records: they do not count.
    fn clear(&mut self);

    /// Whether there is nothing to replay.
    fn is_empty(&self) -> bool;

    /// Make the changes on the volume that `scratch` shows; the inner error is their damage.
    fn replay(&self, scratch: Arc<ScratchDevice>) -> Result<Result<(), Corrupt>, E>;
}

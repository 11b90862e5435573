//! What a commit writes, and what writes it.

use std::fmt;
use std::sync::Arc;

use hashbrown::HashSet;

use super::{Freed, Join, Moves, TransactionId};
use crate::buffer::Buffer;
use crate::memory::BlockMemory;
use crate::volume::LogUse;
use crate::{FsBlock, Result};

/// Writes closed transactions. An error is latched by the caller (ARCHITECTURE invariant 9).
pub(crate) trait CommitStore: Send + Sync + fmt::Debug {
    /// Most blocks of one transaction.
    fn blocks_max(&self) -> u64;

    /// Whether there is space for a transaction of so many blocks, with so many revoked ones.
    fn has_space_for(&self, _blocks: u64, _revoked: u64) -> bool {
        true
    }

    /// Whether durable transactions take up space.
    fn is_in_use(&self) -> bool {
        false
    }

    /// How full the log is, where there is one.
    fn log_use(&self) -> Option<LogUse> {
        None
    }

    /// Free space of durable transactions until there is enough for a whole one; `false` if nothing was freed.
    fn make_space(&self) -> Result<bool> {
        Ok(false)
    }

    /// Set space aside for a closed transaction. The next one runs afterwards.
    fn place(&self, _closed: &Closed) -> Result<()> {
        Ok(())
    }

    /// Write a closed transaction: durable on return.
    fn write(&self, closed: &Closed) -> Result<()>;

    /// A transaction is durable, and its waiters do not know yet.
    fn committed(&self, _closed: &mut Closed) {}

    /// Wait until old content of revoked blocks is not being written to their places.
    fn wait_for_revoked(&self, _revoked: &HashSet<FsBlock>) {}

    /// After a commit, by the thread that made it.
    fn after_commit(&self) -> Result<()> {
        Ok(())
    }

    /// Flush the device.
    fn flush(&self) -> Result<()>;

    /// Everything is durable: leave nothing to replay. `next` would be the next transaction.
    fn close(&self, _next: TransactionId) -> Result<()> {
        Ok(())
    }
}

/// A closed transaction: everything that will be written and nothing that can still change.
#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) id: TransactionId,
    /// By address.
    pub(crate) blocks: Vec<ClosedBlock>,
    pub(crate) revoked: HashSet<FsBlock>,
    pub(crate) moves: Moves,
    pub(crate) freed: Freed,
}

/// A block of a closed transaction.
#[derive(Debug)]
pub(crate) struct ClosedBlock {
    /// Keeps the block in the cache, for a read must not find it on the disk as it was.
    pub(crate) buffer: Arc<Buffer>,
    pub(crate) content: Arc<BlockMemory>,
    pub(crate) join: Join,
}

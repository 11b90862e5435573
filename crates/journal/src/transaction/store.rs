//! The content of a commit, and the interface of its store.

use std::fmt;
use std::sync::Arc;

use hashbrown::HashSet;

use super::{Freed, Join, Moves, TransactionId};
use crate::buffer::Buffer;
use crate::memory::BlockMemory;
use crate::{FsBlock, Result};

/// How full a journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogUse {
    /// Blocks of the log.
    pub blocks: u64,
    /// Those that hold transactions whose blocks are not all in their places yet.
    pub used: u64,
}

/// Writes closed transactions. An error is latched by the caller (ARCHITECTURE invariant 9).
pub trait CommitStore: Send + Sync + fmt::Debug {
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

    /// How full the log is, if there is one.
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
pub struct Closed {
    /// Its number.
    pub id: TransactionId,
    /// By address.
    pub blocks: Vec<ClosedBlock>,
    /// Blocks whose older content in the log does not count.
    pub revoked: HashSet<FsBlock>,
    /// Moves between its blocks.
    pub moves: Moves,
    /// Freed blocks and numbers.
    pub freed: Freed,
}

/// A block of a closed transaction.
#[derive(Debug)]
pub struct ClosedBlock {
    /// Keeps the block in the cache, for a read must not find it on the disk as it was.
    pub buffer: Arc<Buffer>,
    /// Content to write.
    pub content: Arc<BlockMemory>,
    /// How it joined the transaction.
    pub join: Join,
}

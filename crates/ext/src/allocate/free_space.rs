//! Blocks for an operation, and reclaim if there are too few.
//!
//! Where it sits: above the allocator, which knows which blocks are free now. Blocks in the windows of files, and blocks that were
//! freed by a transaction that is not durable, become free after a step that needs the log.

use crate::allocate::{Allocator, Reach};
use crate::transaction::Transactions;
use crate::{BlockRun, Error, FsBlock, Result};

/// Source of blocks for the operations of a volume.
pub(crate) struct FreeSpace<'v> {
    pub(crate) allocator: &'v Allocator,
    pub(crate) transactions: &'v Transactions,
}

/// Blocks claimed for one operation, until this is dropped.
#[derive(Debug)]
pub(crate) struct MetadataClaim<'v> {
    allocator: &'v Allocator,
    blocks: u64,
}

impl Drop for MetadataClaim<'_> {
    fn drop(&mut self) {
        self.allocator.release_claim(self.blocks);
    }
}

impl<'v> FreeSpace<'v> {
    /// Claim blocks of metadata for an operation that is about to begin a handle.
    pub(crate) fn claim_metadata(&self, blocks: u64) -> Result<MetadataClaim<'v>> {
        self.retry(|| Ok(self.try_claim_metadata(blocks).ok()))
    }

    /// As [`FreeSpace::claim_metadata`], under locks that forbid to wait for space.
    pub(crate) fn try_claim_metadata(&self, blocks: u64) -> Result<MetadataClaim<'v>> {
        if !self.allocator.claim_for_metadata(blocks) {
            return Err(Error::NoSpace);
        }
        Ok(MetadataClaim { allocator: self.allocator, blocks })
    }

    /// As [`FreeSpace::try_claim_metadata`], for blocks of directories and extended attributes: the caller may have to leave some free.
    pub(crate) fn claim_for_names(&self, clusters: u64) -> Result<MetadataClaim<'v>> {
        let is_claimed = || self.allocator.claim_for_names(clusters);
        if !is_claimed() {
            self.allocator.release_windows();
            if !is_claimed() {
                return Err(Error::NoSpace);
            }
        }
        Ok(MetadataClaim { allocator: self.allocator, blocks: clusters })
    }

    /// Claim clusters for data ([`Files::claim`](crate::Files::claim)).
    pub(crate) fn claim(&self, blocks: u64) -> Result<()> {
        self.retry(|| Ok(self.allocator.claim(blocks).then_some(())))
    }

    /// Claim clusters for a mapping, which may use clusters that data may not, in place of `given`.
    pub(crate) fn claim_for_mapping(&self, given: u64, wanted: u64) -> Result<()> {
        self.retry(|| Ok(self.allocator.exchange_claim(given, wanted).then_some(())))
    }

    /// Keep a run of at most `wanted` blocks near `goal`.
    pub(crate) fn reserve_run(&self, goal: FsBlock, wanted: u64, reach: Reach) -> Result<BlockRun> {
        self.retry(|| self.allocator.reserve(goal, wanted, reach))
    }

    /// Before a handle begins on a volume that is nearly full: blocks that are free but cannot be taken yet are made
    /// takable, since no thread can wait for that inside a handle.
    pub(crate) fn relieve(&self) -> Result<()> {
        if self.allocator.needs_held_inodes() {
            self.transactions.sync_and_release()?;
        }
        if self.allocator.is_nearly_full() {
            self.allocator.release_windows();
            if self.allocator.is_nearly_full() && self.allocator.has_pending() {
                self.transactions.sync_and_release()?;
            }
        }
        Ok(())
    }

    /// Try again after each step that can free blocks: windows are released, then freed blocks are made durable.
    fn retry<T>(&self, attempt: impl Fn() -> Result<Option<T>>) -> Result<T> {
        if let Some(found) = attempt()? {
            return Ok(found);
        }
        self.allocator.release_windows();
        if let Some(found) = attempt()? {
            return Ok(found);
        }
        if !self.allocator.has_pending() {
            // Blocks that were pending at the first attempt may be free by now.
            return attempt()?.ok_or(Error::NoSpace);
        }
        self.transactions.sync_and_release()?;
        attempt()?.ok_or(Error::NoSpace)
    }
}

//! Checkpoint list: blocks that are in the log and not yet in their places.
//!
//! Where it sits: the list used by `checkpoint.rs`; it writes nothing itself. A block that a later transaction logs again moves to
//! that transaction and is not written for the earlier one.
//!
//! Invariant: every block here is held by its [`Buffer`], so no read from the volume returns content older than the log.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use crate::FsBlock;
use crate::buffer::Buffer;
use crate::memory::BlockMemory;
use crate::transaction::{ClosedBlock, TransactionId};

/// A block whose newest committed content is in the log only.
#[derive(Debug)]
struct Pending {
    transaction: TransactionId,
    content: Arc<BlockMemory>,
    /// Keeps the block in the cache.
    _buffer: Arc<Buffer>,
}

/// A committed transaction that still occupies the log.
#[derive(Debug)]
struct Logged {
    id: TransactionId,
    /// Place of its first block, counted as [`super::state::LogSpace::head`] is.
    start: u64,
    /// Blocks whose newest content is this transaction's.
    pending: usize,
}

/// Blocks that are in the log and not yet in their places.
#[derive(Debug, Default)]
pub(super) struct CheckpointList {
    blocks: HashMap<FsBlock, Pending>,
    /// Oldest first, with consecutive numbers.
    transactions: VecDeque<Logged>,
    /// Blocks that are being written to their places now, as these transactions logged them.
    writing: HashMap<FsBlock, TransactionId>,
    /// Of those, the versions that are waited for by the write only: a later transaction has logged or revoked the block.
    superseded: usize,
}

/// A block chosen to be written to its place.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) block: FsBlock,
    transaction: TransactionId,
    pub(super) content: Arc<BlockMemory>,
}

impl CheckpointList {
    /// Versions of blocks in memory: those that wait, and the older ones that are still being written.
    pub(super) fn versions(&self) -> usize {
        self.blocks.len() + self.superseded
    }

    /// Whether one of these blocks is being written to its place.
    pub(super) fn is_writing_any(&self, blocks: &HashSet<FsBlock>) -> bool {
        !self.writing.is_empty() && blocks.iter().any(|block| self.writing.contains_key(block))
    }

    /// Take over a committed transaction that begins in the log at `start`.
    pub(super) fn add(
        &mut self,
        id: TransactionId,
        start: u64,
        blocks: Vec<ClosedBlock>,
        revoked: &HashSet<FsBlock>,
    ) {
        for block in revoked {
            self.drop_pending(*block);
        }
        self.transactions.push_back(Logged { id, start, pending: blocks.len() });
        for ClosedBlock { buffer, content, .. } in blocks {
            let block = buffer.block();
            self.drop_pending(block);
            self.blocks.insert(block, Pending { transaction: id, content, _buffer: buffer });
        }
        self.drop_finished();
    }

    fn drop_pending(&mut self, block: FsBlock) {
        if let Some(pending) = self.blocks.remove(&block) {
            self.count_down(pending.transaction);
            self.superseded += usize::from(self.writing.get(&block) == Some(&pending.transaction));
        }
    }

    fn count_down(&mut self, transaction: TransactionId) {
        if let Some(first) = self.transactions.front()
            && let Some(logged) = self.transactions.get_mut((transaction.0 - first.id.0) as usize)
        {
            logged.pending -= 1;
        }
    }

    fn drop_finished(&mut self) {
        while self.transactions.front().is_some_and(|logged| logged.pending == 0) {
            self.transactions.pop_front();
        }
    }

    /// The oldest transaction that the log must keep.
    pub(super) fn oldest(&self) -> Option<(TransactionId, u64)> {
        self.transactions.front().map(|logged| (logged.id, logged.start))
    }

    /// The blocks to write so that all before `place` becomes free.
    pub(super) fn choose(&mut self, place: u64) -> Vec<Chosen> {
        let last = self.transactions.iter().take_while(|logged| logged.start < place).last();
        let Some(last) = last.map(|logged| logged.id) else { return Vec::new() };
        let chosen: Vec<_> = self
            .blocks
            .iter()
            .filter(|(_, pending)| pending.transaction <= last)
            .map(|(block, pending)| Chosen {
                block: *block,
                transaction: pending.transaction,
                content: pending.content.clone(),
            })
            .collect();
        self.writing = chosen.iter().map(|chosen| (chosen.block, chosen.transaction)).collect();
        chosen
    }

    /// These blocks are in their places.
    pub(super) fn written(&mut self, chosen: &[Chosen]) {
        self.writing.clear();
        self.superseded = 0;
        for chosen in chosen {
            if self.blocks.get(&chosen.block).is_some_and(|now| now.transaction == chosen.transaction) {
                self.drop_pending(chosen.block);
            }
        }
        self.drop_finished();
    }

    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        let mut counts: HashMap<u64, usize> = HashMap::new();
        for pending in self.blocks.values() {
            *counts.entry(pending.transaction.0).or_default() += 1;
        }
        for (index, logged) in self.transactions.iter().enumerate() {
            assert_eq!(logged.id.0, self.transactions[0].id.0 + index as u64);
            assert_eq!(logged.pending, counts.remove(&logged.id.0).unwrap_or(0));
        }
        assert!(counts.is_empty());
    }
}

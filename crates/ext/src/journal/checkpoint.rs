//! Logged blocks on their way to their places, and the end of the log that follows them.
//!
//! Where it sits: a commit adds its blocks here; whoever finds log space short writes some to their places. A block that a
//! later transaction logs again moves to that transaction and is not written for the earlier one.
//!
//! Order on the disk: blocks in their places, flush, then the journal superblock with the new start of the log. Only
//! after that is the space used again.
//!
//! Invariant: every block here is held by its [`Buffer`], so no read from the volume sees what is older than the log.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::format::JournalSuperblock;
use super::log::Journal;
use crate::buffer::Buffer;
use crate::memory::BlockMemory;
use crate::transaction::TransactionId;
use crate::{FsBlock, Result};

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
    /// Place of its first block, counted as [`super::log::State::head`] is.
    start: u64,
    /// Blocks whose newest content is this transaction's.
    pending: usize,
}

/// What is in the log and not yet in its place.
#[derive(Debug, Default)]
pub(super) struct CheckpointList {
    blocks: HashMap<FsBlock, Pending>,
    /// Oldest first, with consecutive numbers.
    transactions: VecDeque<Logged>,
    /// Blocks that are being written to their places now.
    writing: HashSet<FsBlock>,
}

/// A block chosen to be written to its place.
#[derive(Debug)]
struct Chosen {
    block: FsBlock,
    transaction: TransactionId,
    content: Arc<BlockMemory>,
}

impl CheckpointList {
    /// Whether no transaction occupies the log.
    pub(super) fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    /// Blocks that wait.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether one of these blocks is being written to its place.
    pub(super) fn is_writing_any(&self, blocks: &HashSet<FsBlock>) -> bool {
        !self.writing.is_empty() && blocks.iter().any(|block| self.writing.contains(block))
    }

    /// Take over a committed transaction that begins in the log at `start`.
    pub(super) fn add(
        &mut self,
        id: TransactionId,
        start: u64,
        blocks: Vec<(Arc<Buffer>, Arc<BlockMemory>)>,
        revoked: &HashSet<FsBlock>,
    ) {
        for block in revoked {
            self.drop_pending(*block);
        }
        self.transactions.push_back(Logged { id, start, pending: blocks.len() });
        for (buffer, content) in blocks {
            let block = buffer.block();
            self.drop_pending(block);
            self.blocks.insert(block, Pending { transaction: id, content, _buffer: buffer });
        }
        self.drop_finished();
    }

    fn drop_pending(&mut self, block: FsBlock) {
        if let Some(pending) = self.blocks.remove(&block) {
            self.count_down(pending.transaction);
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
    fn choose(&mut self, place: u64) -> Vec<Chosen> {
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
        self.writing = chosen.iter().map(|chosen| chosen.block).collect();
        chosen
    }

    /// These blocks are in their places.
    fn written(&mut self, chosen: &[Chosen]) {
        self.writing.clear();
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

impl Journal {
    /// Write logged blocks to their places so that at least `want` log blocks are free, or everything, and move the
    /// start of the log.
    pub(super) fn checkpoint(&self, want: Option<u64>) -> Result<()> {
        let _checkpointing = self.checkpointing.lock();
        self.latch.check()?;
        let place = {
            let state = self.state.lock();
            let wanted = want.map_or(u64::MAX, |want| want.saturating_sub(state.free(self.log_blocks)));
            if wanted == 0 {
                return Ok(());
            }
            state.tail.saturating_add(wanted)
        };
        let chosen = self.checkpoint.lock().choose(place);
        if !chosen.is_empty() {
            let blocks = chosen.iter().map(|chosen| (chosen.block, chosen.content.clone())).collect();
            let result = self.home.write(blocks).and_then(|()| self.home.flush());
            let mut list = self.checkpoint.lock();
            list.written(if result.is_ok() { &chosen } else { &[] });
            drop(list);
            result.map_err(|error| self.abort(error))?;
        }
        self.move_tail()
    }

    /// Tell the disk where the log starts now, and use the space before again. Called with `checkpointing` held.
    fn move_tail(&self) -> Result<()> {
        let (id, place) = {
            let state = self.state.lock();
            state.oldest_needed(&self.checkpoint.lock())
        };
        if place == self.state.lock().tail {
            return Ok(());
        }
        let mut superblock = self.superblock.lock();
        superblock.start = self.log_block(place);
        superblock.sequence = id.0 as u32;
        self.write_superblock(&superblock)?;
        drop(superblock);
        let mut state = self.state.lock();
        state.tail = place;
        self.changed.notify_all();
        Ok(())
    }

    /// The block of the journal at a place that is counted as [`super::log::State::head`] is.
    pub(super) fn log_block(&self, place: u64) -> u32 {
        self.first + (place % self.log_blocks) as u32
    }

    /// Make the journal superblock durable as it is in memory.
    pub(super) fn write_superblock(&self, superblock: &JournalSuperblock) -> Result<()> {
        super::recover::write_superblock(&*self.device, &self.map, self.block_size, superblock)
            .map_err(|error| self.abort(error))
    }
}

//! Commits on a volume without a journal: changed blocks are written in their places, in an order.
//!
//! Where it sits: [`InPlaceWriter`] is the [`CommitStore`] of volumes without a journal. Nothing makes a transaction atomic, so the
//! order protects durable data (as soft updates do): after a crash `e2fsck -fy` finds every synced file again.
//!
//! Order on the disk, each step flushed before the next (steps without blocks, or whose order does not matter, are merged):
//! 1. Data of files (written before its handle began), and blocks that nothing on the disk refers to: created in this transaction.
//! 2. Changed blocks of directories, mappings and bitmaps: the blocks that they refer to are durable, and a name is removed before its
//!    inode is freed.
//! 3. Blocks of directories from which a name has moved to another block: the file has both names for a moment. Where that contradicts
//!    another rename of the transaction, or the new name is in a block that was created, the transaction is committed in between.
//! 4. Inode tables (with the names of directories that are in their inodes), group descriptors, superblock: all that an inode of any file
//!    in them refers to is durable.
//! 5. Blocks whose content has moved to a created one (splits of directories): both have it for a moment. Nodes of extent trees are not
//!    split in place, because e2fsck keeps neither of two nodes that overlap.
//!
//! Not protected: a block with a checksum that a power cut tears, and two names that are exchanged between blocks (a file may be
//! in `lost+found`); the kernel has both too.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::buffer::{BlockKind, BufferCache};
use crate::memory::BlockMemory;
use crate::transaction::{Closed, CommitStore, HomeWriter, Join, Moves, TransactionId};
use crate::{FsBlock, Result};
use diorite_ext_format::Role;

/// The steps of a write-out; see the module's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Created,
    Changed,
    LostNames,
    Inodes,
    MovedFrom,
    /// In place of [`Step::LostNames`], where a block that gained a name is moved from.
    LostNamesLast,
}

/// See the module's head.
#[derive(Debug)]
pub struct InPlaceWriter {
    writer: HomeWriter,
    blocks_max: u64,
}

impl InPlaceWriter {
    /// The number of the first transaction.
    pub const FIRST: TransactionId = TransactionId(1);

    /// For a volume without a journal.
    pub fn new(buffers: &BufferCache, writer: HomeWriter) -> Self {
        Self { writer, blocks_max: buffers.transaction_blocks() as u64 }
    }
}

impl CommitStore for InPlaceWriter {
    fn blocks_max(&self) -> u64 {
        self.blocks_max
    }

    fn write(&self, closed: &Closed) -> Result<()> {
        let mut steps: BTreeMap<Step, Vec<(FsBlock, Arc<BlockMemory>)>> = BTreeMap::new();
        for block in &closed.blocks {
            let place = block.buffer.block();
            let step = match step_of(block.buffer.kind(), block.join) {
                Step::Changed => step_of_changed(&closed.moves, place),
                step => step,
            };
            steps.entry(step).or_default().push((place, block.content.clone()));
        }
        let created = steps.remove(&Step::Created).unwrap_or_default();
        let has_created = !created.is_empty();
        self.writer.write(created)?;
        if !closed.freed.names
            && let Some(changed) = steps.remove(&Step::Changed)
        {
            steps.entry(Step::Inodes).or_default().extend(changed);
        }
        if closed.freed.data || has_created || steps.is_empty() {
            self.flush()?;
        }
        for blocks in steps.into_values() {
            self.writer.write(blocks)?;
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.writer.flush()
    }
}

fn step_of_changed(moves: &Moves, block: FsBlock) -> Step {
    match (moves.lost_names.contains(&block), moves.from.contains(&block)) {
        (true, _) if moves.gains_late() => Step::LostNamesLast,
        (_, true) => Step::MovedFrom,
        (true, false) => Step::LostNames,
        (false, false) => Step::Changed,
    }
}

fn step_of(kind: BlockKind, join: Join) -> Step {
    match kind.role() {
        _ if join == Join::Created => Step::Created,
        Role::Table | Role::Summary | Role::Derived => Step::Inodes,
        Role::Node => Step::Changed,
    }
}

//! Operations of both kinds of mapping trees: the extent tree of ext4, and the indirect blocks of ext2 and ext3.

use std::ops::Range;

use crate::inode::{InodeChange, InodeState};
use crate::{BlockRun, FileBlock, FsBlock, Inode, InodeNumber, Mapping, MappingKind, Result};

/// A change of a mapping whose blocks are counted before it is made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// A hole gets blocks.
    Insert(Mapping),
    /// Unwritten blocks hold data: first file block, number of blocks.
    Convert(FileBlock, u64),
}

impl Change {
    /// The file blocks that it is about.
    pub(crate) fn range(&self) -> Range<u64> {
        match *self {
            Self::Insert(mapping) => mapping.start.0..mapping.end(),
            Self::Convert(start, blocks) => start.0..start.0.saturating_add(blocks),
        }
    }
}

/// Runs of blocks that one step of a removal takes at most.
pub(crate) const RUNS_PER_STEP: usize = 16;

/// A mapping tree; its root is in the state of the inode. A change is made with the inode's cached mappings of the range forgotten,
/// and the caller stores the inode.
pub(crate) trait MappingTree {
    /// Blocks that a file can have.
    fn max_blocks(&self) -> u64;

    /// The mapping around `at` as far as one leaf has it. It begins at or before `at` and contains it.
    fn find(&self, inode: InodeNumber, state: &InodeState, at: FileBlock) -> Result<Mapping>;

    /// Map blocks where there is a hole.
    fn insert(&self, on: &mut InodeChange<'_, '_>, mapping: Mapping) -> Result<()>;

    /// Unwritten blocks hold data now, or blocks with data become unwritten. The range is inside one mapping of the other kind.
    fn convert(
        &self,
        on: &mut InodeChange<'_, '_>,
        start: FileBlock,
        blocks: u64,
        to: fn(FsBlock) -> MappingKind,
    ) -> Result<()>;

    /// Unmap from `at` on, up to `end` or the end of one leaf or of one step.
    fn remove(&self, on: &mut InodeChange<'_, '_>, at: u64, end: u64) -> Result<RemovalStep>;

    /// After the last step of a removal.
    fn finish_removal(&self, _on: &mut InodeChange<'_, '_>) -> Result<()> {
        Ok(())
    }

    /// Blocks that these changes, in this order, take for the tree itself, counted on the current tree.
    fn need(&self, inode: &Inode, state: &InodeState, changes: &[Change]) -> Result<u64>;

    /// Blocks that these changes, at least one, may take at most for the tree itself, whatever becomes of it before.
    fn need_max(&self, state: &InodeState, changes: &[Change]) -> u64;

    /// Metadata blocks of the tree that mapping a run of `blocks` joins, with their bitmaps and descriptors.
    fn insert_credits(&self, blocks: u64) -> u64;
}

/// Result of one step of a removal.
#[derive(Debug)]
pub(crate) struct RemovalStep {
    /// In file order; the caller frees it.
    pub(crate) removed: Vec<Removed>,
    /// Where to go on.
    pub(crate) next: u64,
}

/// Blocks of a file that are mapped no longer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Removed {
    pub(crate) at: u64,
    pub(crate) run: BlockRun,
}

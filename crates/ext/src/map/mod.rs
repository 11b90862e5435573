//! The places of a file's data: lookups in mapping trees, and changes of the trees.
//!
//! Where it sits: above buffers and allocator; [`crate::Files`] decides which blocks of a file are mapped and when. [`Mappings::find`] answers
//! from the inode's [`Runs`](crate::runs::Runs): a binary search. A miss walks the [`MappingTree`] and merges
//! what is contiguous.
//!
//! - `tree`: the interface of both kinds of trees; `extent`, `extent_change`, `node`: extents; `indirect`: indirect blocks
//! - `place`: where new blocks should be; `cluster`: what `bigalloc` changes
//! - `need`: blocks that a mapping takes for itself
//! - `directory`: blocks of directories and other metadata that a file's mapping leads to

pub(crate) mod cluster;
mod directory;
mod extent;
mod extent_change;
mod extent_need;
mod indirect;
mod need;
pub(crate) mod node;
mod place;
mod tree;

use std::sync::Arc;

use crate::allocate::Reach;
use crate::base::Core;
use crate::inode::{InodeChange, InodeState};
use crate::layout::{Incompat, InodeFlags, RoCompat};
use crate::{BlockRun, Error, FileBlock, FileKind, FsBlock, Inode, Mapping, MappingKind, Result};

pub(crate) use extent::ExtentTree;
pub(crate) use extent_change::Shift;
use indirect::IndirectTree;
pub(crate) use need::insertions;
pub(crate) use tree::{Change, MappingTree, RUNS_PER_STEP, Removed};

impl InodeState {
    /// Whether the mapping is an extent tree.
    pub(crate) fn has_extents(&self) -> bool {
        self.flags.contains(InodeFlags::EXTENTS)
    }

    /// Where its blocks may be, those of its mapping and of its attributes included.
    pub(crate) fn reach(&self) -> Reach {
        if self.has_extents() { Reach::Anywhere } else { Reach::Low }
    }

    /// Whether the content is in the inode.
    pub(crate) fn is_inline(&self) -> bool {
        self.flags.contains(InodeFlags::INLINE_DATA)
    }
}

/// The mappings of a volume's inodes.
#[derive(Debug)]
pub(crate) struct Mappings {
    pub(crate) core: Arc<Core>,
    pub(crate) extents: ExtentTree,
    indirect: IndirectTree,
}

impl Mappings {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        let (extents, indirect) = (ExtentTree::new(core), IndirectTree::new(core));
        Self { core: Arc::clone(core), extents, indirect }
    }

    /// Whether the block area of an inode is a mapping.
    pub(crate) fn has_mapping(&self, inode: &Inode, state: &InodeState) -> bool {
        match inode.kind() {
            FileKind::Regular | FileKind::Directory => true,
            FileKind::Symlink => !self.is_fast_symlink(state),
            _ => false,
        }
    }

    /// Whether a symbolic link's target is in the block area: as in the kernel, if it has no block but that of its attributes.
    pub(crate) fn is_fast_symlink(&self, state: &InodeState) -> bool {
        let fits = state.size < state.block.len() as u64 && !state.has_extents() && !state.is_inline();
        // Values of attributes in inodes are counted as blocks of the link; there no short target is in a block.
        let attributes = if state.xattr_block.0 == 0 { 0 } else { self.core.cluster_sectors() };
        fits && (self.core.features().has_incompat(Incompat::EA_INODE) || state.sectors <= attributes)
    }

    /// The tree of an inode.
    pub(crate) fn tree(&self, state: &InodeState) -> &dyn MappingTree {
        if state.has_extents() { &self.extents } else { &self.indirect }
    }

    /// The mapping at file block `at`, as [`Files::map`](crate::Files::map) returns it.
    pub(crate) fn find(
        &self,
        inode: &Inode,
        state: &InodeState,
        at: FileBlock,
        max_blocks: u64,
    ) -> Result<Mapping> {
        if let Some(mapping) = inode.runs.lookup(at, max_blocks) {
            return Ok(mapping);
        }
        if !self.has_mapping(inode, state) {
            return Err(Error::InvalidArgument("this inode has no data blocks"));
        }
        if state.is_inline() {
            return Ok(Mapping { start: at, blocks: max_blocks, kind: MappingKind::Inline });
        }
        let tree = self.tree(state);
        let mut run = tree.find(inode.number(), state, at)?;
        let wanted_end = at.0.saturating_add(max_blocks);
        let mut complete = run.end() >= tree.max_blocks();
        while !complete && run.end() < wanted_end {
            let next = tree.find(inode.number(), state, FileBlock(run.end()))?;
            if !run.goes_on_with(&next) || next.start.0 != run.end() {
                complete = true;
                break;
            }
            run.blocks = next.end() - run.start.0;
            complete = run.end() >= tree.max_blocks();
        }
        inode.runs.insert(run, complete);
        Ok(run.part(at, max_blocks))
    }

    /// Largest size of a file mapped as this one is.
    pub(crate) fn max_size(&self, state: &InodeState) -> u64 {
        self.max_size_mapped(state.has_extents())
    }

    /// Largest size of a file that is mapped by extents, or by indirect blocks.
    pub(crate) fn max_size_mapped(&self, by_extents: bool) -> u64 {
        let block = self.core.block_size().bytes();
        let tree: &dyn MappingTree = if by_extents { &self.extents } else { &self.indirect };
        let addressed = tree.max_blocks().saturating_mul(block);
        if by_extents {
            return addressed;
        }
        // Without `huge_file` the sectors are counted with 32 bits, and the index blocks count too.
        let has_huge_files = self.core.features().has_ro_compat(RoCompat::HUGE_FILE);
        let sectors = if has_huge_files { (1u64 << 48) - 1 } else { u64::from(u32::MAX) };
        let all_blocks = sectors / (block / 512);
        let pointers = self.indirect.pointers_per_block();
        let index_blocks = all_blocks / pointers + all_blocks / pointers / pointers + 4;
        addressed.min((all_blocks - index_blocks.min(all_blocks)).saturating_mul(block))
    }

    /// Unmap and free one step of `[at, end)`. Where to go on.
    pub(crate) fn remove_step(&self, on: &mut InodeChange<'_, '_>, at: u64, end: u64) -> Result<u64> {
        let step = self.tree(on.state).remove(on, at, end)?;
        self.free_data(on, &step.removed)?;
        Ok(step.next)
    }

    /// Free blocks, in file order, that are mapped no longer.
    fn free_data(&self, on: &mut InodeChange<'_, '_>, removed: &[Removed]) -> Result<()> {
        let is_value = on.state.flags.contains(InodeFlags::EA_INODE);
        if is_value || on.inode.kind() != FileKind::Regular {
            // Blocks of directories, symbolic links and values of attributes went through the journal.
            let blocks = |run: BlockRun| run.start.0..run.start.0 + run.blocks;
            removed
                .iter()
                .flat_map(|part| blocks(part.run))
                .for_each(|block| on.handle.forget(FsBlock(block)));
        }
        if self.core.blocks_per_cluster() > 1 {
            return self.clusters().free(on, removed);
        }
        for Removed { run, .. } in removed {
            let sectors = run.blocks * (self.core.block_size().bytes() / 512);
            on.state.sectors = on.state.sectors.saturating_sub(sectors);
            self.core.allocator.free(on.handle, on.inode.number(), *run)?;
        }
        Ok(())
    }
}

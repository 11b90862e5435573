//! The preferred place of new blocks of a file.

use crate::base::Core;
use crate::inode::InodeState;
use crate::map::Mappings;
use crate::{BlockRun, FileBlock, FsBlock, Inode, MappingKind, Result};

/// Most blocks of a file's window, in bytes.
const WINDOW_BYTES_MAX: u64 = 8 << 20;
/// A file that begins with no more than this gets no window yet.
const SMALL_FILE_BYTES: u64 = 64 << 10;

/// Hint about the final size of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// Nothing.
    Some,
    /// It has outgrown its first index block.
    Large,
}

impl Core {
    /// Where an index block for data at `near` should be: not after the data, where the file's next blocks go. Those of a
    /// large file lie together at the end of the group, which the data reaches last.
    pub(super) fn index_goal(&self, near: FsBlock, growth: Growth) -> Result<FsBlock> {
        if let Some(goal) = self.allocator.packed_goal()? {
            return Ok(goal);
        }
        let group = self.layout.group_of(near).unwrap_or_default();
        let first = self.layout.first_block(group);
        Ok(match growth {
            Growth::Some => first,
            Growth::Large => {
                let blocks = u64::from(self.layout.blocks_in(group));
                // As many as map a whole group, and as many again.
                FsBlock(first.0 + blocks - (2 * blocks.div_ceil(self.block_size().bytes() / 4)).min(blocks))
            }
        })
    }
}

impl Mappings {
    /// Where blocks for `at` should be: after the file's previous block, else in the inode's group; on a packed volume at its lowest free
    /// block.
    pub(crate) fn goal(&self, inode: &Inode, state: &InodeState, at: FileBlock) -> Result<FsBlock> {
        if let Some(goal) = self.core.allocator.packed_goal()? {
            return Ok(goal);
        }
        if let Some(before) = at.0.checked_sub(1)
            && let MappingKind::Mapped(block) | MappingKind::Unwritten(block) =
                self.find(inode, state, FileBlock(before), 1)?.kind
        {
            return Ok(FsBlock(block.0 + 1));
        }
        let group = self.core.layout.locate_inode(inode.number())?.group;
        Ok(self.core.layout.first_block(group))
    }

    /// Keep whole clusters for at most `wanted` blocks, which are whole clusters of the file: of the file's window, or at `goal`, or
    /// near the file's other blocks.
    pub(crate) fn keep_run(
        &self,
        inode: &Inode,
        state: &InodeState,
        at: FileBlock,
        wanted: u64,
        goal: Option<FsBlock>,
    ) -> Result<BlockRun> {
        if let Some(run) = self.core.allocator.take_from_window(inode.number(), at, wanted) {
            return Ok(run);
        }
        let near = match goal {
            Some(goal) => self.core.allocator.packed_goal()?.unwrap_or(goal),
            None => self.goal(inode, state, at)?,
        };
        self.reserve_with_window(inode, state, at, wanted, near)
    }

    /// Keep at most `wanted` blocks, and if the file grows at its end, some more as its window.
    fn reserve_with_window(
        &self,
        inode: &Inode,
        state: &InodeState,
        at: FileBlock,
        wanted: u64,
        goal: FsBlock,
    ) -> Result<BlockRun> {
        let size_blocks = self.core.block_size().blocks_for(state.size);
        let grows = at.0 + wanted >= size_blocks;
        let most = WINDOW_BYTES_MAX / self.core.block_size().bytes();
        // A small file is written once and whole, as a rule: the next one follows it on the device.
        let is_small = at.0 == 0 && wanted * self.core.block_size().bytes() <= SMALL_FILE_BYTES;
        let has_window = grows && !is_small && self.core.allocator.has_windows();
        let extra = if has_window { (wanted + at.0).next_power_of_two().clamp(8, most.max(8)) } else { 0 };
        let per_cluster = self.core.blocks_per_cluster();
        // The blocks for the data are claimed; more blocks must not use up other claims.
        let extra = extra.min(self.core.allocator.unclaimed().saturating_mul(per_cluster));
        let run = self.core.free_space().reserve_run(goal, wanted + extra, state.reach())?;
        if run.blocks <= wanted {
            return Ok(run);
        }
        let rest = BlockRun { start: FsBlock(run.start.0 + wanted), blocks: run.blocks - wanted };
        self.core.allocator.keep_window(inode.number(), FileBlock(at.0 + wanted), rest);
        Ok(BlockRun { start: run.start, blocks: wanted })
    }
}

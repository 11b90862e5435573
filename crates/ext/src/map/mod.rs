//! Where a file's data is: lookups, and how the mapping changes.
//!
//! [`Volume::map`] is the hot path of direct reads: a hit in the inode's [`runs::RunCache`] is one shared lock
//! and a binary search. A miss walks the indirect blocks or the extent tree and merges what is contiguous.
//!
//! Here are the lookups. Changes: `reserve.rs` (blocks for data that is about to be written), `need.rs` (what mapping it takes),
//! `write.rs` (recording it), `remove.rs` (truncate, punch); how the two kinds of mappings do it: `indirect.rs`, `extent_change.rs`.

pub(crate) mod cluster;
mod extent;
mod extent_change;
pub(crate) mod indirect;
mod inline;
mod need;
pub(crate) mod node;
mod range;
mod remove;
mod replay;
mod reserve;
pub(crate) mod runs;
mod write;

use crate::inode::InodeState;
use crate::{
    Corrupt, Error, FileBlock, FileKind, FsBlock, Inode, InodeNumber, Mapping, MappingKind, Result, Volume,
};

pub(crate) use write::Change;

/// `EXT4_EXTENTS_FL`.
pub(crate) const EXTENTS_FLAG: u32 = 0x8_0000;
/// `EXT4_INLINE_DATA_FL`.
pub(crate) const INLINE_FLAG: u32 = 0x1000_0000;

impl InodeState {
    /// Whether the mapping is an extent tree.
    pub(crate) fn has_extents(&self) -> bool {
        self.flags & EXTENTS_FLAG != 0
    }

    /// Whether a symbolic link's target is in the block area: it fits there, and the mapping would not begin so.
    pub(crate) fn is_fast_symlink(&self) -> bool {
        !self.has_extents() && !self.is_inline() && self.size < self.block.len() as u64
    }

    /// Whether the content is in the inode.
    pub(crate) fn is_inline(&self) -> bool {
        self.flags & INLINE_FLAG != 0
    }
}

impl Volume {
    /// The mapping at file block `at`: the longest mapping of one kind from there, at most `max_blocks` long. A
    /// contiguous run on the device is one mapping, whatever indirect or extent blocks lie between. Ranges
    /// beyond the end of the file are holes.
    pub fn map(&self, inode: &Inode, at: FileBlock, max_blocks: u64) -> Result<Mapping> {
        let max_blocks = max_blocks.max(1);
        if let Some(mapping) = inode.runs.read().lookup(at, max_blocks) {
            return Ok(mapping);
        }
        let state = inode.read_in_use()?;
        self.map_with(inode, &state, at, max_blocks)
    }

    /// As [`Volume::map`], for a caller that holds the inode's state.
    pub(crate) fn map_with(
        &self,
        inode: &Inode,
        state: &InodeState,
        at: FileBlock,
        max_blocks: u64,
    ) -> Result<Mapping> {
        if let Some(mapping) = inode.runs.read().lookup(at, max_blocks) {
            return Ok(mapping);
        }
        if !self.has_mapping(inode, state) {
            return Err(Error::InvalidArgument("this inode has no data blocks"));
        }
        if state.is_inline() {
            return Ok(Mapping { start: at, blocks: max_blocks, kind: MappingKind::Inline });
        }
        let mut run = self.find_mapping(inode.number(), state, at)?;
        let wanted_end = at.0.saturating_add(max_blocks);
        let mut complete = run.end() >= self.max_file_blocks(state);
        while !complete && run.end() < wanted_end {
            let next = self.find_mapping(inode.number(), state, FileBlock(run.end()))?;
            if !run.goes_on_with(&next) || next.start.0 != run.end() {
                complete = true;
                break;
            }
            run.blocks = next.end() - run.start.0;
            complete = run.end() >= self.max_file_blocks(state);
        }
        inode.runs.write().insert(run, complete);
        Ok(run.part(at, max_blocks))
    }

    /// Whether the block area of the inode is a mapping.
    #[expect(clippy::unused_self, reason = "one of the questions asked of a volume")]
    pub(crate) fn has_mapping(&self, inode: &Inode, state: &InodeState) -> bool {
        match inode.kind() {
            FileKind::Regular | FileKind::Directory => true,
            FileKind::Symlink => !state.is_fast_symlink(),
            _ => false,
        }
    }

    /// The mapping around `at` as far as one leaf has it. It begins at or before `at` and contains it.
    fn find_mapping(&self, inode: InodeNumber, state: &InodeState, at: FileBlock) -> Result<Mapping> {
        if state.has_extents() {
            self.find_extent(inode, state, at)
        } else {
            self.find_indirect(inode, state, at)
        }
    }

    /// Blocks that a file mapped as this one is can have.
    pub(crate) fn max_file_blocks(&self, state: &InodeState) -> u64 {
        if state.has_extents() {
            node::MAX_FILE_BLOCKS - 1
        } else {
            indirect::max_blocks(self.pointers_per_block()).min(u64::from(u32::MAX))
        }
    }

    /// Check that a run of blocks from a mapping is on the volume and not metadata of the volume itself.
    pub(crate) fn check_run(
        &self,
        inode: InodeNumber,
        at: FileBlock,
        block: FsBlock,
        blocks: u64,
    ) -> Result<()> {
        match self.zone().check(block, blocks) {
            Ok(()) => Ok(()),
            Err(what) => Err(Corrupt::map(inode, at, what).into()),
        }
    }
}

//! Blocks of directories, and blocks of an inode that are not file data.

use std::sync::Arc;

use crate::buffer::{BlockKind, Buffer};
use crate::inode::{Inode, InodeState};
use crate::map::Change;
use crate::transaction::Handle;
use crate::{Corrupt, Error, FileBlock, FsBlock, MappingKind, Result, Volume};

/// Blocks that appending one block may take: itself and the mapping's own.
const OPERATION_BLOCKS: u64 = 8;
/// What is read ahead of a directory when it is to be listed.
const LISTED_BYTES: u64 = 128 << 10;

impl Volume {
    /// The directory's block `at`; corrupt if it is a hole or beyond the size.
    pub(crate) fn directory_block(
        &self,
        inode: &Inode,
        state: &InodeState,
        at: FileBlock,
    ) -> Result<Arc<Buffer>> {
        let bad = |what| Corrupt::Directory { inode: inode.number(), block: at.0, offset: 0, what };
        if self.block_size().offset_of(at) >= state.size {
            return Err(bad("a block beyond the directory's end").into());
        }
        let kind = BlockKind::Directory { inode: inode.number(), generation: state.generation };
        match self.map_with(inode, state, at, 1)?.kind {
            MappingKind::Mapped(block) => self.cache().get(block, kind),
            MappingKind::Hole | MappingKind::Unwritten(_) => Err(bad("a hole in a directory").into()),
            MappingKind::Inline => Err(bad("a block of a directory that is in its inode").into()),
        }
    }

    /// Readahead of a directory that is to be listed, unless another thread has begun it. An error here is
    /// found again, with its place, when the block is needed.
    pub(crate) fn read_directory_ahead(&self, inode: &Inode, state: &InodeState) {
        let kind = BlockKind::Directory { inode: inode.number(), generation: state.generation };
        let blocks = self.block_size().blocks_for(state.size.min(LISTED_BYTES));
        let mut places = Vec::new();
        while (places.len() as u64) < blocks {
            let at = places.len() as u64;
            let Ok(mapping) = self.map_with(inode, state, FileBlock(at), blocks - at) else { return };
            let MappingKind::Mapped(first) = mapping.kind else { return };
            let count = mapping.blocks.clamp(1, blocks - at);
            places.extend((0..count).map(|offset| FsBlock(first.0.saturating_add(offset))));
            if at == 0 && (blocks == 1 || self.cache().peek(first).is_some()) {
                return;
            }
        }
        self.cache().read_ahead_each(places.into_iter().map(|block| (block, kind)));
    }

    /// A new zeroed block at the directory's end; the size grows by it. The caller fills it and stores the inode.
    pub(crate) fn append_directory_block(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
    ) -> Result<(FileBlock, Arc<Buffer>)> {
        let at = self.block_size().block_of(state.size);
        let kind = BlockKind::Directory { inode: inode.number(), generation: state.generation };
        let buffer = self.add_block(handle, inode, state, at, kind)?;
        state.size += self.block_size().bytes();
        Ok((at, buffer))
    }

    /// A new zeroed block of metadata where the file has a hole. The caller sets the size and stores the inode.
    pub(crate) fn add_block(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        at: FileBlock,
        kind: BlockKind,
    ) -> Result<Arc<Buffer>> {
        self.check_unclaimed()?;
        let (mapping, block) = self.clusters().allocate_next(handle, inode, state, at)?;
        inode.runs.write().forget(at.0, at.0 + 1);
        self.change_mapping(handle, inode, state, Change::Insert(mapping))?;
        inode.note_data_change(handle.changes_data());
        handle.create(block, kind)
    }

    /// Refuse, before anything has changed, what would take blocks that were promised to others.
    pub(crate) fn check_unclaimed(&self) -> Result<()> {
        if self.allocator().has_unclaimed(OPERATION_BLOCKS) { Ok(()) } else { Err(Error::NoSpace) }
    }

    /// A block for something of this inode that is not file data (an extended attribute block): allocated and zeroed.
    /// Counts in `sectors`.
    pub(crate) fn allocate_metadata_block(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        kind: BlockKind,
    ) -> Result<Arc<Buffer>> {
        self.check_unclaimed()?;
        let goal = self.goal(inode, state, FileBlock(0))?;
        self.allocate_index_block(handle, state, goal, kind)
    }

    /// The counterpart of [`Volume::allocate_metadata_block`] and of [`Volume::allocate_index_block`].
    pub(crate) fn free_metadata_block(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        block: FsBlock,
    ) -> Result<()> {
        handle.forget(block);
        state.sectors = state.sectors.saturating_sub(self.cluster_sectors());
        self.allocator().free(handle, inode.number(), crate::BlockRun { start: block, blocks: 1 })
    }
}

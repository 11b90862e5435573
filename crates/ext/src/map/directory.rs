//! Blocks of directories, and blocks of an inode that are not file data.

use std::sync::Arc;

use crate::buffer::{BlockKind, Buffer};
use crate::inode::{Inode, InodeChange, InodeState};
use crate::map::Mappings;
use crate::map::tree::Change;
use crate::{Corrupt, FileBlock, FsBlock, Mapping, MappingKind, Result};

/// Read-ahead of a directory listing.
const LISTED_BYTES: u64 = 128 << 10;

impl Mappings {
    /// The directory's block `at`; corrupt if it is a hole or beyond the size.
    pub(crate) fn directory_block(
        &self,
        inode: &Inode,
        state: &InodeState,
        at: FileBlock,
    ) -> Result<Arc<Buffer>> {
        let bad = |what| Corrupt::Directory { inode: inode.number(), block: at.0, offset: 0, what };
        if self.core.block_size().offset_of(at) >= state.size {
            return Err(bad("a block beyond the directory's end").into());
        }
        let kind = BlockKind::Directory { inode: inode.number(), generation: state.generation };
        match self.find(inode, state, at, 1)?.kind {
            MappingKind::Mapped(block) => Ok(self.core.buffers.get(block, kind)?),
            MappingKind::Hole | MappingKind::Unwritten(_) => Err(bad("a hole in a directory").into()),
            MappingKind::Inline => Err(bad("a block of a directory that is in its inode").into()),
        }
    }

    /// Start read-ahead for a directory listing, unless another thread has begun it. An error here is
    /// found again, with its place, when the block is needed.
    pub(crate) fn read_directory_ahead(&self, inode: &Inode, state: &InodeState) {
        let kind = BlockKind::Directory { inode: inode.number(), generation: state.generation };
        let blocks = self.core.block_size().blocks_for(state.size.min(LISTED_BYTES));
        let mut places = Vec::new();
        while (places.len() as u64) < blocks {
            let at = places.len() as u64;
            let Ok(mapping) = self.find(inode, state, FileBlock(at), blocks - at) else { return };
            let MappingKind::Mapped(first) = mapping.kind else { return };
            let count = mapping.blocks.clamp(1, blocks - at);
            places.extend((0..count).map(|offset| FsBlock(first.0.saturating_add(offset))));
            if at == 0 && (blocks == 1 || self.core.buffers.peek(first).is_some()) {
                return;
            }
        }
        self.core.buffers.read_ahead_each(places.into_iter().map(|block| (block, kind)));
    }

    /// A new zeroed block at the end of a directory; the size grows by it. The caller fills it and stores the inode.
    pub(crate) fn append_block(&self, on: &mut InodeChange<'_, '_>) -> Result<(FileBlock, Arc<Buffer>)> {
        let at = self.core.block_size().block_of(on.state.size);
        let kind = BlockKind::Directory { inode: on.inode.number(), generation: on.state.generation };
        let buffer = self.add_block(on, at, kind)?;
        on.state.size += self.core.block_size().bytes();
        Ok((at, buffer))
    }

    /// A new zeroed block of metadata where the file has a hole. The caller sets the size and stores the inode.
    pub(crate) fn add_block(
        &self,
        on: &mut InodeChange<'_, '_>,
        at: FileBlock,
        kind: BlockKind,
    ) -> Result<Arc<Buffer>> {
        let new = Mapping { start: at, blocks: 1, kind: MappingKind::Mapped(FsBlock(0)) };
        let of_tree = self.tree(on.state).need(on.inode, on.state, &[Change::Insert(new)])?;
        let _claim = self.core.free_space().claim_for_names(1 + of_tree)?;
        let (mapping, block) = self.clusters().allocate_next(on, at)?;
        on.inode.runs.forget(at.0, at.0 + 1);
        self.tree(on.state).insert(on, mapping)?;
        on.note_data_change();
        Ok(on.handle.create(block, kind)?)
    }

    /// A block for something of this inode that is not file data (an extended attribute block): allocated and zeroed.
    /// Counts in `sectors`.
    pub(crate) fn allocate_metadata_block(
        &self,
        on: &mut InodeChange<'_, '_>,
        kind: BlockKind,
    ) -> Result<Arc<Buffer>> {
        let _claim = self.core.free_space().claim_for_names(1)?;
        let goal = self.goal(on.inode, on.state, FileBlock(0))?;
        on.allocate_block(goal, kind)
    }
}

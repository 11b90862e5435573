//! An inode that is changed in a transaction.

use std::sync::Arc;

use crate::BlockRun;
use crate::base::Handle;
use crate::buffer::{BlockKind, Buffer};
use crate::inode::{Inode, InodeState};
use crate::{FsBlock, Result};

/// An inode whose state is locked for writing, and the handle in which it is changed.
#[derive(Debug)]
pub(crate) struct InodeChange<'a, 'c> {
    pub(crate) handle: &'a mut Handle<'c>,
    pub(crate) inode: &'a Inode,
    pub(crate) state: &'a mut InodeState,
}

impl InodeChange<'_, '_> {
    /// Note that the mapping or size is changed.
    pub(crate) fn note_data_change(&mut self) {
        self.inode.note_data_change(self.handle.changes_data());
    }

    /// A zeroed block of metadata that belongs to the inode (of its mapping, or of attributes) and counts in its sectors.
    pub(crate) fn allocate_block(&mut self, near: FsBlock, kind: BlockKind) -> Result<Arc<Buffer>> {
        let core = self.handle.core();
        let block = if let Some(spare) = self.handle.spare.pop() {
            // It stays in use, and is the inode's already.
            spare
        } else {
            let block = core.allocator.allocate_one(self.handle, near, self.state.reach())?;
            self.state.sectors += core.cluster_sectors();
            block
        };
        Ok(self.handle.create(block, kind)?)
    }

    /// The counterpart of [`Self::allocate_block`].
    pub(crate) fn free_block(&mut self, block: FsBlock) -> Result<()> {
        let core = self.handle.core();
        self.handle.forget(block);
        self.state.sectors = self.state.sectors.saturating_sub(core.cluster_sectors());
        core.allocator.free(self.handle, self.inode.number(), BlockRun { start: block, blocks: 1 })
    }
}

impl<'c> Handle<'c> {
    /// Change an inode in this handle.
    pub(crate) fn on<'a>(&'a mut self, inode: &'a Inode, state: &'a mut InodeState) -> InodeChange<'a, 'c> {
        InodeChange { handle: self, inode, state }
    }
}

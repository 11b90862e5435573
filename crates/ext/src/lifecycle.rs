//! The end of inodes: one without a name is freed when its last user closes it, or by recovery.

use std::sync::Arc;

use crate::base::Core;
use crate::base::Handle;
use crate::file::Files;
use crate::inode::{Inode, InodeState};
use crate::inodes::{FoundOrphan, InodeStore};
use crate::layout::inode::translator;
use crate::map::node;
use crate::xattr::Xattrs;
use crate::{Error, FileBlock, FsBlock, Result};

/// Sectors of an inode that is freed with its last name: 1 MiB.
const RELEASED_AT_ONCE_SECTORS: u64 = 2048;

/// Mappings of an orphan that are looked at before it is freed or cut.
const MAPPINGS_LOOKED_AT: u32 = 1 << 18;

/// Frees inodes, with all that belongs to them.
#[derive(Debug)]
pub struct Lifecycle {
    pub(crate) core: Arc<Core>,
    pub(crate) inodes: Arc<InodeStore>,
    pub(crate) files: Arc<Files>,
    pub(crate) xattrs: Arc<Xattrs>,
}

impl Lifecycle {
    pub(crate) fn new(files: Arc<Files>, xattrs: Arc<Xattrs>) -> Self {
        Self { core: files.core.clone(), inodes: files.inodes.clone(), files, xattrs }
    }

    /// The counterpart of [`Inode::open`]; frees the inode if that was the last user and no name is left.
    pub fn close(&self, inode: &Arc<Inode>) -> Result<()> {
        if !inode.close() {
            return Ok(());
        }
        self.core.allocator.release_window(inode.number());
        inode.runs.shrink();
        self.release_if_unused(inode)
    }

    /// Free blocks and inode of an orphan that is not open. Call it without handle or inode lock, after `unlink`,
    /// `rename` and [`Self::close`].
    pub(crate) fn release_if_unused(&self, inode: &Arc<Inode>) -> Result<()> {
        if inode.is_open() || inode.state.read().links > 0 {
            return Ok(());
        }
        let mut state = inode.state.write();
        if state.freed || state.links > 0 || !inode.retire(0) {
            return Ok(());
        }
        self.core.allocator.release_window(inode.number());
        let mut handle = self.core.begin(100)?;
        let values = self.release(&mut handle, inode, &mut state)?;
        handle.commit()?;
        drop(state);
        // Inodes of values have no values themselves: this recurses one level only.
        values.iter().try_for_each(|value| self.release_if_unused(value))
    }

    /// Whether an inode must be freed at once: it has lost its last name, and it is not open and can no longer be opened. The work
    /// must be small, because it is done with the directory locked and in the handle that removed the name.
    pub(crate) fn begins_freeing_at_once(inode: &Inode, state: &InodeState) -> bool {
        state.links == 0 && state.sectors <= RELEASED_AT_ONCE_SECTORS && inode.retire(0)
    }

    /// Whether only the inode itself must be freed: one transaction is enough.
    pub(crate) fn has_nothing_outside(&self, inode: &Inode, state: &InodeState) -> bool {
        !self.has_blocks(inode, state)
            && state.xattr_block == FsBlock(0)
            && !self.xattrs.has_value_inodes()
            && translator(state.version, &self.core.format).is_none()
    }

    /// Whether the mapping leads to any block.
    fn has_blocks(&self, inode: &Inode, state: &InodeState) -> bool {
        if state.is_inline() || !self.files.maps.has_mapping(inode, state) {
            return false;
        }
        if state.has_extents() { !node::is_empty_root(&state.block) } else { state.block != [0; 60] }
    }

    /// Free blocks and inode of an inode without name, which is retired and which is recorded as an orphan unless [`Self::has_nothing_outside`].
    /// Returns inodes of values that may be released too, after the handle.
    pub(crate) fn release(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
    ) -> Result<Vec<Arc<Inode>>> {
        let is_alone = self.has_nothing_outside(inode, state);
        if self.has_blocks(inode, state) {
            self.files.remove_blocks(handle, inode, state, 0, u64::MAX)?;
        }
        if !is_alone && !handle.has_credits(16) {
            self.files.store(handle, inode, state)?;
            handle.restart(24)?;
        }
        let values = self.xattrs.free_attributes(&mut handle.on(inode, state))?;
        if let Some(block) = translator(state.version, &self.core.format) {
            match handle.on(inode, state).free_block(block) {
                // The number is no block of the inode: `check` reports it.
                Err(Error::Corrupt(_)) => {}
                freed => freed?,
            }
            state.version = 0;
        }
        self.inodes.remove_orphan(handle, inode, state)?;
        state.freed = true;
        state.size = 0;
        state.sectors = 0;
        state.deletion_time = (self.core.now().seconds as u32).max(1);
        inode.runs.forget(0, u64::MAX);
        self.files.store(handle, inode, state)?;
        self.inodes.cache.remove(inode.number());
        self.core.allocator.free_inode(handle, inode.number(), inode.kind())?;
        Ok(values)
    }

    /// Recover orphans after a crash: free those without a name, truncate the others to their size. One that is damaged is skipped, and
    /// stays recorded; its damage is returned.
    pub(crate) fn recover_orphans(&self, found: &[FoundOrphan]) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        for orphan in found {
            let inode = orphan.inode;
            match self.recover_orphan(*orphan) {
                Err(Error::Corrupt(damage)) => {
                    wrong.push(format!("inode {inode}, which is an orphan, is damaged: {damage}"));
                    if self.core.latch.is_aborted() {
                        // It was damaged where only the change itself shows it: the log ends before it.
                        return Ok(wrong);
                    }
                }
                recovered => recovered?,
            }
        }
        Ok(wrong)
    }

    fn recover_orphan(&self, orphan: FoundOrphan) -> Result<()> {
        let inode = match self.inodes.load_if(orphan.inode, |disk| disk.mode != 0) {
            Err(Error::NotFound) => return Ok(()),
            loaded => loaded?,
        };
        let has_name = {
            let mut state = inode.state.write();
            InodeStore::adopt_orphan(orphan, &mut state);
            self.check_mapping(&inode, &state)?;
            state.links > 0
        };
        if has_name { self.truncate_orphan(&inode) } else { self.release_if_unused(&inode) }
    }

    /// Look at the mappings before any is removed, as far as the work for it is bounded: a hostile tree may lead to one block over and
    /// over. Later damage is found when it is removed, which ends with the first block that is freed twice.
    fn check_mapping(&self, inode: &Inode, state: &InodeState) -> Result<()> {
        if !self.has_blocks(inode, state) {
            return Ok(());
        }
        let tree = self.files.maps.tree(state);
        let mut at = 0;
        for _ in 0..MAPPINGS_LOOKED_AT {
            if at >= tree.max_blocks() {
                break;
            }
            at = tree.find(inode.number(), state, FileBlock(at))?.end();
        }
        Ok(())
    }

    fn truncate_orphan(&self, inode: &Arc<Inode>) -> Result<()> {
        let mut state = inode.state.write();
        let mut handle = self.core.begin(100)?;
        if !state.is_inline() && self.files.maps.has_mapping(inode, &state) {
            let first = self.core.block_size().blocks_for(state.size);
            self.files.remove_blocks(&mut handle, inode, &mut state, first, u64::MAX)?;
        }
        self.inodes.remove_orphan(&mut handle, inode, &mut state)?;
        self.files.store(&mut handle, inode, &mut state)?;
        handle.commit().map(drop)
    }
}

//! Truncate, punch, and freeing of mapped blocks.
//!
//! Long removals are split into steps, each of which leaves the inode consistent; a file that is truncated in several transactions is an
//! orphan until the end, so that a crash does not leave it half truncated.

use crate::base::Handle;
use crate::file::Files;
use crate::file::write::BASE_CREDITS;
use crate::inode::InodeState;
use crate::layout::InodeFlags;
use crate::map::RUNS_PER_STEP;
use crate::{Error, FileBlock, FsBlock, Inode, Result};

/// Blocks that such a step joins: two groups' bitmap and descriptor a mapping, the mapping's own blocks, inode and superblock.
const REMOVE_CREDITS: u32 = 4 * RUNS_PER_STEP as u32 + 24;

/// Blocks that [`Files::resize`] joins before it looks for more.
pub(crate) const RESIZE_CREDITS: u32 = BASE_CREDITS + REMOVE_CREDITS;

impl Files {
    /// Set the size. Blocks beyond a smaller size are freed (not given out again before the transaction is on
    /// disk). The caller has zeroed the rest of the last block.
    pub fn truncate(&self, inode: &Inode, size: u64) -> Result<()> {
        self.prepare_resize(inode, size)?;
        let mut state = inode.state.write();
        self.check_resize(inode, &state, size)?;
        let mut handle = self.core.begin(RESIZE_CREDITS)?;
        state.touch(self.core.now(), true);
        self.resize(&mut handle, inode, &mut state, size)?;
        handle.commit().map(drop)
    }

    /// The step before [`Self::resize`], without the inode's lock: inline data that no longer fits moves to a block.
    pub(crate) fn prepare_resize(&self, inode: &Inode, size: u64) -> Result<()> {
        self.core.check_writable()?;
        let must_leave = {
            let state = inode.state.read();
            state.is_inline() && size > state.size
        };
        if must_leave {
            self.make_not_inline(inode)?;
        }
        self.core.allocator.release_window(inode.number());
        Ok(())
    }

    /// Refuse a size that the file cannot be given.
    pub(crate) fn check_resize(&self, inode: &Inode, state: &InodeState, size: u64) -> Result<()> {
        self.check_data_change(inode, state)?;
        if state.flags.contains(InodeFlags::APPEND) {
            return Err(Error::NotPermitted("append-only"));
        }
        let max_bytes = self.maps.max_size(state);
        if size > max_bytes { Err(Error::FileTooLarge { max_bytes }) } else { Ok(()) }
    }

    /// Set the size and store the state. The handle has [`RESIZE_CREDITS`].
    pub(crate) fn resize(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        size: u64,
    ) -> Result<()> {
        // At the same size too: blocks that were allocated beyond it go.
        let cuts = size <= state.size;
        let is_inline = state.is_inline() && cuts;
        if is_inline {
            let end = state.size;
            self.zero_inline_bytes(handle, inode, state, size..end)?;
        }
        state.size = size;
        inode.note_data_change(handle.changes_data());
        if cuts && !is_inline {
            let first = self.core.block_size().blocks_for(size);
            self.remove_blocks(handle, inode, state, first, u64::MAX)?;
            self.end_removal(handle, inode, state)?;
        }
        self.store(handle, inode, state)
    }

    /// All blocks are removed: the inode is no longer an orphan, unless it has no name.
    fn end_removal(&self, handle: &mut Handle<'_>, inode: &Inode, state: &mut InodeState) -> Result<()> {
        if state.links == 0 { Ok(()) } else { self.inodes.remove_orphan(handle, inode, state) }
    }

    /// Turn whole blocks into holes. Where a hole inside an extent splits a node of the tree and no block is free, whole clusters of
    /// the hole become nodes: they are overwritten after the transaction that takes them out of the file, as all metadata.
    ///
    /// # Errors
    /// `NoSpace` if that cannot be: without a journal, or if the hole has no such clusters. Nothing was changed then.
    pub fn punch(&self, inode: &Inode, at: FileBlock, blocks: u64) -> Result<()> {
        self.core.check_writable()?;
        if inode.state.read().is_inline() {
            self.make_not_inline(inode)?;
        }
        self.core.allocator.release_window(inode.number());
        // Under the inode's lock nothing is waited for.
        self.core.free_space().relieve()?;
        let end = at.0.saturating_add(blocks);
        let mut state = inode.state.write();
        self.check_data_change(inode, &state)?;
        let split =
            if state.has_extents() { self.maps.extents.split_need(inode, &state, at.0, end)? } else { None };
        let (mut spare, mut _claim) = (Vec::new(), None);
        if let Some(split) = split {
            match (self.core.free_space().try_claim_metadata(split.nodes), split.spare) {
                (Ok(claim), _) => _claim = Some(claim),
                (Err(_), Some(first)) if self.core.has_journal() => {
                    let per_cluster = self.core.blocks_per_cluster();
                    spare.extend((0..split.nodes).map(|number| FsBlock(first.0 + number * per_cluster)));
                }
                (Err(error), _) => return Err(error),
            }
        }
        let mut handle = self.core.begin(BASE_CREDITS + REMOVE_CREDITS)?;
        handle.spare = spare;
        state.touch(self.core.now(), true);
        inode.note_data_change(handle.changes_data());
        self.remove_blocks(&mut handle, inode, &mut state, at.0, end)?;
        assert!(handle.spare.is_empty(), "a split takes the nodes that were counted");
        self.end_removal(&mut handle, inode, &mut state)?;
        self.store(&mut handle, inode, &mut state)?;
        handle.commit().map(drop)
    }

    /// Free everything in `[at, end)`, in steps that each fit a transaction.
    pub(crate) fn remove_blocks(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        at: u64,
        end: u64,
    ) -> Result<()> {
        let end = end.min(self.maps.tree(state).max_blocks());
        inode.runs.forget(at, end);
        let mut at = at;
        while at < end {
            if !handle.has_credits(REMOVE_CREDITS) {
                // A truncation in several transactions is finished after a crash.
                self.inodes.add_orphan(handle, inode, state)?;
                self.continue_in_new_handle(handle, inode, state, REMOVE_CREDITS + BASE_CREDITS)?;
            }
            at = self.maps.remove_step(&mut handle.on(inode, state), at, end)?;
        }
        if state.has_extents() {
            self.ensure_credits(handle, inode, state, REMOVE_CREDITS)?;
            self.maps.tree(state).finish_removal(&mut handle.on(inode, state))?;
        }
        Ok(())
    }
}

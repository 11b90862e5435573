//! Collapse and insert of ranges: the mappings after the range move, without a copy of the data.
//!
//! Only the keys of extents change, leaf by leaf: from the front when they become smaller, from the end when they grow, so that
//! the tree is in order after every step. A crash between two transactions of a very long move leaves a part moved, as in the kernel.

use crate::file::Files;
use crate::inode::InodeState;
use crate::map::{MappingTree, Shift};
use crate::{Error, FileBlock, Inode, Result};

/// Blocks that moving one leaf's keys joins: the leaf and every node above.
const SHIFT_CREDITS: u32 = 10;

impl Files {
    /// Collapse whole blocks of a file: the mappings after them move to the front, the size shrinks. The range ends before the end of the
    /// file. Only for files that are mapped by extents.
    pub fn collapse_range(&self, inode: &Inode, at: FileBlock, blocks: u64) -> Result<()> {
        let end = at.0.saturating_add(blocks);
        self.check_range(inode, at.0, blocks, end)?;
        self.punch(inode, at, blocks)?;
        let mut state = inode.write_in_use()?;
        let size = self.core.block_size().offset_of(FileBlock(blocks));
        if !state.has_extents() || self.core.block_size().offset_of(FileBlock(end)) >= state.size {
            return Err(Error::InvalidArgument("the range must end before the end of the file"));
        }
        let new_size = state.size - size;
        self.shift(inode, &mut state, Shift::Down { from: end, by: blocks }, new_size)
    }

    /// Insert a hole of whole blocks in a file: the mappings after it move to the end, the size grows. The range begins before the end of
    /// the file. Only for files that are mapped by extents.
    pub fn insert_range(&self, inode: &Inode, at: FileBlock, blocks: u64) -> Result<()> {
        self.check_range(inode, at.0, blocks, at.0)?;
        self.core.allocator.release_window(inode.number());
        let most = match self.core.free_space().claim_metadata(8) {
            Err(Error::NoSpace) => None,
            claim => Some(claim?),
        };
        let mut state = inode.write_in_use()?;
        if !state.has_extents() || self.core.block_size().offset_of(at) >= state.size {
            return Err(Error::InvalidArgument("the range must begin before the end of the file"));
        }
        let max_bytes = self.maps.max_size(&state);
        let grown =
            blocks.checked_mul(self.core.block_size().bytes()).and_then(|more| state.size.checked_add(more));
        let fits = self.maps.extents.last_end(inode, &state)?.saturating_add(blocks)
            <= self.maps.extents.max_blocks();
        let Some(new_size) = grown.filter(|size| *size <= max_bytes && fits) else {
            return Err(Error::FileTooLarge { max_bytes });
        };
        let _claim = if let Some(most) = most {
            most
        } else {
            let nodes = self.maps.extents.cut_need(inode, &state, at.0)?;
            self.core.free_space().try_claim_metadata(nodes)?
        };
        self.shift(inode, &mut state, Shift::Up { from: at.0, by: blocks }, new_size)
    }

    fn check_range(&self, inode: &Inode, start: u64, blocks: u64, before: u64) -> Result<()> {
        self.core.check_writable()?;
        let state = inode.state.read();
        self.check_data_change(inode, &state)?;
        if !state.has_extents() {
            return Err(Error::Unsupported("only files that are mapped by extents support moved ranges"));
        }
        let per_cluster = u64::from(self.core.layout.blocks_per_cluster);
        if !blocks.is_multiple_of(per_cluster) || !start.is_multiple_of(per_cluster) {
            return Err(Error::InvalidArgument(
                "on this volume, moved ranges must consist of whole clusters",
            ));
        }
        if blocks == 0 || self.core.block_size().offset_of(FileBlock(before)) >= state.size {
            return Err(Error::InvalidArgument("the range must lie before the end of the file"));
        }
        Ok(())
    }

    fn shift(&self, inode: &Inode, state: &mut InodeState, shift: Shift, new_size: u64) -> Result<()> {
        let mut handle = self.core.begin(SHIFT_CREDITS * 4)?;
        inode.runs.forget(0, u64::MAX);
        inode.note_data_change(handle.changes_data());
        state.touch(self.core.now(), true);
        // Whenever a transaction ends, all mapped blocks are below the size.
        state.size = state.size.max(new_size);
        if let Shift::Up { from, .. } = shift {
            self.maps.extents.split_at(&mut handle.on(inode, state), from)?;
        }
        let mut next = shift.first_step();
        while let Some(at) = next {
            if !handle.has_credits(SHIFT_CREDITS) {
                self.continue_in_new_handle(&mut handle, inode, state, SHIFT_CREDITS * 4)?;
            }
            next = self.maps.extents.shift_leaf(&mut handle.on(inode, state), at, shift)?;
        }
        state.size = new_size;
        self.store(&mut handle, inode, state)?;
        handle.commit().map(drop)
    }
}

//! How the mapping of a file grows: commit what was reserved and written, allocate, convert.
//!
//! The order is that of every write (ARCHITECTURE, "The way of a direct write"): blocks are kept in memory (`reserve.rs`), the
//! library writes data to them, and one transaction marks them in use and maps them. Long changes are cut into steps, each of
//! which leaves the inode consistent, so that none outgrows a transaction.

use crate::buffer::BlockKind;
use crate::inode::{InodeState, check_change, check_encrypted};
use crate::layout::InodeFlags;
use crate::transaction::Handle;
use crate::{
    Error, FileBlock, FileKind, FsBlock, Inode, Mapping, MappingKind, ReservedRun, Result, SetTime, Volume,
    WriteCommit,
};

/// A change of the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Map blocks where there is a hole.
    Insert(Mapping),
    /// Unwritten blocks hold data now: first file block, number of blocks.
    Convert(FileBlock, u64),
    /// Blocks with data are unwritten now, and read as zeros: first file block, number of blocks.
    Unwrite(FileBlock, u64),
}

/// Blocks that the bookkeeping of a change joins: inode, superblock, orphan file.
pub(super) const BASE_CREDITS: u32 = 6;
impl Volume {
    /// Refuse a change of data that this file does not allow.
    pub(super) fn check_data_change(&self, inode: &Inode, state: &InodeState) -> Result<()> {
        if inode.kind() != FileKind::Regular {
            return Err(Error::InvalidArgument("only regular files have data of users"));
        }
        if state.freed {
            return Err(Error::Stale);
        }
        let flags = InodeFlags::from_bits_retain(state.flags);
        check_encrypted(inode, flags)?;
        check_change(flags)?;
        let is_own = self.superblock().is_own_inode(inode.number());
        if is_own { Err(Error::NotPermitted("reserved")) } else { Ok(()) }
    }

    /// Record data that has been written: allocate and map the reserved blocks, convert unwritten ranges, set size
    /// and times, in one transaction (several if the runs are too many for one; each leaves the file consistent). Returns how
    /// many blocks the mapping itself grew by, with clusters how many of those.
    ///
    /// # Errors
    /// Where nothing was recorded, as for lack of blocks for the mapping, the reservations keep their runs.
    pub fn commit_write(&self, inode: &Inode, commit: &mut WriteCommit) -> Result<u64> {
        let mut state = inode.write_in_use()?;
        if let Some(size) = commit.size_at_least
            && size > self.max_size_with(&state)
        {
            return Err(Error::FileTooLarge { max_bytes: self.max_size_with(&state) });
        }
        let _promise = self.promise_need(inode, &state, &commit.reservations, MappingKind::Mapped)?;
        let mut handle = self.begin(BASE_CREDITS)?;
        let (sectors_before, mut data_sectors) = (state.sectors, 0);
        for reservation in &mut commit.reservations {
            let runs = std::mem::take(&mut reservation.runs);
            data_sectors += self.record_runs(
                &mut handle,
                inode,
                &mut state,
                &runs,
                MappingKind::Mapped,
                commit.size_at_least,
            )?;
        }
        for (start, blocks) in &commit.converted {
            self.convert(&mut handle, inode, &mut state, Change::Convert(*start, *blocks))?;
        }
        let grown = state.sectors.saturating_sub(sectors_before + data_sectors) / self.cluster_sectors();
        let now = self.now();
        if let Some(size) = commit.size_at_least
            && size > state.size
        {
            state.size = size;
            inode.note_data_change(handle.changes_data());
        }
        if let Some(modified) = commit.modified {
            let time = if let SetTime::To(time) = modified { time } else { now };
            // The change is as old as the data: recording it later is none, and what changed the inode since stays.
            state.modified = time;
            state.changed = state.changed.max(time);
        }
        self.store_inode(&mut handle, inode, &mut state)?;
        handle.commit()?;
        Ok(grown)
    }

    /// Returns the sectors that the inode counts for the runs themselves.
    fn record_runs(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        runs: &[ReservedRun],
        kind: fn(FsBlock) -> MappingKind,
        size_at_least: Option<u64>,
    ) -> Result<u64> {
        let mut data_sectors = 0;
        for run in runs {
            self.ensure_credits(handle, inode, state, self.insert_credits(state, run.blocks))?;
            inode.runs.write().forget(run.start.0, run.start.0 + run.blocks);
            let before = state.sectors;
            self.clusters().record(handle, inode, state, run)?;
            data_sectors += state.sectors - before;
            let mapping = Mapping { start: run.start, blocks: run.blocks, kind: kind(run.block) };
            self.change_mapping(handle, inode, state, Change::Insert(mapping))?;
            // The size goes along, so that a step that ends here leaves no blocks past the end.
            let end = self.block_size().offset_of(FileBlock(run.start.0 + run.blocks));
            state.size = state.size.max(size_at_least.unwrap_or(0).min(end));
            inode.note_data_change(handle.changes_data());
        }
        Ok(data_sectors)
    }

    fn convert(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        change: Change,
    ) -> Result<()> {
        if !state.has_extents() {
            return Err(Error::Unsupported("this file has no unwritten blocks"));
        }
        let (Change::Convert(start, blocks) | Change::Unwrite(start, blocks)) = change else { return Ok(()) };
        let (mut at, end) = (start.0, start.0.saturating_add(blocks));
        while at < end {
            let mapping = self.map_with(inode, state, FileBlock(at), end - at)?;
            let step = mapping.blocks.min(u64::from(crate::layout::extent::MAX_UNWRITTEN));
            let step_change = match (change, mapping.kind) {
                (Change::Convert(..), MappingKind::Unwritten(_)) => {
                    Some(Change::Convert(FileBlock(at), step))
                }
                (Change::Unwrite(..), MappingKind::Mapped(_)) => Some(Change::Unwrite(FileBlock(at), step)),
                _ => None,
            };
            if let Some(change) = step_change {
                self.ensure_credits(handle, inode, state, self.insert_credits(state, 1))?;
                inode.runs.write().forget(at, at + step);
                self.change_mapping(handle, inode, state, change)?;
                inode.note_data_change(handle.changes_data());
            }
            at += step;
        }
        Ok(())
    }

    /// Blocks that mapping a run of `blocks` joins.
    fn insert_credits(&self, state: &InodeState, blocks: u64) -> u32 {
        let groups = blocks / u64::from(self.layout().blocks_per_group) + 2;
        let own = if state.has_extents() {
            // Every level may split; each new node has a bitmap and a descriptor.
            7 * 3
        } else {
            (blocks / self.pointers_per_block() + 4) * 3
        };
        (groups * 2 + own + u64::from(BASE_CREDITS)) as u32
    }

    /// Space in the handle for `credits` more blocks; stores the inode and begins anew if there is none.
    pub(super) fn ensure_credits(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        credits: u32,
    ) -> Result<()> {
        if handle.has_credits(credits) {
            return Ok(());
        }
        self.store_inode(handle, inode, state)?;
        handle.restart(credits + BASE_CREDITS)
    }

    /// Change the mapping. The caller has forgotten the mapping in [`Inode::runs`] and stores the inode.
    pub(crate) fn change_mapping(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        change: Change,
    ) -> Result<()> {
        match change {
            Change::Insert(mapping) if state.has_extents() => {
                self.insert_extent(handle, inode, state, mapping)
            }
            Change::Insert(mapping) => self.insert_indirect(handle, inode, state, &mapping),
            Change::Convert(start, blocks) => {
                self.convert_extent(handle, inode, state, start, blocks, MappingKind::Mapped)
            }
            Change::Unwrite(start, blocks) => {
                self.convert_extent(handle, inode, state, start, blocks, MappingKind::Unwritten)
            }
        }
    }

    /// A zeroed block for the mapping itself, accounted to the inode; [`Volume::free_metadata_block`] frees it.
    pub(crate) fn allocate_index_block(
        &self,
        handle: &mut Handle<'_>,
        state: &mut InodeState,
        near: FsBlock,
        kind: BlockKind,
    ) -> Result<std::sync::Arc<crate::buffer::Buffer>> {
        let block = if let Some(spare) = handle.spare.pop() {
            // It stays in use, and is the inode's already.
            spare
        } else {
            let block = self.allocator().allocate_one(handle, near)?;
            state.sectors += self.cluster_sectors();
            block
        };
        handle.create(block, kind)
    }

    /// Make whole blocks read as zeros and keep them: blocks with data become unwritten, and holes get unwritten blocks. `Unsupported` on
    /// files that cannot have those.
    pub fn zero(&self, inode: &Inode, at: FileBlock, blocks: u64) -> Result<()> {
        self.allocate_unwritten(inode, at, blocks, None)?;
        // Each end of the range cuts an extent at most, and long extents become two.
        let more = blocks / u64::from(crate::layout::extent::MAX_UNWRITTEN) + 3;
        let _promise = self.free_space().promise_metadata(more / (self.block_size().bytes() / 24) + 7)?;
        let mut state = inode.write_in_use()?;
        let mut handle = self.begin(BASE_CREDITS)?;
        self.convert(&mut handle, inode, &mut state, Change::Unwrite(at, blocks))?;
        self.store_inode(&mut handle, inode, &mut state)?;
        handle.commit().map(drop)
    }

    /// Allocate unwritten blocks for the holes of a range, on files that can have them (extents);
    /// `Unsupported` otherwise. `size_at_least` as in [`WriteCommit`].
    pub fn allocate_unwritten(
        &self,
        inode: &Inode,
        at: FileBlock,
        blocks: u64,
        size_at_least: Option<u64>,
    ) -> Result<()> {
        if !inode.state.read().has_extents() {
            return Err(Error::Unsupported("files that are not mapped by extents have no unwritten blocks"));
        }
        let mut reservation = self.reserve(inode, at, blocks)?;
        let mut state = inode.write_in_use()?;
        let _promise =
            self.promise_need(inode, &state, std::slice::from_ref(&reservation), MappingKind::Unwritten)?;
        let mut handle = self.begin(BASE_CREDITS)?;
        let runs = std::mem::take(&mut reservation.runs);
        self.record_runs(&mut handle, inode, &mut state, &runs, MappingKind::Unwritten, size_at_least)?;
        state.size = state.size.max(size_at_least.unwrap_or(0));
        state.touch(self.now(), true);
        inode.note_data_change(handle.changes_data());
        self.store_inode(&mut handle, inode, &mut state)?;
        handle.commit().map(drop)
    }
}

//! Growth of a file's mapping: commit of written reservations, allocation, conversion.
//!
//! The order is that of every write (ARCHITECTURE, "A write"): blocks are kept in memory (`reserve.rs`), the
//! library writes data to them, and one transaction marks them in use and maps them. Long changes are split into steps, each of
//! which leaves the inode consistent and fits into a transaction.

use crate::base::Handle;
use crate::file::Files;
use crate::inode::{InodeState, check_change, check_encrypted, check_verity};
use crate::{
    Error, FileBlock, FileKind, FsBlock, Inode, Mapping, MappingKind, ReservedRun, Result, SetTime,
    WriteCommit,
};

/// Blocks that the bookkeeping of a change joins: inode, superblock, orphan file.
pub(super) const BASE_CREDITS: u32 = 6;

impl Files {
    /// Refuse a change of data that this file does not allow.
    pub(super) fn check_data_change(&self, inode: &Inode, state: &InodeState) -> Result<()> {
        self.check_holds_data(inode, state)?;
        check_change(state.flags)
    }

    /// Refuse an inode that has no data that users write. Whether it is immutable does not matter here: data that is written back may have been
    /// accepted before it was ([`crate::Volume::check_content_use`]).
    pub(super) fn check_holds_data(&self, inode: &Inode, state: &InodeState) -> Result<()> {
        if inode.kind() != FileKind::Regular {
            return Err(Error::InvalidArgument("only regular files have data of users"));
        }
        if state.freed {
            return Err(Error::Stale);
        }
        let flags = state.flags;
        check_encrypted(inode, flags)?;
        check_verity(flags)?;
        let is_own = self.core.format.is_own_inode(inode.number());
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
            && size > self.maps.max_size(&state)
        {
            return Err(Error::FileTooLarge { max_bytes: self.maps.max_size(&state) });
        }
        let kind = MappingKind::Mapped;
        let _claim = self.maps.claim_need(inode, &state, &commit.reservations, &commit.converted, kind)?;
        let mut handle = self.core.begin(BASE_CREDITS)?;
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
            self.convert(&mut handle, inode, &mut state, (*start, *blocks), MappingKind::Mapped)?;
        }
        let grown = state.sectors.saturating_sub(sectors_before + data_sectors) / self.core.cluster_sectors();
        let now = self.core.now();
        if let Some(size) = commit.size_at_least
            && size > state.size
        {
            state.size = size;
            inode.note_data_change(handle.changes_data());
        }
        if let Some(modified) = commit.modified {
            let time = if let SetTime::To(time) | SetTime::Observed(time) = modified { time } else { now };
            // The change time is that of the data; later changes of the inode stay.
            state.modified = time;
            state.changed = state.changed.max(time);
        }
        self.store(&mut handle, inode, &mut state)?;
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
            inode.runs.forget(run.start.0, run.start.0 + run.blocks);
            let before = state.sectors;
            self.maps.clusters().record(&mut handle.on(inode, state), run)?;
            data_sectors += state.sectors - before;
            let mapping = Mapping { start: run.start, blocks: run.blocks, kind: kind(run.block) };
            self.maps.tree(state).insert(&mut handle.on(inode, state), mapping)?;
            // The size goes along, so that a step that ends here leaves no blocks past the end.
            let end = self.core.block_size().offset_of(FileBlock(run.start.0 + run.blocks));
            state.size = state.size.max(size_at_least.unwrap_or(0).min(end));
            inode.note_data_change(handle.changes_data());
        }
        Ok(data_sectors)
    }

    /// Blocks of a range that hold data now (`to` is [`MappingKind::Mapped`]), or are unwritten now and read as zeros.
    fn convert(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        (start, blocks): (FileBlock, u64),
        to: fn(FsBlock) -> MappingKind,
    ) -> Result<()> {
        let (mut at, end) = (start.0, start.0.saturating_add(blocks));
        while at < end {
            let mapping = self.maps.find(inode, state, FileBlock(at), end - at)?;
            let step = mapping.blocks.min(u64::from(crate::layout::extent::MAX_UNWRITTEN));
            if let MappingKind::Mapped(block) | MappingKind::Unwritten(block) = mapping.kind
                && mapping.kind != to(block)
            {
                self.ensure_credits(handle, inode, state, self.insert_credits(state, 1))?;
                inode.runs.forget(at, at + step);
                self.maps.tree(state).convert(&mut handle.on(inode, state), FileBlock(at), step, to)?;
                inode.note_data_change(handle.changes_data());
            }
            at += step;
        }
        Ok(())
    }

    /// Blocks that mapping a run of `blocks` joins.
    fn insert_credits(&self, state: &InodeState, blocks: u64) -> u32 {
        let groups = blocks / u64::from(self.core.layout.blocks_per_group) + 2;
        let own = self.maps.tree(state).insert_credits(blocks);
        (groups * 2 + own + u64::from(BASE_CREDITS)) as u32
    }

    /// Space in the handle for `credits` more blocks; if there is none, stores the inode and restarts the handle.
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
        self.continue_in_new_handle(handle, inode, state, credits + BASE_CREDITS)
    }

    /// Store the inode, and continue with its data in a new handle: a sync of the data waits for that too.
    pub(super) fn continue_in_new_handle(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        credits: u32,
    ) -> Result<()> {
        self.store(handle, inode, state)?;
        handle.restart(credits)?;
        inode.note_data_change(handle.changes_data());
        Ok(())
    }

    /// Make whole blocks read as zeros and keep them: blocks with data become unwritten, and holes get unwritten blocks. `Unsupported` on
    /// files that cannot have those.
    pub fn zero(&self, inode: &Inode, at: FileBlock, blocks: u64) -> Result<()> {
        self.allocate_unwritten(inode, at, blocks, None)?;
        // Each end of the range cuts an extent at most, and long extents become two.
        let more = blocks / u64::from(crate::layout::extent::MAX_UNWRITTEN) + 3;
        let _claim =
            self.core.free_space().claim_metadata(more / (self.core.block_size().bytes() / 24) + 7)?;
        let mut state = inode.write_in_use()?;
        let mut handle = self.core.begin(BASE_CREDITS)?;
        self.convert(&mut handle, inode, &mut state, (at, blocks), MappingKind::Unwritten)?;
        self.store(&mut handle, inode, &mut state)?;
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
        {
            let state = inode.state.read();
            if !state.has_extents() {
                let what = "files that are not mapped by extents have no unwritten blocks";
                return Err(Error::Unsupported(what));
            }
            self.check_data_change(inode, &state)?;
        }
        let mut reservation = self.reserve(inode, at, blocks)?;
        let mut state = inode.write_in_use()?;
        let _claim = self.maps.claim_need(
            inode,
            &state,
            std::slice::from_ref(&reservation),
            &[],
            MappingKind::Unwritten,
        )?;
        let mut handle = self.core.begin(BASE_CREDITS)?;
        let runs = std::mem::take(&mut reservation.runs);
        self.record_runs(&mut handle, inode, &mut state, &runs, MappingKind::Unwritten, size_at_least)?;
        state.size = state.size.max(size_at_least.unwrap_or(0));
        state.touch(self.core.now(), true);
        inode.note_data_change(handle.changes_data());
        self.store(&mut handle, inode, &mut state)?;
        handle.commit().map(drop)
    }
}

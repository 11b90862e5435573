//! How the mapping changes: reserve, commit, truncate, punch.
//!
//! The order is DESIGN section 3's: blocks are kept in memory, the library writes data to them, and one transaction marks them
//! in use and maps them. Long changes are cut into steps, each of which leaves the inode consistent, so that none
//! outgrows a transaction.

use std::collections::BTreeMap;

use crate::BlockRun;
use crate::buffer::BlockKind;
use crate::inode::InodeState;
use crate::layout::{InodeFlags, QuotaKind};
use crate::map::cluster::Removed;
use crate::transaction::Handle;
use crate::{
    Claim, Error, FileBlock, FileKind, FsBlock, Inode, Mapping, MappingKind, Reservation, ReservedRun,
    Result, SetTime, Volume, WriteCommit,
};

/// A change of the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Map blocks where there is a hole.
    Insert(Mapping),
    /// Unwritten blocks hold data now: first file block, number of blocks.
    Convert(FileBlock, u64),
}

/// Stretches that one step of a removal takes at most.
pub(super) const RUNS_PER_STEP: usize = 16;
/// Blocks that such a step joins: two groups' bitmap and descriptor a stretch, the mapping's own blocks, inode and superblock.
const REMOVE_CREDITS: u32 = 4 * RUNS_PER_STEP as u32 + 24;
/// Blocks that the bookkeeping of a change joins: inode, superblock, orphan file.
const BASE_CREDITS: u32 = 6;
/// Most blocks of a file's window, in bytes.
const WINDOW_BYTES_MAX: u64 = 8 << 20;

impl Volume {
    /// Where blocks for `at` should be: behind the file's previous block, else in the inode's group.
    pub(crate) fn goal(&self, inode: &Inode, state: &InodeState, at: FileBlock) -> Result<FsBlock> {
        if let Some(before) = at.0.checked_sub(1)
            && let MappingKind::Mapped(block) | MappingKind::Unwritten(block) =
                self.map_with(inode, state, FileBlock(before), 1)?.kind
        {
            return Ok(FsBlock(block.0 + 1));
        }
        let group = self.layout().locate_inode(inode.number())?.group;
        Ok(self.layout().first_block(group))
    }

    /// Keep `blocks` free blocks for the holes of `[at, at + blocks)`, near the file's other blocks, in as few runs as
    /// possible. Skips what is mapped already. All or `NoSpace`; never what others were promised.
    pub fn reserve(&self, inode: &Inode, at: FileBlock, blocks: u64) -> Result<Reservation> {
        self.reserve_claimed(inode, at, blocks, Claim::default())
    }

    /// As [`Volume::reserve`], for data whose blocks were promised: what the reservation takes of `own`
    /// ([`Reservation::taken`]) changes hands without ever being anybody else's. It cannot fail for lack of space
    /// where `own` is enough.
    pub fn reserve_claimed(
        &self,
        inode: &Inode,
        at: FileBlock,
        blocks: u64,
        own: Claim,
    ) -> Result<Reservation> {
        self.check_writable()?;
        let state = inode.state.read();
        self.check_data_change(inode, &state)?;
        let end = at.0.checked_add(blocks).filter(|end| *end <= self.max_file_blocks(&state));
        let Some(end) = end else {
            return Err(Error::FileTooLarge { max_bytes: self.max_size_with(&state) });
        };
        let mut reservation = Reservation {
            inode: inode.number(),
            runs: Vec::new(),
            held: BTreeMap::new(),
            claimed: 0,
            taken: Claim::default(),
            allocator: self.allocator().clone(),
        };
        let kept = self.reserve_range(inode, &state, at.0..end, own, &mut reservation);
        kept.inspect_err(|_| {
            // What was taken is promised to its owner again, before its blocks are free again.
            self.allocator().renew_claim(reservation.taken.data);
        })?;
        Ok(reservation)
    }

    fn reserve_range(
        &self,
        inode: &Inode,
        state: &InodeState,
        range: std::ops::Range<u64>,
        own: Claim,
        reservation: &mut Reservation,
    ) -> Result<()> {
        let mut next = range.start;
        while next < range.end {
            let mapping = self.map_with(inode, state, FileBlock(next), range.end - next)?;
            match mapping.kind {
                MappingKind::Hole => {
                    let left = own.data - reservation.taken.data;
                    let taken = self.reserve_hole_claimed(inode, state, &mapping, left, reservation)?;
                    reservation.taken.data += taken;
                }
                MappingKind::Mapped(_) | MappingKind::Unwritten(_) => {}
                MappingKind::Inline => {
                    return Err(Error::InvalidArgument("the content of this file is in its inode"));
                }
            }
            next = mapping.end();
        }
        let growth = self.mapping_growth(state, reservation);
        let given = growth.min(own.mapping);
        self.claim_for_mapping(given, growth)?;
        (reservation.claimed, reservation.taken.mapping) = (growth, given);
        Ok(())
    }

    /// Keep blocks for a hole, of which `own` are promised already; the rest is promised first, so that nobody's promise is
    /// broken. Returns how many of `own` were taken.
    fn reserve_hole_claimed(
        &self,
        inode: &Inode,
        state: &InodeState,
        hole: &Mapping,
        own: u64,
        reservation: &mut Reservation,
    ) -> Result<u64> {
        let per_cluster = self.blocks_per_cluster();
        let clusters = hole.end().div_ceil(per_cluster) - hole.start.0 / per_cluster;
        let taken = own.min(hole.blocks);
        let more = clusters.saturating_sub(taken);
        self.claim(more)?;
        let kept = self.reserve_hole(inode, state, hole, reservation);
        self.release_claim(if kept.is_ok() { taken + more } else { more });
        kept.map(|()| taken)
    }

    pub(super) fn check_data_change(&self, inode: &Inode, state: &InodeState) -> Result<()> {
        if inode.kind() != FileKind::Regular {
            return Err(Error::InvalidArgument("only regular files have data of users"));
        }
        if state.freed {
            return Err(Error::Stale);
        }
        let flags = InodeFlags::from_bits_retain(state.flags);
        if flags.contains(InodeFlags::IMMUTABLE) {
            return Err(Error::NotPermitted("immutable"));
        }
        if flags.contains(InodeFlags::ENCRYPTED) {
            return Err(Error::Encrypted { inode: inode.number() });
        }
        if flags.contains(InodeFlags::VERITY) {
            return Err(Error::NotPermitted("verity"));
        }
        if self.is_own_inode(inode) { Err(Error::NotPermitted("reserved")) } else { Ok(()) }
    }

    /// Whether the inode is one of the filesystem's own (journal, resize, quota, orphan file).
    fn is_own_inode(&self, inode: &Inode) -> bool {
        let format = self.superblock();
        let is_quota = |kind| format.quota_inode(kind) == Some(inode.number());
        inode.number() < format.first_inode()
            || format.orphan_file() == Some(inode.number())
            || QuotaKind::ALL.into_iter().any(is_quota)
    }

    /// Keep blocks for a hole.
    fn reserve_hole(
        &self,
        inode: &Inode,
        state: &InodeState,
        hole: &Mapping,
        reservation: &mut Reservation,
    ) -> Result<()> {
        let (mut at, end) = (hole.start, hole.end());
        let per_cluster = self.blocks_per_cluster();
        let mut goal = None;
        while at.0 < end {
            let left = end - at.0;
            let within = at.0 % per_cluster;
            let run = if within == 0 && left >= per_cluster {
                self.keep_run(inode, state, at, left / per_cluster * per_cluster, goal)?
            } else {
                let number = at.0 / per_cluster;
                let cluster = match reservation.held.get(&number) {
                    Some(cluster) => *cluster,
                    None => self.hold_cluster(inode, state, number, goal)?,
                };
                reservation.held.insert(number, cluster);
                BlockRun { start: FsBlock(cluster.0 + within), blocks: left.min(per_cluster - within) }
            };
            goal = Some(FsBlock(run.start.0 + run.blocks));
            let addressable = state.has_extents() || u32::try_from(run.start.0 + run.blocks).is_ok();
            match reservation.runs.last_mut() {
                Some(last)
                    if last.start.0 + last.blocks == at.0 && last.block.0 + last.blocks == run.start.0 =>
                {
                    last.blocks += run.blocks;
                }
                _ => reservation.runs.push(ReservedRun { start: at, block: run.start, blocks: run.blocks }),
            }
            if !addressable {
                return Err(Error::NoSpace);
            }
            at.0 += run.blocks;
        }
        Ok(())
    }

    /// Keep whole clusters for at most `wanted` blocks, which are whole clusters of the file: of the file's window, or at `goal`, or
    /// near the file's other blocks.
    pub(super) fn keep_run(
        &self,
        inode: &Inode,
        state: &InodeState,
        at: FileBlock,
        wanted: u64,
        goal: Option<FsBlock>,
    ) -> Result<BlockRun> {
        if let Some(run) = self.allocator().take_from_window(inode.number(), at, wanted) {
            return Ok(run);
        }
        let near = match goal {
            Some(goal) => goal,
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
        let size_blocks = self.block_size().blocks_for(state.size);
        let grows = at.0 + wanted >= size_blocks;
        let most = WINDOW_BYTES_MAX / self.block_size().bytes();
        let extra = if grows { (wanted + at.0).next_power_of_two().clamp(8, most.max(8)) } else { 0 };
        let per_cluster = self.blocks_per_cluster();
        // The blocks for the data are promised; what is more is not to cost anybody theirs.
        let extra = extra.min(self.allocator().unclaimed().saturating_mul(per_cluster));
        let run = self.reserve_run(goal, wanted + extra)?;
        if run.blocks <= wanted {
            return Ok(run);
        }
        let rest = BlockRun { start: FsBlock(run.start.0 + wanted), blocks: run.blocks - wanted };
        self.allocator().keep_window(inode.number(), FileBlock(at.0 + wanted), rest);
        Ok(BlockRun { start: run.start, blocks: wanted })
    }

    /// Keep a run of at most `wanted` blocks near `goal`.
    pub(crate) fn reserve_run(&self, goal: FsBlock, wanted: u64) -> Result<BlockRun> {
        for attempt in 0.. {
            if let Some(run) = self.allocator().reserve(goal, wanted)? {
                return Ok(run);
            }
            self.make_room(attempt)?;
        }
        Err(Error::NoSpace)
    }

    /// Blocks, each in a cluster of its own, that mapping a reservation may need for the mapping itself.
    fn mapping_growth(&self, state: &InodeState, reservation: &Reservation) -> u64 {
        if reservation.runs.is_empty() {
            return 0;
        }
        let runs = reservation.runs.len() as u64;
        if state.has_extents() {
            let per_node = self.block_size().bytes() / 24;
            return runs / per_node + 7;
        }
        // What is one stretch of the file shares its indirect blocks, wherever its runs lie.
        let pointers = self.pointers_per_block();
        let follows = |before: &ReservedRun, run: &ReservedRun| before.start.0 + before.blocks == run.start.0;
        let stretches = reservation.runs.chunk_by(follows);
        let leaves: u64 =
            stretches.map(|stretch| stretch.iter().map(|run| run.blocks).sum::<u64>() / pointers + 2).sum();
        leaves + leaves / pointers + 4
    }

    /// Promise clusters to a mapping, which may use what is kept from data, in place of `given`.
    fn claim_for_mapping(&self, given: u64, wanted: u64) -> Result<()> {
        for attempt in 0.. {
            if self.allocator().exchange_claim(given, wanted) {
                return Ok(());
            }
            self.make_room(attempt)?;
        }
        Err(Error::NoSpace)
    }

    /// Take `blocks` (data, and what mapping them may need) from the free count without choosing them: the promise
    /// that lets a buffered write succeed before its blocks are chosen. Given back by [`Volume::release_claim`]. With clusters
    /// each block counts as one: it may lie in a cluster of its own.
    pub fn claim(&self, blocks: u64) -> Result<()> {
        self.check_writable()?;
        for attempt in 0.. {
            if self.allocator().claim(blocks) {
                return Ok(());
            }
            self.make_room(attempt)?;
        }
        Err(Error::NoSpace)
    }

    /// Give a claim, or a part of one, back: after the blocks were reserved, or when the data was discarded.
    pub fn release_claim(&self, blocks: u64) {
        self.allocator().release_claim(blocks);
    }

    /// Promise again what a reservation took of a claim ([`Reservation::taken`]) that is about to be dropped unused. Its blocks
    /// are still kept, so that this cannot fail.
    pub fn renew_claim(&self, blocks: u64) {
        self.allocator().renew_claim(blocks);
    }

    /// Record data that has been written: allocate and map the reserved blocks, convert unwritten ranges, set size
    /// and times, in one transaction (several if the runs are too many for one; each leaves the file consistent). Returns how
    /// many blocks the mapping itself grew by, with clusters how many of those.
    pub fn commit_write(&self, inode: &Inode, mut commit: WriteCommit) -> Result<u64> {
        let mut state = inode.write_in_use()?;
        if let Some(size) = commit.size_at_least
            && size > self.max_size_with(&state)
        {
            return Err(Error::FileTooLarge { max_bytes: self.max_size_with(&state) });
        }
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
            self.convert(&mut handle, inode, &mut state, *start, *blocks)?;
        }
        let grown = state.sectors.saturating_sub(sectors_before + data_sectors) / self.cluster_sectors();
        let now = self.now();
        if let Some(size) = commit.size_at_least
            && size > state.size
        {
            state.size = size;
            inode.note_data_change(handle.transaction());
        }
        if let Some(modified) = commit.modified {
            let time = if let SetTime::To(time) = modified { time } else { now };
            state.modified = time;
            state.changed = now;
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
            self.make_handle_room(handle, inode, state, self.insert_credits(state, run.blocks))?;
            inode.runs.write().forget(run.start.0, run.start.0 + run.blocks);
            let before = state.sectors;
            self.record_clusters(handle, inode, state, run)?;
            data_sectors += state.sectors - before;
            let mapping = Mapping { start: run.start, blocks: run.blocks, kind: kind(run.block) };
            self.change_mapping(handle, inode, state, Change::Insert(mapping))?;
            // The size goes along, so that a step that ends here leaves no blocks behind the end.
            let end = self.block_size().offset_of(FileBlock(run.start.0 + run.blocks));
            state.size = state.size.max(size_at_least.unwrap_or(0).min(end));
            inode.note_data_change(handle.transaction());
        }
        Ok(data_sectors)
    }

    fn convert(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        start: FileBlock,
        blocks: u64,
    ) -> Result<()> {
        if !state.has_extents() {
            return Err(Error::Unsupported("this file has no unwritten blocks"));
        }
        let (mut at, end) = (start.0, start.0.saturating_add(blocks));
        while at < end {
            let mapping = self.map_with(inode, state, FileBlock(at), end - at)?;
            let step = mapping.blocks.min(u64::from(crate::layout::extent::MAX_UNWRITTEN));
            if matches!(mapping.kind, MappingKind::Unwritten(_)) {
                self.make_handle_room(handle, inode, state, self.insert_credits(state, 1))?;
                inode.runs.write().forget(at, at + step);
                self.change_mapping(handle, inode, state, Change::Convert(FileBlock(at), step))?;
                inode.note_data_change(handle.transaction());
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

    /// Room in the handle for `credits` more blocks; stores the inode and begins anew if there is none.
    fn make_handle_room(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        credits: u32,
    ) -> Result<()> {
        if handle.has_room(credits) {
            return Ok(());
        }
        self.store_inode(handle, inode, state)?;
        handle.restart(credits + BASE_CREDITS)
    }

    /// Change the mapping. The caller has forgotten the stretch in [`Inode::runs`] and stores the inode.
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
            Change::Convert(start, blocks) => self.convert_extent(handle, inode, state, start, blocks),
        }
    }

    /// A zeroed block for the mapping itself, accounted to the inode; [`Volume::free_metadata_block`] frees it.
    pub(crate) fn allocate_index_block(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        near: FsBlock,
        kind: BlockKind,
    ) -> Result<std::sync::Arc<crate::buffer::Buffer>> {
        let block = self.allocator().allocate_one(handle, near)?;
        state.sectors += self.cluster_sectors();
        handle.create(block, kind, Some(inode.number()))
    }

    /// Free data blocks, in file order, that are mapped no longer.
    pub(super) fn free_data(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        removed: &[Removed],
    ) -> Result<()> {
        if inode.kind() != FileKind::Regular {
            // Blocks of directories and symbolic links are metadata.
            let blocks = |run: BlockRun| run.start.0..run.start.0 + run.blocks;
            removed.iter().flat_map(|part| blocks(part.run)).for_each(|block| handle.forget(FsBlock(block)));
        }
        if self.blocks_per_cluster() > 1 {
            return self.free_clusters(handle, inode, state, removed);
        }
        for Removed { run, .. } in removed {
            let sectors = run.blocks * (self.block_size().bytes() / 512);
            state.sectors = state.sectors.saturating_sub(sectors);
            self.allocator().free(handle, inode.number(), *run)?;
        }
        Ok(())
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
        let mut handle = self.begin(BASE_CREDITS)?;
        let runs = std::mem::take(&mut reservation.runs);
        self.record_runs(&mut handle, inode, &mut state, &runs, MappingKind::Unwritten, size_at_least)?;
        state.size = state.size.max(size_at_least.unwrap_or(0));
        state.changed = self.now();
        inode.note_data_change(handle.transaction());
        self.store_inode(&mut handle, inode, &mut state)?;
        handle.commit().map(drop)
    }

    /// Set the size. Blocks beyond a smaller size are freed (not given out again before the transaction is on
    /// disk). The caller has zeroed the rest of the last block.
    pub fn truncate(&self, inode: &Inode, size: u64) -> Result<()> {
        self.check_writable()?;
        if inode.state.read().is_inline() {
            self.make_not_inline(inode)?;
        }
        self.allocator().release_window(inode.number());
        let mut state = inode.state.write();
        self.check_data_change(inode, &state)?;
        if InodeFlags::from_bits_retain(state.flags).contains(InodeFlags::APPEND) {
            return Err(Error::NotPermitted("append-only"));
        }
        let max_bytes = self.max_size_with(&state);
        if size > max_bytes {
            return Err(Error::FileTooLarge { max_bytes });
        }
        let mut handle = self.begin(BASE_CREDITS + REMOVE_CREDITS)?;
        let shrinks = size < state.size;
        state.size = size;
        state.touch(self.now(), true);
        inode.note_data_change(handle.transaction());
        if shrinks {
            let first = self.block_size().blocks_for(size);
            self.remove_blocks(&mut handle, inode, &mut state, first, u64::MAX)?;
            self.remove_orphan(&mut handle, inode, &mut state)?;
        }
        self.store_inode(&mut handle, inode, &mut state)?;
        handle.commit().map(drop)
    }

    /// Turn whole blocks into holes.
    pub fn punch(&self, inode: &Inode, at: FileBlock, blocks: u64) -> Result<()> {
        self.check_writable()?;
        if inode.state.read().is_inline() {
            self.make_not_inline(inode)?;
        }
        self.allocator().release_window(inode.number());
        let _promise = self.promise_metadata(8)?;
        let mut state = inode.state.write();
        self.check_data_change(inode, &state)?;
        let mut handle = self.begin(BASE_CREDITS + REMOVE_CREDITS)?;
        state.touch(self.now(), true);
        inode.note_data_change(handle.transaction());
        self.remove_blocks(&mut handle, inode, &mut state, at.0, at.0.saturating_add(blocks))?;
        self.remove_orphan(&mut handle, inode, &mut state)?;
        self.store_inode(&mut handle, inode, &mut state)?;
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
        let end = end.min(self.max_file_blocks(state));
        inode.runs.write().forget(at, end);
        let mut at = at;
        while at < end {
            if !handle.has_room(REMOVE_CREDITS) {
                // What is cut in several transactions is finished after a crash.
                self.add_orphan(handle, inode, state)?;
                self.store_inode(handle, inode, state)?;
                handle.restart(REMOVE_CREDITS + BASE_CREDITS)?;
            }
            at = if state.has_extents() {
                self.remove_extents(handle, inode, state, at, end)?
            } else {
                self.remove_indirect(handle, inode, state, at, end)?
            };
        }
        if state.has_extents() {
            self.make_handle_room(handle, inode, state, REMOVE_CREDITS)?;
            self.collapse_root(handle, inode, state)?;
        }
        Ok(())
    }
}

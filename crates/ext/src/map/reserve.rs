//! Blocks for data that is about to be written: promised, then chosen and kept in memory. Nothing on the disk knows of them.
//!
//! Where it sits: before `write.rs`, which records them once the data is in them. A promise ([`Volume::claim`]) says that there
//! will be blocks, a [`Reservation`] which; what is promised becomes a reservation in one step, so that at no moment another thread
//! else could have it.

use std::ops::Range;

use crate::inode::InodeState;
use crate::{
    BlockRun, Claim, Error, FileBlock, FsBlock, Inode, Mapping, MappingKind, Reservation, ReservedRun,
    Result, Volume,
};
use std::collections::BTreeMap;

/// Most blocks of a file's window, in bytes.
const WINDOW_BYTES_MAX: u64 = 8 << 20;
/// A file that begins with no more than this gets no window yet.
const SMALL_FILE_BYTES: u64 = 64 << 10;

impl Volume {
    /// Where blocks for `at` should be: after the file's previous block, else in the inode's group.
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
    /// ([`Reservation::taken`]) changes hands without being available to others. It cannot fail for lack of space
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
            promised: 0,
            is_counted: false,
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
        range: Range<u64>,
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
        let mut growth = self.mapping_growth(state, &reservation.runs);
        match self.free_space().claim_for_mapping(growth.min(own.mapping), growth) {
            Err(Error::NoSpace) => {
                growth = self.mapping_need(inode, state, &reservation.runs, MappingKind::Mapped)?;
                self.free_space().claim_for_mapping(growth.min(own.mapping), growth)?;
                reservation.is_counted = true;
            }
            claimed => claimed?,
        }
        (reservation.claimed, reservation.promised) = (growth, growth);
        reservation.taken.mapping = growth.min(own.mapping);
        Ok(())
    }

    /// Keep blocks for a hole, of which `own` are promised already; the rest is promised first, so that no other promise is
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
                    None => self.clusters().hold(inode, state, number, goal)?,
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
        // A small file is written once and whole, as a rule: the next one follows it on the device.
        let is_small = at.0 == 0 && wanted * self.block_size().bytes() <= SMALL_FILE_BYTES;
        let has_window = grows && !is_small;
        let extra = if has_window { (wanted + at.0).next_power_of_two().clamp(8, most.max(8)) } else { 0 };
        let per_cluster = self.blocks_per_cluster();
        // The blocks for the data are promised; what is more must not use up other promises.
        let extra = extra.min(self.allocator().unclaimed().saturating_mul(per_cluster));
        let run = self.free_space().reserve_run(goal, wanted + extra)?;
        if run.blocks <= wanted {
            return Ok(run);
        }
        let rest = BlockRun { start: FsBlock(run.start.0 + wanted), blocks: run.blocks - wanted };
        self.allocator().keep_window(inode.number(), FileBlock(at.0 + wanted), rest);
        Ok(BlockRun { start: run.start, blocks: wanted })
    }

    /// Blocks, each in a cluster of its own, that mapping these runs may need at most for the mapping itself.
    pub(super) fn mapping_growth(&self, state: &InodeState, runs: &[ReservedRun]) -> u64 {
        if runs.is_empty() {
            return 0;
        }
        if state.has_extents() {
            let per_node = self.block_size().bytes() / 24;
            return runs.len() as u64 / per_node + 7;
        }
        // What is one mapping of the file shares its indirect blocks, wherever its runs lie.
        let pointers = self.pointers_per_block();
        let follows = |before: &ReservedRun, run: &ReservedRun| before.start.0 + before.blocks == run.start.0;
        let mappings = runs.chunk_by(follows);
        let leaves: u64 =
            mappings.map(|mapping| mapping.iter().map(|run| run.blocks).sum::<u64>() / pointers + 2).sum();
        leaves + leaves / pointers + 4
    }

    /// Take `blocks` (data, and what mapping them may need) from the free count without choosing them: the promise
    /// that lets a buffered write succeed before its blocks are chosen. Given back by [`Volume::release_claim`]. With clusters
    /// each block counts as one: it may lie in a cluster of its own.
    pub fn claim(&self, blocks: u64) -> Result<()> {
        self.check_writable()?;
        self.free_space().claim(blocks)
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
}

//! Blocks for data that is about to be written: claimed, then chosen and reserved in memory. Nothing on the disk refers to them.
//!
//! Where it sits: before `write.rs`, which records them after the data was written. A claim ([`Files::claim`]) guarantees a number
//! of blocks, and a [`Reservation`] has chosen blocks. A claim becomes a reservation in one step, so that no other thread can
//! take the blocks in between.

use std::ops::Range;

use crate::file::Files;
use crate::inode::InodeState;
use crate::map::{Change, insertions};
use crate::{
    BlockRun, Claim, Error, FileBlock, FsBlock, Inode, Mapping, MappingKind, Reservation, ReservedRun, Result,
};
use std::collections::BTreeMap;

/// Blocks that the last reservation asks for by itself, though it may need less, and those of the levels above the lowest.
const LAST_AND_LEVELS: u64 = 14;

impl Files {
    /// Keep `blocks` free blocks for the holes of `[at, at + blocks)`, near the file's other blocks, in as few runs as
    /// possible. Skips mapped blocks. All or `NoSpace`; never blocks that others have claimed.
    pub fn reserve(&self, inode: &Inode, at: FileBlock, blocks: u64) -> Result<Reservation> {
        self.reserve_claimed(inode, at, blocks, Claim::default())
    }

    /// As [`Files::reserve`], for data whose blocks were claimed: blocks that the reservation takes of `own`
    /// ([`Reservation::taken`]) change their owner without being available to others. It cannot fail for lack of space
    /// where `own` is enough.
    pub fn reserve_claimed(
        &self,
        inode: &Inode,
        at: FileBlock,
        blocks: u64,
        own: Claim,
    ) -> Result<Reservation> {
        self.core.check_writable()?;
        let state = inode.state.read();
        self.check_holds_data(inode, &state)?;
        let end = at.0.checked_add(blocks).filter(|end| *end <= self.maps.tree(&state).max_blocks());
        let Some(end) = end else {
            return Err(Error::FileTooLarge { max_bytes: self.maps.max_size(&state) });
        };
        let mut reservation = self.empty_reservation(inode);
        let kept = self.reserve_range(inode, &state, at.0..end, own, &mut reservation);
        kept.inspect_err(|_| {
            // Taken blocks are claimed for their owner again, before they are free again.
            self.core.allocator.renew_claim(reservation.taken.data);
        })?;
        Ok(reservation)
    }

    /// Claim the blocks that the conversion of the unwritten range `[at, at + blocks)` can need, since it can split extents. The
    /// reservation is committed together with [`WriteCommit::converted`](crate::WriteCommit::converted).
    ///
    /// # Errors
    /// As [`Files::reserve_claimed`].
    pub fn reserve_conversion(
        &self,
        inode: &Inode,
        at: FileBlock,
        blocks: u64,
        own: Claim,
    ) -> Result<Reservation> {
        self.core.check_writable()?;
        let state = inode.state.read();
        self.check_holds_data(inode, &state)?;
        let mut reservation = self.empty_reservation(inode);
        self.claim_growth(inode, &state, &[Change::Convert(at, blocks)], own, &mut reservation)?;
        Ok(reservation)
    }

    fn empty_reservation(&self, inode: &Inode) -> Reservation {
        Reservation {
            inode: inode.number(),
            runs: Vec::new(),
            held: BTreeMap::new(),
            claimed: 0,
            taken: Claim::default(),
            growth: 0,
            is_counted: false,
            allocator: self.core.allocator.clone(),
        }
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
            let mapping = self.maps.find(inode, state, FileBlock(next), range.end - next)?;
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
        let changes: Vec<Change> = insertions(&reservation.runs, MappingKind::Mapped).collect();
        self.claim_growth(inode, state, &changes, own, reservation)
    }

    /// Claim the mapping's own blocks for these changes: their maximum, or where space is short the exact number.
    fn claim_growth(
        &self,
        inode: &Inode,
        state: &InodeState,
        changes: &[Change],
        own: Claim,
        reservation: &mut Reservation,
    ) -> Result<()> {
        let tree = self.maps.tree(state);
        let mut growth = if changes.is_empty() { 0 } else { tree.need_max(state, changes) };
        match self.core.free_space().claim_for_mapping(growth.min(own.mapping), growth) {
            Err(Error::NoSpace) => {
                growth = tree.need(inode, state, changes)?;
                self.core.free_space().claim_for_mapping(growth.min(own.mapping), growth)?;
                reservation.is_counted = true;
            }
            claimed => claimed?,
        }
        (reservation.claimed, reservation.growth) = (growth, growth);
        reservation.taken.mapping = growth.min(own.mapping);
        Ok(())
    }

    /// Keep blocks for a hole, of which `own` are claimed already; the rest is claimed first, so that no other claim is
    /// broken. Returns how many of `own` were taken.
    fn reserve_hole_claimed(
        &self,
        inode: &Inode,
        state: &InodeState,
        hole: &Mapping,
        own: u64,
        reservation: &mut Reservation,
    ) -> Result<u64> {
        let per_cluster = self.core.blocks_per_cluster();
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
        let per_cluster = self.core.blocks_per_cluster();
        let mut goal = None;
        while at.0 < end {
            let left = end - at.0;
            let within = at.0 % per_cluster;
            let run = if within == 0 && left >= per_cluster {
                self.maps.keep_run(inode, state, at, left / per_cluster * per_cluster, goal)?
            } else {
                let number = at.0 / per_cluster;
                let cluster = match reservation.held.get(&number) {
                    Some(cluster) => *cluster,
                    None => self.maps.clusters().hold(inode, state, number, goal)?,
                };
                reservation.held.insert(number, cluster);
                BlockRun { start: FsBlock(cluster.0 + within), blocks: left.min(per_cluster - within) }
            };
            goal = Some(FsBlock(run.start.0 + run.blocks));
            match reservation.runs.last_mut() {
                Some(last)
                    if last.start.0 + last.blocks == at.0 && last.block.0 + last.blocks == run.start.0 =>
                {
                    last.blocks += run.blocks;
                }
                _ => reservation.runs.push(ReservedRun { start: at, block: run.start, blocks: run.blocks }),
            }
            at.0 += run.blocks;
        }
        Ok(())
    }

    /// Take `blocks` (data, and what mapping them may need) from the free count without choosing them: the claim
    /// that lets a buffered write succeed before its blocks are chosen. Given back by [`Files::release_claim`]. With clusters
    /// each block counts as one: it may lie in a cluster of its own.
    pub fn claim(&self, blocks: u64) -> Result<()> {
        self.core.check_writable()?;
        self.core.free_space().claim(blocks)
    }

    /// Give a claim, or a part of one, back: after the blocks were reserved, or when the data was discarded.
    pub fn release_claim(&self, blocks: u64) {
        self.core.allocator.release_claim(blocks);
    }

    /// Claim again what a reservation took of a claim ([`Reservation::taken`]) that is about to be dropped unused. Its blocks
    /// are still kept, so that this cannot fail.
    pub fn renew_claim(&self, blocks: u64) {
        self.core.allocator.renew_claim(blocks);
    }

    /// The most blocks that the mapping of this number of blocks of data can take, holes or unwritten ones, written in this number of calls: each may lie in
    /// another part of the file.
    pub fn mapping_need_max(&self, inode: &Inode, data: u64, calls: u64) -> u64 {
        if data == 0 {
            return 0;
        }
        let state = inode.state.read();
        let calls = calls.min(data);
        LAST_AND_LEVELS
            + if state.has_extents() {
                // A block cuts an unwritten extent in three.
                self.maps.extents.splits_max(&state, 2 * data, 2 * calls)
            } else {
                // For each call the ends of two indirect blocks.
                2 * calls + 2 * (data / (self.core.block_size().bytes() / 4))
            }
    }
}

//! How many blocks recording a write takes for the mapping itself.
//!
//! Where it sits: below `file/reserve.rs`, which promises a mapping what it can need at most as long as there is that much space. Where
//! there is not, its blocks are counted here exactly, so that the last blocks of a volume go to data. The mapping may
//! change before the reservation is committed: then the count is made again, under the inode's lock, before anything is changed.

use crate::allocate::Promise;
use crate::inode::InodeState;
use crate::map::Mappings;
use crate::map::tree::Change;
use crate::{FileBlock, FsBlock, Inode, Mapping, MappingKind, Reservation, ReservedRun, Result};

/// The changes that record runs.
pub(crate) fn insertions(
    runs: &[ReservedRun],
    kind: fn(FsBlock) -> MappingKind,
) -> impl Iterator<Item = Change> + '_ {
    runs.iter().map(move |run| {
        Change::Insert(Mapping { start: run.start, blocks: run.blocks, kind: kind(run.block) })
    })
}

impl Mappings {
    /// Promise the blocks that recording takes beyond the promises of its reservations.
    pub(crate) fn promise_need(
        &self,
        inode: &Inode,
        state: &InodeState,
        reservations: &[Reservation],
        converted: &[(FileBlock, u64)],
        kind: fn(FsBlock) -> MappingKind,
    ) -> Result<Option<Promise<'_>>> {
        if !reservations.iter().any(|reservation| reservation.is_counted) {
            return Ok(None);
        }
        let runs = reservations.iter().flat_map(|reservation| insertions(&reservation.runs, kind));
        let converted = converted.iter().map(|(start, blocks)| Change::Convert(*start, *blocks));
        let changes: Vec<Change> = runs.chain(converted).collect();
        let promised: u64 = reservations.iter().map(|reservation| reservation.promised).sum();
        let more = self.tree(state).need(inode, state, &changes)?.saturating_sub(promised);
        self.core.free_space().promise_at_once(more).map(Some)
    }
}

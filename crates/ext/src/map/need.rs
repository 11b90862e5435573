//! The number of blocks that a write needs for its mapping.
//!
//! Where it sits: below `file/reserve.rs`, which claims the most that a mapping can need, as long as there is that much space. If
//! there is not, this module counts the blocks exactly, so that the last blocks of a volume are used for data. The mapping may
//! change before the reservation is committed. Then the count is repeated under the inode's lock, before the first change.

use crate::allocate::MetadataClaim;
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
    /// Claim the blocks that recording takes beyond the claims of its reservations.
    pub(crate) fn claim_need(
        &self,
        inode: &Inode,
        state: &InodeState,
        reservations: &[Reservation],
        converted: &[(FileBlock, u64)],
        kind: fn(FsBlock) -> MappingKind,
    ) -> Result<Option<MetadataClaim<'_>>> {
        if !reservations.iter().any(|reservation| reservation.is_counted) {
            return Ok(None);
        }
        let runs = reservations.iter().flat_map(|reservation| insertions(&reservation.runs, kind));
        let converted = converted.iter().map(|(start, blocks)| Change::Convert(*start, *blocks));
        let changes: Vec<Change> = runs.chain(converted).collect();
        let claimed: u64 = reservations.iter().map(|reservation| reservation.growth).sum();
        let more = self.tree(state).need(inode, state, &changes)?.saturating_sub(claimed);
        self.core.free_space().try_claim_metadata(more).map(Some)
    }
}

//! How many blocks mapping a reservation takes, counted on the mapping as it is.
//!
//! Where it sits: below `file/reserve.rs`, which promises a mapping what it can need at most as long as there is that much space. Where
//! there is not, what it takes is counted here, so that the last blocks of a volume go to data. The mapping may change before the
//! reservation is committed: then the count is made again, under the inode's lock, before anything is changed.

use crate::allocate::Promise;
use crate::inode::InodeState;
use crate::map::Mappings;
use crate::{FsBlock, Inode, MappingKind, Reservation, ReservedRun, Result};

impl Mappings {
    /// Blocks, each in a cluster of its own, that mapping `runs` takes for the mapping itself.
    pub(crate) fn need(
        &self,
        inode: &Inode,
        state: &InodeState,
        runs: &[ReservedRun],
        kind: fn(FsBlock) -> MappingKind,
    ) -> Result<u64> {
        let counted = self.tree(state).need(inode, state, runs, kind)?;
        Ok(counted.unwrap_or_else(|| self.need_max(state, runs)))
    }

    /// As [`Self::need`], at most, whatever the mapping is when the runs are recorded.
    pub(crate) fn need_max(&self, state: &InodeState, runs: &[ReservedRun]) -> u64 {
        if runs.is_empty() { 0 } else { self.tree(state).need_max(runs) }
    }

    /// Promise what the mapping takes beyond what its reservations were promised together.
    pub(crate) fn promise_need(
        &self,
        inode: &Inode,
        state: &InodeState,
        reservations: &[Reservation],
        kind: fn(FsBlock) -> MappingKind,
    ) -> Result<Option<Promise<'_>>> {
        if !reservations.iter().any(|reservation| reservation.is_counted) {
            return Ok(None);
        }
        let runs: Vec<ReservedRun> =
            reservations.iter().flat_map(|reservation| &reservation.runs).copied().collect();
        let promised: u64 = reservations.iter().map(|reservation| reservation.promised).sum();
        let more = self.need(inode, state, &runs, kind)?.saturating_sub(promised);
        self.core.free_space().promise_at_once(more).map(Some)
    }
}

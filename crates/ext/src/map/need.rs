//! How many blocks mapping a reservation takes, counted on the mapping as it is.
//!
//! Where it sits: below `reserve.rs`, which promises a mapping what it can need at most as long as there is that much space. Where
//! there is not, what it takes is counted here, so that the last blocks of a volume go to data. The mapping may change before the
//! reservation is committed: then the count is made again, under the inode's lock, before anything is changed.

use std::collections::BTreeSet;

use crate::buffer::BlockKind;
use crate::inode::InodeState;
use crate::layout::le32;
use crate::map::indirect::{DIRECT, Path};
use crate::volume::Promise;
use crate::{Error, FileBlock, FsBlock, Inode, MappingKind, Reservation, ReservedRun, Result, Volume};

/// Blocks that the last reservation asks for by itself, though it may need less, and those of the levels above the lowest.
const LAST_AND_LEVELS: u64 = 14;

impl Volume {
    /// Blocks that mapping so many blocks of data may take at most, written in so many calls: each may lie in another part of
    /// the file.
    pub fn mapping_need_max(&self, inode: &Inode, data: u64, calls: u64) -> u64 {
        if data == 0 {
            return 0;
        }
        let block = self.block_size().bytes();
        // An extent a block in nodes that are half full, or for each call the ends of two indirect blocks.
        let nodes = data / (block / 24);
        let indirect = 2 * calls.min(data) + 2 * (data / (block / 4));
        LAST_AND_LEVELS + if inode.state.read().has_extents() { nodes } else { indirect }
    }

    /// Blocks, each in a cluster of its own, that mapping `runs` takes for the mapping itself.
    pub(super) fn mapping_need(
        &self,
        inode: &Inode,
        state: &InodeState,
        runs: &[ReservedRun],
        kind: fn(FsBlock) -> MappingKind,
    ) -> Result<u64> {
        if state.has_extents() {
            Ok(self
                .extent_need(inode, state, runs, kind)?
                .unwrap_or_else(|| self.mapping_growth(state, runs)))
        } else {
            self.indirect_need(inode, state, runs)
        }
    }

    /// The index blocks on the way to the runs that are missing.
    fn indirect_need(&self, inode: &Inode, state: &InodeState, runs: &[ReservedRun]) -> Result<u64> {
        let pointers = self.pointers_per_block();
        let too_large = || Error::FileTooLarge { max_bytes: self.max_size_with(state) };
        let mut missing = BTreeSet::new();
        for run in runs {
            let (mut at, end) = (run.start.0, run.start.0 + run.blocks);
            while at < end {
                let path = Path::to(FileBlock(at), pointers).ok_or_else(too_large)?;
                self.note_missing(inode, state, FileBlock(at), &path, &mut missing)?;
                let in_one = if path.len == 1 { DIRECT } else { pointers };
                at += in_one - u64::from(path.slots[path.len - 1]);
            }
        }
        Ok(missing.len() as u64)
    }

    /// Add the index blocks that are missing on one way. Each is named by the slots that lead to it.
    fn note_missing(
        &self,
        inode: &Inode,
        state: &InodeState,
        at: FileBlock,
        path: &Path,
        missing: &mut BTreeSet<Vec<u32>>,
    ) -> Result<()> {
        let mut block = le32(&state.block, path.slots[0] as usize * 4);
        for level in 1..path.len {
            if block == 0 {
                missing.insert(path.slots[..level].to_vec());
                continue;
            }
            let address = self.index_block(inode.number(), at, block)?;
            let buffer = self.cache().get(address, BlockKind::Plain)?;
            block = le32(&buffer.read(), path.slots[level] as usize * 4);
        }
        Ok(())
    }

    /// Promise what the mapping takes beyond what its reservations were promised together.
    pub(super) fn promise_need(
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
        let more = self.mapping_need(inode, state, &runs, kind)?.saturating_sub(promised);
        self.free_space().promise_at_once(more).map(Some)
    }
}

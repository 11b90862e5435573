//! Replay of mappings in fast commits.

use super::FastReplay;
use crate::BlockRun;
use crate::layout::extent::Extent;
use crate::map::node;
use crate::{Corrupt, Error, FileBlock, Incompatible, Inode, InodeNumber, Mapping, MappingKind, Result};

/// Blocks that one change of a mapping joins.
const CREDITS: u32 = 120;

impl FastReplay<'_> {
    /// The inode of a fast commit's range; `None` if it was removed later.
    fn inode_to_replay(&self, number: InodeNumber) -> Result<Option<std::sync::Arc<Inode>>> {
        let inode = match self.volume.inodes.load(number) {
            Ok(inode) => inode,
            Err(Error::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
        if !inode.state.read().has_extents() {
            return Err(Incompatible::FAST_COMMIT_WITHOUT_EXTENTS.into());
        }
        Ok(Some(inode))
    }

    /// A mapping of a file is at these blocks, whatever was there.
    pub(super) fn replay_extent(&self, number: InodeNumber, extent: &Extent) -> Result<()> {
        let Some(inode) = self.inode_to_replay(number)? else { return Ok(()) };
        let end = extent.end().0;
        if extent.blocks == 0 || end > node::MAX_FILE_BLOCKS - 1 {
            return Err(Corrupt::map(number, extent.start, "a fast commit maps impossible blocks").into());
        }
        let kind = if extent.unwritten { MappingKind::Unwritten } else { MappingKind::Mapped };
        let mut state = inode.state.write();
        // A cluster of the file is in one place: its blocks elsewhere were unmapped.
        let per_cluster = self.volume.core.blocks_per_cluster();
        for number in self.volume.maps.clusters().misplaced(&inode, &state, extent)? {
            let mut handle = self.volume.core.begin(CREDITS)?;
            let (first, past_end) = (number * per_cluster, (number + 1) * per_cluster);
            self.volume.files.remove_blocks(&mut handle, &inode, &mut state, first, past_end)?;
            self.volume.files.store(&mut handle, &inode, &mut state)?;
            handle.commit()?;
        }
        let mut at = extent.start.0;
        while at < end {
            let due = crate::FsBlock(extent.block.0 + (at - extent.start.0));
            let found = self.volume.maps.find(&inode, &state, FileBlock(at), end - at)?;
            let mut handle = self.volume.core.begin(CREDITS)?;
            let wanted = Mapping { start: FileBlock(at), blocks: found.blocks, kind: kind(due) };
            let insert = match found.kind {
                MappingKind::Mapped(block) | MappingKind::Unwritten(block) if block == due => {
                    if matches!((found.kind, extent.unwritten), (MappingKind::Unwritten(_), false)) {
                        inode.runs.forget(at, found.end());
                        self.volume.maps.tree(&state).convert(
                            &mut handle.on(&inode, &mut state),
                            FileBlock(at),
                            found.blocks,
                            MappingKind::Mapped,
                        )?;
                    }
                    false
                }
                MappingKind::Mapped(_) | MappingKind::Unwritten(_) => {
                    self.volume.files.remove_blocks(&mut handle, &inode, &mut state, at, found.end())?;
                    true
                }
                MappingKind::Hole => true,
                MappingKind::Inline => {
                    return Err(Corrupt::map(number, FileBlock(at), "content in the inode").into());
                }
            };
            if insert {
                inode.runs.forget(at, found.end());
                self.volume.maps.clusters().record_replayed(
                    &mut handle.on(&inode, &mut state),
                    at,
                    BlockRun { start: due, blocks: found.blocks },
                )?;
                self.volume.maps.tree(&state).insert(&mut handle.on(&inode, &mut state), wanted)?;
            }
            self.volume.files.store(&mut handle, &inode, &mut state)?;
            handle.commit()?;
            at = found.end();
        }
        Ok(())
    }

    /// A mapping of a file has no blocks any more.
    pub(super) fn replay_removal(&self, number: InodeNumber, start: u64, blocks: u64) -> Result<()> {
        let Some(inode) = self.inode_to_replay(number)? else { return Ok(()) };
        let mut state = inode.state.write();
        let mut handle = self.volume.core.begin(CREDITS)?;
        self.volume.files.remove_blocks(&mut handle, &inode, &mut state, start, start + blocks)?;
        self.volume.files.store(&mut handle, &inode, &mut state)?;
        handle.commit().map(drop)
    }
}

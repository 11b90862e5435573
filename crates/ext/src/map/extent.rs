//! The mapping of ext4: a B-tree of extents with its root in the inode.

use std::sync::Arc;

use crate::base::Core;
use crate::buffer::{BlockKind, Buffer};
use crate::inode::InodeState;
use crate::map::node;
use crate::{Corrupt, FileBlock, InodeNumber, Mapping, MappingKind, Result};

/// The extent trees of a volume's inodes.
#[derive(Debug)]
pub(crate) struct ExtentTree {
    pub(super) core: Arc<Core>,
}

impl ExtentTree {
    pub(super) fn new(core: &Arc<Core>) -> Self {
        Self { core: Arc::clone(core) }
    }

    /// The extent that holds `at`, or the hole between its neighbours in one leaf.
    pub(super) fn find_extent(
        &self,
        inode: InodeNumber,
        state: &InodeState,
        at: FileBlock,
    ) -> Result<Mapping> {
        let Ok(key) = u32::try_from(at.0) else {
            return Ok(Mapping { start: at, blocks: u64::MAX - at.0, kind: MappingKind::Hole });
        };
        let bad = |what| Corrupt::map(inode, at, what);
        // The leaf holds nothing outside of these bounds, which the keys above it give.
        let (mut low, mut high) = (0, node::MAX_FILE_BLOCKS);
        let mut header = node::header_of(&state.block, None).map_err(bad)?;
        let mut buffer: Option<Arc<Buffer>> = None;
        loop {
            let guard = buffer.as_ref().map(|buffer| buffer.read());
            let bytes: &[u8] = guard.as_deref().unwrap_or(&state.block);
            let position = node::position(bytes, header.entries, key);
            let after = position.map_or(0, |position| position + 1);
            if after < usize::from(header.entries) {
                high = high.min(u64::from(node::key(bytes, after)));
            }
            let Some(position) = position else { return hole(inode, at, low, high) };
            let entry = &bytes[node::ENTRY * (position + 1)..node::ENTRY * (position + 2)];
            if header.depth == 0 {
                return self.extent_or_hole(inode, at, entry, low, high);
            }
            low = low.max(u64::from(node::key(bytes, position)));
            let child = node::child_of(entry);
            let depth = header.depth - 1;
            drop(guard);
            let next = self.node(inode, state.generation, at, child)?;
            header = node::header_of(&next.read(), Some(depth)).map_err(bad)?;
            buffer = Some(next);
        }
    }

    fn extent_or_hole(
        &self,
        inode: InodeNumber,
        at: FileBlock,
        entry: &[u8],
        low: u64,
        high: u64,
    ) -> Result<Mapping> {
        let extent = node::extent_of(entry);
        if extent.blocks == 0 || extent.end() > high || extent.start.0 < low {
            return Err(Corrupt::map(inode, at, "an extent that overlaps its neighbour").into());
        }
        if let MappingKind::Mapped(block) | MappingKind::Unwritten(block) = extent.kind {
            self.core.check_run(inode, extent.start, block, extent.blocks)?;
        }
        if at.0 < extent.end() { Ok(extent) } else { hole(inode, at, extent.end(), high) }
    }

    /// A node of the tree outside of the inode.
    pub(super) fn node(
        &self,
        inode: InodeNumber,
        generation: u32,
        at: FileBlock,
        block: crate::FsBlock,
    ) -> Result<Arc<Buffer>> {
        self.core.check_run(inode, at, block, 1)?;
        Ok(self.core.buffers.get(block, BlockKind::ExtentNode { inode, generation })?)
    }
}

/// The hole between two keys around `at`.
fn hole(inode: InodeNumber, at: FileBlock, start: u64, end: u64) -> Result<Mapping> {
    if !(start..end).contains(&at.0) {
        return Err(Corrupt::map(inode, at, "extents out of order").into());
    }
    Ok(Mapping { start: FileBlock(start), blocks: end - start, kind: MappingKind::Hole })
}

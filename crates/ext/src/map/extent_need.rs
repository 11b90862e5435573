//! The number of nodes that a change adds to an extent tree.

use std::ops::Range;

use crate::inode::InodeState;
use crate::map::extent::ExtentTree;
use crate::map::extent_change::Path;
use crate::map::node::{self, Header, RawEntry};
use crate::map::tree::Change;
use crate::{Corrupt, FileBlock, FsBlock, Inode, MappingKind, Result};

/// Most levels of a tree, with what splitting each of them takes.
pub(super) const LEVELS: u64 = node::MAX_DEPTH as u64 + 2;

/// Blocks that a hole inside one extent takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitNeed {
    /// Nodes that the tree grows by.
    pub(crate) nodes: u64,
    /// First of as many clusters that lie wholly in the hole, one after the other; none if it has fewer.
    pub(crate) spare: Option<FsBlock>,
}

/// A leaf as changes make it.
#[derive(Debug)]
struct Planned {
    path: Path,
    entries: Vec<RawEntry>,
    /// Most entries on the way there.
    most: usize,
    inserts: bool,
    converts: bool,
}

impl Planned {
    fn new(path: Path) -> Self {
        let entries = path.leaf().entries.clone();
        Self { most: entries.len(), path, entries, inserts: false, converts: false }
    }

    fn is_of(&self, path: &Path) -> bool {
        let block = |path: &Path| path.leaf().buffer.as_ref().map(|buffer| buffer.block());
        block(&self.path) == block(path)
    }

    /// Apply a part of a change from `at` on. Returns where the next part begins.
    fn apply(&mut self, change: &Change, at: u64, end: u64) -> Result<u64, &'static str> {
        let next = match change {
            Change::Insert(mapping) => {
                let rest = mapping.part(FileBlock(at), u64::MAX);
                let piece = rest.part(rest.start, node::max_len(&rest));
                self.entries = node::with_extent(&self.entries, &piece)?;
                self.inserts = true;
                piece.end()
            }
            Change::Convert(..) => {
                let (entries, upto) = node::with_converted(&self.entries, at, end, MappingKind::Mapped)?;
                (self.entries, self.converts) = (entries, true);
                upto
            }
        };
        self.most = self.most.max(self.entries.len());
        Ok(next)
    }
}

impl ExtentTree {
    /// Nodes that a number of entries in a number of places add, beside those of [`LEVELS`]: a node that was split is half full.
    pub(crate) fn splits_max(&self, state: &InodeState, entries: u64, places: u64) -> u64 {
        // A missing node cannot be full.
        let leaves = match node::header_of(&state.block, None) {
            Ok(root) if root.depth == 0 => 0,
            Ok(root) if root.depth == 1 => u64::from(root.entries),
            _ => u64::MAX,
        };
        let until_full = self.core.block_size().bytes() / 24;
        let splits = places.min(leaves) + entries / until_full;
        splits + splits / until_full
    }

    /// Nodes that these changes, in this order, add to the current tree.
    pub(super) fn nodes_needed(&self, inode: &Inode, state: &InodeState, changes: &[Change]) -> Result<u64> {
        let mut leaves: Vec<Planned> = Vec::new();
        for change in changes {
            let Range { start: mut at, end } = change.range();
            while at < end {
                let path = self.path_to(inode, state, at)?;
                let index = leaves.iter().position(|leaf| leaf.is_of(&path)).unwrap_or(leaves.len());
                if index == leaves.len() {
                    leaves.push(Planned::new(path));
                }
                let bad = |what| Corrupt::map(inode.number(), FileBlock(at), what);
                at = leaves[index].apply(change, at, end).map_err(bad)?;
            }
        }
        let (mut need, mut split) = (0, 0);
        for leaf in &leaves {
            let nodes = self.nodes_for(&leaf.path, leaf.most - leaf.path.leaf().entries.len());
            // The last leaf stays full when it is split at its end.
            let again = nodes > 0 && leaf.inserts && leaf.converts;
            need += nodes + if again { leaf.path.levels.len() as u64 } else { 0 };
            split += u64::from(nodes > 0);
        }
        // Leaves that are split together may split what is above them where one alone would not.
        Ok(if split > 1 { need + LEVELS + split } else { need })
    }

    /// Blocks that a hole at `[at, end)` takes, if it splits a node.
    pub(crate) fn split_need(
        &self,
        inode: &Inode,
        state: &InodeState,
        at: u64,
        end: u64,
    ) -> Result<Option<SplitNeed>> {
        let path = self.path_to(inode, state, at)?;
        let leaf = path.leaf();
        let Some(extent) = leaf.entries.get(leaf.position).map(|entry| node::extent_of(entry)) else {
            return Ok(None);
        };
        let nodes = self.nodes_for(&path, 1);
        if extent.start.0 >= at || extent.end() <= end || nodes == 0 {
            return Ok(None);
        }
        let per_cluster = self.core.blocks_per_cluster();
        let first = (end / per_cluster).checked_sub(nodes).map(|cluster| cluster * per_cluster);
        let first = first.filter(|first| *first >= at.next_multiple_of(per_cluster));
        let spare = first.and_then(|first| match extent.part(FileBlock(first), 1).kind {
            MappingKind::Mapped(block) | MappingKind::Unwritten(block) => Some(block),
            MappingKind::Hole | MappingKind::Inline => None,
        });
        Ok(Some(SplitNeed { nodes, spare }))
    }

    /// Nodes that `more` entries in the leaf of a path add, there and above.
    fn nodes_for(&self, path: &Path, mut more: usize) -> u64 {
        // A node that was split in the middle takes as many more before it is full again.
        let until_full = usize::from(Header::capacity_of(self.core.block_size().bytes() as usize)) / 2 - 1;
        let mut nodes = 0;
        for level in path.levels.iter().rev() {
            let free = usize::from(level.header.capacity.saturating_sub(level.header.entries));
            if more <= free {
                break;
            }
            more = 1 + (more - free - 1) / until_full;
            nodes += more as u64;
        }
        nodes
    }

    /// Nodes that cutting the extent across `at` adds to the tree.
    pub(crate) fn cut_need(&self, inode: &Inode, state: &InodeState, at: u64) -> Result<u64> {
        let path = self.path_to(inode, state, at)?;
        let leaf = path.leaf();
        let extent = leaf.entries.get(leaf.position).map(|entry| node::extent_of(entry));
        let is_cut = extent.is_some_and(|extent| extent.start.0 < at && at < extent.end());
        Ok(if is_cut { self.nodes_for(&path, 1) } else { 0 })
    }
}

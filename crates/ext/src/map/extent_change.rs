//! Changes of an extent tree.
//!
//! A change reads one leaf's entries, edits the list, and stores it: [`ExtentTree::store_level`] splits a node that overflows, frees one that
//! became empty, and keeps the keys above exact, up to the root.
//!
//! Invariants (checked by e2fsck too): entries are sorted and do not overlap; an index entry's key is the first key of its node;
//! no node but the root is empty.

use std::sync::Arc;

use crate::BlockRun;
use crate::buffer::{BlockKind, Buffer};
use crate::inode::{InodeChange, InodeState};
use crate::layout::extent::MAX_UNWRITTEN;
use crate::map::extent::ExtentTree;
use crate::map::extent_need::LEVELS;
use crate::map::node::{self, ENTRY, Header, RawEntry};
use crate::map::place::Growth;
use crate::map::tree::{Change, MappingTree, RUNS_PER_STEP, RemovalStep, Removed};
use crate::{Corrupt, Error, FileBlock, FsBlock, Inode, InodeNumber, Mapping, MappingKind, Result};

/// A node on the way from the root to a leaf.
#[derive(Debug)]
pub(super) struct Level {
    /// `None`: the root in the inode.
    pub(super) buffer: Option<Arc<Buffer>>,
    pub(super) header: Header,
    pub(super) entries: Vec<RawEntry>,
    /// The entry that the path follows; in a leaf, the last one that begins at or before the key (0 if none does).
    pub(super) position: usize,
}

/// How keys move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shift {
    /// Keys from `from` on become smaller.
    Down { from: u64, by: u64 },
    /// Keys from `from` on grow.
    Up { from: u64, by: u64 },
}

impl Shift {
    /// Where the first leaf to change is: what moves last need not make space.
    pub(crate) fn first_step(self) -> Option<u64> {
        match self {
            Self::Down { from, .. } => (from < node::MAX_FILE_BLOCKS).then_some(from),
            Self::Up { .. } => Some(node::MAX_FILE_BLOCKS - 1),
        }
    }

    /// Where a key goes.
    fn moved(self, key: u64) -> u64 {
        match self {
            Self::Down { from, by } if key >= from => key.saturating_sub(by),
            Self::Up { from, by } if key >= from => key.saturating_add(by),
            _ => key,
        }
    }
}

/// The path to a leaf.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) levels: Vec<Level>,
    /// The first key after the leaf.
    high: u64,
}

impl Path {
    pub(super) fn leaf(&self) -> &Level {
        self.levels.last().expect("a path has a root")
    }
}

impl ExtentTree {
    pub(super) fn path_to(&self, inode: &Inode, state: &InodeState, at: u64) -> Result<Path> {
        let bad = |what| Corrupt::map(inode.number(), FileBlock(at), what);
        let key = u32::try_from(at).map_err(|_| bad("a file block beyond the last"))?;
        let mut path = Path { levels: Vec::with_capacity(4), high: node::MAX_FILE_BLOCKS };
        let mut header = node::header_of(&state.block, None).map_err(bad)?;
        let mut buffer: Option<Arc<Buffer>> = None;
        loop {
            let guard = buffer.as_ref().map(|buffer| buffer.read());
            let bytes: &[u8] = guard.as_deref().unwrap_or(&state.block);
            let position = node::position(bytes, header.entries, key).unwrap_or(0);
            let entries = node::entries(bytes, header.entries);
            if header.depth > 0
                && let Some(next) = entries.get(position + 1)
            {
                path.high = path.high.min(u64::from(node::key_of(next)));
            }
            drop(guard);
            let child = entries.get(position).map(|entry| node::child_of(entry));
            let depth = header.depth;
            path.levels.push(Level { buffer, header, entries, position });
            if depth == 0 {
                return Ok(path);
            }
            let child = child.ok_or_else(|| bad("an inner extent node without entries"))?;
            let next = self.node(inode.number(), state.generation, FileBlock(at), child)?;
            header = node::header_of(&next.read(), Some(depth - 1)).map_err(bad)?;
            buffer = Some(next);
        }
    }

    /// Cut the extent that goes on across `at`, if one does.
    pub(crate) fn split_at(&self, on: &mut InodeChange<'_, '_>, at: u64) -> Result<()> {
        let path = self.path_to(on.inode, on.state, at)?;
        let leaf = path.leaf();
        let Some(extent) = leaf.entries.get(leaf.position).map(|entry| node::extent_of(entry)) else {
            return Ok(());
        };
        if extent.start.0 >= at || extent.end() <= at {
            return Ok(());
        }
        let mut entries = leaf.entries.clone();
        entries[leaf.position] = node::extent_entry(&extent.part(extent.start, at - extent.start.0));
        entries.insert(leaf.position + 1, node::extent_entry(&extent.part(FileBlock(at), u64::MAX)));
        self.store_leaf(on, path, &entries)
    }

    /// Move the keys of the leaf that holds `at`. Where the next leaf is.
    pub(crate) fn shift_leaf(
        &self,
        on: &mut InodeChange<'_, '_>,
        at: u64,
        shift: Shift,
    ) -> Result<Option<u64>> {
        let path = self.path_to(on.inode, on.state, at)?;
        let (high, leaf) = (path.high, path.leaf());
        let is_first = path.levels.iter().rev().skip(1).all(|level| level.position == 0);
        let Some(first) = leaf.entries.first().map(|entry| u64::from(node::key_of(entry))) else {
            return Ok(None);
        };
        let moved = |entry: &RawEntry| {
            let extent = node::extent_of(entry);
            let start = FileBlock(shift.moved(extent.start.0));
            if extent.blocks == 0 { *entry } else { node::extent_entry(&Mapping { start, ..extent }) }
        };
        let entries: Vec<RawEntry> = leaf.entries.iter().map(moved).collect();
        self.store_leaf(on, path, &entries)?;
        Ok(match shift {
            Shift::Down { .. } => (high < node::MAX_FILE_BLOCKS && high > at).then_some(high),
            Shift::Up { from, .. } => (first > from && !is_first).then(|| first - 1),
        })
    }

    /// The first file block after the last extent.
    pub(crate) fn last_end(&self, inode: &Inode, state: &InodeState) -> Result<u64> {
        let path = self.path_to(inode, state, node::MAX_FILE_BLOCKS - 1)?;
        Ok(path.leaf().entries.last().map_or(0, |entry| node::extent_of(entry).end()))
    }

    fn store_leaf(&self, on: &mut InodeChange<'_, '_>, mut path: Path, entries: &[RawEntry]) -> Result<()> {
        let level = path.levels.len() - 1;
        self.store_level(on, &mut path, level, entries)
    }

    /// Store a node's entries and whatever that means for the nodes above.
    fn store_level(
        &self,
        on: &mut InodeChange<'_, '_>,
        path: &mut Path,
        level: usize,
        entries: &[RawEntry],
    ) -> Result<()> {
        let Some(buffer) = path.levels[level].buffer.clone() else {
            return self.store_root(on, &path.levels[level], entries);
        };
        let header = path.levels[level].header;
        let mut parent = std::mem::take(&mut path.levels[level - 1].entries);
        let place = path.levels[level - 1].position;
        let Some(first) = entries.first().map(node::key_of) else {
            on.free_block(buffer.block())?;
            parent.remove(place);
            return self.store_level(on, path, level - 1, &parent);
        };
        let max = usize::from(header.capacity);
        if entries.len() <= max {
            // e2fsck clears a whole extent that reaches beyond the size: without a journal the inode is on the disk first.
            let outgrows = !self.core.has_journal() && header.depth == 0 && self.reach(on.state, entries);
            let mut bytes =
                if outgrows { on.handle.modify_moved_from(&buffer)? } else { on.handle.modify(&buffer)? };
            node::write_node(&mut bytes, header, entries);
            drop(bytes);
            if node::key_of(&parent[place]) == first {
                return Ok(());
            }
            parent[place] = node::index_entry(first, buffer.block());
            return self.store_level(on, path, level - 1, &parent);
        }
        // A file that grows fills its nodes; others are split in the middle.
        let appended =
            path.levels[level].entries.last() != entries.last() && path.high == node::MAX_FILE_BLOCKS;
        let cut = if appended { max } else { entries.len() / 2 };
        let (left, right) = entries.split_at(cut);
        let sibling = self.new_node(on, buffer.block(), header.depth, right)?;
        let left = self.store_left(on, &buffer, header, left)?;
        parent[place] = node::index_entry(first, left);
        parent.insert(place + 1, node::index_entry(node::key_of(&right[0]), sibling));
        self.store_level(on, path, level - 1, &parent)
    }

    /// Whether the extents of a leaf reach beyond the size that the file has had so far.
    fn reach(&self, state: &InodeState, leaf: &[RawEntry]) -> bool {
        let size_blocks = state.size.div_ceil(self.core.block_size().bytes());
        leaf.last().is_some_and(|last| node::extent_of(last).end() > size_blocks)
    }

    /// Store what is left of a node that was split; returns where. Without a journal the old node stays as it is while anything on the
    /// disk refers to it, as long as there is a block for that.
    fn store_left(
        &self,
        on: &mut InodeChange<'_, '_>,
        node: &Arc<Buffer>,
        header: Header,
        entries: &[RawEntry],
    ) -> Result<FsBlock> {
        if self.core.has_journal() || self.core.check_unclaimed().is_err() {
            node::write_node(&mut on.handle.modify_moved_from(node)?, header, entries);
            return Ok(node.block());
        }
        let moved = self.new_node(on, node.block(), header.depth, entries)?;
        on.free_block(node.block())?;
        Ok(moved)
    }

    fn store_root(&self, on: &mut InodeChange<'_, '_>, root: &Level, entries: &[RawEntry]) -> Result<()> {
        on.note_data_change();
        if entries.is_empty() {
            node::write_empty_root(&mut on.state.block);
            return Ok(());
        }
        if entries.len() <= usize::from(root.header.capacity) {
            node::write_node(&mut on.state.block, root.header, entries);
            return Ok(());
        }
        if root.header.depth >= node::MAX_DEPTH {
            return Err(Error::FileTooLarge { max_bytes: on.state.size });
        }
        let group = self.core.layout.locate_inode(on.inode.number())?.group;
        let near = self.core.layout.first_block(group);
        let child = self.new_node(on, near, root.header.depth, entries)?;
        let header = Header { entries: 1, depth: root.header.depth + 1, ..root.header };
        node::write_node(&mut on.state.block, header, &[node::index_entry(node::key_of(&entries[0]), child)]);
        Ok(())
    }

    fn new_node(
        &self,
        on: &mut InodeChange<'_, '_>,
        near: FsBlock,
        depth: u16,
        entries: &[RawEntry],
    ) -> Result<FsBlock> {
        let kind = BlockKind::ExtentNode { inode: on.inode.number(), generation: on.state.generation };
        let goal = self.core.index_goal(near, Growth::Some)?;
        let buffer = on.allocate_block(goal, kind)?;
        let capacity = Header::capacity_of(self.core.block_size().bytes() as usize);
        let header = Header { entries: 0, capacity, depth, generation: 0 };
        node::write_node(&mut on.handle.modify(&buffer)?, header, entries);
        Ok(buffer.block())
    }
}

impl MappingTree for ExtentTree {
    fn max_blocks(&self) -> u64 {
        node::MAX_FILE_BLOCKS - 1
    }

    fn find(&self, inode: InodeNumber, state: &InodeState, at: FileBlock) -> Result<Mapping> {
        self.find_extent(inode, state, at)
    }

    fn insert(&self, on: &mut InodeChange<'_, '_>, mapping: Mapping) -> Result<()> {
        let mut rest = mapping;
        while rest.blocks > 0 {
            let piece = rest.part(rest.start, node::max_len(&rest));
            if !node::extend_last(&mut on.state.block, &piece) {
                let path = self.path_to(on.inode, on.state, piece.start.0)?;
                let entries = node::with_extent(&path.leaf().entries, &piece)
                    .map_err(|what| Corrupt::map(on.inode.number(), piece.start, what))?;
                self.store_leaf(on, path, &entries)?;
            }
            if piece.blocks == rest.blocks {
                break;
            }
            rest = rest.part(FileBlock(piece.end()), u64::MAX);
        }
        Ok(())
    }

    fn convert(
        &self,
        on: &mut InodeChange<'_, '_>,
        start: FileBlock,
        blocks: u64,
        to: fn(FsBlock) -> MappingKind,
    ) -> Result<()> {
        let (mut at, end) = (start.0, start.0 + blocks);
        while at < end {
            let path = self.path_to(on.inode, on.state, at)?;
            let bad = |what| Corrupt::map(on.inode.number(), FileBlock(at), what);
            let (entries, upto) = node::with_converted(&path.leaf().entries, at, end, to).map_err(bad)?;
            self.store_leaf(on, path, &entries)?;
            at = upto;
        }
        Ok(())
    }

    fn remove(&self, on: &mut InodeChange<'_, '_>, at: u64, end: u64) -> Result<RemovalStep> {
        let path = self.path_to(on.inode, on.state, at)?;
        let leaf = path.leaf();
        let mut next = path.high.min(end);
        let mut kept: Vec<RawEntry> = Vec::with_capacity(leaf.entries.len() + 1);
        let mut freed: Vec<Removed> = Vec::new();
        for (index, entry) in leaf.entries.iter().enumerate() {
            let extent = node::extent_of(entry);
            if extent.end() <= at || extent.start.0 >= end {
                kept.push(*entry);
                continue;
            }
            if freed.len() >= RUNS_PER_STEP {
                next = extent.start.0;
                kept.extend(&leaf.entries[index..]);
                break;
            }
            let (from, upto) = (extent.start.0.max(at), extent.end().min(end));
            let (MappingKind::Mapped(block) | MappingKind::Unwritten(block)) =
                extent.part(FileBlock(from), u64::MAX).kind
            else {
                continue;
            };
            self.core.check_run(on.inode.number(), extent.start, block, upto - from)?;
            let part = |at: u64, end: u64| {
                let run = BlockRun { start: FsBlock(block.0 + (at - from)), blocks: end - at };
                Removed { at, run }
            };
            if let Some(spare) = on.handle.spare.first() {
                // The blocks between them belong to the inode, and become nodes of the tree.
                let first = from + (spare.0 - block.0);
                let after = first + on.handle.spare.len() as u64 * self.core.blocks_per_cluster();
                freed.extend([part(from, first), part(after, upto)]);
            } else {
                freed.push(part(from, upto));
            }
            if extent.start.0 < from {
                kept.push(node::extent_entry(&extent.part(extent.start, from - extent.start.0)));
            }
            if upto < extent.end() {
                kept.push(node::extent_entry(&extent.part(FileBlock(upto), u64::MAX)));
            }
        }
        if !freed.is_empty() {
            self.store_leaf(on, path, &kept)?;
        }
        freed.retain(|part| part.run.blocks > 0);
        if next <= at && next < end {
            return Err(Corrupt::map(on.inode.number(), FileBlock(at), "extents out of order").into());
        }
        Ok(RemovalStep { removed: freed, next })
    }

    /// Pull the only node below the root into the root, while it fits.
    fn finish_removal(&self, on: &mut InodeChange<'_, '_>) -> Result<()> {
        let bad = |what| Corrupt::map(on.inode.number(), FileBlock(0), what);
        loop {
            let root = node::header_of(&on.state.block, None).map_err(bad)?;
            if root.depth == 0 || root.entries != 1 {
                return Ok(());
            }
            let child = node::child_of(&on.state.block[ENTRY..2 * ENTRY]);
            let buffer = self.node(on.inode.number(), on.state.generation, FileBlock(0), child)?;
            let (header, entries) = {
                let bytes = buffer.read();
                let header = node::header_of(&bytes, Some(root.depth - 1)).map_err(bad)?;
                (header, node::entries(&bytes, header.entries))
            };
            if header.entries > root.capacity {
                return Ok(());
            }
            node::write_node(&mut on.state.block, Header { depth: header.depth, ..root }, &entries);
            on.free_block(child)?;
        }
    }

    fn need(&self, inode: &Inode, state: &InodeState, changes: &[Change]) -> Result<u64> {
        self.nodes_needed(inode, state, changes)
    }

    fn need_max(&self, state: &InodeState, changes: &[Change]) -> u64 {
        let entries = |change: &Change| {
            let range = change.range();
            2 + (range.end - range.start) / u64::from(MAX_UNWRITTEN)
        };
        // One hole is in one leaf, wherever its runs are on the device.
        let follows = |before: &Change, change: &Change| before.range().end == change.range().start;
        let places = changes.chunk_by(follows).count() as u64;
        LEVELS + self.splits_max(state, changes.iter().map(entries).sum(), 2 * places - 2)
    }

    fn insert_credits(&self, _blocks: u64) -> u64 {
        // Every level may split; each new node has a bitmap and a descriptor.
        7 * 3
    }
}

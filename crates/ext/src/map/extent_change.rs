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
use crate::map::extent::ExtentTree;
use crate::map::node::{self, ENTRY, Header, RawEntry};
use crate::map::place::Growth;
use crate::map::tree::{MappingTree, RUNS_PER_STEP, RemovalStep, Removed};
use crate::{
    Corrupt, Error, FileBlock, FsBlock, Inode, InodeNumber, Mapping, MappingKind, ReservedRun, Result,
};

/// A node on the way from the root to a leaf.
#[derive(Debug)]
struct Level {
    /// `None`: the root in the inode.
    buffer: Option<Arc<Buffer>>,
    header: Header,
    entries: Vec<RawEntry>,
    /// The entry that the path follows; in a leaf, the last one that begins at or before the key (0 if none does).
    position: usize,
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

/// What a hole inside one extent takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitNeed {
    /// Nodes that the tree grows by.
    pub(crate) nodes: u64,
    /// The last block of the hole.
    pub(crate) last: FsBlock,
}

/// The path to a leaf.
#[derive(Debug)]
struct Path {
    levels: Vec<Level>,
    /// The first key after the leaf.
    high: u64,
}

impl Path {
    fn leaf(&self) -> &Level {
        self.levels.last().expect("a path has a root")
    }
}

impl ExtentTree {
    fn path_to(&self, inode: &Inode, state: &InodeState, at: u64) -> Result<Path> {
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

    /// What it takes to make `[at, end)` a hole, if that splits a node.
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
        match extent.part(FileBlock(end - 1), 1).kind {
            MappingKind::Mapped(last) | MappingKind::Unwritten(last) => Ok(Some(SplitNeed { nodes, last })),
            _ => Ok(None),
        }
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
            write_node(&mut on.handle.modify(&buffer)?, header, entries);
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

    /// Store what is left of a node that was split; returns where. Without a journal the old node stays as it is while anything on the
    /// disk refers to it, as long as there is a block for that.
    fn store_left(
        &self,
        on: &mut InodeChange<'_, '_>,
        node: &Arc<Buffer>,
        header: Header,
        entries: &[RawEntry],
    ) -> Result<FsBlock> {
        if self.core.has_journal() || !on.handle.spare.is_empty() || self.core.check_unclaimed().is_err() {
            write_node(&mut on.handle.modify_moved_from(node)?, header, entries);
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
            write_node(&mut on.state.block, root.header, entries);
            return Ok(());
        }
        if root.header.depth >= node::MAX_DEPTH {
            return Err(Error::FileTooLarge { max_bytes: on.state.size });
        }
        let group = self.core.layout.locate_inode(on.inode.number())?.group;
        let near = self.core.layout.first_block(group);
        let child = self.new_node(on, near, root.header.depth, entries)?;
        let header = Header { entries: 1, depth: root.header.depth + 1, ..root.header };
        write_node(&mut on.state.block, header, &[node::index_entry(node::key_of(&entries[0]), child)]);
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
        let goal = self.core.index_goal(near, Growth::Some);
        let buffer = on.allocate_block(goal, kind)?;
        let capacity = Header::capacity_of(self.core.block_size().bytes() as usize);
        let header = Header { entries: 0, capacity, depth, generation: 0 };
        write_node(&mut on.handle.modify(&buffer)?, header, entries);
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
            if !extend_last(on.state, &piece) {
                let path = self.path_to(on.inode, on.state, piece.start.0)?;
                let entries = with_extent(&path.leaf().entries, &piece)
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
            let leaf = path.leaf();
            let bad = |what| Corrupt::map(on.inode.number(), FileBlock(at), what);
            let extent = leaf.entries.get(leaf.position).map(|entry| node::extent_of(entry));
            let extent = extent.filter(|extent| extent.start.0 <= at && at < extent.end());
            let Some(extent) = extent else {
                return Err(bad("no extent where blocks are to be converted").into());
            };
            let from = extent.part(FileBlock(at), u64::MAX).kind;
            let (MappingKind::Mapped(block) | MappingKind::Unwritten(block)) = from else {
                return Err(bad("an extent without blocks").into());
            };
            if from == to(block) {
                return Err(bad("an extent is written, or unwritten, already").into());
            }
            let converted = Mapping { start: FileBlock(at), blocks: u64::MAX, kind: to(block) };
            let upto = end.min(extent.end()).min(at + node::max_len(&converted));
            let mut entries = leaf.entries.clone();
            entries.remove(leaf.position);
            let mut pieces = vec![Mapping { blocks: upto - at, ..converted }];
            if extent.start.0 < at {
                pieces.push(extent.part(extent.start, at - extent.start.0));
            }
            if upto < extent.end() {
                pieces.push(extent.part(FileBlock(upto), u64::MAX));
            }
            for piece in pieces {
                entries = with_extent(&entries, &piece).map_err(bad)?;
            }
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
            if freed.len() == RUNS_PER_STEP {
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
            // The last ones become nodes of the tree.
            let blocks = upto - from - on.handle.spare.len() as u64;
            freed.push(Removed { at: from, run: BlockRun { start: block, blocks } });
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
            write_node(&mut on.state.block, Header { depth: header.depth, ..root }, &entries);
            on.free_block(child)?;
        }
    }

    // Nodes. Where several leaves would split, that is not counted.
    fn need(
        &self,
        inode: &Inode,
        state: &InodeState,
        runs: &[ReservedRun],
        kind: fn(FsBlock) -> MappingKind,
    ) -> Result<Option<u64>> {
        let (mut need, mut next) = (0, 0);
        while let Some(first) = runs.get(next) {
            let path = self.path_to(inode, state, first.start.0)?;
            let leaf = path.leaf();
            let (mut entries, mut most) = (leaf.entries.clone(), leaf.entries.len());
            while let Some(run) = runs.get(next).filter(|run| run.start.0 < path.high) {
                let mut rest = Mapping { start: run.start, blocks: run.blocks, kind: kind(run.block) };
                loop {
                    let piece = rest.part(rest.start, node::max_len(&rest));
                    entries = with_extent(&entries, &piece)
                        .map_err(|what| Corrupt::map(inode.number(), piece.start, what))?;
                    most = most.max(entries.len());
                    if piece.blocks == rest.blocks {
                        break;
                    }
                    rest = rest.part(FileBlock(piece.end()), u64::MAX);
                }
                next += 1;
            }
            let nodes = self.nodes_for(&path, most - leaf.entries.len());
            if nodes > 0 && runs.first() != Some(first) || need > 0 {
                return Ok(None);
            }
            need = nodes;
        }
        Ok(Some(need))
    }

    fn need_max(&self, runs: &[ReservedRun]) -> u64 {
        let per_node = self.core.block_size().bytes() / 24;
        runs.len() as u64 / per_node + 7
    }

    fn insert_credits(&self, _blocks: u64) -> u64 {
        // Every level may split; each new node has a bitmap and a descriptor.
        7 * 3
    }
}

/// The common case of a file that grows: make the extent before `piece` longer in place, if it is the root's last one.
fn extend_last(state: &mut InodeState, piece: &Mapping) -> bool {
    let Ok(header) = node::header_of(&state.block, None) else { return false };
    if header.depth != 0 || header.entries == 0 {
        return false;
    }
    let last = usize::from(header.entries) * ENTRY;
    let extent = node::extent_of(&state.block[last..last + ENTRY]);
    let blocks = extent.blocks + piece.blocks;
    if extent.end() != piece.start.0 || !extent.goes_on_with(piece) || blocks > node::max_len(&extent) {
        return false;
    }
    let longer = Mapping { blocks, ..extent };
    state.block[last..last + ENTRY].copy_from_slice(&node::extent_entry(&longer));
    true
}

/// Store a header with the right count, and the entries; what was after them becomes zeros.
fn write_node(bytes: &mut [u8], header: Header, entries: &[RawEntry]) {
    Header { entries: entries.len() as u16, ..header }.write_into(bytes);
    let area = &mut bytes[ENTRY..ENTRY + usize::from(header.capacity) * ENTRY];
    for (place, entry) in area.chunks_exact_mut(ENTRY).zip(entries) {
        place.copy_from_slice(entry);
    }
    area[entries.len() * ENTRY..].fill(0);
}

/// A leaf's entries with one more extent, merged with its neighbours where they go on.
fn with_extent(entries: &[RawEntry], extent: &Mapping) -> Result<Vec<RawEntry>, &'static str> {
    let place = entries.partition_point(|entry| u64::from(node::key_of(entry)) < extent.start.0);
    let before = place.checked_sub(1).map(|index| node::extent_of(&entries[index]));
    let after = entries.get(place).map(|entry| node::extent_of(entry));
    if before.is_some_and(|before| before.end() > extent.start.0)
        || after.is_some_and(|after| after.start.0 < extent.end())
    {
        return Err("an extent where there should be a hole");
    }
    let joins = |a: &Mapping, b: &Mapping| {
        a.end() == b.start.0 && a.goes_on_with(b) && a.blocks + b.blocks <= node::max_len(a)
    };
    let (mut merged, mut first, mut last) = (*extent, place, place);
    if let Some(before) = before.filter(|before| joins(before, &merged)) {
        merged = Mapping { blocks: before.blocks + merged.blocks, ..before };
        first -= 1;
    }
    if let Some(after) = after.filter(|after| joins(&merged, after)) {
        merged.blocks += after.blocks;
        last += 1;
    }
    let mut result = Vec::with_capacity(entries.len() + 1);
    result.extend_from_slice(&entries[..first]);
    result.push(node::extent_entry(&merged));
    result.extend_from_slice(&entries[last..]);
    Ok(result)
}

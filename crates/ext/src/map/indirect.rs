//! The mapping of ext2 and ext3: twelve direct blocks, then blocks of block numbers, up to three levels.
//!
//! On disk: `i_block` has 15 little-endian numbers of 32 bits: 0 to 11 are data blocks, 12 to 14 the roots of trees of one, two
//! and three levels of index blocks; an index block is an array of such numbers. 0 is a hole, of a block or of a subtree.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::BlockRun;
use crate::base::Core;
use crate::buffer::{BlockKind, Buffer};
use crate::inode::{InodeChange, InodeState};
use crate::layout::{le32, put};
use crate::map::place::Growth;
use crate::map::tree::{Change, MappingTree, RUNS_PER_STEP, RemovalStep, Removed};
use crate::{Corrupt, Error, FileBlock, FsBlock, Inode, InodeNumber, Mapping, MappingKind, Result};

/// Direct blocks in the inode.
pub(crate) const DIRECT: u64 = 12;

/// The way to a file block: the slot in the inode and in each index block below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// Slots from the inode down; the last one holds the data block.
    pub(crate) slots: [u32; 4],
    /// Number of slots, 1 to 4.
    pub(crate) len: usize,
    /// Blocks below one entry of each level.
    pub(crate) spans: [u64; 4],
}

/// Blocks that a file mapped this way can have, as far as the tree goes.
pub(crate) fn max_blocks(pointers: u64) -> u64 {
    DIRECT + pointers + pointers * pointers + pointers * pointers * pointers
}

impl Path {
    /// The way to `at`, with `pointers` numbers in an index block; `None` beyond the tree.
    pub(crate) fn to(at: FileBlock, pointers: u64) -> Option<Self> {
        let mut rest = at.0;
        if rest < DIRECT {
            return Some(Self { slots: [rest as u32, 0, 0, 0], len: 1, spans: [1; 4] });
        }
        rest -= DIRECT;
        let mut span = 1u64;
        for depth in 1..=3usize {
            let below = span.checked_mul(pointers)?;
            if rest < below {
                let mut path = Self { slots: [0; 4], len: depth + 1, spans: [1; 4] };
                path.slots[0] = DIRECT as u32 + depth as u32 - 1;
                path.spans[0] = below;
                let mut unit = span;
                for level in 1..=depth {
                    path.slots[level] = (rest / unit % pointers) as u32;
                    path.spans[level] = unit;
                    unit /= pointers;
                }
                return Some(path);
            }
            rest -= below;
            span = below;
        }
        None
    }
}

/// The trees of indirect blocks of a volume's inodes.
#[derive(Debug)]
pub(crate) struct IndirectTree {
    core: Arc<Core>,
}

impl IndirectTree {
    pub(super) fn new(core: &Arc<Core>) -> Self {
        Self { core: Arc::clone(core) }
    }

    /// Block numbers in an index block.
    pub(crate) fn pointers_per_block(&self) -> u64 {
        self.core.block_size().bytes() / 4
    }

    /// Read the index block of a slot, and those of the next slots as far as they lie after it on the device.
    fn read_siblings_ahead(&self, inode: InodeNumber, parent: &Buffer, slot: u32, first: FsBlock) {
        const AT_ONCE: u64 = 32;
        let bytes = parent.read();
        let slots = (bytes.len() / 4) as u64 - u64::from(slot);
        let follows = |offset: &u64| {
            let block = le32(&bytes, (u64::from(slot) + offset) as usize * 4);
            u64::from(block) == first.0 + offset && self.index_block(inode, FileBlock(0), block).is_ok()
        };
        let count = (0..AT_ONCE.min(slots)).take_while(follows).count() as u64;
        drop(bytes);
        if count > 1 {
            self.core.buffers.read_ahead(first, count, |_| BlockKind::Plain);
        }
    }

    /// An address of an index block, checked.
    pub(crate) fn index_block(&self, inode: InodeNumber, at: FileBlock, block: u32) -> Result<FsBlock> {
        let block = FsBlock(u64::from(block));
        self.core.check_run(inode, at, block, 1)?;
        Ok(block)
    }

    /// Runs of blocks that were cut off, checked.
    fn removed(&self, inode: &Inode, runs: &[BlockRun]) -> Result<Vec<Removed>> {
        let checked = |run: &BlockRun| {
            self.core.check_run(inode.number(), FileBlock(0), run.start, run.blocks)?;
            Ok(Removed { at: 0, run: *run })
        };
        runs.iter().map(checked).collect()
    }

    /// The index block with the slot of `at`; missing ones on the way are made.
    fn leaf_for(
        &self,
        on: &mut InodeChange<'_, '_>,
        path: &Path,
        at: FileBlock,
        near: FsBlock,
    ) -> Result<Arc<Buffer>> {
        let root = path.slots[0] as usize * 4;
        let goal = self.core.index_goal(near, if path.len > 2 { Growth::Large } else { Growth::Some })?;
        let mut buffer = match le32(&on.state.block, root) {
            0 => {
                let made = on.allocate_block(goal, BlockKind::Plain)?;
                put(&mut on.state.block, root, &number_of(on.inode.number(), at, made.block())?);
                made
            }
            block => {
                self.core.buffers.get(self.index_block(on.inode.number(), at, block)?, BlockKind::Plain)?
            }
        };
        for level in 1..path.len - 1 {
            let place = path.slots[level] as usize * 4;
            let child = le32(&buffer.read(), place);
            buffer = if child == 0 {
                let made = on.allocate_block(goal, BlockKind::Plain)?;
                let mut bytes = on.handle.modify(&buffer)?;
                put(&mut bytes, place, &number_of(on.inode.number(), at, made.block())?);
                drop(bytes);
                made
            } else {
                self.core.buffers.get(self.index_block(on.inode.number(), at, child)?, BlockKind::Plain)?
            };
        }
        Ok(buffer)
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
            let buffer = self.core.buffers.get(address, BlockKind::Plain)?;
            block = le32(&buffer.read(), path.slots[level] as usize * 4);
        }
        Ok(())
    }

    /// The mapping around slot `at` of an array of `count` block numbers that begins at file block `base`.
    fn mapping(
        &self,
        inode: InodeNumber,
        base: FileBlock,
        count: u64,
        at: u64,
        entries: impl Fn(u64) -> u32,
    ) -> Result<Mapping> {
        let here = entries(at);
        let belongs = |slot: u64| {
            let entry = u64::from(entries(slot));
            if here == 0 { entry == 0 } else { entry != 0 && entry + at == u64::from(here) + slot }
        };
        let first = (0..at).rev().take_while(|&slot| belongs(slot)).last().unwrap_or(at);
        let last = (at + 1..count).take_while(|&slot| belongs(slot)).last().unwrap_or(at);
        let (start, blocks) = (FileBlock(base.0 + first), last - first + 1);
        if here == 0 {
            return Ok(Mapping { start, blocks, kind: MappingKind::Hole });
        }
        let block = FsBlock(u64::from(entries(first)));
        self.core.check_run(inode, start, block, blocks)?;
        Ok(Mapping { start, blocks, kind: MappingKind::Mapped(block) })
    }
}

impl MappingTree for IndirectTree {
    fn max_blocks(&self) -> u64 {
        max_blocks(self.pointers_per_block()).min(u64::from(u32::MAX))
    }

    fn find(&self, inode: InodeNumber, state: &InodeState, at: FileBlock) -> Result<Mapping> {
        let pointers = self.pointers_per_block();
        let Some(path) = Path::to(at, pointers) else {
            return Ok(Mapping { start: at, blocks: u64::MAX - at.0, kind: MappingKind::Hole });
        };
        if path.len == 1 {
            let entries = |slot: u64| le32(&state.block, slot as usize * 4);
            return self.mapping(inode, FileBlock(0), DIRECT, at.0, entries);
        }
        let mut block = le32(&state.block, path.slots[0] as usize * 4);
        let mut parent: Option<Arc<Buffer>> = None;
        for level in 1..path.len {
            if block == 0 {
                let span = path.spans[level - 1];
                let start = at.0 - position_in(&path, level);
                return Ok(Mapping { start: FileBlock(start), blocks: span, kind: MappingKind::Hole });
            }
            let address = self.index_block(inode, at, block)?;
            if let Some(parent) = parent.take()
                && self.core.buffers.peek(address).is_none()
            {
                self.read_siblings_ahead(inode, &parent, path.slots[level - 1], address);
            }
            let buffer = self.core.buffers.get(address, BlockKind::Plain)?;
            let bytes = buffer.read();
            if level == path.len - 1 {
                let slot = u64::from(path.slots[level]);
                let entries = |slot: u64| le32(&bytes, slot as usize * 4);
                return self.mapping(inode, FileBlock(at.0 - slot), pointers, slot, entries);
            }
            block = le32(&bytes, path.slots[level] as usize * 4);
            drop(bytes);
            parent = Some(buffer);
        }
        unreachable!("the last level returns")
    }

    fn insert(&self, on: &mut InodeChange<'_, '_>, mapping: Mapping) -> Result<()> {
        let MappingKind::Mapped(first) = mapping.kind else {
            return Err(Error::Unsupported("files that are not mapped by extents have no unwritten blocks"));
        };
        let pointers = self.pointers_per_block();
        let mut done = 0;
        while done < mapping.blocks {
            let at = FileBlock(mapping.start.0 + done);
            let too_large =
                Error::FileTooLarge { max_bytes: self.max_blocks() * self.core.block_size().bytes() };
            let path = Path::to(at, pointers).ok_or(too_large)?;
            let start = FsBlock(first.0 + done);
            let slot = path.slots[path.len - 1];
            let slots_left = if path.len == 1 { DIRECT } else { pointers } - u64::from(slot);
            let count = slots_left.min(mapping.blocks - done);
            if path.len == 1 {
                fill_slots(on.inode.number(), at, &mut on.state.block, slot, start, count)?;
            } else {
                let leaf = self.leaf_for(on, &path, at, start)?;
                let mut bytes = on.handle.modify(&leaf)?;
                fill_slots(on.inode.number(), at, &mut bytes, slot, start, count)?;
            }
            done += count;
        }
        Ok(())
    }

    fn convert(
        &self,
        _on: &mut InodeChange<'_, '_>,
        _start: FileBlock,
        _blocks: u64,
        _to: fn(FsBlock) -> MappingKind,
    ) -> Result<()> {
        Err(Error::Unsupported("files that are not mapped by extents have no unwritten blocks"))
    }

    fn remove(&self, on: &mut InodeChange<'_, '_>, at: u64, end: u64) -> Result<RemovalStep> {
        let pointers = self.pointers_per_block();
        let Some(path) = Path::to(FileBlock(at), pointers) else {
            return Ok(RemovalStep { removed: Vec::new(), next: end });
        };
        if path.len == 1 {
            let mut block = on.state.block;
            let cut = cut_slots(&mut block, path.slots[0], DIRECT.min(end));
            on.state.block = block;
            return Ok(RemovalStep {
                removed: self.removed(on.inode, &cut.runs)?,
                next: u64::from(cut.next).min(end),
            });
        }
        // The index blocks from the top down to the one with the slot.
        let mut way: Vec<Arc<Buffer>> = Vec::new();
        for level in 1..path.len {
            let place = path.slots[level - 1] as usize * 4;
            let child = match way.last() {
                Some(parent) => le32(&parent.read(), place),
                None => le32(&on.state.block, place),
            };
            if child == 0 {
                let start = at - position_in(&path, level);
                let next = start.saturating_add(path.spans[level - 1]).min(end);
                return Ok(RemovalStep { removed: Vec::new(), next });
            }
            let address = self.index_block(on.inode.number(), FileBlock(at), child)?;
            way.push(self.core.buffers.get(address, BlockKind::Plain)?);
        }
        let slot = u64::from(path.slots[path.len - 1]);
        let leaf = way.last().expect("at least one level");
        let cut = {
            let mut bytes = on.handle.modify(leaf)?;
            cut_slots(&mut bytes, slot as u32, pointers.min(slot + (end - at)))
        };
        let removed = self.removed(on.inode, &cut.runs)?;
        // Index blocks that became empty go, from the bottom up.
        for level in (1..path.len).rev() {
            let Some(buffer) = way.pop() else { break };
            if buffer.read().iter().any(|byte| *byte != 0) {
                break;
            }
            let place = path.slots[level - 1] as usize * 4;
            match way.last() {
                Some(parent) => put(&mut on.handle.modify(parent)?, place, &[0; 4]),
                None => put(&mut on.state.block, place, &[0; 4]),
            }
            on.free_block(buffer.block())?;
        }
        Ok(RemovalStep { removed, next: (at + (u64::from(cut.next) - slot)).min(end) })
    }

    fn need(&self, inode: &Inode, state: &InodeState, changes: &[Change]) -> Result<u64> {
        let pointers = self.pointers_per_block();
        let too_large =
            || Error::FileTooLarge { max_bytes: self.max_blocks() * self.core.block_size().bytes() };
        // The index blocks on the way to the changes that are missing.
        let mut missing = BTreeSet::new();
        for change in changes {
            let Range { start: mut at, end } = change.range();
            while at < end {
                let path = Path::to(FileBlock(at), pointers).ok_or_else(too_large)?;
                self.note_missing(inode, state, FileBlock(at), &path, &mut missing)?;
                let in_one = if path.len == 1 { DIRECT } else { pointers };
                at += in_one - u64::from(path.slots[path.len - 1]);
            }
        }
        Ok(missing.len() as u64)
    }

    fn need_max(&self, _state: &InodeState, changes: &[Change]) -> u64 {
        // One mapping of the file shares its indirect blocks, wherever its runs are.
        let pointers = self.pointers_per_block();
        let follows = |before: &Change, change: &Change| before.range().end == change.range().start;
        let blocks = |change: &Change| change.range().end - change.range().start;
        let mappings = changes.chunk_by(follows);
        let leaves: u64 =
            mappings.map(|mapping| mapping.iter().map(blocks).sum::<u64>() / pointers + 2).sum();
        leaves + leaves / pointers + 4
    }

    fn insert_credits(&self, blocks: u64) -> u64 {
        (blocks / self.pointers_per_block() + 4) * 3
    }
}

/// Slots that a step cleared.
struct Cut {
    runs: Vec<BlockRun>,
    /// The first slot that was not looked at.
    next: u32,
}

/// Clear the slots from `from` to `end`, but no more mappings than a step may take.
fn cut_slots(slots: &mut [u8], from: u32, end: u64) -> Cut {
    let mut runs: Vec<BlockRun> = Vec::new();
    for slot in from..end as u32 {
        let place = slot as usize * 4;
        let block = u64::from(le32(slots, place));
        if block == 0 {
            continue;
        }
        let full = runs.len() == RUNS_PER_STEP;
        match runs.last_mut() {
            Some(last) if last.start.0 + last.blocks == block => last.blocks += 1,
            _ if full => return Cut { runs, next: slot },
            _ => runs.push(BlockRun { start: FsBlock(block), blocks: 1 }),
        }
        put(slots, place, &[0; 4]);
    }
    Cut { runs, next: end as u32 }
}

/// A block's number as a slot has it. [`Reach`](crate::allocate::Reach) keeps blocks without one from being chosen.
fn number_of(inode: InodeNumber, at: FileBlock, block: FsBlock) -> Result<[u8; 4]> {
    let what = "a block whose number is longer than the 32 bits that a file without extents has for it";
    let number = u32::try_from(block.0).map_err(|_| Corrupt::map(inode, at, what))?;
    Ok(number.to_le_bytes())
}

/// Store consecutive block numbers in slots that are empty.
fn fill_slots(
    inode: InodeNumber,
    at: FileBlock,
    slots: &mut [u8],
    first: u32,
    block: FsBlock,
    count: u64,
) -> Result<()> {
    for step in 0..count {
        let place = (u64::from(first) + step) as usize * 4;
        if le32(slots, place) != 0 {
            return Err(Corrupt::map(inode, FileBlock(at.0 + step), "a block that should be a hole").into());
        }
        put(slots, place, &number_of(inode, FileBlock(at.0 + step), FsBlock(block.0 + step))?);
    }
    Ok(())
}

/// File blocks between the start of the subtree that the entry above `level` spans and the block that the path goes to.
fn position_in(path: &Path, level: usize) -> u64 {
    (level..path.len).map(|below| u64::from(path.slots[below]) * path.spans[below]).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every file block has its own way, and the ways are in the order of the blocks.
    #[test]
    fn paths_count_through_the_tree() {
        let pointers = 4;
        let mut expected = Vec::new();
        expected.extend((0..12).map(|slot| vec![slot]));
        expected.extend((0..4).map(|slot| vec![12, slot]));
        expected.extend((0..16).map(|n| vec![13, n / 4, n % 4]));
        expected.extend((0..64).map(|n| vec![14, n / 16, n / 4 % 4, n % 4]));
        for (block, slots) in expected.iter().enumerate() {
            let path = Path::to(FileBlock(block as u64), pointers).unwrap();
            assert_eq!(&path.slots[..path.len], slots, "block {block}");
            for level in 1..path.len {
                let start = block as u64 - position_in(&path, level);
                assert!(start + path.spans[level - 1] > block as u64);
            }
        }
        assert_eq!(expected.len() as u64, max_blocks(pointers));
        assert_eq!(Path::to(FileBlock(max_blocks(pointers)), pointers), None);
        assert!(Path::to(FileBlock(u64::MAX), 16384).is_none());
    }
}

//! Walks the blocks of an inode, by extents or by block numbers, and checks the mapping on the way.
//!
//! Where it sits: beside the open volume, for readers that use no cache: a check, and the search for the journal.
//!
//! Invariants:
//! 1. Nothing outside of the volume is read or given to the sink.
//! 2. The sink decides whether a node is entered; it refuses nodes seen before, so each block is read at most once.

use crate::layout::extent::{Extent, Header, Index, has_valid_checksum};
use crate::layout::{ChecksumSeed, DiskInode, InodeFlags, is_zero, le32};
use crate::{BlockReader, FsBlock, Result};

/// Block numbers that are looked at together: most of the numbers in a block are 0.
const GROUP_NUMBERS: usize = 32;

/// Receives the result of a walk.
pub trait MapSink {
    /// A block of the map itself; whether to go into it.
    fn node(&mut self, block: FsBlock) -> bool;
    /// A run of data; whether to go on.
    fn data(&mut self, file_block: u64, block: FsBlock, count: u64, unwritten: bool) -> bool;
    /// Something is wrong at a block of the file.
    fn problem(&mut self, file_block: u64, what: String);
}

/// Walks the blocks of an inode. `seed` verifies the nodes of an extent tree.
pub fn walk_map(
    reader: &BlockReader<'_>,
    fields: &DiskInode,
    seed: Option<ChecksumSeed>,
    sink: &mut dyn MapSink,
) -> Result<()> {
    if fields.flags.contains(InodeFlags::EXTENTS) {
        walk_extents(reader, &fields.block, seed, sink)
    } else {
        walk_numbers(reader, &fields.block, sink)
    }
}

/// Walks the extent tree whose root is the 60 bytes `i_block`. `seed` verifies the nodes in blocks.
fn walk_extents(
    reader: &BlockReader<'_>,
    root: &[u8],
    seed: Option<ChecksumSeed>,
    sink: &mut dyn MapSink,
) -> Result<()> {
    let mut walk = ExtentWalk { reader, seed, next: 0, sink, stopped: false };
    match Header::parse(root) {
        Ok(header) => walk.node(root, header, 0, u64::MAX),
        Err(what) => {
            walk.sink.problem(0, what.to_owned());
            Ok(())
        }
    }
}

struct ExtentWalk<'w, 'd> {
    reader: &'w BlockReader<'d>,
    seed: Option<ChecksumSeed>,
    /// First file block not covered yet: extents come in order and do not overlap.
    next: u64,
    sink: &'w mut dyn MapSink,
    stopped: bool,
}

impl ExtentWalk<'_, '_> {
    fn node(&mut self, node: &[u8], header: Header, start: u64, end: u64) -> Result<()> {
        for index in 0..usize::from(header.entries) {
            if self.stopped {
                return Ok(());
            }
            if header.depth == 0 {
                self.leaf_entry(Extent::parse(node, index), end);
            } else {
                let child = Index::parse(node, index);
                let next = if index + 1 < usize::from(header.entries) {
                    Index::parse(node, index + 1).start.0
                } else {
                    end
                };
                if child.start.0 < start.max(self.next) || next <= child.start.0 {
                    self.sink.problem(child.start.0, "an extent index is out of order".to_owned());
                    continue;
                }
                self.child(child, header.depth - 1, next)?;
            }
        }
        Ok(())
    }

    fn leaf_entry(&mut self, extent: Extent, end: u64) {
        let at = extent.start.0;
        if extent.blocks == 0 {
            self.sink.problem(at, "an extent has length 0".to_owned());
        } else if !self.reader.layout().is_data_range(extent.block, u64::from(extent.blocks)) {
            let what = format!(
                "an extent of {} blocks from block {} is outside the volume",
                extent.blocks, extent.block
            );
            self.sink.problem(at, what);
        } else if at < self.next {
            self.sink.problem(at, "an extent overlaps the one before it, or is out of order".to_owned());
        } else if extent.end().0 > end || extent.end().0 > 1 << 32 {
            self.sink.problem(at, "an extent ends after the range of its index entry".to_owned());
        } else {
            self.next = extent.end().0;
            self.stopped = !self.sink.data(at, extent.block, u64::from(extent.blocks), extent.unwritten);
        }
    }

    fn child(&mut self, child: Index, depth: u16, end: u64) -> Result<()> {
        let at = child.start.0;
        if !self.reader.layout().is_data_range(child.block, 1) {
            let what =
                format!("an extent index points to block {}, which is outside the volume", child.block);
            self.sink.problem(at, what);
            return Ok(());
        }
        if !self.sink.node(child.block) {
            return Ok(());
        }
        let node = self.reader.block(child.block)?;
        let header = match Header::parse(&node) {
            Ok(header) => header,
            Err(what) => {
                self.sink.problem(at, format!("block {}: {what}", child.block));
                return Ok(());
            }
        };
        if header.depth != depth {
            let what = format!(
                "block {}: an extent node has depth {}, should be {depth}",
                child.block, header.depth
            );
            self.sink.problem(at, what);
            return Ok(());
        }
        if self.seed.is_some_and(|seed| !has_valid_checksum(&node, seed)) {
            let what = format!("block {}: the checksum of an extent node does not match", child.block);
            self.sink.problem(at, what);
        }
        let first = if header.entries == 0 { at } else { u64::from(le32(&node, 12)) };
        if first != at {
            let what = format!(
                "block {}: the first block of an extent node is not that of its index entry",
                child.block
            );
            self.sink.problem(at, what);
        }
        self.node(&node, header, at, end)
    }
}

/// Walks the 15 block numbers of `i_block` and the blocks of numbers after them.
fn walk_numbers(reader: &BlockReader<'_>, root: &[u8], sink: &mut dyn MapSink) -> Result<()> {
    let per_block = reader.layout().block_size.bytes() / 4;
    let mut walk = NumberWalk { reader, per_block, run: None, sink, stopped: false };
    for index in 0..12 {
        walk.data(index as u64, le32(root, index * 4));
    }
    let mut start = 12;
    for level in 1..=3_u32 {
        walk.tree(le32(root, 44 + level as usize * 4), level, start)?;
        start += per_block.pow(level);
    }
    walk.end_run();
    Ok(())
}

struct NumberWalk<'w, 'd> {
    reader: &'w BlockReader<'d>,
    per_block: u64,
    /// Data blocks that follow each other: file block, block, count.
    run: Option<(u64, u64, u64)>,
    sink: &'w mut dyn MapSink,
    stopped: bool,
}

impl NumberWalk<'_, '_> {
    fn end_run(&mut self) {
        if let Some((file_block, block, count)) = self.run.take()
            && !self.stopped
        {
            self.stopped = !self.sink.data(file_block, FsBlock(block), count, false);
        }
    }

    fn data(&mut self, file_block: u64, number: u32) {
        if number == 0 {
            return;
        }
        if !self.reader.layout().is_data_range(FsBlock(u64::from(number)), 1) {
            self.sink.problem(file_block, format!("block {number} is outside the volume"));
            return;
        }
        match &mut self.run {
            Some((start, block, count))
                if *start + *count == file_block && *block + *count == u64::from(number) =>
            {
                *count += 1;
            }
            _ => {
                self.end_run();
                self.run = Some((file_block, u64::from(number), 1));
            }
        }
    }

    fn tree(&mut self, number: u32, level: u32, start: u64) -> Result<()> {
        if number == 0 || self.stopped {
            return Ok(());
        }
        let block = FsBlock(u64::from(number));
        if !self.reader.layout().is_data_range(block, 1) {
            self.sink.problem(start, format!("indirect block {number} is outside the volume"));
            return Ok(());
        }
        if !self.sink.node(block) {
            return Ok(());
        }
        let node = self.reader.block(block)?;
        let step = self.per_block.pow(level - 1);
        for (index, group) in (0..).step_by(GROUP_NUMBERS).zip(node.chunks(GROUP_NUMBERS * 4)) {
            if is_zero(group) {
                continue;
            }
            for (index, number) in (index..).zip(group.chunks_exact(4)) {
                let (below, at) = (le32(number, 0), start + index * step);
                if level == 1 {
                    self.data(at, below);
                } else {
                    self.tree(below, level - 1, at)?;
                }
                if self.stopped {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

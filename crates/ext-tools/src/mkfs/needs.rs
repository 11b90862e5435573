//! Space that a tree needs on a volume, before the volume is made.
//!
//! Mappings, attributes and indexes of directories depend on how the tree is written. The lower bound does not count them. The upper bound
//! counts the most that they can take if nothing else is written in the meantime.

use std::ops::Range;

use diorite_ext_format::Incompat;
use diorite_ext_format::directory::entry_size;

use super::MkfsReport;

/// Blocks that are contiguous on a volume that is filled in order, unless the volume's own structures are between.
const BLOCKS_OF_A_PIECE: u64 = 1024;
/// The longest name.
const NAME_BYTES_MAX: usize = 255;

/// Bounds of the space for a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Files, directories and everything else, hard links counted once; the directory at the top is there already.
    pub inodes: u64,
    /// Space for content and names at least.
    pub bytes: u64,
    /// Inodes at most: attributes can take some.
    pub inodes_max: u64,
    /// Space at most.
    pub bytes_max: u64,
}

impl MkfsReport {
    /// Whether a tree can fit.
    pub fn holds(&self, needs: Needs) -> bool {
        needs.inodes <= u64::from(self.superblock.free_inodes_count()) && needs.bytes <= self.free_bytes()
    }

    /// Bytes of the free blocks.
    pub fn free_bytes(&self) -> u64 {
        self.superblock.free_blocks_count() * self.layout.block_size.bytes()
    }

    /// Bytes that a file of `size` bytes takes, whose data is in the ascending ranges `data`; the rest are holes.
    pub fn content_bytes(&self, size: u64, data: impl IntoIterator<Item = Range<u64>>) -> u64 {
        if size < self.inline_below() {
            return 0;
        }
        let cluster = self.layout.cluster_bytes();
        // Clusters before this one were counted.
        let mut counted = 0;
        let clusters = data.into_iter().map(|range| {
            let first = (range.start / cluster).max(counted);
            counted = range.end.div_ceil(cluster).max(first);
            counted - first
        });
        clusters.sum::<u64>() * cluster
    }

    /// Bytes that a directory takes, whose names have these lengths.
    pub fn directory_bytes(&self, name_lengths: impl IntoIterator<Item = usize>) -> u64 {
        let entries = name_lengths.into_iter().map(|len| entry_size(len) as u64).sum::<u64>();
        if entries < self.inline_below() { 0 } else { entries.next_multiple_of(self.layout.cluster_bytes()) }
    }

    /// Most bytes that a file with `ranges` data ranges takes that fill `bytes` bytes of clusters.
    pub fn content_bytes_max(&self, bytes: u64, ranges: u64) -> u64 {
        let blocks = bytes / self.layout.block_size.bytes();
        let in_pieces = ranges + blocks / BLOCKS_OF_A_PIECE;
        bytes + self.mapping_blocks_max(blocks, in_pieces) * self.layout.cluster_bytes()
    }

    /// Most bytes that a directory takes, whose names have these lengths.
    pub fn directory_bytes_max(&self, name_lengths: impl IntoIterator<Item = usize>) -> u64 {
        let block = self.layout.block_size.bytes();
        let entries = name_lengths.into_iter().map(|len| entry_size(len) as u64).sum::<u64>();
        let one_name = entry_size(NAME_BYTES_MAX) as u64;
        let blocks = if entries + one_name + 64 <= block {
            1
        } else {
            // A block that is split is half full; an index block has 8 bytes for each block below it.
            let leaves = (2 * entries).div_ceil(block - one_name - 32) + 1;
            leaves + leaves.div_ceil(block / 16) + 2
        };
        let clusters = blocks.div_ceil(u64::from(self.layout.blocks_per_cluster));
        (clusters + self.mapping_blocks_max(blocks, blocks)) * self.layout.cluster_bytes()
    }

    /// Most bytes, and most inodes, that extended attributes with these lengths of names and values take outside of their inode.
    pub fn attribute_bytes_max(&self, attributes: impl IntoIterator<Item = (usize, usize)>) -> (u64, u64) {
        const GOOD_OLD_BYTES: u64 = 128 + 32 + 4;
        let size = |(name, value): &(usize, usize)| (16 + name + value).next_multiple_of(4) as u64 + 4;
        let attributes: Vec<(usize, usize)> = attributes.into_iter().collect();
        let all: u64 = attributes.iter().map(size).sum();
        let (cluster, block) = (self.layout.cluster_bytes(), self.layout.block_size.bytes());
        if all <= u64::from(self.layout.inode_size).saturating_sub(GOOD_OLD_BYTES) {
            return (0, 0);
        }
        if all <= block / 2 || !self.superblock.features().has_incompat(Incompat::EA_INODE) {
            return (cluster, 0);
        }
        let values = attributes.iter().map(|(_, value)| (*value as u64).div_ceil(cluster) + 1);
        ((1 + values.sum::<u64>()) * cluster, attributes.len() as u64)
    }

    /// Most blocks of the mapping of `blocks` blocks in `pieces` contiguous pieces.
    fn mapping_blocks_max(&self, blocks: u64, pieces: u64) -> u64 {
        let block = self.layout.block_size.bytes();
        let of_nodes = |entries: u64, most: u64| entries.div_ceil(most) + entries.div_ceil(most * most) + 2;
        if self.superblock.features().has_incompat(Incompat::EXTENTS) {
            // Of a node that is split, half is left.
            if pieces < 4 { 0 } else { of_nodes(pieces, (block - 16) / 24) }
        } else if blocks <= 12 && pieces <= 1 {
            0
        } else {
            of_nodes(blocks, block / 4) + 3 * pieces
        }
    }

    /// Files and directories below this size may lie in their inodes.
    fn inline_below(&self) -> u64 {
        let has_inline_data = self.superblock.features().has_incompat(Incompat::INLINE_DATA);
        if has_inline_data { u64::from(self.layout.inode_size) } else { 0 }
    }
}

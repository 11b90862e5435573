//! Space that a tree needs on a volume, before the volume is made.
//!
//! This is a lower bound: mappings, attributes and indexes of directories depend on how the tree is written, and are not counted.

use std::ops::Range;

use diorite_ext_format::Incompat;
use diorite_ext_format::directory::entry_size;

use super::MkfsReport;

/// Lower bound of the space for a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Files, directories and everything else, hard links counted once; the directory at the top is there already.
    pub inodes: u64,
    /// Space for content and names.
    pub bytes: u64,
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

    /// Files and directories below this size may lie in their inodes.
    fn inline_below(&self) -> u64 {
        let has_inline_data = self.superblock.features().has_incompat(Incompat::INLINE_DATA);
        if has_inline_data { u64::from(self.layout.inode_size) } else { 0 }
    }
}

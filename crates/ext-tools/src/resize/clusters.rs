//! A bit for each cluster of a volume, or of its first groups.

use std::ops::Range;

use diorite_ext_format::{FsBlock, GroupDescriptor, GroupNumber, Layout, Superblock};

use crate::writer::set_bits;

/// A set bit is in use. The groups follow each other, as on the disk.
#[derive(Clone, Debug)]
pub(super) struct Clusters {
    bytes: Vec<u8>,
    layout: Layout,
}

impl Clusters {
    /// No cluster of a volume.
    pub(super) fn none(layout: &Layout) -> Self {
        let bytes = layout.group_count as usize * Self::group_bytes(layout);
        Self { bytes: vec![0; bytes], layout: *layout }
    }

    /// The clusters that hold the volume's own blocks.
    pub(super) fn own(layout: &Layout, superblock: &Superblock, descriptors: &[GroupDescriptor]) -> Self {
        let mut own = Self::none(layout);
        for run in own_blocks(layout, superblock, descriptors) {
            own.set(run);
        }
        own
    }

    /// Bytes of a group: a group has a multiple of 8 clusters.
    fn group_bytes(layout: &Layout) -> usize {
        layout.clusters_per_group as usize / 8
    }

    /// The number of a block's cluster.
    fn cluster(&self, block: u64) -> u64 {
        block.saturating_sub(self.layout.first_data_block) / u64::from(self.layout.blocks_per_cluster)
    }

    /// Set the clusters that a run of blocks touches, as far as there are groups.
    fn set(&mut self, run: Range<u64>) {
        if run.is_empty() {
            return;
        }
        let (start, last) = (self.cluster(run.start), self.cluster(run.end - 1));
        let end = (last as usize + 1).min(self.bytes.len() * 8);
        set_bits(&mut self.bytes, start as usize, end);
    }

    /// Set the clusters of a group from its bitmap on the disk.
    pub(super) fn set_group(&mut self, group: GroupNumber, bitmap: &[u8]) {
        let len = Self::group_bytes(&self.layout);
        let at = group.0 as usize * len;
        self.bytes[at..at + len].copy_from_slice(&bitmap[..len]);
        // Bits after the end are set on the disk.
        for bit in self.layout.clusters_in(group) as usize..len * 8 {
            self.bytes[at + bit / 8] &= !(1 << (bit % 8));
        }
    }

    /// The clusters of a group as a bitmap of `len` bytes: bits after its end are set.
    pub(super) fn bitmap_of(&self, group: GroupNumber, len: usize) -> Vec<u8> {
        let of_group = Self::group_bytes(&self.layout);
        let at = group.0 as usize * of_group;
        let mut bitmap = vec![0; len];
        bitmap[..of_group].copy_from_slice(&self.bytes[at..at + of_group]);
        set_bits(&mut bitmap, self.layout.clusters_in(group) as usize, len * 8);
        bitmap
    }

    /// Number of set bits.
    pub(super) fn count(&self) -> u64 {
        self.bytes.iter().map(|byte| u64::from(byte.count_ones())).sum()
    }

    /// These clusters without others of the same volume.
    pub(super) fn without(&self, other: &Self) -> Self {
        let mut left = self.clone();
        left.bytes.iter_mut().zip(&other.bytes).for_each(|(byte, other)| *byte &= !other);
        left
    }

    /// These clusters and others of the same volume or of its first groups, as those of `layout`.
    pub(super) fn with(&self, other: &Self, layout: &Layout) -> Self {
        let mut all = Self::none(layout);
        let own = self.bytes.iter().zip(other.bytes.iter());
        all.bytes.iter_mut().zip(own).for_each(|(byte, (one, other))| *byte = one | other);
        all
    }

    /// The block after the last set cluster; the first block of the volume if none is set.
    pub(super) fn end(&self) -> u64 {
        let last = self.bytes.iter().rposition(|byte| *byte != 0);
        let clusters = last.map_or(0, |at| at as u64 * 8 + 8 - u64::from(self.bytes[at].leading_zeros()));
        self.layout.first_data_block + clusters * u64::from(self.layout.blocks_per_cluster)
    }
}

/// The runs of blocks that belong to the volume itself.
fn own_blocks(layout: &Layout, superblock: &Superblock, descriptors: &[GroupDescriptor]) -> Vec<Range<u64>> {
    let run = |start: FsBlock, blocks: u64| start.0..start.0 + blocks;
    let of_group = |(group, descriptor): (GroupNumber, &GroupDescriptor)| {
        [
            run(layout.first_block(group), u64::from(layout.overhead_in(group))),
            run(descriptor.block_bitmap, 1),
            run(descriptor.inode_bitmap, 1),
            run(descriptor.inode_table, u64::from(layout.inode_table_blocks())),
        ]
    };
    let groups = layout.groups().zip(descriptors).flat_map(of_group);
    groups.chain(superblock.mmp_block().map(|block| run(block, 1))).collect()
}

/// The block after the last one that belongs to the volume itself.
pub(super) fn own_end(layout: &Layout, superblock: &Superblock, descriptors: &[GroupDescriptor]) -> u64 {
    let ends = own_blocks(layout, superblock, descriptors).into_iter().map(|run| run.end);
    ends.max().unwrap_or(layout.first_data_block)
}

//! The blocks of the resize inode: space after the group descriptors, for the descriptors of more groups.
//!
//! On disk: the double indirect block of inode 7 names the reserved blocks of group 0, at the place that each has in the table of
//! descriptors. Each of them is an indirect block that names its copies in the groups with a backup.

use diorite_ext_format::{FsBlock, Layout, put};

use crate::heads::backup_groups;

/// Byte of the double indirect block's number in the mapping of an inode.
pub(crate) const DOUBLE_INDIRECT: usize = 13 * 4;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct GrowthBlocks {
    /// Content of the double indirect block.
    pub(crate) root: Vec<u8>,
    /// The reserved blocks of group 0, with their content.
    pub(crate) blocks: Vec<(FsBlock, Vec<u8>)>,
    /// Their copies in other groups.
    pub(crate) copies: Vec<FsBlock>,
    /// Size of the inode.
    pub(crate) size_bytes: u64,
    /// Sectors of the inode.
    pub(crate) sectors: u64,
}

impl GrowthBlocks {
    /// Those of a volume.
    pub(crate) fn of(layout: &Layout) -> Self {
        let block_bytes = layout.block_size.bytes() as usize;
        let per_block = block_bytes / 4;
        let backups = backup_groups(layout);
        let (mut root, mut blocks, mut copies) = (vec![0; block_bytes], Vec::new(), Vec::new());
        let first = layout.superblock_block().0 + 1 + u64::from(layout.descriptor_blocks());
        for index in 0..u32::from(layout.reserved_gdt_blocks) {
            let block = first + u64::from(index);
            let slot = (layout.descriptor_blocks() + index) as usize % per_block;
            put(&mut root, slot * 4, &(block as u32).to_le_bytes());
            let mut bytes = vec![0; block_bytes];
            for (slot, group) in backups.iter().enumerate() {
                let copy = block + u64::from(group.0) * u64::from(layout.blocks_per_group);
                put(&mut bytes, slot * 4, &(copy as u32).to_le_bytes());
                copies.push(FsBlock(copy));
            }
            blocks.push((FsBlock(block), bytes));
        }
        let addressed = (per_block * per_block + per_block + 12) as u64;
        let all = 1 + (blocks.len() + copies.len()) as u64;
        Self {
            root,
            blocks,
            copies,
            size_bytes: addressed * layout.block_size.bytes(),
            // As e2fsprogs: each of these blocks counts as a cluster, though they share some.
            sectors: all * u64::from(layout.blocks_per_cluster) * (layout.block_size.bytes() / 512),
        }
    }
}

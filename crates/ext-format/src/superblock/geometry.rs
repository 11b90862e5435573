//! The places of groups, their superblock backups and descriptors, and inodes, computed from a superblock's numbers.

use zerocopy::byteorder::little_endian::U32;

use super::{SUPERBLOCK_OFFSET, Superblock};
use crate::{BlockSize, Corrupt, FsBlock, GroupNumber, InodeNumber, Result};
use crate::{Compat, Incompat, RoCompat};

/// The numbers of a superblock that say where things are; small and copied freely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Block size.
    pub block_size: BlockSize,
    /// Blocks of the volume.
    pub blocks_count: u64,
    /// The start of group 0.
    pub first_data_block: u64,
    /// Blocks of every group but the last.
    pub blocks_per_group: u32,
    /// Blocks of an allocation unit.
    pub blocks_per_cluster: u32,
    /// Bits of a block bitmap.
    pub clusters_per_group: u32,
    /// Inodes of a group.
    pub inodes_per_group: u32,
    /// Bytes of an inode.
    pub inode_size: u16,
    /// Inodes of the volume.
    pub inodes_count: u32,
    /// Groups.
    pub group_count: u32,
    /// Bytes of a descriptor.
    pub desc_size: u16,
    /// Blocks kept for the growth of the descriptors.
    pub reserved_gdt_blocks: u16,
    /// The groups with backups.
    pub backups: BackupRule,
    /// With `meta_bg`: the first meta group.
    pub first_meta_group: Option<u32>,
    /// Groups whose bitmaps and tables are packed together.
    pub groups_per_flex: u32,
}

/// The groups with a copy of the superblock and of the descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupRule {
    /// All.
    Every,
    /// 0, 1, and powers of 3, 5 and 7.
    Sparse,
    /// 0 and these, unless 0.
    Named([u32; 2]),
}

/// The place of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeLocation {
    /// Its group.
    pub group: GroupNumber,
    /// Its bit in the group's inode bitmap.
    pub index: u32,
    /// Its block in the group's inode table.
    pub table_block: u32,
    /// Its first byte in that block.
    pub offset: u32,
}

/// Whether a group has a backup of the superblock with the feature `sparse_super`.
pub fn is_sparse_backup(group: u64) -> bool {
    let is_power_of = |base: u64| {
        let powers = std::iter::successors(Some(base), |power| power.checked_mul(base));
        powers.take_while(|power| *power <= group).last() == Some(group)
    };
    group <= 1 || [3, 5, 7].into_iter().any(is_power_of)
}

impl Layout {
    /// The layout of a volume.
    pub fn new(superblock: &Superblock) -> Self {
        let (raw, features) = (superblock.raw(), superblock.features());
        let block_size = superblock.block_size();
        let (first_data_block, blocks_count) = (raw.first_data_block.get().into(), superblock.blocks_count());
        let has_clusters = features.has_ro_compat(RoCompat::BIGALLOC);
        let cluster_shift = raw.log_cluster_size.get().saturating_sub(raw.log_block_size.get()).min(20);
        let blocks_per_group = raw.blocks_per_group.get();
        let groups =
            blocks_count.saturating_sub(first_data_block).div_ceil(u64::from(blocks_per_group.max(1)));
        let log_flex = u32::from(raw.log_groups_per_flex).min(31);
        Self {
            block_size,
            blocks_count,
            first_data_block,
            blocks_per_group,
            blocks_per_cluster: if has_clusters { 1 << cluster_shift } else { 1 },
            clusters_per_group: if has_clusters { raw.clusters_per_group.get() } else { blocks_per_group },
            inodes_per_group: raw.inodes_per_group.get(),
            inode_size: superblock.inode_size(),
            inodes_count: superblock.inodes_count(),
            group_count: u32::try_from(groups).unwrap_or(u32::MAX),
            desc_size: superblock.desc_size(),
            reserved_gdt_blocks: raw.reserved_gdt_blocks.get(),
            backups: if features.has_compat(Compat::SPARSE_SUPER2) {
                BackupRule::Named(raw.backup_bgs.map(U32::get))
            } else if features.has_ro_compat(RoCompat::SPARSE_SUPER) {
                BackupRule::Sparse
            } else {
                BackupRule::Every
            },
            first_meta_group: features.has_incompat(Incompat::META_BG).then(|| raw.first_meta_bg.get()),
            groups_per_flex: if features.has_incompat(Incompat::FLEX_BG) { 1 << log_flex } else { 1 },
        }
    }

    /// All groups.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = GroupNumber> + use<> {
        (0..self.group_count).map(GroupNumber)
    }

    /// First block of a group.
    pub fn first_block(&self, group: GroupNumber) -> FsBlock {
        FsBlock(self.first_data_block + u64::from(group.0) * u64::from(self.blocks_per_group))
    }

    /// Blocks of a group: fewer in the last one.
    pub fn blocks_in(&self, group: GroupNumber) -> u32 {
        let rest = self.blocks_count.saturating_sub(self.first_block(group).0);
        rest.min(u64::from(self.blocks_per_group)) as u32
    }

    /// Clusters of a group: fewer in the last one.
    pub fn clusters_in(&self, group: GroupNumber) -> u32 {
        self.blocks_in(group).div_ceil(self.blocks_per_cluster)
    }

    /// The group of a block; `None` if it is outside the volume or before the first group.
    pub fn group_of(&self, block: FsBlock) -> Option<GroupNumber> {
        let from_first = block.0.checked_sub(self.first_data_block)?;
        (block.0 < self.blocks_count)
            .then(|| GroupNumber((from_first / u64::from(self.blocks_per_group)) as u32))
    }

    /// The bit of a block in its group's bitmap.
    pub fn bit_of(&self, block: FsBlock) -> u32 {
        let in_group = (block.0 - self.first_data_block) % u64::from(self.blocks_per_group);
        in_group as u32 / self.blocks_per_cluster
    }

    /// First block of the cluster that holds a block.
    pub fn cluster_of(&self, block: FsBlock) -> FsBlock {
        let in_volume = block.0.saturating_sub(self.first_data_block);
        FsBlock(block.0 - in_volume % u64::from(self.blocks_per_cluster))
    }

    /// Bytes of a cluster.
    pub fn cluster_bytes(&self) -> u64 {
        self.block_size.bytes() * u64::from(self.blocks_per_cluster)
    }

    /// Clusters that `blocks` need, rounded up.
    pub fn clusters_for(&self, blocks: u64) -> u64 {
        blocks.div_ceil(u64::from(self.blocks_per_cluster))
    }

    /// The block that holds the first superblock.
    pub fn superblock_block(&self) -> FsBlock {
        FsBlock(SUPERBLOCK_OFFSET / self.block_size.bytes())
    }

    /// The offset of the superblock in that block.
    pub fn superblock_start(&self) -> usize {
        (SUPERBLOCK_OFFSET % self.block_size.bytes()) as usize
    }

    /// With clusters and blocks of 1 KiB the first group begins with the boot sector's block, which belongs to no group.
    fn boot_blocks(&self, group: GroupNumber) -> u32 {
        if group.0 == 0 { (self.superblock_block().0 - self.first_data_block) as u32 } else { 0 }
    }

    /// Whether `[block, block + blocks)` can hold a file's data: on the volume and after the first superblock.
    pub fn is_data_range(&self, block: FsBlock, blocks: u64) -> bool {
        block.0 > self.first_data_block
            && block.0.checked_add(blocks).is_some_and(|end| end <= self.blocks_count)
    }

    /// First blocks of the groups that have a copy of the superblock.
    pub fn superblock_backups(&self) -> Vec<u64> {
        let groups = self.groups().skip(1).filter(|group| self.has_superblock(*group));
        groups.map(|group| self.first_block(group).0).collect()
    }

    /// Whether a group has a copy of the superblock.
    pub fn has_superblock(&self, group: GroupNumber) -> bool {
        group.0 == 0
            || match self.backups {
                BackupRule::Every => true,
                BackupRule::Sparse => is_sparse_backup(group.0.into()),
                BackupRule::Named(groups) => groups.contains(&group.0),
            }
    }

    /// Descriptors in a block.
    pub fn descriptors_per_block(&self) -> u32 {
        (self.block_size.bytes() / u64::from(self.desc_size)) as u32
    }

    /// Blocks of the table of descriptors.
    pub fn descriptor_blocks(&self) -> u32 {
        self.group_count.div_ceil(self.descriptors_per_block())
    }

    /// Descriptor blocks that lie together after each superblock: all, or those before the first meta group.
    pub fn plain_descriptor_blocks(&self) -> u32 {
        let all = self.descriptor_blocks();
        self.first_meta_group.map_or(all, |first| first.min(all))
    }

    /// The block of descriptor block `index` (primary copy).
    pub fn descriptor_block(&self, index: u32) -> FsBlock {
        if index < self.plain_descriptor_blocks() {
            return FsBlock(self.superblock_block().0 + 1 + u64::from(index));
        }
        let group = GroupNumber(index * self.descriptors_per_block());
        let before = self.boot_blocks(group) + u32::from(self.has_superblock(group));
        FsBlock(self.first_block(group).0 + u64::from(before))
    }

    /// Block and byte of a group's descriptor (primary copy).
    pub fn descriptor_place(&self, group: GroupNumber) -> (FsBlock, u32) {
        let per_block = self.descriptors_per_block();
        let block = self.descriptor_block(group.0 / per_block);
        (block, group.0 % per_block * u32::from(self.desc_size))
    }

    /// Descriptor blocks in a group (copies count, growth blocks do not).
    pub fn descriptor_blocks_in(&self, group: GroupNumber) -> u32 {
        let meta_group = group.0 / self.descriptors_per_block();
        match self.first_meta_group {
            Some(first) if meta_group >= first => {
                let place = group.0 % self.descriptors_per_block();
                u32::from(place == 0 || place == 1 || place == self.descriptors_per_block() - 1)
            }
            _ if self.has_superblock(group) => self.plain_descriptor_blocks(),
            _ => 0,
        }
    }

    /// Blocks at the start of a group for superblock, descriptors and their growth.
    pub fn overhead_in(&self, group: GroupNumber) -> u32 {
        let superblock = self.has_superblock(group);
        let meta_group = group.0 / self.descriptors_per_block();
        let plain = self.first_meta_group.is_none_or(|first| meta_group < first);
        let growth = if superblock && plain { u32::from(self.reserved_gdt_blocks) } else { 0 };
        self.boot_blocks(group) + u32::from(superblock) + self.descriptor_blocks_in(group) + growth
    }

    /// Blocks of a group's inode table.
    pub fn inode_table_blocks(&self) -> u32 {
        (u64::from(self.inodes_per_group) * u64::from(self.inode_size)).div_ceil(self.block_size.bytes())
            as u32
    }

    /// The place of an inode; an error for a number that no inode has.
    ///
    /// # Errors
    /// `Corrupt`, with the number.
    pub fn locate_inode(&self, inode: InodeNumber) -> Result<InodeLocation> {
        if inode.0 == 0 || inode.0 > self.inodes_count {
            return Err(Corrupt::Inode { inode, what: "there is no such inode" }.into());
        }
        let index = (inode.0 - 1) % self.inodes_per_group;
        let byte = u64::from(index) * u64::from(self.inode_size);
        Ok(InodeLocation {
            group: GroupNumber((inode.0 - 1) / self.inodes_per_group),
            index,
            table_block: (byte / self.block_size.bytes()) as u32,
            offset: (byte % self.block_size.bytes()) as u32,
        })
    }

    /// The inode of a bit in a group's inode bitmap.
    pub fn inode_at(&self, group: GroupNumber, index: u32) -> InodeNumber {
        InodeNumber(group.0 * self.inodes_per_group + index + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout {
            block_size: BlockSize::new(1024).unwrap(),
            blocks_count: 8192 * 400 + 100,
            first_data_block: 1,
            blocks_per_group: 8192,
            blocks_per_cluster: 1,
            clusters_per_group: 8192,
            inodes_per_group: 2048,
            inode_size: 256,
            inodes_count: 2048 * 401,
            group_count: 401,
            desc_size: 32,
            reserved_gdt_blocks: 0,
            backups: BackupRule::Sparse,
            first_meta_group: None,
            groups_per_flex: 1,
        }
    }

    #[test]
    fn sparse_backups_are_in_0_1_and_powers_of_3_5_and_7() {
        let layout = layout();
        let with: Vec<u32> =
            layout.groups().filter(|group| layout.has_superblock(*group)).map(|group| group.0).collect();
        assert_eq!(with, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125, 243, 343]);
    }

    #[test]
    fn blocks_belong_to_one_group_and_one_bit() {
        let layout = layout();
        assert_eq!(layout.group_of(FsBlock(0)), None);
        assert_eq!(layout.group_of(FsBlock(layout.blocks_count)), None);
        for group in [0, 1, 399, 400].map(GroupNumber) {
            let (first, count) = (layout.first_block(group), layout.blocks_in(group));
            let last = FsBlock(first.0 + u64::from(count) - 1);
            assert_eq!((layout.group_of(first), layout.bit_of(first)), (Some(group), 0));
            assert_eq!((layout.group_of(last), layout.bit_of(last)), (Some(group), count - 1));
        }
        assert_eq!(layout.blocks_in(GroupNumber(400)), 99);
    }

    #[test]
    fn inodes_are_found_where_their_number_says() {
        let layout = layout();
        for number in [0, layout.inodes_count + 1] {
            assert!(layout.locate_inode(InodeNumber(number)).is_err());
        }
        for number in [1, 2, 2048, 2049, layout.inodes_count].map(InodeNumber) {
            let place = layout.locate_inode(number).unwrap();
            assert_eq!(layout.inode_at(place.group, place.index), number);
            assert!(place.table_block < layout.inode_table_blocks() && place.offset + 256 <= 1024);
        }
    }

    #[test]
    fn meta_groups_keep_their_descriptors_in_first_second_and_last_group() {
        let layout = Layout { first_meta_group: Some(0), ..layout() };
        let with: Vec<u32> = layout
            .groups()
            .filter(|group| layout.descriptor_blocks_in(*group) > 0)
            .map(|group| group.0)
            .collect();
        assert_eq!(with[..6], [0, 1, 31, 32, 33, 63]);
        assert_eq!(layout.descriptor_block(0), FsBlock(2), "after the superblock");
        assert_eq!(layout.descriptor_block(1), layout.first_block(GroupNumber(32)), "no superblock there");
    }
}

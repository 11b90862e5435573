//! Validation of a superblock before its numbers are used: the invariants of [`Superblock`], one field named
//! for each that does not hold.
//!
//! Order: sizes, then groups (which need the sizes), then descriptors and inodes (which need the groups). A step uses no number
//! that an earlier one has not checked.

use super::{Layout, Superblock, bad};
use crate::{Compat, Incompat, RoCompat};
use crate::{Corrupt, FsBlock, Result};

/// The last hash of names that can be the default: TEA of unsigned characters.
const HASH_VERSION_MAX: u8 = 5;

impl Superblock {
    pub(super) fn validate_checksum(&self) -> Result<()> {
        if !self.features.metadata_csum() {
            return Ok(());
        }
        if self.raw.checksum_type != 1 {
            return bad("s_checksum_type", self.raw.checksum_type, "the only known one is 1 (CRC-32C)");
        }
        if self.raw.checksum.get() != self.right_checksum() {
            return Err(Corrupt::Checksum {
                block: FsBlock(self.raw.first_data_block.get().into()),
                what: "superblock",
            }
            .into());
        }
        Ok(())
    }

    pub(super) fn validate_sizes(&self) -> Result<()> {
        let (raw, features) = (&self.raw, self.features);
        let (cluster, block) = (raw.log_cluster_size.get(), raw.log_block_size.get());
        if features.has_ro_compat(RoCompat::BIGALLOC) {
            if cluster < block || cluster > 20 {
                return bad("s_log_cluster_size", cluster, "a cluster is at least a block and at most 1 GiB");
            }
        } else if cluster != block {
            return bad("s_log_cluster_size", cluster, "without bigalloc it is s_log_block_size");
        }
        let layout = Layout::new(self);
        let per_cluster = u64::from(layout.blocks_per_cluster);
        let bits = self.block_size.bytes() * 8;
        let (blocks, clusters) = (u64::from(layout.blocks_per_group), u64::from(layout.clusters_per_group));
        if blocks < 256 || clusters > bits || clusters * per_cluster != blocks || !blocks.is_multiple_of(8) {
            return bad(
                "s_blocks_per_group",
                blocks,
                "it must be 256 or more, a multiple of 8, and fit in one bitmap block",
            );
        }
        if !features.has_ro_compat(RoCompat::BIGALLOC) && raw.clusters_per_group != raw.blocks_per_group {
            let clusters = raw.clusters_per_group.get();
            return bad("s_clusters_per_group", clusters, "without bigalloc it is s_blocks_per_group");
        }
        let first = u64::from(raw.first_data_block.get());
        let want = u64::from(self.block_size.bytes() == 1024 && !features.has_ro_compat(RoCompat::BIGALLOC));
        if first != want {
            let why = "it is 1 with blocks of 1 KiB and without bigalloc, and 0 otherwise";
            return bad("s_first_data_block", first, why);
        }
        if self.blocks_count() <= first + 1 {
            return bad("s_blocks_count", self.blocks_count(), "there is nothing after the superblock");
        }
        let most = if features.has_incompat(Incompat::SIXTY_FOUR_BIT) { 1 << 48 } else { 1 << 32 };
        if self.blocks_count() > most || self.blocks_count() > (u64::MAX >> 1) / self.block_size.bytes() {
            return bad("s_blocks_count", self.blocks_count(), "the format cannot address that many");
        }
        Ok(())
    }

    pub(super) fn validate_groups(&self) -> Result<()> {
        let layout = Layout::new(self);
        let groups = layout.group_count;
        if groups == u32::MAX {
            return bad("s_blocks_count", self.blocks_count(), "that makes too many groups");
        }
        let inode_size = u64::from(self.inode_size());
        let block = self.block_size.bytes();
        if !inode_size.is_power_of_two() || inode_size < 128 || inode_size > block {
            return bad("s_inode_size", inode_size, "it must be a power of two from 128 to the block size");
        }
        let per_group = u64::from(layout.inodes_per_group);
        if per_group == 0 || per_group > block * 8 || !per_group.is_multiple_of(8) {
            return bad(
                "s_inodes_per_group",
                per_group,
                "it must be a multiple of 8 that fits in one bitmap block",
            );
        }
        if !per_group.is_multiple_of(block / inode_size) && per_group < block / inode_size {
            return bad("s_inodes_per_group", per_group, "they must fill a block of the inode table");
        }
        if layout.inode_table_blocks() >= layout.blocks_per_group {
            return bad("s_inodes_per_group", per_group, "the inode table is larger than a group");
        }
        let inodes = u64::from(groups) * per_group;
        if u64::from(self.inodes_count()) != inodes {
            return bad(
                "s_inodes_count",
                self.inodes_count(),
                "it must be the inodes per group times the groups",
            );
        }
        if self.reserved_blocks_count() > self.blocks_count() {
            return bad(
                "s_r_blocks_count",
                self.reserved_blocks_count(),
                "more blocks are reserved than there are",
            );
        }
        Ok(())
    }

    pub(super) fn validate_descriptors(&self) -> Result<()> {
        let size = u64::from(self.desc_size());
        let is_wide = self.features.has_incompat(Incompat::SIXTY_FOUR_BIT);
        if is_wide && (!size.is_power_of_two() || !(64..=1024).contains(&size)) {
            return bad("s_desc_size", size, "with 64bit it must be a power of two from 64 to 1024");
        }
        let reserved = u64::from(self.raw.reserved_gdt_blocks.get());
        if reserved > self.block_size.bytes() / 4 {
            return bad("s_reserved_gdt_blocks", reserved, "one indirect block must hold them");
        }
        let layout = Layout::new(self);
        let table = u64::from(layout.descriptor_blocks());
        if self.features.has_incompat(Incompat::META_BG) {
            let first = self.raw.first_meta_bg.get();
            if u64::from(first) > table {
                return bad("s_first_meta_bg", first, "it lies past the last group");
            }
        } else if layout.first_data_block + 1 + table >= self.blocks_count() {
            return bad("s_blocks_count", self.blocks_count(), "the group descriptors do not fit");
        }
        let plain = u64::from(layout.plain_descriptor_blocks());
        if 1 + plain + reserved > u64::from(layout.blocks_per_group) {
            return bad(
                "s_reserved_gdt_blocks",
                reserved,
                "the group descriptors and their growth do not fit in a group",
            );
        }
        // Those of the last meta group may lie past the end, and so may plain ones after a superblock that is not in block 0.
        let lasts = [layout.plain_descriptor_blocks(), layout.descriptor_blocks()];
        let mut lasts = lasts.into_iter().filter_map(|count| count.checked_sub(1));
        if lasts.any(|last| layout.descriptor_block(last).0 >= self.blocks_count()) {
            return bad("s_blocks_count", self.blocks_count(), "the group descriptors do not fit");
        }
        if self.raw.log_groups_per_flex > 31 {
            return bad("s_log_groups_per_flex", self.raw.log_groups_per_flex, "it must be at most 31");
        }
        Ok(())
    }

    pub(super) fn validate_inodes(&self) -> Result<()> {
        let first = self.first_inode().0;
        if first < 11 || first > self.inodes_count() {
            return bad("s_first_ino", first, "the first inode for files is at least 11 and on the volume");
        }
        let raw = &self.raw;
        if self.features.has_ro_compat(RoCompat::EXTRA_ISIZE) && self.inode_size() > 128 {
            let most = self.inode_size() - 128;
            let sizes =
                [("s_min_extra_isize", raw.min_extra_isize), ("s_want_extra_isize", raw.want_extra_isize)];
            if let Some((field, size)) = sizes.into_iter().find(|(_, size)| size.get() > most) {
                return bad(field, size.get(), "it is more than an inode has after its first 128 bytes");
            }
        }
        if self.is_hurd()
            && (self.features.has_incompat(Incompat::SIXTY_FOUR_BIT)
                || self.features.has_incompat(Incompat::EA_INODE))
        {
            return bad("s_creator_os", raw.creator_os.get(), "the Hurd has neither 64bit nor ea_inode");
        }
        if raw.def_hash_version > HASH_VERSION_MAX {
            return bad("s_def_hash_version", raw.def_hash_version, "there is no such hash of names");
        }
        let inode = |field, number: u32| {
            if number > self.inodes_count() { bad(field, number, "there is no such inode") } else { Ok(()) }
        };
        if self.features.has_compat(Compat::HAS_JOURNAL) {
            inode("s_journal_inum", raw.journal_inum.get())?;
            if raw.journal_inum.get() != 0 && raw.journal_dev.get() != 0 {
                let why = "the journal is in the volume and on a device";
                return bad("s_journal_dev", raw.journal_dev.get(), why);
            }
        }
        if self.features.has_compat(Compat::ORPHAN_FILE) {
            let number = raw.orphan_file_inum.get();
            inode("s_orphan_file_inum", number)?;
            if number < first {
                return bad("s_orphan_file_inum", number, "it is not an inode for files");
            }
        }
        if self.features.has_incompat(Incompat::MMP) {
            let block = self.raw.mmp_block.get();
            if block <= u64::from(self.raw.first_data_block.get()) || block >= self.blocks_count() {
                return bad("s_mmp_block", block, "it is not on the volume");
            }
        }
        Ok(())
    }
}

//! The superblock: what the volume is made of, and its state.
//!
//! `RawSuperblock` is the 1024 bytes at byte 1024 of the volume and at the start of each backup group; [`Superblock`] is the same
//! after every number that others rely on has been checked. Setters change the raw bytes, so what this program does not
//! know survives.
//!
//! Invariants, after `parse`:
//! 1. `first_data_block < blocks_count`, and every group but the last has `blocks_per_group` blocks.
//! 2. `group_count * inodes_per_group == inodes_count`, which fits in 32 bits.
//! 3. A group's bitmaps are one block each, its inode table fits in the group, all descriptors fit in the volume.
//! 4. `inode_size` is a power of two from 128 to the block size; `desc_size` is a power of two from 32 to 1024.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::checksum::crc32c;
use crate::layout::{ChecksumSeed, Compat, Features, Incompat, QuotaKind, RoCompat};
use crate::{BlockSize, Corrupt, DataMode, FsBlock, GroupNumber, Incompatible, InodeNumber, Result};

/// Bytes of a superblock.
pub const SUPERBLOCK_SIZE: usize = 1024;
/// Where the first one is on the volume.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// The number that marks one.
pub const MAGIC: u16 = 0xef53;

/// `s_state`: unmounted cleanly.
pub const STATE_VALID: u16 = 1;
/// `s_state`: errors were found.
pub const STATE_ERROR: u16 = 2;
/// `s_state`: orphans are being removed.
pub const STATE_ORPHANS: u16 = 4;

/// `s_flags`: directory hashes were made with signed characters.
pub const FLAG_SIGNED_HASH: u32 = 1;
/// `s_flags`: directory hashes were made with unsigned characters.
pub const FLAG_UNSIGNED_HASH: u32 = 2;

/// `s_encoding`: UTF-8 of Unicode 12.1, the only one that there is.
pub const ENCODING_UTF8: u16 = 1;
/// `s_encoding_flags`: names that are not valid are refused.
pub const ENCODING_STRICT: u16 = 1;

/// The bytes as they are on the disk; field names are the kernel's without `s_`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawSuperblock {
    pub(crate) inodes_count: U32,
    pub(crate) blocks_count_lo: U32,
    pub(crate) r_blocks_count_lo: U32,
    pub(crate) free_blocks_count_lo: U32,
    pub(crate) free_inodes_count: U32,
    pub(crate) first_data_block: U32,
    pub(crate) log_block_size: U32,
    pub(crate) log_cluster_size: U32,
    pub(crate) blocks_per_group: U32,
    pub(crate) clusters_per_group: U32,
    pub(crate) inodes_per_group: U32,
    pub(crate) mtime: U32,
    pub(crate) wtime: U32,
    pub(crate) mnt_count: U16,
    pub(crate) max_mnt_count: U16,
    pub(crate) magic: U16,
    pub(crate) state: U16,
    pub(crate) errors: U16,
    pub(crate) minor_rev_level: U16,
    pub(crate) lastcheck: U32,
    pub(crate) checkinterval: U32,
    pub(crate) creator_os: U32,
    pub(crate) rev_level: U32,
    pub(crate) def_resuid: U16,
    pub(crate) def_resgid: U16,
    pub(crate) first_ino: U32,
    pub(crate) inode_size: U16,
    pub(crate) block_group_nr: U16,
    pub(crate) feature_compat: U32,
    pub(crate) feature_incompat: U32,
    pub(crate) feature_ro_compat: U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) volume_name: [u8; 16],
    pub(crate) last_mounted: [u8; 64],
    pub(crate) algorithm_usage_bitmap: U32,
    pub(crate) prealloc_blocks: u8,
    pub(crate) prealloc_dir_blocks: u8,
    pub(crate) reserved_gdt_blocks: U16,
    pub(crate) journal_uuid: [u8; 16],
    pub(crate) journal_inum: U32,
    pub(crate) journal_dev: U32,
    pub(crate) last_orphan: U32,
    pub(crate) hash_seed: [u8; 16],
    pub(crate) def_hash_version: u8,
    pub(crate) jnl_backup_type: u8,
    pub(crate) desc_size: U16,
    pub(crate) default_mount_opts: U32,
    pub(crate) first_meta_bg: U32,
    pub(crate) mkfs_time: U32,
    pub(crate) jnl_blocks: [U32; 17],
    pub(crate) blocks_count_hi: U32,
    pub(crate) r_blocks_count_hi: U32,
    pub(crate) free_blocks_count_hi: U32,
    pub(crate) min_extra_isize: U16,
    pub(crate) want_extra_isize: U16,
    pub(crate) flags: U32,
    pub(crate) raid_stride: U16,
    pub(crate) mmp_interval: U16,
    pub(crate) mmp_block: U64,
    pub(crate) raid_stripe_width: U32,
    pub(crate) log_groups_per_flex: u8,
    pub(crate) checksum_type: u8,
    pub(crate) encryption_level: u8,
    pub(crate) reserved_pad: u8,
    pub(crate) kbytes_written: U64,
    pub(crate) snapshot_inum: U32,
    pub(crate) snapshot_id: U32,
    pub(crate) snapshot_r_blocks_count: U64,
    pub(crate) snapshot_list: U32,
    pub(crate) error_count: U32,
    pub(crate) first_error_time: U32,
    pub(crate) first_error_ino: U32,
    pub(crate) first_error_block: U64,
    pub(crate) first_error_func: [u8; 32],
    pub(crate) first_error_line: U32,
    pub(crate) last_error_time: U32,
    pub(crate) last_error_ino: U32,
    pub(crate) last_error_line: U32,
    pub(crate) last_error_block: U64,
    pub(crate) last_error_func: [u8; 32],
    pub(crate) mount_opts: [u8; 64],
    pub(crate) usr_quota_inum: U32,
    pub(crate) grp_quota_inum: U32,
    pub(crate) overhead_blocks: U32,
    pub(crate) backup_bgs: [U32; 2],
    pub(crate) encrypt_algos: [u8; 4],
    pub(crate) encrypt_pw_salt: [u8; 16],
    pub(crate) lpf_ino: U32,
    pub(crate) prj_quota_inum: U32,
    pub(crate) checksum_seed: U32,
    pub(crate) wtime_hi: u8,
    pub(crate) mtime_hi: u8,
    pub(crate) mkfs_time_hi: u8,
    pub(crate) lastcheck_hi: u8,
    pub(crate) first_error_time_hi: u8,
    pub(crate) last_error_time_hi: u8,
    pub(crate) first_error_errcode: u8,
    pub(crate) last_error_errcode: u8,
    pub(crate) encoding: U16,
    pub(crate) encoding_flags: U16,
    pub(crate) orphan_file_inum: U32,
    pub(crate) reserved: [U32; 94],
    pub(crate) checksum: U32,
}

const _: () = assert!(size_of::<RawSuperblock>() == SUPERBLOCK_SIZE);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, mmp_block) == 0x168);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, orphan_file_inum) == 0x280);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, checksum) == 0x3fc);

/// A superblock whose numbers have been checked.
#[derive(Clone, Debug)]
pub struct Superblock {
    raw: RawSuperblock,
    block_size: BlockSize,
    features: Features,
    group_count: u32,
}

fn bad<T>(field: &'static str, value: impl Into<u64>, why: &'static str) -> Result<T> {
    Err(Corrupt::Superblock { field, value: value.into(), why }.into())
}

impl Superblock {
    /// Parse and check the 1024 bytes of a superblock: magic number, checksum, then every number. Features that cannot
    /// be read are refused by name.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let superblock = Self::parse_any_features(bytes)?;
        let unreadable = superblock.features.unreadable();
        if unreadable.is_empty() {
            Ok(superblock)
        } else {
            Err(Incompatible::Features { names: unreadable.join(", ") }.into())
        }
    }

    /// As [`Superblock::parse`], but whatever the features are: to tell about a volume that cannot be opened.
    pub fn parse_any_features(bytes: &[u8]) -> Result<Self> {
        let Ok((raw, _)) = RawSuperblock::read_from_prefix(bytes) else {
            return bad("length", bytes.len() as u64, "a superblock has 1024 bytes");
        };
        let superblock = Self::from_raw(&raw)?;
        superblock.validate_checksum()?;
        Ok(superblock)
    }

    /// Check the numbers of raw fields; the checksum is not looked at.
    pub(crate) fn from_raw(raw: &RawSuperblock) -> Result<Self> {
        if raw.magic.get() != MAGIC {
            return Err(Corrupt::Magic { found: raw.magic.get() }.into());
        }
        if raw.rev_level.get() > 1 {
            return Err(Incompatible::Revision(raw.rev_level.get()).into());
        }
        let block_size = 1024_u32.checked_shl(raw.log_block_size.get()).and_then(BlockSize::new);
        let Some(block_size) = block_size.filter(|_| raw.log_block_size.get() <= 6) else {
            return bad("s_log_block_size", raw.log_block_size.get(), "it must be 0 to 6 (1 to 64 KiB)");
        };
        let features = if raw.rev_level.get() == 0 {
            Features::default()
        } else {
            Features {
                compat: Compat::from_bits_retain(raw.feature_compat.get()),
                incompat: Incompat::from_bits_retain(raw.feature_incompat.get()),
                ro_compat: RoCompat::from_bits_retain(raw.feature_ro_compat.get()),
            }
        };
        let mut superblock = Self { raw: *raw, block_size, features, group_count: 0 };
        superblock.validate_sizes()?;
        superblock.validate_groups()?;
        superblock.validate_descriptors()?;
        superblock.validate_inodes()?;
        Ok(superblock)
    }

    fn validate_checksum(&self) -> Result<()> {
        if !self.features.metadata_csum() {
            return Ok(());
        }
        if self.raw.checksum_type != 1 {
            return bad("s_checksum_type", self.raw.checksum_type, "the only known one is 1 (CRC-32C)");
        }
        if self.raw.checksum.get() != self.right_checksum() {
            return Err(Corrupt::Checksum { block: self.first_data_block(), what: "superblock" }.into());
        }
        Ok(())
    }

    fn validate_sizes(&self) -> Result<()> {
        let (raw, features) = (&self.raw, self.features);
        let (cluster, block) = (raw.log_cluster_size.get(), raw.log_block_size.get());
        if features.has_ro_compat(RoCompat::BIGALLOC) {
            if cluster < block || cluster > 20 {
                return bad("s_log_cluster_size", cluster, "a cluster is at least a block and at most 1 GiB");
            }
        } else if cluster != block && raw.rev_level.get() > 0 && cluster > 20 {
            return bad("s_log_cluster_size", cluster, "without bigalloc it is the block size");
        }
        let per_cluster = u64::from(self.blocks_per_cluster());
        let bits = self.block_size.bytes() * 8;
        let (blocks, clusters) = (u64::from(self.blocks_per_group()), u64::from(self.clusters_per_group()));
        if blocks < 256 || clusters > bits || clusters * per_cluster != blocks || !blocks.is_multiple_of(8) {
            return bad(
                "s_blocks_per_group",
                blocks,
                "it must be 256 or more, a multiple of 8, and fit in one bitmap block",
            );
        }
        let first = u64::from(raw.first_data_block.get());
        let want = u64::from(self.block_size.bytes() == 1024 && !features.has_ro_compat(RoCompat::BIGALLOC));
        if first != want && !(first == 0 && self.block_size.bytes() == 1024) {
            return bad("s_first_data_block", first, "it is 1 with blocks of 1 KiB and 0 with all others");
        }
        if self.blocks_count() <= first + 1 {
            return bad("s_blocks_count", self.blocks_count(), "there is nothing behind the superblock");
        }
        let most = if features.has_incompat(Incompat::SIXTY_FOUR_BIT) { 1 << 48 } else { 1 << 32 };
        if self.blocks_count() > most || self.blocks_count() > (u64::MAX >> 1) / self.block_size.bytes() {
            return bad("s_blocks_count", self.blocks_count(), "the format cannot address that many");
        }
        Ok(())
    }

    fn validate_groups(&mut self) -> Result<()> {
        let data_blocks = self.blocks_count() - self.first_data_block().0;
        let groups = data_blocks.div_ceil(u64::from(self.blocks_per_group()));
        let Ok(groups) = u32::try_from(groups) else {
            return bad("s_blocks_count", self.blocks_count(), "that makes too many groups");
        };
        self.group_count = groups;
        let inode_size = u64::from(self.inode_size());
        let block = self.block_size.bytes();
        if !inode_size.is_power_of_two() || inode_size < 128 || inode_size > block {
            return bad("s_inode_size", inode_size, "it must be a power of two from 128 to the block size");
        }
        let per_group = u64::from(self.inodes_per_group());
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
        if u64::from(self.inode_table_blocks()) >= u64::from(self.blocks_per_group()) {
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

    fn validate_descriptors(&self) -> Result<()> {
        let size = u64::from(self.desc_size());
        if self.features.has_incompat(Incompat::SIXTY_FOUR_BIT) {
            if !size.is_power_of_two() || !(64..=1024).contains(&size) {
                return bad("s_desc_size", size, "with 64bit it must be a power of two from 64 to 1024");
            }
        } else if !matches!(self.raw.desc_size.get(), 0 | 32 | 64) {
            return bad("s_desc_size", self.raw.desc_size.get(), "without 64bit it is 0 or 32");
        }
        let reserved = u64::from(self.raw.reserved_gdt_blocks.get());
        if reserved > self.block_size.bytes() / 4 {
            return bad("s_reserved_gdt_blocks", reserved, "one indirect block must hold them");
        }
        let table = u64::from(self.descriptor_blocks());
        if self.features.has_incompat(Incompat::META_BG) {
            if u64::from(self.first_meta_group()) > table {
                return bad("s_first_meta_bg", self.first_meta_group(), "it lies behind the last group");
            }
        } else if self.first_data_block().0 + 1 + table >= self.blocks_count() {
            return bad("s_blocks_count", self.blocks_count(), "the group descriptors do not fit");
        }
        let plain = if self.features.has_incompat(Incompat::META_BG) {
            table.min(u64::from(self.first_meta_group()))
        } else {
            table
        };
        if 1 + plain + reserved > u64::from(self.blocks_per_group()) {
            return bad(
                "s_reserved_gdt_blocks",
                reserved,
                "the group descriptors and their growth do not fit in a group",
            );
        }
        if self.raw.log_groups_per_flex > 31 {
            return bad("s_log_groups_per_flex", self.raw.log_groups_per_flex, "it must be at most 31");
        }
        Ok(())
    }

    fn validate_inodes(&self) -> Result<()> {
        let first = self.first_inode().0;
        if first < 11 || first > self.inodes_count() {
            return bad("s_first_ino", first, "the first inode for files is at least 11 and on the volume");
        }
        let inode = |field, number: u32| {
            if number > self.inodes_count() { bad(field, number, "there is no such inode") } else { Ok(()) }
        };
        if self.features.has_compat(Compat::HAS_JOURNAL) {
            inode("s_journal_inum", self.raw.journal_inum.get())?;
        }
        if !self.features.has_compat(Compat::ORPHAN_FILE) {
            inode("s_last_orphan", self.raw.last_orphan.get())?;
        }
        if self.features.has_compat(Compat::ORPHAN_FILE) {
            inode("s_orphan_file_inum", self.raw.orphan_file_inum.get())?;
        }
        if self.features.has_incompat(Incompat::MMP) {
            let block = self.raw.mmp_block.get();
            if block <= self.first_data_block().0 || block >= self.blocks_count() {
                return bad("s_mmp_block", block, "it is not on the volume");
            }
        }
        Ok(())
    }

    fn right_checksum(&self) -> u32 {
        crc32c(!0, &self.raw.as_bytes()[..SUPERBLOCK_SIZE - 4])
    }

    /// Store into `bytes` (at least 1024), with the checksum where the volume has one.
    pub fn write_into(&mut self, bytes: &mut [u8]) {
        if self.features.metadata_csum() {
            self.raw.checksum = U32::new(self.right_checksum());
        }
        bytes[..SUPERBLOCK_SIZE].copy_from_slice(self.raw.as_bytes());
    }

    /// Store a backup for `group`: the same with its own group number.
    pub fn write_backup_into(&self, bytes: &mut [u8], group: GroupNumber) {
        let mut backup = self.clone();
        backup.raw.block_group_nr = U16::new(group.0 as u16);
        backup.write_into(bytes);
    }

    /// The raw fields.
    pub(crate) fn raw(&self) -> &RawSuperblock {
        &self.raw
    }

    /// The raw fields, for changes that keep the invariants of the module head.
    pub(crate) fn raw_mut(&mut self) -> &mut RawSuperblock {
        &mut self.raw
    }

    /// Features.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Change the features.
    pub fn set_features(&mut self, features: Features) {
        self.features = features;
        self.raw.feature_compat = U32::new(features.compat.bits());
        self.raw.feature_incompat = U32::new(features.incompat.bits());
        self.raw.feature_ro_compat = U32::new(features.ro_compat.bits());
    }

    /// Block size.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Blocks of the volume, from block 0.
    pub fn blocks_count(&self) -> u64 {
        self.wide(self.raw.blocks_count_lo, self.raw.blocks_count_hi)
    }

    /// Blocks kept for the reserved user.
    pub fn reserved_blocks_count(&self) -> u64 {
        self.wide(self.raw.r_blocks_count_lo, self.raw.r_blocks_count_hi)
    }

    /// Free blocks (blocks, not clusters): a hint, the groups know better.
    pub fn free_blocks_count(&self) -> u64 {
        self.wide(self.raw.free_blocks_count_lo, self.raw.free_blocks_count_hi).min(self.blocks_count())
    }

    /// Set the number of free blocks.
    pub fn set_free_blocks_count(&mut self, blocks: u64) {
        self.raw.free_blocks_count_lo = U32::new(blocks as u32);
        if self.features.has_incompat(Incompat::SIXTY_FOUR_BIT) {
            self.raw.free_blocks_count_hi = U32::new((blocks >> 32) as u32);
        }
    }

    /// Free inodes: a hint, the groups know better.
    pub fn free_inodes_count(&self) -> u32 {
        self.raw.free_inodes_count.get().min(self.inodes_count())
    }

    /// Set the number of free inodes.
    pub fn set_free_inodes_count(&mut self, inodes: u32) {
        self.raw.free_inodes_count = U32::new(inodes);
    }

    fn wide(&self, low: U32, high: U32) -> u64 {
        let high = if self.features.has_incompat(Incompat::SIXTY_FOUR_BIT) { high.get() } else { 0 };
        u64::from(low.get()) | u64::from(high) << 32
    }

    /// Inodes of the volume.
    pub fn inodes_count(&self) -> u32 {
        self.raw.inodes_count.get()
    }

    /// The block that holds the first superblock: 1 with blocks of 1 KiB, else 0. Groups are counted from here.
    pub fn first_data_block(&self) -> FsBlock {
        FsBlock(u64::from(self.raw.first_data_block.get()))
    }

    /// Blocks of every group but the last.
    pub fn blocks_per_group(&self) -> u32 {
        self.raw.blocks_per_group.get()
    }

    /// Clusters that the filesystem's own structures take, the journal too; 0 if nobody has counted them.
    pub fn overhead_clusters(&self) -> u64 {
        u64::from(self.raw.overhead_blocks.get())
    }

    /// Clusters of every group but the last: bits of the block bitmap.
    pub fn clusters_per_group(&self) -> u32 {
        if self.features.has_ro_compat(RoCompat::BIGALLOC) {
            self.raw.clusters_per_group.get()
        } else {
            self.raw.blocks_per_group.get()
        }
    }

    /// Blocks of an allocation unit: 1 without `bigalloc`.
    pub fn blocks_per_cluster(&self) -> u32 {
        if self.features.has_ro_compat(RoCompat::BIGALLOC) {
            1 << self.raw.log_cluster_size.get().saturating_sub(self.raw.log_block_size.get()).min(20)
        } else {
            1
        }
    }

    /// Inodes of every group.
    pub fn inodes_per_group(&self) -> u32 {
        self.raw.inodes_per_group.get()
    }

    /// Blocks of a group's inode table.
    pub fn inode_table_blocks(&self) -> u32 {
        (u64::from(self.inodes_per_group()) * u64::from(self.inode_size())).div_ceil(self.block_size.bytes())
            as u32
    }

    /// Number of groups.
    pub fn group_count(&self) -> u32 {
        self.group_count
    }

    /// Bytes of an inode.
    pub fn inode_size(&self) -> u16 {
        if self.raw.rev_level.get() == 0 { 128 } else { self.raw.inode_size.get() }
    }

    /// First inode that a file can have.
    pub fn first_inode(&self) -> InodeNumber {
        InodeNumber(if self.raw.rev_level.get() == 0 { 11 } else { self.raw.first_ino.get() })
    }

    /// Bytes of a group descriptor.
    pub fn desc_size(&self) -> u16 {
        if self.features.has_incompat(Incompat::SIXTY_FOUR_BIT) { self.raw.desc_size.get() } else { 32 }
    }

    /// Group descriptors in a block.
    pub fn descriptors_per_block(&self) -> u32 {
        (self.block_size.bytes() / u64::from(self.desc_size())) as u32
    }

    /// Blocks of the table of all group descriptors.
    pub fn descriptor_blocks(&self) -> u32 {
        self.group_count.div_ceil(self.descriptors_per_block())
    }

    /// Blocks kept behind the descriptors for growth.
    pub fn reserved_gdt_blocks(&self) -> u16 {
        self.raw.reserved_gdt_blocks.get()
    }

    /// With `meta_bg`: the first meta group, that is the first descriptor block that lies in its own groups.
    pub fn first_meta_group(&self) -> u32 {
        self.raw.first_meta_bg.get()
    }

    /// Groups whose bitmaps and tables are packed together: 1 without `flex_bg`.
    pub fn groups_per_flex(&self) -> u32 {
        if self.features.has_incompat(Incompat::FLEX_BG) {
            1 << u32::from(self.raw.log_groups_per_flex).min(31)
        } else {
            1
        }
    }

    /// What of a bitmap's checksum a descriptor can hold.
    pub fn bitmap_checksum_mask(&self) -> u32 {
        if self.desc_size() >= 64 { u32::MAX } else { 0xffff }
    }

    /// The seed of all checksums.
    pub fn checksum_seed(&self) -> ChecksumSeed {
        if self.features.has_incompat(Incompat::CSUM_SEED) {
            ChecksumSeed(self.raw.checksum_seed.get())
        } else {
            ChecksumSeed::of_uuid(&self.raw.uuid)
        }
    }

    /// UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.raw.uuid
    }

    /// Label, up to the first NUL.
    pub fn label(&self) -> &[u8] {
        until_nul(&self.raw.volume_name)
    }

    /// Where it was mounted last, up to the first NUL.
    pub fn last_mounted(&self) -> &[u8] {
        until_nul(&self.raw.last_mounted)
    }

    /// Bits `STATE_*`.
    pub fn state(&self) -> u16 {
        self.raw.state.get()
    }

    /// Set bits `STATE_*`.
    pub fn set_state(&mut self, state: u16) {
        self.raw.state = U16::new(state);
    }

    /// The inode of the journal, if it is on this volume.
    pub fn journal_inode(&self) -> Option<InodeNumber> {
        let inode = self.raw.journal_inum.get();
        (self.features.has_compat(Compat::HAS_JOURNAL) && inode != 0).then_some(InodeNumber(inode))
    }

    /// UUID of an external journal, if there is one.
    pub fn external_journal(&self) -> Option<[u8; 16]> {
        (self.features.has_compat(Compat::HAS_JOURNAL) && self.raw.journal_inum.get() == 0)
            .then_some(self.raw.journal_uuid)
    }

    /// The number of the device that an external journal was on last, in the kernel's form.
    pub fn journal_device(&self) -> u32 {
        self.raw.journal_dev.get()
    }

    /// First inode of the list of orphans.
    pub fn last_orphan(&self) -> Option<InodeNumber> {
        let inode = self.raw.last_orphan.get();
        (inode != 0).then_some(InodeNumber(inode))
    }

    /// Set the first inode of the list of orphans.
    pub fn set_last_orphan(&mut self, inode: Option<InodeNumber>) {
        self.raw.last_orphan = U32::new(inode.map_or(0, |inode| inode.0));
    }

    /// The inode of the orphan file, if there is one.
    pub fn orphan_file(&self) -> Option<InodeNumber> {
        let inode = self.raw.orphan_file_inum.get();
        (self.features.has_compat(Compat::ORPHAN_FILE) && inode != 0).then_some(InodeNumber(inode))
    }

    /// Seed of directory hashes: four little-endian numbers, as stored.
    pub fn hash_seed(&self) -> [u32; 4] {
        std::array::from_fn(|index| crate::layout::le32(&self.raw.hash_seed, index * 4))
    }

    /// `s_def_hash_version`: the hash of new indexed directories.
    pub fn default_hash_version(&self) -> u8 {
        self.raw.def_hash_version
    }

    /// Whether directory hashes take characters as unsigned.
    pub fn unsigned_hash(&self) -> bool {
        self.raw.flags.get() & FLAG_UNSIGNED_HASH != 0
    }

    /// The encoding of names that ignore case; `None` on a volume without `casefold`.
    pub fn encoding(&self) -> Option<u16> {
        self.features.has_incompat(Incompat::CASEFOLD).then(|| self.raw.encoding.get())
    }

    /// Whether names that are not valid in the encoding are refused in directories that ignore case.
    pub fn strict_encoding(&self) -> bool {
        self.encoding().is_some() && self.raw.encoding_flags.get() & ENCODING_STRICT != 0
    }

    /// Groups that hold backups, with `sparse_super2`.
    pub fn backup_groups(&self) -> [u32; 2] {
        [self.raw.backup_bgs[0].get(), self.raw.backup_bgs[1].get()]
    }

    /// Extra bytes that new inodes get beyond the first 128.
    pub fn want_extra_isize(&self) -> u16 {
        let most = self.inode_size().saturating_sub(128);
        let want = self.raw.want_extra_isize.get();
        let usual = if most >= 32 { 32 } else { 0 };
        let known = self.features.has_ro_compat(RoCompat::EXTRA_ISIZE) && want.is_multiple_of(4);
        if known && want >= 4 && want <= most { want } else { usual }
    }

    /// The block of multi-mount protection.
    pub fn mmp_block(&self) -> Option<FsBlock> {
        self.features.has_incompat(Incompat::MMP).then(|| FsBlock(self.raw.mmp_block.get()))
    }

    /// What the journal does for data where nobody says otherwise (`tune2fs -o journal_data`).
    pub fn default_data_mode(&self) -> DataMode {
        match self.raw.default_mount_opts.get() & 0x60 {
            0x20 => DataMode::Journal,
            0x60 => DataMode::Writeback,
            _ => DataMode::Ordered,
        }
    }

    /// The hidden file that counts use by kind, if the volume has one.
    pub fn quota_inode(&self, kind: QuotaKind) -> Option<InodeNumber> {
        let number = match kind {
            QuotaKind::User => self.raw.usr_quota_inum.get(),
            QuotaKind::Group => self.raw.grp_quota_inum.get(),
            QuotaKind::Project => self.raw.prj_quota_inum.get(),
        };
        (self.features.has_ro_compat(RoCompat::QUOTA) && number != 0).then_some(InodeNumber(number))
    }

    /// Set when the volume was last written.
    pub fn set_write_time(&mut self, seconds: i64) {
        self.raw.wtime = U32::new(seconds as u32);
        self.raw.wtime_hi = (seconds >> 32) as u8;
    }

    /// Set when the volume was last mounted, and count it.
    pub fn set_mount_time(&mut self, seconds: i64) {
        self.raw.mtime = U32::new(seconds as u32);
        self.raw.mtime_hi = (seconds >> 32) as u8;
        self.raw.mnt_count = U16::new(self.raw.mnt_count.get().saturating_add(1));
    }

    /// KiB written over the volume's life.
    pub fn kib_written(&self) -> u64 {
        self.raw.kbytes_written.get()
    }

    /// Set the KiB written over the volume's life.
    pub fn set_kib_written(&mut self, kib: u64) {
        self.raw.kbytes_written = U64::new(kib);
    }
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::Error;

    /// A small sound volume: 8192 blocks of 1 KiB in one group.
    pub(crate) fn sound() -> RawSuperblock {
        let mut raw = RawSuperblock::new_zeroed();
        raw.magic = U16::new(MAGIC);
        raw.rev_level = U32::new(1);
        raw.blocks_count_lo = U32::new(8192);
        raw.first_data_block = U32::new(1);
        raw.blocks_per_group = U32::new(8192);
        raw.clusters_per_group = U32::new(8192);
        raw.inodes_per_group = U32::new(1024);
        raw.inodes_count = U32::new(1024);
        raw.first_ino = U32::new(11);
        raw.inode_size = U16::new(256);
        raw
    }

    #[test]
    fn a_sound_superblock_comes_back_with_all_its_bytes() {
        let mut raw = sound();
        raw.reserved[50] = U32::new(0x1234_5678);
        raw.feature_ro_compat = U32::new(RoCompat::METADATA_CSUM.bits());
        raw.checksum_type = 1;
        let mut superblock = Superblock::from_raw(&raw).unwrap();
        let mut bytes = [0; SUPERBLOCK_SIZE];
        superblock.write_into(&mut bytes);
        let again = Superblock::parse(&bytes).unwrap();
        assert_eq!(again.raw().as_bytes(), superblock.raw().as_bytes());
        bytes[300] ^= 1;
        assert!(matches!(
            Superblock::parse(&bytes),
            Err(Error::Corrupt(Corrupt::Checksum { what: "superblock", .. }))
        ));
    }

    #[test]
    fn each_number_that_cannot_be_is_named() {
        type Change = fn(&mut RawSuperblock);
        let cases: [(&str, Change); 12] = [
            ("s_log_block_size", |raw| raw.log_block_size = U32::new(7)),
            ("s_log_block_size", |raw| raw.log_block_size = U32::new(u32::MAX)),
            ("s_blocks_per_group", |raw| raw.blocks_per_group = U32::new(0)),
            ("s_blocks_per_group", |raw| raw.blocks_per_group = U32::new(8200)),
            ("s_first_data_block", |raw| raw.first_data_block = U32::new(2)),
            ("s_blocks_count", |raw| raw.blocks_count_lo = U32::new(1)),
            ("s_inode_size", |raw| raw.inode_size = U16::new(0)),
            ("s_inode_size", |raw| raw.inode_size = U16::new(2048)),
            ("s_inodes_per_group", |raw| raw.inodes_per_group = U32::new(0)),
            ("s_inodes_count", |raw| raw.inodes_count = U32::new(1023)),
            ("s_first_ino", |raw| raw.first_ino = U32::new(5)),
            ("s_reserved_gdt_blocks", |raw| raw.reserved_gdt_blocks = U16::new(300)),
        ];
        for (name, change) in cases {
            let mut raw = sound();
            change(&mut raw);
            match Superblock::parse(raw.as_bytes()) {
                Err(Error::Corrupt(Corrupt::Superblock { field, .. })) => assert_eq!(field, name),
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    proptest::proptest! {
        /// DESIGN 4.10: whatever the bytes are, the answer is a superblock that keeps the invariants, or an error.
        #[test]
        fn hostile_superblocks_are_refused_or_sound(changes in proptest::collection::vec((0..1024_usize, 0..=255_u8), 0..12)) {
            let mut bytes = sound().as_bytes().to_vec();
            for (at, value) in changes {
                bytes[at] = value;
            }
            if let Ok(superblock) = Superblock::parse_any_features(&bytes) {
                let layout = crate::layout::Layout::new(&superblock);
                assert!(layout.group_count > 0 && layout.first_data_block < layout.blocks_count);
                assert!(layout.descriptors_per_block() > 0);
                let last = GroupNumber(layout.group_count - 1);
                assert!(layout.blocks_in(last) > 0);
                layout.descriptor_place(last);
                layout.overhead_in(last);
                layout.locate_inode(InodeNumber(superblock.inodes_count())).unwrap();
            }
        }
    }
}

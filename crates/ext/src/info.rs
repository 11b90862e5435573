//! Facts about a volume, as `dumpe2fs -h` shows them: from superblock and descriptors alone, with any features.
//!
//! Works on volumes that cannot be opened, so that a person can see why.

use diorite_block::BlockDevice;

use crate::layout::superblock::{
    FLAG_SIGNED_HASH, FLAG_UNSIGNED_HASH, STATE_ERROR, STATE_ORPHANS, STATE_VALID,
};
use crate::layout::{Compat, Features, GroupDescriptor, Incompat, Layout, Superblock};
use crate::memory::BlockMemory;
use crate::volume::journal;
use crate::volume::superblock::{SuperblockBackup, find_superblock, read_superblock};
use crate::{Error, FsBlock, Incompatible, InodeNumber, Result, Timestamp};

/// Facts about a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each named")]
pub struct VolumeInfo {
    /// Label.
    pub label: Vec<u8>,
    /// Where it was mounted last.
    pub last_mounted: Vec<u8>,
    /// UUID.
    pub uuid: [u8; 16],
    /// Revision of the format: 0 or 1.
    pub revision: u32,
    /// Features.
    pub features: Features,
    /// Names of features that keep it from being read.
    pub unreadable_features: Vec<String>,
    /// Names of features that keep it from being written.
    pub unwritable_features: Vec<String>,
    /// Whether directory hashes take characters as signed; `None` where it is not said.
    pub signed_hash: Option<bool>,
    /// Unmounted cleanly.
    pub clean: bool,
    /// Errors were found.
    pub has_errors: bool,
    /// Orphans were being removed.
    pub has_orphans: bool,
    /// The journal must be replayed.
    pub needs_recovery: bool,
    /// Inodes.
    pub inodes: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Blocks.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Blocks for the reserved user.
    pub reserved_blocks: u64,
    /// Clusters of the volume's own structures, as noted in the superblock.
    pub overhead: u32,
    /// The block with the first superblock.
    pub first_block: u64,
    /// Bytes of a block.
    pub block_size: u64,
    /// Bytes of an allocation unit.
    pub cluster_size: u64,
    /// Bytes of a group descriptor.
    pub descriptor_size: u16,
    /// Blocks kept for the growth of the descriptors.
    pub reserved_gdt_blocks: u16,
    /// Groups.
    pub groups: u32,
    /// Blocks of a group.
    pub blocks_per_group: u32,
    /// Inodes of a group.
    pub inodes_per_group: u32,
    /// Blocks of a group's inode table.
    pub inode_table_blocks: u32,
    /// Groups whose bitmaps and tables are packed together; 1 without `flex_bg`.
    pub flex_groups: u32,
    /// First blocks of the groups with backups of the superblock.
    pub backups: Vec<u64>,
    /// When it was made.
    pub created: Timestamp,
    /// When it was mounted last; 1970 if never.
    pub mounted: Timestamp,
    /// When it was written last.
    pub written: Timestamp,
    /// When it was checked last.
    pub checked: Timestamp,
    /// How often it was mounted since.
    pub mount_count: u16,
    /// User of the reserved blocks.
    pub reserved_uid: u16,
    /// Group of the reserved blocks.
    pub reserved_gid: u16,
    /// First inode for files.
    pub first_inode: u32,
    /// Bytes of an inode.
    pub inode_size: u16,
    /// Inode of the journal.
    pub journal_inode: Option<InodeNumber>,
    /// UUID of an external journal.
    pub journal_uuid: Option<[u8; 16]>,
    /// First inode of the list of orphans.
    pub first_orphan: Option<InodeNumber>,
    /// Inode of the orphan file.
    pub orphan_file: Option<InodeNumber>,
    /// Hash of new indexed directories: 0 legacy, 1 half MD4, 2 TEA.
    pub default_hash: u8,
    /// Seed of directory hashes.
    pub hash_seed: [u8; 16],
    /// Seed of checksums, where it is stored.
    pub checksum_seed: Option<u32>,
    /// The block of multi-mount protection.
    pub mmp_block: Option<FsBlock>,
    /// Errors found by a running system.
    pub error_count: u32,
    /// KiB written over the volume's life.
    pub lifetime_kib: u64,
}

impl VolumeInfo {
    /// From the superblock.
    pub fn new(superblock: &Superblock) -> Self {
        let (raw, features, layout) = (superblock.raw(), superblock.features(), Layout::new(superblock));
        let time = |low: u32, high: u8| Timestamp {
            seconds: i64::from(low) | i64::from(high) << 32,
            nanoseconds: 0,
        };
        let (state, flags) = (superblock.state(), raw.flags.get());
        Self {
            label: superblock.label().to_vec(),
            last_mounted: superblock.last_mounted().to_vec(),
            uuid: superblock.uuid(),
            revision: raw.rev_level.get(),
            features,
            unreadable_features: features.unreadable(),
            unwritable_features: features.unwritable(),
            signed_hash: (flags & (FLAG_SIGNED_HASH | FLAG_UNSIGNED_HASH) != 0)
                .then_some(flags & FLAG_SIGNED_HASH != 0),
            clean: state & STATE_VALID != 0,
            has_errors: state & STATE_ERROR != 0,
            has_orphans: state & STATE_ORPHANS != 0,
            needs_recovery: features.has_incompat(Incompat::RECOVER),
            inodes: superblock.inodes_count(),
            free_inodes: superblock.free_inodes_count(),
            blocks: superblock.blocks_count(),
            free_blocks: superblock.free_blocks_count(),
            reserved_blocks: superblock.reserved_blocks_count(),
            overhead: raw.overhead_blocks.get(),
            first_block: layout.first_data_block,
            block_size: layout.block_size.bytes(),
            cluster_size: layout.block_size.bytes() * u64::from(layout.blocks_per_cluster),
            descriptor_size: layout.desc_size,
            reserved_gdt_blocks: layout.reserved_gdt_blocks,
            groups: layout.group_count,
            blocks_per_group: layout.blocks_per_group,
            inodes_per_group: layout.inodes_per_group,
            inode_table_blocks: layout.inode_table_blocks(),
            flex_groups: layout.groups_per_flex,
            backups: layout.superblock_backups(),
            created: time(raw.mkfs_time.get(), raw.mkfs_time_hi),
            mounted: time(raw.mtime.get(), raw.mtime_hi),
            written: time(raw.wtime.get(), raw.wtime_hi),
            checked: time(raw.lastcheck.get(), raw.lastcheck_hi),
            mount_count: raw.mnt_count.get(),
            reserved_uid: raw.def_resuid.get(),
            reserved_gid: raw.def_resgid.get(),
            first_inode: superblock.first_inode().0,
            inode_size: layout.inode_size,
            journal_inode: superblock.journal_inode(),
            journal_uuid: superblock.external_journal(),
            first_orphan: superblock.last_orphan().filter(|_| !features.has_compat(Compat::ORPHAN_FILE)),
            orphan_file: superblock.orphan_file(),
            default_hash: superblock.default_hash_version(),
            hash_seed: raw.hash_seed,
            checksum_seed: features.has_incompat(Incompat::CSUM_SEED).then(|| raw.checksum_seed.get()),
            mmp_block: superblock.mmp_block(),
            error_count: raw.error_count.get(),
            lifetime_kib: superblock.kib_written(),
        }
    }

    /// The filesystem type by the features: `ext2`, `ext3` or `ext4`.
    pub fn flavor(&self) -> &'static str {
        let is_ext4 = |name: &String| {
            ["extent", "64bit", "flex_bg", "metadata_csum", "huge_file", "inline_data", "bigalloc"]
                .contains(&name.as_str())
        };
        let names = self.features.names();
        if names.iter().any(is_ext4) {
            "ext4"
        } else if names.iter().any(|name| name == "has_journal") {
            "ext3"
        } else {
            "ext2"
        }
    }

    /// Read it from a device, by a backup if the first superblock is damaged.
    ///
    /// # Errors
    /// There is no superblock, or the device failed.
    pub fn find(device: &dyn BlockDevice) -> Result<(Self, Option<SuperblockBackup>)> {
        let (superblock, backup) = find_superblock(device)?;
        Ok((Self::new(&superblock), backup))
    }

    /// The consequence of an unreadable journal, if it is unreadable: the volume opens read-only.
    pub fn journal_defect(device: &dyn BlockDevice) -> Option<String> {
        let (superblock, backup) = find_superblock(device).ok()?;
        journal::defect_of(device, &superblock, backup.is_some())
    }

    /// Read it from a device's first superblock.
    ///
    /// # Errors
    /// The first superblock is damaged or is none, or the device failed.
    pub fn read(device: &dyn BlockDevice) -> Result<Self> {
        Ok(Self::new(&read_superblock(device)?))
    }

    /// The UUID of the journal, if the device holds that of a filesystem elsewhere and no filesystem.
    pub fn external_journal(device: &dyn BlockDevice) -> Option<[u8; 16]> {
        match read_superblock(device) {
            Err(Error::Incompatible(Incompatible::JournalDevice { uuid })) => Some(uuid),
            _ => None,
        }
    }
}

/// Read all group descriptors of a volume (primary copies), not checked. Fails on a volume larger than the device.
///
/// # Errors
/// `Corrupt`, with the group, or the device failed.
pub fn read_descriptors(device: &dyn BlockDevice, superblock: &Superblock) -> Result<Vec<GroupDescriptor>> {
    let layout = Layout::new(superblock);
    let mut descriptors = Vec::new();
    let mut memory = BlockMemory::zeroed(layout.block_size.bytes() as usize);
    for index in 0..layout.descriptor_blocks() {
        let block = layout.descriptor_block(index);
        device.read_bytes(layout.block_size.address_of(block), &mut memory)?;
        let rest = layout.group_count as usize - descriptors.len();
        let size = usize::from(layout.desc_size);
        let places = memory.chunks_exact(size).take(rest);
        descriptors.extend(places.map(|place| GroupDescriptor::parse(place, superblock)));
    }
    Ok(descriptors)
}

//! The group descriptor: locations of a group's bitmaps and inode table, and free counts.
//!
//! On disk: 32 bytes, or `s_desc_size` (64) with `64bit`, where the upper halves of all numbers follow from byte 32.

use bitflags::bitflags;
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{crc16, crc32c};
use crate::{Corrupt, FsBlock, GroupNumber, Result};
use crate::{Layout, RoCompat, Superblock};

bitflags! {
    /// Parts of a group that have never been written. They only mean something on a volume whose descriptors have checksums, as the kernel
    /// has it: elsewhere the same bits may be anything, and [`GroupDescriptor::parse`] takes them as clear.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct GroupFlags: u16 {
        /// No inode is in use; the inode bitmap need not be read.
        const INODE_UNINIT = 0x1;
        /// No block is in use but the group's own metadata; the block bitmap need not be read.
        const BLOCK_UNINIT = 0x2;
        /// The inode table has been zeroed.
        const INODE_ZEROED = 0x4;
    }
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawLow {
    block_bitmap: U32,
    inode_bitmap: U32,
    inode_table: U32,
    free_blocks: U16,
    free_inodes: U16,
    used_directories: U16,
    flags: U16,
    exclude_bitmap: U32,
    block_bitmap_checksum: U16,
    inode_bitmap_checksum: U16,
    unused_inodes: U16,
    checksum: U16,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHigh {
    block_bitmap: U32,
    inode_bitmap: U32,
    inode_table: U32,
    free_blocks: U16,
    free_inodes: U16,
    used_directories: U16,
    unused_inodes: U16,
    exclude_bitmap: U32,
    block_bitmap_checksum: U16,
    inode_bitmap_checksum: U16,
    reserved: U32,
}

const _: () = assert!(size_of::<RawLow>() == 32 && size_of::<RawHigh>() == 32);

/// The offset of the checksum in a descriptor.
const CHECKSUM_OFFSET: usize = 0x1e;

/// A group descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupDescriptor {
    /// Block of the block bitmap.
    pub block_bitmap: FsBlock,
    /// Block of the inode bitmap.
    pub inode_bitmap: FsBlock,
    /// First block of the inode table.
    pub inode_table: FsBlock,
    /// Free clusters (blocks, without `bigalloc`).
    pub free_clusters: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Inodes that are directories.
    pub used_directories: u32,
    /// The part that has never been written.
    pub flags: GroupFlags,
    /// CRC-32C of the block bitmap; the lower 16 bits only in a 32-byte descriptor.
    pub block_bitmap_checksum: u32,
    /// CRC-32C of the inode bitmap; the lower 16 bits only in a 32-byte descriptor.
    pub inode_bitmap_checksum: u32,
    /// Inodes at the end of the table that were never used.
    pub unused_inodes: u32,
}

impl GroupDescriptor {
    /// The descriptor in `bytes`, which are one descriptor long. Nothing is checked: see [`GroupDescriptor::validate`]. Without
    /// checksums of descriptors all of the group's bitmaps and inodes count as written, whatever its flags are.
    pub fn parse(bytes: &[u8], superblock: &Superblock) -> Self {
        let mut descriptor = Self::parse_fields(bytes);
        if !superblock.features().group_checksums() {
            descriptor.flags.remove(GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT);
            descriptor.unused_inodes = 0;
        }
        descriptor
    }

    fn parse_fields(bytes: &[u8]) -> Self {
        let Ok((low, rest)) = RawLow::read_from_prefix(bytes) else { return Self::default() };
        let high = RawHigh::read_from_prefix(rest).map_or_else(|_| RawHigh::new_zeroed(), |(high, _)| high);
        let block = |low: U32, high: U32| FsBlock(u64::from(low.get()) | u64::from(high.get()) << 32);
        let number = |low: U16, high: U16| u32::from(low.get()) | u32::from(high.get()) << 16;
        Self {
            block_bitmap: block(low.block_bitmap, high.block_bitmap),
            inode_bitmap: block(low.inode_bitmap, high.inode_bitmap),
            inode_table: block(low.inode_table, high.inode_table),
            free_clusters: number(low.free_blocks, high.free_blocks),
            free_inodes: number(low.free_inodes, high.free_inodes),
            used_directories: number(low.used_directories, high.used_directories),
            flags: GroupFlags::from_bits_retain(low.flags.get()),
            block_bitmap_checksum: number(low.block_bitmap_checksum, high.block_bitmap_checksum),
            inode_bitmap_checksum: number(low.inode_bitmap_checksum, high.inode_bitmap_checksum),
            unused_inodes: number(low.unused_inodes, high.unused_inodes),
        }
    }

    /// Store into `bytes`, which are one descriptor long and at least 32 bytes, and set the checksum. Bytes without a
    /// field here are kept.
    pub fn write_into(&self, bytes: &mut [u8], group: GroupNumber, superblock: &Superblock) {
        if let Ok((low, rest)) = RawLow::mut_from_prefix(bytes) {
            low.block_bitmap = U32::new(self.block_bitmap.0 as u32);
            low.inode_bitmap = U32::new(self.inode_bitmap.0 as u32);
            low.inode_table = U32::new(self.inode_table.0 as u32);
            low.free_blocks = U16::new(self.free_clusters as u16);
            low.free_inodes = U16::new(self.free_inodes as u16);
            low.used_directories = U16::new(self.used_directories as u16);
            low.flags = U16::new(self.flags.bits());
            low.block_bitmap_checksum = U16::new(self.block_bitmap_checksum as u16);
            low.inode_bitmap_checksum = U16::new(self.inode_bitmap_checksum as u16);
            low.unused_inodes = U16::new(self.unused_inodes as u16);
            if let Ok((high, _)) = RawHigh::mut_from_prefix(rest) {
                high.block_bitmap = U32::new((self.block_bitmap.0 >> 32) as u32);
                high.inode_bitmap = U32::new((self.inode_bitmap.0 >> 32) as u32);
                high.inode_table = U32::new((self.inode_table.0 >> 32) as u32);
                high.free_blocks = U16::new((self.free_clusters >> 16) as u16);
                high.free_inodes = U16::new((self.free_inodes >> 16) as u16);
                high.used_directories = U16::new((self.used_directories >> 16) as u16);
                high.unused_inodes = U16::new((self.unused_inodes >> 16) as u16);
                high.block_bitmap_checksum = U16::new((self.block_bitmap_checksum >> 16) as u16);
                high.inode_bitmap_checksum = U16::new((self.inode_bitmap_checksum >> 16) as u16);
            }
        }
        let checksum = Self::checksum(bytes, group, superblock).unwrap_or_default();
        if let Some(place) = bytes.get_mut(CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2) {
            place.copy_from_slice(&checksum.to_le_bytes());
        }
    }

    /// The checksum that belongs to the descriptor in `bytes`; `None` on volumes without.
    pub fn checksum(bytes: &[u8], group: GroupNumber, superblock: &Superblock) -> Option<u16> {
        let features = superblock.features();
        let (before, after) = bytes.split_at_checked(CHECKSUM_OFFSET)?;
        let after = after.get(2..)?;
        if features.metadata_csum() {
            let seed = crc32c(superblock.checksum_seed().0, &group.0.to_le_bytes());
            Some(crc32c(crc32c(crc32c(seed, before), &[0, 0]), after) as u16)
        } else if features.has_ro_compat(RoCompat::GDT_CSUM) {
            let seed = crc16(crc16(!0, &superblock.uuid()), &group.0.to_le_bytes());
            Some(crc16(crc16(seed, before), after))
        } else {
            None
        }
    }

    /// Whether the checksum stored in `bytes` is right, or the volume has none.
    pub fn has_valid_checksum(bytes: &[u8], group: GroupNumber, superblock: &Superblock) -> bool {
        Self::checksum(bytes, group, superblock)
            .is_none_or(|right| right == crate::le16(bytes, CHECKSUM_OFFSET))
    }

    /// Check every number before use: places are on the volume and after the superblock, counts fit in the group.
    ///
    /// # Errors
    /// `Corrupt`, with the group and what is wrong.
    pub fn validate(&self, group: GroupNumber, superblock: &Superblock) -> Result<()> {
        let fail = |what| Err(Corrupt::Group { group: group.0, what }.into());
        let layout = Layout::new(superblock);
        let (first, end) = (layout.first_data_block, layout.blocks_count);
        let on_volume = |block: FsBlock, blocks: u64| {
            block.0 > first && block.0.checked_add(blocks).is_some_and(|after| after <= end)
        };
        if !on_volume(self.block_bitmap, 1) {
            return fail("the block bitmap is not on the volume");
        }
        if !on_volume(self.inode_bitmap, 1) {
            return fail("the inode bitmap is not on the volume");
        }
        if !on_volume(self.inode_table, u64::from(layout.inode_table_blocks())) {
            return fail("the inode table is not on the volume");
        }
        if self.free_clusters > layout.clusters_per_group {
            return fail("more blocks are free than the group has");
        }
        if self.free_inodes > layout.inodes_per_group {
            return fail("more inodes are free than the group has");
        }
        if self.used_directories > layout.inodes_per_group {
            return fail("more directories than the group has inodes");
        }
        if self.unused_inodes > layout.inodes_per_group {
            return fail("more inodes are unused than the group has");
        }
        Ok(())
    }

    /// Whether the stored checksum of the block bitmap is `right`, as far as a descriptor of this size can hold it.
    pub fn block_bitmap_checksum_is(&self, right: u32, superblock: &Superblock) -> bool {
        self.block_bitmap_checksum == right & superblock.bitmap_checksum_mask()
    }

    /// Whether the stored checksum of the inode bitmap is `right`, as far as a descriptor of this size can hold it.
    pub fn inode_bitmap_checksum_is(&self, right: u32, superblock: &Superblock) -> bool {
        self.inode_bitmap_checksum == right & superblock.bitmap_checksum_mask()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superblock::tests::sound;

    #[test]
    fn a_descriptor_comes_back_and_its_checksum_covers_group_and_bytes() {
        let mut raw = sound();
        raw.feature_ro_compat = U32::new(RoCompat::METADATA_CSUM.bits());
        raw.checksum_type = 1;
        let superblock = Superblock::from_raw(&raw).unwrap();
        let (block_bitmap, inode_bitmap, inode_table) = (FsBlock(3), FsBlock(4), FsBlock(5));
        let descriptor = GroupDescriptor {
            block_bitmap,
            inode_bitmap,
            inode_table,
            free_clusters: 7000,
            flags: GroupFlags::INODE_ZEROED,
            ..GroupDescriptor::default()
        };
        let mut bytes = [0; 32];
        descriptor.write_into(&mut bytes, GroupNumber(0), &superblock);
        assert_eq!(GroupDescriptor::parse(&bytes, &superblock), descriptor);
        descriptor.validate(GroupNumber(0), &superblock).unwrap();
        assert!(GroupDescriptor::has_valid_checksum(&bytes, GroupNumber(0), &superblock));
        assert!(!GroupDescriptor::has_valid_checksum(&bytes, GroupNumber(1), &superblock));
        bytes[12] ^= 1;
        assert!(!GroupDescriptor::has_valid_checksum(&bytes, GroupNumber(0), &superblock));
        let beyond = GroupDescriptor { inode_table: FsBlock(8191), ..descriptor };
        let what = "the inode table is not on the volume";
        let error = beyond.validate(GroupNumber(0), &superblock).unwrap_err();
        assert_eq!(error, Corrupt::Group { group: 0, what }.into());
    }

    /// The flags were believed on ext2 and ext3 too, where the kernel does not look at them: blocks and inodes in use were given out.
    #[test]
    fn a_group_without_checksums_was_written_whatever_its_flags_are() {
        let mut raw = sound();
        let plain = Superblock::from_raw(&raw).unwrap();
        raw.feature_ro_compat = U32::new(RoCompat::GDT_CSUM.bits());
        let checked = Superblock::from_raw(&raw).unwrap();
        let descriptor =
            GroupDescriptor { flags: GroupFlags::all(), unused_inodes: 9, ..GroupDescriptor::default() };
        let mut bytes = [0; 32];
        descriptor.write_into(&mut bytes, GroupNumber(0), &plain);
        assert_eq!(GroupDescriptor::parse(&bytes, &checked), descriptor);
        let written = GroupDescriptor::parse(&bytes, &plain);
        assert_eq!((written.flags, written.unused_inodes), (GroupFlags::INODE_ZEROED, 0));
    }
}

//! Cuts free space off the end of a volume that is not open.
//!
//! Interface: [`Shrinkable::read`] reads the groups, [`Shrinkable::minimum_blocks`] and [`Shrinkable::free_after`] say what a cut leaves, and
//! [`Shrinkable::shrink`] writes it. The caller then truncates the image. Nothing is moved: a volume that was filled with
//! [`AllocationPolicy::Packed`](diorite_ext::AllocationPolicy) has all of its free space at its end.
//!
//! Invariants:
//! 1. No block that holds data and no inode in use is cut off.
//! 2. The primary superblock is written last, after a flush. A crash before that can leave bitmaps and descriptors of the smaller volume with
//!    the superblock of the larger one, and `e2fsck` repairs them: this is for new images, which are made again.

mod clusters;

use std::ops::Range;

use diorite_block::{BlockDevice, IoError};
use diorite_ext::memory::BlockMemory;
use diorite_ext::{read_descriptors, read_superblock};
use diorite_ext_format::superblock::{STATE_ERROR, STATE_VALID};
use diorite_ext_format::{
    Compat, Corrupt, DiskInode, FsBlock, GroupDescriptor, GroupFlags, GroupNumber, Incompat, InodeNumber,
    Layout, RoCompat, Superblock, le32,
};
use zerocopy::byteorder::little_endian::{U16, U32};

use crate::growth::{DOUBLE_INDIRECT, GrowthBlocks};
use crate::heads;
use crate::writer::Writer;
use clusters::{Clusters, own_end};

/// Error of a resize. The volume is unchanged, unless the device failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// The device failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The volume cannot be read.
    #[error(transparent)]
    Volume(#[from] diorite_ext::Error),
    /// It may need recovery.
    #[error("the volume was not closed cleanly: run e2fsck -f first")]
    NotClean,
    /// It has features whose structures are not known.
    #[error("the volume has features that a resize does not know ({names}): use resize2fs")]
    UnknownFeatures {
        /// Names of the features.
        names: String,
    },
    /// Blocks or inodes that would be cut off are in use.
    #[error("{blocks} blocks are too few: blocks or inodes after them are in use; use {least} or more")]
    InUse {
        /// Requested.
        blocks: u64,
        /// The smallest size.
        least: u64,
    },
    /// The volume is smaller.
    #[error("{blocks} blocks are more than the volume has: use at most {most}, or resize2fs to enlarge it")]
    TooLarge {
        /// Requested.
        blocks: u64,
        /// Blocks of the volume.
        most: u64,
    },
}

impl From<Corrupt> for ResizeError {
    fn from(corrupt: Corrupt) -> Self {
        Self::Volume(corrupt.into())
    }
}

/// Reads single blocks.
#[derive(Debug)]
struct Reader<'d> {
    device: &'d dyn BlockDevice,
    layout: Layout,
}

impl Reader<'_> {
    fn block(&self, block: FsBlock) -> Result<BlockMemory, IoError> {
        let size = self.layout.block_size;
        let mut memory = BlockMemory::zeroed(size.bytes() as usize);
        self.device.read_bytes(size.address_of(block), &mut memory)?;
        Ok(memory)
    }
}

/// A volume whose groups were read.
#[derive(Debug)]
pub struct Shrinkable<'d> {
    reader: Reader<'d>,
    superblock: Superblock,
    layout: Layout,
    descriptors: Vec<GroupDescriptor>,
    /// Clusters in use, those of the volume itself among them.
    used: Clusters,
    /// Clusters of data.
    data: Clusters,
    /// Groups up to the last one with an inode in use.
    groups_with_inodes: u32,
}

impl<'d> Shrinkable<'d> {
    /// Read the descriptors and bitmaps of the volume on `device`.
    ///
    /// # Errors
    /// [`ResizeError::NotClean`], [`ResizeError::UnknownFeatures`], or the volume is damaged, or the device failed.
    pub fn read(device: &'d dyn BlockDevice) -> Result<Self, ResizeError> {
        let superblock = read_superblock(device)?;
        check_features(&superblock)?;
        check_clean(&superblock)?;
        let layout = Layout::new(&superblock);
        let reader = Reader { device, layout };
        let descriptors = read_descriptors(device, &superblock)?;
        for (group, descriptor) in layout.groups().zip(&descriptors) {
            descriptor.validate(group, &superblock).map_err(diorite_ext::Error::from)?;
        }
        let own = Clusters::own(&layout, &superblock, &descriptors);
        let (mut used, mut groups_with_inodes) = (own.clone(), 1);
        for (group, descriptor) in layout.groups().zip(&descriptors) {
            if !descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
                used.set_group(group, &read_block_bitmap(&reader, &superblock, group, descriptor)?);
            }
            if has_inodes(&reader, &superblock, group, descriptor)? {
                groups_with_inodes = group.0 + 1;
            }
        }
        let data = used.without(&own);
        Ok(Self { reader, superblock, layout, descriptors, used, data, groups_with_inodes })
    }

    /// The layout of the volume.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Blocks of the volume.
    pub fn blocks(&self) -> u64 {
        self.layout.blocks_count
    }

    /// The fewest blocks that the volume can have without moving anything.
    pub fn minimum_blocks(&self) -> u64 {
        let inodes_end = self.layout.first_block(GroupNumber(self.groups_with_inodes - 1)).0 + 1;
        self.valid_size(self.data.end().max(inodes_end))
    }

    /// The smallest valid size of `blocks` or more: whole clusters, with the structures of all groups that are kept. Those can be in
    /// further groups, which are then kept, too.
    fn valid_size(&self, blocks: u64) -> u64 {
        let mut blocks = self.whole_clusters(blocks);
        loop {
            let (superblock, layout) = self.cut_to(blocks);
            let end = self.whole_clusters(own_end(&layout, &superblock, &self.descriptors));
            if end <= blocks {
                return blocks.min(self.layout.blocks_count);
            }
            blocks = end;
        }
    }

    /// The free blocks of the volume with only its first `blocks` blocks, or with the [fewest](Self::minimum_blocks) that it can have.
    pub fn free_after(&self, blocks: u64) -> u64 {
        let blocks = self.valid_size(blocks.max(self.minimum_blocks()));
        let (superblock, layout) = self.cut_to(blocks);
        let clusters = layout.clusters_for(layout.blocks_count - layout.first_data_block);
        let used = self.used_after(&superblock, &layout).count();
        clusters.saturating_sub(used) * u64::from(layout.blocks_per_cluster)
    }

    /// Cut the volume to its first `blocks` blocks, rounded up to whole clusters and to the structures of the last group. Returns the new
    /// superblock.
    ///
    /// # Errors
    /// [`ResizeError::InUse`], [`ResizeError::TooLarge`], or the device failed.
    pub fn shrink(self, blocks: u64) -> Result<Superblock, ResizeError> {
        let (least, most) = (self.minimum_blocks(), self.layout.blocks_count);
        if blocks > most {
            return Err(ResizeError::TooLarge { blocks, most });
        }
        let rounded = self.valid_size(blocks);
        if rounded < least {
            return Err(ResizeError::InUse { blocks, least });
        }
        if rounded == most {
            return Ok(self.superblock);
        }
        self.write(rounded)
    }

    /// Blocks up to the end of a cluster.
    fn whole_clusters(&self, blocks: u64) -> u64 {
        let first = self.layout.first_data_block;
        first + (blocks - first.min(blocks)).next_multiple_of(u64::from(self.layout.blocks_per_cluster))
    }

    /// Superblock and layout of the volume with fewer blocks. The free counts are still the old ones.
    fn cut_to(&self, blocks: u64) -> (Superblock, Layout) {
        let (old, mut superblock) = (&self.layout, self.superblock.clone());
        let features = superblock.features();
        let groups = (blocks - old.first_data_block).div_ceil(u64::from(old.blocks_per_group)) as u32;
        let descriptor_blocks = groups.div_ceil(old.descriptors_per_block());
        let reserved = u128::from(superblock.reserved_blocks_count()) * u128::from(blocks);
        let reserved = (reserved / u128::from(old.blocks_count.max(1))) as u64;
        let raw = superblock.raw_mut();
        raw.blocks_count_lo = U32::new(blocks as u32);
        raw.r_blocks_count_lo = U32::new(reserved as u32);
        if features.has_incompat(Incompat::SIXTY_FOUR_BIT) {
            raw.blocks_count_hi = U32::new((blocks >> 32) as u32);
            raw.r_blocks_count_hi = U32::new((reserved >> 32) as u32);
        }
        raw.inodes_count = U32::new(groups * old.inodes_per_group);
        if features.has_compat(Compat::SPARSE_SUPER2) {
            let kept = raw.backup_bgs.map(|group| if group.get() < groups { group } else { U32::new(0) });
            raw.backup_bgs = kept;
        }
        if features.has_compat(Compat::RESIZE_INODE) {
            // Blocks that descriptors leave are reserved for growth, as many as the inode can name.
            let all = u32::from(old.reserved_gdt_blocks) + old.descriptor_blocks() - descriptor_blocks;
            raw.reserved_gdt_blocks = U16::new(all.min((old.block_size.bytes() / 4) as u32) as u16);
        }
        if features.has_incompat(Incompat::META_BG) {
            raw.first_meta_bg = U32::new(raw.first_meta_bg.get().min(descriptor_blocks));
        }
        let layout = Layout::new(&superblock);
        (superblock, layout)
    }

    /// The clusters in use after a cut: those of the groups that are cut off are free.
    fn used_after(&self, superblock: &Superblock, layout: &Layout) -> Clusters {
        let own = Clusters::own(layout, superblock, &self.descriptors[..layout.group_count as usize]);
        self.data.with(&own, layout)
    }

    fn write(self, blocks: u64) -> Result<Superblock, ResizeError> {
        let (mut superblock, layout) = self.cut_to(blocks);
        let used = self.used_after(&superblock, &layout);
        let mut descriptors = self.descriptors[..layout.group_count as usize].to_vec();
        let mut writer = Writer::new(self.reader.device, layout.block_size);
        self.write_bitmaps(&mut writer, &used, &layout, &mut descriptors)?;
        let free: u64 = descriptors.iter().map(|group| u64::from(group.free_clusters)).sum();
        superblock.set_free_blocks_count(free * u64::from(layout.blocks_per_cluster));
        superblock.set_free_inodes_count(descriptors.iter().map(|group| group.free_inodes).sum());
        self.set_overhead(&mut superblock, &layout);
        let mut superblock = Superblock::from_raw(superblock.raw()).map_err(diorite_ext::Error::from)?;
        if superblock.features().has_compat(Compat::RESIZE_INODE) {
            self.write_growth(&mut writer, &superblock, &layout)?;
        }
        heads::write_copies(&mut writer, &superblock, &layout, &descriptors)?;
        writer.flush()?;
        let block = self.reader.block(layout.superblock_block())?.to_vec();
        heads::write_primary(&mut writer, &mut superblock, &layout, block)?;
        Ok(superblock)
    }

    /// Write the bitmaps that differ, and that of the last group.
    fn write_bitmaps(
        &self,
        writer: &mut Writer<'_>,
        used: &Clusters,
        layout: &Layout,
        descriptors: &mut [GroupDescriptor],
    ) -> Result<(), IoError> {
        let len = layout.block_size.bytes() as usize;
        let seed = self.superblock.checksum_seed();
        let has_checksum = self.superblock.features().metadata_csum();
        let mask = if has_checksum { self.superblock.bitmap_checksum_mask() } else { 0 };
        for (group, descriptor) in layout.groups().zip(descriptors) {
            let bitmap = used.bitmap_of(group, len);
            if group.0 + 1 < layout.group_count && bitmap == self.used.bitmap_of(group, len) {
                continue;
            }
            let clusters = &bitmap[..(layout.clusters_per_group / 8) as usize];
            let free: u32 = clusters.iter().map(|byte| byte.count_zeros()).sum();
            descriptor.free_clusters = free;
            descriptor.flags.remove(GroupFlags::BLOCK_UNINIT);
            descriptor.block_bitmap_checksum = seed.bitmap(&bitmap, layout.clusters_per_group) & mask;
            writer.write(descriptor.block_bitmap, &bitmap)?;
        }
        Ok(())
    }

    /// The clusters of the volume's own structures, as `mkfs` counts them: fewer by those of the groups that are cut off.
    fn set_overhead(&self, superblock: &mut Superblock, layout: &Layout) {
        let before = Clusters::own(&self.layout, &self.superblock, &self.descriptors).count();
        let after =
            Clusters::own(layout, superblock, &self.descriptors[..layout.group_count as usize]).count();
        let raw = superblock.raw_mut();
        let overhead = u64::from(raw.overhead_blocks.get()).saturating_sub(before.saturating_sub(after));
        raw.overhead_blocks = U32::new(overhead as u32);
    }

    /// Write the resize inode for the backups that are left, and for descriptor blocks that are no longer needed.
    fn write_growth(
        &self,
        writer: &mut Writer<'_>,
        superblock: &Superblock,
        layout: &Layout,
    ) -> Result<(), ResizeError> {
        let number = InodeNumber::RESIZE;
        let place = layout.locate_inode(number).map_err(diorite_ext::Error::from)?;
        let table = self.descriptors[place.group.0 as usize].inode_table;
        let block = FsBlock(table.0 + u64::from(place.table_block));
        let mut table = self.reader.block(block)?.to_vec();
        let bytes: Range<usize> =
            place.offset as usize..place.offset as usize + usize::from(layout.inode_size);
        let parsed = DiskInode::parse(number, &table[bytes.clone()], superblock);
        let mut inode = parsed.map_err(diorite_ext::Error::from)?;
        let root = FsBlock(u64::from(le32(&inode.block, DOUBLE_INDIRECT)));
        if !layout.is_data_range(root, 1) {
            let what = "the resize inode has no double indirect block";
            return Err(Corrupt::Inode { inode: number, what }.into());
        }
        let growth = GrowthBlocks::of(layout);
        inode.sectors = growth.sectors;
        inode.write_into(number, &mut table[bytes], superblock);
        writer.write(block, &table)?;
        writer.write(root, &growth.root)?;
        // The copies hold nothing that is read. With clusters and blocks of 1 KiB, the last one is a bitmap (as in e2fsprogs).
        growth.blocks.iter().try_for_each(|(block, bytes)| writer.write(*block, bytes))?;
        Ok(())
    }
}

fn check_features(superblock: &Superblock) -> Result<(), ResizeError> {
    let mut unknown = superblock.features().unwritable();
    unknown.extend(superblock.features().unknown());
    if unknown.is_empty() {
        return Ok(());
    }
    Err(ResizeError::UnknownFeatures { names: unknown.join(", ") })
}

/// Whether nothing is left to be recovered.
fn check_clean(superblock: &Superblock) -> Result<(), ResizeError> {
    let is_closed = superblock.state() & (STATE_VALID | STATE_ERROR) == STATE_VALID;
    let features = superblock.features();
    let has_rest = features.has_incompat(Incompat::RECOVER)
        || features.has_ro_compat(RoCompat::ORPHAN_PRESENT)
        || superblock.last_orphan().is_some();
    if is_closed && !has_rest { Ok(()) } else { Err(ResizeError::NotClean) }
}

fn read_block_bitmap(
    reader: &Reader<'_>,
    superblock: &Superblock,
    group: GroupNumber,
    descriptor: &GroupDescriptor,
) -> Result<Vec<u8>, ResizeError> {
    let bitmap = reader.block(descriptor.block_bitmap)?.to_vec();
    let checksum = superblock.checksum_seed().bitmap(&bitmap, reader.layout.clusters_per_group);
    if superblock.features().metadata_csum() && !descriptor.block_bitmap_checksum_is(checksum, superblock) {
        let what = "the checksum of the block bitmap does not match";
        return Err(Corrupt::Group { group: group.0, what }.into());
    }
    Ok(bitmap)
}

/// Whether an inode of the group is in use.
fn has_inodes(
    reader: &Reader<'_>,
    superblock: &Superblock,
    group: GroupNumber,
    descriptor: &GroupDescriptor,
) -> Result<bool, ResizeError> {
    if descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
        return Ok(false);
    }
    let bitmap = reader.block(descriptor.inode_bitmap)?;
    let inodes = reader.layout.inodes_per_group;
    let checksum = superblock.checksum_seed().bitmap(&bitmap, inodes);
    if superblock.features().metadata_csum() && !descriptor.inode_bitmap_checksum_is(checksum, superblock) {
        let what = "the checksum of the inode bitmap does not match";
        return Err(Corrupt::Group { group: group.0, what }.into());
    }
    Ok(bitmap[..(inodes / 8) as usize].iter().any(|byte| *byte != 0))
}

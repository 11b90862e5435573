//! Checksums of metadata blocks: verified after a read, made before a write.

use std::sync::Arc;

use diorite_block::sync::Mutex;

use crate::allocate::Allocator;
use crate::buffer::{BlockKind, Sealer};
use crate::layout::superblock::SUPERBLOCK_SIZE;
use crate::layout::{ChecksumSeed, Layout, Superblock, le16, le32, put};
use crate::{Corrupt, FsBlock};

/// The sealer of one volume.
#[derive(Debug)]
pub(crate) struct VolumeSealer {
    pub(crate) layout: Layout,
    pub(crate) format: Arc<Superblock>,
    pub(crate) superblock: Arc<Mutex<Superblock>>,
    pub(crate) allocator: Arc<Allocator>,
}

/// Bytes of the pseudo-entry that ends a directory leaf and holds its checksum.
const DIRECTORY_TAIL: usize = 12;
/// Bytes of the magic number and checksum that end a block of the orphan file.
const ORPHAN_TAIL: usize = 8;

impl Sealer for VolumeSealer {
    fn verify(&self, block: FsBlock, kind: BlockKind, bytes: &[u8]) -> Result<(), Corrupt> {
        if !self.format.features().metadata_csum() {
            return Ok(());
        }
        let what = match kind {
            BlockKind::Plain
            | BlockKind::Superblock
            | BlockKind::GroupDescriptors(_)
            | BlockKind::InodeTable => return Ok(()),
            BlockKind::BlockBitmap(_) => "block bitmap",
            BlockKind::InodeBitmap(_) => "inode bitmap",
            BlockKind::Directory { .. } => "directory block",
            BlockKind::ExtentNode { .. } => "extent node",
            BlockKind::Xattr => "extended attribute block",
            BlockKind::OrphanFile { .. } => "orphan file block",
        };
        let right = match kind {
            BlockKind::BlockBitmap(group) => {
                let right = self.seed().bitmap(bytes, self.layout.clusters_per_group);
                self.allocator.block_bitmap_checksum(group) == right & self.format.bitmap_checksum_mask()
            }
            BlockKind::InodeBitmap(group) => {
                let right = self.seed().bitmap(bytes, self.layout.inodes_per_group);
                self.allocator.inode_bitmap_checksum(group) == right & self.format.bitmap_checksum_mask()
            }
            _ => match self.place_and_checksum(block, kind, bytes) {
                Some((place, checksum)) => le32(bytes, place) == checksum,
                None => false,
            },
        };
        if right { Ok(()) } else { Err(Corrupt::Checksum { block, what }) }
    }

    fn seal(&self, block: FsBlock, kind: BlockKind, bytes: &mut [u8]) {
        match kind {
            BlockKind::GroupDescriptors(index) => self.allocator.write_descriptors(index, &self.format, bytes),
            BlockKind::Superblock => self.write_superblock(bytes),
            _ if !self.format.features().metadata_csum() => {}
            BlockKind::BlockBitmap(group) => {
                let checksum = self.seed().bitmap(bytes, self.layout.clusters_per_group);
                self.allocator.set_block_bitmap_checksum(group, checksum);
            }
            BlockKind::InodeBitmap(group) => {
                let checksum = self.seed().bitmap(bytes, self.layout.inodes_per_group);
                self.allocator.set_inode_bitmap_checksum(group, checksum);
            }
            _ => {
                if let Some((place, checksum)) = self.place_and_checksum(block, kind, bytes) {
                    put(bytes, place, &checksum.to_le_bytes());
                }
            }
        }
    }
}

impl VolumeSealer {
    fn seed(&self) -> ChecksumSeed {
        self.format.checksum_seed()
    }

    fn write_superblock(&self, bytes: &mut [u8]) {
        let mut superblock = self.superblock.lock();
        let (blocks, inodes) = self.allocator.free_on_disk();
        superblock.set_free_blocks_count(blocks * u64::from(self.layout.blocks_per_cluster));
        superblock.set_free_inodes_count(inodes);
        let start = if self.layout.first_data_block == 0 { 1024 } else { 0 };
        if let Some(place) = bytes.get_mut(start..start + SUPERBLOCK_SIZE) {
            superblock.write_into(place);
        }
    }

    /// Where a block's checksum is and what it must be; `None` for a block that has no place for one.
    fn place_and_checksum(&self, block: FsBlock, kind: BlockKind, bytes: &[u8]) -> Option<(usize, u32)> {
        match kind {
            BlockKind::Directory { inode, generation } => {
                directory_checksum(self.seed().of_inode(inode, generation), bytes)
            }
            BlockKind::ExtentNode { inode, generation } => {
                let tail = 12 + 12 * usize::from(le16(bytes, 4));
                let covered = bytes.get(..tail).filter(|_| tail + 4 <= bytes.len())?;
                Some((tail, self.seed().of_inode(inode, generation).checksum(covered)))
            }
            BlockKind::Xattr => {
                let register = ChecksumSeed(self.seed().checksum(&block.0.to_le_bytes()));
                let register = ChecksumSeed(register.checksum(bytes.get(..16)?));
                let register = ChecksumSeed(register.checksum(&[0; 4]));
                Some((16, register.checksum(bytes.get(20..)?)))
            }
            BlockKind::OrphanFile { inode, generation } => {
                let tail = bytes.len().checked_sub(ORPHAN_TAIL)?;
                let seed = self.seed().of_inode(inode, generation);
                let register = ChecksumSeed(seed.checksum(&block.0.to_le_bytes()));
                Some((tail + 4, register.checksum(bytes.get(..tail)?)))
            }
            _ => None,
        }
    }
}

/// The checksum of a directory block: a leaf has a tail, a root or node of the index has one behind its entries.
fn directory_checksum(seed: ChecksumSeed, bytes: &[u8]) -> Option<(usize, u32)> {
    let first_len = usize::from(le16(bytes, 4));
    // A length of 0 or 65535 means the whole block where blocks have 64 KiB.
    let whole = |len: usize, left: usize| len == left || left == 65536 && (len == 0 || len == 65535);
    let size = bytes.len();
    let counts = if le32(bytes, 0) == 0 && whole(first_len, size) {
        Some(8)
    } else if first_len == 12
        && le16(bytes, 16) as usize == size - 12
        && le32(bytes, 24) == 0
        && bytes.get(29) == Some(&8)
    {
        Some(32)
    } else {
        None
    };
    let Some(counts) = counts else {
        let tail = size.checked_sub(DIRECTORY_TAIL)?;
        let is_tail = le32(bytes, tail) == 0 && le32(bytes, tail + 4) == 0xde00_000c;
        return is_tail.then(|| (tail + 8, seed.checksum(&bytes[..tail])));
    };
    let (limit, count) = (usize::from(le16(bytes, counts)), usize::from(le16(bytes, counts + 2)));
    let tail = counts + limit * 8;
    if tail + 8 > size || count > limit {
        return None;
    }
    let register = ChecksumSeed(seed.checksum(&bytes[..counts + count * 8]));
    let register = ChecksumSeed(register.checksum(&bytes[tail..tail + 4]));
    Some((tail + 4, register.checksum(&[0; 4])))
}

//! Checksums of metadata blocks: verified after a read, made before a write.

use std::sync::{Arc, Weak};

use diorite_block::sync::Mutex;

use crate::allocate::Allocator;
use crate::buffer::{BlockKind, Checksums};
use crate::layout::superblock::SUPERBLOCK_SIZE;
use crate::layout::{ChecksumSeed, Layout, Superblock, directory, extent, htree, le16, le32, orphan, xattr};
use crate::{Corrupt, FsBlock};

/// The block checksums of one volume.
#[derive(Debug)]
pub(crate) struct VolumeChecksums {
    pub(crate) layout: Layout,
    pub(crate) format: Arc<Superblock>,
    pub(crate) superblock: Arc<Mutex<Superblock>>,
    /// Not counted: the allocator has the cache, and that has the checksums.
    pub(crate) allocator: Weak<Allocator>,
}

impl Checksums for VolumeChecksums {
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
                self.allocator().block_bitmap_checksum(group) == right & self.format.bitmap_checksum_mask()
            }
            BlockKind::InodeBitmap(group) => {
                let right = self.seed().bitmap(bytes, self.layout.inodes_per_group);
                self.allocator().inode_bitmap_checksum(group) == right & self.format.bitmap_checksum_mask()
            }
            BlockKind::Directory { inode, generation } => {
                let seed = self.seed().of_inode(inode, generation);
                match index_entries(bytes) {
                    Some(entries) => {
                        has_sound_counts(bytes, entries) && htree::has_valid_checksum(bytes, entries, seed)
                    }
                    None => directory::has_valid_checksum(bytes, seed),
                }
            }
            BlockKind::ExtentNode { inode, generation } => {
                extent::Header::parse(bytes).is_ok()
                    && extent::has_valid_checksum(bytes, self.seed().of_inode(inode, generation))
            }
            BlockKind::OrphanFile { inode, generation } => {
                orphan::has_valid_checksum(bytes, block, self.seed().of_inode(inode, generation))
            }
            _ => xattr::has_valid_checksum(bytes, block, self.seed()),
        };
        if right { Ok(()) } else { Err(Corrupt::Checksum { block, what }) }
    }

    fn complete(&self, block: FsBlock, kind: BlockKind, bytes: &mut [u8]) {
        match kind {
            BlockKind::GroupDescriptors(index) => {
                self.allocator().write_descriptors(index, &self.format, bytes);
            }
            BlockKind::Superblock => self.write_superblock(bytes),
            _ if !self.format.features().metadata_csum() => {}
            BlockKind::BlockBitmap(group) => {
                let checksum = self.seed().bitmap(bytes, self.layout.clusters_per_group);
                self.allocator().set_block_bitmap_checksum(group, checksum);
            }
            BlockKind::InodeBitmap(group) => {
                let checksum = self.seed().bitmap(bytes, self.layout.inodes_per_group);
                self.allocator().set_inode_bitmap_checksum(group, checksum);
            }
            BlockKind::Directory { inode, generation } => {
                let seed = self.seed().of_inode(inode, generation);
                match index_entries(bytes) {
                    Some(entries) if has_sound_counts(bytes, entries) => {
                        htree::set_checksum(bytes, entries, seed);
                    }
                    Some(_) => {}
                    None => directory::set_checksum(bytes, seed),
                }
            }
            BlockKind::ExtentNode { inode, generation } => {
                extent::set_checksum(bytes, self.seed().of_inode(inode, generation));
            }
            BlockKind::OrphanFile { inode, generation } => {
                orphan::write_tail(bytes, block, Some(self.seed().of_inode(inode, generation)));
            }
            BlockKind::Xattr => xattr::set_checksum(bytes, block, self.seed()),
            BlockKind::Plain | BlockKind::InodeTable => {}
        }
    }
}

impl VolumeChecksums {
    fn allocator(&self) -> Arc<Allocator> {
        self.allocator
            .upgrade()
            .expect("the volume, which has the allocator, is there while blocks are completed")
    }

    fn seed(&self) -> ChecksumSeed {
        self.format.checksum_seed()
    }

    fn write_superblock(&self, bytes: &mut [u8]) {
        let mut superblock = self.superblock.lock();
        let (blocks, inodes) = self.allocator().free_on_disk();
        superblock.set_free_blocks_count(blocks * u64::from(self.layout.blocks_per_cluster));
        superblock.set_free_inodes_count(inodes);
        let start = self.layout.superblock_start();
        if let Some(place) = bytes.get_mut(start..start + SUPERBLOCK_SIZE) {
            superblock.write_into(place);
        }
    }
}

/// Where the entries of a node of a directory's index begin; `None` for a block of entries. With checksums, only
/// the index has a first entry as long as the block, or a second one that reaches to its end.
fn index_entries(bytes: &[u8]) -> Option<usize> {
    let size = bytes.len();
    let length = |offset: usize| directory::decode_entry_length(le16(bytes, offset + 4), size);
    if le32(bytes, 0) == 0 && length(0) == size {
        Some(htree::NODE_ENTRIES)
    } else if length(0) == 12 && length(12) == size - 12 {
        Some(htree::ROOT_ENTRIES)
    } else {
        None
    }
}

fn has_sound_counts(bytes: &[u8], entries: usize) -> bool {
    htree::CountLimit::parse(bytes, entries, true).is_ok()
}

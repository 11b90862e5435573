//! The blocks that the check of an inode reads, if the inode itself names them.
//!
//! Where it sits: before `inodes.rs`, which reads the blocks of many inodes at once. It only predicts: a block that is missing here is
//! read when it is needed, and a block that is not needed costs its part of a long transfer.

use diorite_ext::BlockRange;
use diorite_ext_format::extent::{Extent, Header, Index};
use diorite_ext_format::{FileKind, FsBlock, InodeFlags, le16, le32};

/// Bytes of an inode whose links, flags and blocks are read here.
const FIELDS: usize = 0x78;
/// Where an inode has its map.
const MAP: std::ops::Range<usize> = 0x28..0x64;
/// Longest target that is in the inode.
const FAST_SYMLINK_MAX: u32 = 59;
/// Attributes, and four extent nodes or three indirect blocks.
const MOST: usize = 5;

/// The attribute block of the inode in `raw`, the next level of its map, and the target of a symbolic link.
pub(super) fn blocks_named_by(raw: &[u8]) -> impl Iterator<Item = BlockRange> + use<> {
    let mut blocks = [0; MOST];
    if raw.len() >= FIELDS && le16(raw, 0x1a) != 0 {
        blocks[0] = u64::from(le32(raw, 0x68)) | u64::from(le16(raw, 0x76)) << 32;
        name_map_blocks(raw, &mut blocks[1..]);
    }
    blocks.into_iter().filter(|block| *block != 0).map(|block| (FsBlock(block), 1))
}

fn name_map_blocks(raw: &[u8], blocks: &mut [u64]) {
    let kind = FileKind::from_mode(le16(raw, 0));
    let flags = InodeFlags::from_bits_retain(le32(raw, 0x20));
    let is_long_target = kind == Some(FileKind::Symlink) && le32(raw, 4) > FAST_SYMLINK_MAX;
    let is_mapped = is_long_target || matches!(kind, Some(FileKind::Regular | FileKind::Directory));
    if !is_mapped || flags.contains(InodeFlags::INLINE_DATA) {
        return;
    }
    let map = &raw[MAP];
    if flags.contains(InodeFlags::EXTENTS) {
        let Ok(root) = Header::parse(map) else { return };
        for (slot, block) in blocks.iter_mut().enumerate().take(root.entries.into()) {
            match root.depth {
                0 if is_long_target && slot == 0 => *block = Extent::parse(map, slot).block.0,
                0 => {}
                _ => *block = Index::parse(map, slot).block.0,
            }
        }
    } else if is_long_target {
        blocks[0] = u64::from(le32(map, 0));
    } else {
        for (slot, block) in (12..15).zip(blocks) {
            *block = u64::from(le32(map, slot * 4));
        }
    }
}

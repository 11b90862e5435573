//! The orphan file: blocks of inode numbers of files that were removed while open.
//!
//! On disk, each block: inode numbers (0 for free), then magic (4) and checksum (4) at the end.

use crate::checksum::crc32c;
use crate::{ChecksumSeed, DiskInode, FsBlock, InodeNumber, Superblock, le32, put};

/// The number at the end of each block.
pub const MAGIC: u32 = 0x0b10_ca04;
/// Bytes of magic number and checksum.
pub const TAIL_SIZE: usize = 8;
/// The kernel does not mount a volume whose orphan file is larger.
pub const MAX_FILE_BYTES: u64 = 8 << 20;

/// The fields of an inode that can be an orphan. `inode` is `None` if there is no such inode, or it cannot be parsed.
///
/// As in e2fsck, a directory that has a name can be one.
///
/// # Errors
/// Why it cannot be one.
pub fn check_inode(
    number: InodeNumber,
    inode: Option<DiskInode>,
    superblock: &Superblock,
) -> Result<DiskInode, &'static str> {
    if number < superblock.first_inode() || number.0 > superblock.inodes_count() {
        return Err("its number is not that of a file");
    }
    let inode = inode.ok_or("the inode is damaged")?;
    if inode.kind().is_some() { Ok(inode) } else { Err("it is a free inode") }
}

/// Inode numbers that fit in a block.
pub const fn entries_per_block(block_size: usize) -> usize {
    (block_size - TAIL_SIZE) / 4
}

/// The numbers of a block that are not 0, with their place.
pub fn entries(block: &[u8]) -> impl Iterator<Item = (usize, InodeNumber)> + '_ {
    (0..entries_per_block(block.len()))
        .map(|index| (index, InodeNumber(le32(block, index * 4))))
        .filter(|(_, inode)| inode.0 != 0)
}

/// Whether the block ends in the magic number.
pub fn has_magic(block: &[u8]) -> bool {
    le32(block, block.len() - TAIL_SIZE) == MAGIC
}

/// The checksum of the block at `at`; `seed` is the orphan file's own.
pub fn checksum(block: &[u8], at: FsBlock, seed: ChecksumSeed) -> u32 {
    let register = crc32c(seed.0, &at.0.to_le_bytes());
    crc32c(register, &block[..entries_per_block(block.len()) * 4])
}

/// Whether the checksum of the block at `at` is right.
pub fn has_valid_checksum(block: &[u8], at: FsBlock, seed: ChecksumSeed) -> bool {
    le32(block, block.len() - 4) == checksum(block, at, seed)
}

/// Store magic number and checksum.
pub fn write_tail(block: &mut [u8], at: FsBlock, seed: Option<ChecksumSeed>) {
    let end = block.len();
    put(block, end - TAIL_SIZE, &MAGIC.to_le_bytes());
    let checksum = seed.map_or(0, |seed| checksum(block, at, seed));
    put(block, end - 4, &checksum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_names_its_orphans_and_knows_its_place() {
        let (mut block, seed) = ([0; 1024], ChecksumSeed(3));
        put(&mut block, 8, &12_u32.to_le_bytes());
        put(&mut block, 4 * (entries_per_block(1024) - 1), &13_u32.to_le_bytes());
        write_tail(&mut block, FsBlock(9), Some(seed));
        assert_eq!(entries(&block).collect::<Vec<_>>(), [(2, InodeNumber(12)), (253, InodeNumber(13))]);
        assert!(has_magic(&block) && has_valid_checksum(&block, FsBlock(9), seed));
        assert!(!has_valid_checksum(&block, FsBlock(10), seed));
    }
}

//! The extent tree: nodes of sorted entries, in the inode or in a block.
//!
//! On disk: a header of 12 bytes (magic, entries, capacity, depth, generation), then entries of 12 bytes: in a leaf (depth 0) runs of
//! blocks, above it the children. A node in a block ends in a checksum directly after its capacity.

use crate::checksum::crc32c;
use crate::{ChecksumSeed, le16, le32, put};
use crate::{FileBlock, FsBlock};

/// The number at the start of each node.
pub const MAGIC: u16 = 0xf30a;
/// Bytes of a header, and of an entry.
pub const ENTRY_SIZE: usize = 12;
/// Deepest tree.
pub const MAX_DEPTH: u16 = 5;
/// Longest written extent, in blocks.
pub const MAX_WRITTEN: u32 = 32768;
/// Longest unwritten extent, in blocks.
pub const MAX_UNWRITTEN: u32 = 32767;

/// The head of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Entries in use.
    pub entries: u16,
    /// Entries that fit.
    pub capacity: u16,
    /// Levels below; 0 for a leaf.
    pub depth: u16,
    /// Generation (unused by everyone).
    pub generation: u32,
}

impl Header {
    /// The header at the start of `node`, checked: magic, capacity against the node's size, depth.
    ///
    /// # Errors
    /// The damage.
    pub fn parse(node: &[u8]) -> Result<Self, &'static str> {
        if node.len() < 2 * ENTRY_SIZE || le16(node, 0) != MAGIC {
            return Err("an extent node has no magic number");
        }
        let header = Self {
            entries: le16(node, 2),
            capacity: le16(node, 4),
            depth: le16(node, 6),
            generation: le32(node, 8),
        };
        let fits = (node.len() - ENTRY_SIZE) / ENTRY_SIZE;
        if header.capacity == 0 || usize::from(header.capacity) > fits {
            return Err("an extent node claims more entries than fit");
        }
        if header.entries > header.capacity {
            return Err("an extent node has more entries than it can hold");
        }
        if header.depth > MAX_DEPTH {
            return Err("an extent tree is too deep");
        }
        if header.depth > 0 && header.entries == 0 {
            return Err("an inner extent node is empty");
        }
        Ok(header)
    }

    /// Store at the start of `node`.
    pub fn write_into(&self, node: &mut [u8]) {
        put(node, 0, &MAGIC.to_le_bytes());
        put(node, 2, &self.entries.to_le_bytes());
        put(node, 4, &self.capacity.to_le_bytes());
        put(node, 6, &self.depth.to_le_bytes());
        put(node, 8, &self.generation.to_le_bytes());
    }

    /// Entries that fit in a node of `bytes` with a checksum after them (or in the inode, which has none but the
    /// same arithmetic gives 4).
    pub const fn capacity_of(bytes: usize) -> u16 {
        ((bytes - ENTRY_SIZE) / ENTRY_SIZE) as u16
    }
}

/// The offset of entry `index` of a node.
pub const fn entry_offset(index: usize) -> usize {
    ENTRY_SIZE + index * ENTRY_SIZE
}

/// A run of blocks: an entry of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First block in the file.
    pub start: FileBlock,
    /// Blocks, at least 1 in a sound tree.
    pub blocks: u32,
    /// First block on the volume.
    pub block: FsBlock,
    /// Whether the blocks hold no data yet.
    pub unwritten: bool,
}

impl Extent {
    /// Entry `index` of a leaf; zeros beyond its end.
    pub fn parse(node: &[u8], index: usize) -> Self {
        Self::from_entry(node.get(entry_offset(index)..).unwrap_or_default())
    }

    /// The extent that a stored entry describes.
    pub fn from_entry(entry: &[u8]) -> Self {
        let length = u32::from(le16(entry, 4));
        let unwritten = length > MAX_WRITTEN;
        Self {
            start: FileBlock(u64::from(le32(entry, 0))),
            blocks: if unwritten { length - MAX_WRITTEN } else { length },
            block: FsBlock(u64::from(le32(entry, 8)) | u64::from(le16(entry, 6)) << 32),
            unwritten,
        }
    }

    /// As it is stored.
    pub fn to_entry(&self) -> [u8; ENTRY_SIZE] {
        let most = if self.unwritten { MAX_UNWRITTEN } else { MAX_WRITTEN };
        assert!((1..=most).contains(&self.blocks), "an extent of {} blocks", self.blocks);
        let length = if self.unwritten { self.blocks + MAX_WRITTEN } else { self.blocks };
        let mut entry = [0; ENTRY_SIZE];
        put(&mut entry, 0, &(self.start.0 as u32).to_le_bytes());
        put(&mut entry, 4, &(length as u16).to_le_bytes());
        put(&mut entry, 6, &((self.block.0 >> 32) as u16).to_le_bytes());
        put(&mut entry, 8, &(self.block.0 as u32).to_le_bytes());
        entry
    }

    /// First file block after the run.
    pub fn end(&self) -> FileBlock {
        FileBlock(self.start.0 + u64::from(self.blocks))
    }
}

/// A child: an entry of an inner node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    /// First block of the file that the child maps.
    pub start: FileBlock,
    /// The child's block.
    pub block: FsBlock,
}

impl Index {
    /// Entry `index` of an inner node; zeros beyond its end.
    pub fn parse(node: &[u8], index: usize) -> Self {
        Self::from_entry(node.get(entry_offset(index)..).unwrap_or_default())
    }

    /// The child that a stored entry points to.
    pub fn from_entry(entry: &[u8]) -> Self {
        Self {
            start: FileBlock(u64::from(le32(entry, 0))),
            block: FsBlock(u64::from(le32(entry, 4)) | u64::from(le16(entry, 8)) << 32),
        }
    }

    /// As it is stored.
    pub fn to_entry(&self) -> [u8; ENTRY_SIZE] {
        let mut entry = [0; ENTRY_SIZE];
        put(&mut entry, 0, &(self.start.0 as u32).to_le_bytes());
        put(&mut entry, 4, &(self.block.0 as u32).to_le_bytes());
        put(&mut entry, 8, &((self.block.0 >> 32) as u16).to_le_bytes());
        entry
    }
}

/// The offset of the checksum of a node in a block.
fn tail_offset(node: &[u8]) -> usize {
    entry_offset(usize::from(le16(node, 4)))
}

/// Whether the checksum of a node in a block is right; `seed` is the inode's own.
pub fn has_valid_checksum(node: &[u8], seed: ChecksumSeed) -> bool {
    let tail = tail_offset(node);
    node.len() >= tail + 4 && le32(node, tail) == crc32c(seed.0, &node[..tail])
}

/// Store the checksum of a node in a block.
pub fn set_checksum(node: &mut [u8], seed: ChecksumSeed) {
    let tail = tail_offset(node);
    let checksum = crc32c(seed.0, &node[..tail]);
    put(node, tail, &checksum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_48_bits_and_whether_they_are_written() {
        let mut node = vec![0; 1024];
        Header { entries: 2, capacity: Header::capacity_of(1024), depth: 0, generation: 0 }
            .write_into(&mut node);
        assert_eq!(Header::parse(&node).unwrap().capacity, 84);
        assert_eq!(Header::capacity_of(60), 4);
        for unwritten in [false, true] {
            for blocks in [1, MAX_UNWRITTEN] {
                let extent =
                    Extent { start: FileBlock(9), blocks, block: FsBlock(0x1234_5678_9abc), unwritten };
                put(&mut node, entry_offset(1), &extent.to_entry());
                assert_eq!(Extent::parse(&node, 1), extent);
            }
        }
        let index = Index { start: FileBlock(7), block: FsBlock(0xffff_0000_0001) };
        put(&mut node, entry_offset(83), &index.to_entry());
        assert_eq!(Index::parse(&node, 83), index);
        set_checksum(&mut node, ChecksumSeed(1));
        assert!(has_valid_checksum(&node, ChecksumSeed(1)));
        node[20] ^= 1;
        assert!(!has_valid_checksum(&node, ChecksumSeed(1)));
    }
}

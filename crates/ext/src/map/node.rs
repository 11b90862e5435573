//! A node of an extent tree: 12 bytes of header, then entries of 12 bytes.
//!
//! On disk (little-endian): header: 0 magic `0xf30a`, 2 entries, 4 most entries, 6 depth (0: a leaf), 8 generation. A leaf's
//! entry: 0 first file block, 4 length (above 32768: unwritten, length minus 32768), 6 block bits 32 to 47, 8 block bits 0 to 31.
//! An index entry: 0 first file block below it, 4 node bits 0 to 31, 8 node bits 32 to 47. The root is in the inode's 60 bytes.

use crate::layout::{le16, le32};
use crate::{FileBlock, FsBlock, Mapping, MappingKind};

/// Bytes of a header, and of an entry.
pub(crate) const ENTRY: usize = 12;
/// Most levels below the root that the format allows.
pub(crate) const MAX_DEPTH: u16 = 5;
/// Longest written extent.
pub(crate) const MAX_WRITTEN: u64 = 32768;
/// Longest unwritten extent.
pub(crate) const MAX_UNWRITTEN: u64 = 32767;
/// File blocks are numbered with 32 bits.
pub(crate) const MAX_FILE_BLOCKS: u64 = 1 << 32;

const MAGIC: u16 = 0xf30a;

/// An entry as stored; its first four bytes are its key.
pub(crate) type RawEntry = [u8; ENTRY];

/// A header, checked against its node's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Entries in use.
    pub(crate) entries: u16,
    /// Entries that there is room for.
    pub(crate) max: u16,
    /// Levels below.
    pub(crate) depth: u16,
}

impl Header {
    /// The header of `node`; `expected_depth` as the parent says.
    pub(crate) fn parse(node: &[u8], expected_depth: Option<u16>) -> Result<Self, &'static str> {
        let header = Self { entries: le16(node, 2), max: le16(node, 4), depth: le16(node, 6) };
        if le16(node, 0) != MAGIC {
            return Err("an extent node without its magic number");
        }
        if usize::from(header.max) > (node.len() - ENTRY) / ENTRY || header.max == 0 {
            return Err("an extent node that claims more entries than fit");
        }
        if header.entries > header.max {
            return Err("an extent node with more entries than its maximum");
        }
        if header.depth > MAX_DEPTH || expected_depth.is_some_and(|depth| depth != header.depth) {
            return Err("an extent node of the wrong depth");
        }
        Ok(header)
    }

    /// Store it.
    pub(crate) fn write(self, node: &mut [u8]) {
        node[0..2].copy_from_slice(&MAGIC.to_le_bytes());
        node[2..4].copy_from_slice(&self.entries.to_le_bytes());
        node[4..6].copy_from_slice(&self.max.to_le_bytes());
        node[6..8].copy_from_slice(&self.depth.to_le_bytes());
    }
}

/// Make the inode's block area a tree without extents.
pub(crate) fn write_empty_root(block: &mut [u8; 60]) {
    *block = [0; 60];
    Header { entries: 0, max: 4, depth: 0 }.write(block);
}

/// The key of entry `index`.
pub(crate) fn key(node: &[u8], index: usize) -> u32 {
    le32(node, ENTRY + index * ENTRY)
}

/// The last entry whose key is at most `at`, if any.
pub(crate) fn position(node: &[u8], entries: u16, at: u32) -> Option<usize> {
    let (mut low, mut high) = (0usize, usize::from(entries));
    while low < high {
        let middle = usize::midpoint(low, high);
        if key(node, middle) <= at { low = middle + 1 } else { high = middle }
    }
    low.checked_sub(1)
}

/// All entries in use.
pub(crate) fn entries(node: &[u8], count: u16) -> Vec<RawEntry> {
    let used = node.get(ENTRY..).unwrap_or_default().chunks_exact(ENTRY).take(count.into());
    used.map(|entry| entry.try_into().expect("chunks of that size")).collect()
}

/// The key of a stored entry.
pub(crate) fn key_of(entry: &RawEntry) -> u32 {
    le32(entry, 0)
}

/// The node that an index entry points to.
pub(crate) fn child_of(entry: &[u8]) -> FsBlock {
    FsBlock(u64::from(le32(entry, 4)) | u64::from(le16(entry, 8)) << 32)
}

/// An index entry.
pub(crate) fn index_entry(key: u32, child: FsBlock) -> RawEntry {
    let mut entry = [0; ENTRY];
    entry[0..4].copy_from_slice(&key.to_le_bytes());
    entry[4..8].copy_from_slice(&(child.0 as u32).to_le_bytes());
    entry[8..10].copy_from_slice(&((child.0 >> 32) as u16).to_le_bytes());
    entry
}

/// The stretch that a leaf's entry describes.
pub(crate) fn extent_of(entry: &[u8]) -> Mapping {
    let raw_len = u64::from(le16(entry, 4));
    let block = FsBlock(u64::from(le32(entry, 8)) | u64::from(le16(entry, 6)) << 32);
    let start = FileBlock(u64::from(le32(entry, 0)));
    if raw_len > MAX_WRITTEN {
        Mapping { start, blocks: raw_len - MAX_WRITTEN, kind: MappingKind::Unwritten(block) }
    } else {
        Mapping { start, blocks: raw_len, kind: MappingKind::Mapped(block) }
    }
}

/// The leaf entry for a stretch that is not longer than one extent can be.
pub(crate) fn extent_entry(extent: &Mapping) -> RawEntry {
    let (block, raw_len) = match extent.kind {
        MappingKind::Mapped(block) => (block, extent.blocks),
        MappingKind::Unwritten(block) => (block, extent.blocks + MAX_WRITTEN),
        MappingKind::Hole | MappingKind::Inline => unreachable!("only what has blocks is an extent"),
    };
    assert!(extent.blocks > 0 && extent.blocks <= max_len(extent), "an extent that cannot be stored");
    let mut entry = [0; ENTRY];
    entry[0..4].copy_from_slice(&(extent.start.0 as u32).to_le_bytes());
    entry[4..6].copy_from_slice(&(raw_len as u16).to_le_bytes());
    entry[6..8].copy_from_slice(&((block.0 >> 32) as u16).to_le_bytes());
    entry[8..12].copy_from_slice(&(block.0 as u32).to_le_bytes());
    entry
}

/// How long an extent of this kind may be.
pub(crate) fn max_len(extent: &Mapping) -> u64 {
    if matches!(extent.kind, MappingKind::Unwritten(_)) { MAX_UNWRITTEN } else { MAX_WRITTEN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_survive_their_encoding() {
        for (blocks, kind) in [
            (1, MappingKind::Mapped(FsBlock(1))),
            (MAX_WRITTEN, MappingKind::Mapped(FsBlock((1 << 48) - 1))),
            (1, MappingKind::Unwritten(FsBlock(7 << 32))),
            (MAX_UNWRITTEN, MappingKind::Unwritten(FsBlock(9))),
        ] {
            let extent = Mapping { start: FileBlock(0xffff_0000), blocks, kind };
            assert_eq!(extent_of(&extent_entry(&extent)), extent);
        }
        assert_eq!(child_of(&index_entry(3, FsBlock(0x1234_5678_9abc))), FsBlock(0x1234_5678_9abc));
    }
}

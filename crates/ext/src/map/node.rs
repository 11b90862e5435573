//! The nodes of an extent tree as lists of stored entries: what the tree's changes edit.
//!
//! The layout of headers and entries is [`crate::layout::extent`]'s; here are searches, and conversions to and from
//! [`Mapping`].

use crate::layout::extent::{ENTRY_SIZE, Extent, Index, MAX_UNWRITTEN, MAX_WRITTEN};
use crate::layout::le32;
use crate::{FileBlock, FsBlock, Mapping, MappingKind};

pub(crate) use crate::layout::extent::{Header, MAX_DEPTH};

/// Bytes of a header, and of an entry.
pub(crate) const ENTRY: usize = ENTRY_SIZE;
/// File blocks are numbered with 32 bits.
pub(crate) const MAX_FILE_BLOCKS: u64 = 1 << 32;

/// An entry as stored; its first four bytes are its key.
pub(crate) type RawEntry = [u8; ENTRY];

/// The header of `node`, checked; `expected_depth` as the parent says.
pub(crate) fn header_of(node: &[u8], expected_depth: Option<u16>) -> Result<Header, &'static str> {
    let header = Header::parse(node)?;
    if expected_depth.is_some_and(|depth| depth != header.depth) {
        return Err("an extent node of the wrong depth");
    }
    Ok(header)
}

/// Make the inode's block area a tree without extents.
pub(crate) fn write_empty_root(block: &mut [u8; 60]) {
    *block = [0; 60];
    let capacity = Header::capacity_of(block.len());
    Header { entries: 0, capacity, depth: 0, generation: 0 }.write_into(block);
}

/// Whether the inode's block area is a sound tree without extents.
pub(crate) fn is_empty_root(block: &[u8; 60]) -> bool {
    Header::parse(block).is_ok_and(|header| header.entries == 0)
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
    Index::from_entry(entry).block
}

/// An index entry.
pub(crate) fn index_entry(key: u32, child: FsBlock) -> RawEntry {
    Index { start: FileBlock(u64::from(key)), block: child }.to_entry()
}

/// The mapping that a leaf's entry describes.
pub(crate) fn extent_of(entry: &[u8]) -> Mapping {
    let Extent { start, blocks, block, unwritten } = Extent::from_entry(entry);
    let kind = if unwritten { MappingKind::Unwritten(block) } else { MappingKind::Mapped(block) };
    Mapping { start, blocks: u64::from(blocks), kind }
}

/// The leaf entry for a mapping that is not longer than one extent can be.
pub(crate) fn extent_entry(extent: &Mapping) -> RawEntry {
    let (block, unwritten) = match extent.kind {
        MappingKind::Mapped(block) => (block, false),
        MappingKind::Unwritten(block) => (block, true),
        MappingKind::Hole | MappingKind::Inline => unreachable!("only what has blocks is an extent"),
    };
    Extent { start: extent.start, blocks: extent.blocks as u32, block, unwritten }.to_entry()
}

/// How long an extent of this kind may be.
pub(crate) fn max_len(extent: &Mapping) -> u64 {
    u64::from(if matches!(extent.kind, MappingKind::Unwritten(_)) { MAX_UNWRITTEN } else { MAX_WRITTEN })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_survive_their_encoding() {
        for (blocks, kind) in [
            (1, MappingKind::Mapped(FsBlock(1))),
            (u64::from(MAX_WRITTEN), MappingKind::Mapped(FsBlock((1 << 48) - 1))),
            (1, MappingKind::Unwritten(FsBlock(7 << 32))),
            (u64::from(MAX_UNWRITTEN), MappingKind::Unwritten(FsBlock(9))),
        ] {
            let extent = Mapping { start: FileBlock(0xffff_0000), blocks, kind };
            assert_eq!(extent_of(&extent_entry(&extent)), extent);
        }
        assert_eq!(child_of(&index_entry(3, FsBlock(0x1234_5678_9abc))), FsBlock(0x1234_5678_9abc));
    }
}

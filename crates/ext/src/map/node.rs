//! The nodes of an extent tree as lists of stored entries, which changes of the tree edit.
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

/// The common case of a file that grows: make the extent before `piece` longer in place, if it is the root's last one.
pub(super) fn extend_last(block: &mut [u8; 60], piece: &Mapping) -> bool {
    let Ok(header) = header_of(block, None) else { return false };
    if header.depth != 0 || header.entries == 0 {
        return false;
    }
    let last = usize::from(header.entries) * ENTRY;
    let extent = extent_of(&block[last..last + ENTRY]);
    let blocks = extent.blocks + piece.blocks;
    if extent.end() != piece.start.0 || !extent.goes_on_with(piece) || blocks > max_len(&extent) {
        return false;
    }
    let longer = Mapping { blocks, ..extent };
    block[last..last + ENTRY].copy_from_slice(&extent_entry(&longer));
    true
}

/// Store a header with the right count, and the entries; zero the rest.
pub(super) fn write_node(bytes: &mut [u8], header: Header, entries: &[RawEntry]) {
    Header { entries: entries.len() as u16, ..header }.write_into(bytes);
    let area = &mut bytes[ENTRY..ENTRY + usize::from(header.capacity) * ENTRY];
    for (place, entry) in area.chunks_exact_mut(ENTRY).zip(entries) {
        place.copy_from_slice(entry);
    }
    area[entries.len() * ENTRY..].fill(0);
}

/// A leaf's entries with the other kind from `at` on, as far as one extent of them goes or a converted one may: up to where.
pub(super) fn with_converted(
    entries: &[RawEntry],
    at: u64,
    end: u64,
    to: fn(FsBlock) -> MappingKind,
) -> Result<(Vec<RawEntry>, u64), &'static str> {
    let place = entries.partition_point(|entry| u64::from(key_of(entry)) <= at);
    let extent = place.checked_sub(1).map(|index| extent_of(&entries[index]));
    let Some(extent) = extent.filter(|extent| at < extent.end()) else {
        return Err("no extent at blocks of a conversion");
    };
    let from = extent.part(FileBlock(at), u64::MAX).kind;
    let (MappingKind::Mapped(block) | MappingKind::Unwritten(block)) = from else {
        return Err("an extent without blocks");
    };
    if from == to(block) {
        return Err("an extent is written, or unwritten, already");
    }
    let converted = Mapping { start: FileBlock(at), blocks: u64::MAX, kind: to(block) };
    let upto = end.min(extent.end()).min(at + max_len(&converted));
    let mut pieces = vec![Mapping { blocks: upto - at, ..converted }];
    if extent.start.0 < at {
        pieces.push(extent.part(extent.start, at - extent.start.0));
    }
    if upto < extent.end() {
        pieces.push(extent.part(FileBlock(upto), u64::MAX));
    }
    let mut entries = entries.to_vec();
    entries.remove(place - 1);
    for piece in pieces {
        entries = with_extent(&entries, &piece)?;
    }
    Ok((entries, upto))
}

/// A leaf's entries with one more extent, merged with its neighbours where they go on.
pub(super) fn with_extent(entries: &[RawEntry], extent: &Mapping) -> Result<Vec<RawEntry>, &'static str> {
    let place = entries.partition_point(|entry| u64::from(key_of(entry)) < extent.start.0);
    let before = place.checked_sub(1).map(|index| extent_of(&entries[index]));
    let after = entries.get(place).map(|entry| extent_of(entry));
    if before.is_some_and(|before| before.end() > extent.start.0)
        || after.is_some_and(|after| after.start.0 < extent.end())
    {
        return Err("an extent where there should be a hole");
    }
    let joins = |a: &Mapping, b: &Mapping| {
        a.end() == b.start.0 && a.goes_on_with(b) && a.blocks + b.blocks <= max_len(a)
    };
    let (mut merged, mut first, mut last) = (*extent, place, place);
    if let Some(before) = before.filter(|before| joins(before, &merged)) {
        merged = Mapping { blocks: before.blocks + merged.blocks, ..before };
        first -= 1;
    }
    if let Some(after) = after.filter(|after| joins(&merged, after)) {
        merged.blocks += after.blocks;
        last += 1;
    }
    let mut result = Vec::with_capacity(entries.len() + 1);
    result.extend_from_slice(&entries[..first]);
    result.push(extent_entry(&merged));
    result.extend_from_slice(&entries[last..]);
    Ok(result)
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

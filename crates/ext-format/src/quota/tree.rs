//! The tree of a quota file: finds a number's entry, and makes one.
//!
//! Invariants:
//! 1. Block numbers from the file are checked before they are followed; the depth is fixed, so no loop can be entered.
//! 2. Space is found before anything changes: an insertion that finds no space leaves the tree as it was.

use crate::quota::{
    BLOCK_SIZE, DEPTH, ENTRIES, EntriesHeader, QuotaEntry, QuotaHeader, ROOT, reference_offset,
};
use crate::{Error, Incompatible};
use crate::{le32, put};

/// A block of a quota file.
pub type QuotaBlock = [u8; BLOCK_SIZE];

/// The blocks of a quota file.
pub trait QuotaBlocks {
    /// Why they cannot be read or written.
    type Error;
    /// The content of a block.
    ///
    /// # Errors
    /// They cannot be read.
    fn read(&mut self, block: u32) -> Result<QuotaBlock, Self::Error>;
    /// Replace a block's content.
    ///
    /// # Errors
    /// They cannot be written.
    fn write(&mut self, block: u32, bytes: &QuotaBlock) -> Result<(), Self::Error>;
    /// Make the file at least this number of blocks long; new blocks are zero.
    ///
    /// # Errors
    /// There is no space.
    fn grow(&mut self, blocks: u32) -> Result<(), Self::Error>;
    /// The error for a file that contradicts itself.
    fn corrupt(&self, what: &'static str) -> Self::Error;
}

/// The place of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Block of entries.
    pub block: u32,
    /// The index of the entry in the block.
    pub index: usize,
}

/// The part of the path to a number that exists in the tree.
enum TreePath {
    /// To this block of entries.
    Entries(u32),
    /// To this block of the tree, at this level; it leads no further.
    Ends { block: u32, level: u32 },
}

fn way_to<B: QuotaBlocks>(blocks: &mut B, header: &QuotaHeader, id: u32) -> Result<TreePath, B::Error> {
    let mut block = ROOT;
    for level in 0..DEPTH {
        let next = le32(&blocks.read(block)?, reference_offset(id, level));
        if next == 0 {
            return Ok(TreePath::Ends { block, level });
        }
        if !header.has(next) {
            return Err(blocks.corrupt("the quota file's tree points beyond its end"));
        }
        block = next;
    }
    Ok(TreePath::Entries(block))
}

fn slot_of<B: QuotaBlocks>(blocks: &mut B, block: u32, id: u32) -> Result<Slot, B::Error> {
    let bytes = blocks.read(block)?;
    let has_id = |index: &usize| QuotaEntry::parse(&bytes, *index).is_some_and(|entry| entry.id == id);
    match (0..ENTRIES).find(has_id) {
        Some(index) => Ok(Slot { block, index }),
        None => Err(blocks.corrupt("the quota file's tree leads to a block without the entry")),
    }
}

/// The entry of `id`, if it has one.
///
/// # Errors
/// Those of the blocks, and [`QuotaBlocks::corrupt`] for a tree that contradicts itself.
pub fn find<B: QuotaBlocks>(blocks: &mut B, header: &QuotaHeader, id: u32) -> Result<Option<Slot>, B::Error> {
    match way_to(blocks, header, id)? {
        TreePath::Entries(block) => slot_of(blocks, block, id).map(Some),
        TreePath::Ends { .. } => Ok(None),
    }
}

/// The entry of `id`, made if it has none. The caller stores the header if it changed.
///
/// # Errors
/// As [`find`].
pub fn find_or_insert<B: QuotaBlocks>(
    blocks: &mut B,
    header: &mut QuotaHeader,
    id: u32,
) -> Result<Slot, B::Error> {
    let (mut parent, level) = match way_to(blocks, header, id)? {
        TreePath::Entries(block) => return slot_of(blocks, block, id),
        TreePath::Ends { block, level } => (block, level),
    };
    let missing = DEPTH - 1 - level + u32::from(header.free_entry == 0);
    ensure_free_blocks(blocks, header, missing)?;
    for level in level..DEPTH - 1 {
        let child = take_block(blocks, header)?;
        refer(blocks, parent, reference_offset(id, level), child)?;
        parent = child;
    }
    let slot = take_slot(blocks, header, id)?;
    refer(blocks, parent, reference_offset(id, DEPTH - 1), slot.block)?;
    Ok(slot)
}

/// See to it that `requested` blocks can be taken.
fn ensure_free_blocks<B: QuotaBlocks>(
    blocks: &mut B,
    header: &QuotaHeader,
    requested: u32,
) -> Result<(), B::Error> {
    let (mut listed, mut next) = (0, header.free_block);
    while next != 0 && listed < requested {
        if !header.has(next) {
            return Err(blocks.corrupt("the quota file's list of free blocks points beyond its end"));
        }
        next = EntriesHeader::parse(&blocks.read(next)?).next;
        listed += 1;
    }
    let full = "the quota file has as many blocks as it can";
    let end = header.blocks.checked_add(requested - listed).ok_or_else(|| blocks.corrupt(full))?;
    if listed < requested { blocks.grow(end) } else { Ok(()) }
}

/// A zeroed block, after [`ensure_free_blocks`].
fn take_block<B: QuotaBlocks>(blocks: &mut B, header: &mut QuotaHeader) -> Result<u32, B::Error> {
    let block = header.free_block;
    let block = if block == 0 {
        header.blocks += 1;
        header.blocks - 1
    } else {
        header.free_block = EntriesHeader::parse(&blocks.read(block)?).next;
        block
    };
    blocks.write(block, &[0; BLOCK_SIZE])?;
    Ok(block)
}

fn refer<B: QuotaBlocks>(blocks: &mut B, from: u32, offset: usize, to: u32) -> Result<(), B::Error> {
    let mut bytes = blocks.read(from)?;
    put(&mut bytes, offset, &to.to_le_bytes());
    blocks.write(from, &bytes)
}

/// A free slot, taken for `id`.
fn take_slot<B: QuotaBlocks>(blocks: &mut B, header: &mut QuotaHeader, id: u32) -> Result<Slot, B::Error> {
    if header.free_entry == 0 {
        header.free_entry = take_block(blocks, header)?;
    }
    let block = header.free_entry;
    let mut bytes = blocks.read(block)?;
    let mut entries = EntriesHeader::parse(&bytes);
    let free = |index: &usize| QuotaEntry::parse(&bytes, *index).is_none();
    let Some(index) = (0..ENTRIES).find(free) else {
        return Err(blocks.corrupt("a block of the quota file is full, but listed as having space"));
    };
    entries.used = entries.used.saturating_add(1);
    if usize::from(entries.used) >= ENTRIES {
        header.free_entry = std::mem::take(&mut entries.next);
        entries.previous = 0;
        let next = header.free_entry;
        if next != 0 {
            if !header.has(next) {
                return Err(blocks.corrupt("the quota file's list of entries points beyond its end"));
            }
            let mut bytes = blocks.read(next)?;
            EntriesHeader { previous: 0, ..EntriesHeader::parse(&bytes) }.write_into(&mut bytes);
            blocks.write(next, &bytes)?;
        }
    }
    entries.write_into(&mut bytes);
    QuotaEntry { id, ..QuotaEntry::default() }.write_into(&mut bytes, index);
    blocks.write(block, &bytes)?;
    Ok(Slot { block, index })
}

/// A quota file in memory, for mkfs and for tests.
#[derive(Clone, Debug)]
pub struct MemoryBlocks {
    /// Its content.
    pub bytes: Vec<u8>,
}

impl Default for MemoryBlocks {
    /// An empty tree: header (still to be stored) and root.
    fn default() -> Self {
        Self { bytes: vec![0; 2 * BLOCK_SIZE] }
    }
}

impl MemoryBlocks {
    fn place(&mut self, block: u32) -> Result<&mut [u8], Error> {
        let start = block as usize * BLOCK_SIZE;
        let beyond = self.corrupt("a block beyond the end of a quota file");
        self.bytes.get_mut(start..start + BLOCK_SIZE).ok_or(beyond)
    }
}

impl QuotaBlocks for MemoryBlocks {
    type Error = Error;

    fn read(&mut self, block: u32) -> Result<QuotaBlock, Error> {
        let mut bytes = [0; BLOCK_SIZE];
        bytes.copy_from_slice(self.place(block)?);
        Ok(bytes)
    }

    fn write(&mut self, block: u32, bytes: &QuotaBlock) -> Result<(), Error> {
        self.place(block)?.copy_from_slice(bytes);
        Ok(())
    }

    fn grow(&mut self, blocks: u32) -> Result<(), Error> {
        self.bytes.resize(blocks as usize * BLOCK_SIZE, 0);
        Ok(())
    }

    fn corrupt(&self, what: &'static str) -> Error {
        Incompatible::Other(what).into()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_number_finds_its_own_entry_again() {
        let (mut blocks, mut header) = (MemoryBlocks::default(), QuotaHeader::new(2));
        let mut slots = BTreeMap::new();
        let ids =
            (0..40).chain((0..300_u32).map(|n| n.wrapping_mul(0x0101_0101))).chain([u32::MAX, u32::MAX - 1]);
        for id in ids {
            let slot = find_or_insert(&mut blocks, &mut header, id).unwrap();
            assert_eq!(find_or_insert(&mut blocks, &mut header, id).unwrap(), slot);
            slots.insert(id, slot);
        }
        for (id, slot) in &slots {
            assert_eq!(find(&mut blocks, &header, *id).unwrap(), Some(*slot), "{id}");
        }
        assert_eq!(find(&mut blocks, &header, 77).unwrap(), None);
        let all: std::collections::HashSet<_> = slots.values().map(|slot| (slot.block, slot.index)).collect();
        assert_eq!(all.len(), slots.len(), "no two share a slot");
        assert_eq!(blocks.bytes.len(), header.blocks as usize * BLOCK_SIZE);
    }

    #[test]
    fn blocks_of_the_free_list_are_used_before_the_file_grows() {
        let (mut blocks, mut header) = (MemoryBlocks::default(), QuotaHeader::new(2));
        find_or_insert(&mut blocks, &mut header, 1).unwrap();
        blocks.grow(header.blocks + 1).unwrap();
        header.free_block = header.blocks;
        header.blocks += 1;
        let before = header.blocks;
        find_or_insert(&mut blocks, &mut header, 0x100).unwrap();
        assert_eq!((header.blocks, header.free_block), (before, 0), "one level was missing");
    }

    #[test]
    fn a_tree_that_leads_astray_is_an_error() {
        let (mut blocks, mut header) = (MemoryBlocks::default(), QuotaHeader::new(2));
        let slot = find_or_insert(&mut blocks, &mut header, 7).unwrap();
        let mut hostile = blocks.clone();
        refer(&mut hostile, ROOT, 0, header.blocks).unwrap();
        assert!(find(&mut hostile, &header, 7).is_err());
        let mut hostile = blocks.clone();
        hostile.write(slot.block, &[0; BLOCK_SIZE]).unwrap();
        assert!(find(&mut hostile, &header, 7).is_err());
        // Full, whatever its header says.
        let mut bytes = blocks.read(slot.block).unwrap();
        (0..ENTRIES)
            .for_each(|index| QuotaEntry { id: 9, ..QuotaEntry::default() }.write_into(&mut bytes, index));
        blocks.write(slot.block, &bytes).unwrap();
        assert!(find_or_insert(&mut blocks, &mut header, 8).is_err());
    }
}

//! Extended attributes: in the inode after its fixed fields, and in a block that several inodes may share.
//!
//! On disk: in the inode, a magic number (4) and entries; in a block, a header of 32 bytes and entries in order. Entries
//! (16 bytes and the name, rounded up to 4) grow from the front and end with four bytes of zeros, values grow from the back.
//! Offsets of values count from the first entry in the inode, and from the start of the block in a block.

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::crc32c;
use crate::{ChecksumSeed, le32, put};
use crate::{FsBlock, InodeNumber};

/// The number at the start of both areas.
pub const MAGIC: u32 = 0xea02_0000;
/// Bytes of a block's header.
pub const BLOCK_HEADER: usize = 32;
/// Bytes of the header in an inode.
pub const INODE_HEADER: usize = 4;
/// Bytes of an entry before its name.
pub const ENTRY_HEADER: usize = 16;
/// Values are a multiple of this.
pub const PAD: usize = 4;
/// Most inodes that share a block.
pub const REFERENCES_MAX: u32 = 1024;

/// Number and prefix of the namespaces. Names of 2 and 3 are whole: nothing follows the prefix.
pub const NAMESPACES: &[(u8, &[u8])] = &[
    (1, b"user."),
    (2, b"system.posix_acl_access"),
    (3, b"system.posix_acl_default"),
    (4, b"trusted."),
    (6, b"security."),
    (8, b"system.richacl"),
    (7, b"system."),
];

/// Namespace number and rest of a full name; the longest prefix that fits. Number 0 (no prefix) for all else.
pub fn split_name(name: &[u8]) -> (u8, &[u8]) {
    NAMESPACES
        .iter()
        .find_map(|(index, prefix)| {
            let rest = name.strip_prefix(*prefix)?;
            (rest.is_empty() != prefix.ends_with(b".")).then_some((*index, rest))
        })
        .unwrap_or((0, name))
}

/// The full name of a namespace number and the rest of a name; `None` for a number that is not known.
pub fn full_name(index: u8, rest: &[u8]) -> Option<Vec<u8>> {
    if index == 0 {
        return Some(rest.to_vec());
    }
    NAMESPACES.iter().find(|(known, _)| *known == index).map(|(_, prefix)| [prefix, rest].concat())
}

/// The header of an attribute block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// Inodes that share the block.
    pub references: u32,
    /// Hash of all entries; 0 if the block must not be shared.
    pub hash: u32,
}

impl BlockHeader {
    /// The header of a block, with magic number and size checked.
    ///
    /// # Errors
    /// The damage.
    pub fn parse(block: &[u8]) -> Result<Self, &'static str> {
        if le32(block, 0) != MAGIC {
            return Err("an attribute block has no magic number");
        }
        if le32(block, 8) != 1 {
            return Err("an attribute block is not one block long");
        }
        let references = le32(block, 4);
        if references == 0 || references > REFERENCES_MAX {
            return Err("an attribute block has an impossible reference count");
        }
        Ok(Self { references, hash: le32(block, 12) })
    }

    /// Store at the start of a block. The checksum is set by [`set_checksum`].
    pub fn write_into(&self, block: &mut [u8]) {
        block[..BLOCK_HEADER].fill(0);
        put(block, 0, &MAGIC.to_le_bytes());
        put(block, 4, &self.references.to_le_bytes());
        put(block, 8, &1_u32.to_le_bytes());
        put(block, 12, &self.hash.to_le_bytes());
    }
}

/// An entry of an attribute area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawAttribute<'a> {
    /// Its offset in the area.
    pub offset: usize,
    /// Namespace number.
    pub name_index: u8,
    /// The name after the prefix.
    pub name: &'a [u8],
    /// Offset of the value, from the area's base.
    pub value_offset: u16,
    /// The inode with the value, if it is not here.
    pub value_inode: Option<InodeNumber>,
    /// Bytes of the value.
    pub value_size: u32,
    /// Hash of name and value; 0 if it is not kept.
    pub hash: u32,
    /// The value; empty if an inode has it.
    pub value: &'a [u8],
}

/// An entry before its name, as stored.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct EntryHeader {
    name_len: u8,
    name_index: u8,
    value_offset: U16,
    value_inode: U32,
    value_size: U32,
    hash: U32,
}

const _: () = assert!(size_of::<EntryHeader>() == ENTRY_HEADER);

impl EntryHeader {
    /// The header at byte `at` of an area, which has that many bytes.
    fn at(area: &[u8], at: usize) -> Self {
        let (header, _) = Self::read_from_prefix(&area[at..]).expect("the caller has checked the length");
        header
    }

    /// Bytes of the value that are in the area; 0 if an inode has it.
    fn len_here(&self) -> usize {
        if self.value_inode.get() == 0 { self.value_size.get() as usize } else { 0 }
    }

    fn size(&self) -> usize {
        entry_size(self.name_len.into())
    }
}

impl RawAttribute<'_> {
    /// Write head and name at the attribute's offset of an area. The caller stores the value.
    pub fn write_into(&self, area: &mut [u8]) {
        let header = EntryHeader {
            name_len: self.name.len() as u8,
            name_index: self.name_index,
            value_offset: self.value_offset.into(),
            value_inode: self.value_inode.map_or(0, |inode| inode.0).into(),
            value_size: self.value_size.into(),
            hash: self.hash.into(),
        };
        area[self.offset..self.offset + header.size()].fill(0);
        put(area, self.offset, header.as_bytes());
        put(area, self.offset + ENTRY_HEADER, self.name);
    }
}

/// Move the entries of an area in an inode `by` bytes on, magic number included. Their values stay in place. The entries must be sound, and
/// leave this number of bytes free.
pub fn move_entries(area: &mut [u8], by: usize) {
    if area.len() < INODE_HEADER || le32(area, 0) != MAGIC {
        return;
    }
    let mut at = INODE_HEADER;
    while le32(area, at) != 0 {
        let mut header = EntryHeader::at(area, at);
        if header.len_here() > 0 {
            header.value_offset -= by as u16;
            put(area, at, header.as_bytes());
        }
        at += header.size();
    }
    area.copy_within(..at + 4, by);
}

/// Bytes that an entry with a name of `name_len` bytes needs.
pub const fn entry_size(name_len: usize) -> usize {
    (ENTRY_HEADER + name_len + PAD - 1) & !(PAD - 1)
}

/// Bytes that a value needs.
pub const fn padded_value(len: usize) -> usize {
    len.div_ceil(PAD) * PAD
}

/// The entries of an area, each checked before it is given: inside the area, values after the entries, no value over
/// an entry or another value. So entries and values fit the area also when they are written anew. Ends after the first bad one.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    area: &'a [u8],
    base: usize,
    first_entry: usize,
    at: usize,
    first_value: usize,
    max_inode: u32,
    ended: bool,
}

impl<'a> Attributes<'a> {
    /// The entries of a whole attribute block.
    pub fn in_block(block: &'a [u8], max_inode: u32) -> Self {
        Self::of(block, 0, BLOCK_HEADER, max_inode)
    }

    /// The entries of the area in an inode (from byte `128 + extra_isize` to its end, magic number included); none without
    /// the magic number.
    pub fn in_inode(area: &'a [u8], max_inode: u32) -> Self {
        let ended = area.len() < INODE_HEADER + 4 || le32(area, 0) != MAGIC;
        Self { ended, ..Self::of(area, INODE_HEADER, INODE_HEADER, max_inode) }
    }

    fn of(area: &'a [u8], base: usize, first_entry: usize, max_inode: u32) -> Self {
        Self { area, base, first_entry, at: first_entry, first_value: area.len(), max_inode, ended: false }
    }

    /// Bytes between the entries given so far (and their end mark) and the lowest value.
    pub fn free_bytes(&self) -> usize {
        self.first_value.saturating_sub(self.at + 4)
    }

    /// Whether the value at `start` shares bytes with one of the entries given so far. Values are stored from the end down, mostly.
    fn overlaps_another(&self, start: usize, len: usize) -> bool {
        let end = start + padded_value(len);
        if end <= self.first_value {
            return false;
        }
        let mut at = self.first_entry;
        while at < self.at {
            let entry = EntryHeader::at(self.area, at);
            let (other, other_len) = (self.base + usize::from(entry.value_offset.get()), entry.len_here());
            if other_len > 0 && start < other + padded_value(other_len) && other < end {
                return true;
            }
            at += entry.size();
        }
        false
    }

    fn parse(&mut self) -> Result<Option<RawAttribute<'a>>, &'static str> {
        let Some(rest) = self.area.get(self.at..).filter(|rest| rest.len() >= 4) else {
            return Err("the entries have no end");
        };
        if le32(rest, 0) == 0 {
            return Ok(None);
        }
        let Ok((entry, _)) = EntryHeader::read_from_prefix(rest) else {
            return Err("an entry reaches beyond its area");
        };
        let size = entry.size();
        // Four bytes of zeros must still follow.
        if size + 4 > rest.len() || self.at + size + 4 > self.first_value {
            return Err("an entry reaches into the values, or beyond its area");
        }
        let value_inode = entry.value_inode.get();
        if value_inode > self.max_inode {
            return Err("a value is in an inode that does not exist");
        }
        let (start, len) = (self.base + usize::from(entry.value_offset.get()), entry.len_here());
        let value = if len == 0 {
            &[][..]
        } else {
            let padded = len.checked_next_multiple_of(PAD).and_then(|padded| start.checked_add(padded));
            if padded.is_none_or(|end| end > self.area.len()) || start < self.at + size + 4 {
                return Err("a value is outside its area");
            }
            if self.overlaps_another(start, len) {
                return Err("two values overlap");
            }
            self.first_value = self.first_value.min(start);
            &self.area[start..start + len]
        };
        let attribute = RawAttribute {
            offset: self.at,
            name_index: entry.name_index,
            name: &rest[ENTRY_HEADER..ENTRY_HEADER + usize::from(entry.name_len)],
            value_offset: entry.value_offset.get(),
            value_inode: (value_inode != 0).then_some(InodeNumber(value_inode)),
            value_size: entry.value_size.get(),
            hash: entry.hash.get(),
            value,
        };
        self.at += size;
        Ok(Some(attribute))
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<RawAttribute<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let parsed = self.parse().transpose();
        self.ended = !matches!(parsed, Some(Ok(_)));
        parsed
    }
}

/// Hash of an entry whose value is in the area.
pub fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    hash_of(name.iter().map(|byte| u32::from(*byte)), value)
}

fn hash_of(name: impl Iterator<Item = u32>, value: &[u8]) -> u32 {
    let hash = name.fold(0_u32, |hash, character| hash.rotate_left(5) ^ character);
    value.chunks(4).fold(hash, |hash, chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        hash.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}

/// As [`entry_hash`] with the characters of the name signed, as in early kernels on most machines.
pub fn entry_hash_signed(name: &[u8], value: &[u8]) -> u32 {
    hash_of(name.iter().map(|byte| i32::from(*byte as i8) as u32), value)
}

/// Hash of an entry whose value is in an inode: of the name and the value's own hash.
pub fn entry_hash_of_inode(name: &[u8], value_hash: u32) -> u32 {
    entry_hash(name, &value_hash.to_le_bytes())
}

/// Hash of all entries of a block: 0 if one of them has none.
pub fn block_hash(entry_hashes: impl IntoIterator<Item = u32>) -> u32 {
    entry_hashes
        .into_iter()
        .try_fold(0_u32, |hash, entry| (entry != 0).then(|| hash.rotate_left(16) ^ entry))
        .unwrap_or(0)
}

/// The checksum of the attribute block at `at`.
pub fn checksum(block: &[u8], at: FsBlock, seed: ChecksumSeed) -> u32 {
    let register = crc32c(seed.0, &at.0.to_le_bytes());
    let register = crc32c(register, &block[..16]);
    crc32c(crc32c(register, &[0; 4]), &block[20..])
}

/// Whether the checksum of the attribute block at `at` is right; `seed` is the volume's.
pub fn has_valid_checksum(block: &[u8], at: FsBlock, seed: ChecksumSeed) -> bool {
    le32(block, 16) == checksum(block, at, seed)
}

/// Store the checksum of the attribute block at `at`.
pub fn set_checksum(block: &mut [u8], at: FsBlock, seed: ChecksumSeed) {
    let right = checksum(block, at, seed);
    put(block, 16, &right.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_entry(
        block: &mut [u8],
        offset: usize,
        name: &[u8],
        value_offset: u16,
        value_inode: Option<InodeNumber>,
        value_size: u32,
    ) {
        let (name_index, hash, value) = (1, 0, &[][..]);
        RawAttribute { offset, name_index, name, value_offset, value_inode, value_size, hash, value }
            .write_into(block);
    }

    #[test]
    fn names_split_at_their_namespace_and_come_together_again() {
        for (name, index, rest) in [
            (&b"user.a"[..], 1, &b"a"[..]),
            (b"system.posix_acl_access", 2, b""),
            (b"system.posix_acl_default", 3, b""),
            (b"trusted.t", 4, b"t"),
            (b"security.selinux", 6, b"selinux"),
            (b"system.data", 7, b"data"),
            (b"other", 0, b"other"),
        ] {
            assert_eq!(split_name(name), (index, rest));
            assert_eq!(full_name(index, rest).unwrap(), name);
        }
    }

    /// Entries that share a value would need more than the area has when they are written anew.
    #[test]
    fn values_share_no_bytes() {
        let mut block = vec![0; 1024];
        BlockHeader { references: 1, hash: 0 }.write_into(&mut block);
        let count = |offsets: [u16; 3]| {
            let mut block = block.clone();
            for (nth, offset) in offsets.into_iter().enumerate() {
                write_entry(&mut block, 32 + nth * 20, b"ab", offset, None, 7);
            }
            Attributes::in_block(&block, 10).flatten().count()
        };
        for apart in [[1016, 1008, 1000], [1000, 1008, 1016], [1008, 1016, 1000]] {
            assert_eq!(count(apart), 3, "{apart:?}");
        }
        for shared in [[1016, 1008, 1008], [1016, 1000, 1004], [1000, 1016, 1012], [1000, 1016, 1000]] {
            assert_eq!(count(shared), 2, "{shared:?}");
        }
        write_entry(&mut block, 32, b"ab", 1016, None, 0);
        write_entry(&mut block, 52, b"cd", 1016, None, 8);
        write_entry(&mut block, 72, b"ef", 1016, Some(InodeNumber(9)), 8);
        assert_eq!(Attributes::in_block(&block, 10).flatten().count(), 3, "one value only is here");
    }

    #[test]
    fn hostile_entries_end_the_list() {
        let mut block = vec![0; 1024];
        BlockHeader { references: 1, hash: 0 }.write_into(&mut block);
        write_entry(&mut block, 32, b"ab", 1020, None, 3);
        let good: Vec<_> = Attributes::in_block(&block, 10).collect();
        assert_eq!(good.len(), 1);
        assert_eq!(good[0].unwrap().value.len(), 3);
        for (at, value) in [(34, 255), (40, 255), (43, 255), (37, 1)] {
            let mut bad = block.clone();
            bad[at] = value;
            bad[1008..].fill(1);
            assert!(Attributes::in_block(&bad, 10).any(|entry| entry.is_err()), "byte {at}");
        }
        let full = vec![0xff; 1024];
        assert_eq!(Attributes::in_block(&full, 10).count(), 1);
    }
}

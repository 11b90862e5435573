//! Directory blocks: entries one after the other that together fill the block.
//!
//! Interface: [`parse_entry`] and [`check_name`] are the only validator of entries, for the driver and for `check`.
//!
//! On disk: inode (4), length of the entry (2), length of the name (1), kind (1, with `filetype`), name. An entry is a multiple
//! of 4 bytes, at least 12, and never crosses a block. With `metadata_csum` a block ends in a tail that looks like a
//! free entry of 12 bytes and holds the checksum of what is before it.

use crate::checksum::crc32c;
use crate::{ChecksumSeed, le16, le32, put};
use crate::{FileKind, InodeNumber};

/// Bytes of an entry before its name.
pub const ENTRY_HEADER: usize = 8;
/// The shortest entry: a header and four bytes of name.
pub const SHORTEST_ENTRY: usize = entry_size(1);
/// Longest name.
pub const NAME_MAX: usize = 255;
/// Bytes of the checksum tail.
pub const TAIL_SIZE: usize = 12;
/// Value of the tail at the offset of an entry's kind.
const TAIL_KIND: u8 = 0xde;

/// Bytes that an entry with a name of `name_len` bytes needs.
pub const fn entry_size(name_len: usize) -> usize {
    (ENTRY_HEADER + name_len + 3) & !3
}

/// Kinds in the order of their codes, from 1 on.
const KINDS: [FileKind; 7] = [
    FileKind::Regular,
    FileKind::Directory,
    FileKind::CharacterDevice,
    FileKind::BlockDevice,
    FileKind::Fifo,
    FileKind::Socket,
    FileKind::Symlink,
];

/// The kind as a directory entry stores it.
pub fn kind_code(kind: FileKind) -> u8 {
    KINDS.iter().position(|known| *known == kind).map_or(0, |index| index as u8 + 1)
}

/// The kind of a code; `None` for 0 (not stored) and for an unknown code.
pub fn kind_of_code(code: u8) -> Option<FileKind> {
    KINDS.get(usize::from(code).checked_sub(1)?).copied()
}

/// The length of an entry from its 16-bit field, which in blocks of 64 KiB has the upper bits at the bottom.
#[inline]
pub const fn decode_entry_length(field: u16, block_size: usize) -> usize {
    let field = field as usize;
    if block_size < 65536 {
        field
    } else if field == 65535 || field == 0 {
        block_size
    } else {
        (field & 0xfffc) | ((field & 3) << 16)
    }
}

/// The 16-bit field for the length of an entry.
pub const fn encode_entry_length(length: usize, block_size: usize) -> u16 {
    if length < 65536 {
        length as u16
    } else if length == block_size {
        if block_size == 65536 { 65535 } else { 0 }
    } else {
        ((length & 0xfffc) | ((length >> 16) & 3)) as u16
    }
}

/// An entry of a directory block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawEntry<'a> {
    /// Its offset in the block.
    pub offset: usize,
    /// Its length up to the next one.
    pub length: usize,
    /// The inode; 0 if the entry is free.
    pub inode: InodeNumber,
    /// The code of the kind: 0 if kinds are not stored.
    pub kind_code: u8,
    /// The name; empty if the entry is free.
    pub name: &'a [u8],
}

impl RawEntry<'_> {
    /// Whether the entry is free.
    pub fn is_free(&self) -> bool {
        self.inode.0 == 0
    }

    /// Bytes after the name that another entry could have.
    pub fn slack(&self) -> usize {
        if self.is_free() { self.length } else { self.length - entry_size(self.name.len()) }
    }
}

/// The damage of an entry, and its offset in the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadEntry {
    /// Byte in the block.
    pub offset: u32,
    /// The damage.
    pub what: &'static str,
}

/// The length of the entry at byte `at` of `area`: where the next one begins, whatever else is wrong with this one.
///
/// # Errors
/// The damage of the length: the rest of the area is unknown.
#[inline]
pub fn entry_length(area: &[u8], at: usize, block_size: usize) -> Result<usize, BadEntry> {
    let bad = |what| Err(BadEntry { offset: at as u32, what });
    let rest = area.get(at..).unwrap_or_default();
    if rest.len() < SHORTEST_ENTRY {
        return bad("an entry does not fit in the rest of the block");
    }
    let length = decode_entry_length(le16(rest, 4), block_size);
    if length < SHORTEST_ENTRY {
        return bad("an entry is shorter than the minimum");
    }
    if !length.is_multiple_of(4) {
        return bad("the length of an entry is not a multiple of 4");
    }
    if length > rest.len() {
        return bad("an entry reaches beyond its block");
    }
    if length < rest.len() && length + SHORTEST_ENTRY > rest.len() {
        return bad("an entry leaves too little after it for another one");
    }
    Ok(length)
}

/// The name of the entry at byte `at` of `area`, whose length was checked. Empty if the entry is free, and cut off if it is too short for its
/// name.
#[inline]
pub fn name_at(area: &[u8], at: usize, length: usize) -> &[u8] {
    let entry = &area[at..at + length];
    let name_len = if le32(entry, 0) == 0 { 0 } else { usize::from(entry[6]) };
    &entry[ENTRY_HEADER..(ENTRY_HEADER + name_len).min(length)]
}

/// The entry at byte `at` of `area`, which is a block without its tail or a part of one, with all checks that need no other entry; its
/// name may be any bytes ([`check_name`]). Lengths are those of a volume with blocks of `block_size` bytes; `max_inode` is its last inode.
///
/// # Errors
/// The damage.
pub fn parse_entry(
    area: &[u8],
    at: usize,
    block_size: usize,
    max_inode: u32,
) -> Result<RawEntry<'_>, BadEntry> {
    let length = entry_length(area, at, block_size)?;
    let bad = |what| Err(BadEntry { offset: at as u32, what });
    let rest = &area[at..];
    let inode = le32(rest, 0);
    let free = RawEntry { offset: at, length, inode: InodeNumber(0), kind_code: rest[7], name: &[] };
    if inode == 0 {
        return Ok(free);
    }
    // As in the kernel one byte, also without `filetype`, where the next one must be 0.
    let name_len = usize::from(rest[6]);
    if length < entry_size(name_len) {
        return bad("an entry is too short for its name");
    }
    if inode > max_inode {
        return bad("an entry names an inode that does not exist");
    }
    if name_len == 0 {
        return bad("an entry has an empty name");
    }
    Ok(RawEntry { inode: InodeNumber(inode), name: &rest[ENTRY_HEADER..ENTRY_HEADER + name_len], ..free })
}

/// Check the bytes of a name that is not encrypted.
///
/// # Errors
/// The damage.
pub fn check_name(name: &[u8]) -> Result<(), &'static str> {
    if name.iter().any(|byte| matches!(byte, 0 | b'/')) { Err("a name has a NUL or a slash") } else { Ok(()) }
}

/// The entries of a directory block, each checked before it is returned; ends after the first one whose length is bad.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    block: &'a [u8],
    at: usize,
    block_size: usize,
    max_inode: u32,
    any_bytes: bool,
}

impl<'a> Entries<'a> {
    /// The entries of `block`: everything up to its end, or up to the tail if there is one. `max_inode` is the
    /// volume's last inode. The tail itself is never given as an entry.
    pub fn new(block: &'a [u8], has_tail: bool, max_inode: u32) -> Self {
        let end = if has_tail && is_tail(block) { block.len() - TAIL_SIZE } else { block.len() };
        Self { block: &block[..end], at: 0, block_size: block.len(), max_inode, any_bytes: false }
    }

    /// The entries of an area that is not a whole block, as with data in the inode; `block_size` is the volume's.
    pub fn in_area(area: &'a [u8], block_size: usize, max_inode: u32) -> Self {
        Self { block: area, at: 0, block_size, max_inode, any_bytes: false }
    }

    /// Allow any bytes in names, as in a directory whose names are encrypted.
    #[must_use]
    pub fn with_any_bytes(self, any_bytes: bool) -> Self {
        Self { any_bytes, ..self }
    }

    fn parse(&self) -> Result<RawEntry<'a>, BadEntry> {
        let entry = parse_entry(self.block, self.at, self.block_size, self.max_inode)?;
        if !self.any_bytes {
            check_name(entry.name).map_err(|what| BadEntry { offset: self.at as u32, what })?;
        }
        Ok(entry)
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<RawEntry<'a>, BadEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.block.len() {
            return None;
        }
        let entry = self.parse();
        let length = entry.map_or_else(
            |_| entry_length(self.block, self.at, self.block_size).unwrap_or(self.block.len()),
            |entry| entry.length,
        );
        self.at += length;
        Some(entry)
    }
}

/// Write an entry at `offset`. The place must be large enough for `length`, and `length` for the name.
pub fn write_entry(
    block: &mut [u8],
    offset: usize,
    length: usize,
    inode: InodeNumber,
    kind_code: u8,
    name: &[u8],
) {
    assert!(
        name.len() <= NAME_MAX && length >= entry_size(name.len()),
        "entry of {length} bytes is too short"
    );
    let field = encode_entry_length(length, block.len());
    put(block, offset, &inode.0.to_le_bytes());
    put(block, offset + 4, &field.to_le_bytes());
    block[offset + 6] = name.len() as u8;
    block[offset + 7] = kind_code;
    put(block, offset + ENTRY_HEADER, name);
    block[offset + ENTRY_HEADER + name.len()..offset + entry_size(name.len())].fill(0);
}

/// Whether a block ends in something that is a checksum tail.
pub fn is_tail(block: &[u8]) -> bool {
    let Some(start) = block.len().checked_sub(TAIL_SIZE) else { return false };
    let tail = &block[start..];
    le32(tail, 0) == 0 && le16(tail, 4) == TAIL_SIZE as u16 && tail[6] == 0 && tail[7] == TAIL_KIND
}

/// Make the last 12 bytes of a block a tail; [`set_checksum`] completes it.
pub fn write_tail(block: &mut [u8]) {
    let start = block.len() - TAIL_SIZE;
    block[start..].fill(0);
    put(block, start + 4, &(TAIL_SIZE as u16).to_le_bytes());
    block[start + 7] = TAIL_KIND;
}

/// Whether the tail's checksum is right; `seed` is the directory's own. `false` if there is no tail.
pub fn has_valid_checksum(block: &[u8], seed: ChecksumSeed) -> bool {
    is_tail(block) && le32(block, block.len() - 4) == crc32c(seed.0, &block[..block.len() - TAIL_SIZE])
}

/// Store the checksum in the tail.
pub fn set_checksum(block: &mut [u8], seed: ChecksumSeed) {
    let end = block.len();
    let checksum = crc32c(seed.0, &block[..end - TAIL_SIZE]);
    put(block, end - 4, &checksum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(block: &[u8]) -> Vec<Result<RawEntry<'_>, BadEntry>> {
        Entries::new(block, true, 100).collect()
    }

    #[test]
    fn what_is_written_is_read_and_the_tail_is_no_entry() {
        let mut block = vec![0; 1024];
        write_tail(&mut block);
        write_entry(&mut block, 0, 12, InodeNumber(2), 2, b".");
        write_entry(&mut block, 12, 1000, InodeNumber(5), 1, b"name");
        let seed = ChecksumSeed(7);
        set_checksum(&mut block, seed);
        assert!(has_valid_checksum(&block, seed) && !has_valid_checksum(&block, ChecksumSeed(8)));
        let entries = all(&block);
        assert_eq!(entries.len(), 2);
        let last = entries[1].unwrap();
        assert_eq!((last.name, last.inode, last.slack()), (&b"name"[..], InodeNumber(5), 1000 - 12));
    }

    #[test]
    fn hostile_entries_are_reported_with_their_place_and_hide_only_what_follows_a_bad_length() {
        for (field, value, what, listed) in [
            (4, 0_u8, "shorter", 2),
            (4, 8, "shorter", 2),
            (4, 14, "multiple", 2),
            (5, 0xf0, "beyond", 2),
            (6, 200, "too short", 3),
            (0, 101, "does not exist", 3),
            (8, b'/', "slash", 3),
            (6, 0, "empty", 3),
        ] {
            let mut block = vec![0; 1024];
            write_entry(&mut block, 0, 12, InodeNumber(2), 2, b".");
            write_entry(&mut block, 12, 12, InodeNumber(3), 1, b"x");
            write_entry(&mut block, 24, 1000, InodeNumber(4), 1, b"y");
            block[12 + field] = value;
            let entries = all(&block);
            let bad = entries[1].unwrap_err();
            assert_eq!((entries.len(), bad.offset), (listed, 12), "{what}");
            assert!(bad.what.contains(what), "{what}: {}", bad.what);
        }
    }

    #[test]
    fn an_entry_leaves_nothing_or_enough_for_another_one() {
        let mut block = vec![0; 1024];
        write_entry(&mut block, 0, 1016, InodeNumber(2), 2, b".");
        let bad = all(&block)[0].unwrap_err();
        assert!(bad.what.contains("too little"), "{}", bad.what);
        write_entry(&mut block, 0, 1012, InodeNumber(2), 2, b".");
        write_entry(&mut block, 1012, 12, InodeNumber(0), 0, b"");
        assert_eq!(all(&block).into_iter().flatten().count(), 2);
    }

    #[test]
    fn lengths_in_blocks_of_64_kib_come_back() {
        for length in [12, 4096, 32768, 65524, 65532, 65536] {
            assert_eq!(decode_entry_length(encode_entry_length(length, 65536), 65536), length);
        }
        assert_eq!(decode_entry_length(0, 65536), 65536);
        assert_eq!(decode_entry_length(0, 4096), 0);
    }
}

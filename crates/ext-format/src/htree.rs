//! The hash tree of an indexed directory: its nodes look like empty directory blocks to readers that do not support it.
//!
//! Interface: the rules for its blocks are here only ([`RootInfo::parse`], [`is_node`], [`CountLimit::parse`] and
//! [`first_out_of_order`]); the driver and `check` both call them.
//!
//! On disk, root (block 0 of the directory): entries `.` (12 bytes) and `..` (the rest of the block), an info of 8 bytes at byte 24, then
//! the entries at byte 32. Inner node: a free entry over the whole block, then the entries at byte 8. An entry is hash (4) and
//! block of the directory (4); in place of the first one's hash there are capacity (2) and count (2), the first one
//! included. With `metadata_csum` a tail of 8 bytes follows the last possible entry. Bit 0 of an entry's hash says that names of the same
//! hash are under the entry before it as well; hashes of names have bit 0 clear.

use crate::checksum::crc32c;
use crate::directory::decode_entry_length;
use crate::{ChecksumSeed, Features, Incompat, le16, le32, put};

/// The offset of the root's info.
pub const INFO_OFFSET: usize = 24;
/// The offset of the root's entries.
pub const ROOT_ENTRIES: usize = 32;
/// The offset of an inner node's entries.
pub const NODE_ENTRIES: usize = 8;
/// Bytes of an entry.
pub const ENTRY_SIZE: usize = 8;
/// Bytes of the checksum tail.
pub const TAIL_SIZE: usize = 8;

/// Parameters of the tree from its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootInfo {
    /// Hash: see [`crate::hash::HashVersion`].
    pub hash_version: u8,
    /// Levels of inner nodes below the root: at most 1, or 2 with `large_dir`.
    pub indirect_levels: u8,
}

impl RootInfo {
    /// The info of a root block, checked; `levels_max`: levels below the root that the volume's features allow
    /// ([`RootInfo::levels_max`]).
    ///
    /// # Errors
    /// The damage.
    pub fn parse(root: &[u8], levels_max: u8) -> Result<Self, &'static str> {
        if root.len() < ROOT_ENTRIES + ENTRY_SIZE {
            return Err("the index root is cut short");
        }
        let info = &root[INFO_OFFSET..];
        if le32(info, 0) != 0 {
            return Err("the index root's reserved field is not zero");
        }
        if info[5] != 8 {
            return Err("the index root's info has a length that is not known");
        }
        if info[6] > levels_max {
            return Err("the index has more levels than the volume's features allow");
        }
        if info[7] & 1 != 0 {
            return Err("the index root has flags that are not known");
        }
        Ok(Self { hash_version: info[4], indirect_levels: info[6] })
    }

    /// Levels below the root that a volume allows.
    pub fn levels_max(features: Features) -> u8 {
        if features.has_incompat(Incompat::LARGE_DIR) { 2 } else { 1 }
    }

    /// Store in a root block.
    pub fn write_into(&self, root: &mut [u8]) {
        put(root, INFO_OFFSET, &[0, 0, 0, 0, self.hash_version, 8, self.indirect_levels, 0]);
    }
}

/// Capacity and count of a node's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountLimit {
    /// Entries that fit.
    pub limit: u16,
    /// Entries in use, the first one included: at least 1.
    pub count: u16,
}

impl CountLimit {
    /// Those of the node whose entries start at `entries`, checked against the block.
    ///
    /// # Errors
    /// The damage.
    pub fn parse(block: &[u8], entries: usize, metadata_csum: bool) -> Result<Self, &'static str> {
        let found = Self { limit: le16(block, entries), count: le16(block, entries + 2) };
        if found.limit != Self::limit_of(block.len(), entries, metadata_csum) {
            return Err("an index node has the wrong capacity");
        }
        if found.count == 0 || found.count > found.limit {
            return Err("an index node has an impossible number of entries");
        }
        Ok(found)
    }

    /// Store in a node whose entries start at `entries`.
    pub fn write_into(self, block: &mut [u8], entries: usize) {
        put(block, entries, &self.limit.to_le_bytes());
        put(block, entries + 2, &self.count.to_le_bytes());
    }

    /// Entries that fit in a block from `entries` on.
    pub const fn limit_of(block_size: usize, entries: usize, metadata_csum: bool) -> u16 {
        let tail = if metadata_csum { TAIL_SIZE } else { 0 };
        ((block_size - entries - tail) / ENTRY_SIZE) as u16
    }
}

/// Whether a block looks like an inner node: one free directory entry and nothing else. An empty leaf without checksum looks the
/// same.
pub fn is_node(block: &[u8]) -> bool {
    le32(block, 0) == 0 && decode_entry_length(le16(block, 4), block.len()) == block.len()
}

/// The first of `count` entries of a node whose hash does not follow the one before it: hashes rise, or are equal with bit 0 set.
pub fn first_out_of_order(block: &[u8], entries: usize, count: usize) -> Option<usize> {
    (2..count).find(|index| {
        let (before, hash) = (entry(block, entries, index - 1).0, entry(block, entries, *index).0);
        hash < before || (hash == before && hash & 1 == 0)
    })
}

/// Hash and block of entry `index` of the node whose entries start at `entries`. The first entry's hash is 0.
pub fn entry(block: &[u8], entries: usize, index: usize) -> (u32, u32) {
    let at = entries + index * ENTRY_SIZE;
    // The upper four bits of the block are reserved.
    (if index == 0 { 0 } else { le32(block, at) }, le32(block, at + 4) & 0x0fff_ffff)
}

/// Store hash and block of entry `index`; the first one has no hash.
pub fn set_entry(block: &mut [u8], entries: usize, index: usize, hash: u32, child: u32) {
    let at = entries + index * ENTRY_SIZE;
    if index > 0 {
        put(block, at, &hash.to_le_bytes());
    }
    put(block, at + 4, &child.to_le_bytes());
}

fn checksum(block: &[u8], entries: usize, seed: ChecksumSeed) -> Option<(usize, u32)> {
    let tail = entries + usize::from(le16(block, entries)) * ENTRY_SIZE;
    let used = entries + usize::from(le16(block, entries + 2)) * ENTRY_SIZE;
    if tail + TAIL_SIZE > block.len() || used > tail {
        return None;
    }
    let register = crc32c(seed.0, &block[..used]);
    let register = crc32c(register, &block[tail..tail + 4]);
    Some((tail + 4, crc32c(register, &[0; 4])))
}

/// Whether the checksum of a node is right; `seed` is the directory's own.
pub fn has_valid_checksum(block: &[u8], entries: usize, seed: ChecksumSeed) -> bool {
    checksum(block, entries, seed).is_some_and(|(at, right)| le32(block, at) == right)
}

/// Store the checksum of a node with sound capacity and count.
pub fn set_checksum(block: &mut [u8], entries: usize, seed: ChecksumSeed) {
    if let Some((at, right)) = checksum(block, entries, seed) {
        put(block, at, &right.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_comes_back_and_impossible_ones_are_refused() {
        let mut root = [0; 1024];
        let info = RootInfo { hash_version: 1, indirect_levels: 1 };
        info.write_into(&mut root);
        assert_eq!(RootInfo::parse(&root, 1), Ok(info));
        let limit = CountLimit::limit_of(root.len(), ROOT_ENTRIES, true);
        CountLimit { limit, count: 2 }.write_into(&mut root, ROOT_ENTRIES);
        set_entry(&mut root, ROOT_ENTRIES, 0, 0x1234, 1);
        set_entry(&mut root, ROOT_ENTRIES, 1, 0x5678, 2);
        assert_eq!(entry(&root, ROOT_ENTRIES, 0), (0, 1), "the first has no hash");
        assert_eq!(entry(&root, ROOT_ENTRIES, 1), (0x5678, 2));
        let seed = ChecksumSeed(7);
        set_checksum(&mut root, ROOT_ENTRIES, seed);
        assert!(has_valid_checksum(&root, ROOT_ENTRIES, seed));
        assert!(!has_valid_checksum(&root, ROOT_ENTRIES, ChecksumSeed(8)));
        assert!(CountLimit::parse(&root, ROOT_ENTRIES, false).is_err(), "the capacity is without a checksum");
        CountLimit { limit, count: limit + 1 }.write_into(&mut root, ROOT_ENTRIES);
        assert!(CountLimit::parse(&root, ROOT_ENTRIES, true).is_err());
        let mut ordered = |first: u32, second: u32| {
            set_entry(&mut root, ROOT_ENTRIES, 1, first, 1);
            set_entry(&mut root, ROOT_ENTRIES, 2, second, 2);
            first_out_of_order(&root, ROOT_ENTRIES, 3)
        };
        assert_eq!(
            [ordered(4, 6), ordered(4, 4), ordered(4, 5), ordered(5, 5), ordered(6, 4)],
            [None, Some(2), None, None, Some(2)]
        );
        assert!(!is_node(&root));
        let mut node = [0; 1024];
        put(&mut node, 4, &1024_u16.to_le_bytes());
        assert!(is_node(&node));
        RootInfo { indirect_levels: 2, ..info }.write_into(&mut root);
        assert!(RootInfo::parse(&root, 1).is_err() && RootInfo::parse(&root, 2).is_ok());
    }
}

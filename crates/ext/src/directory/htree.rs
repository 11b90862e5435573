//! The index blocks of a hashed directory, and the split of a leaf, on their bytes.
//!
//! Above it, `indexed` walks the tree.
//!
//! On disk: see [`crate::layout::htree`], which also validates roots and nodes.
//!
//! Invariants:
//! 1. Names under entry `i` have hashes from that of entry `i` up to that of entry `i + 1`.
//! 2. Bit 0 of an entry's hash says that names of the same hash are under the entry before it as well; hashes of names
//!    have bit 0 clear. Hashes rise from entry to entry, or are equal with bit 0 set.

use crate::layout::directory::encode_entry_length;
use crate::layout::htree::{
    CountLimit, ENTRY_SIZE as ENTRY, INFO_OFFSET as ROOT_INFO, NODE_ENTRIES, ROOT_ENTRIES, RootInfo, entry,
    first_out_of_order, is_node, set_entry,
};
use crate::layout::put;

use super::entries::{BadEntry, DirectoryFormat, NewEntry, RawEntry};

/// The head of the index, from its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    /// Hash version as stored: 0 legacy, 1 half MD4, 2 TEA.
    pub(crate) hash_version: u8,
    /// Levels of index blocks below the root.
    pub(crate) levels: u8,
    /// The root's entries.
    pub(crate) index: Index,
}

/// Where the entries of an index block are; checked against the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Index {
    start: usize,
    /// Entries that fit.
    pub(crate) limit: usize,
    /// Entries in use, at least one.
    pub(crate) count: usize,
}

impl Index {
    /// The entries at byte `start`, with the count checked against the limit.
    fn parse(format: &DirectoryFormat, block: &[u8], start: usize) -> Result<Self, BadEntry> {
        let bad = |what| Err(BadEntry { offset: start as u32, what });
        if block.len() != format.block_size {
            return bad("the index block has the wrong size");
        }
        match CountLimit::parse(block, start, format.tail) {
            Ok(found) => Ok(Self { start, limit: found.limit.into(), count: found.count.into() }),
            Err(what) => bad(what),
        }
    }

    /// Whether no entry fits any more.
    pub(crate) fn is_full(&self) -> bool {
        self.count >= self.limit
    }

    /// Hash of an entry; 0 for the first, which has none.
    pub(crate) fn hash(&self, block: &[u8], at: usize) -> u32 {
        assert!(at < self.count);
        entry(block, self.start, at).0
    }

    /// Directory block of an entry.
    pub(crate) fn child(&self, block: &[u8], at: usize) -> u32 {
        assert!(at < self.count);
        entry(block, self.start, at).1
    }

    /// The entry under which the first leaf for `hash` is: the last whose hash is not larger.
    pub(crate) fn search(&self, block: &[u8], hash: u32) -> usize {
        let (mut low, mut high) = (1, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.hash(block, middle) > hash {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low - 1
    }

    /// Check the order of the hashes (invariant 2) and that each child is a block below `blocks`.
    pub(crate) fn check(&self, block: &[u8], blocks: u32) -> Result<(), BadEntry> {
        let bad = |at: usize, what| Err(BadEntry { offset: (self.start + at * ENTRY) as u32, what });
        for at in 0..self.count {
            let child = self.child(block, at);
            if child == 0 || child >= blocks {
                return bad(at, "an index entry points outside the directory");
            }
        }
        match first_out_of_order(block, self.start, self.count) {
            Some(at) => bad(at, "the hashes of the index are not in order"),
            None => Ok(()),
        }
    }

    /// Put an entry after entry `at`.
    pub(crate) fn insert_after(&self, block: &mut [u8], at: usize, hash: u32, child: u32) {
        assert!(at < self.count && !self.is_full());
        let place = self.start + (at + 1) * ENTRY;
        block.copy_within(place..self.start + self.count * ENTRY, place + ENTRY);
        set_entry(block, self.start, at + 1, hash, child);
        self.set_count(block, self.count + 1);
    }

    /// Move the upper half of the entries into `new`, a lower index block. Returns the hash that `new` gets in the
    /// block above and the number of entries that stay.
    pub(crate) fn split(&self, format: &DirectoryFormat, block: &mut [u8], new: &mut [u8]) -> (u32, usize) {
        assert!(self.count >= 2);
        let stay = self.count / 2;
        let hash = self.hash(block, stay);
        let moved = &block[self.start + stay * ENTRY..self.start + self.count * ENTRY];
        write_node(format, new, moved);
        self.set_count(block, stay);
        (hash, stay)
    }

    fn set_count(&self, block: &mut [u8], count: usize) {
        CountLimit { limit: self.limit as u16, count: count as u16 }.write_into(block, self.start);
    }
}

/// Capacity and count of a block with `count` entries after byte `start`.
fn count_limit(format: &DirectoryFormat, start: usize, count: usize) -> CountLimit {
    CountLimit { limit: CountLimit::limit_of(format.block_size, start, format.tail), count: count as u16 }
}

/// Make `new` a lower index block with these raw entries, whose first hash is dropped.
fn write_node(format: &DirectoryFormat, new: &mut [u8], entries: &[u8]) {
    new.fill(0);
    let len = encode_entry_length(format.block_size, format.block_size);
    put(new, 4, &len.to_le_bytes());
    put(new, NODE_ENTRIES, entries);
    count_limit(format, NODE_ENTRIES, entries.len() / ENTRY).write_into(new, NODE_ENTRIES);
}

/// Whether the block looks like a lower index block: one free record and nothing else. An empty leaf without
/// checksum looks the same, and has as few entries.
pub(crate) fn looks_like_node(format: &DirectoryFormat, block: &[u8]) -> bool {
    block.len() == format.block_size && is_node(block)
}

/// The entries `.` and `..` of a root block, which are not laid out as those of other blocks with a tail.
pub(crate) fn root_dots<'a>(
    format: &DirectoryFormat,
    block: &'a [u8],
) -> Result<(RawEntry<'a>, RawEntry<'a>), BadEntry> {
    let plain = DirectoryFormat { tail: false, ..*format };
    let dot = plain.record(block, 0)?;
    let dot_dot = plain.record(block, dot.length)?;
    if dot.name != b"." || dot.length != 12 || dot_dot.name != b".." {
        return Err(BadEntry { offset: 0, what: "an indexed directory does not begin with its two dots" });
    }
    Ok((dot, dot_dot))
}

impl Root {
    /// The root that a directory without index would get: only its hash version means anything.
    pub(crate) fn unborn(hash_version: u8) -> Self {
        Self { hash_version, levels: 0, index: Index { start: 0, limit: 0, count: 0 } }
    }

    /// Parse block 0 of an indexed directory. `levels_max` is the number of levels below the root that the volume's
    /// features allow.
    pub(crate) fn parse(format: &DirectoryFormat, block: &[u8], levels_max: u8) -> Result<Self, BadEntry> {
        let bad = |what| BadEntry { offset: ROOT_INFO as u32, what };
        if block.len() != format.block_size {
            return Err(bad("the index block has the wrong size"));
        }
        root_dots(format, block)?;
        let info = RootInfo::parse(block, levels_max).map_err(bad)?;
        let (hash_version, levels) = (info.hash_version, info.indirect_levels);
        if hash_version > 2 {
            return Err(bad("the hash version of the index is not known"));
        }
        let index = Index::parse(format, block, ROOT_ENTRIES)?;
        Ok(Self { hash_version, levels, index })
    }

    /// Move all entries one level down, into `new`; the root keeps the one entry for it.
    pub(crate) fn grow(&self, format: &DirectoryFormat, block: &mut [u8], new: &mut [u8], new_block: u32) {
        let start = self.index.start;
        write_node(format, new, &block[start..start + self.index.count * ENTRY]);
        self.index.set_count(block, 1);
        set_entry(block, start, 0, 0, new_block);
        RootInfo { hash_version: self.hash_version, indirect_levels: self.levels + 1 }.write_into(block);
    }
}

/// Parse a lower index block.
pub(crate) fn parse_node(format: &DirectoryFormat, block: &[u8]) -> Result<Index, BadEntry> {
    if !looks_like_node(format, block) {
        return Err(BadEntry { offset: 0, what: "not an index block" });
    }
    Index::parse(format, block, NODE_ENTRIES)
}

/// Make block 0 of a directory the root of an index with one leaf, block 1, which gets all entries but the dots.
pub(crate) fn make_root(
    format: &DirectoryFormat,
    block: &mut [u8],
    leaf: &mut [u8],
    hash_version: u8,
) -> Result<(), BadEntry> {
    let old = block.to_vec();
    let mut dots = [0_u32; 2];
    let mut entries = Vec::new();
    for (at, record) in format.records(&old).enumerate() {
        let record = record?;
        match (at, record.name) {
            (0, b".") => dots[0] = record.inode.0,
            (1, b"..") => dots[1] = record.inode.0,
            (0 | 1, _) => {
                let what = "a directory does not begin with its two dots";
                return Err(BadEntry { offset: record.offset as u32, what });
            }
            _ if record.is_free() => {}
            _ => entries.push(NewEntry::from(record)),
        }
    }
    assert!(format.fill(leaf, entries.iter().copied()), "the entries of a block fit a block");
    // The dots as in a block without tail: the second takes all the rest.
    DirectoryFormat { tail: false, ..*format }.fill_first(block, dots[0], dots[1]);
    RootInfo { hash_version, indirect_levels: 0 }.write_into(block);
    count_limit(format, ROOT_ENTRIES, 1).write_into(block, ROOT_ENTRIES);
    set_entry(block, ROOT_ENTRIES, 0, 0, 1);
    Ok(())
}

/// Move the entries of the upper half of the hashes from a leaf into `new`, about half of the bytes.
pub(crate) fn split_leaf(
    format: &DirectoryFormat,
    leaf: &mut [u8],
    new: &mut [u8],
    hash_of: &dyn Fn(&[u8]) -> u32,
) -> Result<u32, BadEntry> {
    let old = leaf.to_vec();
    let mut entries = Vec::new();
    for record in format.records(&old) {
        let record = record?;
        if !record.is_free() {
            entries.push((hash_of(record.name), NewEntry::from(record)));
        }
    }
    if entries.len() < 2 {
        return Err(BadEntry { offset: 0, what: "a leaf is full with less than two entries" });
    }
    entries.sort_by_key(|(hash, _)| *hash);
    let len = |at: usize| super::entries::record_len(entries[at].1.name.len());
    let total: usize = (0..entries.len()).map(len).sum();
    let (mut split, mut moved) = (entries.len(), 0);
    while split > 1 && moved + len(split - 1) / 2 <= total / 2 {
        split -= 1;
        moved += len(split);
    }
    let split = split.min(entries.len() - 1);
    let hash = entries[split].0;
    let continued = u32::from(entries[split - 1].0 == hash);
    let lower = format.fill(leaf, entries[..split].iter().map(|(_, entry)| *entry));
    let upper = format.fill(new, entries[split..].iter().map(|(_, entry)| *entry));
    assert!(lower && upper, "the entries of a block fit two");
    Ok((hash & !1) | continued)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: DirectoryFormat =
        DirectoryFormat { block_size: 1024, kinds: true, tail: true, inodes: 1 << 20 };

    #[test]
    fn root_keeps_its_dots_visible_and_counts_its_room() {
        let (mut block, mut leaf) = (vec![0; 1024], vec![0; 1024]);
        FORMAT.fill_first(&mut block, 20, 2);
        let new = NewEntry { inode: 21, kind: 1, name: b"file" };
        let gap = FORMAT.find_gap(&block, 12).unwrap().unwrap();
        FORMAT.put(&mut block, &gap, &new);
        make_root(&FORMAT, &mut block, &mut leaf, 1).unwrap();
        let root = Root::parse(&FORMAT, &block, 1).unwrap();
        assert_eq!((root.hash_version, root.levels), (1, 0));
        assert_eq!((root.index.limit, root.index.count), ((1024 - 32 - 8) / 8, 1));
        let (dot, dot_dot) = root_dots(&FORMAT, &block).unwrap();
        assert_eq!((dot.inode.0, dot_dot.inode.0, dot_dot.length), (20, 2, 1012));
        let found = FORMAT.search(&leaf, 12, |name| name == b"file").unwrap();
        assert!(
            matches!(found, super::super::entries::Searched::Found(record) if record.inode.0 == 21),
            "{found:?}"
        );
        FORMAT.check(&leaf).unwrap();
        root.index.check(&block, 2).unwrap();
        assert!(root.index.check(&block, 1).is_err());
    }

    #[test]
    fn index_search_finds_the_last_entry_that_is_not_larger() {
        let (mut block, mut leaf) = (vec![0; 1024], vec![0; 1024]);
        FORMAT.fill_first(&mut block, 20, 2);
        make_root(&FORMAT, &mut block, &mut leaf, 1).unwrap();
        for at in 0..122 {
            let root = Root::parse(&FORMAT, &block, 1).unwrap();
            root.index.insert_after(&mut block, at, (at as u32 + 1) * 10, at as u32 + 2);
        }
        let root = Root::parse(&FORMAT, &block, 1).unwrap();
        assert!(root.index.is_full());
        for hash in 0..1300 {
            let want = (hash / 10).min(122);
            assert_eq!(root.index.search(&block, hash), want as usize, "{hash}");
            assert_eq!(root.index.child(&block, want as usize), want + 1);
        }
        let mut node = vec![0; 1024];
        root.grow(&FORMAT, &mut block, &mut node, 200);
        let root = Root::parse(&FORMAT, &block, 1).unwrap();
        assert_eq!((root.levels, root.index.count, root.index.child(&block, 0)), (1, 1, 200));
        let index = parse_node(&FORMAT, &node).unwrap();
        assert_eq!((index.count, index.limit), (123, 126));
        let mut upper = vec![0; 1024];
        let (hash, stay) = index.split(&FORMAT, &mut node, &mut upper);
        assert_eq!((hash, stay), (610, 61));
        let upper_index = parse_node(&FORMAT, &upper).unwrap();
        assert_eq!((upper_index.count, upper_index.child(&upper, 0)), (62, 62));
        assert_eq!(upper_index.search(&upper, 625), 1);
    }

    #[test]
    fn leaf_split_marks_a_hash_that_is_on_both_sides() {
        let (mut leaf, mut new) = (vec![0; 1024], vec![0; 1024]);
        let names: Vec<Vec<u8>> = (0..30).map(|n| format!("name-of-a-file-{n:05}").into_bytes()).collect();
        let entries = || names.iter().map(|name| NewEntry { inode: 12, kind: 1, name });
        assert!(FORMAT.fill(&mut leaf, entries()));
        let split = split_leaf(&FORMAT, &mut leaf, &mut new, &|_| 42).unwrap();
        assert_eq!(split, 43);
        assert!(FORMAT.fill(&mut leaf, entries()));
        let hash = |name: &[u8]| u32::from(name[name.len() - 1] - b'0') * 100;
        let split = split_leaf(&FORMAT, &mut leaf, &mut new, &hash).unwrap();
        for record in FORMAT.records(&leaf) {
            assert!(hash(record.unwrap().name) <= split & !1);
        }
        for record in FORMAT.records(&new) {
            assert!(hash(record.unwrap().name) >= split & !1);
        }
        let gap = |block: &[u8]| FORMAT.records(block).map(|record| record.unwrap().slack()).max().unwrap();
        let sizes = [gap(&leaf), gap(&new)];
        assert!(sizes.iter().all(|gap| (450..=600).contains(gap)), "{sizes:?}");
    }

    #[test]
    fn corrupt_index_heads_are_refused() {
        let (mut block, mut leaf) = (vec![0; 1024], vec![0; 1024]);
        FORMAT.fill_first(&mut block, 20, 2);
        make_root(&FORMAT, &mut block, &mut leaf, 1).unwrap();
        for (at, value) in
            [(28, 3), (29, 9), (30, 2), (31, 1), (32, 0), (34, 0), (34, 255), (4, 16), (8, b'x')]
        {
            let mut bad = block.clone();
            bad[at] = value;
            assert!(Root::parse(&FORMAT, &bad, 1).is_err(), "byte {at} = {value}");
        }
    }
}

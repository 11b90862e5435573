//! The entries of one directory block, on its bytes.
//!
//! Everything about a linear directory block and about the leaves of an indexed one is here, without I/O. Above
//! it, `linear` and `indexed` choose blocks; `htree` does the same for index blocks.
//!
//! On disk: see [`crate::layout::directory`].
//!
//! Invariants:
//! 1. Every function leaves a sound block sound, and its checksum tail where it is.
//! 2. A name never moves, except by [`DirectoryFormat::fill`], which writes a block anew.
//! 3. Bytes of a removed entry are zero.

use crate::layout::directory::{
    Entries, SHORTEST_ENTRY as SHORTEST, TAIL_SIZE as TAIL, encode_entry_length as encode_len, entry_length,
    is_tail, name_at, parse_entry, write_entry,
};
use crate::layout::le32;
use crate::{FileKind, InodeNumber};

pub(crate) use crate::layout::directory::{
    BadEntry, NAME_MAX, RawEntry, entry_size as record_len, kind_code, kind_of_code,
};

/// Directories in their inodes: bytes of the parent's number, the end of the first area of records, and where the first one comes in
/// a block, after the dots.
const PARENT: usize = 4;
const FIRST: usize = 60;
const DOTS: usize = 24;

/// How directory blocks of a volume look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryFormat {
    /// Bytes in a block.
    pub(crate) block_size: usize,
    /// Whether entries have a kind (`filetype`).
    pub(crate) kinds: bool,
    /// Whether blocks end in a checksum (`metadata_csum`).
    pub(crate) tail: bool,
    /// Number of inodes: the largest number that an entry can have.
    pub(crate) inodes: u32,
}

/// An entry to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewEntry<'a> {
    pub(crate) inode: u32,
    /// Kind as stored; see [`kind_code`].
    pub(crate) kind: u8,
    pub(crate) name: &'a [u8],
}

impl<'a> From<RawEntry<'a>> for NewEntry<'a> {
    fn from(entry: RawEntry<'a>) -> Self {
        Self { inode: entry.inode.0, kind: entry.kind_code, name: entry.name }
    }
}

/// A place that a new entry fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// The record with the free space.
    start: usize,
    len: usize,
    /// Bytes of it that its own entry needs; 0 if it is free.
    used: usize,
}

/// The result of a search for a name in a block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Searched<'a> {
    Found(RawEntry<'a>),
    /// With the first gap for it.
    Absent(Option<Gap>),
}

/// Bytes that an entry with this name takes: none if it is free.
fn space_of(name: &[u8]) -> usize {
    if name.is_empty() { 0 } else { record_len(name.len()) }
}

impl DirectoryFormat {
    /// Bytes of a block that records may take.
    pub(crate) fn area(&self) -> usize {
        if self.tail { self.block_size - TAIL } else { self.block_size }
    }

    /// The record at `offset`, with all checks that need no other record.
    pub(crate) fn record<'a>(&self, block: &'a [u8], offset: usize) -> Result<RawEntry<'a>, BadEntry> {
        let entry = parse_entry(self.records_of(block), offset, self.block_size, self.inodes)?;
        Ok(self.with_kind(entry))
    }

    /// All records, free ones included, until the first whose length is wrong.
    pub(crate) fn records<'a>(
        &self,
        block: &'a [u8],
    ) -> impl Iterator<Item = Result<RawEntry<'a>, BadEntry>> + use<'a> {
        let format = *self;
        let entries = Entries::in_area(self.records_of(block), self.block_size, self.inodes);
        entries.with_any_bytes(true).map(move |entry| entry.map(|entry| format.with_kind(entry)))
    }

    fn records_of<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        &block[..self.area().min(block.len())]
    }

    fn with_kind<'a>(&self, entry: RawEntry<'a>) -> RawEntry<'a> {
        if self.kinds { entry } else { RawEntry { kind_code: 0, ..entry } }
    }

    /// Check a whole block: every record, and the checksum tail's form.
    pub(crate) fn check(&self, block: &[u8]) -> Result<(), BadEntry> {
        self.records(block).try_for_each(|record| record.map(drop))?;
        if self.tail && !is_tail(block) {
            return Err(BadEntry { offset: self.area() as u32, what: "no space for a checksum" });
        }
        Ok(())
    }

    /// The entry of that name, or else the first gap that takes a record of `need` bytes. Of the entries before them, only the lengths are
    /// checked.
    pub(crate) fn search<'a>(
        &self,
        block: &'a [u8],
        need: usize,
        is_it: impl Fn(&[u8]) -> bool,
    ) -> Result<Searched<'a>, BadEntry> {
        let (area, mut at, mut gap) = (self.records_of(block), 0, None);
        while at < area.len() {
            let length = entry_length(area, at, self.block_size)?;
            let name = name_at(area, at, length);
            if !name.is_empty() && is_it(name) {
                return self.record(block, at).map(Searched::Found);
            }
            if gap.is_none() && length >= space_of(name) + need {
                gap = self.gap_at(block, at).ok();
            }
            at += length;
        }
        Ok(Searched::Absent(gap))
    }

    fn gap_at(&self, block: &[u8], at: usize) -> Result<Gap, BadEntry> {
        let record = self.record(block, at)?;
        Ok(Gap { start: at, len: record.length, used: record.length - record.slack() })
    }

    /// The first gap that takes a record of `need` bytes. Of the entries before it, only the lengths are checked.
    pub(crate) fn find_gap(&self, block: &[u8], need: usize) -> Result<Option<Gap>, BadEntry> {
        let (area, mut at) = (self.records_of(block), 0);
        while at < area.len() {
            let length = entry_length(area, at, self.block_size)?;
            if length >= space_of(name_at(area, at, length)) + need {
                return self.gap_at(block, at).map(Some);
            }
            at += length;
        }
        Ok(None)
    }

    /// Put an entry into a gap that was found in this block for its length. Returns its offset.
    pub(crate) fn put(&self, block: &mut [u8], gap: &Gap, new: &NewEntry<'_>) -> usize {
        let offset = gap.start + gap.used;
        if gap.used > 0 {
            self.set_len(block, gap.start, gap.used);
        }
        self.write(block, offset, gap.len - gap.used, new);
        offset
    }

    /// Remove the entry that begins at `offset`; its space goes to the record before it. An offset at which no entry begins is an error.
    pub(crate) fn remove(&self, block: &mut [u8], offset: usize) -> Result<(), BadEntry> {
        let (area, mut at, mut before) = (self.records_of(block), 0, None);
        while at < offset.min(area.len()) {
            let length = entry_length(area, at, self.block_size)?;
            before = Some((at, length));
            at += length;
        }
        let no_entry = BadEntry { offset: offset as u32, what: "no entry begins where one was expected" };
        if at != offset || at >= area.len() {
            return Err(no_entry);
        }
        let record = self.record(block, offset)?;
        if record.is_free() {
            return Err(no_entry);
        }
        let len = record.length;
        block[offset..offset + len].fill(0);
        match before {
            Some((start, before_len)) => self.set_len(block, start, before_len + len),
            None => self.set_len(block, offset, len),
        }
        Ok(())
    }

    /// Point the entry at `offset` to another inode.
    pub(crate) fn set_inode(
        &self,
        block: &mut [u8],
        offset: usize,
        inode: u32,
        kind: u8,
    ) -> Result<(), BadEntry> {
        self.record(block, offset)?;
        block[offset..offset + 4].copy_from_slice(&inode.to_le_bytes());
        if self.kinds {
            block[offset + 7] = kind;
        }
        Ok(())
    }

    /// Write a block anew with these entries, packed, the free rest with the last. With none, one free record.
    /// Returns whether they fit.
    pub(crate) fn fill<'a>(
        &self,
        block: &mut [u8],
        entries: impl Iterator<Item = NewEntry<'a>> + Clone,
    ) -> bool {
        let area = self.area();
        if entries.clone().map(|entry| record_len(entry.name.len())).sum::<usize>() > area {
            return false;
        }
        block.fill(0);
        let (mut offset, mut last) = (0, 0);
        for entry in entries {
            let len = record_len(entry.name.len());
            self.write(block, offset, len, &entry);
            last = offset;
            offset += len;
        }
        self.set_len(block, last, area - last);
        self.write_tail(block);
        true
    }

    /// The first block of a new directory.
    pub(crate) fn fill_first(&self, block: &mut [u8], own: u32, parent: u32) {
        let kind = kind_code(FileKind::Directory);
        let entries =
            [NewEntry { inode: own, kind, name: b"." }, NewEntry { inode: parent, kind, name: b".." }];
        assert!(self.fill(block, entries.into_iter()), "two short names fit any block");
    }

    /// The block for a directory whose content is in its inode: the parent's number (4 bytes), then records that fill
    /// the first 60 bytes, then records that fill the rest. They keep their order and lengths, so that positions in
    /// the directory stay what they are when it gets this block.
    pub(crate) fn fill_from_inline(
        &self,
        block: &mut [u8],
        own: u32,
        content: &[u8],
    ) -> Result<(), BadEntry> {
        let bad = |what| BadEntry { offset: 0, what };
        if content.len() < FIRST || DOTS + content.len() - PARENT > self.area() {
            return Err(bad("a directory in its inode has an impossible size"));
        }
        self.fill_first(block, own, le32(content, 0));
        self.set_len(block, SHORTEST, SHORTEST);
        block[DOTS..DOTS + content.len() - PARENT].copy_from_slice(&content[PARENT..]);
        let mut last = SHORTEST;
        for (start, end) in [(PARENT, FIRST), (FIRST, content.len())] {
            let part = self.part(end - start);
            for record in part.records(&content[start..end]) {
                let record = record.map_err(|bad| BadEntry { offset: bad.offset + start as u32, ..bad })?;
                last = DOTS - PARENT + start + record.offset;
            }
        }
        self.set_len(block, last, self.area() - last);
        Ok(())
    }

    /// The format of one of the two areas of a directory in its inode.
    fn part(&self, len: usize) -> Self {
        Self { block_size: len, tail: false, ..*self }
    }

    /// The area of a directory in its inode, and the place there, of the entry that has this offset in the block it would have.
    fn inline_place<'a>(
        &self,
        content: &'a mut [u8],
        offset: usize,
    ) -> Result<(Self, &'a mut [u8], usize), BadEntry> {
        let at = offset.checked_sub(DOTS).map(|at| at + PARENT);
        let start = if at.is_some_and(|at| at >= FIRST) { FIRST } else { PARENT };
        let end = if start == FIRST { content.len() } else { FIRST };
        match (at, content.get_mut(start..end)) {
            (Some(at), Some(area)) => Ok((self.part(area.len()), area, at - start)),
            _ => Err(BadEntry { offset: offset as u32, what: "no entry of a directory in its inode" }),
        }
    }

    /// As [`Self::remove`] in a directory in its inode. An entry never reaches from one of its areas into the other.
    pub(crate) fn remove_inline(&self, content: &mut [u8], offset: usize) -> Result<(), BadEntry> {
        let (part, area, at) = self.inline_place(content, offset)?;
        part.remove(area, at)
    }

    /// As [`Self::set_inode`] in a directory in its inode, also of `..`.
    pub(crate) fn set_inode_inline(
        &self,
        content: &mut [u8],
        offset: usize,
        inode: u32,
        kind: u8,
    ) -> Result<(), BadEntry> {
        if offset == SHORTEST {
            content[..PARENT].copy_from_slice(&inode.to_le_bytes());
            return Ok(());
        }
        let (part, area, at) = self.inline_place(content, offset)?;
        part.set_inode(area, at, inode, kind)
    }

    /// Write the frame of the checksum tail, with the checksum left zero.
    pub(crate) fn write_tail(&self, block: &mut [u8]) {
        if self.tail {
            crate::layout::directory::write_tail(block);
        }
    }

    fn set_len(&self, block: &mut [u8], offset: usize, len: usize) {
        let field = encode_len(len, self.block_size);
        block[offset + 4..offset + 6].copy_from_slice(&field.to_le_bytes());
    }

    fn write(&self, block: &mut [u8], offset: usize, len: usize, new: &NewEntry<'_>) {
        assert!(!new.name.is_empty());
        let kind = if self.kinds { new.kind } else { 0 };
        write_entry(block, offset, len, InodeNumber(new.inode), kind, new.name);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn format(block_size: usize, tail: bool, kinds: bool) -> DirectoryFormat {
        DirectoryFormat { block_size, kinds, tail, inodes: 1 << 20 }
    }

    fn find<'a>(format: &DirectoryFormat, block: &'a [u8], name: &[u8]) -> Option<RawEntry<'a>> {
        match format.search(block, 0, |stored| stored == name).unwrap() {
            Searched::Found(record) => Some(record),
            Searched::Absent(_) => None,
        }
    }

    fn listing(format: DirectoryFormat, block: &[u8]) -> BTreeMap<Vec<u8>, u32> {
        let records = format.records(block).map(Result::unwrap);
        records.filter(|r| !r.is_free()).map(|r| (r.name.to_vec(), r.inode.0)).collect()
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(Vec<u8>, u32),
        Remove(usize),
        Point(usize, u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        let name = prop_oneof![
            4 => proptest::collection::vec(b'a'..=b'z', 1..20),
            1 => proptest::collection::vec(b'a'..=b'z', 1..256),
        ];
        prop_oneof![
            4 => (name, 11_u32..(1 << 20)).prop_map(|(name, inode)| Step::Insert(name, inode)),
            2 => any::<usize>().prop_map(Step::Remove),
            1 => (any::<usize>(), 11_u32..(1 << 20)).prop_map(|(at, inode)| Step::Point(at, inode)),
        ]
    }

    fn largest_gap(format: DirectoryFormat, block: &[u8]) -> usize {
        format.records(block).map(|record| record.unwrap().slack()).max().unwrap_or(0)
    }

    /// Records that fill `len` bytes, with these names as far as they fit.
    fn area_of(len: usize, names: &mut impl Iterator<Item = (Vec<u8>, u32)>) -> Vec<u8> {
        let part = format(len, false, true);
        let mut area = vec![0; len];
        let mut entries: Vec<(Vec<u8>, u32)> = Vec::new();
        for (name, inode) in names {
            let used: usize = entries.iter().map(|(name, _)| record_len(name.len())).sum();
            if used + record_len(name.len()) > len {
                break;
            }
            entries.push((name, inode));
        }
        let new = entries.iter().map(|(name, inode)| NewEntry { inode: *inode, kind: 1, name });
        assert!(part.fill(&mut area, new));
        area
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]
        /// A directory in its inode, of which the second area may be missing: as its block, whatever goes or is pointed elsewhere.
        #[test]
        fn inline_directory_behaves_as_its_block(
            lens in proptest::collection::vec(1_usize..9, 40),
            second in prop_oneof![Just(0_usize), 3_usize..40],
            steps in proptest::collection::vec((any::<usize>(), any::<bool>()), 1..40),
        ) {
            let format = format(1024, true, true);
            let mut names = lens.iter().enumerate().map(|(nth, len)| {
                (format!("{nth}{}", "n".repeat(*len)).into_bytes(), 100 + nth as u32)
            });
            let mut content = 77_u32.to_le_bytes().to_vec();
            content.extend(area_of(56, &mut names));
            if second > 0 {
                content.extend(area_of(second * 4, &mut names));
            }
            let block_of = |content: &[u8]| {
                let mut block = vec![0; 1024];
                format.fill_from_inline(&mut block, 5, content).unwrap();
                format.check(&block).unwrap();
                block
            };
            let mut model = listing(format, &block_of(&content));
            for (nth, remove) in steps {
                let name = model.keys().nth(nth % model.len()).unwrap().clone();
                let found = block_of(&content);
                let offset = find(&format, &found, &name).unwrap().offset;
                if name == b"." {
                    prop_assert!(format.remove_inline(&mut content, offset).is_err());
                } else if remove && name != b".." {
                    format.remove_inline(&mut content, offset).unwrap();
                    model.remove(&name);
                } else {
                    format.set_inode_inline(&mut content, offset, 4000 + nth as u32 % 100, 1).unwrap();
                    model.insert(name, 4000 + nth as u32 % 100);
                }
                prop_assert_eq!(&listing(format, &block_of(&content)), &model);
            }
        }

        #[test]
        fn block_behaves_as_a_map_and_gaps_are_exact(
            steps in proptest::collection::vec(step(), 1..300),
            (size, tail, kinds) in (
                prop_oneof![Just(1024_usize), Just(4096), Just(65536)], any::<bool>(), any::<bool>()
            ),
        ) {
            let format = format(size, tail, kinds);
            let mut block = vec![0_u8; size];
            format.fill_first(&mut block, 2, 2);
            let mut model: BTreeMap<Vec<u8>, u32> =
                [(b".".to_vec(), 2), (b"..".to_vec(), 2)].into_iter().collect();
            for step in steps {
                let nth = |at: usize| model.keys().nth(at % model.len().max(1)).cloned();
                match step {
                    Step::Insert(name, inode) => {
                        if model.contains_key(&name) { continue; }
                        let largest = largest_gap(format, &block);
                        let new = NewEntry { inode, kind: 1, name: &name };
                        let gap = format.find_gap(&block, record_len(name.len())).unwrap();
                        prop_assert_eq!(gap.is_some(), largest >= record_len(name.len()));
                        if let Some(gap) = gap {
                            let offset = format.put(&mut block, &gap, &new);
                            let record = format.record(&block, offset).unwrap();
                            prop_assert_eq!(record.name, &name[..]);
                            model.insert(name, inode);
                        }
                    }
                    Step::Remove(at) => {
                        let Some(name) = nth(at) else { continue };
                        let offset = find(&format, &block, &name).unwrap().offset;
                        format.remove(&mut block, offset).unwrap();
                        model.remove(&name);
                    }
                    Step::Point(at, inode) => {
                        let Some(name) = nth(at) else { continue };
                        let offset = find(&format, &block, &name).unwrap().offset;
                        format.set_inode(&mut block, offset, inode, 1).unwrap();
                        model.insert(name, inode);
                    }
                }
                format.check(&block).unwrap();
                prop_assert_eq!(&listing(format, &block), &model);
            }
        }

        #[test]
        fn hostile_bytes_never_panic(
            mut block in proptest::collection::vec(any::<u8>(), 1024),
            lens in proptest::collection::vec((0_usize..1024, prop_oneof![Just(12_u8), Just(16), any::<u8>()]), 0..64),
            tail in any::<bool>(), kinds in any::<bool>(),
        ) {
            for (at, len) in lens {
                let at = at & !3;
                if at + 6 <= 1024 { block[at + 4] = len; block[at + 5] = 0; block[at + 2] = 0; block[at + 3] = 0; }
            }
            let format = format(1024, tail, kinds);
            prop_assert!(format.records(&block).count() <= 1024 / 12 + 1);
            let _ = format.check(&block);
            let _ = format.search(&block, 12, |name| name == b"name");
            if let Ok(Some(gap)) = format.find_gap(&block, 12) {
                format.put(&mut block.clone(), &gap, &NewEntry { inode: 12, kind: 1, name: b"abc" });
            }
            for offset in (0..1024).step_by(4) {
                let _ = format.remove(&mut block.clone(), offset);
                let _ = format.set_inode(&mut block.clone(), offset, 12, 1);
            }
        }
    }

    #[test]
    fn fill_refuses_what_does_not_fit_and_keeps_the_tail() {
        let format = format(1024, true, true);
        let mut block = vec![0; 1024];
        let name = [b'n'; 244];
        let entry = NewEntry { inode: 12, kind: 1, name: &name };
        assert!(format.fill(&mut block, std::iter::repeat_n(entry, 4)));
        let offsets: Vec<_> = format.records(&block).map(|record| record.unwrap().offset).collect();
        assert_eq!(offsets, [0, 252, 504, 756]);
        assert!(is_tail(&block));
        format.check(&block).unwrap();
        assert!(!format.fill(&mut block, std::iter::repeat_n(entry, 5)));
        assert!(format.fill(&mut block, std::iter::empty()));
        format.check(&block).unwrap();
        assert_eq!(largest_gap(format, &block), 1012);
    }
}

//! Search and change of a directory as a whole.
//!
//! A directory without index is searched block by block, from the block of the last found name on. In both kinds an entry,
//! once found, is changed the same way.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use super::entries::{BadEntry, DirectoryFormat, NewEntry, RawEntry, Searched, record_len};
use super::{Blocks, ChangeBlocks, Directory, EntryLocation, EntrySpace, Lookup, NameForm, htree};
use crate::{Error, InodeNumber, Result};

impl Lookup {
    pub(super) fn found_at(block: u32, record: &RawEntry<'_>) -> Self {
        Self::Found(EntryLocation::new(block, record))
    }

    pub(super) fn of_block(block: u32, searched: &Searched<'_>) -> Self {
        match searched {
            Searched::Found(record) => Self::found_at(block, record),
            Searched::Absent(gap) => Self::Absent(gap.map(|gap| EntrySpace { block, gap })),
        }
    }
}

impl EntryLocation {
    pub(super) fn new(block: u32, record: &RawEntry<'_>) -> Self {
        Self { block, offset: record.offset, inode: record.inode, kind: record.kind_code }
    }
}

/// Call `each` for the records of one block of a directory, whatever the block is: entries, or a part of the index.
/// Free records are left out. The first bad record is an error, after `each` was called for the others.
pub(super) fn for_each_record<'a>(
    format: &DirectoryFormat,
    indexed: bool,
    number: u32,
    block: &'a [u8],
    mut each: impl FnMut(RawEntry<'a>),
) -> Result<(), BadEntry> {
    if indexed && number == 0 {
        let (dot, dot_dot) = htree::root_dots(format, block)?;
        each(dot);
        each(dot_dot);
        return Ok(());
    }
    if indexed && htree::looks_like_node(format, block) {
        return Ok(());
    }
    let mut sound = Ok(());
    for record in format.records(block) {
        match record {
            Ok(record) if !record.is_free() => each(record),
            Ok(_) => {}
            Err(bad) => sound = sound.and(Err(bad)),
        }
    }
    sound
}

impl<B: Blocks> Directory<'_, B> {
    /// The entry of that name.
    #[cfg(test)]
    pub(crate) fn find(&self, name: &[u8]) -> Result<Option<EntryLocation>> {
        self.find_or_space(name).map(Lookup::found)
    }

    /// The entry of that name, or perhaps space for it.
    pub(crate) fn find_or_space(&self, name: &[u8]) -> Result<Lookup> {
        if matches!(self.form, NameForm::Encrypted(_)) || !self.uses_index() {
            return self.search(name);
        }
        match self.find_indexed(name) {
            // A damaged index hides no name from a reader.
            Err(Error::Corrupt(_)) => self.search(name),
            found => found,
        }
    }

    /// Whether names are found by an index: a directory of one block has none, whatever its flag says.
    pub(super) fn uses_index(&self) -> bool {
        self.blocks.is_indexed() && self.blocks.count() > 1
    }

    /// The format of a block: the root of an index has no tail of the usual form.
    pub(super) fn format_of(&self, block: u32, format: &DirectoryFormat) -> DirectoryFormat {
        let is_root = block == 0 && self.blocks.is_indexed();
        DirectoryFormat { tail: format.tail && !is_root, ..*format }
    }

    /// Look through all blocks for the name, as users see it. Without an index, space is looked for too.
    fn search(&self, name: &[u8]) -> Result<Lookup> {
        let (indexed, count) = (self.uses_index(), self.blocks.count());
        let start = self.start.load(Ordering::Relaxed).min(count);
        let (mut damage, mut space): (_, Option<EntrySpace>) = (None, None);
        for block in (start..count).chain(0..start) {
            match self.search_block(block, indexed, name) {
                Ok(Lookup::Found(found)) => {
                    self.start.store(block, Ordering::Relaxed);
                    return Ok(Lookup::Found(found));
                }
                Ok(Lookup::Absent(Some(found)))
                    if !indexed && space.is_none_or(|space| block < space.block) =>
                {
                    space = Some(found);
                }
                Ok(Lookup::Absent(_)) => {}
                Err(Error::Corrupt(bad)) => damage = damage.or(Some(bad)),
                Err(error) => return Err(error),
            }
        }
        damage.map_or(Ok(Lookup::Absent(space)), |bad| Err(Error::Corrupt(bad)))
    }

    fn search_block(&self, number: u32, indexed: bool, name: &[u8]) -> Result<Lookup> {
        let format = &self.rules.format;
        let is_it = |stored: &[u8]| self.form.is_shown_as(stored, name);
        self.blocks.read(number, |block| {
            if indexed && number == 0 {
                let (dot, dot_dot) = htree::root_dots(format, block)?;
                let found = [dot, dot_dot].into_iter().find(|dots| is_it(dots.name));
                return Ok(found.map_or(Lookup::Absent(None), |dots| Lookup::found_at(number, &dots)));
            }
            if indexed && htree::looks_like_node(format, block) {
                return Ok(Lookup::Absent(None));
            }
            let searched = format.search(block, record_len(name.len()), is_it)?;
            Ok(Lookup::of_block(number, &searched))
        })
    }

    /// The first damage that hides an entry, as an error.
    pub(crate) fn check_entries(&self) -> Result<()> {
        let indexed = self.uses_index();
        (0..self.blocks.count()).try_for_each(|number| {
            self.blocks.read(number, |block| {
                let mut nth = 0;
                let mut sound = Ok(());
                let read = for_each_record(&self.rules.format, indexed, number, block, |record| {
                    nth += 1;
                    if let Err(bad) = self.shown(&record, number > 0 || nth > 2) {
                        sound = sound.and(Err(bad));
                    }
                });
                read.and(sound)
            })
        })
    }

    /// The name of an entry as users see it. The dots are the first two entries, and no others.
    pub(super) fn shown<'r>(&self, record: &RawEntry<'r>, is_other: bool) -> Result<Cow<'r, [u8]>, BadEntry> {
        let bad = |what| BadEntry { offset: record.offset as u32, what };
        match record.name {
            b"." | b".." if is_other => Err(bad("an entry for the directory itself is not at its beginning")),
            // They are never encrypted.
            b"." | b".." => Ok(Cow::Borrowed(record.name)),
            name => self.form.shown(name).map_err(bad),
        }
    }

    /// Whether there is nothing but the dots.
    pub(crate) fn is_empty(&self) -> Result<bool> {
        let indexed = self.uses_index();
        for number in 0..self.blocks.count() {
            let mut empty = true;
            self.blocks.read(number, |block| {
                for_each_record(&self.rules.format, indexed, number, block, |record| {
                    empty &= record.name == b"." || record.name == b"..";
                })
            })?;
            if !empty {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl<B: ChangeBlocks> Directory<'_, B> {
    /// Make the first block of a new directory, which has none yet.
    pub(crate) fn create(&mut self, parent: InodeNumber) -> Result<()> {
        let (format, own) = (self.rules.format, self.blocks.inode().0);
        self.blocks.append(|block| format.fill_first(block, own, parent.0)).map(drop)
    }

    /// Space for a new name: the changes are consistent by themselves, also after an error.
    pub(crate) fn make_space(&mut self, name: &[u8]) -> Result<EntrySpace> {
        let need = record_len(name.len());
        if self.uses_index() {
            return self.make_space_indexed(name, need);
        }
        let format = self.rules.format;
        for block in 0..self.blocks.count() {
            if let Some(gap) = self.blocks.read(block, |bytes| format.find_gap(bytes, need))? {
                return Ok(EntrySpace { block, gap });
            }
        }
        if self.blocks.count() == 1 && self.rules.make_index {
            self.make_index()?;
            return self.make_space_indexed(name, need);
        }
        self.append_leaf(need)
    }

    /// A new block without entries, at the end.
    fn append_leaf(&mut self, need: usize) -> Result<EntrySpace> {
        let format = self.rules.format;
        if self.blocks.count() >= self.rules.blocks_max {
            return Err(Error::NoSpace);
        }
        let block = self.blocks.append(|bytes| {
            assert!(format.fill(bytes, std::iter::empty()), "nothing fits");
        })?;
        let gap = self.blocks.read(block, |bytes| format.find_gap(bytes, need))?;
        let gap = gap.expect("a name fits an empty block");
        Ok(EntrySpace { block, gap })
    }

    /// Put an entry in the place made for its name.
    pub(crate) fn put(&mut self, place: &EntrySpace, new: &NewEntry<'_>) -> Result<EntryLocation> {
        let format = self.rules.format;
        let offset = self.blocks.change(place.block, |bytes| Ok(format.put(bytes, &place.gap, new)))?;
        Ok(EntryLocation { block: place.block, offset, inode: InodeNumber(new.inode), kind: new.kind })
    }

    /// Remove an entry that was found.
    pub(crate) fn remove(&mut self, found: &EntryLocation) -> Result<()> {
        let format = self.rules.format;
        self.blocks.change(found.block, |bytes| format.remove(bytes, found.offset))
    }

    /// Point an entry that was found to another inode.
    pub(crate) fn set_inode(&mut self, found: &EntryLocation, inode: InodeNumber, kind: u8) -> Result<()> {
        let format = self.format_of(found.block, &self.rules.format);
        self.blocks.change(found.block, |bytes| format.set_inode(bytes, found.offset, inode.0, kind))
    }
}

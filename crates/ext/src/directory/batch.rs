//! Some entries of a listing, with all their names in one piece of memory, which the next batch reuses.

use crate::{DirectoryEntry, FileKind, InodeNumber};

/// Entries that were listed together: about as many as a block of the directory has.
#[derive(Default)]
pub struct EntryBatch {
    names: Vec<u8>,
    slots: Vec<Slot>,
    /// Entries beside these may be missing.
    is_damaged: bool,
}

diorite_block::short_debug!(EntryBatch);

/// An entry, without its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// The cursor after it; the sort key while a batch is being made.
    pub(super) cursor: u64,
    inode: InodeNumber,
    name_start: u32,
    name_len: u16,
    kind: Option<FileKind>,
}

impl EntryBatch {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Where to continue after the last one.
    pub fn next_cursor(&self) -> Option<u64> {
        self.slots.last().map(|slot| slot.cursor)
    }

    /// One of them.
    pub fn get(&self, index: usize) -> Option<DirectoryEntry> {
        let slot = self.slots.get(index)?;
        Some(DirectoryEntry {
            name: self.name(slot).to_vec(),
            inode: slot.inode,
            kind: slot.kind,
            next_cursor: slot.cursor,
        })
    }

    /// Call `each` for all, until it returns `false`: whether it never did.
    pub(crate) fn for_each(&self, each: &mut dyn FnMut(&DirectoryEntry) -> bool) -> bool {
        let Some(mut entry) = self.get(0) else { return true };
        self.slots.iter().all(|slot| {
            entry.name.clear();
            entry.name.extend_from_slice(self.name(slot));
            (entry.inode, entry.kind, entry.next_cursor) = (slot.inode, slot.kind, slot.cursor);
            each(&entry)
        })
    }

    pub(super) fn clear(&mut self) {
        self.names.clear();
        self.slots.clear();
        self.is_damaged = false;
    }

    /// Whether damage hid entries that would be among these.
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// Damage hides entries.
    pub(super) fn note_damage(&mut self) {
        self.is_damaged = true;
    }

    pub(super) fn push(&mut self, name: &[u8], inode: InodeNumber, kind: Option<FileKind>, cursor: u64) {
        let (name_start, name_len) = (self.names.len() as u32, name.len() as u16);
        self.names.extend_from_slice(name);
        self.slots.push(Slot { cursor, inode, name_start, name_len, kind });
    }

    /// Take out those with this cursor or a larger one. Their names stay.
    pub(super) fn split_from(&mut self, cursor: u64) -> Vec<Slot> {
        let after = self.slots.iter().filter(|slot| slot.cursor >= cursor).copied().collect();
        self.slots.retain(|slot| slot.cursor < cursor);
        after
    }

    /// Keep only the entries that [`EntryBatch::split_from`] took out.
    pub(super) fn put_back(&mut self, slots: Vec<Slot>) {
        self.slots = slots;
    }

    /// Sort by cursors and then by names, and let `change` give each its own cursor and say whether it stays.
    pub(super) fn sort_and_retain(&mut self, change: impl FnMut(&mut Slot) -> bool) {
        let Self { names, slots, .. } = self;
        slots.sort_unstable_by(|left, right| {
            left.cursor.cmp(&right.cursor).then_with(|| name_of(names, left).cmp(name_of(names, right)))
        });
        slots.retain_mut(change);
    }

    fn name(&self, slot: &Slot) -> &[u8] {
        name_of(&self.names, slot)
    }
}

fn name_of<'a>(names: &'a [u8], slot: &Slot) -> &'a [u8] {
    let start = slot.name_start as usize;
    &names[start..start + usize::from(slot.name_len)]
}

//! Listing: every entry once, in batches, from a cursor.
//!
//! A cursor must find its place again after names were added and removed. In a directory without index no entry ever
//! moves, and the cursor is a byte position. Under an index entries move when leaves split, so the order is that of
//! the names' hashes. Where the volume makes indexes, a directory of one block, which may get one, is listed in the
//! order of the hashes as well.
//!
//! Cursors: 0 the start; 1 and 2 after the dots in hash order; from [`FIRST_KEY`] on the smallest key to come, made
//! of 31 bits of the hash, 23 bits of another hash, and 8 bits that count names equal in both;
//! with [`IN_LINE`] set a byte position in a directory whose index cannot be used.
//!
//! A damaged entry, or block, is left out, and the batch says so: the caller reports it after the last entry
//! ([`Directory::check_entries`]).

use hashbrown::HashSet;

use super::entries::kind_of_code;
use super::htree::{self, Root};
use super::indexed::IndexPath;
use super::linear::for_each_record;
use super::{Blocks, Directory, EntryBatch};
use crate::{Error, Result};

/// Cursor of the entry with key 0.
const FIRST_KEY: u64 = 3;
/// The cursor is a position although the directory has an index.
const IN_LINE: u64 = 1 << 62;
/// Bits of a key below the hash.
const MINOR_BITS: u32 = 31;

/// The smallest key of the names with these hashes.
fn group_of(hash: u32, minor: u32) -> u64 {
    (u64::from(hash >> 1) << MINOR_BITS) | u64::from(minor >> 9) << 8
}

impl<B: Blocks> Directory<'_, B> {
    /// Have `batch` be the entries from `cursor` on: some, or none at the end.
    pub(crate) fn list(&self, cursor: u64, batch: &mut EntryBatch) -> Result<()> {
        batch.clear();
        if cursor == 0 {
            self.blocks.read_ahead();
        }
        let indexed = self.uses_index();
        let by_hash = self.rules.make_index && self.blocks.count() == 1 || indexed;
        if !by_hash {
            return self.list_in_line(cursor, 0, batch);
        }
        if cursor & IN_LINE != 0 || (indexed && cursor == 0 && !self.index_is_sound()?) {
            return self.list_in_line(cursor & !IN_LINE, IN_LINE, batch);
        }
        if cursor < 2 {
            return self.list_dots(cursor, batch);
        }
        let least = cursor.saturating_sub(FIRST_KEY);
        if indexed { self.list_leaves(least, batch) } else { self.list_single(least, batch) }
    }

    fn list_in_line(&self, cursor: u64, flag: u64, batch: &mut EntryBatch) -> Result<()> {
        let size = self.rules.format.block_size as u64;
        let indexed = flag != 0;
        let first = u32::try_from(cursor / size).unwrap_or(u32::MAX);
        for number in first..self.blocks.count() {
            let start = u64::from(number) * size;
            let read = self.blocks.read(number, |block| {
                let (mut nth, mut sound) = (0, Ok(()));
                let read = for_each_record(&self.rules.format, indexed, number, block, |record| {
                    nth += 1;
                    if start + (record.offset as u64) < cursor {
                        return;
                    }
                    match self.shown(&record, number > 0 || nth > 2) {
                        Ok(name) => {
                            let next = (start + record.offset as u64 + record.length as u64) | flag;
                            batch.push(&name, record.inode, kind_of_code(record.kind_code), next);
                        }
                        Err(bad) => sound = Err(bad),
                    }
                });
                read.and(sound)
            });
            pass_over_damage(read, batch)?;
            if !batch.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// The dots, which begin the first block.
    fn list_dots(&self, cursor: u64, batch: &mut EntryBatch) -> Result<()> {
        self.blocks.read(0, |block| {
            let (dot, dot_dot) = htree::root_dots(&self.rules.format, block)?;
            for (next, name, record) in [(1, &b"."[..], dot), (2, b"..", dot_dot)] {
                if next > cursor {
                    batch.push(name, record.inode, kind_of_code(record.kind_code), next);
                }
            }
            Ok(())
        })
    }

    /// The entries of a directory of one block in the order in which its index would have them.
    fn list_single(&self, least: u64, batch: &mut EntryBatch) -> Result<()> {
        let root = Root::unborn(self.rules.hash.version);
        let read = self.collect(&root, 0, (0, u32::MAX), batch);
        pass_over_damage(read, batch)?;
        put_in_order(batch, least);
        Ok(())
    }

    fn list_leaves(&self, least: u64, batch: &mut EntryBatch) -> Result<()> {
        let start = ((least >> MINOR_BITS) as u32) << 1;
        let mut way = self.walk(|_| start)?;
        for _ in 0..self.blocks.count() {
            let next = self.next_hash(&way)?;
            let continues = next.is_some_and(|next| next & 1 != 0);
            let last = match next {
                Some(next) if continues => next & !1,
                Some(next) => next.saturating_sub(2),
                None => !1,
            };
            let read = self.collect(&way.root, way.leaf, (way.leaf_hash & !1, last), batch);
            pass_over_damage(read, batch)?;
            // Names of this hash go on in the next leaf: one group in the order.
            let carried = if continues { batch.split_from(group_of(last, 0)) } else { Vec::new() };
            put_in_order(batch, least);
            if !batch.is_empty() || next.is_none() {
                return Ok(());
            }
            batch.put_back(carried);
            self.advance(&mut way)?;
        }
        self.bad_index(0, "more leaves in the index than blocks in the directory")
    }

    /// Add the entries of a block, but the dots, each with the smallest key of its hashes as its cursor. The hashes are
    /// forced into the range that the index gives the block, so that a name in a wrong leaf is seen, and once.
    fn collect(
        &self,
        root: &Root,
        number: u32,
        (first, last): (u32, u32),
        batch: &mut EntryBatch,
    ) -> Result<()> {
        let (format, hash) = (&self.rules.format, self.rules.hash);
        let key_of = |(major, minor): (u32, u32)| group_of(major.max(first).min(last), minor);
        let indexed = self.uses_index();
        self.blocks.read(number, |block| {
            let mut sound = Ok(());
            for (at, record) in format.records(block).enumerate() {
                let is_dot = number == 0 && !indexed && at < 2;
                let name = match &record {
                    Ok(record) if record.is_free() || is_dot => continue,
                    Ok(record) => self.shown(record, true),
                    Err(bad) => Err(*bad),
                };
                match (record, name) {
                    (Ok(record), Ok(name)) => {
                        let key = key_of(hash.both(root.hash_version, &self.form.key(record.name)));
                        batch.push(&name, record.inode, kind_of_code(record.kind_code), key);
                    }
                    (_, name) => sound = sound.and(name.map(drop)),
                }
            }
            sound
        })
    }

    /// Whether every index block is sound and has its own place in the tree.
    fn index_is_sound(&self) -> Result<bool> {
        match self.check_index() {
            Ok(()) => Ok(true),
            Err(Error::Corrupt(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Check the whole index: no block in it twice, hashes in order.
    pub(super) fn check_index(&self) -> Result<()> {
        let (format, count) = (&self.rules.format, self.blocks.count());
        let root = self.root()?;
        let mut seen = HashSet::new();
        let mut level_blocks = vec![0];
        for level in 0..=root.levels {
            let mut below = Vec::new();
            for number in level_blocks {
                self.blocks.read(number, |block| {
                    let index = if level == 0 { root.index } else { htree::parse_node(format, block)? };
                    index.check(block, count)?;
                    below.extend((0..index.count).map(|at| index.child(block, at)));
                    Ok(())
                })?;
            }
            for child in &below {
                if !seen.insert(*child) {
                    return self.bad_index(*child, "the block is in the index twice");
                }
            }
            level_blocks = below;
        }
        // Hashes rise across blocks as well.
        let mut way: IndexPath = self.walk(|_| 0)?;
        let mut before = 0;
        while self.advance(&mut way)? {
            if way.leaf_hash < before {
                return self.bad_index(way.leaf, "the hashes of the index are not in order");
            }
            before = way.leaf_hash;
        }
        Ok(())
    }
}

/// Damage of a block hides no entries but its own.
fn pass_over_damage(read: Result<()>, batch: &mut EntryBatch) -> Result<()> {
    match read {
        Err(Error::Corrupt(_)) => {
            batch.note_damage();
            Ok(())
        }
        read => read,
    }
}

/// Sort entries, which have the smallest keys of their hashes as cursors, and give them their own cursors; those before key `least` go.
fn put_in_order(batch: &mut EntryBatch, least: u64) {
    let (mut before, mut nth) = (None, 0);
    batch.sort_and_retain(|slot| {
        let group = slot.cursor;
        nth = if before == Some(group) { (nth + 1).min(255) } else { 0 };
        before = Some(group);
        let key = group | nth;
        slot.cursor = key + 1 + FIRST_KEY;
        key >= least
    });
}

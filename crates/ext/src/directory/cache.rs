//! Cache of name locations in directories without an index.
//!
//! Where it sits: [`NameCaches`] belongs to the volume and keeps a [`DirectoryCache`] for each directory that was used lately. `linear`
//! reads and maintains it. An index finds its names itself.
//!
//! Invariants:
//! 1. A slot says where an entry begins: a change that moves or removes an entry does the same with its slot.
//! 2. A complete cache has a slot for every entry.
//! 3. The free space of a block is its largest gap.
//! 4. All caches together have at most the slots given to [`NameCaches::new`], and one directory more while it is in use.
//!
//! Locking: a thread that locks a directory's cache has the directory's inode locked.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use diorite_block::sync::{Mutex, Rank};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use super::entries::BadEntry;
use super::{DirectoryFormat, NameForm};
use crate::InodeNumber;

/// Directories that are remembered.
const DIRECTORIES_MAX: usize = 4096;
/// Where a name's entry begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    /// Hash of the name.
    tag: u32,
    block: u32,
    /// Offset in the block, divided by four.
    offset: u16,
}

/// Cache of one directory.
#[derive(Debug)]
pub(crate) struct DirectoryCache {
    names: HashTable<Slot>,
    /// Slots that it may have.
    slots_max: usize,
    complete: bool,
    /// The directory has more names than may be remembered.
    too_large: bool,
    /// The largest gap of each block, if known.
    gaps: Option<Vec<usize>>,
}

/// Hashes names; seeded anew by each process.
static NAME_HASHER: LazyLock<DefaultHashBuilder> = LazyLock::new(DefaultHashBuilder::default);

/// The hash for [`Slot`] of a name's [key](NameForm::key): any good one; it is on no disk.
pub(crate) fn tag(key: &[u8]) -> u32 {
    NAME_HASHER.hash_one(key) as u32
}

/// A table hash of a tag: the table uses the low and the highest bits.
fn spread(tag: u32) -> u64 {
    u64::from(tag).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl DirectoryCache {
    /// Nothing yet; at most `slots_max` names later: 13 to 26 bytes each.
    pub(crate) fn new(slots_max: usize) -> Self {
        Self { names: HashTable::new(), slots_max, complete: false, too_large: false, gaps: None }
    }

    /// Locations of entries with that tag: usually none or one.
    pub(crate) fn candidates(&self, tag: u32) -> impl Iterator<Item = (u32, usize)> + '_ {
        let same = self.names.iter_hash(spread(tag)).filter(move |slot| slot.tag == tag);
        same.map(|slot| (slot.block, usize::from(slot.offset) * 4))
    }

    /// Whether a name without candidate does not exist.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// From now on every entry has its slot.
    pub(crate) fn set_complete(&mut self) {
        self.complete = !self.too_large;
    }

    /// Whether all names may be remembered.
    pub(crate) fn may_be_complete(&self) -> bool {
        !self.too_large
    }

    /// An entry begins there.
    pub(crate) fn insert(&mut self, tag: u32, block: u32, offset: usize) {
        if self.too_large {
            return;
        }
        if self.names.len() >= self.slots_max {
            // A directory of this size is searched from now on.
            self.names = HashTable::new();
            (self.complete, self.too_large) = (false, true);
            return;
        }
        let slot = Slot { tag, block, offset: (offset / 4) as u16 };
        self.names.insert_unique(spread(tag), slot, |slot| spread(slot.tag));
    }

    /// No entry begins there any more.
    pub(crate) fn remove(&mut self, tag: u32, block: u32, offset: usize) {
        let slot = Slot { tag, block, offset: (offset / 4) as u16 };
        if let Ok(entry) = self.names.find_entry(spread(tag), |other| *other == slot) {
            entry.remove();
        }
    }

    /// All entries of a block that has none remembered. The first bad one is an error; the others are remembered all the same.
    pub(crate) fn insert_block(
        &mut self,
        format: &DirectoryFormat,
        form: NameForm,
        number: u32,
        block: &[u8],
    ) -> Result<(), BadEntry> {
        let mut sound = Ok(());
        for record in format.records(block) {
            match record {
                Ok(record) if !record.is_free() => {
                    self.insert(tag(&form.key(record.name)), number, record.offset);
                }
                Ok(_) => {}
                Err(bad) => sound = sound.and(Err(bad)),
            }
        }
        sound
    }

    /// Forget everything.
    pub(crate) fn clear(&mut self) {
        *self = Self { too_large: self.too_large, ..Self::new(self.slots_max) };
    }

    /// Whether the gaps of all blocks are known.
    pub(crate) fn has_gaps(&self) -> bool {
        self.gaps.is_some()
    }

    /// The first block with a gap of at least `need` bytes.
    pub(crate) fn first_gap(&self, need: usize) -> Option<u32> {
        let index = self.gaps.as_ref()?.iter().position(|gap| *gap >= need)?;
        Some(index as u32)
    }

    /// Set the largest gap of every block.
    pub(crate) fn set_gaps(&mut self, gaps: Vec<usize>) {
        self.gaps = Some(gaps);
    }

    /// A block's largest gap changed, or it is a new one at the end.
    pub(crate) fn set_gap(&mut self, block: u32, gap: usize) {
        if let Some(gaps) = &mut self.gaps {
            let len = gaps.len().max(block as usize + 1);
            gaps.resize(len, 0);
            gaps[block as usize] = gap;
        }
    }
}

/// The caches of a volume's directories.
#[derive(Debug)]
pub(crate) struct NameCaches {
    slots_max: usize,
    map: Mutex<HashMap<InodeNumber, Arc<CacheEntry>>>,
    slots: AtomicUsize,
    uses: AtomicU64,
}

/// A directory's cache, and how it counts.
#[derive(Debug)]
pub(crate) struct CacheEntry {
    cache: Mutex<DirectoryCache>,
    slots: AtomicUsize,
    last_use: AtomicU64,
}

impl CacheEntry {
    fn new(slots_max: usize) -> Self {
        Self {
            cache: Mutex::ranked(Rank::DirectoryCache, DirectoryCache::new(slots_max)),
            slots: AtomicUsize::new(0),
            last_use: AtomicU64::new(0),
        }
    }
}

impl NameCaches {
    /// For at most `slots_max` names in all directories together.
    pub(crate) fn new(slots_max: usize) -> Self {
        Self {
            slots_max,
            map: Mutex::ranked(Rank::DirectoryMap, HashMap::new()),
            slots: AtomicUsize::new(0),
            uses: AtomicU64::new(0),
        }
    }

    /// Work with a directory's cache. The directory's inode is locked.
    pub(crate) fn with<R>(&self, directory: InodeNumber, work: impl FnOnce(&mut DirectoryCache) -> R) -> R {
        let entry = {
            let mut map = self.map.lock();
            if map.len() >= DIRECTORIES_MAX && !map.contains_key(&directory) {
                self.evict(&mut map, directory, DIRECTORIES_MAX / 2, self.slots_max);
            }
            map.entry(directory).or_insert_with(|| Arc::new(CacheEntry::new(self.slots_max))).clone()
        };
        let mut cache = entry.cache.lock();
        let result = work(&mut cache);
        let (before, slots) = (entry.slots.load(Ordering::Relaxed), cache.names.len());
        if before != slots {
            entry.slots.store(slots, Ordering::Relaxed);
            entry.last_use.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
            let grown = slots.wrapping_sub(before);
            let total = self.slots.fetch_add(grown, Ordering::Relaxed).wrapping_add(grown);
            drop(cache);
            if total > self.slots_max {
                self.evict(&mut self.map.lock(), directory, DIRECTORIES_MAX, self.slots_max / 4 * 3);
            }
        }
        result
    }

    /// The directory was removed, or its number belongs to another now.
    pub(crate) fn forget(&self, directory: InodeNumber) {
        if let Some(entry) = self.map.lock().remove(&directory) {
            self.slots.fetch_sub(entry.slots.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Drop caches, the least recently grown first, until so many directories and slots are left.
    fn evict(
        &self,
        map: &mut HashMap<InodeNumber, Arc<CacheEntry>>,
        keep: InodeNumber,
        directories: usize,
        slots: usize,
    ) {
        let mut by_use: Vec<_> =
            map.iter().map(|(number, entry)| (entry.last_use.load(Ordering::Relaxed), *number)).collect();
        by_use.sort_unstable();
        for (_, number) in by_use {
            if map.len() <= directories && self.slots.load(Ordering::Relaxed) <= slots {
                break;
            }
            // A cache in use stays: its user would go on with one that no other thread sees.
            if number != keep && map.get(&number).is_some_and(|entry| Arc::strong_count(entry) == 1) {
                let entry = map.remove(&number);
                let slots = entry.map_or(0, |entry| entry.slots.load(Ordering::Relaxed));
                self.slots.fetch_sub(slots, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_stay_within_their_bound() {
        const SLOTS_MAX: usize = 1 << 16;
        let caches = NameCaches::new(SLOTS_MAX);
        for directory in 0..64_u32 {
            caches.with(InodeNumber(directory), |cache| {
                for n in 0..SLOTS_MAX / 16 {
                    cache.insert(n as u32, n as u32, 0);
                }
            });
            assert!(caches.slots.load(Ordering::Relaxed) <= SLOTS_MAX);
        }
        let total: usize = caches.map.lock().values().map(|e| e.slots.load(Ordering::Relaxed)).sum();
        assert_eq!(total, caches.slots.load(Ordering::Relaxed));
    }
}

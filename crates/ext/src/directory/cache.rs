//! Where names are, in memory.
//!
//! Where it sits: [`NameCaches`] belongs to the volume and keeps a [`DirectoryCache`] for each directory that was used
//! lately; `linear` and `indexed` read and maintain it.
//!
//! Invariants:
//! 1. A slot says where an entry begins: to move or remove an entry is to move or remove its slot.
//! 2. A complete cache has a slot for every entry.
//! 3. The free space of a block is its largest gap.
//! 4. All caches together have at most the slots given to [`NameCaches::new`], and one directory more while it is in use. What is
//!    remembered of a block counts as [`SLOTS_OF_BLOCK`].
//!
//! Locking: a directory's cache is locked by a thread that has the directory's inode locked.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use diorite_block::sync::{Mutex, Rank};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use super::entries::BadEntry;
use super::{DirectoryFormat, NameForm};
use crate::InodeNumber;
use crate::buffer::Buffer;

/// Directories that are remembered.
const DIRECTORIES_MAX: usize = 4096;
/// What is remembered of a block, with the shell of its buffer that stays as long, takes as much memory as so many slots.
const SLOTS_OF_BLOCK: usize = 8;

/// Where a name's entry begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    /// Hash of the name.
    tag: u32,
    block: u32,
    /// Offset in the block, divided by four.
    offset: u16,
}

/// What is remembered of one directory.
#[derive(Debug)]
pub(crate) struct DirectoryCache {
    names: HashTable<Slot>,
    /// Slots that it may have.
    slots_max: usize,
    complete: bool,
    /// The directory has more names than may be remembered.
    too_large: bool,
    gaps: Option<Gaps>,
    /// Of blocks, where the record begins that got the rest of the last gap taken there.
    last_gaps: HashMap<u32, u16>,
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
        Self {
            names: HashTable::new(),
            slots_max,
            complete: false,
            too_large: false,
            gaps: None,
            last_gaps: HashMap::new(),
        }
    }

    /// Places where an entry with that tag begins: usually none or one.
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
            // A linear directory of this size is searched from now on; an indexed one has its index.
            self.names = HashTable::new();
            (self.complete, self.too_large) = (false, true);
            return;
        }
        let slot = Slot { tag, block, offset: (offset / 4) as u16 };
        self.names.insert_unique(spread(tag), slot, |slot| spread(slot.tag));
    }

    /// As [`Self::insert`], unless the slot is there.
    pub(crate) fn learn(&mut self, tag: u32, block: u32, offset: usize) {
        if !self.candidates(tag).any(|place| place == (block, offset)) {
            self.insert(tag, block, offset);
        }
    }

    /// No entry begins there any more.
    pub(crate) fn remove(&mut self, tag: u32, block: u32, offset: usize) {
        let slot = Slot { tag, block, offset: (offset / 4) as u16 };
        if let Ok(entry) = self.names.find_entry(spread(tag), |other| *other == slot) {
            entry.remove();
        }
    }

    /// All entries of a block, before they move.
    pub(crate) fn remove_block(
        &mut self,
        format: &DirectoryFormat,
        form: NameForm,
        number: u32,
        block: &[u8],
    ) {
        for record in format.records(block).map_while(Result::ok).filter(|record| record.inode != 0) {
            self.remove(tag(&form.key(record.name)), number, record.offset);
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
                Ok(record) if record.inode != 0 => {
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

    /// The largest gap of each block, if known.
    pub(crate) fn gaps(&mut self) -> Option<&mut Gaps> {
        self.gaps.as_mut()
    }

    /// Set the gaps of all blocks, or forget it.
    pub(crate) fn set_gaps(&mut self, gaps: Option<Gaps>) {
        self.gaps = gaps;
    }

    /// Where a gap is likely to be in a block: a record begins there.
    pub(crate) fn last_gap(&self, block: u32) -> Option<usize> {
        self.last_gaps.get(&block).map(|offset| usize::from(*offset) * 4)
    }

    /// The record at `offset` has what is left of a gap.
    pub(crate) fn set_last_gap(&mut self, block: u32, offset: usize) {
        self.last_gaps.insert(block, (offset / 4) as u16);
    }

    /// Records of the block move or go.
    pub(crate) fn forget_last_gap(&mut self, block: u32) {
        self.last_gaps.remove(&block);
    }

    /// A block's largest gap changed.
    pub(crate) fn set_gap(&mut self, block: u32, gap: usize) {
        if let Some(gaps) = &mut self.gaps {
            gaps.set(block, gap);
        }
    }

    fn slots(&self) -> usize {
        self.names.len() + self.last_gaps.len()
    }
}

/// The largest gap of each block, as a tree of maxima: finds the first block with enough space in logarithmic time.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    /// A complete binary tree, root at 1, leaves from `leaves` on; gaps divided by four.
    tree: Vec<u16>,
    leaves: usize,
}

impl Gaps {
    /// Set the gap of a block; blocks that were never set have none.
    pub(crate) fn set(&mut self, block: u32, gap: usize) {
        let block = block as usize;
        if block >= self.leaves {
            self.grow(block + 1);
        }
        let mut at = self.leaves + block;
        self.tree[at] = (gap / 4) as u16;
        while at > 1 {
            at /= 2;
            let largest = self.tree[at * 2].max(self.tree[at * 2 + 1]);
            if self.tree[at] == largest {
                break;
            }
            self.tree[at] = largest;
        }
    }

    /// The first block with a gap of at least `need`.
    pub(crate) fn first_with(&self, need: usize) -> Option<u32> {
        let need = (need / 4) as u16;
        if self.leaves == 0 || self.tree[1] < need {
            return None;
        }
        let mut at = 1;
        while at < self.leaves {
            at *= 2;
            if self.tree[at] < need {
                at += 1;
            }
        }
        Some((at - self.leaves) as u32)
    }

    fn grow(&mut self, blocks: usize) {
        let leaves = blocks.next_power_of_two().max(8);
        let mut tree = vec![0; leaves * 2];
        tree[leaves..leaves + self.leaves].copy_from_slice(&self.tree[self.leaves..]);
        for at in (1..leaves).rev() {
            tree[at] = tree[at * 2].max(tree[at * 2 + 1]);
        }
        (self.tree, self.leaves) = (tree, leaves);
    }
}

/// The buffers of a directory's blocks, while they are in memory: the way past the mapping and the map of all buffers. Blocks of a
/// directory stay where they are until it is removed, and then its cache is forgotten.
#[derive(Debug)]
pub(crate) struct CachedBlocks {
    buffers: Vec<Weak<Buffer>>,
    /// Blocks that are remembered of one directory, from its first one on.
    max: usize,
}

impl CachedBlocks {
    fn new(slots_max: usize) -> Self {
        Self { buffers: Vec::new(), max: slots_max / SLOTS_OF_BLOCK / 2 }
    }

    fn slots(&self) -> usize {
        self.buffers.len() * SLOTS_OF_BLOCK
    }

    /// The block's buffer, if it is known and in memory.
    pub(crate) fn get(&self, block: u32) -> Option<Arc<Buffer>> {
        let buffer = self.buffers.get(block as usize)?.upgrade()?;
        buffer.note_use();
        Some(buffer)
    }

    /// Remember a block's buffer.
    pub(crate) fn keep(&mut self, block: u32, buffer: &Arc<Buffer>) {
        let block = block as usize;
        if block >= self.max {
            return;
        }
        if block >= self.buffers.len() {
            self.buffers.resize_with((block + 1).next_power_of_two(), Weak::new);
        }
        self.buffers[block] = Arc::downgrade(buffer);
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
    cache: Mutex<(DirectoryCache, CachedBlocks)>,
    slots: AtomicUsize,
    last_use: AtomicU64,
}

impl CacheEntry {
    fn new(slots_max: usize) -> Self {
        Self {
            cache: Mutex::ranked(
                Rank::DirectoryCache,
                (DirectoryCache::new(slots_max), CachedBlocks::new(slots_max)),
            ),
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
    pub(crate) fn with<R>(
        &self,
        directory: InodeNumber,
        work: impl FnOnce(&mut DirectoryCache, &mut CachedBlocks) -> R,
    ) -> R {
        let entry = {
            let mut map = self.map.lock();
            if map.len() >= DIRECTORIES_MAX && !map.contains_key(&directory) {
                self.evict(&mut map, directory, DIRECTORIES_MAX / 2, self.slots_max);
            }
            map.entry(directory).or_insert_with(|| Arc::new(CacheEntry::new(self.slots_max))).clone()
        };
        let mut guard = entry.cache.lock();
        let (cache, blocks) = &mut *guard;
        let result = work(cache, blocks);
        let (before, slots) = (entry.slots.load(Ordering::Relaxed), cache.slots() + blocks.slots());
        if before != slots {
            entry.slots.store(slots, Ordering::Relaxed);
            entry.last_use.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
            let grown = slots.wrapping_sub(before);
            let total = self.slots.fetch_add(grown, Ordering::Relaxed).wrapping_add(grown);
            drop(guard);
            if total > self.slots_max {
                self.evict(&mut self.map.lock(), directory, DIRECTORIES_MAX, self.slots_max / 4 * 3);
            }
        }
        result
    }

    /// The directory is gone, or its number belongs to another now.
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
    fn gaps_find_the_first_block_that_fits() {
        let mut tree = Gaps::default();
        assert_eq!(tree.first_with(12), None);
        let gaps: Vec<usize> = (0..1000).map(|n| (n * 7919 % 1021) / 4 * 4).collect();
        for (block, gap) in gaps.iter().enumerate() {
            tree.set(block as u32, *gap);
        }
        for need in (12..1100).step_by(4) {
            let want = gaps.iter().position(|gap| *gap >= need).map(|block| block as u32);
            assert_eq!(tree.first_with(need), want, "{need}");
        }
        for block in 0..900 {
            tree.set(block, 0);
        }
        let want = gaps[900..].iter().position(|gap| *gap >= 500).map(|block| block as u32 + 900);
        assert_eq!(tree.first_with(500), want);
        tree.set(3, 65532);
        assert_eq!(tree.first_with(65532), Some(3));
    }

    #[test]
    fn caches_stay_within_their_bound() {
        const SLOTS_MAX: usize = 1 << 16;
        let caches = NameCaches::new(SLOTS_MAX);
        for directory in 0..64_u32 {
            caches.with(InodeNumber(directory), |cache, _| {
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

//! The dentry cache: recently looked-up names, with their inodes.
//!
//! Where it sits: before the directory. A hit takes one lock of many, allocates nothing, and reads neither the directory's blocks nor its
//! inode, nor the inode cache.
//!
//! The table is an array of small sets, like the cache of a processor: a name belongs to one set, and replaces another name if the set is full.
//! Its memory is bounded, and no sweep is needed.
//!
//! Invariants:
//! 1. A cached name is in its directory: names enter under the directory's lock, at least shared, and leave under
//!    the exclusive one before the entry does.
//! 2. A directory is identified by [`Inode::identity`]: no later inode with the same number is taken for it.
//! 3. A name does not keep its inode in memory. When an inode is evicted, the last cached name of it is removed too
//!    ([`DentryCache::forget_evicted`]), so that the memory is free.

use std::hash::BuildHasher;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

use diorite_block::sync::{Mutex, Rank};
use hashbrown::DefaultHashBuilder;

use crate::Inode;

/// Names in a set.
const WAYS: usize = 8;
/// Sets that are made together when the first of them is needed.
const SETS_AT_ONCE: usize = 64;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct DentryCache {
    hasher: DefaultHashBuilder,
    groups: Box<[Group]>,
}

/// Sets that are made together.
type Group = OnceLock<Box<[Mutex<Set>]>>;

#[derive(Debug, Default)]
struct Set {
    /// A part of the hash of each name: most others are distinguished by it alone.
    tags: [u32; WAYS],
    names: [Option<Dentry>; WAYS],
    /// The name that is replaced next in a full set.
    next: usize,
}

#[derive(Debug)]
struct Dentry {
    directory: u64,
    name: Box<[u8]>,
    inode: Weak<Inode>,
}

impl DentryCache {
    /// Space for about `capacity` names.
    pub(crate) fn new(capacity: usize) -> Self {
        let groups = capacity.div_ceil(WAYS * SETS_AT_ONCE).max(1);
        Self { hasher: DefaultHashBuilder::default(), groups: (0..groups).map(|_| OnceLock::new()).collect() }
    }

    fn hash(&self, directory: &Inode, name: &[u8]) -> u64 {
        self.hasher.hash_one((directory.identity(), name))
    }

    /// The set of a name with this hash.
    fn set(&self, hash: u64) -> &Mutex<Set> {
        let group = (hash as usize / SETS_AT_ONCE) % self.groups.len();
        let sets = self.groups[group].get_or_init(|| {
            (0..SETS_AT_ONCE).map(|_| Mutex::ranked(Rank::DentryCache, Set::default())).collect()
        });
        &sets[hash as usize % SETS_AT_ONCE]
    }

    /// The inode of a name of a directory, if cached.
    pub(crate) fn find(&self, directory: &Inode, name: &[u8]) -> Option<Arc<Inode>> {
        let hash = self.hash(directory, name);
        let set = self.set(hash).lock();
        let inode = set.names[set.position(hash, directory, name)?].as_ref()?.inode.upgrade()?;
        drop(set);
        // On a damaged volume an inode may have more names than links.
        if inode.is_freed() {
            return None;
        }
        inode.note_use();
        Some(inode)
    }

    /// Remember a name. The directory is locked.
    pub(crate) fn insert(&self, directory: &Inode, name: &[u8], inode: &Arc<Inode>) {
        let hash = self.hash(directory, name);
        inode.dentry_hash.store(hash, Ordering::Relaxed);
        let mut set = self.set(hash).lock();
        let place = set.position(hash, directory, name).or_else(|| set.vacant()).unwrap_or_else(|| {
            set.next = (set.next + 1) % WAYS;
            set.next
        });
        set.tags[place] = tag(hash);
        set.names[place] =
            Some(Dentry { directory: directory.identity(), name: name.into(), inode: Arc::downgrade(inode) });
    }

    /// Forget a name. The directory is locked exclusively.
    pub(crate) fn remove(&self, directory: &Inode, name: &[u8]) {
        let hash = self.hash(directory, name);
        let mut set = self.set(hash).lock();
        if let Some(place) = set.position(hash, directory, name) {
            set.names[place] = None;
        }
    }

    /// Forget the name with this hash if its inode has left memory.
    pub(crate) fn forget_evicted(&self, hash: u64) {
        let mut set = self.set(hash).lock();
        set.names.iter_mut().filter(|name| is_evicted(name.as_ref())).for_each(|name| *name = None);
    }

    #[cfg(test)]
    pub(crate) fn of_evicted(&self) -> usize {
        let sets = self.groups.iter().filter_map(OnceLock::get).flat_map(|group| group.iter());
        sets.map(|set| set.lock().names.iter().filter(|name| is_evicted(name.as_ref())).count()).sum()
    }
}

/// Most names of a set are distinguished by this part of their hash.
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

fn is_evicted(name: Option<&Dentry>) -> bool {
    name.is_some_and(|dentry| dentry.inode.strong_count() == 0)
}

impl Set {
    fn position(&self, hash: u64, directory: &Inode, name: &[u8]) -> Option<usize> {
        let is_it = |dentry: &Dentry| dentry.directory == directory.identity() && *dentry.name == *name;
        let mut places = (0..WAYS).filter(|place| self.tags[*place] == tag(hash));
        places.find(|place| self.names[*place].as_ref().is_some_and(is_it))
    }

    /// An index without a name.
    fn vacant(&self) -> Option<usize> {
        self.names.iter().position(Option::is_none)
    }
}

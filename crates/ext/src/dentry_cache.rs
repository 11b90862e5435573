//! The dentry cache: names that were looked up lately, with their inodes.
//!
//! Where it sits: before the directory. A hit takes one lock that few others want, allocates nothing, and reads neither the
//! directory's blocks nor its inode.
//!
//! The table is an array of small sets, as a processor's cache is: a name has its place in one set, and where that is
//! full it takes the place of another. So the memory is bounded, and nothing is ever swept.
//!
//! Invariants:
//! 1. A name that is here is in its directory: names come in under the directory's lock, shared at least, and leave under
//!    the exclusive one before the entry does.
//! 2. A directory is identified by [`Inode::identity`]: names of one are not found for a later inode with the same number.
//! 3. Inodes are not kept in memory by this, nor is their memory: the name of an inode that leaves memory goes with it
//!    ([`DentryCache::forget_evicted`]). Of several names of one inode that is true of the last one that was remembered; others stay until
//!    their places are taken.

use std::hash::BuildHasher;
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
    /// The place that is taken next when all are.
    next: u8,
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

    /// The set of a name by its hash, and its tag there.
    fn place(&self, hash: u64) -> (&Group, usize, u32) {
        let group = (hash as usize / SETS_AT_ONCE) % self.groups.len();
        (&self.groups[group], hash as usize % SETS_AT_ONCE, (hash >> 32) as u32)
    }

    /// The inode of a name of a directory, if cached.
    pub(crate) fn find(&self, directory: &Inode, name: &[u8]) -> Option<Arc<Inode>> {
        let (group, index, tag) = self.place(self.hash(directory, name));
        let set = group.get()?[index].lock();
        let place = set.position(tag, directory, name)?;
        let inode = set.names[place].as_ref()?.inode.upgrade()?;
        drop(set);
        if inode.is_freed() {
            // On a damaged volume an inode may have more names than links.
            return None;
        }
        inode.note_use();
        Some(inode)
    }

    /// Remember a name. The directory is locked.
    pub(crate) fn insert(&self, directory: &Inode, name: &[u8], inode: &Arc<Inode>) {
        let hash = self.hash(directory, name);
        inode.set_dentry_hash(hash);
        let (group, index, tag) = self.place(hash);
        let group = group.get_or_init(|| {
            (0..SETS_AT_ONCE).map(|_| Mutex::ranked(Rank::DentryCache, Set::default())).collect()
        });
        let mut set = group[index].lock();
        let inode = Arc::downgrade(inode);
        if let Some(place) = set.position(tag, directory, name) {
            if let Some(dentry) = &mut set.names[place] {
                dentry.inode = inode;
            }
            return;
        }
        let new = Dentry { directory: directory.identity(), name: name.into(), inode };
        let place = set.vacant().unwrap_or_else(|| {
            set.next = (set.next + 1) % WAYS as u8;
            usize::from(set.next)
        });
        set.tags[place] = tag;
        set.names[place] = Some(new);
    }

    /// Forget a name. The directory is locked exclusively.
    pub(crate) fn remove(&self, directory: &Inode, name: &[u8]) {
        let (group, index, tag) = self.place(self.hash(directory, name));
        let Some(group) = group.get() else { return };
        let mut set = group[index].lock();
        if let Some(place) = set.position(tag, directory, name) {
            set.names[place] = None;
        }
    }
}

impl DentryCache {
    #[cfg(test)]
    pub(crate) fn of_evicted(&self) -> usize {
        let sets = self.groups.iter().filter_map(OnceLock::get).flat_map(|group| group.iter());
        let gone = |dentry: &Dentry| dentry.inode.strong_count() == 0;
        sets.map(|set| set.lock().names.iter().flatten().filter(|dentry| gone(dentry)).count()).sum()
    }

    /// Forget evicted inodes, in the bucket of the name with this hash.
    pub(crate) fn forget_evicted(&self, hash: u64) {
        let (group, index, _) = self.place(hash);
        let Some(group) = group.get() else { return };
        for name in &mut group[index].lock().names {
            if name.as_ref().is_some_and(|dentry| dentry.inode.strong_count() == 0) {
                *name = None;
            }
        }
    }
}

impl Set {
    fn position(&self, tag: u32, directory: &Inode, name: &[u8]) -> Option<usize> {
        (0..WAYS).find(|&place| {
            self.tags[place] == tag
                && self.names[place]
                    .as_ref()
                    .is_some_and(|dentry| dentry.directory == directory.identity() && *dentry.name == *name)
        })
    }

    /// A place without a name, or with one whose inode has left memory.
    fn vacant(&self) -> Option<usize> {
        self.names.iter().position(|name| name.as_ref().is_none_or(|dentry| dentry.inode.strong_count() == 0))
    }
}

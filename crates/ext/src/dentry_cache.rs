//! The dentry cache: names that were looked up lately, with their inodes.
//!
//! Where it sits: before the directory. A hit takes one lock of many here and one in the inode cache, allocates nothing, and reads
//! neither the directory's blocks nor its inode.
//!
//! The table is an array of small sets, as a processor's cache is: a name belongs to one set, and replaces another in a full one.
//! So the memory is bounded, and nothing is ever swept.
//!
//! Invariants:
//! 1. A name that is here is in its directory: names come in under the directory's lock, shared at least, and leave under
//!    the exclusive one before the entry does.
//! 2. A directory and an inode are identified by [`Inode::identity`]: no later inode with the same number is taken for them.

use std::hash::BuildHasher;
use std::sync::OnceLock;

use diorite_block::sync::{Mutex, Rank};
use hashbrown::DefaultHashBuilder;

use crate::{Inode, InodeNumber};

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
    names: Vec<Dentry>,
    /// The name that is replaced next in a full set.
    next: usize,
}

#[derive(Debug)]
struct Dentry {
    /// A part of the hash of the name: most others are distinguished by it alone.
    tag: u32,
    directory: u64,
    name: Box<[u8]>,
    inode: CachedInode,
}

/// An inode that had the name; it may have left memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedInode {
    pub(crate) number: InodeNumber,
    pub(crate) identity: u64,
}

impl DentryCache {
    /// Space for about `capacity` names.
    pub(crate) fn new(capacity: usize) -> Self {
        let groups = capacity.div_ceil(WAYS * SETS_AT_ONCE).max(1);
        Self { hasher: DefaultHashBuilder::default(), groups: (0..groups).map(|_| OnceLock::new()).collect() }
    }

    /// The set of a name, and its tag there.
    fn set(&self, directory: &Inode, name: &[u8]) -> (&Mutex<Set>, u32) {
        let hash = self.hasher.hash_one((directory.identity(), name));
        let group = (hash as usize / SETS_AT_ONCE) % self.groups.len();
        let sets = self.groups[group].get_or_init(|| {
            (0..SETS_AT_ONCE).map(|_| Mutex::ranked(Rank::DentryCache, Set::default())).collect()
        });
        (&sets[hash as usize % SETS_AT_ONCE], (hash >> 32) as u32)
    }

    /// The inode of a name of a directory, if cached.
    pub(crate) fn find(&self, directory: &Inode, name: &[u8]) -> Option<CachedInode> {
        let (set, tag) = self.set(directory, name);
        let set = set.lock();
        Some(set.names[set.position(tag, directory, name)?].inode)
    }

    /// Remember a name. The directory is locked.
    pub(crate) fn insert(&self, directory: &Inode, name: &[u8], inode: &Inode) {
        let (set, tag) = self.set(directory, name);
        let mut set = set.lock();
        let inode = CachedInode { number: inode.number(), identity: inode.identity() };
        if let Some(place) = set.position(tag, directory, name) {
            set.names[place].inode = inode;
            return;
        }
        let new = Dentry { tag, directory: directory.identity(), name: name.into(), inode };
        if set.names.len() < WAYS {
            set.names.push(new);
        } else {
            let place = set.next;
            set.names[place] = new;
            set.next = (place + 1) % WAYS;
        }
    }

    /// Forget a name. The directory is locked exclusively.
    pub(crate) fn remove(&self, directory: &Inode, name: &[u8]) {
        let (set, tag) = self.set(directory, name);
        let mut set = set.lock();
        if let Some(place) = set.position(tag, directory, name) {
            set.names.swap_remove(place);
        }
    }
}

impl Set {
    fn position(&self, tag: u32, directory: &Inode, name: &[u8]) -> Option<usize> {
        let is_it = |dentry: &Dentry| {
            dentry.tag == tag && dentry.directory == directory.identity() && *dentry.name == *name
        };
        self.names.iter().position(is_it)
    }
}

//! The inodes that clients know, with how often they have looked each up.
//!
//! Of most only the count is kept, 16 bytes or so, however many there are. An inode that loses its last name while it is known is kept
//! alive here until it is forgotten. Of directories it is known which a client may have cached a listing of.

use std::collections::{HashMap, HashSet};

use diorite::{Error, InodeNumber, NodeRef};
use diorite_block::sync::{Mutex, MutexGuard, Rank};

const SHARDS: usize = 64;

#[derive(Debug)]
pub(super) struct Known {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    lookups: HashMap<InodeNumber, u64>,
    /// Inodes without names.
    nameless: HashMap<InodeNumber, NodeRef>,
    /// Directories that were listed since their names last changed.
    listed: HashSet<InodeNumber>,
    /// Open files that may be written.
    writers: HashMap<InodeNumber, usize>,
    /// Why data of a front end's cache could not be written, of files whose writers have not heard of it.
    lost_writes: HashMap<InodeNumber, Error>,
}

impl Default for Known {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::ranked(Rank::KnownInodes, Shard::default())) }
    }
}

impl Known {
    fn shard(&self, number: InodeNumber) -> MutexGuard<'_, Shard> {
        self.shards[number.0 as usize % SHARDS].lock()
    }

    pub(super) fn retain(&self, number: InodeNumber) {
        *self.shard(number).lookups.entry(number).or_default() += 1;
    }

    pub(super) fn forget(&self, number: InodeNumber, times: u64) {
        let mut shard = self.shard(number);
        let Some(lookups) = shard.lookups.get_mut(&number) else { return };
        *lookups = lookups.saturating_sub(times);
        if *lookups > 0 {
            return;
        }
        shard.lookups.remove(&number);
        shard.listed.remove(&number);
        let last_use = shard.nameless.remove(&number);
        drop(shard);
        // What this frees takes other locks.
        drop(last_use);
    }

    /// The inode has lost its last name: it lives on if a client knows it.
    pub(super) fn hold_nameless(&self, node: &NodeRef) {
        let mut shard = self.shard(node.number());
        if shard.lookups.contains_key(&node.number()) {
            shard.nameless.insert(node.number(), node.clone());
        }
    }

    /// The inode has a name again.
    pub(super) fn release_named(&self, number: InodeNumber) {
        let node = self.shard(number).nameless.remove(&number);
        drop(node);
    }

    /// The inode if it is held without a name.
    pub(super) fn held(&self, number: InodeNumber) -> Option<NodeRef> {
        let shard = self.shard(number);
        if shard.nameless.is_empty() { None } else { shard.nameless.get(&number).cloned() }
    }

    pub(super) fn note_listed(&self, directory: InodeNumber) {
        self.shard(directory).listed.insert(directory);
    }

    pub(super) fn take_listed(&self, directory: InodeNumber) -> bool {
        let mut shard = self.shard(directory);
        !shard.listed.is_empty() && shard.listed.remove(&directory)
    }

    pub(super) fn add_writer(&self, number: InodeNumber) {
        *self.shard(number).writers.entry(number).or_default() += 1;
    }

    pub(super) fn remove_writer(&self, number: InodeNumber) {
        let mut shard = self.shard(number);
        if let Some(writers) = shard.writers.get_mut(&number) {
            *writers -= 1;
            if *writers == 0 {
                shard.writers.remove(&number);
                shard.lost_writes.remove(&number);
            }
        }
    }

    pub(super) fn note_lost_write(&self, number: InodeNumber, error: Error) {
        self.shard(number).lost_writes.insert(number, error);
    }

    pub(super) fn take_lost_write(&self, number: InodeNumber) -> Option<Error> {
        let mut shard = self.shard(number);
        if shard.lost_writes.is_empty() { None } else { shard.lost_writes.remove(&number) }
    }

    pub(super) fn has_writers(&self, number: InodeNumber) -> bool {
        self.shard(number).writers.contains_key(&number)
    }

    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let shard = std::mem::take(&mut *shard.lock());
            drop(shard);
        }
    }
}

//! The inodes that clients know, with how often they have looked each up.
//!
//! Of most only the count is kept, in one byte, in blocks for inodes whose numbers follow one another. An inode that loses its last name while it is known is kept
//! alive here until it is forgotten. Of directories it is known which a client may have cached a listing of.

use std::collections::{HashMap, HashSet};

use diorite::{Error, InodeNumber, NodeRef};
use diorite_block::sync::{Mutex, MutexGuard, Rank};

const SHARDS: usize = 64;
/// Inodes of a block of counts.
const BLOCK: usize = 64;
/// The count of this inode is in [`Lookups::large`].
const LARGE: u8 = u8::MAX;

#[derive(Debug)]
pub(super) struct Known {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    lookups: Lookups,
    /// Inodes without names.
    nameless: HashMap<InodeNumber, NodeRef>,
    /// Directories that were listed since their names last changed.
    listed: HashSet<InodeNumber>,
    /// Open files that may be written.
    writers: HashMap<InodeNumber, Writers>,
    /// Why data of a front end's cache could not be written, of files whose writers have not heard of it.
    lost_writes: HashMap<InodeNumber, Error>,
    /// Files that are open for writing, and have lost such data.
    with_losses: HashSet<InodeNumber>,
}

/// The handles by which a file may be written.
#[derive(Debug, Default)]
struct Writers {
    count: usize,
    /// A front end's cache has read from the file since the first of them was opened.
    is_cached: bool,
}

/// How often inodes were looked up.
#[derive(Debug, Default)]
struct Lookups {
    /// By the number of the first inode, divided by [`BLOCK`].
    blocks: HashMap<u32, Box<Block>>,
    /// Counts that a byte does not hold.
    large: HashMap<InodeNumber, u64>,
}

#[derive(Debug)]
struct Block {
    /// Counts that are not 0.
    used: u8,
    counts: [u8; BLOCK],
}

impl Lookups {
    fn place(number: InodeNumber) -> (u32, usize) {
        (number.0 / BLOCK as u32, number.0 as usize % BLOCK)
    }

    fn get(&self, number: InodeNumber) -> u64 {
        let (block, at) = Self::place(number);
        match self.blocks.get(&block).map_or(0, |block| block.counts[at]) {
            LARGE => self.large.get(&number).copied().unwrap_or(0),
            count => count.into(),
        }
    }

    fn set(&mut self, number: InodeNumber, count: u64) {
        let (first, at) = Self::place(number);
        let block =
            self.blocks.entry(first).or_insert_with(|| Box::new(Block { used: 0, counts: [0; BLOCK] }));
        let old = block.counts[at];
        block.counts[at] = u8::try_from(count).unwrap_or(LARGE);
        match (old, count) {
            (0, 1..) => block.used += 1,
            (1.., 0) => block.used -= 1,
            _ => {}
        }
        if block.counts[at] == LARGE {
            self.large.insert(number, count);
        } else if old == LARGE {
            self.large.remove(&number);
        }
        if block.used == 0 {
            self.blocks.remove(&first);
        }
    }
}

impl Default for Known {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::ranked(Rank::KnownInodes, Shard::default())) }
    }
}

impl Known {
    fn shard(&self, number: InodeNumber) -> MutexGuard<'_, Shard> {
        self.shards[number.0 as usize / BLOCK % SHARDS].lock()
    }

    pub(super) fn retain(&self, number: InodeNumber) {
        let mut shard = self.shard(number);
        let lookups = shard.lookups.get(number);
        shard.lookups.set(number, lookups + 1);
    }

    pub(super) fn forget(&self, number: InodeNumber, times: u64) {
        let mut shard = self.shard(number);
        let lookups = shard.lookups.get(number);
        let left = lookups.saturating_sub(times);
        if lookups > 0 {
            shard.lookups.set(number, left);
        }
        if lookups == 0 || left > 0 {
            return;
        }
        shard.listed.remove(&number);
        let last_use = shard.nameless.remove(&number);
        drop(shard);
        // What this frees takes other locks.
        drop(last_use);
    }

    /// The inode has lost its last name: it lives on if a client knows it.
    pub(super) fn hold_nameless(&self, node: &NodeRef) {
        let mut shard = self.shard(node.number());
        if shard.lookups.get(node.number()) > 0 {
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
        self.shard(number).writers.entry(number).or_default().count += 1;
    }

    /// Returns whether it was the last one of a file that has lost data of a front end's cache.
    pub(super) fn remove_writer(&self, number: InodeNumber) -> bool {
        let mut shard = self.shard(number);
        let Some(writers) = shard.writers.get_mut(&number) else { return false };
        writers.count -= 1;
        if writers.count > 0 {
            return false;
        }
        shard.writers.remove(&number);
        shard.lost_writes.remove(&number);
        shard.with_losses.remove(&number)
    }

    pub(super) fn note_lost_write(&self, number: InodeNumber, error: Error) {
        let mut shard = self.shard(number);
        shard.lost_writes.insert(number, error);
        shard.with_losses.insert(number);
    }

    pub(super) fn take_lost_write(&self, number: InodeNumber) -> Option<Error> {
        let mut shard = self.shard(number);
        if shard.lost_writes.is_empty() { None } else { shard.lost_writes.remove(&number) }
    }

    pub(super) fn has_writers(&self, number: InodeNumber) -> bool {
        self.shard(number).writers.contains_key(&number)
    }

    pub(super) fn files_with_writers(&self) -> Vec<InodeNumber> {
        self.shards
            .iter()
            .flat_map(|shard| shard.lock().writers.keys().copied().collect::<Vec<_>>())
            .collect()
    }

    /// A front end's cache reads from a file.
    pub(super) fn note_cached(&self, number: InodeNumber) {
        if let Some(writers) = self.shard(number).writers.get_mut(&number) {
            writers.is_cached = true;
        }
    }

    /// Whether a front end's cache has read from a file since a handle that writes was opened.
    pub(super) fn is_cached(&self, number: InodeNumber) -> bool {
        self.shard(number).writers.get(&number).is_some_and(|writers| writers.is_cached)
    }

    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let shard = std::mem::take(&mut *shard.lock());
            drop(shard);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_any_size_are_kept_and_none_stays() {
        let mut lookups = Lookups::default();
        let counts = [(2, 1), (63, 254), (64, 255), (65, 1000), (u32::MAX, u64::MAX)];
        for (number, count) in counts {
            lookups.set(InodeNumber(number), count);
        }
        for (number, count) in counts {
            assert_eq!(lookups.get(InodeNumber(number)), count);
        }
        lookups.set(InodeNumber(65), 254);
        assert_eq!((lookups.get(InodeNumber(65)), lookups.get(InodeNumber(66))), (254, 0));
        for (number, _) in counts {
            lookups.set(InodeNumber(number), 0);
        }
        assert!(lookups.blocks.is_empty() && lookups.large.is_empty());
    }
}

//! State of clients: inodes that they have looked up, listings that they may cache, files that they write.
//!
//! Interface: a client that keeps numbers of inodes (FUSE) counts them with [`Clients::retain`] and [`Clients::forget`]. An inode that loses its
//! last name while a client knows it lives until it is forgotten and closed.
//!
//! Locking: the tables have one lock, held for a look or a change of the tables alone.

use std::collections::{HashMap, HashSet};

use diorite::{Error, InodeNumber, NodeRef};
use diorite_block::sync::{Mutex, Rank};

use super::Entry;

/// See the module's head.
#[derive(Debug)]
pub struct Clients {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of look-ups of each inode.
    lookups: HashMap<InodeNumber, u64>,
    /// Inodes without names.
    nameless: HashMap<InodeNumber, NodeRef>,
    /// Directories that were listed since their names last changed.
    listed: HashSet<InodeNumber>,
    /// Files that are open for writing.
    writers: HashMap<InodeNumber, Writers>,
}

/// The handles by which a file may be written.
#[derive(Debug, Default)]
struct Writers {
    count: usize,
    /// A client's cache has read from the file since the first of them was opened.
    is_cached: bool,
    /// Data of a client's cache could not be written.
    has_lost: bool,
    /// The error, until it is reported to a writer.
    lost_write: Option<Error>,
}

impl Default for Clients {
    fn default() -> Self {
        Self { state: Mutex::ranked(Rank::KnownInodes, State::default()) }
    }
}

impl Clients {
    /// A client has looked up the inode.
    pub fn retain(&self, entry: &Entry) {
        let number = entry.node.number();
        let mut state = self.state.lock();
        *state.lookups.entry(number).or_default() += 1;
        // It was made without a name; or it was found by its number, and forgotten since, after which it was no longer held.
        if entry.attributes.links == 0 {
            state.nameless.insert(number, entry.node.clone());
        }
    }

    /// A client forgets that many look-ups of the inode.
    pub fn forget(&self, number: InodeNumber, times: u64) {
        let mut state = self.state.lock();
        let Some(lookups) = state.lookups.get_mut(&number) else { return };
        *lookups = lookups.saturating_sub(times);
        if *lookups > 0 {
            return;
        }
        state.lookups.remove(&number);
        state.listed.remove(&number);
        let last_use = state.nameless.remove(&number);
        drop(state);
        // Freeing the inode takes other locks.
        drop(last_use);
    }

    /// The inode has lost its last name: it lives on if a client knows it.
    pub(super) fn hold_nameless(&self, node: &NodeRef) {
        let mut state = self.state.lock();
        if state.lookups.contains_key(&node.number()) {
            state.nameless.insert(node.number(), node.clone());
        }
    }

    /// The inode has a name again.
    pub(super) fn release_named(&self, number: InodeNumber) {
        let node = self.state.lock().nameless.remove(&number);
        drop(node);
    }

    /// The inode if it is held without a name.
    pub(super) fn held(&self, number: InodeNumber) -> Option<NodeRef> {
        let state = self.state.lock();
        if state.nameless.is_empty() { None } else { state.nameless.get(&number).cloned() }
    }

    /// A client that caches listings begins one: [`Self::take_listed`] returns `true` after a change. Until the client forgets the directory.
    pub fn note_listed(&self, directory: InodeNumber) {
        self.state.lock().listed.insert(directory);
    }

    /// Names of the directory have changed: whether a client has begun a listing since the last time.
    pub fn take_listed(&self, directory: InodeNumber) -> bool {
        let mut state = self.state.lock();
        !state.listed.is_empty() && state.listed.remove(&directory)
    }

    pub(super) fn add_writer(&self, number: InodeNumber) {
        self.state.lock().writers.entry(number).or_default().count += 1;
    }

    /// Returns whether it was the last one of a file that has lost data of a client's cache.
    pub(super) fn remove_writer(&self, number: InodeNumber) -> bool {
        let mut state = self.state.lock();
        let Some(writers) = state.writers.get_mut(&number) else { return false };
        writers.count -= 1;
        writers.count == 0 && state.writers.remove(&number).is_some_and(|writers| writers.has_lost)
    }

    /// Data of a client's cache could not be written. Its program has written on meanwhile, and gets the error at a later write
    /// ([`OpenHandles::lost_write`](super::OpenHandles::lost_write)).
    pub fn note_lost_write(&self, number: InodeNumber, error: Error) {
        if let Some(writers) = self.state.lock().writers.get_mut(&number) {
            (writers.has_lost, writers.lost_write) = (true, Some(error));
        }
    }

    pub(super) fn take_lost_write(&self, number: InodeNumber) -> Option<Error> {
        self.state.lock().writers.get_mut(&number)?.lost_write.take()
    }

    /// Whether the file is open for writing, so that a client's cache may have data that is not written yet.
    pub fn has_writers(&self, number: InodeNumber) -> bool {
        self.state.lock().writers.contains_key(&number)
    }

    /// The files that are open for writing.
    pub fn files_with_writers(&self) -> Vec<InodeNumber> {
        self.state.lock().writers.keys().copied().collect()
    }

    /// A client's cache reads from a file.
    pub(super) fn note_cached(&self, number: InodeNumber) {
        if let Some(writers) = self.state.lock().writers.get_mut(&number) {
            writers.is_cached = true;
        }
    }

    /// Whether a client's cache may have content of a file that a direct write has replaced: it has read from the file since a handle
    /// that writes was opened.
    pub fn is_cached(&self, number: InodeNumber) -> bool {
        self.state.lock().writers.get(&number).is_some_and(|writers| writers.is_cached)
    }

    pub(super) fn clear(&self) {
        let state = std::mem::take(&mut *self.state.lock());
        drop(state);
    }
}

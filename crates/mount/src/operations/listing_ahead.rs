//! The next part of a listing, made while the client takes in the last one.
//!
//! A client asks for a large directory part by part, and takes about as long to take one in as it takes to make it. When a part was full,
//! a thread makes the next one. It is given to the request that goes on where the last one ended, if no name of the directory was
//! changed since it was begun: a listing shows all that was done before.
//!
//! What could not be made, or is not made yet, the request makes itself, and has the error if there is one.
//!
//! Locking: the state is locked for a look or a change; no other lock is taken under it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use diorite::front_end::NamesVersion;
use diorite::{DirectoryEntry, FileKind, Filesystem, InodeNumber, IoOwner, NodeRef, Result};
use diorite_block::sync::{Condvar, JoinHandle, Mutex, MutexGuard, Rank, spawn};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Listings that are remembered.
const LISTINGS_MAX: usize = 8;
/// Entries of a part: fewer are made as fast as they are handed over, and among the first ones are the dots.
const PART_LEN: std::ops::RangeInclusive<usize> = 16..=PART_LEN_MAX;
/// Entries of any part at most, whatever a client says it has space for.
pub(super) const PART_LEN_MAX: usize = 4096;
/// A part that no request took in this time is dropped.
const KEPT: Duration = Duration::from_secs(1);

/// See the module's head.
#[derive(Debug)]
pub(super) struct ListingAhead {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle>>,
}

#[derive(Debug)]
struct Shared {
    filesystem: Filesystem,
    /// Where the thread may run: the one that starts it may be bound to a processor.
    processors: Option<CpuSet>,
    state: Mutex<State>,
    /// How many listings there are.
    count: AtomicUsize,
    /// There is one to go on with, or the end.
    wanted: Condvar,
    /// One is made, or given up.
    made: Condvar,
}

#[derive(Debug, Default)]
struct State {
    listings: Vec<Listing>,
    /// Number of the next one.
    next: u64,
    has_ended: bool,
}

#[derive(Debug)]
struct Listing {
    number: u64,
    wanted: Wanted,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) directory: InodeNumber,
    /// Where the client goes on.
    pub(super) cursor: u64,
    /// Entries that it may take.
    pub(super) len: usize,
    /// What it will ask of each.
    pub(super) listed: Listed,
    /// Who asked.
    pub(super) owner: IoOwner,
}

/// What a client lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// Names and what they stand for.
    Names,
    /// The attributes of each inode as well, of so many entries at most.
    Attributes {
        /// Those that the client has space for.
        most: usize,
    },
}

#[derive(Debug)]
enum Stage {
    Wanted,
    BeingMade,
    Made(Part),
}

/// Entries that follow each other, with all their names in one piece of memory.
#[derive(Debug)]
pub(super) struct Part {
    version: NamesVersion,
    names: Vec<u8>,
    slots: Vec<Slot>,
    /// The directory ends with them.
    is_last: bool,
}

/// An entry without its name, and where that ends.
#[derive(Debug)]
struct Slot {
    name_end: usize,
    inode: InodeNumber,
    kind: Option<FileKind>,
    next_cursor: u64,
}

impl Part {
    /// As many as are wanted, as far as there are.
    pub(super) fn make(filesystem: &Filesystem, wanted: &Wanted) -> Result<Self> {
        let &Wanted { directory, cursor, len, listed, .. } = wanted;
        let node = filesystem.node(directory)?;
        let version = node.names_version();
        let (mut names, mut slots, mut is_last) = (Vec::new(), Vec::with_capacity(len), true);
        let read = node.read_directory(cursor, &mut |entry| {
            names.extend_from_slice(&entry.name);
            let (name_end, &DirectoryEntry { inode, kind, next_cursor, .. }) = (names.len(), entry);
            slots.push(Slot { name_end, inode, kind, next_cursor });
            is_last = slots.len() < len;
            is_last
        });
        if let Err(error) = read {
            // The error comes after the entries that can be read.
            is_last = false;
            if slots.is_empty() {
                return Err(error);
            }
        }
        if listed != Listed::Names {
            filesystem.read_ahead_nodes(slots.iter().map(|slot| slot.inode));
        }
        Ok(Self { version, names, slots, is_last })
    }

    /// Whether the directory has no entries after these.
    pub(super) fn is_last(&self) -> bool {
        self.is_last
    }

    /// Give `each` the entries until it returns `false`.
    pub(super) fn give(&self, each: &mut dyn FnMut(&DirectoryEntry) -> bool) {
        let mut entry =
            DirectoryEntry { name: Vec::new(), inode: InodeNumber::ROOT, kind: None, next_cursor: 0 };
        let mut name_start = 0;
        for slot in &self.slots {
            entry.name.clear();
            entry.name.extend_from_slice(&self.names[name_start..slot.name_end]);
            (entry.inode, entry.kind, entry.next_cursor) = (slot.inode, slot.kind, slot.next_cursor);
            name_start = slot.name_end;
            if !each(&entry) {
                break;
            }
        }
    }
}

impl ListingAhead {
    pub(super) fn new(filesystem: Filesystem) -> Self {
        let shared = Shared {
            filesystem,
            processors: sched_getaffinity(None).ok(),
            state: Mutex::ranked(Rank::ListingsAhead, State::default()),
            count: AtomicUsize::new(0),
            wanted: Condvar::new(),
            made: Condvar::new(),
        };
        Self { shared: Arc::new(shared), thread: Mutex::ranked(Rank::ListingThread, None) }
    }

    /// The part from `cursor` on, if it was made or is being made, and is still what there is.
    pub(super) fn take(&self, directory: &NodeRef, cursor: u64) -> Option<Part> {
        if self.shared.count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut state = self.shared.lock();
        let part = loop {
            let at = state.listings.iter().position(|Listing { wanted, .. }| {
                (wanted.directory, wanted.cursor) == (directory.number(), cursor)
            })?;
            if !matches!(state.listings[at].stage, Stage::BeingMade) {
                let listing = state.listings.remove(at);
                self.shared.count_changed(&state);
                break listing.stage;
            }
            state = self.shared.made.wait(state);
        };
        drop(state);
        match part {
            Stage::Made(part) if part.version == directory.names_version() => Some(part),
            _ => None,
        }
    }

    /// The client, which took `len` entries, will go on at `cursor`.
    pub(super) fn go_on(&self, directory: &NodeRef, cursor: u64, len: usize, listed: Listed) {
        if len < *PART_LEN.start() || !self.has_thread() {
            return;
        }
        let mut state = self.shared.lock();
        if state.has_ended {
            return;
        }
        if state.listings.len() == LISTINGS_MAX {
            let oldest = state.listings.iter().position(|listing| matches!(listing.stage, Stage::Made(_)));
            let Some(oldest) = oldest else { return };
            state.listings.remove(oldest);
        }
        // Names that are shorter than the last ones are more.
        let (number, len) = (state.next, (len + len / 16 + 1).min(*PART_LEN.end()));
        state.next += 1;
        let (directory, owner) = (directory.number(), IoOwner::current());
        let wanted = Wanted { directory, cursor, len, listed, owner };
        state.listings.push(Listing { number, wanted, stage: Stage::Wanted });
        self.shared.count_changed(&state);
        self.shared.wanted.notify_one();
    }

    /// End the thread, and wait for it: no listing goes on.
    pub(super) fn stop(&self) {
        self.shared.lock().has_ended = true;
        self.shared.wanted.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
        let mut state = self.shared.lock();
        state.listings.clear();
        self.shared.count_changed(&state);
    }

    /// Whether there is a thread: it is started when it is needed first, and ends at once after [`Self::stop`].
    fn has_thread(&self) -> bool {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            *thread = spawn("listing", move || shared.work()).ok();
        }
        thread.is_some()
    }
}

impl Drop for ListingAhead {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn count_changed(&self, state: &State) {
        self.count.store(state.listings.len(), Ordering::SeqCst);
    }

    /// Make what is wanted, until the end.
    fn work(&self) {
        if let Some(processors) = &self.processors {
            // Where it is refused, the thread runs where it was started.
            let _ = sched_setaffinity(None, processors);
        }
        while let Some((making, wanted)) = self.next_wanted() {
            let _owner = wanted.owner.enter();
            if let Ok(part) = Part::make(&self.filesystem, &wanted) {
                making.end(part);
            }
        }
    }

    /// Wait for a listing that is wanted; `None` at the end.
    fn next_wanted(&self) -> Option<(Making<'_>, Wanted)> {
        let mut state = self.lock();
        while !state.has_ended {
            let is_wanted = |listing: &&mut Listing| matches!(listing.stage, Stage::Wanted);
            if let Some(listing) = state.listings.iter_mut().find(is_wanted) {
                listing.stage = Stage::BeingMade;
                return Some((Making { shared: self, number: listing.number }, listing.wanted));
            }
            if state.listings.is_empty() {
                state = self.wanted.wait(state);
                continue;
            }
            let newest = state.next;
            state = self.wanted.wait_timeout(state, KEPT);
            if state.next == newest {
                state.listings.clear();
                self.count_changed(&state);
            }
        }
        None
    }
}

/// A listing that is being made: when this is dropped, those who wait are woken, and find it made or given up.
struct Making<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Making<'_> {
    fn end(&self, part: Part) {
        let mut state = self.shared.lock();
        if let Some(listing) = state.listings.iter_mut().find(|listing| listing.number == self.number) {
            listing.stage = Stage::Made(part);
        }
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let is_made = |listing: &Listing| matches!(listing.stage, Stage::Made(_));
        state.listings.retain(|listing| listing.number != self.number || is_made(listing));
        self.shared.count_changed(&state);
        self.shared.made.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use diorite::mkfs::{Flavor, MkfsOptions};
    use diorite::{NodeSpec, Owner};

    use super::*;

    const FILES: usize = 500;

    fn volume() -> (tempfile::TempDir, Filesystem) {
        let place = tempfile::tempdir().expect("a temporary directory");
        let filesystem =
            Filesystem::create(place.path().join("a.img"), 16 << 20, &MkfsOptions::new(Flavor::Ext4));
        let filesystem = filesystem.expect("mkfs");
        let root = filesystem.root().expect("root");
        (0..FILES).for_each(|nth| create(&root, &format!("file-{nth}")));
        (place, filesystem)
    }

    fn create(directory: &NodeRef, name: &str) {
        let (kind, owner) = (FileKind::Regular, Owner::default());
        let spec = NodeSpec { kind, permissions: 0o644, umask: 0, owner, device: (0, 0) };
        directory.create(name.as_bytes(), &spec).expect("create");
    }

    /// Where a listing of so many entries ends.
    fn cursor_after(directory: &NodeRef, len: usize) -> u64 {
        let (mut count, mut cursor) = (0, 0);
        let mut each = |entry: &DirectoryEntry| {
            count += 1;
            cursor = entry.next_cursor;
            count < len
        };
        directory.read_directory(0, &mut each).expect("a listing");
        cursor
    }

    fn wait_until(what: impl Fn() -> bool) {
        while !what() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_next_part_is_made_once_and_not_given_after_a_change() {
        let (_place, filesystem) = volume();
        let (root, ahead) = (filesystem.root().expect("root"), ListingAhead::new(filesystem.clone()));
        let cursor = cursor_after(&root, 100);
        let is_made = || ahead.shared.lock().listings.iter().any(|one| matches!(one.stage, Stage::Made(_)));
        let make = || {
            ahead.go_on(&root, cursor, 100, Listed::Names);
            wait_until(is_made);
        };
        make();
        let part = ahead.take(&root, cursor).expect("a part");
        assert_eq!((part.slots.len(), part.is_last), (107, false));
        assert!(ahead.take(&root, cursor).is_none(), "it is taken");

        make();
        create(&root, "new");
        assert!(ahead.take(&root, cursor).is_none(), "names have changed since");

        make();
        assert!(ahead.take(&root, cursor + 1).is_none(), "no listing goes on there");
        ahead.stop();
        ahead.go_on(&root, cursor, 100, Listed::Names);
        assert!(ahead.take(&root, cursor).is_none(), "no thread makes it");
    }

    #[test]
    fn listings_that_are_not_gone_on_with_are_dropped() {
        let (_place, filesystem) = volume();
        let (root, ahead) = (filesystem.root().expect("root"), ListingAhead::new(filesystem.clone()));
        for nth in 0..2 * LISTINGS_MAX {
            ahead.go_on(&root, cursor_after(&root, 20 + nth), 20, Listed::Names);
            assert!(ahead.shared.lock().listings.len() <= LISTINGS_MAX);
        }
        wait_until(|| ahead.shared.count.load(Ordering::SeqCst) == 0);
        // Too few to be worth it.
        ahead.go_on(&root, cursor_after(&root, 5), 5, Listed::Names);
        assert_eq!(ahead.shared.count.load(Ordering::SeqCst), 0);
    }
}

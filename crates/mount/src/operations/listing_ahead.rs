//! The next part of a listing, made while the client takes in the last one.
//!
//! A client asks for a large directory part by part, and takes about as long to take one in as it takes to make it. When a part was full,
//! a thread makes the next one. It is given to the request that goes on where the last one ended, unless names of the directory were
//! changed since: then it is dropped, so that a listing shows all that was done before it began.
//!
//! Locking: the state is locked for a look or a change, and no other lock is taken under it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use diorite::{DirectoryEntry, FileKind, Filesystem, InodeNumber, IoOwner, Result};
use diorite_block::sync::{Condvar, Mutex, MutexGuard, Rank};

/// Listings that are remembered; the oldest one goes.
const LISTINGS_MAX: usize = 4;
/// Entries of a part at most.
const PART_MAX: usize = 4096;

/// See the module's head. Without a listing that may go on it costs a load.
#[derive(Debug)]
pub(super) struct ListingAhead {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    filesystem: Filesystem,
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
    part: Option<Part>,
}

#[derive(Clone, Copy, Debug)]
struct Wanted {
    directory: InodeNumber,
    /// Where the client goes on.
    cursor: u64,
    /// Entries that it may take.
    len: usize,
    /// Who asked.
    owner: IoOwner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Wanted,
    BeingMade,
    Made,
}

/// Entries that follow each other, with all their names in one piece of memory.
#[derive(Debug)]
pub(super) struct Part {
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
    fn make(filesystem: &Filesystem, &Wanted { directory, cursor, len, .. }: &Wanted) -> Result<Self> {
        let (mut names, mut slots, mut is_last) = (Vec::new(), Vec::with_capacity(len), true);
        filesystem.node(directory)?.read_directory(cursor, &mut |entry| {
            names.extend_from_slice(&entry.name);
            let (name_end, &DirectoryEntry { inode, kind, next_cursor, .. }) = (names.len(), entry);
            slots.push(Slot { name_end, inode, kind, next_cursor });
            is_last = slots.len() < len;
            is_last
        })?;
        Ok(Self { names, slots, is_last })
    }

    /// Give `each` the entries until it returns `false`. Returns whether the directory ends with what it took.
    pub(super) fn give(&self, each: &mut dyn FnMut(&DirectoryEntry) -> bool) -> bool {
        let mut entry =
            DirectoryEntry { name: Vec::new(), inode: InodeNumber::ROOT, kind: None, next_cursor: 0 };
        let mut name_start = 0;
        let took_all = self.slots.iter().all(|slot| {
            entry.name.clear();
            entry.name.extend_from_slice(&self.names[name_start..slot.name_end]);
            (entry.inode, entry.kind, entry.next_cursor) = (slot.inode, slot.kind, slot.next_cursor);
            name_start = slot.name_end;
            each(&entry)
        });
        took_all && self.is_last
    }
}

impl ListingAhead {
    pub(super) fn new(filesystem: Filesystem) -> Self {
        let shared = Shared {
            filesystem,
            state: Mutex::ranked(Rank::ListingsAhead, State::default()),
            count: AtomicUsize::new(0),
            wanted: Condvar::new(),
            made: Condvar::new(),
        };
        Self { shared: Arc::new(shared), thread: Mutex::ranked(Rank::ListingThread, None) }
    }

    /// The part from `cursor` on, if it was made or is being made.
    pub(super) fn take(&self, directory: InodeNumber, cursor: u64) -> Option<Part> {
        let mut state = self.shared.lock();
        loop {
            let is_it =
                |Listing { wanted, .. }: &Listing| (wanted.directory, wanted.cursor) == (directory, cursor);
            let at = state.listings.iter().position(is_it)?;
            if state.listings[at].stage != Stage::BeingMade {
                let listing = state.listings.remove(at);
                self.shared.count_changed(&state);
                return listing.part;
            }
            state = self.shared.made.wait(state);
        }
    }

    /// The client, which took `len` entries, will go on at `cursor`.
    pub(super) fn go_on(&self, directory: InodeNumber, cursor: u64, len: usize) {
        if !self.has_thread() {
            return;
        }
        let mut state = self.shared.lock();
        if state.listings.len() == LISTINGS_MAX {
            state.listings.remove(0);
            self.shared.made.notify_all();
        }
        // Names that are shorter than the last ones are more.
        let (number, len) = (state.next, (len + len / 16 + 1).min(PART_MAX));
        state.next += 1;
        let wanted = Wanted { directory, cursor, len, owner: IoOwner::current() };
        state.listings.push(Listing { number, wanted, stage: Stage::Wanted, part: None });
        self.shared.count_changed(&state);
        self.shared.wanted.notify_one();
    }

    /// Names of the directory changed.
    pub(super) fn forget(&self, directory: InodeNumber) {
        self.drop_where(|listing| listing.wanted.directory == directory);
    }

    /// No listing goes on.
    pub(super) fn clear(&self) {
        self.drop_where(|_| true);
    }

    fn drop_where(&self, goes: impl Fn(&Listing) -> bool) {
        if self.shared.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut state = self.shared.lock();
        state.listings.retain(|listing| !goes(listing));
        self.shared.count_changed(&state);
        self.shared.made.notify_all();
    }

    /// Whether there is a thread: it is started when it is needed first.
    fn has_thread(&self) -> bool {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            *thread =
                std::thread::Builder::new().name("listing".to_owned()).spawn(move || shared.work()).ok();
        }
        thread.is_some()
    }
}

impl Drop for ListingAhead {
    fn drop(&mut self) {
        self.shared.lock().has_ended = true;
        self.shared.wanted.notify_all();
        let thread = self.thread.lock().take();
        let ended = thread.map_or(Ok(()), JoinHandle::join);
        assert!(ended.is_ok() || std::thread::panicking(), "the thread of listings panicked");
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
        while let Some((making, wanted)) = self.next_wanted() {
            let _owner = wanted.owner.enter();
            // The request that wants what cannot be made does it itself, and has the error.
            if let Ok(part) = Part::make(&self.filesystem, &wanted) {
                making.end(part);
            }
        }
    }

    /// Wait for a listing that is wanted; `None` at the end.
    fn next_wanted(&self) -> Option<(Making<'_>, Wanted)> {
        let mut state = self.lock();
        while !state.has_ended {
            if let Some(listing) = state.listings.iter_mut().find(|listing| listing.stage == Stage::Wanted) {
                listing.stage = Stage::BeingMade;
                return Some((Making { shared: self, number: listing.number }, listing.wanted));
            }
            state = self.wanted.wait(state);
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
            (listing.stage, listing.part) = (Stage::Made, Some(part));
        }
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let is_given_up =
            |listing: &Listing| listing.number == self.number && listing.stage == Stage::BeingMade;
        state.listings.retain(|listing| !is_given_up(listing));
        self.shared.count_changed(&state);
        self.shared.made.notify_all();
    }
}

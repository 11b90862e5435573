//! The page cache of Linux: an inactive and an active list, with refault detection (`mm/swap.c`, `mm/vmscan.c`, `mm/workingset.c`).
//!
//! A new page enters the inactive list. The second use makes it active. The oldest inactive page is evicted, and leaves the time of its
//! eviction; if it returns before as many evictions and activations as there are active pages, it is active at once. The active list gives
//! its oldest pages back while it is larger than the inactive list (times a ratio in caches of more than a gigabyte).
//!
//! Not modelled: anonymous memory, mapped pages, the multi-generational LRU (`CONFIG_LRU_GEN`), per-CPU batches.
//!
//! Invariants:
//! 1. Each page is in exactly one list.
//! 2. Both lists together have at most `capacity` pages.
//! 3. A file's count of dirty pages is the number of its pages that are dirty.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use diorite_block::NumberHasher;

const NONE: u32 = u32::MAX;
/// Pages of a gigabyte.
const GIGABYTE_PAGES: u64 = 1 << 18;
/// Bits of a page's number in a key.
const PAGE_BITS: u32 = 40;

type NumberMap<V> = HashMap<u64, V, BuildHasherDefault<NumberHasher>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Inactive,
    Active,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    key: u64,
    previous: u32,
    next: u32,
    list: Which,
    is_referenced: bool,
    /// When it became dirty; 0 if it is clean.
    dirty_since: u64,
}

/// A list, from the newest page at its head to the oldest at its tail.
#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
    len: u64,
}

/// See the module's head.
#[derive(Debug)]
pub struct TwoLists {
    capacity: u64,
    nodes: Vec<Node>,
    free: Vec<u32>,
    index: NumberMap<u32>,
    inactive: List,
    active: List,
    /// Evictions and activations so far.
    age: u64,
    /// Age at the eviction of pages that are gone.
    shadows: NumberMap<u64>,
    shadow_order: VecDeque<(u64, u64)>,
    /// Dirty pages in the order in which they became dirty; some are clean by now.
    dirty_order: VecDeque<(u64, u64)>,
    dirty_clock: u64,
    dirty_by_file: NumberMap<u64>,
    dirty: u64,
    evicted_dirty: u64,
}

fn key(file: u32, page: u64) -> u64 {
    u64::from(file) << PAGE_BITS | page & ((1 << PAGE_BITS) - 1)
}

fn file_of(key: u64) -> u64 {
    key >> PAGE_BITS
}

impl TwoLists {
    /// An empty cache of `capacity` pages (at least two).
    pub fn new(capacity: u64) -> Self {
        let empty = List { head: NONE, tail: NONE, len: 0 };
        Self {
            capacity: capacity.clamp(2, u64::from(u32::MAX) - 1),
            nodes: Vec::new(),
            free: Vec::new(),
            index: HashMap::default(),
            inactive: empty,
            active: empty,
            age: 0,
            shadows: HashMap::default(),
            shadow_order: VecDeque::new(),
            dirty_order: VecDeque::new(),
            dirty_clock: 0,
            dirty_by_file: HashMap::default(),
            dirty: 0,
            evicted_dirty: 0,
        }
    }

    /// Cached pages.
    pub fn len(&self) -> u64 {
        self.inactive.len + self.active.len
    }

    /// Whether no page is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a new page needs the place of another one.
    pub fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    /// Whether a page is cached. It is not used.
    pub fn contains(&self, file: u32, page: u64) -> bool {
        self.index.contains_key(&key(file, page))
    }

    /// Use a page. Returns whether the cache has it already; else it has it now.
    pub fn touch(&mut self, file: u32, page: u64) -> bool {
        let key = key(file, page);
        if let Some(at) = self.index.get(&key).copied() {
            self.use_again(at);
            return true;
        }
        while self.is_full() {
            self.evict();
        }
        let is_refault = self.shadows.remove(&key).is_some_and(|age| self.age - age <= self.active.len);
        let list = if is_refault { Which::Active } else { Which::Inactive };
        self.age += u64::from(is_refault);
        let node = Node { key, previous: NONE, next: NONE, list, is_referenced: true, dirty_since: 0 };
        let at = if let Some(at) = self.free.pop() {
            self.nodes[at as usize] = node;
            at
        } else {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        };
        self.push(at, list);
        self.index.insert(key, at);
        false
    }

    fn use_again(&mut self, at: u32) {
        let node = &mut self.nodes[at as usize];
        if node.list == Which::Inactive && node.is_referenced {
            node.is_referenced = false;
            self.unlink(at);
            self.push(at, Which::Active);
            self.age += 1;
        } else {
            node.is_referenced = true;
        }
    }

    fn evict(&mut self) {
        while self.active.len > 0 && (self.inactive.len == 0 || self.is_inactive_low()) {
            let at = self.active.tail;
            self.unlink(at);
            self.push(at, Which::Inactive);
        }
        let at = self.inactive.tail;
        let key = self.nodes[at as usize].key;
        if self.nodes[at as usize].dirty_since > 0 {
            self.evicted_dirty += 1;
        }
        self.remove(at);
        self.shadows.insert(key, self.age);
        self.shadow_order.push_back((key, self.age));
        self.age += 1;
        // Older ones can no longer be refaults.
        while let Some((key, age)) = self.shadow_order.front().copied()
            && self.age - age > self.capacity
        {
            self.shadow_order.pop_front();
            if self.shadows.get(&key) == Some(&age) {
                self.shadows.remove(&key);
            }
        }
    }

    /// As `inactive_is_low`.
    fn is_inactive_low(&self) -> bool {
        let gigabytes = self.len() / GIGABYTE_PAGES;
        let ratio = if gigabytes > 0 { (10 * gigabytes).isqrt() } else { 1 };
        self.inactive.len * ratio < self.active.len
    }

    /// A page of the cache was written.
    pub fn mark_dirty(&mut self, file: u32, page: u64) {
        let key = key(file, page);
        if let Some(at) = self.index.get(&key).copied()
            && self.nodes[at as usize].dirty_since == 0
        {
            self.dirty_clock += 1;
            self.nodes[at as usize].dirty_since = self.dirty_clock;
            self.dirty += 1;
            *self.dirty_by_file.entry(u64::from(file)).or_default() += 1;
            self.dirty_order.push_back((key, self.dirty_clock));
        }
    }

    /// Dirty pages.
    pub fn dirty(&self) -> u64 {
        self.dirty
    }

    /// Dirty pages that were evicted since the last call: eviction has to wait for their writeback.
    pub fn take_evicted_dirty(&mut self) -> u64 {
        std::mem::take(&mut self.evicted_dirty)
    }

    /// Write back the `count` oldest dirty pages.
    pub fn write_back(&mut self, count: u64) {
        let goal = self.dirty.saturating_sub(count);
        while self.dirty > goal
            && let Some(entry) = self.dirty_order.pop_front()
        {
            self.clean_if_since(entry);
        }
        if self.dirty == 0 {
            self.dirty_order.clear();
        }
    }

    /// Write back a file. Returns the number of its dirty pages.
    pub fn sync(&mut self, file: u32) -> u64 {
        let file = u64::from(file);
        let count = self.dirty_by_file.get(&file).copied().unwrap_or(0);
        if count > 0 {
            let (own, others): (VecDeque<_>, VecDeque<_>) =
                self.dirty_order.drain(..).partition(|(key, _)| file_of(*key) == file);
            self.dirty_order = others;
            for entry in own {
                self.clean_if_since(entry);
            }
        }
        count
    }

    /// An entry of the order is stale if its page is clean, gone, or dirty again since then.
    fn clean_if_since(&mut self, (key, since): (u64, u64)) {
        if let Some(at) = self.index.get(&key).copied()
            && self.nodes[at as usize].dirty_since == since
        {
            self.clean(at);
        }
    }

    /// Drop the pages of a file from `first` on, without writing them back.
    pub fn forget(&mut self, file: u32, first: u64) {
        let gone: Vec<u32> = self
            .index
            .iter()
            .filter(|(key, _)| file_of(**key) == u64::from(file) && **key & ((1 << PAGE_BITS) - 1) >= first)
            .map(|(_, at)| *at)
            .collect();
        for at in gone {
            self.remove(at);
        }
    }

    fn clean(&mut self, at: u32) {
        let node = &mut self.nodes[at as usize];
        if std::mem::take(&mut node.dirty_since) > 0 {
            self.dirty -= 1;
            let file = file_of(node.key);
            let count = self.dirty_by_file.get_mut(&file).expect("a file with a dirty page has a count");
            *count -= 1;
            if *count == 0 {
                self.dirty_by_file.remove(&file);
            }
        }
    }

    fn remove(&mut self, at: u32) {
        self.clean(at);
        self.unlink(at);
        self.index.remove(&self.nodes[at as usize].key);
        self.free.push(at);
    }

    fn list(&mut self, which: Which) -> &mut List {
        match which {
            Which::Inactive => &mut self.inactive,
            Which::Active => &mut self.active,
        }
    }

    /// Make it the newest one.
    fn push(&mut self, at: u32, which: Which) {
        let list = self.list(which);
        let head = std::mem::replace(&mut list.head, at);
        list.len += 1;
        if head == NONE {
            list.tail = at;
        } else {
            self.nodes[head as usize].previous = at;
        }
        let node = &mut self.nodes[at as usize];
        (node.previous, node.next, node.list) = (NONE, head, which);
    }

    fn unlink(&mut self, at: u32) {
        let Node { previous, next, list, .. } = self.nodes[at as usize];
        if previous == NONE {
            self.list(list).head = next;
        } else {
            self.nodes[previous as usize].next = next;
        }
        if next == NONE {
            self.list(list).tail = previous;
        } else {
            self.nodes[next as usize].previous = previous;
        }
        self.list(list).len -= 1;
    }
}

#[cfg(test)]
mod tests;

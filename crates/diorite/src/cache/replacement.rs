//! The choice of the page to evict: S3-FIFO, which resists scans.
//!
//! Where it sits: under the cache's one replacement lock, which hits never take. A pure state machine: it knows frames,
//! keys and use counts, and asks whether a frame can be evicted.
//!
//! A new page enters the small queue (a tenth of the frames). At the end of that queue it is evicted, or moves to the
//! main queue if it was used again. A page of readahead enters it when its data arrives
//! ([`Replacement::renew`]), since its request may have waited in an I/O scheduler. The ghost list keeps the keys of
//! evicted pages for a while; a page that returns enters the main queue at once. The main queue gives a used page
//! another round.
//! (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023.)
//!
//! Invariants:
//! 1. Every frame is in exactly one of free, small and main.
//! 2. The ghost list holds at most as many keys as there are frames.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use diorite_block::NumberHasher;

use crate::cache::arena::FrameId;
use crate::cache::pages::Pages;

/// The key of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PageKey {
    /// [`Pages::id`].
    pub(crate) owner: u64,
    /// Number of the page in the file.
    pub(crate) page: u64,
}

const USES_MAX: u8 = 3;
const NONE: u32 = u32::MAX;

/// Pages of the small queue that cannot be evicted before the main queue is tried: all pages of the small queue may
/// be dirty or in use.
const SMALL_REFUSALS_MAX: u32 = 16;

/// The limit of one search for frames.
#[derive(Debug)]
pub(crate) struct ScanBudget {
    /// Frames that the search may still examine.
    looks: u32,
    /// Frames of the small queue that could not go.
    small_refusals: u32,
}

impl ScanBudget {
    pub(crate) fn of(looks: u32) -> Self {
        Self { looks, small_refusals: 0 }
    }
}

/// Uses of each frame since it was last examined. Hits count here without the lock of the queues.
#[derive(Debug)]
pub(crate) struct Uses(Box<[AtomicU8]>);

impl Uses {
    pub(crate) fn new(frames: u32) -> Self {
        Self((0..frames).map(|_| AtomicU8::new(0)).collect())
    }

    /// Count a use.
    #[inline]
    pub(crate) fn count(&self, frame: FrameId) {
        let uses = &self.0[frame.0 as usize];
        let now = uses.load(Ordering::Relaxed);
        if now < USES_MAX {
            uses.store(now + 1, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self, frame: FrameId) -> u8 {
        self.0[frame.0 as usize].load(Ordering::Relaxed)
    }

    fn set(&self, frame: FrameId, uses: u8) {
        self.0[frame.0 as usize].store(uses, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameList {
    Free,
    Small,
    Main,
}

#[derive(Debug)]
struct Link {
    previous: u32,
    next: u32,
    list: FrameList,
    owner: Option<(Arc<Pages>, u64)>,
}

/// A queue of frames, linked through their numbers: the oldest at the head.
#[derive(Debug)]
struct Queue {
    head: u32,
    tail: u32,
    len: u32,
}

impl Queue {
    const EMPTY: Self = Self { head: NONE, tail: NONE, len: 0 };
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Replacement {
    links: Vec<Link>,
    free: Vec<FrameId>,
    small: Queue,
    main: Queue,
    small_max: u32,
    ghost: VecDeque<(PageKey, u64)>,
    /// The entry of `ghost` that counts, for keys that were entered more than once.
    ghost_keys: HashMap<PageKey, u64, BuildHasherDefault<NumberHasher>>,
    ghost_next: u64,
}

impl Replacement {
    /// All frames free.
    pub(crate) fn new(frames: u32) -> Self {
        let link = || Link { previous: NONE, next: NONE, list: FrameList::Free, owner: None };
        Self {
            links: (0..frames).map(|_| link()).collect(),
            free: (0..frames).rev().map(FrameId).collect(),
            small: Queue::EMPTY,
            main: Queue::EMPTY,
            small_max: (frames / 10).max(1),
            ghost: VecDeque::new(),
            ghost_keys: HashMap::default(),
            ghost_next: 0,
        }
    }

    /// Frames that hold nothing.
    pub(crate) fn free_count(&self) -> u32 {
        self.free.len() as u32
    }

    /// A free frame for a page.
    pub(crate) fn take_free(&mut self, pages: &Arc<Pages>, page: u64, uses: &Uses) -> Option<FrameId> {
        let frame = self.free.pop()?;
        let key = PageKey { owner: pages.id(), page };
        uses.set(frame, 0);
        self.links[frame.0 as usize].owner = Some((Arc::clone(pages), page));
        let list = if self.ghost_keys.remove(&key).is_some() { FrameList::Main } else { FrameList::Small };
        self.append(frame, list);
        Some(frame)
    }

    /// The content of a frame has arrived: its age counts from now.
    pub(crate) fn renew(&mut self, frame: FrameId) {
        if self.links[frame.0 as usize].list == FrameList::Small {
            self.unlink(frame);
            self.append(frame, FrameList::Small);
        }
    }

    /// Free a frame.
    pub(crate) fn release(&mut self, frame: FrameId) {
        self.unlink(frame);
        let link = &mut self.links[frame.0 as usize];
        link.owner = None;
        link.list = FrameList::Free;
        self.free.push(frame);
    }

    /// Free one frame. `evict` removes the page from the index of its file and returns whether it could. Examines at
    /// most `budget` frames; returns whether one was freed.
    pub(crate) fn evict_one(
        &mut self,
        uses: &Uses,
        budget: &mut ScanBudget,
        mut evict: impl FnMut(&Arc<Pages>, u64, FrameId) -> bool,
    ) -> bool {
        while budget.looks > 0 {
            let is_stuck = budget.small_refusals >= SMALL_REFUSALS_MAX;
            let prefers_small = self.small.len >= self.small_max && !is_stuck;
            let from_small = self.small.len > 0 && (prefers_small || self.main.len == 0);
            let head = if from_small { self.small.head } else { self.main.head };
            if head == NONE {
                return false;
            }
            budget.looks -= 1;
            let frame = FrameId(head);
            let used = uses.get(frame);
            self.unlink(frame);
            if from_small && used > 1 {
                uses.set(frame, 0);
                self.append(frame, FrameList::Main);
                continue;
            }
            if !from_small && used > 0 {
                uses.set(frame, used - 1);
                self.append(frame, FrameList::Main);
                continue;
            }
            let list = if from_small { FrameList::Small } else { FrameList::Main };
            let (pages, page) =
                self.links[head as usize].owner.clone().expect("a frame in a queue has a page");
            if !evict(&pages, page, frame) {
                budget.small_refusals += u32::from(from_small);
                self.append(frame, list);
                continue;
            }
            if from_small {
                self.remember(PageKey { owner: pages.id(), page });
            }
            let link = &mut self.links[head as usize];
            link.owner = None;
            link.list = FrameList::Free;
            self.free.push(frame);
            return true;
        }
        false
    }

    fn remember(&mut self, key: PageKey) {
        let stamp = self.ghost_next;
        self.ghost_next += 1;
        self.ghost.push_back((key, stamp));
        self.ghost_keys.insert(key, stamp);
        while self.ghost.len() > self.links.len() {
            if let Some((key, stamp)) = self.ghost.pop_front()
                && self.ghost_keys.get(&key) == Some(&stamp)
            {
                self.ghost_keys.remove(&key);
            }
        }
    }

    fn queue(&mut self, list: FrameList) -> &mut Queue {
        match list {
            FrameList::Small => &mut self.small,
            _ => &mut self.main,
        }
    }

    fn append(&mut self, frame: FrameId, list: FrameList) {
        let queue = self.queue(list);
        let tail = std::mem::replace(&mut queue.tail, frame.0);
        queue.len += 1;
        if tail == NONE {
            queue.head = frame.0;
        } else {
            self.links[tail as usize].next = frame.0;
        }
        let link = &mut self.links[frame.0 as usize];
        (link.previous, link.next, link.list) = (tail, NONE, list);
    }

    fn unlink(&mut self, frame: FrameId) {
        let Link { previous, next, list, .. } = self.links[frame.0 as usize];
        assert!(list != FrameList::Free, "a free frame is in no queue");
        if previous == NONE {
            self.queue(list).head = next;
        } else {
            self.links[previous as usize].next = next;
        }
        if next == NONE {
            self.queue(list).tail = previous;
        } else {
            self.links[next as usize].previous = previous;
        }
        self.queue(list).len -= 1;
    }

    /// Assert the invariants in the module's head.
    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        let mut seen = vec![0; self.links.len()];
        for queue in [&self.small, &self.main] {
            let (mut at, mut len) = (queue.head, 0);
            while at != NONE {
                seen[at as usize] += 1;
                len += 1;
                at = self.links[at as usize].next;
            }
            assert_eq!(len, queue.len);
        }
        self.free.iter().for_each(|frame| seen[frame.0 as usize] += 1);
        assert!(seen.iter().all(|times| *times == 1), "invariant 1");
        assert!(self.ghost.len() <= self.links.len() && self.ghost_keys.len() <= self.ghost.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Model {
        replacement: Replacement,
        uses: Uses,
        pages: Arc<Pages>,
        cached: HashMap<u64, FrameId>,
    }

    impl Model {
        fn new(frames: u32) -> Self {
            let replacement = Replacement::new(frames);
            Self {
                replacement,
                uses: Uses::new(frames),
                pages: Arc::new(Pages::new(Arc::default())),
                cached: HashMap::new(),
            }
        }

        /// Use a page; returns whether it was cached.
        fn touch(&mut self, page: u64) -> bool {
            if let Some(frame) = self.cached.get(&page) {
                self.uses.count(*frame);
                return true;
            }
            if self.replacement.free_count() == 0 {
                let (mut budget, cached) = (ScanBudget::of(1000), &mut self.cached);
                let freed = self.replacement.evict_one(&self.uses, &mut budget, |_, page, frame| {
                    assert_eq!(cached.remove(&page), Some(frame));
                    true
                });
                assert!(freed);
            }
            let frame = self.replacement.take_free(&self.pages, page, &self.uses).expect("free");
            self.cached.insert(page, frame);
            self.replacement.check_invariants();
            false
        }
    }

    /// Pages in use survive a scan that is many times as large as the cache.
    #[test]
    fn a_scan_does_not_flush_what_is_used() {
        let mut model = Model::new(100);
        for _ in 0..4 {
            (0..40).for_each(|page| {
                model.touch(page);
            });
        }
        (1000..2000).for_each(|page| {
            model.touch(page);
        });
        let kept = (0..40).filter(|page| model.cached.contains_key(page)).count();
        assert_eq!(kept, 40);
    }

    /// A page that comes back soon after it went is kept from then on.
    #[test]
    fn a_page_that_returns_enters_the_main_queue() {
        let mut model = Model::new(20);
        (0..30).for_each(|page| {
            model.touch(page);
        });
        assert!(!model.cached.contains_key(&0));
        model.touch(0);
        (100..110).for_each(|page| {
            model.touch(page);
        });
        assert!(model.cached.contains_key(&0));
    }

    /// Two writers, each with half of the small queue pinned, waited for ever for frames while the main queue was full of clean pages.
    #[test]
    fn a_small_queue_in_use_does_not_hide_the_main_one() {
        let mut replacement = Replacement::new(1000);
        let (uses, pages) = (Uses::new(1000), Arc::new(Pages::new(Arc::default())));
        for page in 0..1000 {
            let frame = replacement.take_free(&pages, page, &uses).expect("free");
            if page < 800 {
                replacement.unlink(frame);
                replacement.append(frame, FrameList::Main);
            }
        }
        replacement.check_invariants();
        let mut budget = ScanBudget::of(64);
        assert!(replacement.evict_one(&uses, &mut budget, |_, page, _| page < 800));
        let left = budget.looks;
        assert!(replacement.evict_one(&uses, &mut budget, |_, page, _| page < 800));
        assert_eq!(left - budget.looks, 1, "known by now");
        replacement.check_invariants();
    }

    #[test]
    fn what_may_not_go_stays_and_the_scan_ends() {
        let mut replacement = Replacement::new(4);
        let (uses, pages) = (Uses::new(4), Arc::new(Pages::new(Arc::default())));
        for page in 0..4 {
            replacement.take_free(&pages, page, &uses).expect("free");
        }
        let mut budget = ScanBudget::of(10);
        assert!(!replacement.evict_one(&uses, &mut budget, |_, _, _| false));
        assert_eq!(budget.looks, 0);
        replacement.check_invariants();
        replacement.release(FrameId(2));
        replacement.check_invariants();
        assert_eq!(replacement.free_count(), 1);
    }
}

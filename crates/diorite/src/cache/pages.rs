//! The cached pages of one file, in file order.
//!
//! Where it sits: one per file, with references to frames of the arena. Replacement removes pages from it.
//!
//! Interface:
//! - A page enters as *loading* ([`Pages::begin_loading`]); the thread that entered it fills its frame and ends the
//!   loading
//!   ([`Pages::end_loading`]). Others wait ([`Pages::wait_loaded`]).
//! - A thread that loads, changes or removes pages has locked their range. Replacement has not, and evicts only pages
//!   that are clean, not loading, and not borrowed.
//!
//! States: absent -> loading -> clean <-> dirty; clean -> absent; loading -> absent where reading failed.
//!
//! Invariants:
//! 1. `present` and `dirty` of a chunk have one bit for each page that is present, and dirty.
//! 2. The counts are the sums of those bits.
//! 3. A loading page is not dirty.
//!
//! Locking: `index` is held for a few instructions; frames are borrowed under it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use diorite_block::sync::{Condvar, Mutex, Rank, RwLock};

use crate::cache::arena::{Arena, FrameId, FrameRead};

/// Pages of a chunk.
const CHUNK: u64 = 64;
/// Chunks that are examined before the lock is released for a moment.
const CHUNKS_AT_ONCE: usize = 64;

/// The state of a cached page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent properties, each named")]
pub(crate) struct PageState {
    /// The memory of its content.
    pub(crate) frame: FrameId,
    /// Parts that are newer than the device, one bit each (as many parts as the page has blocks, at least one).
    pub(crate) dirty: u8,
    /// Blocks claimed for it and not reserved yet.
    pub(crate) claimed: u8,
    /// Its content is being read.
    pub(crate) loading: bool,
    /// All its parts are known to have blocks on the device.
    pub(crate) mapped: bool,
    /// A writer is about to change it: it cannot be evicted.
    pub(crate) pinned: bool,
    /// Only calls that leave no page in the cache have used it: it is evicted after its use.
    pub(crate) uncached: bool,
}

impl PageState {
    /// The runs of dirty bytes within the page, whose parts have `part` bytes.
    pub(crate) fn dirty_runs(&self, part: u64) -> impl Iterator<Item = Range<u64>> + use<> {
        let (dirty, mut at) = (u64::from(self.dirty), 0);
        std::iter::from_fn(move || {
            if dirty >> at == 0 {
                return None;
            }
            let first = at + u64::from((dirty >> at).trailing_zeros());
            at = first + u64::from((dirty >> first).trailing_ones());
            Some(first * part..at * part)
        })
    }
}

#[derive(Debug)]
struct Chunk {
    present: u64,
    dirty: u64,
    pages: [PageState; CHUNK as usize],
}

impl Chunk {
    fn empty() -> Box<Self> {
        Box::new(Self { present: 0, dirty: 0, pages: [PageState::default(); CHUNK as usize] })
    }
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Pages {
    id: u64,
    index: RwLock<BTreeMap<u64, Box<Chunk>>>,
    cached: AtomicUsize,
    dirty: AtomicUsize,
    /// Dirty pages of all files of the cache.
    dirty_total: Arc<AtomicUsize>,
    /// Threads that wait for a page to be loaded.
    waiters: Mutex<usize>,
    loaded: Condvar,
}

/// The bits of the pages of chunk `chunk` that lie in `range`.
fn bits_in(chunk: u64, range: &Range<u64>) -> u64 {
    let base = chunk.saturating_mul(CHUNK);
    let from = range.start.saturating_sub(base).min(CHUNK);
    let to = range.end.saturating_sub(base).min(CHUNK);
    let below = |count: u64| if count >= CHUNK { u64::MAX } else { (1 << count) - 1 };
    below(to) & !below(from)
}

/// The numbers of the set bits.
fn ones(mut bits: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let at = bits.trailing_zeros();
        (at < 64).then(|| {
            bits &= bits - 1;
            u64::from(at)
        })
    })
}

/// Pages in order, those of one chunk together.
fn by_chunk(pages: &[(u64, FrameId)]) -> impl Iterator<Item = &[(u64, FrameId)]> {
    pages.chunk_by(|(a, _), (b, _)| a / CHUNK == b / CHUNK)
}

fn chunks_of(range: &Range<u64>) -> Range<u64> {
    if range.is_empty() { 0..0 } else { range.start / CHUNK..(range.end - 1) / CHUNK + 1 }
}

impl Pages {
    /// No page. `dirty_total` counts along.
    pub(crate) fn new(dirty_total: Arc<AtomicUsize>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            index: RwLock::ranked(Rank::PageIndex, BTreeMap::new()),
            cached: AtomicUsize::new(0),
            dirty: AtomicUsize::new(0),
            dirty_total,
            waiters: Mutex::ranked(Rank::PageWaiters, 0),
            loaded: Condvar::new(),
        }
    }

    /// A number that no other has.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Number of present pages.
    pub(crate) fn cached(&self) -> usize {
        self.cached.load(Ordering::Acquire)
    }

    /// Number of dirty pages.
    pub(crate) fn dirty(&self) -> usize {
        self.dirty.load(Ordering::Acquire)
    }

    /// A page's state.
    pub(crate) fn get(&self, page: u64) -> Option<PageState> {
        let index = self.index.read();
        let chunk = index.get(&(page / CHUNK))?;
        let at = page % CHUNK;
        (chunk.present >> at & 1 == 1).then(|| chunk.pages[at as usize])
    }

    /// The content of a page, if it is present.
    #[inline]
    pub(crate) fn read<'a>(&self, page: u64, arena: &'a Arena) -> Option<(FrameId, FrameRead<'a>)> {
        let index = self.index.read();
        let chunk = index.get(&(page / CHUNK))?;
        let at = page % CHUNK;
        let state = &chunk.pages[at as usize];
        if chunk.present >> at & 1 == 0 || state.loading {
            return None;
        }
        Some((state.frame, arena.read(state.frame)?))
    }

    /// Pages of `range` that are absent.
    pub(crate) fn missing(&self, range: Range<u64>) -> Vec<u64> {
        let index = self.index.read();
        let mut missing = Vec::new();
        for number in chunks_of(&range) {
            let present = index.get(&number).map_or(0, |chunk| chunk.present);
            missing.extend(ones(bits_in(number, &range) & !present).map(|at| number * CHUNK + at));
        }
        missing
    }

    /// Enter pages as loading, each with its frame. Pages that another thread has entered meanwhile are skipped, and
    /// their frames are returned.
    pub(crate) fn begin_loading(&self, pages: &mut Vec<(u64, FrameId)>) -> Vec<FrameId> {
        let mut unused = Vec::new();
        let mut index = self.index.write();
        let mut entered = Vec::with_capacity(pages.len());
        for run in by_chunk(pages) {
            let chunk = index.entry(run[0].0 / CHUNK).or_insert_with(Chunk::empty);
            for &(page, frame) in run {
                let at = page % CHUNK;
                if chunk.present >> at & 1 == 1 {
                    unused.push(frame);
                    continue;
                }
                chunk.present |= 1 << at;
                chunk.pages[at as usize] = PageState { frame, loading: true, ..PageState::default() };
                entered.push((page, frame));
            }
        }
        self.cached.fetch_add(entered.len(), Ordering::AcqRel);
        *pages = entered;
        unused
    }

    /// The content of the pages has been read.
    pub(crate) fn end_loading(&self, pages: &[(u64, FrameId)], mapped: impl Fn(u64) -> bool) {
        let mut index = self.index.write();
        for run in by_chunk(pages) {
            let Some(chunk) = index.get_mut(&(run[0].0 / CHUNK)) else { continue };
            for (page, _) in run {
                let state = &mut chunk.pages[(page % CHUNK) as usize];
                (state.loading, state.mapped) = (false, mapped(*page));
            }
        }
        drop(index);
        self.wake();
    }

    /// Remove pages that could not be read.
    pub(crate) fn abandon_loading(&self, pages: &[(u64, FrameId)]) {
        for (page, _) in pages {
            self.remove_where(*page..page + 1, |_| true);
        }
        self.wake();
    }

    fn wake(&self) {
        // A wake-up without a waiter would be a system call for each page that is read.
        if *self.waiters.lock() > 0 {
            self.loaded.notify_all();
        }
    }

    /// Wait until a page is not loading.
    pub(crate) fn wait_loaded(&self, page: u64) {
        Rank::Page.check_wait();
        let mut guard = self.waiters.lock();
        *guard += 1;
        while self.get(page).is_some_and(|state| state.loading) {
            guard = self.loaded.wait(guard);
        }
        *guard -= 1;
    }

    /// Show the present pages of `range` to `change`, in order.
    pub(crate) fn update(&self, range: Range<u64>, mut change: impl FnMut(u64, &mut PageState)) {
        let mut index = self.index.write();
        let (mut more, mut fewer) = (0, 0);
        for (number, chunk) in index.range_mut(chunks_of(&range)) {
            for at in ones(chunk.present & bits_in(*number, &range)) {
                let state = &mut chunk.pages[at as usize];
                change(number * CHUNK + at, state);
                match (chunk.dirty >> at & 1 == 1, state.dirty != 0) {
                    (false, true) => {
                        assert!(!state.loading, "a loading page is not dirty");
                        chunk.dirty |= 1 << at;
                        more += 1;
                    }
                    (true, false) => {
                        chunk.dirty &= !(1 << at);
                        fewer += 1;
                    }
                    _ => {}
                }
            }
        }
        drop(index);
        self.count_dirty(more, fewer);
    }

    fn count_dirty(&self, more: usize, fewer: usize) {
        for count in [&self.dirty, &*self.dirty_total] {
            if more > 0 {
                count.fetch_add(more, Ordering::AcqRel);
            }
            if fewer > 0 {
                count.fetch_sub(fewer, Ordering::AcqRel);
            }
        }
    }

    /// Pin the pages of `range`, so that they are not evicted, for a caller that has the range exclusively. Returns
    /// their states; the error is the list of absent pages. [`Pages::unpin`], or `update`, unpins them in both cases.
    pub(crate) fn pin(&self, range: Range<u64>) -> Result<Vec<PageState>, Vec<u64>> {
        let mut index = self.index.write();
        let mut states = Vec::with_capacity((range.end - range.start) as usize);
        let mut missing = Vec::new();
        for number in chunks_of(&range) {
            let wanted = bits_in(number, &range);
            let Some(chunk) = index.get_mut(&number) else {
                missing.extend(ones(wanted).map(|at| number * CHUNK + at));
                continue;
            };
            for at in ones(wanted) {
                if chunk.present >> at & 1 == 1 {
                    let state = &mut chunk.pages[at as usize];
                    state.pinned = true;
                    states.push(*state);
                } else {
                    missing.push(number * CHUNK + at);
                }
            }
        }
        if missing.is_empty() { Ok(states) } else { Err(missing) }
    }

    /// The counterpart of [`Pages::pin`].
    pub(crate) fn unpin(&self, range: Range<u64>) {
        self.update(range, |_, state| state.pinned = false);
    }

    /// Remove all pages of `range`. On long ranges the lock is released now and then.
    pub(crate) fn remove(&self, range: Range<u64>) -> Vec<PageState> {
        if self.cached() == 0 {
            return Vec::new();
        }
        self.remove_where(range, |_| true)
    }

    /// Remove the clean pages of `range` that are not loading.
    pub(crate) fn remove_clean(&self, range: Range<u64>) -> Vec<PageState> {
        self.remove_where(range, |state| state.dirty == 0 && !state.loading && !state.pinned)
    }

    fn remove_where(&self, range: Range<u64>, may: impl Fn(&PageState) -> bool) -> Vec<PageState> {
        let (mut removed, mut chunks) = (Vec::new(), chunks_of(&range));
        while !chunks.is_empty() {
            let mut index = self.index.write();
            let some: Vec<u64> =
                index.range(chunks.clone()).take(CHUNKS_AT_ONCE).map(|(number, _)| *number).collect();
            let mut dirty = 0;
            let before = removed.len();
            for number in &some {
                let Some(chunk) = index.get_mut(number) else { continue };
                for at in ones(chunk.present & bits_in(*number, &range)) {
                    let state = chunk.pages[at as usize];
                    if may(&state) {
                        chunk.present &= !(1 << at);
                        dirty += (chunk.dirty >> at & 1) as usize;
                        chunk.dirty &= !(1 << at);
                        removed.push(state);
                    }
                }
                if chunk.present == 0 {
                    index.remove(number);
                }
            }
            drop(index);
            self.cached.fetch_sub(removed.len() - before, Ordering::AcqRel);
            self.count_dirty(0, dirty);
            match some.last() {
                Some(last) if some.len() == CHUNKS_AT_ONCE => chunks.start = last + 1,
                _ => break,
            }
        }
        removed
    }

    /// Mark present pages for eviction after their use.
    pub(crate) fn mark_uncached(&self, pages: &[u64]) {
        let is_next = |a: &u64, b: &u64| a + 1 == *b;
        for run in pages.chunk_by(is_next) {
            self.update(run[0]..run[run.len() - 1] + 1, |_, state| state.uncached = true);
        }
    }

    /// The clean pages of `range` that are marked for eviction.
    pub(crate) fn uncached_in(&self, range: Range<u64>) -> Vec<(u64, FrameId)> {
        let index = self.index.read();
        let mut found = Vec::new();
        for (number, chunk) in index.range(chunks_of(&range)) {
            for at in ones(chunk.present & !chunk.dirty & bits_in(*number, &range)) {
                let state = &chunk.pages[at as usize];
                if state.uncached {
                    found.push((number * CHUNK + at, state.frame));
                }
            }
        }
        found
    }

    /// The clean pages.
    pub(crate) fn clean(&self) -> Vec<(u64, FrameId)> {
        let index = self.index.read();
        let pages = index.iter().flat_map(|(number, chunk)| {
            ones(chunk.present & !chunk.dirty)
                .map(move |at| (number * CHUNK + at, chunk.pages[at as usize].frame))
        });
        pages.collect()
    }

    /// Evict one page, if it can be evicted.
    pub(crate) fn evict(&self, page: u64, frame: FrameId, arena: &Arena) -> bool {
        let mut index = self.index.write();
        let Some(chunk) = index.get_mut(&(page / CHUNK)) else { return false };
        let at = page % CHUNK;
        let state = &chunk.pages[at as usize];
        let may_go = chunk.present >> at & 1 == 1
            && state.frame == frame
            && !state.loading
            && state.dirty == 0
            && state.claimed == 0
            && !state.pinned
            && arena.write(frame).is_some();
        if may_go {
            chunk.present &= !(1 << at);
            if chunk.present == 0 {
                index.remove(&(page / CHUNK));
            }
            self.cached.fetch_sub(1, Ordering::AcqRel);
        }
        may_go
    }

    /// The first dirty page of `range`.
    pub(crate) fn first_dirty(&self, range: Range<u64>) -> Option<u64> {
        if self.dirty() == 0 {
            return None;
        }
        let index = self.index.read();
        index.range(chunks_of(&range)).find_map(|(number, chunk)| {
            ones(chunk.dirty & bits_in(*number, &range)).next().map(|at| number * CHUNK + at)
        })
    }

    /// At most `most` dirty pages of `range`, in order.
    pub(crate) fn dirty_in(&self, range: Range<u64>, most: usize) -> Vec<(u64, PageState)> {
        if self.dirty() == 0 {
            return Vec::new();
        }
        let index = self.index.read();
        index
            .range(chunks_of(&range))
            .flat_map(|(number, chunk)| {
                let base = number * CHUNK;
                ones(chunk.dirty & bits_in(*number, &range))
                    .map(move |at| (base + at, chunk.pages[at as usize]))
            })
            .take(most)
            .collect()
    }

    /// Assert the invariants in the module's head.
    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        let index = self.index.read();
        let (mut cached, mut dirty) = (0, 0);
        for chunk in index.values() {
            assert_eq!(chunk.dirty & !chunk.present, 0, "invariant 1");
            for at in ones(chunk.present) {
                let state = &chunk.pages[at as usize];
                assert_eq!(chunk.dirty >> at & 1 == 1, state.dirty != 0, "invariant 1");
                assert!(!(state.loading && state.dirty != 0), "invariant 3");
            }
            cached += chunk.present.count_ones() as usize;
            dirty += chunk.dirty.count_ones() as usize;
        }
        assert_eq!((cached, dirty), (self.cached(), self.dirty()), "invariant 2");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_pages(numbers: &[u64]) -> Pages {
        let pages = Pages::new(Arc::default());
        let mut list: Vec<_> =
            numbers.iter().enumerate().map(|(at, page)| (*page, FrameId(at as u32))).collect();
        assert!(pages.begin_loading(&mut list).is_empty());
        pages.end_loading(&list, |_| true);
        pages
    }

    /// ARCHITECTURE invariant 4, and the range arithmetic of c114bbc6c423: an empty range takes nothing.
    #[test]
    fn ranges_take_what_is_in_them_and_nothing_else() {
        let pages = with_pages(&[0, 1, 63, 64, 65, 127, 128, 1 << 40]);
        assert!(pages.remove(5..5).is_empty() && pages.remove(0..0).is_empty());
        pages.update(60..129, |page, state| state.dirty = u8::from(page != 65));
        pages.check_invariants();
        let dirty: Vec<u64> = pages.dirty_in(0..u64::MAX, 100).iter().map(|(page, _)| *page).collect();
        assert_eq!(dirty, [63, 64, 127, 128]);
        assert_eq!(pages.first_dirty(65..1000), Some(127));
        assert_eq!(pages.remove_clean(0..u64::MAX).len(), 4);
        assert_eq!(pages.remove(64..128).len(), 2);
        pages.check_invariants();
        assert_eq!((pages.cached(), pages.dirty()), (2, 2));
        assert_eq!(pages.remove(0..u64::MAX).len(), 2);
        assert_eq!(pages.dirty_total.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_page_is_entered_once() {
        let pages = with_pages(&[3]);
        let mut list = vec![(2, FrameId(10)), (3, FrameId(11))];
        assert_eq!(pages.begin_loading(&mut list), [FrameId(11)]);
        assert_eq!(list, [(2, FrameId(10))]);
        assert!(pages.get(2).expect("entered").loading);
        pages.abandon_loading(&list);
        assert!(pages.get(2).is_none());
        assert_eq!(pages.missing(0..5), [0, 1, 2, 4]);
        pages.check_invariants();
    }

    #[test]
    fn replacement_takes_only_what_is_clean_and_not_borrowed() {
        let (pages, arena) = (with_pages(&[0, 1]), Arena::new(2).expect("memory"));
        let reader = pages.read(0, &arena).expect("cached");
        assert!(!pages.evict(0, FrameId(0), &arena));
        drop(reader);
        assert!(pages.evict(0, FrameId(0), &arena));
        pages.update(1..2, |_, state| state.dirty = 1);
        assert!(!pages.evict(1, FrameId(1), &arena));
    }
}

//! Locks on byte ranges of one file, shared or exclusive.
//!
//! Where it sits: every read, write, writeback and change of a file's mapping locks its range. Calls on one range are
//! atomic and take effect one after the other (ARCHITECTURE invariant 2). Calls on disjoint ranges run concurrently.
//!
//! Interface:
//! - [`RangeLock::try_shared_fast`] is for short work on cached pages that waits for nothing: one atomic operation. It
//!   conflicts with every exclusive lock of the file, which waits for it, so its holder must not wait.
//! - [`RangeLock::shared`] and [`RangeLock::exclusive`] may be held across I/O.
//! - [`RangeLock::poll_acquire`] is for holders without a thread that waits: a waker is woken instead.
//! - A thread that holds a range never waits for another range of the same file.
//!
//! Invariants:
//! 1. No two held ranges overlap unless both are shared.
//! 2. While an exclusive range is held there is no fast holder: `fast` counts exclusive holders and those that
//!    wait in its upper half, and a fast holder that sees any steps back.
//! 3. Overlapping requests are served in their order: none starves.
//!
//! Locking: one mutex for the lists; conditions are waited for under it.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};

use diorite_block::sync::{Condvar, Mutex, MutexGuard, Rank};

const EXCLUSIVE: u64 = 1 << 32;
const FAST_HOLDERS: u64 = EXCLUSIVE - 1;

impl Default for RangeLock {
    fn default() -> Self {
        let lists = Mutex::ranked(Rank::RangeLists, Lists::default());
        Self { fast: AtomicU64::new(0), exclusives: AtomicU64::new(0), lists, changed: Condvar::new() }
    }
}

thread_local! {
    /// Wakers that this thread calls later.
    static DEFERRED: RefCell<Option<Vec<Waker>>> = const { RefCell::new(None) };
}

/// Run `body` with a lock held under which no waker may be called: the wakers of released ranges are added to
/// `wakers`.
pub(crate) fn defer_wakers<T>(wakers: &mut Vec<Waker>, body: impl FnOnce() -> T) -> T {
    let before = DEFERRED.replace(Some(Vec::new()));
    let result = body();
    wakers.extend(DEFERRED.replace(before).unwrap_or_default());
    result
}

/// The mode of a range lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockMode {
    /// Beside other shared holders.
    Shared,
    /// Alone.
    Exclusive,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct RangeLock {
    /// Lower half: fast holders. Upper half: exclusive ranges that are held or waited for.
    fast: AtomicU64,
    /// Number of exclusive locks that were granted.
    exclusives: AtomicU64,
    lists: Mutex<Lists>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Lists {
    next: u64,
    held: Vec<Entry>,
    /// In the order in which they came.
    waiting: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    id: LockId,
    range: Range<u64>,
    mode: LockMode,
    /// Of a waiter without a thread.
    waker: Option<Waker>,
}

/// A position in the queue for a range, for [`RangeLock::poll_acquire`].
#[derive(Debug)]
pub(crate) struct Ticket {
    id: LockId,
    range: Range<u64>,
    mode: LockMode,
}

/// The number of a locked range, for holders whose lock outlives a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LockId(u64);

impl Entry {
    fn conflicts(&self, other: &Self) -> bool {
        (self.mode == LockMode::Exclusive || other.mode == LockMode::Exclusive)
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }
}

impl Ticket {
    /// Whether it is for this range and mode.
    pub(crate) fn is_for(&self, range: &Range<u64>, mode: LockMode) -> bool {
        self.range == *range && self.mode == mode
    }
}

impl Lists {
    fn is_free(&self, entry: &Entry) -> bool {
        !self.held.iter().any(|held| held.conflicts(entry))
            && !self
                .waiting
                .iter()
                .take_while(|other| other.id < entry.id)
                .any(|other| other.conflicts(entry))
    }
}

impl RangeLock {
    /// Lock the whole file shared for a moment, if no thread has or waits for exclusive access to a part of it.
    #[inline]
    pub(crate) fn try_shared_fast(&self) -> Option<FastGuard<'_>> {
        let before = self.fast.fetch_add(1, Ordering::AcqRel);
        let guard = FastGuard(self);
        // The guard steps back when dropped.
        (before < EXCLUSIVE).then_some(guard)
    }

    /// Wait for shared access to a range.
    pub(crate) fn shared(&self, range: Range<u64>) -> RangeGuard<'_> {
        RangeGuard { lock: self, id: self.acquire(range, LockMode::Shared) }
    }

    /// Wait for exclusive access to a range.
    pub(crate) fn exclusive(&self, range: Range<u64>) -> RangeGuard<'_> {
        RangeGuard { lock: self, id: self.acquire(range, LockMode::Exclusive) }
    }

    /// Shared access to a range if no thread has it exclusively or waits for that.
    pub(crate) fn try_shared(&self, range: Range<u64>) -> Option<RangeGuard<'_>> {
        Some(RangeGuard { lock: self, id: self.try_acquire(range, LockMode::Shared)? })
    }

    /// Exclusive access to a range if no thread has a part of it or waits for that.
    pub(crate) fn try_exclusive(&self, range: Range<u64>) -> Option<RangeGuard<'_>> {
        Some(RangeGuard { lock: self, id: self.try_acquire(range, LockMode::Exclusive)? })
    }

    /// The number of exclusive locks so far. Content that was read under a lock is current while this number stays: each change of a file has
    /// a lock of its own, which is counted before the change and so before its call returns.
    pub(crate) fn changes(&self) -> u64 {
        self.exclusives.load(Ordering::Acquire)
    }

    fn hold(&self, lists: &mut Lists, entry: Entry) {
        if entry.mode == LockMode::Exclusive {
            self.exclusives.fetch_add(1, Ordering::AcqRel);
        }
        lists.held.push(entry);
    }

    /// A guard for a range that was acquired.
    pub(crate) fn guard(&self, id: LockId) -> RangeGuard<'_> {
        RangeGuard { lock: self, id }
    }

    /// Wait for a range; the caller releases it with [`RangeLock::release`].
    pub(crate) fn acquire(&self, range: Range<u64>, mode: LockMode) -> LockId {
        Rank::Range.check_wait();
        if mode == LockMode::Exclusive {
            self.fast.fetch_add(EXCLUSIVE, Ordering::SeqCst);
        }
        let mut lists = self.lists.lock();
        let entry = lists.entry(range, mode);
        let id = entry.id;
        if self.may_hold(&lists, &entry) {
            self.hold(&mut lists, entry);
            return id;
        }
        lists.waiting.push(entry.clone());
        while !self.may_hold(&lists, &entry) {
            lists = self.changed.wait(lists);
        }
        lists.waiting.retain(|other| other.id != id);
        self.hold(&mut lists, entry);
        // A thread that waited only behind this one in the queue can continue.
        self.wake(lists);
        id
    }

    /// Lock the range if it is the caller's turn; otherwise `waker` is woken when it may be. The caller polls again,
    /// or gives the ticket up ([`RangeLock::give_up`]).
    pub(crate) fn poll_acquire(&self, ticket: &mut Option<Ticket>, waker: &Waker) -> Poll<LockId> {
        let Some(Ticket { id, .. }) = *ticket else { return Poll::Pending };
        let mut lists = self.lists.lock();
        let at = lists.waiting.iter().position(|entry| entry.id == id).expect("a ticket is for a place");
        let entry = lists.waiting[at].clone();
        if !self.may_hold(&lists, &entry) {
            lists.waiting[at].waker = Some(waker.clone());
            return Poll::Pending;
        }
        lists.waiting.remove(at);
        self.hold(&mut lists, Entry { waker: None, ..entry });
        *ticket = None;
        self.wake(lists);
        Poll::Ready(id)
    }

    /// Enter the queue for a range.
    pub(crate) fn take_ticket(&self, range: Range<u64>, mode: LockMode) -> Ticket {
        if mode == LockMode::Exclusive {
            self.fast.fetch_add(EXCLUSIVE, Ordering::SeqCst);
        }
        let mut lists = self.lists.lock();
        let entry = lists.entry(range.clone(), mode);
        let id = entry.id;
        lists.waiting.push(entry);
        Ticket { id, range, mode }
    }

    /// Leave the queue.
    pub(crate) fn give_up(&self, ticket: &Ticket) {
        let mut lists = self.lists.lock();
        lists.waiting.retain(|entry| entry.id != ticket.id);
        if ticket.mode == LockMode::Exclusive {
            self.fast.fetch_sub(EXCLUSIVE, Ordering::AcqRel);
        }
        self.wake(lists);
    }

    /// Wake the waiters, if there are any.
    fn wake(&self, lists: MutexGuard<'_, Lists>) {
        if lists.waiting.is_empty() {
            return;
        }
        let wakers: Vec<_> = lists.waiting.iter().filter_map(|entry| entry.waker.clone()).collect();
        // A waker may call this lock again.
        drop(lists);
        self.changed.notify_all();
        let now = DEFERRED.with_borrow_mut(|deferred| match deferred {
            Some(deferred) => {
                deferred.extend(wakers);
                Vec::new()
            }
            None => wakers,
        });
        now.into_iter().for_each(Waker::wake);
    }

    /// As [`RangeLock::acquire`] without waiting.
    pub(crate) fn try_acquire(&self, range: Range<u64>, mode: LockMode) -> Option<LockId> {
        if mode == LockMode::Exclusive {
            self.fast.fetch_add(EXCLUSIVE, Ordering::SeqCst);
        }
        let mut lists = self.lists.lock();
        let entry = lists.entry(range, mode);
        if self.may_hold(&lists, &entry) {
            let id = entry.id;
            self.hold(&mut lists, entry);
            return Some(id);
        }
        if mode == LockMode::Exclusive {
            self.fast.fetch_sub(EXCLUSIVE, Ordering::AcqRel);
        }
        None
    }

    /// Unlock a range.
    pub(crate) fn release(&self, id: LockId) {
        let mut lists = self.lists.lock();
        let at = lists.held.iter().position(|held| held.id == id).expect("a range is released once");
        let entry = lists.held.swap_remove(at);
        if entry.mode == LockMode::Exclusive {
            self.fast.fetch_sub(EXCLUSIVE, Ordering::AcqRel);
        }
        self.wake(lists);
    }

    fn may_hold(&self, lists: &Lists, entry: &Entry) -> bool {
        let has_no_fast_holder = || self.fast.load(Ordering::SeqCst) & FAST_HOLDERS == 0;
        (entry.mode == LockMode::Shared || has_no_fast_holder()) && lists.is_free(entry)
    }
}

impl Lists {
    fn entry(&mut self, range: Range<u64>, mode: LockMode) -> Entry {
        let id = LockId(self.next);
        self.next += 1;
        Entry { id, range, mode, waker: None }
    }
}

/// Shared access to the whole file for a moment.
#[derive(Debug)]
pub(crate) struct FastGuard<'a>(&'a RangeLock);

impl Drop for FastGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let before = self.0.fast.fetch_sub(1, Ordering::AcqRel);
        if before >= EXCLUSIVE && before & FAST_HOLDERS == 1 {
            self.0.wake(self.0.lists.lock());
        }
    }
}

/// Access to a range.
#[derive(Debug)]
pub(crate) struct RangeGuard<'a> {
    lock: &'a RangeLock,
    id: LockId,
}

impl RangeGuard<'_> {
    /// Keep the range locked: [`RangeLock::release`] ends it.
    pub(crate) fn keep(self) -> LockId {
        std::mem::ManuallyDrop::new(self).id
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        self.lock.release(self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn disjoint_exclusive_ranges_are_held_at_once() {
        let lock = RangeLock::default();
        let first = lock.exclusive(0..4096);
        let second = lock.exclusive(4096..8192);
        assert!(lock.try_shared(0..1).is_none());
        assert!(lock.try_shared(8192..9000).is_some());
        assert!(lock.try_shared_fast().is_none());
        drop((first, second));
        assert!(lock.try_shared_fast().is_some());
        assert!(lock.try_acquire(0..u64::MAX, LockMode::Exclusive).is_some());
    }

    #[test]
    fn a_reader_does_not_pass_a_writer_that_waits() {
        let lock = Arc::new(RangeLock::default());
        let reader = lock.shared(0..10);
        let writer = {
            let lock = Arc::clone(&lock);
            thread::spawn(move || drop(lock.exclusive(5..15)))
        };
        let limit = Instant::now() + Duration::from_secs(60);
        while lock.lists.lock().waiting.is_empty() {
            assert!(Instant::now() < limit, "the writer does not come to wait");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(lock.try_shared(12..13).is_none(), "after the writer");
        assert!(lock.try_shared(20..30).is_some());
        drop(reader);
        writer.join().expect("writer");
        assert!(lock.try_shared(12..13).is_some());
    }

    #[test]
    fn a_ticket_has_its_turn_and_wakes_when_it_may_come() {
        let lock = RangeLock::default();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let turn = |ticket: &mut Option<Ticket>| lock.poll_acquire(ticket, &waker);
        let reader = lock.shared(0..10);
        let mut writer = Some(lock.take_ticket(5..15, LockMode::Exclusive));
        assert!(turn(&mut writer).is_pending());
        let mut next = Some(lock.take_ticket(12..13, LockMode::Shared));
        assert!(turn(&mut next).is_pending(), "after the writer");
        assert!(lock.try_shared(12..13).is_none());
        woken.0.store(0, Ordering::SeqCst);
        drop(reader);
        assert!(woken.0.load(Ordering::SeqCst) > 0);
        let Poll::Ready(held) = turn(&mut writer) else { panic!("it is its turn") };
        assert!(writer.is_none() && turn(&mut next).is_pending());
        woken.0.store(0, Ordering::SeqCst);
        lock.release(held);
        assert!(woken.0.load(Ordering::SeqCst) > 0);
        lock.give_up(&next.take().expect("not held yet"));
        assert!(lock.try_acquire(0..u64::MAX, LockMode::Exclusive).is_some(), "all was given back");
    }

    /// Counts how often it was woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Invariants 1 and 2, with counters in place of pages.
    #[test]
    fn exclusive_holders_are_alone_on_their_range() {
        const SLOTS: usize = 8;
        let lock = RangeLock::default();
        let inside: [AtomicUsize; SLOTS] = Default::default();
        thread::scope(|scope| {
            for thread in 0..4_usize {
                let (lock, inside) = (&lock, &inside);
                scope.spawn(move || {
                    for round in 0..if cfg!(miri) { 20 } else { 3000 } {
                        let at = (thread * 7 + round * 13) % SLOTS;
                        let end = (at + 1 + round % 3).min(SLOTS);
                        match round % 4 {
                            0 => {
                                let _guard = lock.exclusive(at as u64..end as u64);
                                for slot in &inside[at..end] {
                                    assert_eq!(slot.fetch_add(1000, Ordering::SeqCst), 0);
                                }
                                for slot in &inside[at..end] {
                                    slot.fetch_sub(1000, Ordering::SeqCst);
                                }
                            }
                            1 | 2 => {
                                let range = at as u64..end as u64;
                                let _guard = lock.shared(range);
                                for slot in &inside[at..end] {
                                    assert!(slot.fetch_add(1, Ordering::SeqCst) < 1000);
                                }
                                for slot in &inside[at..end] {
                                    slot.fetch_sub(1, Ordering::SeqCst);
                                }
                            }
                            _ => {
                                if let Some(_guard) = lock.try_shared_fast() {
                                    for slot in inside {
                                        assert!(slot.fetch_add(1, Ordering::SeqCst) < 1000);
                                        slot.fetch_sub(1, Ordering::SeqCst);
                                    }
                                }
                            }
                        }
                    }
                });
            }
        });
        assert!(lock.try_acquire(0..u64::MAX, LockMode::Exclusive).is_some(), "all was given back");
    }
}

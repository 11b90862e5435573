//! The number of threads that read requests from `/dev/fuse` at a time.
//!
//! The kernel gives requests to the waiting threads in turn. If requests come one after the other, a single thread that reads and serves
//! them costs half as much: it wakes on the caller's CPU, and wakes no other thread. So one thread reads, until requests overlap; then up to
//! four read. (With two readers on two CPUs, one that waits for a lock in the kernel would leave a CPU idle.) While the only reader serves a
//! request, a parked thread watches: after [`STUCK`] it reads instead. Without the watcher a round trip takes 15 to 25 % longer under load.
//!
//! Locking: `parked` is held for a look or a change, and no other lock is taken under it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Threads that wait for requests at most, if requests overlap.
const READERS_MAX: usize = 4;
/// A reader that serves one request for so long is replaced.
const STUCK: Duration = Duration::from_micros(500);
/// Without requests for so long, no thread watches.
const IDLE: Duration = Duration::from_millis(20);

/// Requests that overlapped, less requests that did not: from the first number on several threads read; the second is the largest.
const CONCURRENT_FROM: u32 = 8;
const CONCURRENT_MAX: u32 = 16;
/// If none overlapped lately, one request in this many checks for waiting requests: the check is a system call.
const LOOKS: u32 = 4;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Readers {
    /// Threads that wait for a request, or are about to.
    reading: AtomicUsize,
    /// Threads that serve one.
    busy: AtomicUsize,
    /// The recent concurrency of requests.
    concurrency: AtomicU32,
    served: AtomicU32,
    began: Instant,
    /// Microseconds from there to the last request.
    taken_at: AtomicU64,
    is_watched: AtomicBool,
    parked: Mutex<Parked>,
    unparked: Condvar,
}

/// Threads that neither serve nor read.
#[derive(Debug, Default)]
struct Parked {
    threads: usize,
    /// The number of threads that must read.
    woken: usize,
    /// There are no more requests.
    has_ended: bool,
}

/// The kind of work that a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Usually served from memory.
    Short,
    /// It waits for the device: another thread must read at once.
    Long,
    /// Its caller does not wait, and goes on with others.
    Unawaited,
}

impl Default for Readers {
    fn default() -> Self {
        Self {
            reading: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            concurrency: AtomicU32::new(0),
            served: AtomicU32::new(0),
            began: Instant::now(),
            taken_at: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            parked: Mutex::default(),
            unparked: Condvar::new(),
        }
    }
}

impl Readers {
    fn parked(&self) -> MutexGuard<'_, Parked> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    fn is_concurrent(&self) -> bool {
        self.concurrency.load(Ordering::Relaxed) >= CONCURRENT_FROM
    }

    fn are_enough(&self) -> bool {
        let wanted = if self.is_concurrent() { READERS_MAX } else { 1 };
        self.reading.load(Ordering::Acquire) >= wanted
    }

    /// Whether no thread reads.
    pub(super) fn are_none(&self) -> bool {
        self.reading.load(Ordering::SeqCst) == 0
    }

    /// This thread reads.
    pub(super) fn begin(&self) {
        self.reading.fetch_add(1, Ordering::AcqRel);
    }

    /// It has no request.
    pub(super) fn leave(&self) {
        self.reading.fetch_sub(1, Ordering::AcqRel);
    }

    /// It has a request. Returns whether another thread must come: to read or to watch.
    pub(super) fn take(&self, work: Work) -> bool {
        let others = match work {
            Work::Unawaited => self.busy.load(Ordering::Acquire),
            Work::Short | Work::Long => self.busy.fetch_add(1, Ordering::AcqRel),
        };
        if others > 0 {
            self.note(true);
        }
        self.taken_at.store(self.now_us(), Ordering::Release);
        if self.reading.fetch_sub(1, Ordering::SeqCst) > 1 {
            return false;
        }
        if work == Work::Long || others > 0 || self.is_concurrent() {
            return !self.wake_parked();
        }
        !self.is_watched.load(Ordering::SeqCst) && !self.wake_watcher()
    }

    /// Whether to look for other requests that wait, before this one is answered.
    pub(super) fn look_for_others(&self) -> bool {
        self.served.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOKS)
            || self.concurrency.load(Ordering::Relaxed) > 0
    }

    /// The request is served, and not answered yet. `are_others`: whether others wait, which are not of the same caller then.
    pub(super) fn give_back(&self, work: Work, are_others: bool) {
        if work != Work::Unawaited {
            let served = self.busy.fetch_sub(1, Ordering::AcqRel);
            self.note(are_others || served > 1);
        }
    }

    /// Not exact where two threads do it at once, and need not be.
    fn note(&self, has_met_others: bool) {
        let level = self.concurrency.load(Ordering::Relaxed);
        let level = if has_met_others { (level + 1).min(CONCURRENT_MAX) } else { level.saturating_sub(1) };
        self.concurrency.store(level, Ordering::Relaxed);
    }

    /// Have a parked thread read, if there is one.
    pub(super) fn wake_parked(&self) -> bool {
        let mut parked = self.parked();
        let is_there = parked.threads > parked.woken;
        if is_there {
            parked.woken += 1;
            self.unparked.notify_one();
        }
        is_there
    }

    /// Have a parked thread watch, if there is one.
    fn wake_watcher(&self) -> bool {
        let parked = self.parked();
        self.unparked.notify_one();
        parked.threads > parked.woken
    }

    /// Rest while enough others read. A thread that takes a request after this looked finds this one parked.
    pub(super) fn park(&self) {
        if !self.are_enough() {
            return;
        }
        let mut parked = self.parked();
        if !self.are_enough() {
            return;
        }
        parked.threads += 1;
        while parked.woken == 0 && !parked.has_ended {
            if !self.is_watched.swap(true, Ordering::SeqCst) {
                let (locked, is_needed) = self.watch(parked);
                parked = locked;
                self.is_watched.store(false, Ordering::SeqCst);
                if is_needed {
                    break;
                }
                // Without a look after this, a request that is taken now would not be watched.
                if parked.woken > 0 || parked.has_ended || self.are_none() {
                    continue;
                }
            }
            parked = self.unparked.wait(parked).unwrap_or_else(PoisonError::into_inner);
        }
        parked.threads -= 1;
        parked.woken = parked.woken.saturating_sub(1);
    }

    /// Watch the only reader for as long as requests come: whether it is stuck, so that this thread must read.
    fn watch<'a>(&'a self, mut parked: MutexGuard<'a, Parked>) -> (MutexGuard<'a, Parked>, bool) {
        while parked.woken == 0 && !parked.has_ended {
            let age = self.now_us().saturating_sub(self.taken_at.load(Ordering::Acquire));
            let age = Duration::from_micros(age);
            if self.are_none() && age >= STUCK {
                return (parked, true);
            }
            if !self.are_none() && age >= IDLE {
                break;
            }
            parked = self.unparked.wait_timeout(parked, STUCK).unwrap_or_else(PoisonError::into_inner).0;
        }
        (parked, false)
    }

    /// There are no more requests.
    pub(super) fn end(&self) {
        self.parked().has_ended = true;
        self.unparked.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request that meets others or not, served by a thread that reads again.
    fn serve_one(readers: &Readers, are_others: bool) {
        readers.begin();
        let _ = readers.take(Work::Short);
        readers.give_back(Work::Short, are_others);
    }

    #[test]
    fn one_thread_reads_until_requests_meet() {
        let readers = Readers::default();
        (0..100).for_each(|_| serve_one(&readers, false));
        readers.begin();
        assert!(readers.are_enough(), "one is enough for requests that come one after the other");
        (0..CONCURRENT_MAX).for_each(|_| serve_one(&readers, true));
        for _ in 1..READERS_MAX {
            assert!(!readers.are_enough());
            readers.begin();
        }
        assert!(readers.are_enough(), "no more read at a time");
        (0..CONCURRENT_MAX).for_each(|_| serve_one(&readers, false));
        (1..READERS_MAX).for_each(|_| readers.leave());
        assert!(readers.are_enough(), "one is again");
    }

    /// While a request is being served, the next one is not the last.
    #[test]
    fn another_thread_is_wanted_at_once_beside_a_request_that_is_served() {
        let readers = Readers::default();
        readers.begin();
        readers.begin();
        assert!(!readers.take(Work::Short), "another reads");
        assert!(readers.take(Work::Short), "none reads, and two are served");
        readers.give_back(Work::Short, false);
        assert!(readers.concurrency.load(Ordering::Relaxed) > 1, "they met");
    }

    #[test]
    fn another_thread_is_wanted_where_the_only_reader_waits_for_the_device() {
        let readers = Readers::default();
        readers.begin();
        assert!(readers.take(Work::Long), "none is parked");
        readers.give_back(Work::Long, false);
        readers.begin();
        readers.begin();
        assert!(!readers.take(Work::Long), "another reads");
    }

    /// A request that is served for long, in sequence or not, does not keep others waiting.
    #[test]
    fn a_parked_thread_reads_in_place_of_one_that_is_stuck() {
        let readers = Readers::default();
        readers.begin();
        std::thread::scope(|scope| {
            let parked = scope.spawn(|| readers.park());
            while readers.parked().threads == 0 {
                std::thread::yield_now();
            }
            // By now it may have seen that there are no requests, and sleep.
            let is_wanted = readers.take(Work::Short);
            assert!(!is_wanted, "it watches, or was woken to");
            parked.join().expect("it goes to read");
            readers.give_back(Work::Short, false);
        });
        assert!(readers.are_none());
    }

    #[test]
    fn parked_threads_end_with_the_session() {
        let readers = Readers::default();
        readers.begin();
        std::thread::scope(|scope| {
            (0..3).for_each(|_| drop(scope.spawn(|| readers.park())));
            while readers.parked().threads < 3 {
                std::thread::yield_now();
            }
            readers.end();
        });
    }
}

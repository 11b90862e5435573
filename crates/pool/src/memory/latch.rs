//! The latch of a frame: shared or exclusive access for threads of several processes. It survives the death of any process.
//!
//! States:
//! - `owner` is the process that has the frame exclusively, or none. Threads of one process exclude each other by the same word.
//! - `holders` has a count for each process: its shared holds in the low half, its pins in the high half. So the holds of a dead process
//!   are known exactly, and one store releases them.
//!
//! Protocol: a reader counts itself, then loads the owner. A writer becomes the owner, then loads the counts. Both are sequentially
//! consistent, so at least one sees the other: the reader backs off, the writer waits.
//!
//! Waiting: the word `wake` is a futex. A waiter first sets `WAITING` in the owner's word. A thread that releases the latch then wakes it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex;

use super::layout::PROCESSES;

/// A process that is attached to the pool, by its entry in the table of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessSlot(pub(crate) u8);

impl ProcessSlot {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// As the owner of a latch or a lock.
    pub(crate) fn as_owner(self) -> u32 {
        u32::from(self.0) + 1
    }

    pub(crate) fn from_owner(owner: u32) -> Option<Self> {
        (1..=PROCESSES as u32).contains(&owner).then(|| Self(owner as u8 - 1))
    }
}

const OWNER: u32 = 0xff;
const WAITING: u32 = 0x100;
const ONE_HOLD: u32 = 1;
const ONE_PIN: u32 = 0x1_0000;
const HOLDS: u32 = 0xffff;
/// Most shared holds, or pins, of one process on one frame.
const COUNT_MAX: u32 = 0x7fff;

/// See the module's head. Zeroed memory is a free latch.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Latch {
    owner: AtomicU32,
    wake: AtomicU32,
}

/// The counts of each process.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Holders([AtomicU32; PROCESSES]);

impl Holders {
    /// Whether no process has a shared hold. The caller is the owner.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        self.0.iter().all(|cell| cell.load(Ordering::SeqCst) & HOLDS == 0)
    }

    /// Whether no process holds or pins the frame.
    pub(crate) fn is_unused(&self) -> bool {
        self.0.iter().all(|cell| cell.load(Ordering::SeqCst) == 0)
    }

    /// Whether no process but one holds or pins the frame.
    pub(crate) fn is_unused_by_others(&self, me: ProcessSlot) -> bool {
        let others = self.0.iter().enumerate().filter(|(index, _)| *index != me.index());
        others.map(|(_, cell)| cell.load(Ordering::SeqCst)).all(|count| count == 0)
    }

    /// Keep the frame from being evicted. The caller holds it.
    pub(crate) fn pin(&self, me: ProcessSlot) {
        let before = self.0[me.index()].fetch_add(ONE_PIN, Ordering::SeqCst);
        if before >> 16 >= COUNT_MAX {
            self.unpin(me);
            panic!("a process has too many pins of one page: {COUNT_MAX} at most");
        }
    }

    pub(crate) fn unpin(&self, me: ProcessSlot) {
        self.0[me.index()].fetch_sub(ONE_PIN, Ordering::SeqCst);
    }

    /// Holds and pins of all processes.
    #[cfg(test)]
    pub(crate) fn uses(&self) -> u32 {
        self.0.iter().map(|cell| cell.load(Ordering::SeqCst)).sum()
    }
}

/// The latch is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contended;

impl Latch {
    /// Take it shared.
    #[inline]
    pub(crate) fn try_shared(&self, holders: &Holders, me: ProcessSlot) -> Result<(), Contended> {
        let cell = &holders.0[me.index()];
        let before = cell.fetch_add(ONE_HOLD, Ordering::SeqCst);
        if before & HOLDS >= COUNT_MAX {
            self.release_shared(holders, me);
            panic!("a process has too many guards of one page: {COUNT_MAX} at most");
        }
        if self.owner.load(Ordering::SeqCst) & OWNER == 0 {
            return Ok(());
        }
        self.release_shared(holders, me);
        Err(Contended)
    }

    #[inline]
    pub(crate) fn release_shared(&self, holders: &Holders, me: ProcessSlot) {
        holders.0[me.index()].fetch_sub(ONE_HOLD, Ordering::SeqCst);
        let owner = self.owner.load(Ordering::SeqCst);
        if owner & WAITING != 0 && owner & OWNER != 0 {
            self.wake_all();
        }
    }

    /// Become the owner. Shared holds may remain: [`Holders::is_drained`].
    #[inline]
    pub(crate) fn try_own(&self, me: ProcessSlot) -> Result<(), Contended> {
        let mut seen = self.owner.load(Ordering::Relaxed);
        loop {
            if seen & OWNER != 0 {
                return Err(Contended);
            }
            let owned = seen | me.as_owner();
            match self.owner.compare_exchange_weak(seen, owned, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => seen = now,
            }
        }
    }

    /// Whether it is free at this moment, as a hint.
    pub(crate) fn looks_free(&self, holders: &Holders) -> bool {
        self.owner.load(Ordering::Relaxed) & OWNER == 0
            && holders.0.iter().all(|cell| cell.load(Ordering::Relaxed) == 0)
    }

    #[inline]
    pub(crate) fn release_exclusive(&self) {
        if self.owner.swap(0, Ordering::SeqCst) & WAITING != 0 {
            self.wake_all();
        }
    }

    /// The owner becomes a reader, without another owner in between.
    #[inline]
    pub(crate) fn downgrade(&self, holders: &Holders, me: ProcessSlot) {
        holders.0[me.index()].fetch_add(ONE_HOLD, Ordering::SeqCst);
        self.release_exclusive();
    }

    /// The process that owns it.
    pub(crate) fn owner(&self) -> Option<ProcessSlot> {
        ProcessSlot::from_owner(self.owner.load(Ordering::SeqCst) & OWNER)
    }

    /// Wait until the owner changes, at most for `timeout`. Returns whether the time is over.
    pub(crate) fn wait_for_owner(&self, timeout: Duration) -> bool {
        let seen = self.wake.load(Ordering::SeqCst);
        self.owner.fetch_or(WAITING, Ordering::SeqCst) & OWNER != 0 && self.sleep(seen, timeout)
    }

    /// As the owner, wait until a shared hold ends, at most for `timeout`. Returns whether the time is over.
    pub(crate) fn wait_for_holders(&self, holders: &Holders, timeout: Duration) -> bool {
        let seen = self.wake.load(Ordering::SeqCst);
        self.owner.fetch_or(WAITING, Ordering::SeqCst);
        !holders.is_drained() && self.sleep(seen, timeout)
    }

    fn sleep(&self, seen: u32, timeout: Duration) -> bool {
        let timeout =
            futex::Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        if cfg!(miri) {
            std::thread::yield_now();
            return false;
        }
        // The caller checks again in any case.
        futex::wait(&self.wake, futex::Flags::empty(), seen, Some(&timeout))
            == Err(rustix::io::Errno::TIMEDOUT)
    }

    #[cold]
    fn wake_all(&self) {
        self.wake.fetch_add(1, Ordering::SeqCst);
        if cfg!(miri) {
            return;
        }
        let _ = futex::wake(&self.wake, futex::Flags::empty(), i32::MAX as u32);
    }

    /// Release all shared holds and pins of a dead process.
    pub(crate) fn forget_holds(&self, holders: &Holders, dead: ProcessSlot) {
        if holders.0[dead.index()].swap(0, Ordering::SeqCst) != 0
            && self.owner.load(Ordering::SeqCst) & WAITING != 0
        {
            self.wake_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;

    /// A word that `ThreadSanitizer` and Miri watch: not atomic, guarded by the latch alone.
    #[derive(Default)]
    struct Guarded {
        latch: Latch,
        holders: Holders,
        value: UnsafeCell<[u64; 4]>,
    }

    // SAFETY: for the test, which takes the latch first.
    unsafe impl Sync for Guarded {}

    fn wait_limit() -> Duration {
        Duration::from_millis(20)
    }

    /// Threads of four "processes" read and write a plain word; a reader that sees a torn one, or a lost increment, is a hole in the latch.
    #[test]
    fn shared_and_exclusive_exclude_each_other() {
        let guarded = Guarded::default();
        let (threads, rounds) = if cfg!(miri) { (3, 30) } else { (4, 5_000) };
        std::thread::scope(|scope| {
            for number in 0..threads {
                let guarded = &guarded;
                scope.spawn(move || {
                    let me = ProcessSlot(number % 3);
                    for round in 0..rounds {
                        if round % 2 == 0 {
                            while guarded.latch.try_own(me).is_err() {
                                guarded.latch.wait_for_owner(wait_limit());
                            }
                            while !guarded.holders.is_drained() {
                                guarded.latch.wait_for_holders(&guarded.holders, wait_limit());
                            }
                            // SAFETY: owned, and no reader.
                            let value = unsafe { &mut *guarded.value.get() };
                            for word in value.iter_mut() {
                                *word += 1;
                            }
                            if round % 4 == 0 {
                                guarded.latch.downgrade(&guarded.holders, me);
                                // SAFETY: held shared.
                                let value = unsafe { &*guarded.value.get() };
                                assert!(value.iter().all(|word| *word == value[0]));
                                guarded.latch.release_shared(&guarded.holders, me);
                            } else {
                                guarded.latch.release_exclusive();
                            }
                        } else {
                            while guarded.latch.try_shared(&guarded.holders, me).is_err() {
                                guarded.latch.wait_for_owner(wait_limit());
                            }
                            // SAFETY: held shared.
                            let value = unsafe { &*guarded.value.get() };
                            assert!(value.iter().all(|word| *word == value[0]), "torn: {value:?}");
                            guarded.latch.release_shared(&guarded.holders, me);
                        }
                    }
                });
            }
        });
        assert_eq!(guarded.value.into_inner()[0], u64::from(threads) * (rounds / 2));
        assert_eq!(guarded.holders.uses(), 0);
        assert_eq!(guarded.latch.owner(), None);
    }

    /// A dead reader's count goes, others' stay; a writer that waits for it goes on.
    #[test]
    fn holds_of_a_dead_process_are_taken_back() {
        let (latch, holders) = (Latch::default(), Holders::default());
        let (dead, alive) = (ProcessSlot(3), ProcessSlot(5));
        latch.try_shared(&holders, dead).unwrap();
        latch.try_shared(&holders, dead).unwrap();
        holders.pin(dead);
        latch.try_own(alive).unwrap();
        assert!(!holders.is_drained());
        latch.forget_holds(&holders, dead);
        assert!(holders.is_unused());
        assert_eq!(latch.try_shared(&holders, dead), Err(Contended));
        latch.release_exclusive();
        assert_eq!(holders.uses(), 0);
    }

    #[test]
    fn a_pin_admits_readers_and_writers_but_no_eviction() {
        let (latch, holders) = (Latch::default(), Holders::default());
        let (me, other) = (ProcessSlot(0), ProcessSlot(1));
        latch.try_shared(&holders, me).unwrap();
        holders.pin(me);
        latch.release_shared(&holders, me);
        latch.try_own(other).unwrap();
        assert!(holders.is_drained());
        assert!(!holders.is_unused());
        latch.release_exclusive();
        holders.unpin(me);
        assert!(latch.looks_free(&holders));
    }
}

//! The order of the locks of the stack, and its check in debug builds.
//!
//! A thread waits only for a lock of a higher rank than all those that it holds, so no threads wait for each other in a circle. A lock
//! that is only tried may be taken in any order. In release builds ranks take no space and no time.
//!
//! This crate knows no more than the names of the locks above it. Plain `std` locks (rings, arenas, the simulation) are leaves.

/// The locks by rank, the one to be taken first at the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rank {
    /// Scheduler and shared queue of a device; locks of the device below are taken inside.
    ScheduledDevice,
    /// A part of a device in memory.
    MemoryShard,
    /// Free buffers of a pool.
    BufferPool,
}

/// The rank of one lock; one without is not checked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LockRank {
    #[cfg(debug_assertions)]
    rank: Option<Rank>,
}

#[cfg(debug_assertions)]
thread_local! {
    /// What this thread holds, in the order in which it was taken.
    static HELD: std::cell::RefCell<Vec<Rank>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl LockRank {
    pub(crate) const NONE: Self = Self {
        #[cfg(debug_assertions)]
        rank: None,
    };

    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "checked in debug builds"))]
    pub(crate) const fn new(rank: Rank) -> Self {
        Self {
            #[cfg(debug_assertions)]
            rank: Some(rank),
        }
    }

    /// Before a thread waits for the lock.
    #[inline]
    #[cfg_attr(not(debug_assertions), expect(clippy::unused_self, reason = "checked in debug builds"))]
    pub(crate) fn check(self) {
        #[cfg(debug_assertions)]
        if let Some(rank) = self.rank {
            // A thread that ends has given its locks back before its list goes.
            let held = HELD.try_with(|held| held.borrow().iter().copied().max()).ok().flatten();
            if let Some(held) = held {
                assert!(held < rank, "lock order: a thread that holds {held:?} waits for {rank:?}");
            }
        }
    }

    /// The lock is held from now on.
    #[inline]
    #[cfg_attr(not(debug_assertions), expect(clippy::unused_self, reason = "checked in debug builds"))]
    pub(crate) fn hold(self) -> Held {
        #[cfg(debug_assertions)]
        if let Some(rank) = self.rank {
            let _ = HELD.try_with(|held| held.borrow_mut().push(rank));
        }
        Held {
            #[cfg(debug_assertions)]
            rank: self.rank,
        }
    }
}

/// Until it is dropped the lock is held.
#[derive(Debug)]
pub(crate) struct Held {
    #[cfg(debug_assertions)]
    rank: Option<Rank>,
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        let Some(rank) = self.rank else { return };
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|other| *other == rank) {
                held.remove(at);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::Rank;
    use crate::sync::{Condvar, Mutex, RwLock};

    #[test]
    fn locks_are_taken_upwards_and_tried_in_any_order() {
        let (low, high) = (Mutex::ranked(LOW, ()), RwLock::ranked(HIGH, ()));
        let held = low.lock();
        let inner = high.write();
        drop(held);
        assert!(low.try_lock().is_some(), "a lock that is not waited for");
        drop(inner);
        let condition = Condvar::new();
        drop(condition.wait_timeout(low.lock(), std::time::Duration::ZERO));
        drop((low.lock(), high.read()));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock order")]
    fn locks_taken_downwards_are_found() {
        let (low, high) = (Mutex::ranked(LOW, ()), RwLock::ranked(HIGH, ()));
        let _held = high.read();
        drop(low.lock());
    }

    const LOW: Rank = Rank::ScheduledDevice;
    const HIGH: Rank = Rank::MemoryShard;
}

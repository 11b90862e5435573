//! Which requests have come, so that a part of an append knows whether there may be another before it.
//!
//! The kernel splits a large direct write into several requests, sends them all, and numbers requests in the order in which it sends them. Threads
//! take them at once, and a short one is read faster than a long one: so the part after may be here before the part that it follows. A part that
//! begins beyond all that the file has, or is about to get, is one of a sparse file, or its neighbour is among the earlier numbers that
//! no thread has taken. Those it waits for, for a short time: a request may also have been withdrawn, or wait in another queue of `io_uring`.
//!
//! Locking: none. A slot has the last number that was noted in it; a store of an older one beside it is as if that had not come.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Numbers that are known.
const SLOTS: usize = 512;
/// Requests that the kernel may send before the first of them is taken.
const EARLIER: u64 = 160;
/// How often it is looked again, and for how long.
const LOOK: Duration = Duration::from_micros(50);
const WAIT_MAX: Duration = Duration::from_millis(100);

/// See the module's head.
#[derive(Debug)]
pub(super) struct Arrivals {
    slots: Box<[AtomicU64]>,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self { slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect() }
    }
}

/// Requests have even numbers; an odd one interrupts the request before it.
fn position_of(unique: u64) -> u64 {
    unique / 2
}

impl Arrivals {
    fn slot(&self, position: u64) -> &AtomicU64 {
        &self.slots[position as usize % SLOTS]
    }

    /// A request is here, and announced if it is a write.
    pub(super) fn note(&self, unique: u64) {
        let position = position_of(unique);
        self.slot(position).store(position, Ordering::Release);
    }

    /// The client begins anew.
    pub(super) fn clear(&self) {
        self.slots.iter().for_each(|slot| slot.store(0, Ordering::Release));
    }

    fn missing_before(&self, position: u64) -> impl Iterator<Item = u64> + '_ {
        let earlier = position.saturating_sub(EARLIER).max(1)..position;
        earlier.filter(|earlier| self.slot(*earlier).load(Ordering::Acquire) < *earlier)
    }

    /// Wait until all earlier requests are here, as long as the part has a gap before it. What does not come is not waited for again.
    pub(super) fn wait_for_earlier(&self, unique: u64, has_gap: impl Fn() -> bool) {
        let position = position_of(unique);
        let mut start = None;
        while self.missing_before(position).next().is_some() && has_gap() {
            if start.get_or_insert_with(Instant::now).elapsed() >= WAIT_MAX {
                let missing: Vec<u64> = self.missing_before(position).collect();
                for position in missing {
                    self.slot(position).store(position, Ordering::Release);
                }
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_part_waits_for_what_was_sent_before_it_and_not_for_what_never_comes() {
        let arrivals = Arrivals::default();
        for unique in [2, 4, 10] {
            arrivals.note(unique);
        }
        let has_come = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(5));
                has_come.store(true, Ordering::Release);
                for unique in [6, 8] {
                    arrivals.note(unique);
                }
            });
            arrivals.wait_for_earlier(10, || true);
            assert!(has_come.load(Ordering::Acquire));
        });
        // The gap is closed.
        arrivals.wait_for_earlier(40, || false);
        for is_to_wait in [true, false] {
            let start = Instant::now();
            arrivals.wait_for_earlier(40, || true);
            assert_eq!(start.elapsed() >= WAIT_MAX, is_to_wait);
        }
    }
}

//! A running total that many threads add to.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Parts of a total, each in a cache line of its own. Threads beyond that share them.
const PARTS: usize = 8;

thread_local! {
    static PART: Cell<usize> = const { Cell::new(PARTS) };
}

/// The part that this thread adds to.
#[inline]
fn part_of_thread() -> usize {
    let part = PART.get();
    if part < PARTS { part } else { choose_part() }
}

#[cold]
fn choose_part() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let part = NEXT.fetch_add(1, Ordering::Relaxed) % PARTS;
    PART.set(part);
    part
}

#[derive(Default)]
#[repr(align(64))]
struct Part(AtomicU64);

/// A running total in parts, so that threads which add at once do not take a cache line from each other.
#[derive(Default)]
pub struct Counter {
    parts: [Part; PARTS],
}

impl Counter {
    /// Add to the total.
    #[inline]
    pub fn add(&self, count: u64) {
        self.parts[part_of_thread()].0.fetch_add(count, Ordering::Relaxed);
    }

    /// The total now.
    pub fn get(&self) -> u64 {
        self.parts.iter().map(|part| part.0.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_to_one_total() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * PARTS {
                scope.spawn(|| (0..100).for_each(|_| counter.add(2)));
            }
        });
        assert_eq!(counter.get(), 2 * PARTS as u64 * 200);
    }
}

//! A running total that many threads add to.

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Parts of a total, each in a cache line of its own. Each part but the first belongs to one thread at a time, which adds by a plain
/// load and store. Other threads add to the first part by an atomic addition.
const PARTS: usize = 8;
const SHARED: usize = 0;
const UNKNOWN: usize = PARTS;

/// The free parts, one bit each.
static FREE: AtomicU64 = AtomicU64::new((1 << PARTS) - 1 - (1 << SHARED));

/// A part that a thread owns until it ends.
struct Owned(usize);

impl Drop for Owned {
    fn drop(&mut self) {
        PART.set(SHARED);
        FREE.fetch_or(1 << self.0, Ordering::Release);
    }
}

thread_local! {
    static PART: Cell<usize> = const { Cell::new(UNKNOWN) };
    static OWNED: OnceCell<Owned> = const { OnceCell::new() };
}

/// The part of this thread.
#[inline]
fn part_of_thread() -> usize {
    let part = PART.get();
    if part < PARTS { part } else { choose_part() }
}

#[cold]
fn choose_part() -> usize {
    let without_one = |free: u64| (free != 0).then_some(free & free.wrapping_sub(1));
    let part = OWNED
        .try_with(|owned| {
            let free = FREE.fetch_update(Ordering::Acquire, Ordering::Relaxed, without_one).ok()?;
            Some(owned.get_or_init(|| Owned(free.trailing_zeros() as usize)).0)
        })
        .ok()
        .flatten()
        .unwrap_or(SHARED);
    PART.set(part);
    part
}

#[derive(Default)]
#[repr(align(64))]
struct Part(AtomicU64);

/// A running total in parts, so that threads do not share a cache line.
#[derive(Default)]
pub struct Counter {
    parts: [Part; PARTS],
}

impl Counter {
    /// Add to the total.
    #[inline]
    pub fn add(&self, count: u64) {
        let part = part_of_thread();
        let total = &self.parts[part].0;
        if part == SHARED {
            total.fetch_add(count, Ordering::Relaxed);
        } else {
            total.store(total.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
        }
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

    #[test]
    fn a_part_of_a_thread_that_ended_is_given_to_another() {
        let counter = Counter::default();
        for _ in 0..4 * PARTS {
            std::thread::scope(|scope| {
                scope.spawn(|| counter.add(1));
            });
        }
        assert_eq!(counter.get(), 4 * PARTS as u64);
    }
}

//! When the entries of a queue go to its device: each at once, or the first few together.
//!
//! Where it sits: in a queue on a ring whose caller submits a new transfer for each one that has ended.
//!
//! A disk of a virtual machine works through all that it has, interrupts once for everything, and sleeps until it is woken, which
//! takes its guest more time than five submissions. From the interrupt to the first new entry it has nothing to do. So where the device has run
//! out of work, a queue gives its caller only the first few of those that have ended: they come back as new ones and wake the disk together, and it is
//! busy while the others are given back. If they came one by one, it could end each before the next one comes, and every transfer would
//! take an interrupt and a wake-up: so it is with writes. A read takes longer; the first one is given back alone. But where another CPU takes the interrupts, a device that hears of each entry at once does more.
//! So both are measured ([`crate::choice`]).

use std::time::Instant;

use diorite_block::Op;

use crate::choice::Choice;

/// Transfers that are given back, and submitted, together. A read takes a disk longer than the next one takes to come: one is enough, and sooner there.
const WRITES: usize = 3;
const READS: usize = 1;
/// Queues for fewer transfers than this have no batches.
const DEPTH_MIN: u32 = 8;
/// Batches take fewer system calls: to go down at once must save a thirtieth.
const BATCHES_LIMIT: u32 = 1034;
/// Transfers whose time says which way is faster.
const MEASURED: u32 = 256;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Each entry at once, or batches.
    choice: Choice,
    /// Those that were given back last, less those that were submitted since.
    owed: u32,
    /// Whether the caller submitted as many as it was given before it asked again.
    is_steady: bool,
    /// Transfers of a batch, as the last one that was submitted has it.
    batch: usize,
    is_on: bool,
}

impl Pace {
    /// Of a queue for so many transfers.
    pub(crate) fn new(depth: u32) -> Self {
        Self { is_on: depth >= DEPTH_MIN, ..Self::at_once() }
    }

    /// Of a queue each of whose entries goes to the device at once.
    pub(crate) fn at_once() -> Self {
        Self {
            choice: Choice::new(BATCHES_LIMIT, MEASURED),
            owed: 0,
            is_steady: false,
            batch: READS,
            is_on: false,
        }
    }

    fn has_batches(&self) -> bool {
        self.choice.is_second() && self.is_steady
    }

    /// The caller asks for those that have ended.
    pub(crate) fn begin_reap(&mut self) {
        self.is_steady = self.is_on && self.owed == 0;
    }

    /// How many of them it gets if the device has nothing more to do.
    pub(crate) fn first(&self, wanted: usize) -> usize {
        if self.has_batches() { wanted.max(self.batch) } else { usize::MAX }
    }

    /// It got so many, and had to wait for them or not.
    pub(crate) fn end_reap(&mut self, count: usize, has_waited: bool) {
        if self.is_on {
            self.owed = count as u32;
            if has_waited {
                // From one wait to another.
                self.choice.note(Instant::now);
            }
            self.choice.count(count as u32);
        }
    }

    pub(crate) fn note_submitted(&mut self, op: Op) {
        self.batch = if op == Op::Write { WRITES } else { READS };
        self.owed = self.owed.saturating_sub(1);
    }

    /// How many entries wake a device that has run out of work, where so many are there.
    pub(crate) fn batch(&self, entries: usize) -> usize {
        if self.has_batches() && entries + self.owed as usize >= self.batch { self.batch } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that has chosen batches.
    fn in_batches(depth: u32) -> Pace {
        let mut pace = Pace { choice: Choice::new(u32::MAX, MEASURED), ..Pace::new(depth) };
        while !pace.choice.is_second() {
            pace.choice.count(1);
            pace.choice.note(Instant::now);
        }
        pace
    }

    #[test]
    fn only_a_caller_that_submits_what_it_is_given_has_batches() {
        let mut pace = in_batches(32);
        let reap = |pace: &mut Pace, count| {
            pace.begin_reap();
            let first = pace.first(1);
            pace.end_reap(count, true);
            first
        };
        reap(&mut pace, 3);
        assert_eq!(reap(&mut pace, 3), usize::MAX, "it submitted none of the first three");
        (0..3).for_each(|_| pace.note_submitted(Op::Write));
        assert_eq!(reap(&mut pace, 3), WRITES);
        let batches = [1, 2, 3].map(|entries| {
            pace.note_submitted(Op::Write);
            pace.batch(entries)
        });
        assert_eq!(batches, [WRITES; 3]);
        assert_eq!(pace.batch(1), 1, "no more is expected");
        reap(&mut pace, 3);
        pace.note_submitted(Op::Write);
        assert_eq!(reap(&mut pace, 3), usize::MAX, "it kept two back");
        assert_eq!(pace.batch(1), 1);
    }

    #[test]
    fn a_read_wakes_the_device_alone() {
        let mut pace = in_batches(32);
        pace.note_submitted(Op::Read);
        pace.begin_reap();
        assert_eq!(pace.first(1), READS);
        pace.end_reap(1, true);
        assert_eq!(pace.batch(1), 1);
    }

    #[test]
    fn a_shallow_queue_has_no_batches() {
        let mut pace = in_batches(DEPTH_MIN - 1);
        pace.begin_reap();
        assert_eq!((pace.first(1), pace.batch(3)), (usize::MAX, 1));
    }
}

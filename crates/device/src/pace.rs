//! When the entries of a queue go to its device: each at once, or the first few together.
//!
//! Where it sits: in a queue on a ring whose caller submits a new transfer for each one that has ended.
//!
//! A disk of a virtual machine works through all that it has, interrupts once for everything, and sleeps until it is woken, which
//! takes its guest more time than five submissions. From the interrupt to the first new entry it has nothing to do. So where the device has run
//! out of work, a queue gives its caller only the first few of those that have ended: they come back as new ones and wake the disk together, and it is
//! busy while the others are given back. If they came one by one, it could end each before the next one comes, and every transfer would
//! take an interrupt and a wake-up. But where another CPU takes the interrupts, a device that hears of each entry at once does more.
//! So both are measured, and the slower one is tried now and then.

use std::time::{Duration, Instant};

/// Transfers that are given back, and submitted, together.
const BATCH: usize = 3;
/// Queues for fewer transfers than this have no batches.
const DEPTH_MIN: u32 = 8;
/// Transfers whose time is taken, after so many that still go the way of those before.
const MEASURED: u32 = 256;
const SETTLING: u32 = 32;
/// Times that are taken at first, of both ways in turn.
const LEARNING: u32 = 6;
/// After those, one of so many is of the way that seems slower.
const TRIED: u32 = 32;
/// A time below the typical one counts for one in so many, and one above it for less: what held the caller up says little.
const WEIGHT_BELOW: u32 = 4;
const WEIGHT_ABOVE: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    AtOnce,
    Batches,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Pace {
    way: Way,
    /// Typical nanoseconds from one end to the next, at once and in batches; 0 if not known.
    typical: [u32; 2],
    /// Times that were taken.
    count: u32,
    began: Option<Instant>,
    /// Transfers that have ended since then.
    ended: u32,
    /// Those that were given back last, less those that were submitted since.
    owed: u32,
    /// Whether the caller submitted as many as it was given before it asked again.
    is_steady: bool,
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
            way: Way::AtOnce,
            typical: [0; 2],
            count: 0,
            began: None,
            ended: 0,
            owed: 0,
            is_steady: false,
            is_on: false,
        }
    }

    fn has_batches(&self) -> bool {
        self.way == Way::Batches && self.is_steady
    }

    /// The caller asks for those that have ended.
    pub(crate) fn begin_reap(&mut self) {
        self.is_steady = self.is_on && self.owed == 0;
    }

    /// How many of them it gets if the device has nothing more to do.
    pub(crate) fn first(&self, wanted: usize) -> usize {
        if self.has_batches() { wanted.max(BATCH) } else { usize::MAX }
    }

    /// It got so many, and had to wait for them or not.
    pub(crate) fn end_reap(&mut self, count: usize, has_waited: bool) {
        if self.is_on {
            self.owed = count as u32;
            if has_waited {
                self.note_wait(Instant::now);
            }
            self.ended = self.ended.saturating_add(count as u32);
        }
    }

    pub(crate) fn note_submitted(&mut self) {
        self.owed = self.owed.saturating_sub(1);
    }

    /// How many entries wake a device that has run out of work, where so many are there.
    pub(crate) fn batch(&self, entries: usize) -> usize {
        if self.has_batches() && entries + self.owed as usize >= BATCH { BATCH } else { 1 }
    }

    /// A wait has ended. Time is taken from one to another: of transfers that end together all count, or none.
    fn note_wait(&mut self, now: impl Fn() -> Instant) {
        match self.began {
            None if self.ended >= SETTLING => (self.began, self.ended) = (Some(now()), 0),
            Some(began) if self.ended >= MEASURED => {
                self.note_time(now().saturating_duration_since(began) / self.ended);
                self.way = self.choose();
                (self.began, self.ended) = (None, 0);
            }
            _ => {}
        }
    }

    fn note_time(&mut self, took: Duration) {
        let took = u32::try_from(took.as_nanos()).unwrap_or(u32::MAX).max(1);
        let typical = &mut self.typical[self.way as usize];
        *typical = match *typical {
            0 => took,
            typical if self.count < LEARNING => typical.min(took),
            typical if took < typical => typical - (typical - took) / WEIGHT_BELOW,
            typical => typical + (took.min(typical.saturating_mul(2)) - typical) / WEIGHT_ABOVE,
        };
        self.count = self.count.wrapping_add(1);
    }

    fn choose(&self) -> Way {
        let [at_once, batches] = self.typical.map(u64::from);
        // Batches take fewer system calls: to go down at once must save a thirtieth.
        let batches_are_better = batches * 29 < at_once * 30;
        let has_batches = match self.count {
            ..LEARNING => !self.count.is_multiple_of(2),
            count => batches_are_better != count.is_multiple_of(TRIED),
        };
        if has_batches { Way::Batches } else { Way::AtOnce }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A caller with a clock of its own that submits each transfer again.
    struct Loop {
        pace: Pace,
        time: Cell<Instant>,
        ended_in_batches: u32,
    }

    impl Loop {
        fn new() -> Self {
            Self { pace: Pace::new(32), time: Cell::new(Instant::now()), ended_in_batches: 0 }
        }

        /// End `count` transfers that take so many microseconds at once, and in batches; the part that ended in batches.
        fn part_in_batches(&mut self, count: u32, at_once: u64, batches: u64) -> f64 {
            self.ended_in_batches = 0;
            for _ in 0..count {
                let in_batches = self.pace.way == Way::Batches;
                self.ended_in_batches += u32::from(in_batches);
                let took = Duration::from_micros(if in_batches { batches } else { at_once });
                self.time.set(self.time.get() + took);
                self.pace.note_wait(|| self.time.get());
                self.pace.ended += 1;
            }
            f64::from(self.ended_in_batches) / f64::from(count)
        }
    }

    const MANY: u32 = 200_000;

    #[test]
    fn the_faster_way_is_taken_and_the_other_one_tried() {
        let mut caller = Loop::new();
        caller.part_in_batches(4000, 10, 9);
        let part = caller.part_in_batches(MANY, 10, 9);
        assert!((0.94..0.99).contains(&part), "{part}");
        caller.part_in_batches(MANY, 5, 9);
        let part = caller.part_in_batches(MANY, 5, 9);
        assert!((0.01..0.06).contains(&part), "at once is faster now: {part}");
    }

    #[test]
    fn a_pause_of_the_caller_decides_nothing_for_long() {
        for pause_after in [100, 400, 900] {
            let mut caller = Loop::new();
            caller.part_in_batches(pause_after, 10, 8);
            caller.part_in_batches(1, 1_000_000, 1_000_000);
            caller.part_in_batches(MANY, 10, 8);
            assert!(caller.part_in_batches(MANY, 10, 8) > 0.9, "a pause after {pause_after}");
        }
    }

    #[test]
    fn only_a_caller_that_submits_what_it_is_given_has_batches() {
        let mut pace = Pace { way: Way::Batches, ..Pace::new(32) };
        let reap = |pace: &mut Pace, count| {
            pace.begin_reap();
            let first = pace.first(1);
            pace.end_reap(count, true);
            first
        };
        reap(&mut pace, 3);
        assert_eq!(reap(&mut pace, 3), usize::MAX, "it submitted none of the first three");
        (0..3).for_each(|_| pace.note_submitted());
        assert_eq!(reap(&mut pace, 3), BATCH);
        let batches = [1, 2, 3].map(|entries| {
            pace.note_submitted();
            pace.batch(entries)
        });
        assert_eq!(batches, [BATCH; 3]);
        assert_eq!(pace.batch(1), 1, "no more is expected");
        reap(&mut pace, 3);
        pace.note_submitted();
        assert_eq!(reap(&mut pace, 3), usize::MAX, "it kept two back");
        assert_eq!(pace.batch(1), 1);
    }

    #[test]
    fn a_shallow_queue_has_no_batches() {
        let mut pace = Pace { way: Way::Batches, ..Pace::new(DEPTH_MIN - 1) };
        pace.begin_reap();
        assert_eq!((pace.first(1), pace.batch(3)), (usize::MAX, 1));
    }
}

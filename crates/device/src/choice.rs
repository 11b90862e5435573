//! Which of two ways to make transfers is faster here and now: both are measured, and the slower one is tried now and then.
//!
//! Where it sits: under a queue whose device, CPUs and caller decide what is better.

use std::time::{Duration, Instant};

/// For each so many transfers whose time is taken, one is left out before, which still goes the way of those before.
const SETTLING: u32 = 8;
/// Times of one way in a row: it may take a while until it is as fast as it can be.
const IN_A_ROW: u32 = 2;
/// Times that are taken at first, of both ways in turn.
const LEARNING: u32 = 4 * IN_A_ROW;
/// After those, so many are followed by those of the way that seems slower.
const TRIED: u32 = 32 * IN_A_ROW;
/// A time below the typical one counts for one in so many, and one above it for less: what held the caller up says little.
const WEIGHT_BELOW: u32 = 4;
const WEIGHT_ABOVE: u32 = 16;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Choice {
    is_second: bool,
    limit: u32,
    /// Transfers whose time is taken together.
    measured: u32,
    /// Typical nanoseconds of a transfer, the first way and the second; 0 if not known.
    typical: [u32; 2],
    /// Times that were taken.
    count: u32,
    began: Option<Instant>,
    /// Transfers since then.
    transfers: u32,
}

impl Choice {
    /// The second way is taken where its time is less than `limit` thousandths of the first one's; the time of `measured` transfers is taken.
    pub(crate) fn new(limit: u32, measured: u32) -> Self {
        Self { is_second: false, limit, measured, typical: [0; 2], count: 0, began: None, transfers: 0 }
    }

    pub(crate) fn is_second(&self) -> bool {
        self.is_second
    }

    pub(crate) fn count(&mut self, transfers: u32) {
        self.transfers = self.transfers.saturating_add(transfers);
    }

    /// Take the time, if it is time for that. Of transfers that end together all must be counted, or none.
    pub(crate) fn note(&mut self, now: impl Fn() -> Instant) {
        match self.began {
            None if self.transfers >= self.measured / SETTLING => {
                (self.began, self.transfers) = (Some(now()), 0);
            }
            Some(began) if self.transfers >= self.measured => {
                self.note_time(now().saturating_duration_since(began) / self.transfers);
                self.is_second = self.choose();
                (self.began, self.transfers) = (None, 0);
            }
            _ => {}
        }
    }

    fn note_time(&mut self, took: Duration) {
        let took = u32::try_from(took.as_nanos()).unwrap_or(u32::MAX).max(1);
        let typical = &mut self.typical[usize::from(self.is_second)];
        *typical = match *typical {
            0 => took,
            typical if self.count < LEARNING => typical.min(took),
            typical if took < typical => typical - (typical - took) / WEIGHT_BELOW,
            typical => typical + (took.min(typical.saturating_mul(2)) - typical) / WEIGHT_ABOVE,
        };
        self.count = self.count.wrapping_add(1);
    }

    fn choose(&self) -> bool {
        let [first, second] = self.typical.map(u64::from);
        let second_is_better = second * 1000 < first * u64::from(self.limit);
        match self.count {
            count @ ..LEARNING => !(count / IN_A_ROW).is_multiple_of(2),
            count => second_is_better != (count % TRIED < IN_A_ROW),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A caller with a clock of its own.
    struct Caller {
        choice: Choice,
        time: Cell<Instant>,
    }

    impl Caller {
        fn new(limit: u32) -> Self {
            Self { choice: Choice::new(limit, 256), time: Cell::new(Instant::now()) }
        }

        /// Make `count` transfers that take so many microseconds each way; the part that went the second one.
        fn part_of_second(&mut self, count: u32, first: u64, second: u64) -> f64 {
            let mut seconds = 0;
            for _ in 0..count {
                let is_second = self.choice.is_second();
                seconds += u32::from(is_second);
                let took = Duration::from_micros(if is_second { second } else { first });
                self.time.set(self.time.get() + took);
                self.choice.note(|| self.time.get());
                self.choice.count(1);
            }
            f64::from(seconds) / f64::from(count)
        }
    }

    const MANY: u32 = 200_000;

    #[test]
    fn the_faster_way_is_taken_and_the_other_one_tried() {
        let mut caller = Caller::new(1000);
        caller.part_of_second(4000, 10, 9);
        let part = caller.part_of_second(MANY, 10, 9);
        assert!((0.94..0.99).contains(&part), "{part}");
        caller.part_of_second(MANY, 5, 9);
        let part = caller.part_of_second(MANY, 5, 9);
        assert!((0.01..0.06).contains(&part), "the first is faster now: {part}");
    }

    #[test]
    fn the_limit_decides_between_ways_that_are_nearly_as_fast() {
        for (limit, second, is_taken) in
            [(1100, 105, true), (1100, 115, false), (900, 95, false), (900, 85, true)]
        {
            let mut caller = Caller::new(limit);
            caller.part_of_second(4000, 100, second);
            let part = caller.part_of_second(MANY, 100, second);
            assert_eq!(part > 0.5, is_taken, "{limit} {second}: {part}");
        }
    }

    #[test]
    fn a_pause_of_the_caller_decides_nothing_for_long() {
        for pause_after in [100, 400, 900] {
            let mut caller = Caller::new(1000);
            caller.part_of_second(pause_after, 10, 8);
            caller.part_of_second(1, 1_000_000, 1_000_000);
            caller.part_of_second(MANY, 10, 8);
            assert!(caller.part_of_second(MANY, 10, 8) > 0.9, "a pause after {pause_after}");
        }
    }
}

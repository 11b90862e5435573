//! How a thread makes a short transfer that is its only one: on its ring, polling for the end, or by a call, which sleeps.
//!
//! Where it sits: under `execute`, for files with asynchronous direct I/O. Which of the two takes less time depends on the machine, and for
//! writes on the host's filesystem: ext4 ends an asynchronous write in a thread of its own, which may wait for the CPU of the one that
//! polls, and a call in its caller. So both are measured, for each device and direction: the slower one is tried now and then.
//!
//! Where too many threads wait to poll, a call it is: a ring that is slept for takes longer than a call.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::polling;
use crate::transfer::Direction;

/// Transfers at first, of which about half are made in each way.
const LEARNING: u32 = 64;
/// After those, about one of so many is made in the way that seems slower.
const TRIED: u32 = 32;
/// What is new counts for one in so many.
const WEIGHT: u32 = 16;
/// A first transfer counts for no more nanoseconds than this: it may have made the ring of its thread.
const FIRST_MAX: u32 = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Poll,
    Call,
}

/// What was seen of the single short transfers of a device. Threads change it without a lock: a figure may be lost.
#[derive(Debug, Default)]
pub(crate) struct Singles {
    reads: Means,
    writes: Means,
}

/// Mean times, in nanoseconds; 0 if not known.
#[derive(Debug, Default)]
struct Means {
    polled: AtomicU32,
    called: AtomicU32,
    count: AtomicU32,
}

impl Singles {
    /// Make a transfer in the way that takes less time.
    pub(crate) fn run(&self, direction: Direction, make: impl FnOnce(Way)) {
        if !polling::may_poll() {
            return make(Way::Call);
        }
        let means = match direction {
            Direction::Read => &self.reads,
            Direction::Write => &self.writes,
        };
        let way = means.choose();
        let began = Instant::now();
        make(way);
        means.note(way, began.elapsed());
    }
}

impl Means {
    fn of(&self, way: Way) -> &AtomicU32 {
        match way {
            Way::Poll => &self.polled,
            Way::Call => &self.called,
        }
    }

    fn choose(&self) -> Way {
        let count = self.count.load(Ordering::Relaxed);
        self.count.store(count.wrapping_add(1), Ordering::Relaxed);
        let [polled, called] =
            [Way::Poll, Way::Call].map(|way| u64::from(self.of(way).load(Ordering::Relaxed)));
        // Polling, which takes a CPU, must save a twentieth.
        let is_faster = polled * 20 <= called * 19;
        // What is tried must not be of one kind only in a pattern of transfers.
        let mixed = count.wrapping_mul(0x9e37_79b9).rotate_left(7);
        let polls = match count {
            ..LEARNING => mixed.is_multiple_of(2),
            _ => is_faster != mixed.is_multiple_of(TRIED),
        };
        if polls { Way::Poll } else { Way::Call }
    }

    fn note(&self, way: Way, took: Duration) {
        let took = u32::try_from(took.as_nanos()).unwrap_or(u32::MAX);
        let mean = match self.of(way).load(Ordering::Relaxed) {
            0 => took.min(FIRST_MAX),
            // A transfer that was interrupted for long says little.
            mean => mean - mean.div_ceil(WEIGHT) + took.min(mean.saturating_mul(2)).div_ceil(WEIGHT),
        };
        self.of(way).store(mean, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: u32 = 100 * TRIED;

    /// How many of `count` transfers are polled for. `took`: microseconds of each by its number, polled for and called.
    fn polled(means: &Means, count: u32, took: impl Fn(u32) -> (u64, u64)) -> u32 {
        let mut polls = 0;
        for nth in 0..count {
            let (way, (polled, called)) = (means.choose(), took(nth));
            polls += u32::from(way == Way::Poll);
            means.note(way, Duration::from_micros(if way == Way::Poll { polled } else { called }));
        }
        polls
    }

    /// One of 16 to one of 64.
    fn are_tries(count: u32) -> bool {
        (MANY / 64..MANY / 16).contains(&count)
    }

    #[test]
    fn the_faster_way_is_taken_and_the_other_one_tried() {
        let means = Means::default();
        polled(&means, LEARNING, |_| (40, 30));
        assert!(are_tries(polled(&means, MANY, |_| (40, 30))), "calls are faster");
        assert!(are_tries(polled(&means, MANY, |_| (30, 30))), "as much time, and a CPU more");
        // Polling gets faster: seen by what is tried.
        polled(&means, MANY, |_| (20, 30));
        assert!(are_tries(MANY - polled(&means, MANY, |_| (20, 30))));
    }

    #[test]
    fn a_transfer_that_was_held_up_decides_nothing_for_long() {
        for held_up in [0, 1, 2, 3, 200] {
            let means = Means::default();
            let took = |nth| if nth == held_up { (10_000_000, 10_000_000) } else { (20, 30) };
            polled(&means, MANY, took);
            assert!(are_tries(MANY - polled(&means, MANY, |_| (20, 30))), "held up: {held_up}");
        }
    }

    #[test]
    fn a_pattern_of_short_and_long_ones_is_not_seen_as_one_of_ways() {
        let means = Means::default();
        let took = |nth: u32| if nth.is_multiple_of(2) { (28, 25) } else { (45, 40) };
        polled(&means, MANY, took);
        let polls = polled(&means, MANY, took);
        assert!(polls < MANY / 4, "calls are faster for both: {polls} of {MANY} polled for");
    }
}

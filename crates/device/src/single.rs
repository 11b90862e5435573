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

/// Transfers at first, of which every second one is made in the other way.
const LEARNING: u32 = 32;
/// After those, one of so many.
const TRIED: u32 = 32;
/// What is new counts for one in so many.
const WEIGHT: u32 = 16;

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
        let polls = match count {
            ..LEARNING => count.is_multiple_of(2),
            _ => is_faster != count.is_multiple_of(TRIED),
        };
        if polls { Way::Poll } else { Way::Call }
    }

    fn note(&self, way: Way, took: Duration) {
        let took = u32::try_from(took.as_nanos()).unwrap_or(u32::MAX);
        let mean = self.of(way).load(Ordering::Relaxed);
        let mean = match mean {
            0 => took,
            // A transfer that was interrupted for long says little.
            mean => mean - mean.div_ceil(WEIGHT) + (took.min(mean.saturating_mul(2))).div_ceil(WEIGHT),
        };
        self.of(way).store(mean, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `count` transfers are polled for, where the ways take these times.
    fn polled(means: &Means, count: u32, polled: u64, called: u64) -> u32 {
        let mut polls = 0;
        for _ in 0..count {
            let way = means.choose();
            let took = if way == Way::Poll { polled } else { called };
            polls += u32::from(way == Way::Poll);
            means.note(way, Duration::from_micros(took));
        }
        polls
    }

    #[test]
    fn the_faster_way_is_taken_and_the_other_one_tried() {
        let means = Means::default();
        polled(&means, LEARNING, 40, 30);
        assert_eq!(polled(&means, 10 * TRIED, 40, 30), 10, "calls are faster");
        // As much time, and a CPU more.
        assert_eq!(polled(&means, 10 * TRIED, 30, 30), 10);
        // Polling gets faster: seen by what is tried.
        polled(&means, 100 * TRIED, 20, 30);
        assert_eq!(polled(&means, 10 * TRIED, 20, 30), 10 * (TRIED - 1));
    }

    #[test]
    fn a_transfer_that_was_held_up_decides_nothing() {
        let means = Means::default();
        polled(&means, LEARNING, 20, 30);
        means.note(Way::Poll, Duration::from_secs(10));
        assert_eq!(polled(&means, TRIED, 20, 30), TRIED - 1);
    }
}

//! Hybrid polling: a thread busy-polls for a short transfer before it sleeps.
//!
//! Where it sits: below the wait of a ring. Sleep and wake-up of a thread cost some microseconds, and tens of them in a virtual
//! machine whose idle CPU must be restarted; a fast device completes a small transfer in that time. A thread polls for its only
//! small transfer where the mean of the last ones was short, where at most half of the CPUs (at least one) poll, and where no other
//! thread wants the CPU.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::transfer::{Direction, Transfer};

/// Larger transfers take longer than polling is worth.
const SHORT_BYTES_MAX: u64 = 64 << 10;
/// The longest time of polling, and the mean wait up to which it is tried.
const POLL_MAX: Duration = Duration::from_micros(150);
/// A single long wait counts for no more than this, so that the next short ones soon outweigh it.
const COUNTED_MAX: Duration = Duration::from_micros(300);
/// A longer gap between two polls means that the CPU ran another thread.
const INTERRUPTED: Duration = Duration::from_millis(1);
/// No polling for so long after that: a multiple of a scheduler's time slice.
const BACK_OFF: Duration = Duration::from_millis(100);

/// The threads that wait for one short transfer each, polling or asleep.
struct Waits {
    count: AtomicUsize,
    /// Up to so many waiting threads may poll: the other CPUs remain for other work.
    few: usize,
}

/// The waits of this process.
static WAITS: LazyLock<Waits> = LazyLock::new(|| {
    let few = std::thread::available_parallelism().map_or(1, |cpus| cpus.get().div_ceil(2));
    Waits { count: AtomicUsize::new(0), few }
});

impl Waits {
    fn are_few(&self) -> bool {
        self.count.load(Ordering::Relaxed) <= self.few
    }
}

/// Whether a thread that begins to wait may poll.
pub(crate) fn may_poll() -> bool {
    WAITS.count.load(Ordering::Relaxed) < WAITS.few
}

/// One of them.
pub(crate) struct Wait<'a> {
    began: Instant,
    all: &'a Waits,
}

impl Wait<'static> {
    pub(crate) fn begin() -> Self {
        Self::begin_among(&WAITS, Instant::now())
    }
}

impl<'a> Wait<'a> {
    fn begin_among(all: &'a Waits, began: Instant) -> Self {
        all.count.fetch_add(1, Ordering::Relaxed);
        Self { began, all }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.all.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The direction of a transfer that may be worth polling for.
pub(crate) fn short(transfer: &Transfer) -> Option<Direction> {
    (transfer.len() <= SHORT_BYTES_MAX && !transfer.durable).then_some(transfer.direction)
}

/// Latency of the short transfers of one ring.
#[derive(Debug, Default)]
pub(crate) struct LatencyHistory {
    /// Mean time of a read and of a write.
    reads: Duration,
    writes: Duration,
    /// No polling before this time.
    back_off_until: Option<Instant>,
}

impl LatencyHistory {
    /// Poll for the completion of a transfer as long as that is worth it; `poll` says whether it has completed.
    pub(crate) fn poll_for(&mut self, direction: Direction, wait: &Wait<'_>, poll: impl FnMut() -> bool) {
        self.poll_by(Instant::now, direction, wait, poll);
    }

    /// With the clock as an argument, for the tests.
    fn poll_by(
        &mut self,
        clock: impl Fn() -> Instant,
        direction: Direction,
        wait: &Wait<'_>,
        mut poll: impl FnMut() -> bool,
    ) {
        let is_backing_off = self.back_off_until.is_some_and(|until| wait.began < until);
        if *self.mean(direction) > POLL_MAX || is_backing_off {
            return;
        }
        let mut last = wait.began;
        while wait.all.are_few() && !poll() && last.duration_since(wait.began) < POLL_MAX {
            std::hint::spin_loop();
            let time = clock();
            if time.duration_since(last) > INTERRUPTED {
                self.back_off_until = Some(time + BACK_OFF);
            }
            last = time;
        }
    }

    /// A wait has ended.
    pub(crate) fn note(&mut self, direction: Direction, wait: &Wait<'_>) {
        self.count(direction, wait.began.elapsed());
    }

    fn count(&mut self, direction: Direction, took: Duration) {
        let mean = self.mean(direction);
        *mean = (*mean * 7 + took.min(COUNTED_MAX)) / 8;
    }

    fn mean(&mut self, direction: Direction) -> &mut Duration {
        match direction {
            Direction::Read => &mut self.reads,
            Direction::Write => &mut self.writes,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const SHORT: Duration = Duration::from_micros(60);
    const LONG: Duration = Duration::from_secs(1);
    /// From one reading of the clock to the next.
    const STEP: Duration = Duration::from_micros(1);

    /// A thread with a clock of its own: what else this machine does changes nothing.
    struct Thread {
        latency: LatencyHistory,
        time: Cell<Instant>,
        others_wait: usize,
        few: usize,
    }

    impl Thread {
        fn new() -> Self {
            let (latency, time) = (LatencyHistory::default(), Cell::new(Instant::now()));
            Self { latency, time, others_wait: 0, few: 1 }
        }

        fn note(&mut self, count: u32, direction: Direction, took: Duration) {
            (0..count).for_each(|_| self.latency.count(direction, took));
        }

        fn pass(&self, time: Duration) {
            self.time.set(self.time.get() + time);
        }

        /// How often it polls for a transfer that completes at the `end`th poll, where each poll takes so long.
        fn polls_of(&mut self, took: Duration, direction: Direction, end: u32) -> u32 {
            let (mut polls, time) = (0, &self.time);
            let all = Waits { count: AtomicUsize::new(self.others_wait), few: self.few };
            let clock = || {
                time.set(time.get() + STEP);
                time.get()
            };
            let wait = Wait::begin_among(&all, clock());
            self.latency.poll_by(clock, direction, &wait, || {
                polls += 1;
                time.set(time.get() + took);
                polls == end
            });
            drop(wait);
            assert_eq!(all.count.into_inner(), self.others_wait, "counted only while it waits");
            polls
        }

        fn polls(&mut self, direction: Direction, end: u32) -> u32 {
            self.polls_of(Duration::ZERO, direction, end)
        }
    }

    #[test]
    fn short_transfers_are_polled_for_and_long_ones_slept_for() {
        let mut thread = Thread::new();
        thread.note(30, Direction::Read, SHORT);
        thread.note(30, Direction::Write, POLL_MAX * 4);
        assert_eq!(thread.polls(Direction::Write, 1), 0);
        assert_eq!(thread.polls(Direction::Read, 2), 2);
    }

    #[test]
    fn one_long_wait_among_short_ones_changes_nothing_and_many_do() {
        let mut thread = Thread::new();
        thread.note(30, Direction::Read, SHORT);
        thread.note(1, Direction::Read, LONG);
        assert_eq!(thread.polls(Direction::Read, 1), 1);
        thread.note(10, Direction::Read, LONG);
        assert_eq!(thread.polls(Direction::Read, 1), 0);
    }

    #[test]
    fn polling_ends_after_a_while() {
        let steps = POLL_MAX.as_micros() as u32;
        assert_eq!(Thread::new().polls(Direction::Read, u32::MAX), steps + 1);
    }

    #[test]
    fn polling_backs_off_where_the_cpu_was_taken_away() {
        let mut thread = Thread::new();
        assert_eq!(thread.polls_of(INTERRUPTED, Direction::Read, u32::MAX), 2, "one poll after the gap");
        assert_eq!(thread.polls(Direction::Read, 1), 0);
        thread.pass(BACK_OFF);
        assert_eq!(thread.polls(Direction::Read, 1), 1);
    }

    #[test]
    fn no_thread_polls_where_too_many_wait() {
        let mut thread = Thread::new();
        thread.others_wait = 1;
        assert_eq!(thread.polls(Direction::Read, 1), 0);
        thread.few = 2;
        assert_eq!(thread.polls(Direction::Read, 3), 3);
    }
}

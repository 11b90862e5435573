//! Hybrid polling: a thread busy-polls for a short read before it sleeps.
//!
//! Where it sits: below the wait of a ring. Sleep and wake-up of a thread cost some microseconds, and tens of them in a virtual
//! machine whose idle CPU must be restarted. A fast device completes a small read in that time. A thread polls for its only
//! small read if the mean latency of the last ones was short, and if at most half of the CPUs (at least one) poll. A thread whose CPU
//! is taken away measures long latencies, so it soon stops polling.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::raw::{Direction, RawTransfer};

/// Larger reads take longer than polling is worth.
const SHORT_BYTES_MAX: u64 = 64 << 10;
/// The longest time of polling, and the mean latency up to which a thread polls.
const POLL_MAX: Duration = Duration::from_micros(150);
/// One long wait counts for at most this, so that the next short ones soon outweigh it.
const COUNTED_MAX: Duration = Duration::from_micros(300);

/// The threads that wait for one short read each, polling or asleep.
struct Waits {
    count: AtomicUsize,
    /// The number of waiting threads up to which they may poll. The other CPUs remain for other work.
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

/// The wait of one thread.
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

/// Whether a transfer may be worth polling for. Writes are not: the host may complete them in a thread that needs the CPU.
pub(crate) fn is_short_read(transfer: &RawTransfer) -> bool {
    transfer.direction == Direction::Read && transfer.len() <= SHORT_BYTES_MAX
}

/// Mean latency of the short reads of one ring.
#[derive(Debug, Default)]
pub(crate) struct MeanLatency(Duration);

impl MeanLatency {
    /// Poll for the completion of a short read, if the mean latency is short. `poll` returns whether it has completed.
    pub(crate) fn poll_for(&self, wait: &Wait<'_>, poll: impl FnMut() -> bool) {
        self.poll_by(Instant::now, wait, poll);
    }

    /// With the clock as an argument, for the tests.
    fn poll_by(&self, clock: impl Fn() -> Instant, wait: &Wait<'_>, mut poll: impl FnMut() -> bool) {
        let mut now = wait.began;
        let is_soon = |now: Instant| now.duration_since(wait.began) < POLL_MAX;
        while self.0 <= POLL_MAX && is_soon(now) && wait.all.are_few() && !poll() {
            std::hint::spin_loop();
            now = clock();
        }
    }

    /// Count a wait that has ended.
    pub(crate) fn note(&mut self, wait: &Wait<'_>) {
        self.count(wait.began.elapsed());
    }

    fn count(&mut self, took: Duration) {
        self.0 = (self.0 * 7 + took.min(COUNTED_MAX)) / 8;
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

    /// A thread with its own clock, independent of the load of the machine.
    struct Thread {
        latency: MeanLatency,
        time: Cell<Instant>,
        others_wait: usize,
        few: usize,
    }

    impl Thread {
        fn new() -> Self {
            let (latency, time) = (MeanLatency::default(), Cell::new(Instant::now()));
            Self { latency, time, others_wait: 0, few: 1 }
        }

        fn note(&mut self, count: u32, took: Duration) {
            (0..count).for_each(|_| self.latency.count(took));
        }

        /// The number of polls for a read that completes at the `end`th poll.
        fn polls(&self, end: u32) -> u32 {
            let mut polls = 0;
            let all = Waits { count: AtomicUsize::new(self.others_wait), few: self.few };
            let clock = || {
                self.time.set(self.time.get() + STEP);
                self.time.get()
            };
            let wait = Wait::begin_among(&all, clock());
            self.latency.poll_by(clock, &wait, || {
                polls += 1;
                polls == end
            });
            drop(wait);
            assert_eq!(all.count.into_inner(), self.others_wait, "counted only while it waits");
            polls
        }
    }

    #[test]
    fn a_thread_polls_for_short_reads_and_sleeps_for_long_ones() {
        let mut thread = Thread::new();
        thread.note(30, SHORT);
        assert_eq!(thread.polls(2), 2);
        thread.note(30, POLL_MAX * 4);
        assert_eq!(thread.polls(1), 0);
    }

    #[test]
    fn one_long_wait_among_short_ones_changes_nothing_and_many_do() {
        let mut thread = Thread::new();
        thread.note(30, SHORT);
        thread.note(1, LONG);
        assert_eq!(thread.polls(1), 1);
        thread.note(10, LONG);
        assert_eq!(thread.polls(1), 0);
    }

    #[test]
    fn polling_ends_after_a_while() {
        let steps = POLL_MAX.as_micros() as u32;
        assert_eq!(Thread::new().polls(u32::MAX), steps);
    }

    #[test]
    fn no_thread_polls_where_too_many_wait() {
        let mut thread = Thread::new();
        thread.others_wait = 1;
        assert_eq!(thread.polls(1), 0);
        thread.few = 2;
        assert_eq!(thread.polls(3), 3);
    }
}

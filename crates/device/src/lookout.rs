//! Whether to wait for a short transfer awake.
//!
//! Where it sits: under the wait of a ring. To put a thread to sleep and to wake it takes some microseconds, and some tens of them in
//! a virtual machine, whose CPU has to be started again; a fast device has done a small transfer in that time. So a thread that
//! waits for one small transfer looks for its end for a while before it sleeps: where the ones before it ended soon, where no more
//! threads wait like this than half of the CPUs (or one), and where nobody else wants the CPU.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::transfer::{Direction, Transfer};

/// Larger transfers take longer than a wait awake is worth.
const SHORT_BYTES_MAX: u64 = 64 << 10;
/// The longest wait awake, and the mean wait up to which one is tried.
const AWAKE_MAX: Duration = Duration::from_micros(150);
/// A single long wait counts for no more than this, so that the next short ones soon outweigh it.
const COUNTED_MAX: Duration = Duration::from_micros(300);
/// Between two looks a CPU is away for so long only when it does something else.
const INTERRUPTED: Duration = Duration::from_millis(1);
/// So long a CPU that others want is left to them: many times what they take it for at once.
const LEFT_TO_OTHERS: Duration = Duration::from_millis(100);

/// The threads that wait for one short transfer each, awake or asleep.
struct Waits {
    count: AtomicUsize,
    /// So many leave CPUs for as many threads who do something else.
    few: usize,
}

/// Those of this process.
static WAITS: LazyLock<Waits> = LazyLock::new(|| {
    let few = std::thread::available_parallelism().map_or(1, |cpus| cpus.get().div_ceil(2));
    Waits { count: AtomicUsize::new(0), few }
});

impl Waits {
    fn are_few(&self) -> bool {
        self.count.load(Ordering::Relaxed) <= self.few
    }
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

/// The direction of a transfer that may be worth a wait awake.
pub(crate) fn short(transfer: &Transfer) -> Option<Direction> {
    (transfer.len() <= SHORT_BYTES_MAX && !transfer.durable).then_some(transfer.direction)
}

/// What one ring has seen of short transfers.
#[derive(Debug, Default)]
pub(crate) struct Lookout {
    /// Mean time of a read and of a write.
    reads: Duration,
    writes: Duration,
    /// When a wait awake may be tried again, if not now.
    asleep_until: Option<Instant>,
}

impl Lookout {
    /// Look for the end of a transfer, as long as that is worth it; `look` says whether it has ended.
    pub(crate) fn look_for(&mut self, direction: Direction, wait: &Wait<'_>, look: impl FnMut() -> bool) {
        self.look_by(Instant::now, direction, wait, look);
    }

    /// By a clock that tests make up.
    fn look_by(
        &mut self,
        clock: impl Fn() -> Instant,
        direction: Direction,
        wait: &Wait<'_>,
        mut look: impl FnMut() -> bool,
    ) {
        let is_resting = self.asleep_until.is_some_and(|until| wait.began < until);
        if *self.mean(direction) > AWAKE_MAX || is_resting {
            return;
        }
        let mut last = wait.began;
        while wait.all.are_few() && !look() && last.duration_since(wait.began) < AWAKE_MAX {
            std::hint::spin_loop();
            let time = clock();
            if time.duration_since(last) > INTERRUPTED {
                self.asleep_until = Some(time + LEFT_TO_OTHERS);
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
        lookout: Lookout,
        time: Cell<Instant>,
        others_wait: usize,
        few: usize,
    }

    impl Thread {
        fn new() -> Self {
            let (lookout, time) = (Lookout::default(), Cell::new(Instant::now()));
            Self { lookout, time, others_wait: 0, few: 1 }
        }

        fn note(&mut self, count: u32, direction: Direction, took: Duration) {
            (0..count).for_each(|_| self.lookout.count(direction, took));
        }

        fn pass(&self, time: Duration) {
            self.time.set(self.time.get() + time);
        }

        /// How often it looks for a transfer that ends at the `end`th look, where each look takes so long.
        fn looks_of(&mut self, took: Duration, direction: Direction, end: u32) -> u32 {
            let (mut looks, time) = (0, &self.time);
            let all = Waits { count: AtomicUsize::new(self.others_wait), few: self.few };
            let clock = || {
                time.set(time.get() + STEP);
                time.get()
            };
            let wait = Wait::begin_among(&all, clock());
            self.lookout.look_by(clock, direction, &wait, || {
                looks += 1;
                time.set(time.get() + took);
                looks == end
            });
            drop(wait);
            assert_eq!(all.count.into_inner(), self.others_wait, "counted only while it waits");
            looks
        }

        fn looks(&mut self, direction: Direction, end: u32) -> u32 {
            self.looks_of(Duration::ZERO, direction, end)
        }
    }

    #[test]
    fn short_transfers_are_looked_for_and_long_ones_slept_for() {
        let mut thread = Thread::new();
        thread.note(30, Direction::Read, SHORT);
        thread.note(30, Direction::Write, AWAKE_MAX * 4);
        assert_eq!(thread.looks(Direction::Write, 1), 0);
        assert_eq!(thread.looks(Direction::Read, 2), 2);
    }

    #[test]
    fn one_long_wait_among_short_ones_changes_nothing_and_many_do() {
        let mut thread = Thread::new();
        thread.note(30, Direction::Read, SHORT);
        thread.note(1, Direction::Read, LONG);
        assert_eq!(thread.looks(Direction::Read, 1), 1);
        thread.note(10, Direction::Read, LONG);
        assert_eq!(thread.looks(Direction::Read, 1), 0);
    }

    #[test]
    fn looking_ends_after_a_while() {
        let steps = AWAKE_MAX.as_micros() as u32;
        assert_eq!(Thread::new().looks(Direction::Read, u32::MAX), steps + 1);
    }

    #[test]
    fn looking_is_given_up_for_a_while_where_the_cpu_was_taken_away() {
        let mut thread = Thread::new();
        assert_eq!(thread.looks_of(INTERRUPTED, Direction::Read, u32::MAX), 2, "once more when it is back");
        assert_eq!(thread.looks(Direction::Read, 1), 0);
        thread.pass(LEFT_TO_OTHERS);
        assert_eq!(thread.looks(Direction::Read, 1), 1);
    }

    #[test]
    fn nobody_looks_where_more_wait_than_are_few() {
        let mut thread = Thread::new();
        thread.others_wait = 1;
        assert_eq!(thread.looks(Direction::Read, 1), 0);
        thread.few = 2;
        assert_eq!(thread.looks(Direction::Read, 3), 3);
    }
}

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

/// A thread that waits for one short transfer, awake or asleep.
pub(crate) struct Wait {
    began: Instant,
}

/// How many there are in this process.
static WAITS: AtomicUsize = AtomicUsize::new(0);

impl Wait {
    pub(crate) fn begin() -> Self {
        WAITS.fetch_add(1, Ordering::Relaxed);
        Self { began: Instant::now() }
    }

    /// Whether there are CPUs for all who wait, and for as many who do something else.
    fn are_few() -> bool {
        static FEW: LazyLock<usize> =
            LazyLock::new(|| std::thread::available_parallelism().map_or(1, |cpus| cpus.get().div_ceil(2)));
        WAITS.load(Ordering::Relaxed) <= *FEW
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        WAITS.fetch_sub(1, Ordering::Relaxed);
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
    pub(crate) fn look_for(&mut self, direction: Direction, wait: &Wait, mut look: impl FnMut() -> bool) {
        let is_resting = self.asleep_until.is_some_and(|until| wait.began < until);
        if *self.mean(direction) > AWAKE_MAX || is_resting {
            return;
        }
        let mut last = wait.began;
        while Wait::are_few() && !look() && last.duration_since(wait.began) < AWAKE_MAX {
            std::hint::spin_loop();
            let time = Instant::now();
            if time.duration_since(last) > INTERRUPTED {
                self.asleep_until = Some(time + LEFT_TO_OTHERS);
            }
            last = time;
        }
    }

    /// A wait has ended.
    pub(crate) fn note(&mut self, direction: Direction, wait: &Wait) {
        let mean = self.mean(direction);
        *mean = (*mean * 7 + wait.began.elapsed().min(COUNTED_MAX)) / 8;
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
    use super::*;

    const SHORT: Duration = Duration::from_micros(60);

    /// How often it looks for a transfer that ends at the `end`th look.
    fn looks(lookout: &mut Lookout, direction: Direction, end: u32) -> u32 {
        let mut looks = 0;
        lookout.look_for(direction, &Wait::begin(), || {
            looks += 1;
            looks == end
        });
        looks
    }

    fn took(lookout: &mut Lookout, direction: Direction, times: usize, long: Duration) {
        let began = Instant::now().checked_sub(long).unwrap();
        WAITS.fetch_add(1, Ordering::Relaxed);
        let wait = Wait { began };
        (0..times).for_each(|_| lookout.note(direction, &wait));
    }

    #[test]
    fn short_transfers_are_looked_for_and_long_ones_slept_for() {
        let mut lookout = Lookout::default();
        took(&mut lookout, Direction::Write, 30, AWAKE_MAX * 4);
        assert_eq!(looks(&mut lookout, Direction::Write, 1), 0);
        assert_eq!(looks(&mut lookout, Direction::Read, 1), 1);
    }

    #[test]
    fn one_long_wait_among_short_ones_changes_nothing() {
        let mut lookout = Lookout { reads: SHORT, ..Lookout::default() };
        took(&mut lookout, Direction::Read, 1, AWAKE_MAX * 20);
        assert_eq!(looks(&mut lookout, Direction::Read, 1), 1);
    }

    #[test]
    fn looking_ends_and_is_given_up_where_the_cpu_was_taken_away() {
        let mut lookout = Lookout::default();
        assert!(looks(&mut lookout, Direction::Read, u32::MAX) > 0, "it returned");
        lookout.look_for(Direction::Read, &Wait::begin(), || {
            std::thread::sleep(2 * INTERRUPTED);
            false
        });
        assert_eq!(looks(&mut lookout, Direction::Read, 1), 0);
    }
}

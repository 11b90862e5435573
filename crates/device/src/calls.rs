//! Whether calls that move data put their thread to sleep.
//!
//! Where it sits: a ring hands each transfer of a file without asynchronous I/O (tmpfs, and others; a file through the host's page
//! cache) to a thread of the kernel. A single transfer is faster by a call of its own thread then. So are many of them, if such a call is
//! nothing but a copy; but where it waits for a disk, the kernel's threads wait for many at once. So some calls are watched: a thread
//! that slept has given up the CPU by its own choice, which the system counts.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

/// One of so many calls of a thread is watched.
const WATCHED: u32 = 64;
/// Where transfers do not run by calls, one of so many does, to see whether that is still right: a multiple of the other.
const TRIED: u32 = 256;
/// A watched call that slept.
const SLEPT: u32 = 1024;

thread_local! {
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// What was seen of the calls on one file.
#[derive(Debug)]
pub(crate) struct Calls {
    /// The mean of the last watched calls, from 0 to [`SLEPT`].
    slept: AtomicU32,
}

impl Default for Calls {
    /// They sleep until it is seen that they do not.
    fn default() -> Self {
        Self { slept: AtomicU32::new(SLEPT) }
    }
}

impl Calls {
    /// Make a call, and watch it if it is its turn.
    pub(crate) fn run<T>(&self, call: impl FnOnce() -> T) -> T {
        if !is_watched() {
            return call();
        }
        let before = sys::sleeps_of_this_thread();
        let result = call();
        self.note(sys::sleeps_of_this_thread() != before);
        result
    }

    /// Whether several transfers are better made by calls, one after the other, than given to the ring.
    pub(crate) fn are_copies(&self) -> bool {
        if self.slept.load(Ordering::Relaxed) < SLEPT / 2 {
            return true;
        }
        // Its turn to be watched, too.
        let is_tried = CALLS.get().is_multiple_of(TRIED);
        if !is_tried {
            CALLS.set(CALLS.get().wrapping_add(1));
        }
        is_tried
    }

    fn note(&self, slept: bool) {
        let mean = self.slept.load(Ordering::Relaxed);
        let mean = mean - mean.div_ceil(4) + if slept { SLEPT / 4 } else { 0 };
        self.slept.store(mean.min(SLEPT), Ordering::Relaxed);
    }
}

/// Whether it is the turn of one of so many; the first of a thread is.
fn is_watched() -> bool {
    let calls = CALLS.get();
    CALLS.set(calls.wrapping_add(1));
    calls.is_multiple_of(WATCHED)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_call_that_sleeps_is_seen_and_one_that_does_not_too() {
        let calls = Calls::default();
        let sleep = || std::thread::sleep(Duration::from_micros(50));
        let made = |count: u32, call: &dyn Fn()| {
            (0..count).filter(|_| calls.are_copies()).map(|_| calls.run(call)).count()
        };
        CALLS.set(0);
        assert_eq!(made(3 * TRIED, &sleep), 3, "tried now and then");
        assert!(made(4 * TRIED, &|| ()) > 0);
        assert_eq!(made(TRIED, &|| ()), TRIED as usize, "they are copies");
        assert!(made(8 * WATCHED, &sleep) < 8 * WATCHED as usize);
        assert!(made(TRIED, &sleep) <= 1);
    }
}

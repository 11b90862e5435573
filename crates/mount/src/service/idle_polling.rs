//! While requests follow one another, idle CPUs poll for work instead of halting.
//!
//! A request wakes a thread of the daemon, and its reply wakes the caller. A CPU that has halted in between takes 10 to 30 us to
//! start again in a virtual machine, several times what a small request needs. The kernel lets a program ask for less: its PM `QoS`
//! request of CPU latency, `/dev/cpu_dma_latency`, which root may open. So this is for virtual machines, where polling is the only other way to
//! be idle. A processor of a host leaves its first idle state at once. It is the kernel's to undo when the file is closed, so
//! it ends with the daemon, however that ends.
//!
//! The request stands from the [`STREAK`]th request that comes within [`CLOSE`] of the one before, until none came for [`QUIET`]: a CPU
//! that polls takes power, and time of other guests of its host.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};

/// Requests further apart wait for a device or their program: a CPU that starts again costs little beside that.
const CLOSE: Duration = Duration::from_micros(200);
const STREAK: u32 = 8;
const QUIET: Duration = Duration::from_millis(1);
/// On larger machines most of the CPUs that would poll have nothing to do with the mount.
const CPUS_MAX: usize = 8;

/// The latency with which only polling is left.
const POLLING_US: i32 = 0;
/// `PM_QOS_CPU_LATENCY_DEFAULT_VALUE`: no request.
const ANY_US: i32 = 2_000_000_000;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct IdlePolling {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    device: OwnedFd,
    began: Instant,
    /// Microseconds from there to the last request.
    last_us: AtomicU64,
    /// Requests that came close to the one before. Not exact where two threads count at once, and need not be.
    streak: AtomicU32,
    /// As in the state, to be looked at without its lock.
    is_held: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The kernel is asked for it.
    is_held: bool,
    has_ended: bool,
}

impl IdlePolling {
    /// `None` where the kernel takes no such request from this process, or it would change nothing.
    pub(crate) fn start() -> Option<Self> {
        // The driver of the kernel in virtual machines.
        if in_sys("cpuidle/current_driver") != "haltpoll" || count_of(&in_sys("online")) > CPUS_MAX {
            return None;
        }
        let device = open("/dev/cpu_dma_latency", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        Self::with(device)
    }

    fn with(device: OwnedFd) -> Option<Self> {
        let shared = Arc::new(Shared {
            device,
            began: Instant::now(),
            last_us: AtomicU64::new(0),
            streak: AtomicU32::new(0),
            is_held: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("idle-polling".to_owned());
        thread.spawn(move || of_thread.release_when_quiet()).ok()?;
        Some(Self { shared })
    }

    /// A request has come.
    pub(crate) fn note(&self, at: Instant) {
        let shared = &*self.shared;
        let now_us = at.saturating_duration_since(shared.began).as_micros() as u64;
        let last_us = shared.last_us.swap(now_us, Ordering::Relaxed);
        if shared.is_held.load(Ordering::Acquire) {
            return;
        }
        if now_us.saturating_sub(last_us) > CLOSE.as_micros() as u64 {
            shared.streak.store(0, Ordering::Relaxed);
        } else if shared.streak.fetch_add(1, Ordering::Relaxed) + 1 >= STREAK {
            shared.hold();
        }
    }
}

impl Drop for IdlePolling {
    fn drop(&mut self) {
        self.shared.state().has_ended = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, state: &mut State, latency_us: i32) {
        // Before the kernel knows: a request that comes meanwhile counts for what is true afterwards.
        state.is_held = latency_us != ANY_US;
        self.streak.store(0, Ordering::Relaxed);
        self.is_held.store(state.is_held, Ordering::Release);
        // Without it everything works as before, only not as soon.
        let _ = rustix::io::write(&self.device, &latency_us.to_ne_bytes());
    }

    fn hold(&self) {
        let mut state = self.state();
        if !state.is_held {
            self.ask(&mut state, POLLING_US);
            self.changed.notify_all();
        }
    }

    fn release_when_quiet(&self) {
        let mut state = self.state();
        while !state.has_ended {
            if !state.is_held {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state = self.changed.wait_timeout(state, QUIET).unwrap_or_else(PoisonError::into_inner).0;
            let last = Duration::from_micros(self.last_us.load(Ordering::Relaxed));
            if self.began.elapsed().saturating_sub(last) >= QUIET {
                self.ask(&mut state, ANY_US);
            }
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a file of the kernel")]
fn in_sys(name: &str) -> String {
    let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/{name}")).unwrap_or_default();
    text.trim().to_owned()
}

/// How many numbers there are in a list such as `0-3,8`.
pub(crate) fn count_of(list: &str) -> usize {
    let len = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        (last + 1).checked_sub(first)
    };
    list.split(',').filter_map(len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was asked for so far, of a pipe in place of the device.
    struct Asked(OwnedFd);

    impl Asked {
        fn next(&self) -> i32 {
            let mut bytes = [0; 4];
            assert_eq!(rustix::io::read(&self.0, &mut bytes), Ok(4));
            i32::from_ne_bytes(bytes)
        }
    }

    fn polling() -> (IdlePolling, Asked) {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        (IdlePolling::with(writer.into()).expect("a thread"), Asked(reader.into()))
    }

    /// From the time when the test began: its own speed changes nothing.
    fn note(polling: &IdlePolling, times_us: impl IntoIterator<Item = u64>) {
        let began = polling.shared.began;
        times_us.into_iter().for_each(|time| polling.note(began + Duration::from_micros(time)));
    }

    #[test]
    fn requests_that_follow_one_another_are_asked_for_and_their_end_takes_it_back() {
        let (polling, asked) = polling();
        note(&polling, (0..=u64::from(STREAK)).map(|n| 1000 + n * 50));
        assert_eq!(asked.next(), POLLING_US);
        assert_eq!(asked.next(), ANY_US, "they have ended");
        // A request far in the future keeps it, as one that has just come does.
        note(&polling, (0..=u64::from(STREAK)).map(|n| 60_000_000 + n * 50));
        assert_eq!(asked.next(), POLLING_US);
        assert!(polling.shared.is_held.load(Ordering::Relaxed));
    }

    #[test]
    fn requests_far_apart_ask_for_nothing() {
        let (polling, asked) = polling();
        note(&polling, (0..100).map(|n| n * 300));
        // Nor do short bursts of them.
        note(&polling, (0..20).flat_map(|burst| (1..5).map(move |n| 100_000 + burst * 5000 + n * 10)));
        assert!(!polling.shared.is_held.load(Ordering::Relaxed));
        // It closes the pipe, once its thread has seen the end.
        drop(polling);
        assert_eq!(rustix::io::read(&asked.0, &mut [0; 4]), Ok(0), "nothing was asked for");
    }

    #[test]
    fn processors_are_counted() {
        assert_eq!((count_of("0-1"), count_of("0"), count_of("0-3,8-11,16"), count_of("")), (2, 1, 9, 0));
    }
}

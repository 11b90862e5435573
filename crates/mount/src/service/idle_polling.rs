//! While requests follow one another, idle CPUs poll for work instead of halting.
//!
//! A request wakes a thread of the daemon, and its reply wakes the caller. In a virtual machine a CPU that has halted in between takes
//! 10 to 30 us to start again, several times the cost of a small request. A processor of a host leaves its first idle state at once, so this is
//! for virtual machines.
//!
//! Root may limit the CPU latency (`/dev/cpu_dma_latency`, PM `QoS`). The limit stands from the [`STREAK`]th request that comes within [`CLOSE`] of
//! the one before, until none came for [`QUIET`]: a CPU that polls takes power, and time of other guests of its host. The kernel removes it when
//! the file is closed, so it ends with the daemon.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};

/// Requests further apart wait for a device or their program: a CPU that starts again costs little beside that.
const CLOSE: Duration = Duration::from_micros(200);
const STREAK: u32 = 8;
const QUIET: Duration = Duration::from_millis(1);
/// On larger machines most of the CPUs that would poll have nothing to do with the mount.
const CPUS_MAX: usize = 8;

/// The latency that only polling can meet.
const POLLING_US: i32 = 0;
/// `PM_QOS_CPU_LATENCY_DEFAULT_VALUE`: no request.
const ANY_US: i32 = 2_000_000_000;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct IdlePolling {
    requests: Arc<Requests>,
    hold: Sender<()>,
}

/// The requests of late.
#[derive(Debug)]
struct Requests {
    began: Instant,
    /// Microseconds from there to the last request.
    last_us: AtomicU64,
    /// Requests that came close to the one before. Not exact if two threads count at once, and need not be.
    streak: AtomicU32,
    /// The kernel is asked for polling, or is about to be.
    is_held: AtomicBool,
}

impl IdlePolling {
    /// `None` if the kernel takes no such request from this process, or it would change nothing.
    pub(crate) fn start() -> Option<Self> {
        // The driver of the kernel in virtual machines.
        if in_sys("cpuidle/current_driver") != "haltpoll" || count_of(&in_sys("online")) > CPUS_MAX {
            return None;
        }
        let device = open("/dev/cpu_dma_latency", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        Self::with(device)
    }

    fn with(device: OwnedFd) -> Option<Self> {
        let requests = Arc::new(Requests {
            began: Instant::now(),
            last_us: AtomicU64::new(0),
            streak: AtomicU32::new(0),
            is_held: AtomicBool::new(false),
        });
        let (hold, held) = channel();
        let of_thread = Arc::clone(&requests);
        let thread = std::thread::Builder::new().name("idle-polling".to_owned());
        thread.spawn(move || of_thread.hold_until_quiet(&device, &held)).ok()?;
        Some(Self { requests, hold })
    }

    /// A request has come.
    pub(crate) fn note(&self, at: Instant) {
        let requests = &*self.requests;
        let now_us = at.saturating_duration_since(requests.began).as_micros() as u64;
        let last_us = requests.last_us.swap(now_us, Ordering::Relaxed);
        if requests.is_held.load(Ordering::Acquire) {
            return;
        }
        if now_us.saturating_sub(last_us) > CLOSE.as_micros() as u64 {
            requests.streak.store(0, Ordering::Relaxed);
        } else if requests.streak.fetch_add(1, Ordering::Relaxed) + 1 >= STREAK
            && !requests.is_held.swap(true, Ordering::AcqRel)
        {
            let _ = self.hold.send(());
        }
    }
}

impl Requests {
    /// The thread that asks the kernel. A write that fails changes the speed alone.
    fn hold_until_quiet(&self, device: &OwnedFd, held: &Receiver<()>) {
        let ask = |latency_us: i32| rustix::io::write(device, &latency_us.to_ne_bytes());
        while held.recv().is_ok() {
            let _ = ask(POLLING_US);
            let quiet_since = || Duration::from_micros(self.last_us.load(Ordering::Relaxed));
            while self.began.elapsed().saturating_sub(quiet_since()) < QUIET {
                std::thread::sleep(QUIET);
            }
            // A request that comes from now on may ask again, after the next line.
            self.streak.store(0, Ordering::Relaxed);
            self.is_held.store(false, Ordering::Release);
            let _ = ask(ANY_US);
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a file of the kernel")]
fn in_sys(name: &str) -> String {
    let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/{name}")).unwrap_or_default();
    text.trim().to_owned()
}

/// The count of the numbers in a list such as `0-3,8`.
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

    /// The requests so far, to a pipe in place of the device.
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
        let began = polling.requests.began;
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
        assert!(polling.requests.is_held.load(Ordering::Relaxed));
    }

    #[test]
    fn requests_far_apart_ask_for_nothing() {
        let (polling, asked) = polling();
        note(&polling, (0..100).map(|n| n * 300));
        // Nor do short bursts of them.
        note(&polling, (0..20).flat_map(|burst| (1..5).map(move |n| 100_000 + burst * 5000 + n * 10)));
        assert!(!polling.requests.is_held.load(Ordering::Relaxed));
        // It closes the pipe, once its thread has seen the end.
        drop(polling);
        assert_eq!(rustix::io::read(&asked.0, &mut [0; 4]), Ok(0), "nothing was asked for");
    }

    #[test]
    fn processors_are_counted() {
        assert_eq!((count_of("0-1"), count_of("0"), count_of("0-3,8-11,16"), count_of("")), (2, 1, 9, 0));
    }
}

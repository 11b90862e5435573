//! CPU time, context switches and page faults of a job's thread.

use std::time::Duration;

use diorite_sim::Context;
use nix::sys::resource::{UsageWho, getrusage};

/// Sums over the life of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in kernel mode.
    pub system: Duration,
    /// Context switches, voluntary and not.
    pub switches: u64,
    /// Page faults that took I/O.
    pub major_faults: u64,
    /// Page faults that took none.
    pub minor_faults: u64,
}

impl Usage {
    /// The calling thread's use. In a simulation only the charged CPU time is known.
    pub(crate) fn of_this_thread() -> Self {
        if let Some(world) = Context::current() {
            return Self { user: world.cpu_time(), ..Self::default() };
        }
        let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else { return Self::default() };
        let time = |value: nix::sys::time::TimeVal| {
            Duration::new(value.tv_sec().unsigned_abs(), value.tv_usec() as u32 * 1000)
        };
        let switches = usage.voluntary_context_switches() + usage.involuntary_context_switches();
        Self {
            user: time(usage.user_time()),
            system: time(usage.system_time()),
            switches: switches.unsigned_abs(),
            major_faults: usage.major_page_faults().unsigned_abs(),
            minor_faults: usage.minor_page_faults().unsigned_abs(),
        }
    }

    /// The use since then.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            switches: self.switches.saturating_sub(earlier.switches),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
        }
    }

    /// Add the use of another thread.
    pub(crate) fn add(&mut self, other: &Self) {
        self.user += other.user;
        self.system += other.system;
        self.switches += other.switches;
        self.major_faults += other.major_faults;
        self.minor_faults += other.minor_faults;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_and_sleeps_is_seen_to() {
        let before = Usage::of_this_thread();
        let start = std::time::Instant::now();
        let mut sum = 0u64;
        while start.elapsed() < Duration::from_millis(30) {
            sum = std::hint::black_box(sum + 1);
        }
        std::thread::sleep(Duration::from_millis(1));
        let used = Usage::of_this_thread().since(&before);
        let cpu = used.user + used.system;
        assert!(cpu > Duration::ZERO && cpu < Duration::from_secs(5), "{used:?}");
        assert!(used.switches >= 1, "{used:?}");
    }
}

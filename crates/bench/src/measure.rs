//! Time, CPU time, latency and memory of a phase of work.
//!
//! CPU time is measured twice. The process clock counts user and kernel time of this process, with its `io_uring`
//! workers, to the nanosecond. The machine's idle time (`/proc/stat`) gives the CPU time of all processors, to the
//! centisecond, with kernel threads for writeback and interrupts for completions. The machine's CPU time is never less than the
//! process's own. This correction applies to sums only, because the centiseconds of many short phases have the right
//! sum only without it. Elapsed time is the stack's clock, so it is virtual in a simulation.

use std::time::Duration;

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

use crate::host::read_text;
use crate::rows::LatencyUs;

/// Clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    elapsed: Duration,
    process: Duration,
    machine: Option<MachineTime>,
}

/// Times between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Elapsed time.
    pub seconds: f64,
    /// CPU time of this process.
    pub cpu_s_process: f64,
    /// Counted CPU time of the machine, to the centisecond.
    machine_as_counted: f64,
}

/// Sums of `/proc/stat`, in seconds since boot.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MachineTime {
    idle: f64,
    stolen: f64,
    busy: f64,
    cpus: u32,
}

impl Snapshot {
    /// The present clocks.
    pub fn now() -> Self {
        let clock = |id| {
            let time = clock_gettime(id);
            Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
        };
        let machine = read_text("/proc/stat").ok().and_then(|text| parse_stat(&text));
        Self { elapsed: diorite_block::sync::now(), process: clock(ClockId::ProcessCPUTime), machine }
    }

    /// The times since then.
    pub fn spent(&self) -> Spent {
        Self::now().since(self)
    }

    fn since(&self, earlier: &Self) -> Spent {
        let seconds = self.elapsed.saturating_sub(earlier.elapsed).as_secs_f64();
        let process = self.process.saturating_sub(earlier.process).as_secs_f64();
        let machine = match (self.machine, earlier.machine) {
            (Some(now), Some(then)) => machine_cpu(now, then, seconds),
            _ => process,
        };
        Spent { seconds, cpu_s_process: process, machine_as_counted: machine }
    }
}

impl Spent {
    /// Times with no other process, as in a simulation.
    pub fn alone(seconds: f64, cpu_s: f64) -> Self {
        Self { seconds, cpu_s_process: cpu_s, machine_as_counted: cpu_s }
    }

    /// CPU time of the machine, with this process.
    pub fn cpu_s_machine(&self) -> f64 {
        self.machine_as_counted.max(self.cpu_s_process)
    }
}

/// CPU time of all CPUs: elapsed time of all CPUs minus idle time. The kernel counts idle time exactly and busy time by
/// sampling at clock ticks, which misses short bursts.
fn machine_cpu(now: MachineTime, then: MachineTime, seconds: f64) -> f64 {
    let idle = now.idle - then.idle;
    let stolen = now.stolen - then.stolen;
    let by_idle = seconds * f64::from(now.cpus) - idle - stolen;
    if by_idle.is_finite() && by_idle >= 0.0 { by_idle } else { (now.busy - then.busy).max(0.0) }
}

fn parse_stat(text: &str) -> Option<MachineTime> {
    let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
    let all = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<f64> =
        all.split_whitespace().map(|field| field.parse::<f64>().unwrap_or(0.0) / ticks_per_second).collect();
    let field = |index: usize| fields.get(index).copied().unwrap_or(0.0);
    let cpus = text
        .lines()
        .filter(|line| {
            line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })
        .count() as u32;
    Some(MachineTime {
        idle: field(3) + field(4),
        stolen: field(7),
        busy: field(0) + field(1) + field(2) + field(5) + field(6),
        cpus,
    })
}

impl std::ops::AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.seconds += other.seconds;
        self.cpu_s_process += other.cpu_s_process;
        self.machine_as_counted += other.machine_as_counted;
    }
}

/// The load of the machine while this program waits for `time`: 100 for one CPU.
pub fn background_cpu_percent(time: Duration) -> f64 {
    let start = Snapshot::now();
    std::thread::sleep(time);
    let spent = start.spent();
    100.0 * (spent.cpu_s_machine() - spent.cpu_s_process) / spent.seconds.max(1e-9)
}

/// CPU time of other programs. Kernel threads do not count, because they may work for this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OtherPrograms(f64);

impl OtherPrograms {
    /// Times until now.
    pub(crate) fn now() -> Self {
        Self(cpu_s_of_others().unwrap_or(0.0))
    }

    /// CPU time since then.
    pub(crate) fn cpu_s_since(self) -> f64 {
        (cpu_s_of_others().unwrap_or(0.0) - self.0).max(0.0)
    }
}

fn cpu_s_of_others() -> Option<f64> {
    let own = std::process::id();
    let ids = std::fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let of = |id: u32| cpu_s_of_program(&read_text(&format!("/proc/{id}/stat")).ok()?);
    Some(ids.filter(|id| *id != own).filter_map(of).sum())
}

/// CPU time from the `stat` file of a process, with its waited-for children, so that an ended program stays in the sum.
/// `None` for a kernel thread.
fn cpu_s_of_program(stat: &str) -> Option<f64> {
    const PF_KTHREAD: u64 = 0x0020_0000;
    // The name may have spaces and parentheses.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    if number(6)? & PF_KTHREAD != 0 {
        return None;
    }
    let ticks: u64 = (11..=14).filter_map(number).sum();
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The median; 0 without values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.get(sorted.len().wrapping_sub(1) / 2), sorted.get(sorted.len() / 2)) {
        (Some(low), Some(high)) => f64::midpoint(*low, *high),
        _ => 0.0,
    }
}

/// Resident memory of this process in bytes; 0 if unknown.
pub fn resident_bytes() -> u64 {
    let pages: u64 =
        read_text("/proc/self/statm").ok().and_then(|text| text.split(' ').nth(1)?.parse().ok()).unwrap_or(0);
    pages.saturating_mul(rustix::param::page_size() as u64)
}

/// Latencies of single operations, from a nanosecond to an hour at three digits.
#[derive(Clone, Debug)]
pub struct Latencies {
    nanoseconds: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        let nanoseconds = Histogram::new_with_max(3_600_000_000_000, 3).expect("constant bounds are valid");
        Self { nanoseconds }
    }
}

impl Latencies {
    /// Count one operation.
    pub fn record(&mut self, time: Duration) {
        self.nanoseconds.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Add the operations of another one, for instance of another thread.
    pub fn add(&mut self, other: &Self) {
        self.nanoseconds.add(&other.nanoseconds).expect("both have the same bounds");
    }

    /// Number of operations.
    pub fn count(&self) -> u64 {
        self.nanoseconds.len()
    }

    /// Mean and percentiles; `None` without operations.
    pub fn summary(&self) -> Option<LatencyUs> {
        (!self.nanoseconds.is_empty()).then(|| LatencyUs::of(&self.nanoseconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 0 50 1000 20 0 5 30 0 0\ncpu0 1 2\ncpu1 1 2\nintr 5\n";

    #[test]
    fn machine_time_is_parsed_by_column() {
        let time = parse_stat(STAT).unwrap();
        let second = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(time.cpus, 2);
        assert!((time.idle * second - 1020.0).abs() < 1e-6);
        assert!((time.stolen * second - 30.0).abs() < 1e-6);
        assert!((time.busy * second - 155.0).abs() < 1e-6);
    }

    #[test]
    fn programs_are_counted_and_threads_of_the_kernel_are_not() {
        let ticks = rustix::param::clock_ticks_per_second();
        let stat =
            |flags: u32| format!("7 (a) b) S 1 7 7 0 -1 {flags} 5 0 0 0 {ticks} {ticks} 0 {ticks} 20 0 1\n");
        assert_eq!(cpu_s_of_program(&stat(0x0040_0000)), Some(3.0));
        assert_eq!(cpu_s_of_program(&stat(0x0020_8040)), None);
        let before = OtherPrograms::now();
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        while before.cpu_s_since() < 0.05 {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn idle_and_stolen_time_is_not_cpu_time() {
        let then = MachineTime { idle: 0.0, stolen: 0.0, busy: 0.0, cpus: 2 };
        let now = MachineTime { idle: 15.0, stolen: 1.0, busy: 3.0, cpus: 2 };
        assert!((machine_cpu(now, then, 10.0) - 4.0).abs() < 1e-9);
    }

    /// A busy loop costs about as much CPU time as it lasts, and the machine's figure includes it.
    #[test]
    fn process_time_follows_work() {
        let start = Snapshot::now();
        while start.spent().cpu_s_process < 0.02 {}
        let spent = start.spent();
        assert!(spent.cpu_s_machine() >= spent.cpu_s_process);
        assert!(spent.cpu_s_process <= spent.seconds * 1.5 + 0.05, "{spent:?}");
    }

    /// Phases shorter than a tick of the machine's clock have the right sum.
    #[test]
    fn coarse_counts_add_up() {
        let mut sum = Spent::default();
        for counted in [0.0, 0.01, 0.0, 0.01] {
            sum += Spent { seconds: 0.1, cpu_s_process: 0.004, machine_as_counted: counted };
        }
        assert!((sum.cpu_s_machine() - 0.02).abs() < 1e-9, "{sum:?}");
    }

    #[test]
    fn percentiles_are_ordered() {
        let mut latencies = Latencies::default();
        assert!(latencies.summary().is_none());
        for microseconds in 1..=1000 {
            latencies.record(Duration::from_micros(microseconds));
        }
        let summary = latencies.summary().unwrap();
        assert!((summary.p50 - 500.0).abs() < 2.0 && (summary.max - 1000.0).abs() < 2.0, "{summary:?}");
        assert!(summary.p50 <= summary.p99 && summary.p99 <= summary.p99_9 && summary.p99_9 <= summary.max);
    }
}

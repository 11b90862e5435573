//! Results of jobs.

use std::time::Duration;

use diorite_bench::SchedulerReport;
use hdrhistogram::Histogram;
use jiff::Zoned;

use super::disks::DiskUse;
use super::usage::Usage;
use crate::error::JobError;

/// One job in one direction.
#[derive(Clone, Debug)]
pub struct DirectionResult {
    /// Bytes moved.
    pub bytes: u64,
    /// Transfers.
    pub ios: u64,
    /// Transfers that moved less than requested.
    pub short: u64,
    /// From the start of the first transfer to the end of the last. Verification is time of the reads, not of the writes.
    pub runtime: Duration,
    /// Completion latency in nanoseconds: fio's `clat`, from the submission (of synchronous transfers: from the start).
    pub latency_ns: Histogram<u64>,
    /// Submission latency of queued transfers in nanoseconds: fio's `slat`.
    pub submission_ns: Histogram<u64>,
    /// Time from start to end in nanoseconds: fio's `lat`.
    pub total_ns: Histogram<u64>,
}

impl Default for DirectionResult {
    fn default() -> Self {
        let times = || Histogram::new(3).expect("a valid precision");
        Self {
            bytes: 0,
            ios: 0,
            short: 0,
            runtime: Duration::ZERO,
            latency_ns: times(),
            submission_ns: times(),
            total_ns: times(),
        }
    }
}

impl DirectionResult {
    /// Bytes a second.
    pub fn bandwidth(&self) -> f64 {
        per_second(self.bytes as f64, self.runtime)
    }

    /// Transfers a second.
    pub fn iops(&self) -> f64 {
        per_second(self.ios as f64, self.runtime)
    }

    /// Add the result of another job of the same time.
    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.ios += other.ios;
        self.short += other.short;
        self.runtime = self.runtime.max(other.runtime);
        let add = |mine: &mut Histogram<u64>, theirs| mine.add(theirs).expect("a histogram that grows");
        add(&mut self.latency_ns, &other.latency_ns);
        add(&mut self.submission_ns, &other.submission_ns);
        add(&mut self.total_ns, &other.total_ns);
    }
}

fn per_second(amount: f64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { amount / time.as_secs_f64() }
}

/// One job, or a group of jobs that are reported as one.
#[derive(Clone, Debug, Default)]
pub struct JobResult {
    /// Name of the job, or of the first of the group.
    pub name: String,
    /// Group, counted from 0.
    pub group: u32,
    /// Jobs in this result.
    pub jobs: u32,
    /// fio's line about a job before it starts: `rw=..., bs=..., ioengine=..., iodepth=...`.
    pub heading: String,
    /// The job's options as its file spells them.
    pub options: Vec<(String, String)>,
    /// Most transfers in flight.
    pub depth: u32,
    /// Reads.
    pub read: DirectionResult,
    /// Writes.
    pub write: DirectionResult,
    /// Failed transfers after which the job continued.
    pub errors: u64,
    /// The `errno` of the first of them.
    pub first_error: Option<i32>,
    /// Time of each sync in nanoseconds.
    pub sync_ns: DirectionResult,
    /// CPU use of the jobs' threads.
    pub usage: Usage,
    /// Elapsed time, summed over the jobs.
    pub elapsed: Duration,
    /// Elapsed time of the longest job.
    pub longest: Duration,
    /// Reported together with the job before.
    pub(crate) join: bool,
}

impl JobResult {
    fn add(&mut self, other: &Self) {
        self.jobs += other.jobs;
        self.depth = self.depth.max(other.depth);
        self.read.add(&other.read);
        self.write.add(&other.write);
        self.errors += other.errors;
        self.first_error = self.first_error.or(other.first_error);
        self.sync_ns.add(&other.sync_ns);
        self.usage.add(&other.usage);
        self.elapsed += other.elapsed;
        self.longest = self.longest.max(other.longest);
    }

    /// Transfers of all directions.
    pub fn total_ios(&self) -> u64 {
        self.read.ios + self.write.ios
    }

    /// Reads (0) or writes (1).
    pub(crate) fn direction_mut(&mut self, direction: usize) -> &mut DirectionResult {
        match direction {
            0 => &mut self.read,
            _ => &mut self.write,
        }
    }

    /// CPU time in user and kernel mode as percentages of the elapsed time.
    pub fn cpu_percent(&self) -> (f64, f64) {
        let share = |time: Duration| 100.0 * time.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9);
        (share(self.usage.user), share(self.usage.system))
    }
}

/// The result of a job file.
#[derive(Debug, Default)]
pub struct JobOutcome {
    /// One for each job, or for each group that is reported as one.
    pub results: Vec<JobResult>,
    /// The jobs as the file has them: heading and count.
    pub headings: Vec<(String, u32)>,
    /// The sum of each group.
    pub groups: Vec<JobResult>,
    /// Service of each job by the I/O scheduler, if there is one.
    pub scheduler: Option<SchedulerReport>,
    /// Activity of the simulated drive under the files.
    pub disks: Vec<DiskUse>,
    /// Options of `[global]` as the file spells them.
    pub global_options: Vec<(String, String)>,
    /// Why jobs ended early.
    pub failures: Vec<JobError>,
    /// Largest read-ahead window, where the user set one.
    pub read_ahead_bytes: Option<usize>,
    /// When they ended, by the host's or the simulated clock.
    pub(crate) ended: Zoned,
}

impl JobOutcome {
    /// The outcome, if no job failed.
    ///
    /// # Errors
    /// The first failure.
    pub fn complete(mut self) -> Result<Self, JobError> {
        if self.failures.is_empty() { Ok(self) } else { Err(self.failures.swap_remove(0)) }
    }

    /// From the results of the single jobs, in order.
    pub(crate) fn collect(singles: Vec<JobResult>) -> Self {
        let mut outcome = Self::default();
        for single in singles {
            let heading = format!("{}: (g={}): {}", single.name, single.group, single.heading);
            match outcome.headings.last_mut() {
                Some((last, count)) if *last == heading => *count += 1,
                _ => outcome.headings.push((heading, 1)),
            }
            match outcome.groups.get_mut(single.group as usize) {
                Some(group) => group.add(&single),
                None => outcome.groups.push(single.clone()),
            }
            match outcome.results.last_mut() {
                Some(last) if single.join && last.join && last.group == single.group => last.add(&single),
                _ => outcome.results.push(single),
            }
        }
        outcome
    }

    /// Percent of a group's bandwidth that one of its results has: fio's `bw_agg`.
    pub(super) fn share_of_group(&self, result: &JobResult, side: fn(&JobResult) -> &DirectionResult) -> f64 {
        let group = self.groups.iter().find(|group| group.group == result.group);
        let all = group.map_or(0.0, |group| side(group).bandwidth());
        if all > 0.0 { (100.0 * side(result).bandwidth() / all).min(100.0) } else { 0.0 }
    }
}

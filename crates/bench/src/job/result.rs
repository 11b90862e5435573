//! What came of the jobs.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::SchedulerReport;

/// What one job did in one direction.
#[derive(Clone, Debug)]
pub struct DirectionResult {
    /// Bytes moved.
    pub bytes: u64,
    /// Transfers.
    pub ios: u64,
    /// From the first transfer's start to the last one's end.
    pub runtime: Duration,
    /// Time of each transfer in nanoseconds.
    pub latency_ns: Histogram<u64>,
    /// Bandwidth of each half second, in KiB/s.
    pub samples_kib_s: Vec<f64>,
    /// Transfers a second in each half second.
    pub samples_iops: Vec<f64>,
}

impl Default for DirectionResult {
    fn default() -> Self {
        let latency_ns = Histogram::new_with_max(3_600_000_000_000, 3).expect("constant bounds are valid");
        Self {
            bytes: 0,
            ios: 0,
            runtime: Duration::ZERO,
            latency_ns,
            samples_kib_s: Vec::new(),
            samples_iops: Vec::new(),
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

    /// Add what another job did at the same time.
    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.ios += other.ios;
        self.runtime = self.runtime.max(other.runtime);
        self.latency_ns.add(&other.latency_ns).expect("both have the same bounds");
        add_samples(&mut self.samples_kib_s, &other.samples_kib_s);
        add_samples(&mut self.samples_iops, &other.samples_iops);
    }
}

fn add_samples(sums: &mut Vec<f64>, samples: &[f64]) {
    for (index, sample) in samples.iter().enumerate() {
        match sums.get_mut(index) {
            Some(sum) => *sum += sample,
            None => sums.push(*sample),
        }
    }
}

fn per_second(amount: f64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { amount / time.as_secs_f64() }
}

/// What one job did, or a group of jobs that are reported as one.
#[derive(Clone, Debug, Default)]
pub struct JobResult {
    /// Name of the job, or of the first of the group.
    pub name: String,
    /// Group, counted from 0.
    pub group: u32,
    /// Jobs in this result.
    pub jobs: u32,
    /// The heading: `rw=..., bs=..., ioengine=..., iodepth=...`.
    pub settings: Vec<(String, String)>,
    /// The job's options as its file spells them.
    pub options: Vec<(String, String)>,
    /// Transfers in flight at most.
    pub depth: u32,
    /// Reads.
    pub read: DirectionResult,
    /// Writes.
    pub write: DirectionResult,
    /// Time of each sync in nanoseconds.
    pub sync_ns: DirectionResult,
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in kernel mode.
    pub system: Duration,
    /// Elapsed time, summed over the jobs.
    pub elapsed: Duration,
    /// Report together with the job before.
    pub(crate) join: bool,
}

impl JobResult {
    fn add(&mut self, other: &Self) {
        self.jobs += other.jobs;
        self.depth = self.depth.max(other.depth);
        self.read.add(&other.read);
        self.write.add(&other.write);
        self.sync_ns.add(&other.sync_ns);
        self.user += other.user;
        self.system += other.system;
        self.elapsed += other.elapsed;
    }

    /// CPU time in user and kernel mode as percentages of the elapsed time.
    pub fn cpu_percent(&self) -> (f64, f64) {
        let share = |time: Duration| 100.0 * time.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9);
        (share(self.user), share(self.system))
    }
}

/// What a whole job file came to.
#[derive(Clone, Debug, Default)]
pub struct JobOutcome {
    /// One for each job, or for each group that is reported as one.
    pub results: Vec<JobResult>,
    /// Per group: all jobs of it together.
    pub groups: Vec<JobResult>,
    /// What the I/O scheduler gave each job, where there is one.
    pub scheduler: Option<SchedulerReport>,
}

impl JobOutcome {
    /// From the results of the single jobs, in order.
    pub(crate) fn collect(singles: Vec<JobResult>) -> Self {
        let mut outcome = Self::default();
        for single in singles {
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
}

//! Counts the transfers of a worker.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::worker::Worker;
use crate::figures::result::JobResult;
use crate::language::spec::{BlockSizes, Engine, Job};

/// A transfer, due or in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    /// 0: read, 1: write.
    pub(super) direction: usize,
    pub(super) file: usize,
    pub(super) offset: u64,
    pub(super) len: usize,
    /// The time that was compared with the deadline: the clock is read once.
    pub(super) start: Duration,
    /// End of its submission, for queued transfers.
    pub(super) submitted: Option<Duration>,
}

/// Counts of one worker.
pub(super) struct Account<'a> {
    job: &'a Job,
    pub(super) result: JobResult,
    /// Start of the counted time of reads and writes: after the ramp, with the first transfer.
    counted_from: [Option<Duration>; 2],
    /// Start of the running verification.
    verifies_since: Option<Duration>,
    /// Time of earlier verifications.
    verified: Duration,
    /// End of the ramp.
    ramp_end: Duration,
}

impl<'a> Account<'a> {
    pub(super) fn new(worker: &'a Worker, start: Duration) -> Self {
        let job = &worker.job;
        let result = JobResult {
            name: job.name.clone(),
            group: worker.group,
            jobs: 1,
            heading: heading_of(job),
            options: job.options.clone(),
            depth: if job.engine == Engine::Queue && job.direct { job.depth } else { 1 },
            join: job.group_reporting,
            ..JobResult::default()
        };
        let ramp_end = start + job.ramp_time;
        Self {
            job,
            result,
            counted_from: [None; 2],
            verifies_since: None,
            verified: Duration::ZERO,
            ramp_end,
        }
    }

    /// A transfer of `bytes` has ended.
    pub(super) fn record(&mut self, transfer: &Transfer, bytes: usize, end: Duration) {
        let Transfer { direction: side, start, submitted, .. } = *transfer;
        if self.is_in_ramp(start) {
            return;
        }
        // The time of a direction is the time of the job: a late first write had to wait.
        let from = self.counted_from[side].get_or_insert(
            if self.job.ramp_time.is_zero() && self.result.total_ios() == 0 {
                self.ramp_end = start;
                start
            } else {
                self.ramp_end
            },
        );
        *from = (*from).min(start);
        let from = *from;
        let runtime = self.time_of(side, from, end);
        let direction = self.result.direction_mut(side);
        direction.bytes += bytes as u64;
        direction.ios += 1;
        direction.short += u64::from(bytes < transfer.len);
        direction.runtime = runtime;
        let completion = end.saturating_sub(submitted.unwrap_or(start));
        let submission = submitted.map(|submitted| submitted.saturating_sub(start));
        if let Some(submission) = submission {
            record(&mut direction.submission_ns, submission);
        }
        record(&mut direction.latency_ns, completion);
        record(&mut direction.total_ns, end.saturating_sub(start));
    }

    /// Whether a transfer that starts then is in the ramp, which does not count.
    fn is_in_ramp(&self, start: Duration) -> bool {
        !self.job.ramp_time.is_zero() && start < self.ramp_end
    }

    /// The time of a direction since a moment. Verification is no time of writes, and the only time of the reads of a job that only writes.
    fn time_of(&self, side: usize, since: Duration, end: Duration) -> Duration {
        let (all, verified) = (end.saturating_sub(since), self.verified_until(end));
        match side {
            0 if self.job.pattern.reads() => all,
            0 => verified,
            _ => all.saturating_sub(verified),
        }
    }

    /// Verification time until then.
    fn verified_until(&self, at: Duration) -> Duration {
        let now = self.verifies_since.map(|since| at.saturating_sub(since.max(self.ramp_end)));
        self.verified + now.unwrap_or_default()
    }

    /// Verification begins.
    pub(super) fn begin_verification(&mut self, at: Duration) {
        self.verifies_since = Some(at);
    }

    /// Verification ends.
    pub(super) fn end_verification(&mut self, at: Duration) {
        self.verified = self.verified_until(at);
        self.verifies_since = None;
    }

    /// A transfer has failed, and the job continues.
    pub(super) fn failed(&mut self, errno: i32) {
        self.result.errors += 1;
        self.result.first_error.get_or_insert(errno);
    }

    pub(super) fn synced(&mut self, start: Duration, end: Duration) {
        if self.is_in_ramp(start) {
            return;
        }
        self.result.sync_ns.ios += 1;
        record(&mut self.result.sync_ns.latency_ns, end.saturating_sub(start));
    }
}

fn record(times: &mut Histogram<u64>, time: Duration) {
    times.record(time.as_nanos() as u64).expect("a histogram that grows");
}

/// fio's line about a job before it starts.
fn heading_of(job: &Job) -> String {
    let [reads, writes] = [0, 1].map(|side| {
        let sizes: &BlockSizes = &job.blocks[side];
        format!("{}B-{}B", sizes.least(), sizes.most())
    });
    format!(
        "rw={}, bs=(R) {reads}, (W) {writes}, ioengine={}, iodepth={}, direct={}",
        job.pattern.name(),
        job.engine_name,
        job.depth,
        u8::from(job.direct)
    )
}

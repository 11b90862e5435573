//! When the next transfer may start: rates, shares, pauses; and whether a job is as fast as it must be.

use std::time::Duration;

use super::Job;
use super::offsets::Random;

/// Paces one worker. Times are those of `diorite_block::sync::now`.
#[derive(Debug)]
pub(super) struct Pace {
    start: Duration,
    has_rates: bool,
    /// When the next transfer of each direction is due.
    due: [Duration; 3],
    random: Random,
    think_until: Duration,
    /// Transfers that were started since the last pause, and those of them that have not ended.
    started: u32,
    in_flight: u32,
    cycle_start: Duration,
    cycle: [(u64, u64); 3],
}

/// A job that was slower than its `rate_min`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooSlow {
    pub(super) target: u64,
    pub(super) measured: u64,
    pub(super) unit: &'static str,
}

impl Pace {
    pub(super) fn new(job: &Job, start: Duration, seed: u64) -> Self {
        let has_rates = job.rate_bytes.iter().chain(&job.rate_iops).any(Option::is_some);
        Self {
            start,
            has_rates,
            due: [start; 3],
            random: Random::new(seed),
            think_until: start,
            started: 0,
            in_flight: 0,
            cycle_start: start,
            cycle: [(0, 0); 3],
        }
    }

    /// When a transfer of this direction may start.
    pub(super) fn due(&self, direction: usize) -> Duration {
        self.due[direction].max(self.think_until)
    }

    /// A transfer of so many bytes starts: when the next one of this direction is due.
    pub(super) fn started(&mut self, job: &Job, direction: usize, bytes: u64) {
        self.started = self.started.saturating_add(1);
        self.in_flight += 1;
        if !job.think_time.is_zero() && self.started >= job.think_every {
            // The pause begins when all have ended.
            self.think_until = Duration::MAX;
        }
        if !self.has_rates {
            return;
        }
        let by_bytes = job.rate_bytes[direction].map(|rate| bytes as f64 / rate as f64);
        let by_count = job.rate_iops[direction].map(|rate| 1.0 / rate as f64);
        let Some(interval) = by_bytes.into_iter().chain(by_count).reduce(f64::max) else { return };
        // Times between the events of a Poisson process are exponential.
        let factor = if job.is_poisson { -(1.0 - self.random.fraction()).ln() } else { 1.0 };
        self.due[direction] += Duration::from_secs_f64(interval * factor);
    }

    /// What was written has been read back meanwhile: the rates that it must have are those of its own transfers.
    pub(super) fn resume(&mut self, now: Duration) {
        (self.cycle_start, self.cycle) = (now, [(0, 0); 3]);
    }

    /// A transfer has ended, done or failed.
    pub(super) fn finished(&mut self, job: &Job, now: Duration) {
        self.in_flight -= 1;
        if self.in_flight == 0 && self.think_until == Duration::MAX {
            (self.started, self.think_until) = (0, now.saturating_add(job.think_time));
        }
    }

    /// A transfer of so many bytes was done.
    pub(super) fn ended(
        &mut self,
        job: &Job,
        direction: usize,
        bytes: u64,
        now: Duration,
    ) -> Result<(), TooSlow> {
        if job.rate_min.iter().chain(&job.rate_iops_min).all(Option::is_none) {
            return Ok(());
        }
        self.cycle[direction].0 += bytes;
        self.cycle[direction].1 += 1;
        let passed = now.saturating_sub(self.cycle_start);
        if passed < job.rate_cycle || now < self.start + job.ramp_time {
            return Ok(());
        }
        let (seconds, cycle) = (passed.as_secs_f64().max(1e-9), std::mem::take(&mut self.cycle));
        self.cycle_start = now;
        for (direction, (bytes, count)) in cycle.into_iter().enumerate() {
            let kinds = [(job.rate_min, bytes, "bytes"), (job.rate_iops_min, count, "transfers")];
            for (targets, amount, unit) in kinds {
                let measured = (amount as f64 / seconds) as u64;
                if let Some(target) =
                    targets[direction].filter(|target| measured < *target && does(job, direction))
                {
                    return Err(TooSlow { target, measured, unit });
                }
            }
        }
        Ok(())
    }
}

/// Whether the job has transfers of this direction.
fn does(job: &Job, direction: usize) -> bool {
    [job.pattern.reads(), job.pattern.writes(), job.pattern.trims()][direction]
}

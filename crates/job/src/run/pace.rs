//! When the next transfer may start: rates and pauses.

use std::time::Duration;

use crate::language::spec::Job;

/// Paces one worker. Times are from `diorite_block::sync::now`.
#[derive(Debug)]
pub(super) struct Pace {
    /// Due time of the next transfer of each direction.
    due: [Duration; 2],
    think_until: Duration,
    /// Transfers started since the last pause, and those in flight.
    started: u32,
    in_flight: u32,
}

impl Pace {
    pub(super) fn new(start: Duration) -> Self {
        Self { due: [start; 2], think_until: start, started: 0, in_flight: 0 }
    }

    /// Due time of a transfer of this direction.
    pub(super) fn due(&self, direction: usize) -> Duration {
        self.due[direction].max(self.think_until)
    }

    /// A transfer of `bytes` starts: set the due time of the next.
    pub(super) fn started(&mut self, job: &Job, direction: usize, bytes: u64) {
        self.started = self.started.saturating_add(1);
        self.in_flight += 1;
        if !job.think_time.is_zero() && self.started >= job.think_every {
            // The pause begins when nothing is in flight.
            self.think_until = Duration::MAX;
        }
        let by_bytes = job.rate_bytes[direction].map(|rate| bytes as f64 / rate as f64);
        let by_count = job.rate_iops[direction].map(|rate| 1.0 / rate as f64);
        if let Some(interval) = by_bytes.into_iter().chain(by_count).reduce(f64::max) {
            self.due[direction] += Duration::from_secs_f64(interval);
        }
    }

    /// A transfer has ended or failed.
    pub(super) fn finished(&mut self, job: &Job, now: Duration) {
        self.in_flight -= 1;
        if self.in_flight == 0 && self.think_until == Duration::MAX {
            (self.started, self.think_until) = (0, now.saturating_add(job.think_time));
        }
    }
}

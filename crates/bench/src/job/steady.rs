//! Jobs that end by what they find: when their rate has become steady, or when the depth that meets a latency is known.

use std::collections::VecDeque;
use std::time::Duration;

use super::spec::{LatencyTarget, SteadyState};

/// Length of a sample of the rate.
const SAMPLE: Duration = Duration::from_secs(1);

/// Watches a rate until it is steady.
#[derive(Debug)]
pub(super) struct Steadiness {
    state: SteadyState,
    started: Duration,
    sample_start: Duration,
    amount: f64,
    rates: VecDeque<f64>,
}

impl Steadiness {
    pub(super) fn new(state: SteadyState, start: Duration) -> Self {
        Self { state, started: start, sample_start: start, amount: 0.0, rates: VecDeque::new() }
    }

    /// So many bytes were moved in one transfer; whether the rate is steady now.
    pub(super) fn moved(&mut self, bytes: u64, now: Duration) -> bool {
        if now < self.started + self.state.ramp {
            self.sample_start = now;
            return false;
        }
        self.amount += if self.state.iops { 1.0 } else { bytes as f64 };
        let passed = now.saturating_sub(self.sample_start);
        if passed < SAMPLE {
            return false;
        }
        self.rates.push_back(std::mem::take(&mut self.amount) / passed.as_secs_f64());
        self.sample_start = now;
        let wanted = (self.state.duration.as_secs_f64() / SAMPLE.as_secs_f64()).ceil().max(2.0) as usize;
        while self.rates.len() > wanted {
            self.rates.pop_front();
        }
        self.rates.len() == wanted && self.variation() <= self.state.limit
    }

    /// How much the rates vary, in the unit of the limit.
    fn variation(&self) -> f64 {
        let count = self.rates.len() as f64;
        let mean = self.rates.iter().sum::<f64>() / count;
        let variation = if self.state.slope {
            // Least squares over the samples' numbers.
            let middle = (count - 1.0) / 2.0;
            let (mut with, mut alone) = (0.0, 0.0);
            for (index, rate) in self.rates.iter().enumerate() {
                let distance = index as f64 - middle;
                with += distance * (rate - mean);
                alone += distance * distance;
            }
            (with / alone).abs()
        } else {
            self.rates.iter().map(|rate| (rate - mean).abs()).fold(0.0, f64::max)
        };
        if self.state.is_percent { 100.0 * variation / mean.max(1e-9) } else { variation }
    }
}

/// Looks for the largest depth at which a latency is met, between one that meets it and one that does not.
#[derive(Debug)]
pub(super) struct DepthSearch {
    target: LatencyTarget,
    good: u32,
    bad: u32,
    depth: u32,
    window_start: Duration,
    transfers: u64,
    late: u64,
}

impl DepthSearch {
    pub(super) fn new(target: LatencyTarget, most: u32, start: Duration) -> Self {
        Self { target, good: 0, bad: most + 1, depth: most, window_start: start, transfers: 0, late: 0 }
    }

    /// How many may be in flight now.
    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    /// A transfer took so long; whether the search has ended.
    pub(super) fn took(&mut self, latency: Duration, now: Duration) -> bool {
        self.transfers += 1;
        self.late += u64::from(latency > self.target.target);
        let allowed = self.transfers as f64 * (1.0 - self.target.percentile / 100.0);
        if now.saturating_sub(self.window_start) < self.target.window {
            return false;
        }
        let is_met = self.late as f64 <= allowed;
        if is_met {
            self.good = self.depth;
        } else {
            self.bad = self.depth;
        }
        (self.transfers, self.late, self.window_start) = (0, 0, now);
        if self.bad - self.good <= 1 {
            self.depth = self.good.max(1);
            return true;
        }
        self.depth = self.good + (self.bad - self.good) / 2;
        false
    }

    /// The depth that was found; 0 if none meets the latency.
    pub(super) fn found(&self) -> u32 {
        self.good
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn a_rate_that_settles_is_steady() {
        for (iops, slope) in [(false, false), (false, true), (true, false), (true, true)] {
            let (duration, ramp) = (seconds(5), seconds(2));
            let state = SteadyState { iops, slope, limit: 1.0, is_percent: true, duration, ramp };
            let mut steady = Steadiness::new(state, seconds(0));
            // Falls for a while, then stays.
            let mut end = None;
            for tenth in 1..300u64 {
                let now = Duration::from_millis(tenth * 100);
                let count = 10 + 100u64.saturating_sub(tenth);
                if (0..count).map(|_| steady.moved(4096, now)).fold(false, |any, is| any | is) {
                    end = end.or(Some(tenth));
                }
            }
            let end = end.expect("it becomes steady");
            assert!((130..190).contains(&end), "{iops} {slope}: {end}");
        }
    }

    #[test]
    fn a_depth_is_found_by_halving() {
        // Each transfer takes as long as the queue is deep.
        for (milliseconds, expected) in [(20, 20), (64, 64), (1, 1), (0, 0), (100, 64)] {
            let target = LatencyTarget {
                target: Duration::from_millis(milliseconds),
                window: seconds(1),
                percentile: 99.0,
            };
            let mut search = DepthSearch::new(target, 64, seconds(0));
            let is_over = |search: &mut DepthSearch, window: u64| {
                let latency = Duration::from_millis(u64::from(search.depth()));
                (0..10).any(|tenth| {
                    search.took(latency, seconds(window) + Duration::from_millis(tenth * 101 + 99))
                })
            };
            assert!((0..20).any(|window| is_over(&mut search, window)));
            assert_eq!(search.found(), expected);
        }
    }
}

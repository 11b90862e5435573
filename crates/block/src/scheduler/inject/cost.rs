//! What injection costs the reader: its time for a byte, with and without.
//!
//! An interval is the time between two completions of one reader. Part of it lay in a quiet window, in which nothing is injected:
//! the clock decides that, not the drive. Least squares over recent intervals, each weighed by its bytes, fit
//! `time per byte = alone + cost * (share that was not quiet)`; so intervals need not be wholly quiet, and an interval that was
//! long for another reason (and so saw more injections) does not accuse injection.

use std::time::Duration;

use crate::TaskId;

/// An interval longer than this and three times what is usual is a trip of the arm (to destage, or to another file). Trips are
/// accounted apart: rare ones are part of what a write beside a reader costs.
const TRIP: f64 = 0.004;
/// Completions this close together are one.
const BURST: Duration = Duration::from_micros(100);
/// Once this many seconds have been measured, older ones lose half their weight.
const MEMORY: f64 = 1.5;
/// No judgement on less than this.
const LEAST: f64 = 0.2;
/// No judgement by trips on less than this.
const LEAST_FOR_TRIPS: f64 = 0.8;

/// A reader's completions that came at once.
#[derive(Clone, Copy, Debug)]
struct Burst {
    task: TaskId,
    ended: Duration,
    quiet_so_far: Duration,
    /// Time since the burst before, and how much of it was quiet, if that was the same reader's.
    took: Option<(Duration, Duration)>,
    bytes: u64,
}

/// Decaying sums of the intervals; bytes in units of 10^6.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    bytes: f64,
    /// Share not quiet, times bytes.
    open: f64,
    open_open: f64,
    time: f64,
    time_open: f64,
    trips: f64,
}

/// The measurement.
#[derive(Clone, Debug, Default)]
pub(super) struct InjectionCost {
    burst: Option<Burst>,
    /// Since when nothing has been injected, and how long all such times before took.
    quiet_since: Option<Duration>,
    quiet_before: Duration,
    sums: Sums,
}

impl InjectionCost {
    /// Nothing is injected from now on.
    pub(super) fn quiet(&mut self, now: Duration) {
        self.quiet_since.get_or_insert(now);
    }

    /// Something is injected now. Returns how long nothing was.
    pub(super) fn open(&mut self, now: Duration) -> Duration {
        let length = self.quiet_since.take().map_or(Duration::ZERO, |since| now.saturating_sub(since));
        self.quiet_before += length;
        length
    }

    /// Another one was served: the time until the reader's next request is not its own.
    pub(super) fn interrupt(&mut self) {
        self.burst = None;
    }

    fn quiet_until(&self, now: Duration) -> Duration {
        self.quiet_before + self.quiet_since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    /// A reader's request has completed. Says whether it finished an interval.
    pub(super) fn read_completed(&mut self, task: TaskId, bytes: u64, now: Duration) -> bool {
        if let Some(burst) = self.burst.as_mut().filter(|burst| burst.task == task)
            && now.saturating_sub(burst.ended) < BURST
        {
            burst.bytes += bytes;
            return false;
        }
        let quiet_so_far = self.quiet_until(now);
        let finished = self.burst.take();
        let since =
            |burst: Burst| (now.saturating_sub(burst.ended), quiet_so_far.saturating_sub(burst.quiet_so_far));
        let took = finished.filter(|burst| burst.task == task).map(since);
        self.burst = Some(Burst { task, ended: now, quiet_so_far, took, bytes });
        finished.is_some_and(|burst| self.add(burst))
    }

    fn add(&mut self, burst: Burst) -> bool {
        let Some((took, quiet)) = burst.took else { return false };
        let (took, bytes) = (took.as_secs_f64(), burst.bytes as f64 / 1e6);
        let open = 1.0 - (quiet.as_secs_f64() / took.max(1e-9)).clamp(0.0, 1.0);
        let sums = &mut self.sums;
        let usual = if sums.bytes > 0.0 { bytes * sums.time / sums.bytes } else { took };
        if took > TRIP + 3.0 * usual {
            sums.trips += took - usual;
            return true;
        }
        sums.bytes += bytes;
        sums.open += bytes * open;
        sums.open_open += bytes * open * open;
        sums.time += took;
        sums.time_open += took * open;
        if sums.time > MEMORY {
            let Sums { bytes, open, open_open, time, time_open, trips } = sums;
            for sum in [bytes, open, open_open, time, time_open, trips] {
                *sum /= 2.0;
            }
        }
        true
    }

    /// Share of the reader's time that injection takes, 0 to 1; none while it cannot be estimated.
    pub(super) fn loss(&self) -> Option<f64> {
        let sums = &self.sums;
        let by_trips =
            (sums.time + sums.trips > LEAST_FOR_TRIPS).then(|| sums.trips / (sums.time + sums.trips));
        let by_rate = self.loss_of_rate();
        match (by_rate, by_trips) {
            (Some(rate), trips) => Some(rate.max(trips.unwrap_or(0.0))),
            (None, trips) => trips.filter(|trips| *trips > 0.5),
        }
    }

    fn loss_of_rate(&self) -> Option<f64> {
        let sums = &self.sums;
        let spread = sums.bytes * sums.open_open - sums.open * sums.open;
        if sums.time < LEAST || spread < 0.005 * sums.bytes * sums.bytes {
            return None;
        }
        let cost = (sums.bytes * sums.time_open - sums.open * sums.time) / spread;
        let alone = (sums.time - cost * sums.open) / sums.bytes;
        Some((cost / (alone + cost).max(1e-9)).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// A reader whose intervals of 2 MB take 14 ms, and longer by `loss` outside quiet windows of 8 ms.
    fn measured(loss: f64) -> f64 {
        let (mut cost, mut now) = (InjectionCost::default(), Duration::ZERO);
        for interval in 0..60u32 {
            let open = if interval % 5 == 0 { 0.45 } else { 1.0 };
            let took = Duration::from_secs_f64(0.014 * (1.0 - open + open / (1.0 - loss)));
            if interval % 5 == 0 {
                cost.quiet(now);
                cost.open(now + took.mul_f64(1.0 - open));
            }
            now += took;
            for _ in 0..4 {
                cost.read_completed(TaskId(1), 500_000, now);
            }
        }
        cost.loss().expect("measured")
    }

    #[test]
    fn cost_is_found_in_intervals_that_are_never_wholly_quiet() {
        assert!(measured(0.0) < 0.01);
        let loss = measured(0.3);
        assert!((0.2..0.4).contains(&loss), "{loss}");
    }

    /// A stream of 1 ms an interval, and every so often one of `trip`.
    fn with_trips(every: u32, trip: Duration) -> Option<f64> {
        let (mut cost, mut now) = (InjectionCost::default(), Duration::ZERO);
        for step in 0..1500u32 {
            if step % 50 == 0 {
                cost.quiet(now);
                cost.open(now + ms(8));
            }
            now += if step % every == every - 1 { trip } else { ms(1) };
            cost.read_completed(TaskId(1), 131_072, now);
        }
        cost.loss()
    }

    #[test]
    fn rare_trips_are_no_cost_and_frequent_ones_are() {
        assert!(with_trips(700, ms(65)).is_some_and(|loss| loss < 0.12));
        assert!(with_trips(4, ms(9)).is_some_and(|loss| loss > 0.3), "a lost turn for every fourth read");
    }
}

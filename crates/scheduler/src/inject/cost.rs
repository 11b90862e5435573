//! The cost of an injected write to the stream in service.
//!
//! An interval is the time between two completions of one stream. Part of it lies in a quiet window without injection: the clock
//! decides that, not the drive. Least squares over recent intervals, weighted by bytes, fit
//! `time per byte = alone + slope * (share that was not quiet)`, and the same for injected writes per byte. The cost of a write is the
//! ratio of the slopes. So intervals need not be wholly quiet, and an interval that was long for another reason (and so saw more
//! writes) does not bias the cost: the windows are an instrumental variable. A slope below twice its standard error counts as zero.

use std::time::Duration;

use diorite_block::TaskId;

/// An interval counts at most this much beyond the usual time: some revolutions. Writing out the drive's cache takes longer, and is
/// charged with each write.
const BEYOND_MOST: f64 = 0.025;
/// Completions this close together count as one.
const BURST: Duration = Duration::from_micros(100);
/// After this many measured seconds, older ones lose half their weight.
const MEMORY: f64 = 3.0;
/// Least measured seconds, and least intervals, of an estimate.
const LEAST: f64 = 0.2;
const LEAST_INTERVALS: f64 = 8.0;

/// Completions of a stream at one time.
#[derive(Clone, Copy, Debug)]
struct Burst {
    task: TaskId,
    ended: Duration,
    quiet_so_far: Duration,
    injected_so_far: u64,
    /// Time since the previous burst, its quiet part, and the writes injected, if that burst was of the same stream.
    took: Option<(Duration, Duration, u64)>,
    bytes: u64,
}

/// Decaying sums over the intervals, in units of 10^6 bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: f64,
    bytes: f64,
    /// Share not quiet, times bytes.
    open: f64,
    open_open: f64,
    time: f64,
    time_open: f64,
    /// Time squared, by bytes.
    time_time: f64,
    writes: f64,
    writes_open: f64,
}

/// The measurement.
#[derive(Clone, Debug, Default)]
pub(super) struct InjectionCost {
    burst: Option<Burst>,
    /// When injection last stopped, and the sum of earlier quiet times.
    quiet_since: Option<Duration>,
    quiet_before: Duration,
    injected: u64,
    sums: Sums,
}

impl InjectionCost {
    /// Injection stops now.
    pub(super) fn quiet(&mut self, now: Duration) {
        self.quiet_since.get_or_insert(now);
    }

    /// A write is injected now. Returns the length of the quiet time before it.
    pub(super) fn inject(&mut self, now: Duration) -> Duration {
        self.injected += 1;
        let length = self.quiet_since.take().map_or(Duration::ZERO, |since| now.saturating_sub(since));
        self.quiet_before += length;
        length
    }

    /// Another flow was served: the time until the stream's next completion is not its own.
    pub(super) fn interrupt(&mut self) {
        self.burst = None;
    }

    fn quiet_until(&self, now: Duration) -> Duration {
        self.quiet_before + self.quiet_since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    /// A stream's request has completed. Returns whether it finished an interval.
    pub(super) fn stream_completed(&mut self, task: TaskId, bytes: u64, now: Duration) -> bool {
        if let Some(burst) = self.burst.as_mut().filter(|burst| burst.task == task)
            && now.saturating_sub(burst.ended) < BURST
        {
            burst.bytes += bytes;
            return false;
        }
        let (quiet_so_far, injected_so_far) = (self.quiet_until(now), self.injected);
        let finished = self.burst.take();
        let since = |burst: Burst| {
            let quiet = quiet_so_far.saturating_sub(burst.quiet_so_far);
            (now.saturating_sub(burst.ended), quiet, injected_so_far - burst.injected_so_far)
        };
        let took = finished.filter(|burst| burst.task == task).map(since);
        self.burst = Some(Burst { task, ended: now, quiet_so_far, injected_so_far, took, bytes });
        finished.is_some_and(|burst| self.add(burst))
    }

    fn add(&mut self, burst: Burst) -> bool {
        let Some((took, quiet, writes)) = burst.took else { return false };
        let (took, bytes, writes) = (took.as_secs_f64(), burst.bytes as f64 / 1e6, writes as f64);
        let open = 1.0 - (quiet.as_secs_f64() / took.max(1e-9)).clamp(0.0, 1.0);
        let sums = &mut self.sums;
        let usual = if sums.bytes > 0.0 { bytes * sums.time / sums.bytes } else { took };
        let took = took.min(usual + BEYOND_MOST);
        sums.count += 1.0;
        sums.bytes += bytes;
        sums.open += bytes * open;
        sums.open_open += bytes * open * open;
        sums.time += took;
        sums.time_open += took * open;
        sums.time_time += took * took / bytes;
        sums.writes += writes;
        sums.writes_open += writes * open;
        if sums.time > MEMORY {
            let Sums { count, bytes, open, open_open, time, time_open, time_time, writes, writes_open } =
                sums;
            for sum in [count, bytes, open, open_open, time, time_open, time_time, writes, writes_open] {
                *sum /= 2.0;
            }
        }
        true
    }

    /// Seconds that an injected write costs a stream, if they can be estimated.
    pub(super) fn of_write(&self) -> Option<f64> {
        let sums = &self.sums;
        let spread = sums.bytes * sums.open_open - sums.open * sums.open;
        if sums.time < LEAST || sums.count < LEAST_INTERVALS || spread < 0.001 * sums.bytes * sums.bytes {
            return None;
        }
        let slope = (sums.bytes * sums.time_open - sums.open * sums.time) / spread;
        let writes = (sums.bytes * sums.writes_open - sums.open * sums.writes) / spread;
        let alone = (sums.time - slope * sums.open) / sums.bytes;
        let unexplained = sums.time_time - alone * sums.time - slope * sums.time_open;
        let variance = unexplained.max(0.0) / (sums.count - 2.0);
        let error = (variance * sums.bytes / spread).sqrt();
        let is_sure = slope > 2.0 * error;
        (writes > 0.0).then(|| if is_sure { slope / writes } else { 0.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream with intervals of 2 MB, 14 ms and `cost` per write. Writes come once per millisecond outside quiet windows of
    /// 8 ms. Some intervals are longer by `noise` and see more writes.
    fn measured(cost: f64, noise: f64) -> f64 {
        let (mut measurement, mut now) = (InjectionCost::default(), Duration::ZERO);
        for interval in 0..400u32 {
            let is_quiet = interval % 5 == 0;
            let alone = 0.014 + if interval % 7 == 3 { noise } else { 0.0 };
            let writes = ((alone - if is_quiet { 0.008 } else { 0.0 }) * 1000.0) as u32;
            if is_quiet {
                measurement.quiet(now);
            }
            for write in 0..writes {
                let wait = if is_quiet { 0.008 } else { 0.0 };
                measurement.inject(now + Duration::from_secs_f64(wait + f64::from(write) * 0.001));
            }
            now += Duration::from_secs_f64(alone + cost * f64::from(writes));
            for _ in 0..4 {
                measurement.stream_completed(TaskId(1), 500_000, now);
            }
        }
        measurement.of_write().expect("measured")
    }

    #[test]
    fn cost_is_found_in_intervals_that_are_never_wholly_quiet() {
        assert!(measured(0.0, 0.0) < 1e-6);
        let cost = measured(0.000_4, 0.0);
        assert!((0.000_3..0.000_5).contains(&cost), "{cost}");
        let cost = measured(0.008, 0.0);
        assert!((0.006..0.010).contains(&cost), "{cost}");
    }

    /// A short measurement with intervals that were long by chance blamed the writes, and injection stopped.
    #[test]
    fn chance_does_not_accuse_writes() {
        assert!(measured(0.0, 0.008) < 0.000_05);
        let cost = measured(0.000_4, 0.004);
        assert!((0.000_2..0.000_5).contains(&cost), "{cost}");
    }
}

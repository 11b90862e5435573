//! Running totals of one kind of work, and how long it took.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Two buckets for each power of two microseconds, up to 24 hours.
const BUCKETS: usize = 74;

/// Totals at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Requests.
    pub operations: u64,
    /// Bytes of data.
    pub bytes: u64,
    /// Their latencies.
    pub latencies: Latencies,
}

/// Latencies of requests, from receipt to reply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies {
    /// Microseconds of all together.
    pub sum_us: u64,
    /// Requests by duration: element `i` counts those below 2^((i+1)/2) microseconds (for an odd `i`; 3 * 2^(i/2-1) for an even one)
    /// that no earlier one counts.
    pub counts: Vec<u64>,
}

impl Totals {
    /// Count a request that moved `bytes`.
    pub(super) fn record(&mut self, bytes: u64, took: Duration) {
        let us = took.as_micros() as u64;
        let (bucket, latencies) = (bucket(us), &mut self.latencies);
        latencies.counts.resize(latencies.counts.len().max(bucket + 1), 0);
        latencies.counts[bucket] += 1;
        latencies.sum_us += us;
        self.operations += 1;
        self.bytes += bytes;
    }

    /// The difference of `self` and `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let counted = |index: usize| earlier.latencies.counts.get(index).copied().unwrap_or(0);
        let counts = self.latencies.counts.iter().enumerate();
        Self {
            operations: self.operations.saturating_sub(earlier.operations),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            latencies: Latencies {
                sum_us: self.latencies.sum_us.saturating_sub(earlier.latencies.sum_us),
                counts: counts.map(|(index, count)| count.saturating_sub(counted(index))).collect(),
            },
        }
    }

    /// Add the other totals. They may come from another program, and have any value.
    pub fn add(&mut self, other: &Self) {
        self.operations = self.operations.saturating_add(other.operations);
        self.bytes = self.bytes.saturating_add(other.bytes);
        let (mine, theirs) = (&mut self.latencies, &other.latencies);
        mine.sum_us = mine.sum_us.saturating_add(theirs.sum_us);
        mine.counts.resize(mine.counts.len().max(theirs.counts.len()), 0);
        mine.counts
            .iter_mut()
            .zip(&theirs.counts)
            .for_each(|(mine, theirs)| *mine = mine.saturating_add(*theirs));
    }

    /// The mean time of one.
    pub fn mean(&self) -> Duration {
        Duration::from_micros(self.latencies.sum_us.checked_div(self.operations).unwrap_or(0))
    }
}

impl Latencies {
    /// The time below which `percent` of all are; up to one half too high. Zero without requests.
    pub fn percentile(&self, percent: f64) -> Duration {
        let counts = self.counts.iter().take(BUCKETS);
        let total = counts.clone().fold(0, |total: u64, count| total.saturating_add(*count));
        let rank = ((percent / 100.0 * total as f64).ceil() as u64).max(1);
        let mut below = 0_u64;
        for (index, count) in counts.enumerate() {
            below = below.saturating_add(*count);
            if below >= rank {
                return Duration::from_micros(upper_us(index));
            }
        }
        Duration::ZERO
    }
}

/// The bucket of a time: one below 1 microsecond is in the first.
fn bucket(us: u64) -> usize {
    let us = us.max(1);
    let octave = us.ilog2();
    let is_upper_half = octave > 0 && us >> (octave - 1) & 1 == 1;
    (2 * octave as usize + usize::from(is_upper_half)).min(BUCKETS - 1)
}

/// The upper bound of the times of a bucket.
fn upper_us(bucket: usize) -> u64 {
    let octave = bucket as u32 / 2;
    match (bucket % 2, octave) {
        (_, 0) => 2,
        (0, octave) => 3 << (octave - 1),
        (_, octave) => 2 << octave,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_below_the_bound_of_its_bucket_and_not_below_the_one_before() {
        for us in (1..5000).chain([1 << 20, 3 << 20, (1 << 36) - 1]) {
            let index = bucket(us);
            assert!(us < upper_us(index), "{us}");
            assert!(index < 2 || us >= upper_us(index - 1), "{us}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    /// Figures of another program overflowed, which ended `diorite top`.
    #[test]
    fn any_figures_are_added_and_shown() {
        let latencies = Latencies { sum_us: u64::MAX, counts: vec![u64::MAX; 300] };
        let mut all = Totals { operations: u64::MAX, bytes: u64::MAX, latencies };
        all.add(&all.clone());
        assert_eq!((all.operations, all.bytes, all.latencies.counts[299]), (u64::MAX, u64::MAX, u64::MAX));
        assert!(all.latencies.percentile(100.0) > Duration::ZERO);
        let high = Latencies { counts: [vec![0; 299], vec![1]].concat(), sum_us: 0 };
        assert_eq!(high.percentile(50.0), Duration::ZERO);
    }

    #[test]
    fn differences_have_percentiles_of_their_own() {
        let mut totals = Totals::default();
        (0..100).for_each(|_| totals.record(10, Duration::from_millis(50)));
        let earlier = totals.clone();
        (0..99).for_each(|_| totals.record(10, Duration::from_micros(100)));
        totals.record(10, Duration::from_secs(1));
        let between = totals.since(&earlier);
        assert_eq!((between.operations, between.bytes), (100, 1000));
        assert_eq!(between.latencies.percentile(50.0), Duration::from_micros(128));
        assert!(between.latencies.percentile(100.0) > Duration::from_secs(1));
        assert_eq!(between.mean(), Duration::from_micros(10_099));
        let mut sum = earlier.clone();
        sum.add(&between);
        assert_eq!(sum, totals);
        assert_eq!(Totals::default().latencies.percentile(99.0), Duration::ZERO);
    }
}

//! Count, extremes, mean and deviation of times.

use serde_json::{Value, json};

/// Count, extremes, mean and deviation of times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    count: u64,
    min_ns: u64,
    max_ns: u64,
    mean_ns: f64,
    /// Sum of squared distances from the mean.
    spread: f64,
}

impl Moments {
    /// Add one time.
    pub(crate) fn record(&mut self, ns: u64) {
        self.min_ns = if self.count == 0 { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.count += 1;
        let distance = ns as f64 - self.mean_ns;
        self.mean_ns += distance / self.count as f64;
        self.spread += distance * (ns as f64 - self.mean_ns);
    }

    /// Add the records of another one.
    pub(crate) fn add(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = *other;
            return;
        }
        let (mine, theirs) = (self.count as f64, other.count as f64);
        let distance = other.mean_ns - self.mean_ns;
        self.mean_ns += distance * theirs / (mine + theirs);
        self.spread += other.spread + distance * distance * mine * theirs / (mine + theirs);
        self.count += other.count;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Recorded times.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Least, largest, mean and standard deviation, in nanoseconds; zeros without times.
    pub fn summary(&self) -> (f64, f64, f64, f64) {
        let deviation = (self.spread / self.count.max(1) as f64).sqrt();
        (self.min_ns as f64, self.max_ns as f64, self.mean_ns, deviation)
    }

    /// fio's object for them.
    pub(super) fn json(&self) -> Value {
        let (_, _, mean, stddev) = self.summary();
        json!({ "min": self.min_ns, "max": self.max_ns, "mean": mean, "stddev": stddev, "N": self.count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_parts_are_those_of_the_whole() {
        let times = [900u64, 3, 17, 17, 250_000, 42, 8];
        let mut whole = Moments::default();
        for ns in times {
            whole.record(ns);
        }
        let (mut left, mut right) = (Moments::default(), Moments::default());
        for (index, ns) in times.into_iter().enumerate() {
            if index < 3 { left.record(ns) } else { right.record(ns) }
        }
        left.add(&Moments::default());
        left.add(&right);
        let mean = times.iter().sum::<u64>() as f64 / 7.0;
        let deviation = (times.iter().map(|ns| (*ns as f64 - mean).powi(2)).sum::<f64>() / 7.0).sqrt();
        for moments in [whole, left] {
            let (min, max, got_mean, got_deviation) = moments.summary();
            assert_eq!((moments.count(), min, max), (7, 3.0, 250_000.0));
            assert!((got_mean - mean).abs() < 1e-6 && (got_deviation - deviation).abs() < 1e-6);
        }
    }
}

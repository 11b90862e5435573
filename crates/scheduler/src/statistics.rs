//! Statistics per owner: operations, bytes, waiting and service times.
//!
//! Where it sits: in every scheduler. Memory is bounded: beyond [`MAX_OWNERS`] owners
//! all further ones share the record of task `u64::MAX`.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::time::Duration;

use diorite_block::{NumberHasher, Op, TaskId};

/// Most owners with a record of their own.
pub const MAX_OWNERS: usize = 4096;

/// 30 years: a longer duration counts as this.
const LONGEST_NS: u64 = 1_000_000_000_000_000_000;

/// A histogram of durations. A percentile is at most a tenth off; mean and maximum are exact.
#[derive(Clone)]
pub struct Histogram {
    nanoseconds: hdrhistogram::Histogram<u32>,
    sum_ns: u64,
    max_ns: u64,
}

diorite_block::short_debug!(Histogram, max_ns);

impl Default for Histogram {
    fn default() -> Self {
        let nanoseconds = hdrhistogram::Histogram::new(1).expect("a valid precision");
        Self { nanoseconds, sum_ns: 0, max_ns: 0 }
    }
}

impl Histogram {
    /// Add one duration.
    pub fn record(&mut self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).min(LONGEST_NS);
        self.nanoseconds.record(ns).expect("the histogram grows");
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Durations recorded.
    pub fn count(&self) -> u64 {
        self.nanoseconds.len()
    }

    /// The longest.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns)
    }

    /// The mean.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.sum_ns.checked_div(self.count()).unwrap_or(0))
    }

    /// The duration of a percentile.
    pub fn percentile(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.nanoseconds.value_at_quantile(percent / 100.0)).min(self.max())
    }
}

/// Service of one owner.
#[derive(Clone, Debug, Default)]
pub struct OwnerStatistics {
    /// Requests completed.
    pub completed: u64,
    /// Requests that joined another one.
    pub merged: u64,
    /// Bytes read, counted at dispatch.
    pub read_bytes: u64,
    /// Bytes written, counted at dispatch.
    pub write_bytes: u64,
    /// From arrival to dispatch.
    pub wait: Histogram,
    /// From dispatch to completion.
    pub service: Histogram,
}

impl OwnerStatistics {
    /// Bytes in both directions.
    pub fn bytes(&self) -> u64 {
        self.read_bytes + self.write_bytes
    }
}

/// Index of an owner's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record(u32);

/// One record for each owner.
#[derive(Clone, Default)]
pub struct Statistics {
    by_task: HashMap<TaskId, Record, BuildHasherDefault<NumberHasher>>,
    records: Vec<(TaskId, OwnerStatistics)>,
}

diorite_block::short_debug!(Statistics);

impl Statistics {
    /// The owners in the order in which they first appeared.
    pub fn owners(&self) -> impl Iterator<Item = (TaskId, &OwnerStatistics)> {
        self.records.iter().map(|(task, owner)| (*task, owner))
    }

    /// One owner's record.
    pub fn owner(&self, task: TaskId) -> Option<&OwnerStatistics> {
        self.by_task.get(&task).map(|record| &self.records[record.0 as usize].1)
    }

    pub(super) fn record_of(&mut self, task: TaskId) -> Record {
        if let Some(record) = self.by_task.get(&task) {
            return *record;
        }
        let task = if self.records.len() >= MAX_OWNERS { TaskId(u64::MAX) } else { task };
        let records = &mut self.records;
        *self.by_task.entry(task).or_insert_with(|| {
            records.push((task, OwnerStatistics::default()));
            Record(records.len() as u32 - 1)
        })
    }

    pub(super) fn merged(&mut self, task: TaskId) {
        let record = self.record_of(task);
        self.records[record.0 as usize].1.merged += 1;
    }

    pub(super) fn dispatched(&mut self, record: Record, op: Op, bytes: u64, wait: Duration) {
        let owner = &mut self.records[record.0 as usize].1;
        if op.is_write() {
            owner.write_bytes += bytes;
        } else {
            owner.read_bytes += bytes;
        }
        owner.wait.record(wait);
    }

    pub(super) fn completed(&mut self, record: Record, service: Duration) {
        let owner = &mut self.records[record.0 as usize].1;
        owner.completed += 1;
        owner.service.record(service);
    }

    /// One line for each of the busiest owners.
    pub(super) fn describe(&self) -> String {
        use std::fmt::Write;
        let mut busiest: Vec<_> = self.owners().collect();
        busiest.sort_by_key(|(task, owner)| (std::cmp::Reverse(owner.bytes()), *task));
        let mut text = String::new();
        for (task, owner) in busiest.iter().take(16) {
            let _ = writeln!(
                text,
                "  {}: {} requests ({} merged), read {} KiB, written {} KiB, wait p50 {:?} p99 {:?} max {:?}, \
                 service p50 {:?} max {:?}",
                task,
                owner.completed,
                owner.merged,
                owner.read_bytes / 1024,
                owner.write_bytes / 1024,
                owner.wait.percentile(50.0),
                owner.wait.percentile(99.0),
                owner.wait.max(),
                owner.service.percentile(50.0),
                owner.service.max(),
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_at_most_a_tenth_off() {
        let mut histogram = Histogram::default();
        for us in 1..=10_000u64 {
            histogram.record(Duration::from_micros(us));
        }
        for (percent, exact) in [(50.0, 5000.0), (90.0, 9000.0), (99.0, 9900.0)] {
            let got = histogram.percentile(percent).as_secs_f64() * 1e6;
            assert!((exact * 0.9..exact * 1.1).contains(&got), "{percent}: {got}");
        }
        assert_eq!(histogram.max(), Duration::from_millis(10));
        assert_eq!(histogram.count(), 10_000);
    }

    #[test]
    fn empty_and_extreme_durations_do_no_harm() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(99.0), Duration::ZERO);
        histogram.record(Duration::MAX);
        histogram.record(Duration::ZERO);
        assert!(histogram.percentile(100.0) > Duration::from_secs(3600));
    }

    #[test]
    fn owners_are_bounded() {
        let mut statistics = Statistics::default();
        for task in 0..10_000 {
            statistics.record_of(TaskId(task));
        }
        assert_eq!(statistics.owners().count(), MAX_OWNERS + 1);
    }
}

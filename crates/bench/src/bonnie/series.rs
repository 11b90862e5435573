//! Runs of a test as a row: sums of times, medians of rates.

use super::Test;
use super::target::TargetCounts;
use crate::measure::{Latencies, Spent, median};
use crate::rows::{CpuScope, Engine, Mode, Row};

/// Cost of one run of a test.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The test.
    pub test: Test,
    /// Bytes moved.
    pub bytes: u64,
    /// Operations: characters, chunks, or seeks.
    pub operations: u64,
    /// Time and CPU time.
    pub spent: Spent,
    /// Latency of block transfers and seeks.
    pub latencies: Latencies,
    /// Counters of the layers below.
    pub counts: Option<TargetCounts>,
    /// Resident memory afterwards.
    pub memory_bytes: u64,
}

impl Sample {
    /// Throughput in 10^6 bytes a second.
    pub fn mb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.spent.seconds.max(1e-9)
    }
}

/// All runs of a test.
#[derive(Clone, Debug, Default)]
pub struct Series {
    samples: Vec<Sample>,
}

impl Series {
    /// Add a run.
    pub fn push(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    /// The runs.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// All runs as one row; `None` without a run. Rates are medians over the runs. The machine's CPU time is too coarse for
    /// one run, so its figures are sums over all.
    pub fn row(&self, engine: Engine, mode: Mode) -> Option<Row> {
        let first = self.samples.first()?;
        let mut spent = Spent::default();
        let mut latencies = Latencies::default();
        let mut bytes = 0;
        for sample in &self.samples {
            spent += sample.spent;
            latencies.add(&sample.latencies);
            bytes += sample.bytes;
        }
        let mut row = Row::new(engine, mode, first.test.name(), bytes, spent.seconds);
        row.rounds = Some(self.samples.len() as u32).filter(|rounds| *rounds > 1);
        row.latency_us = latencies.summary();
        row.bios = self.sum(|counts| counts.bios);
        row.bytes_copied = self.sum(|counts| counts.bytes_copied);
        row.memory_bytes =
            self.samples.iter().map(|sample| sample.memory_bytes).max().filter(|bytes| *bytes > 0);
        if row.is_too_short() || bytes == 0 {
            return Some(row);
        }
        let rates: Vec<f64> = self.samples.iter().map(Sample::mb_per_s).collect();
        let cpu = spent.cpu_s_machine();
        row.mb_per_s = Some(median(&rates));
        if rates.len() > 1 {
            let low = rates.iter().copied().fold(f64::INFINITY, f64::min);
            let high = rates.iter().copied().fold(0.0, f64::max);
            row.mb_per_s_range = Some((low, high));
        }
        row.ops_per_s = Some(median(
            &self.samples.iter().map(|s| s.operations as f64 / s.spent.seconds.max(1e-9)).collect::<Vec<_>>(),
        ));
        row.cpu_scope = Some(CpuScope::Machine);
        row.cpu_percent = Some(100.0 * cpu / spent.seconds);
        row.cpu_s_per_gb = Some(cpu * 1e9 / bytes as f64);
        row.cpu_s_process = Some(spent.cpu_s_process);
        row.cpu_s_machine = Some(cpu);
        Some(row)
    }

    fn sum(&self, field: impl Fn(&TargetCounts) -> u64) -> Option<u64> {
        self.samples.iter().map(|sample| sample.counts.as_ref().map(&field)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seconds: f64, bytes: u64) -> Sample {
        Sample {
            test: Test::BlockRead,
            bytes,
            operations: bytes / 1_000_000,
            spent: Spent::alone(seconds, seconds / 5.0),
            latencies: Latencies::default(),
            counts: Some(TargetCounts { bios: 3, bytes_copied: 0 }),
            memory_bytes: 1,
        }
    }

    #[test]
    fn median_is_the_middle() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(&[]).abs() < 1e-9);
    }

    #[test]
    fn row_takes_medians_of_rates_and_sums_of_time() {
        let mut series = Series::default();
        for seconds in [1.0, 2.0, 10.0] {
            series.push(sample(seconds, 100_000_000));
        }
        let row = series.row(Engine::Host, Mode::Direct).unwrap();
        assert_eq!(
            (row.rounds, row.bytes, row.bios, row.bytes_copied),
            (Some(3), 300_000_000, Some(9), Some(0))
        );
        assert!((row.mb_per_s.unwrap() - 50.0).abs() < 1e-9 && (row.seconds - 13.0).abs() < 1e-9);
        assert!((row.cpu_percent.unwrap() - 20.0).abs() < 1e-9);
        assert!((row.cpu_s_per_gb.unwrap() - 2.6 / 0.3).abs() < 1e-9);
    }

    /// A row that is too short has no rates.
    #[test]
    fn short_row_has_no_rates() {
        let mut series = Series::default();
        series.push(sample(0.4, 100_000_000));
        let row = series.row(Engine::Host, Mode::Direct).unwrap();
        assert!(row.is_too_short());
        assert_eq!(
            (row.mb_per_s, row.ops_per_s, row.cpu_percent, row.cpu_s_per_gb),
            (None, None, None, None)
        );
    }
}

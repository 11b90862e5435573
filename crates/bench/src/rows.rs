//! The result of a measurement: rows, verdicts, and the object that `--json` prints.
//!
//! Invariants:
//! 1. A figure that does not apply to a row is absent from its JSON, never zero.
//! 2. A row that is too short to be accurate has no rates and no CPU figures ([`Row::is_too_short`]).

use std::fmt;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// Shorter measurements are shown as `+++++`, never as a number.
pub const SHORTEST_SECONDS: f64 = 0.5;

/// The stack that moved the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// The host's kernel, on its own filesystem.
    #[default]
    Host,
    /// Diorite, on an image or a device.
    Diorite,
    /// A device without a filesystem.
    Raw,
    /// Diorite on a simulated disk.
    Sim,
}

/// The path of the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Through a cache without the file.
    #[default]
    Buffered,
    /// Through a cache with the file.
    BufferedWarm,
    /// Between the disk and the caller's memory.
    Direct,
    /// As `Direct`, with several transfers in flight; the program of 2001 had one.
    DirectInFlight,
    /// To a device, through the page cache if the device's file uses it.
    Raw,
    /// Through the cache, without the copy to the caller.
    Nocopy,
}

/// As in JSON.
impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// As in JSON.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Latency of single operations, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyUs {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p99_9: f64,
    /// 99.99th percentile.
    pub p99_99: f64,
    /// Maximum.
    pub max: f64,
}

impl LatencyUs {
    /// Of times in nanoseconds.
    pub fn of(nanoseconds: &Histogram<u64>) -> Self {
        let at = |quantile| nanoseconds.value_at_quantile(quantile) as f64 / 1000.0;
        Self {
            mean: nanoseconds.mean() / 1000.0,
            p50: at(0.5),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: nanoseconds.max() as f64 / 1000.0,
        }
    }
}

/// One test of one engine in one mode.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The stack that moved the data.
    pub engine: Engine,
    /// The path of the data.
    pub mode: Mode,
    /// The test, for instance `block_write`.
    pub test: String,
    /// Requested bytes of all rounds.
    pub bytes: u64,
    /// Time of all rounds.
    pub seconds: f64,
    /// Number of rounds; rates are their medians.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// Throughput, in 10^6 bytes a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mb_per_s: Option<f64>,
    /// Smallest and largest throughput of a round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mb_per_s_range: Option<(f64, f64)>,
    /// Operations a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ops_per_s: Option<f64>,
    /// CPU time per elapsed time, 100 for one CPU; of the scope `cpu_scope`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<f64>,
    /// CPU seconds per 10^9 bytes, of the same scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s_per_gb: Option<f64>,
    /// Whose CPU time `cpu_percent` and `cpu_s_per_gb` are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_scope: Option<CpuScope>,
    /// CPU seconds of this process, kernel included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s_process: Option<f64>,
    /// CPU seconds of the whole machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s_machine: Option<f64>,
    /// Latency of single operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<LatencyUs>,
    /// Bios submitted to the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bios: Option<u64>,
    /// Bytes of file data that the CPU copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_copied: Option<u64>,
    /// Resident memory of the process after the test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// Whose CPU time a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuScope {
    /// This process, in user and kernel mode, its kernel workers included.
    Process,
    /// Every CPU of the machine, with kernel threads for writeback and with interrupts.
    Machine,
}

impl Row {
    /// A row without figures.
    pub fn new(engine: Engine, mode: Mode, test: impl Into<String>, bytes: u64, seconds: f64) -> Self {
        Self { engine, mode, test: test.into(), bytes, seconds, ..Self::default() }
    }

    /// The row with its throughput, and with the CPU figures of this process.
    #[must_use]
    pub fn with_rates(mut self, cpu_s: f64) -> Self {
        let seconds = self.seconds.max(1e-9);
        self.mb_per_s = Some(self.bytes as f64 / 1e6 / seconds);
        self.cpu_percent = Some(100.0 * cpu_s / seconds);
        self.cpu_s_per_gb = Some(cpu_s * 1e9 / self.bytes.max(1) as f64);
        self.cpu_s_process = Some(cpu_s);
        self
    }

    /// Whether it is too short for accurate rates.
    pub fn is_too_short(&self) -> bool {
        self.seconds < SHORTEST_SECONDS
    }
}

/// The good side of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// At least as much.
    Higher,
    /// At most as much.
    Lower,
}

/// One figure that must hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Name of the figure.
    pub name: String,
    /// The bound.
    #[serde(alias = "want")]
    pub target: f64,
    /// The measured value.
    #[serde(alias = "got")]
    pub measured: f64,
    /// The good side of the bound.
    pub better: Better,
    /// Whether it holds.
    pub holds: bool,
    /// Why it does not hold, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Verdict {
    /// `measured` must be at least `target`.
    pub fn at_least(name: impl Into<String>, target: f64, measured: f64) -> Self {
        let (better, holds) = (Better::Higher, measured >= target);
        Self { name: name.into(), target, measured, better, holds, reason: None }
    }

    /// `measured` must be at most `target`.
    pub fn at_most(name: impl Into<String>, target: f64, measured: f64) -> Self {
        let (better, holds) = (Better::Lower, measured <= target);
        Self { name: name.into(), target, measured, better, holds, reason: None }
    }
}

/// The result of a command: the object that `--json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The command line.
    pub command: String,
    /// Version of the program.
    pub version: String,
    /// The machine.
    pub host: Machine,
    /// Measured rows.
    pub rows: Vec<Row>,
    /// Verdicts on the rows.
    pub verdicts: Vec<Verdict>,
    /// An explanation of the figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The recommendation, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Report {
    /// A report without rows yet.
    pub fn new(command: impl Into<String>, host: Machine) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self {
            command: command.into(),
            version,
            host,
            rows: Vec::new(),
            verdicts: Vec::new(),
            notes: Vec::new(),
            advice: None,
        }
    }

    /// The row of a test, if there is one.
    pub fn row(&self, engine: Engine, mode: Mode, test: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.engine == engine && row.mode == mode && row.test == test)
    }

    /// Whether every verdict holds.
    pub fn holds(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant 1, and the names that other programs read.
    #[test]
    fn row_leaves_out_what_does_not_apply() {
        let mut row = Row::new(Engine::Diorite, Mode::BufferedWarm, "block_read", 10, 0.1);
        let json = serde_json::to_value(&row).unwrap();
        let keys: Vec<_> = json.as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys, ["bytes", "engine", "mode", "seconds", "test"]);
        assert_eq!(
            (json["engine"].as_str(), json["mode"].as_str()),
            (Some("diorite"), Some("buffered-warm"))
        );
        row.bytes_copied = Some(0);
        row.latency_us = Some(LatencyUs::default());
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!(json["bytes_copied"], 0);
        assert_eq!(json["latency_us"]["p99_9"], 0.0);
        assert_eq!(serde_json::from_value::<Row>(json).unwrap(), row);
    }

    #[test]
    fn verdict_knows_its_direction() {
        assert!(Verdict::at_least("speed", 0.985, 0.985).holds);
        assert!(!Verdict::at_least("speed", 0.985, 0.98).holds);
        assert!(Verdict::at_most("copied", 0.0, 0.0).holds);
        assert!(!Verdict::at_most("copied", 0.0, 1.0).holds);
    }
}

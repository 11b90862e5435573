//! Each published table beside what is measured now.
//!
//! Where it sits: the whole stack, unchanged, runs in simulated processes on simulated disks of the time; what must hold is a
//! ratio, and each ratio gets a verdict. The functions return figures; the program prints them.
//!
//! Interface: every run is decided by its seed. Throughput is in the units of the publication; times are virtual.

mod boundary;
mod fairness;
mod ground;
mod here;
mod holes;
mod matrix;
mod odirect;
mod page;
mod published;
mod raw;
mod real;

use std::time::Duration;

use diorite_scheduler::Histogram;
use diorite_sim::Deadlock;

use crate::report::{Colour, Curve, CurveChart, DotPlot, FigureWidth, Timeline};
use crate::{LatencyUs, Row, Verdict};

pub use boundary::boundary;
pub use fairness::fairness;
pub use here::odirect_here;
pub use holes::unwritten_bytes;
pub use matrix::{matrix, outcome_of_matrix};
pub use odirect::odirect;
pub use page::page;
pub use raw::raw;
pub use real::fairness_on;

/// How a table is reproduced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Decides everything.
    pub seed: u64,
    /// Virtual length of the fairness job; the published one took 10 s.
    pub fairness_length: Duration,
    /// Share of the published amount of data that is moved, in percent, except in the fairness job.
    pub amount_percent: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 1, fairness_length: Duration::from_secs(10), amount_percent: 100 }
    }
}

/// One figure beside the published one.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Which row of the table.
    pub row: String,
    /// Which column.
    pub column: &'static str,
    /// Unit of both figures.
    pub unit: &'static str,
    /// As published, where it was.
    pub published: Option<f64>,
    /// As measured now.
    pub measured: f64,
}

impl Line {
    fn new(
        row: &str,
        column: &'static str,
        unit: &'static str,
        published: Option<f64>,
        measured: f64,
    ) -> Self {
        Self { row: row.to_owned(), column, unit, published, measured }
    }
}

/// What a reproduction came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What it is, in a few words.
    pub title: &'static str,
    /// What was published and what is done here, in a few sentences.
    pub text: &'static str,
    /// What came out, in one.
    pub headline: String,
    /// The table.
    pub lines: Vec<Line>,
    /// Rows as `--json` has them.
    pub rows: Vec<Row>,
    /// What must hold.
    pub verdicts: Vec<Verdict>,
    /// What a reader must know: choices of the model.
    pub notes: Vec<String>,
    /// Who had the disk, by row; rows of the published table get more width.
    pub timelines: Vec<(String, FigureWidth, Timeline)>,
    /// Latency of single operations.
    pub latencies: Vec<(String, CurveChart)>,
    /// Contenders in many rows; they stand in for bars.
    pub dots: Vec<(String, DotPlot)>,
}

/// Why a table could not be reproduced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReproError {
    /// The simulated processes wait for each other: a fault of the stack.
    #[error(transparent)]
    Deadlock(#[from] Deadlock),
    /// The library refused.
    #[error("{what}: {source}")]
    Diorite {
        /// What was being done.
        what: &'static str,
        /// What it said.
        source: Box<diorite::Error>,
    },
    /// No volume could be made.
    #[error("making the volume: {0}")]
    Mkfs(#[from] diorite::mkfs::MkfsError),
    /// A disk of the reproduction cannot be made.
    #[error(transparent)]
    Disk(#[from] diorite_sim::disk::ParameterError),
    /// The device failed.
    #[error(transparent)]
    Io(#[from] diorite_block::IoError),
    /// The system gave no thread or no memory.
    #[error("starting a job: {source}")]
    Thread {
        /// What it said.
        source: std::io::Error,
    },
    /// Bonnie on this machine failed.
    #[error(transparent)]
    Bonnie(#[from] crate::Error),
    /// The disk test failed.
    #[error(transparent)]
    DiskPerf(#[from] crate::diskperf::DiskPerfError),
    /// The disk test in a simulation failed.
    #[error(transparent)]
    Simulated(#[from] crate::job::SimulatedError),
}

impl ReproError {
    fn diorite(what: &'static str) -> impl Fn(diorite::Error) -> Self {
        move |source| Self::Diorite { what, source: Box::new(source) }
    }
}

/// Percentiles of a histogram as a report has them.
fn latency_us(histogram: &Histogram) -> LatencyUs {
    let us = |duration: Duration| duration.as_secs_f64() * 1e6;
    LatencyUs {
        mean: us(histogram.mean()),
        p50: us(histogram.percentile(50.0)),
        p99: us(histogram.percentile(99.0)),
        p99_9: us(histogram.percentile(99.9)),
        p99_99: us(histogram.percentile(99.99)),
        max: us(histogram.max()),
    }
}

impl Outcome {
    /// Add a curve to the chart of that caption.
    fn add_latency(&mut self, caption: &str, label: &str, colour: Colour, histogram: &Histogram) {
        self.add_curve(caption, Curve { label: label.to_owned(), colour, points: latency_curve(histogram) });
    }

    fn add_curve(&mut self, caption: &str, curve: Curve) {
        match self.latencies.iter_mut().find(|(known, _)| known == caption) {
            Some((_, chart)) => chart.curves.push(curve),
            None => self.latencies.push((caption.to_owned(), CurveChart { curves: vec![curve] })),
        }
    }
}

/// Where latency curves have points.
const CURVE_PERCENTS: [f64; 11] = [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 100.0];

/// A latency curve: percent of all operations, microseconds.
fn latency_curve(histogram: &Histogram) -> Vec<(f64, f64)> {
    let at = |percent: f64| (percent, histogram.percentile(percent).as_secs_f64() * 1e6);
    CURVE_PERCENTS.map(at).to_vec()
}

//! The result of a reproduction: figures beside the published ones, verdicts, charts.

use std::time::Duration;

use diorite_bench::report::{Colour, Curve, CurveChart, DotPlot, FigureWidth, Timeline};
use diorite_bench::{LatencyUs, Row, Verdict};
use diorite_scheduler::Histogram;

/// Options of a reproduction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Seed of all random choices.
    pub seed: u64,
    /// Virtual length of the fairness job; the published one took 10 s.
    pub fairness_length: Duration,
    /// Percent of the published amount of data, except in the fairness job.
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
    /// Row of the table.
    pub row: String,
    /// Column.
    pub column: &'static str,
    /// Unit of both figures.
    pub unit: &'static str,
    /// The published figure, if any.
    pub published: Option<f64>,
    /// The measured figure.
    pub measured: f64,
}

impl Line {
    pub(crate) fn new(
        row: &str,
        column: &'static str,
        unit: &'static str,
        published: Option<f64>,
        measured: f64,
    ) -> Self {
        Self { row: row.to_owned(), column, unit, published, measured }
    }
}

/// The result of a reproduction.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Title.
    pub title: &'static str,
    /// The publication and the method, in a few sentences.
    pub text: &'static str,
    /// The result, in one sentence.
    pub headline: String,
    /// The table.
    pub lines: Vec<Line>,
    /// Rows of `--json`.
    pub rows: Vec<Row>,
    /// Verdicts.
    pub verdicts: Vec<Verdict>,
    /// How to read the figures: choices of the model.
    pub notes: Vec<String>,
    /// Use of the disk, by row; rows of the published table are wider.
    pub timelines: Vec<(String, FigureWidth, Timeline)>,
    /// Latency of single operations.
    pub latencies: Vec<(String, CurveChart)>,
    /// Contenders in many rows, instead of bars.
    pub dots: Vec<(String, DotPlot)>,
}

/// Mean and percentiles of a histogram.
pub(crate) fn latency_us(histogram: &Histogram) -> LatencyUs {
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
    pub(crate) fn add_latency(&mut self, caption: &str, label: &str, colour: Colour, histogram: &Histogram) {
        self.add_curve(caption, Curve { label: label.to_owned(), colour, points: latency_curve(histogram) });
    }

    pub(crate) fn add_curve(&mut self, caption: &str, curve: Curve) {
        match self.latencies.iter_mut().find(|(known, _)| known == caption) {
            Some((_, chart)) => chart.curves.push(curve),
            None => self.latencies.push((caption.to_owned(), CurveChart { curves: vec![curve] })),
        }
    }
}

/// Percentiles of the points of a latency curve.
pub(crate) const CURVE_PERCENTS: [f64; 11] =
    [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 100.0];

/// A latency curve: percent of all operations, microseconds.
fn latency_curve(histogram: &Histogram) -> Vec<(f64, f64)> {
    let at = |percent: f64| (percent, histogram.percentile(percent).as_secs_f64() * 1e6);
    CURVE_PERCENTS.map(at).to_vec()
}

//! The result of a reproduction: figures beside the published ones, verdicts, charts.

use std::time::Duration;

use diorite_bench::{Row, Verdict};

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
    /// An explanation of the figures: choices of the model.
    pub notes: Vec<String>,
}

//! The result of a simulation.

use std::time::Duration;

/// How a simulation ended when it did not end well.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("deadlock at {at:?} of virtual time: every process waits and nothing will happen\n{waiting}")]
pub struct Deadlock {
    /// When.
    pub at: Duration,
    /// Who waits for what, in lines.
    pub waiting: String,
}

/// The result of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Virtual time at the end.
    pub virtual_time: Duration,
    /// Hash of every decision and event with its time: equal for equal runs.
    pub trace_hash: u64,
    /// How often the baton was passed on, and events fired.
    pub steps: u64,
    /// Each process, in the order of creation.
    pub processes: Vec<ProcessReport>,
}

/// What one process used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessReport {
    /// As given.
    pub name: String,
    /// CPU time charged to it.
    pub cpu_time: Duration,
    /// When it ended, if it did.
    pub ended_at: Option<Duration>,
}

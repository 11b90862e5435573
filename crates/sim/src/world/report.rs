//! The result of a simulation.

use std::time::Duration;

/// A simulation in which no process can run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("deadlock at {at:?} of virtual time: every process waits for another one\n{waiting}")]
pub struct Deadlock {
    /// The virtual time.
    pub at: Duration,
    /// A line for each process with the reason of its wait.
    pub waiting: String,
}

/// The result of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Virtual time at the end.
    pub virtual_time: Duration,
    /// Hash of every decision and event with its time: equal for equal runs.
    pub trace_hash: u64,
    /// Number of switches and events.
    pub steps: u64,
    /// Each process, in the order of creation.
    pub processes: Vec<ProcessReport>,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessReport {
    /// Its name.
    pub name: String,
    /// CPU time charged to it.
    pub cpu_time: Duration,
    /// The time of its end, if it has ended.
    pub ended_at: Option<Duration>,
}

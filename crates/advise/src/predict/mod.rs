//! What a trace takes in another way: elapsed time, CPU time, and memory.
//!
//! The times between the calls of a thread come from the recording. The time of each call is predicted from probes and from what
//! the simulated cache holds (`simulation`). The cache begins without the files.

mod simulation;
mod streams;
mod timeline;

use serde::{Deserialize, Serialize};

use crate::group::Group;
use crate::probe::Probes;
use crate::trace::Trace;
use timeline::Timeline;

/// How a group of files is read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Through the kernel's page cache.
    #[default]
    Buffered,
    /// Direct I/O, one call at a time, as the program makes them.
    Direct,
    /// Direct I/O with readahead and write-behind of streams.
    DirectAhead,
    /// Direct I/O below a cache of the program.
    OwnCache,
}

/// Ways other than the kernel's page cache.
pub const DIRECT_WAYS: [Way; 3] = [Way::Direct, Way::DirectAhead, Way::OwnCache];

/// What a run has at its disposal.
#[derive(Clone, Copy, Debug)]
pub struct Conditions<'a> {
    /// Costs of transfers.
    pub probes: &'a Probes,
    /// Memory for the page cache.
    pub cache_bytes: u64,
    /// Memory for a cache of the program.
    pub own_bytes: u64,
    /// A run of the same program has just ended: the caches hold what it left.
    pub is_warm: bool,
}

/// What a run takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Elapsed time.
    pub seconds: f64,
    /// CPU time of the program and its children; `None` if the recording does not know it.
    pub cpu_s: Option<f64>,
    /// For each group.
    pub groups: Vec<GroupPrediction>,
}

/// What the calls on a group take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupPrediction {
    /// Time in calls.
    pub call_s: f64,
    /// Time of the threads that make these calls, with their other calls and the times between calls.
    pub thread_s: f64,
    /// Time of all other threads.
    pub others_s: f64,
    /// CPU time of the calls.
    pub cpu_s: f64,
    /// Read pages, in bytes.
    pub read_bytes: u64,
    /// Those that a cache held.
    pub hit_bytes: u64,
    /// The largest number of bytes of these files in the kernel's cache.
    pub cached_bytes: u64,
}

impl GroupPrediction {
    /// Time of the threads that make these calls.
    pub fn seconds(&self) -> f64 {
        self.thread_s
    }

    /// Share of the read pages that a cache held.
    pub fn hit_rate(&self) -> f64 {
        self.hit_bytes as f64 / self.read_bytes.max(1) as f64
    }
}

/// Predicts runs of one trace.
#[derive(Debug)]
pub struct Predictor<'a> {
    trace: &'a Trace,
    conditions: Conditions<'a>,
    group_of: Vec<usize>,
    group_count: usize,
    timeline: Timeline,
    /// CPU time of the program without its calls on files.
    compute_s: Option<f64>,
}

impl<'a> Predictor<'a> {
    /// For a trace and its groups.
    pub fn new(trace: &'a Trace, groups: &[Group], conditions: Conditions<'a>) -> Self {
        let mut group_of = vec![groups.len(); trace.files.len()];
        for (number, group) in groups.iter().enumerate() {
            group.files.iter().for_each(|file| group_of[*file as usize] = number);
        }
        let mut predictor = Self {
            trace,
            conditions,
            group_of,
            group_count: groups.len(),
            timeline: Timeline::of(trace),
            compute_s: None,
        };
        if let Some(cpu_s) = trace.cpu_s {
            let calls = predictor.run(&predictor.recorded_ways()).cpu_s;
            predictor.compute_s = Some((cpu_s - calls).max(0.0));
        }
        predictor
    }

    /// The way of each group in the recorded run.
    pub fn recorded_ways(&self) -> Vec<Way> {
        let mut direct = vec![0_u64; self.group_count + 1];
        let mut all = vec![0_u64; self.group_count + 1];
        for event in &self.trace.events {
            let group = self.group_of[event.file as usize];
            all[group] += event.bytes();
            direct[group] += if event.is_direct { event.bytes() } else { 0 };
        }
        let is_direct = |(direct, all): (&u64, &u64)| *direct * 2 > *all;
        let way = |pair| if is_direct(pair) { Way::Direct } else { Way::Buffered };
        direct.iter().zip(&all).take(self.group_count).map(way).collect()
    }

    /// Predict a run in which group `n` uses `ways[n]`.
    pub fn predict(&self, ways: &[Way]) -> Prediction {
        let run = self.run(ways);
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as f64;
        let cpu_s = self.compute_s.map(|compute| compute + run.cpu_s);
        let seconds = self.timeline.seconds(run.delta_s).max(run.disk_s).max(cpu_s.unwrap_or(0.0) / cpus);
        Prediction { seconds, cpu_s, groups: run.groups }
    }

    fn run(&self, ways: &[Way]) -> simulation::Run {
        let mut simulation = simulation::Simulation::new(self.trace, &self.conditions, &self.group_of, ways);
        let run = simulation.run();
        if self.conditions.is_warm { simulation.run() } else { run }
    }
}

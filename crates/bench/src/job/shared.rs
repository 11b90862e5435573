//! What the jobs of a file know of each other: who has ended, who is to stop, how far each is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use diorite_block::sync::{Condvar, Mutex, now, sleep};

use super::Place;
use super::content::WorkingSet;
use super::spec::{EndsWith, Flow};
use super::worker::Worker;
use crate::watch::Cancel;

/// One for all workers of a run.
#[derive(Debug)]
pub(super) struct Shared {
    cancel: Cancel,
    members: Vec<Member>,
    ended: Mutex<Vec<bool>>,
    an_end: Condvar,
    flows: Mutex<Vec<Progress>>,
    /// Files of the jobs by their names, and how many threads change each.
    written: BTreeMap<PathBuf, u32>,
    /// What `dedupe_global` chooses from.
    pub(super) contents: WorkingSet,
}

/// What is known of a worker beforehand.
#[derive(Debug)]
struct Member {
    name: String,
    group: u32,
    wave: u32,
    ends_with: EndsWith,
    flow: Option<Flow>,
    is_stopped: AtomicBool,
}

/// How much a job that shares has done.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    is_running: bool,
    transfers: u64,
}

impl Shared {
    pub(super) fn new(workers: &[Worker], place: &dyn Place, cancel: &Cancel) -> Arc<Self> {
        let mut wave = 0;
        let mut member = |worker: &Worker| {
            wave += u32::from(worker.starts_wave);
            Member {
                name: worker.job.name.clone(),
                group: worker.group,
                wave,
                ends_with: worker.job.ends_with,
                flow: worker.job.flow,
                is_stopped: AtomicBool::new(false),
            }
        };
        let mut writers: BTreeMap<PathBuf, u32> = BTreeMap::new();
        for worker in workers {
            for path in &worker.paths {
                // Two names may be one file.
                *writers.entry(place.file_of(path)).or_default() += u32::from(worker.job.pattern.changes());
            }
        }
        let paths = workers.iter().flat_map(|worker| &worker.paths);
        let written = paths.map(|path| (path.clone(), writers[&place.file_of(path)])).collect();
        Arc::new(Self {
            cancel: cancel.clone(),
            members: workers.iter().map(&mut member).collect(),
            ended: Mutex::new(vec![false; workers.len()]),
            an_end: Condvar::default(),
            written,
            flows: Mutex::new(vec![Progress::default(); workers.len()]),
            contents: WorkingSet::default(),
        })
    }

    /// Whether any job changes this file.
    pub(super) fn is_written(&self, path: &Path) -> bool {
        self.written.get(path).is_some_and(|writers| *writers > 0)
    }

    /// Whether more than one thread changes this file.
    pub(super) fn is_written_by_several(&self, path: &Path) -> bool {
        self.written.get(path).is_some_and(|writers| *writers > 1)
    }

    /// Whether a worker is to end, by the user's wish or by the end of another.
    pub(super) fn is_stopped(&self, worker: u64) -> bool {
        self.cancel.is_cancelled() || self.members[worker as usize].is_stopped.load(Ordering::Relaxed)
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Wait until then, or until the worker is to end.
    pub(super) fn sleep_until(&self, worker: u64, until: Duration) {
        const STEP: Duration = Duration::from_millis(500);
        while !self.is_stopped(worker) {
            let left = until.saturating_sub(now());
            sleep(left.min(STEP));
            if left <= STEP {
                return;
            }
        }
    }

    /// Wait for all jobs of that name before this one. Its own clones and those after it may be waiting for it.
    pub(super) fn wait_for(&self, waiting: &Worker, name: &str) {
        let before = &self.members[..(waiting.number - u64::from(waiting.clone)) as usize];
        let mut ended = self.ended.lock();
        while before.iter().zip(ended.iter()).any(|(member, ended)| member.name == name && !ended) {
            ended = self.an_end.wait(ended);
        }
    }

    /// A worker has ended; others that end with it are to stop.
    pub(super) fn has_ended(&self, worker: u64) {
        let index = worker as usize;
        self.ended.lock()[index] = true;
        self.flows.lock()[index].is_running = false;
        self.an_end.notify_all();
        let this = &self.members[index];
        for member in &self.members {
            let ends = match this.ends_with {
                EndsWith::Itself => false,
                EndsWith::Group => member.group == this.group,
                EndsWith::Wave => member.wave == this.wave,
                EndsWith::All => true,
            };
            if ends {
                member.is_stopped.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Whether a worker has done more than its share of what the running ones of its flow have, and must wait.
    /// Counts a transfer if it need not.
    pub(super) fn is_ahead(&self, worker: u64, flow: &Flow) -> bool {
        let index = worker as usize;
        let mut progress = self.flows.lock();
        if !progress[index].is_running {
            // One that begins later does not catch up.
            let level =
                self.running(&progress, flow.id).map(|(done, weight)| done * f64::from(flow.weight) / weight);
            progress[index] = Progress { is_running: true, transfers: level.unwrap_or(0.0) as u64 };
        }
        let Some((done, weight)) = self.running(&progress, flow.id) else { return false };
        let is_alone = (weight - f64::from(flow.weight)).abs() < 0.5;
        let share = done * f64::from(flow.weight) / weight;
        // The weight is how many may be done at once.
        if !is_alone && progress[index].transfers as f64 >= share + f64::from(flow.weight) {
            return true;
        }
        progress[index].transfers += 1;
        false
    }

    /// Transfers and weights of the running members of a flow together.
    fn running(&self, progress: &[Progress], id: u32) -> Option<(f64, f64)> {
        let members = self.members.iter().zip(progress).filter(|(_, progress)| progress.is_running);
        let of_flow = members.filter_map(|(member, progress)| {
            member.flow.filter(|flow| flow.id == id).map(|flow| (progress.transfers, flow.weight))
        });
        let sum = of_flow.fold((0.0, 0.0), |(done, weights), (transfers, weight)| {
            (done + transfers as f64, weights + f64::from(weight))
        });
        (sum.1 > 0.0).then_some(sum)
    }
}

//! State that the workers of a run share: ended workers, workers that must stop, and writers of each file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use diorite_bench::Cancel;
use diorite_block::sync::{Condvar, Mutex, now, sleep};

use super::worker::Worker;
use crate::target::Target;

/// One for all workers of a run.
#[derive(Debug)]
pub(super) struct Shared {
    cancel: Cancel,
    members: Vec<Member>,
    ended: Mutex<Vec<bool>>,
    an_end: Condvar,
    /// Number of threads that change each file.
    written: BTreeMap<PathBuf, u32>,
}

/// A worker, as other workers see it.
#[derive(Debug)]
struct Member {
    name: String,
    group: u32,
    ends_group: bool,
    is_stopped: AtomicBool,
}

impl Shared {
    pub(super) fn new(workers: &[Worker], target: &dyn Target, cancel: &Cancel) -> Arc<Self> {
        let member = |worker: &Worker| Member {
            name: worker.job.name.clone(),
            group: worker.group,
            ends_group: worker.job.ends_group,
            is_stopped: AtomicBool::new(false),
        };
        let mut writers: BTreeMap<PathBuf, u32> = BTreeMap::new();
        for worker in workers {
            for path in &worker.paths {
                // Two names may be one file.
                *writers.entry(target.file_of(path)).or_default() += u32::from(worker.job.pattern.writes());
            }
        }
        let paths = workers.iter().flat_map(|worker| &worker.paths);
        let written = paths.map(|path| (path.clone(), writers[&target.file_of(path)])).collect();
        Arc::new(Self {
            cancel: cancel.clone(),
            members: workers.iter().map(member).collect(),
            ended: Mutex::new(vec![false; workers.len()]),
            an_end: Condvar::default(),
            written,
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

    /// Whether a worker must stop, because of the user or the end of another job.
    pub(super) fn is_stopped(&self, worker: u64) -> bool {
        self.cancel.is_cancelled() || self.members[worker as usize].is_stopped.load(Ordering::Relaxed)
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Wait until then, or until the worker must stop.
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

    /// Wait for all earlier jobs of that name. Clones of the same job and later jobs may wait for this one.
    pub(super) fn wait_for(&self, waiting: &Worker, name: &str) {
        let before = &self.members[..(waiting.number - u64::from(waiting.clone)) as usize];
        let mut ended = self.ended.lock();
        while before.iter().zip(ended.iter()).any(|(member, ended)| member.name == name && !ended) {
            ended = self.an_end.wait(ended);
        }
    }

    /// A worker has ended: with `exitall`, stop the workers of its group.
    pub(super) fn has_ended(&self, worker: u64) {
        let index = worker as usize;
        self.ended.lock()[index] = true;
        self.an_end.notify_all();
        let this = &self.members[index];
        for member in self.members.iter().filter(|member| this.ends_group && member.group == this.group) {
            member.is_stopped.store(true, Ordering::Relaxed);
        }
    }
}

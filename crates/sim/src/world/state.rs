//! Virtual time and the states of processes. Plain data; no code here waits or runs.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use super::baton::Baton;
use super::report::{Deadlock, ProcessReport, Report};

/// Identifies a process, in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProcessId(pub(super) usize);

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    Runnable,
    /// Waits for a key, until a time if there is one. It must not run before `not_before`, the end of its CPU work.
    Waiting {
        key: usize,
        since: Duration,
        until: Option<Duration>,
        not_before: Duration,
    },
    Ended,
}

/// A simulated process.
pub(super) struct Process {
    pub(super) name: String,
    pub(super) activity: Activity,
    /// Whether it was woken, and did not time out.
    pub(super) woken: bool,
    /// The timer that will make it runnable.
    pub(super) timer: Option<(Duration, u64)>,
    /// Whether the simulation lasts until it has ended.
    pub(super) foreground: bool,
    pub(super) cpu_time: Duration,
    pub(super) ended_at: Option<Duration>,
    pub(super) baton: Arc<Baton>,
}

/// An entry of the timers: a process goes on, or an event fires.
pub(super) enum Timer<E> {
    Process(ProcessId),
    Event(E),
}

/// How a simulation ended.
pub(super) enum Outcome {
    Done,
    Deadlock(Deadlock),
    Panic(Box<dyn std::any::Any + Send>),
}

/// See the module head. `E` is the type of events.
pub(super) struct State<E> {
    pub(super) now: Duration,
    pub(super) processes: Vec<Process>,
    /// In the order in which they became runnable.
    pub(super) runnable: VecDeque<ProcessId>,
    /// Waiting processes by key, the longest wait first.
    pub(super) waiters: HashMap<usize, VecDeque<ProcessId>>,
    /// By time, then by number.
    pub(super) timers: BTreeMap<(Duration, u64), Timer<E>>,
    pub(super) timer_number: u64,
    /// Foreground processes that have not ended.
    pub(super) foreground: usize,
    /// End of the work of each processor.
    pub(super) cpu_free_at: Vec<Duration>,
    pub(super) random: fastrand::Rng,
    pub(super) trace_hash: u64,
    pub(super) steps: u64,
    pub(super) outcome: Option<Outcome>,
}

impl<E> State<E> {
    /// At time zero, without processes.
    pub(super) fn new(cpus: u32, seed: u64) -> Self {
        Self {
            now: Duration::ZERO,
            processes: Vec::new(),
            runnable: VecDeque::new(),
            waiters: HashMap::new(),
            timers: BTreeMap::new(),
            timer_number: 0,
            foreground: 0,
            cpu_free_at: vec![Duration::ZERO; cpus.max(1) as usize],
            random: fastrand::Rng::with_seed(seed),
            trace_hash: 0xcbf2_9ce4_8422_2325,
            steps: 0,
            outcome: None,
        }
    }

    pub(super) fn note(&mut self, number: u64) {
        for part in [self.now.as_nanos() as u64, number] {
            self.trace_hash = (self.trace_hash ^ part).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
        }
        self.steps += 1;
    }

    pub(super) fn add_timer(&mut self, at: Duration, timer: Timer<E>) -> (Duration, u64) {
        self.timer_number += 1;
        let key = (at.max(self.now), self.timer_number);
        self.timers.insert(key, timer);
        key
    }

    /// Occupy a processor for some time. Returns the end of the work.
    pub(super) fn charge(&mut self, process: ProcessId, debt: Duration) -> Duration {
        if debt.is_zero() {
            return self.now;
        }
        self.processes[process.0].cpu_time += debt;
        let now = self.now;
        let cpu = self.cpu_free_at.iter_mut().min().expect("at least one processor");
        *cpu = (*cpu).max(now) + debt;
        *cpu
    }

    pub(super) fn make_runnable(&mut self, process: ProcessId, woken: bool) {
        let this = &mut self.processes[process.0];
        this.activity = Activity::Runnable;
        this.woken = woken;
        if let Some(timer) = this.timer.take() {
            self.timers.remove(&timer);
        }
        self.runnable.push_back(process);
    }

    /// A waiting process was woken. It runs now, or at the end of its CPU work.
    pub(super) fn wake_process(&mut self, process: ProcessId) {
        let Activity::Waiting { key, since, not_before, .. } = self.processes[process.0].activity else {
            return;
        };
        if not_before <= self.now {
            self.make_runnable(process, true);
            return;
        }
        if let Some(timer) = self.processes[process.0].timer.take() {
            self.timers.remove(&timer);
        }
        let timer = self.add_timer(not_before, Timer::Process(process));
        let this = &mut self.processes[process.0];
        this.timer = Some(timer);
        this.woken = true;
        this.activity = Activity::Waiting { key, since, until: Some(not_before), not_before };
    }

    pub(super) fn wake(&mut self, key: usize, all: bool) {
        let Some(waiters) = self.waiters.get_mut(&key) else { return };
        let woken: Vec<_> =
            if all { waiters.drain(..).collect() } else { waiters.pop_front().into_iter().collect() };
        if waiters.is_empty() {
            self.waiters.remove(&key);
        }
        for process in woken {
            self.wake_process(process);
        }
    }

    pub(super) fn report(&self) -> Report {
        let process = |process: &Process| ProcessReport {
            name: process.name.clone(),
            cpu_time: process.cpu_time,
            ended_at: process.ended_at,
        };
        Report {
            virtual_time: self.now,
            trace_hash: self.trace_hash,
            steps: self.steps,
            processes: self.processes.iter().map(process).collect(),
        }
    }

    pub(super) fn deadlock(&self) -> Deadlock {
        let mut waiting = String::new();
        for (number, process) in self.processes.iter().enumerate() {
            if let Activity::Waiting { key, since, .. } = process.activity {
                let with: Vec<_> = self
                    .waiters
                    .get(&key)
                    .into_iter()
                    .flatten()
                    .filter(|other| other.0 != number)
                    .map(|other| self.processes[other.0].name.as_str())
                    .collect();
                let _ =
                    writeln!(waiting, "  {} waits for {key:#x} since {since:?}, with {with:?}", process.name);
            }
        }
        Deadlock { at: self.now, waiting }
    }
}

//! Goes through the states of a plan with several threads, and calls a judge for each.
//!
//! Interface: the judge gets a state, and fails with words. Equal states are judged once. Failing states are kept up to a limit, those
//! with few lost writes first.

use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use diorite_sim::crash::{CrashPoint, Fate, Plan, Recording};

use crate::case::Case;
use crate::subject::Timing;

/// Failing states that are kept.
const KEPT_MAX: usize = 100;
/// States that are tried to find a smaller one.
const SHRINK_TRIES: usize = 200;

/// A state to judge.
#[derive(Clone, Copy, Debug)]
pub struct State<'a> {
    /// The moment of the power cut.
    pub point: &'a CrashPoint<'a>,
    /// The fate of each unflushed write.
    pub fates: &'a [Fate],
    /// Number of the thread, from 0.
    pub worker: usize,
}

/// How far an examination is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// States that were judged.
    pub states: usize,
    /// States that equal others, and were not judged again.
    pub equal: usize,
    /// States of the plan that are not looked at yet, at most.
    pub left: usize,
    /// States that failed.
    pub failed: usize,
}

/// A state that failed.
#[derive(Clone, Debug)]
pub struct Failing {
    /// The state.
    pub case: Case,
    /// Number of promises before the cut.
    pub promises: usize,
    /// The judge's words.
    pub why: String,
}

impl Failing {
    /// Failures with few lost writes are easy to understand.
    fn key(&self) -> (usize, usize) {
        (self.case.fates.iter().filter(|fate| **fate != Fate::Whole).count(), self.case.event)
    }
}

/// What an examination found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The counts at the end.
    pub progress: Progress,
    /// The failing states, those with few lost writes first, at most a hundred.
    pub failing: Vec<Failing>,
    /// States by moment: the timing and the event, the number of judged states, and the number of failing ones.
    pub moments: BTreeMap<(Timing, usize), (usize, usize)>,
    /// Whether the examination was ended before its last state.
    pub is_interrupted: bool,
}

impl Findings {
    /// Add the findings of another run.
    pub fn merge(&mut self, other: Self) {
        self.progress.states += other.progress.states;
        self.progress.equal += other.progress.equal;
        self.progress.failed += other.progress.failed;
        self.failing.extend(other.failing);
        self.failing.sort_by_key(Failing::key);
        self.failing.truncate(KEPT_MAX);
        self.moments.extend(other.moments);
        self.is_interrupted |= other.is_interrupted;
    }
}

/// A choice of states that is handed out to the threads.
struct Source<'a> {
    points: Box<dyn Iterator<Item = (CrashPoint<'a>, usize)> + Send + 'a>,
    current: Option<Current<'a>>,
    seen: HashSet<u64>,
    plan: &'a Plan,
    timing: Timing,
    findings: Findings,
}

struct Current<'a> {
    point: Arc<CrashPoint<'a>>,
    fates: Box<dyn Iterator<Item = Vec<Fate>> + Send>,
}

impl<'a> Source<'a> {
    /// The next state that differs from all before it.
    fn next(&mut self) -> Option<(Arc<CrashPoint<'a>>, Vec<Fate>)> {
        loop {
            if let Some(current) = &mut self.current {
                for fates in current.fates.by_ref() {
                    self.findings.progress.left = self.findings.progress.left.saturating_sub(1);
                    if self.seen.insert(current.point.fingerprint(&fates)) {
                        self.findings.progress.states += 1;
                        self.findings.moments.entry((self.timing, current.point.event())).or_default().0 += 1;
                        return Some((Arc::clone(&current.point), fates));
                    }
                    self.findings.progress.equal += 1;
                }
            }
            let (point, limit) = self.points.next()?;
            let fates = point.planned(limit, self.plan.options());
            self.current = Some(Current { point: Arc::new(point), fates });
        }
    }

    fn fail(&mut self, failing: Failing) {
        let findings = &mut self.findings;
        findings.progress.failed += 1;
        findings.moments.entry((failing.case.timing, failing.case.event)).or_default().1 += 1;
        findings.failing.push(failing);
        findings.failing.sort_by_key(Failing::key);
        findings.failing.truncate(KEPT_MAX);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Judge the states of `plan` with `jobs` threads. `watch` is called after each state and can end the examination.
pub fn examine(
    recording: &Recording,
    plan: &Plan,
    timing: Timing,
    jobs: NonZeroUsize,
    judge: &(dyn Fn(State<'_>) -> Result<(), String> + Sync),
    watch: &(dyn Fn(&Progress) -> ControlFlow<()> + Sync),
) -> Findings {
    let progress = Progress { left: plan.len(), ..Progress::default() };
    let source = Mutex::new(Source {
        points: Box::new(plan.points(recording)),
        current: None,
        seen: HashSet::new(),
        plan,
        timing,
        findings: Findings { progress, ..Findings::default() },
    });
    let work = |worker: usize| {
        loop {
            let next = lock(&source).next();
            let Some((point, fates)) = next else { return };
            let verdict = judge(State { point: &point, fates: &fates, worker });
            let mut source = lock(&source);
            if let Err(why) = verdict {
                let case = Case { timing, event: point.event(), fates };
                source.fail(Failing { case, promises: point.marks().len(), why });
            }
            if watch(&source.findings.progress).is_break() {
                source.findings.is_interrupted = true;
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for worker in 1..jobs.get() {
            scope.spawn(move || work(worker));
        }
        work(0);
    });
    source.into_inner().unwrap_or_else(PoisonError::into_inner).findings
}

/// The same failure with as few lost writes as possible.
pub fn shrink(
    recording: &Recording,
    failing: &Failing,
    judge: &(dyn Fn(State<'_>) -> Result<(), String> + Sync),
) -> Failing {
    let point = point_of(recording, failing.case.event);
    let mut why = failing.why.clone();
    let fates = point.shrunk(&failing.case.fates, SHRINK_TRIES, |fates| {
        match judge(State { point: &point, fates, worker: 0 }) {
            Ok(()) => false,
            Err(words) => {
                why = words;
                true
            }
        }
    });
    Failing { case: Case { fates, ..failing.case.clone() }, promises: failing.promises, why }
}

/// The moment after `event` events.
pub fn point_of(recording: &Recording, event: usize) -> CrashPoint<'_> {
    let mut replay = recording.replay();
    replay.advance(event);
    replay.point()
}

//! `diorite crash` tests which data of a program survives a power cut.
//!
//! A run makes a volume in memory, mounts it, runs the workload there and records the writes and flushes of the disk (`record`). Then it
//! mounts states after power cuts, and runs the check in each (`judge`). `answer` has the words, `case_file` one state as a file.
#![allow(clippy::disallowed_methods, reason = "files of the host beside the volume")]

mod answer;
mod case_file;
mod judge;
mod process;
mod promises;
mod record;
mod replay;
mod volume;

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::time::Duration;

use diorite_crash::Timing;
use diorite_crash::examine::{Failing, Findings, State, examine, point_of, shrink};
use diorite_crash::explain::Explanation;
use diorite_sim::crash::{Fate, PlanOptions};
use diorite_sim::image::SparseImage;

use crate::args::{Crash, CrashAction, FilesystemType};
use crate::failure::{Failure, Result, complain};
use crate::interrupt;
use crate::output::Output;
use crate::progress::steps;
use answer::Answer;
use case_file::CaseFile;
use judge::Judge;
use record::{DiskError, Record, Repeats};

/// Transfers that fail, at most; they are spread over all.
const FAULTY_TRANSFERS_MAX: u64 = 50;
/// States after a run with an error of the disk.
const FAULTY_STATES_MAX: usize = 20;

pub(crate) fn crash(arguments: &Crash, output: &mut Output) -> Result<()> {
    if let Some(CrashAction::Replay(arguments)) = &arguments.action {
        return replay::replay(arguments);
    }
    // The states that were tested so far are the answer after an interrupt.
    interrupt::is_changing();
    let mut has_failed = false;
    let mut answers = Vec::new();
    for kind in &arguments.filesystems {
        let answer = runs(arguments, *kind)?;
        has_failed |= answer.failure.is_some();
        if arguments.reporting.json {
            answers.push(answer.to_json());
        } else {
            answer.print(output)?;
        }
    }
    if arguments.reporting.json {
        output.json(serde_json::json!({ "command": "crash", "runs": answers }))?;
    }
    if has_failed { Err(Failure::Reported) } else { Ok(()) }
}

/// The runs on one filesystem: one, or with `--fault` one more for each transfer and kind of fault. The first failure ends them.
fn runs(arguments: &Crash, kind: FilesystemType) -> Result<Answer> {
    let image = volume::make(arguments, kind)?;
    let mut answer = run(arguments, kind, image.clone(), None)?;
    let Some(error) = arguments.fault else { return Ok(answer) };
    let transfers = answer.transfers;
    let step = transfers.div_ceil(FAULTY_TRANSFERS_MAX).max(1);
    for at in (0..transfers).step_by(step as usize) {
        for repeats in [Repeats::Once, Repeats::FromThenOn] {
            if answer.failure.is_some() || interrupt::cancel().is_cancelled() {
                return Ok(answer);
            }
            let next = run(arguments, kind, image.clone(), Some(DiskError { at, error, repeats }))?;
            answer = answer.followed_by(next);
        }
    }
    Ok(answer)
}

/// One run of the workload.
fn run(
    arguments: &Crash,
    kind: FilesystemType,
    image: SparseImage,
    error: Option<DiskError>,
) -> Result<Answer> {
    let scratch = process::scratch()?;
    let mut record = Record::of(arguments, image, scratch.path(), error)?;
    if let Some(problem) = &record.problem {
        // With an error of the disk, that is expected.
        if error.is_none() {
            complain(&format!("crash: the workload {problem}; its writes so far are tested"));
        }
    }
    if arguments.lying_flush {
        record.recording = record.recording.without_flushes();
    }
    let options = PlanOptions {
        states_at_once: arguments.states,
        states: if error.is_some() { arguments.total.min(FAULTY_STATES_MAX) } else { arguments.total },
        tearing: arguments.tear.tearing(),
        seed: arguments.seed,
        ..PlanOptions::default()
    };
    let jobs = jobs(arguments);
    let judge = Judge {
        check: arguments.check.as_deref().unwrap_or_default(),
        limit: Duration::from_secs(arguments.check_time),
        lines: &record.lines,
        scratch: scratch.path(),
        has_own_namespaces: jobs.get() > 1,
        by: arguments.replay,
        needs_repair: volume::needs_repair(record.recording.base()),
    };
    if error.is_none() {
        check_the_check(&record, &judge)?;
    }
    // Threads of their own: each enters a mount namespace.
    let (findings, smallest) = std::thread::scope(|scope| {
        let examined = scope.spawn(|| examined(&record, options, &judge, jobs));
        examined.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let failure = smallest.map(|failing| {
        record.add_paths_at(failing.case.event);
        let explanation = Explanation::of(&record.recording, &failing.case, &|write| record.name_of(write));
        (failing, explanation)
    });
    if let Some((failing, explanation)) = &failure {
        let case = CaseFile::of(arguments, kind, &record, failing, &explanation.to_string());
        case.save(&arguments.case)?;
    }
    Ok(Answer::new(arguments, kind, &record, &findings, failure))
}

/// Number of states that are checked at the same time. Only root can mount several volumes at one path.
fn jobs(arguments: &Crash) -> NonZeroUsize {
    if !rustix::process::geteuid().is_root() {
        return NonZeroUsize::MIN;
    }
    let all = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    arguments.jobs.unwrap_or_else(all)
}

/// Judge all states of the plan. Returns the findings, and the smallest failing state.
fn examined(
    record: &Record,
    options: PlanOptions,
    judge: &Judge<'_>,
    jobs: NonZeroUsize,
) -> (Findings, Option<Failing>) {
    let judged = |state: State<'_>| judge.judge(state);
    let plan = record.recording.plan(options);
    let bar = steps("states", plan.len() as u64);
    let cancel = interrupt::cancel();
    let findings = examine(&record.recording, &plan, Timing::Late, jobs, &judged, &|progress| {
        bar.set_length((progress.states + progress.equal + progress.left) as u64);
        bar.set_position((progress.states + progress.equal) as u64);
        if cancel.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    let first = findings.failing.first().cloned();
    let smallest = first.map(|failing| {
        // After an interrupt the check says nothing.
        if findings.is_interrupted { failing } else { shrink(&record.recording, &failing, &judged) }
    });
    (findings, smallest)
}

/// The check must accept the volume after everything is written.
fn check_the_check(record: &Record, judge: &Judge<'_>) -> Result<()> {
    let event = record.recording.event_count();
    let point = point_of(&record.recording, event);
    let fates = vec![Fate::Whole; point.unflushed_count()];
    // No thread is in a namespace of its own yet, and this one needs none.
    let alone = Judge { has_own_namespaces: false, ..*judge };
    alone.judge(State { point: &point, fates: &fates, worker: 0 }).map_err(|why| {
        Failure::Failed(format!(
            "crash: the check fails without a power cut: {why}; run it by hand in a volume of a finished workload"
        ))
    })
}

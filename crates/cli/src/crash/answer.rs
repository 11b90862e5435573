//! The answer of a run: one sentence, the smallest failing state, and what led to it.

use diorite_crash::examine::{Failing, Findings};
use diorite_crash::explain::Explanation;
use diorite_sim::crash::Event;
use serde_json::{Value, json};

use super::record::{DiskError, Record};
use crate::args::{Crash, FilesystemType};
use crate::failure::Result;
use crate::output::Output;
use crate::size::counted;

/// Lines of the timeline.
const TIMELINE_MAX: usize = 16;

/// See the module's head.
pub(super) struct Answer {
    filesystem: &'static str,
    states: usize,
    equal: usize,
    failed: usize,
    moments: usize,
    writes: usize,
    acknowledged: usize,
    workload_seconds: f64,
    /// Transfers of the disk during the workload.
    pub(super) transfers: u64,
    is_interrupted: bool,
    pub(super) failure: Option<Wrong>,
}

/// A failing state.
pub(super) struct Wrong {
    failing: Failing,
    explanation: Explanation,
    /// The error of the disk.
    error: Option<String>,
    /// The last line before the power cut.
    after: Option<String>,
    /// States of its moment, and how many of them failed.
    states_there: (usize, usize),
    timeline: Vec<String>,
    case: String,
}

impl Answer {
    pub(super) fn new(
        arguments: &Crash,
        kind: FilesystemType,
        record: &Record,
        findings: &Findings,
        failure: Option<(Failing, Explanation)>,
    ) -> Self {
        let failure = failure.map(|(failing, explanation)| {
            let key = (failing.case.timing, failing.case.event);
            Wrong {
                error: record.error.map(DiskError::words),
                after: record.lines[..failing.promises].last().cloned(),
                states_there: findings.moments.get(&key).copied().unwrap_or_default(),
                timeline: timeline(record, failing.case.event),
                case: arguments.case.display().to_string(),
                failing,
                explanation,
            }
        });
        Self {
            filesystem: kind.name(),
            states: findings.progress.states,
            equal: findings.progress.equal,
            failed: findings.progress.failed,
            moments: findings.moments.len(),
            writes: record.recording.write_count(),
            acknowledged: record.lines.len(),
            workload_seconds: record.time.as_secs_f64(),
            transfers: record.transfers,
            is_interrupted: findings.is_interrupted,
            failure,
        }
    }

    /// The answer of this run and another one.
    pub(super) fn followed_by(self, next: Self) -> Self {
        Self {
            states: self.states + next.states,
            equal: self.equal + next.equal,
            failed: self.failed + next.failed,
            moments: self.moments + next.moments,
            is_interrupted: self.is_interrupted || next.is_interrupted,
            failure: self.failure.or(next.failure),
            ..self
        }
    }

    /// Print it.
    pub(super) fn print(&self, output: &mut Output) -> Result<()> {
        output.line(self.sentence())?;
        if let Some(wrong) = &self.failure {
            output.text(&wrong.explanation.to_string())?;
            if !wrong.timeline.is_empty() {
                output.line("Before the power cut:")?;
                wrong.timeline.iter().try_for_each(|line| output.line(format!("  {line}")))?;
            }
            output.line(format!("The state is in {0}: diorite crash replay {0}", wrong.case))?;
        }
        let end = if self.is_interrupted { "; interrupted, other states are not tested" } else { "" };
        output.line(format!(
            "{}: {} after {}, {} wrong; {}, {}{end}",
            self.filesystem,
            counted(self.states as u64, "state", "states"),
            counted(self.moments as u64, "power cut", "power cuts"),
            self.failed,
            counted(self.writes as u64, "write", "writes"),
            counted(self.acknowledged as u64, "acknowledgement", "acknowledgements"),
        ))
    }

    /// The first sentence.
    fn sentence(&self) -> String {
        let Some(wrong) = &self.failure else {
            let all = "After a power cut at any moment, all tested states are right.";
            return if self.is_interrupted { "No tested state is wrong." } else { all }.to_owned();
        };
        let after = match &wrong.after {
            Some(line) => format!("following `{line}`"),
            None => "before the first acknowledgement".to_owned(),
        };
        let after = match &wrong.error {
            Some(error) => format!("{after} (the disk had failed: {error})"),
            None => after,
        };
        let (states, failed) = wrong.states_there;
        let why = &wrong.failing.why;
        format!(
            "After a power cut {after}, {failed} of {} wrong: {why}",
            match states {
                1 => "1 state is".to_owned(),
                states => format!("{states} states are"),
            }
        )
    }

    pub(super) fn to_json(&self) -> Value {
        let failure = self.failure.as_ref().map(|wrong| {
            json!({
                "error": wrong.error,
                "after": wrong.after,
                "acknowledged": wrong.failing.promises,
                "states": wrong.states_there.0,
                "failed": wrong.states_there.1,
                "why": wrong.failing.why,
                "lost": wrong.explanation.lost,
                "kept": wrong.explanation.kept,
                "differences": wrong.explanation.differences,
                "unwritten": wrong.explanation.unwritten,
                "timeline": wrong.timeline,
                "case": wrong.case,
            })
        });
        json!({
            "filesystem": self.filesystem,
            "sentence": self.sentence(),
            "states": self.states,
            "equal": self.equal,
            "failed": self.failed,
            "power_cuts": self.moments,
            "writes": self.writes,
            "acknowledgements": self.acknowledged,
            "workload_seconds": self.workload_seconds,
            "interrupted": self.is_interrupted,
            "failure": failure,
        })
    }
}

/// The last calls, promises and flushes before an event of the disk, in order.
fn timeline(record: &Record, event: usize) -> Vec<String> {
    let events = record.recording.events()[..event].iter().enumerate();
    let of_disk = events.filter_map(|(at, event)| match event {
        Event::FlushEnded(_) => Some((at, 1, "the disk has flushed".to_owned())),
        Event::Mark(mark) => Some((at, 1, format!("acknowledged: {}", record.lines.get(*mark as usize)?))),
        Event::Issued(_) | Event::Ended(_) | Event::FlushIssued(_) => None,
    });
    let calls = record.calls.iter().filter(|call| call.event <= event);
    let calls = calls.map(|call| (call.event, 0, record.words_of(call)));
    let mut all: Vec<(usize, u8, String)> = of_disk.chain(calls).collect();
    all.sort_by_key(|(at, order, _)| (*at, *order));
    let mut lines: Vec<String> = Vec::new();
    let mut repeated = 1;
    for (_, _, text) in all {
        match lines.last_mut() {
            Some(last) if *last == text || last.starts_with(&format!("{text} (")) => {
                repeated += 1;
                *last = format!("{text} ({repeated} times)");
            }
            _ => {
                repeated = 1;
                lines.push(text);
            }
        }
    }
    lines.split_off(lines.len().saturating_sub(TIMELINE_MAX))
}

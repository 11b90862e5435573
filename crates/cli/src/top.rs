//! Watching a mount or a server: `top`, live or as lines, and `status`.

mod screen;
mod table;

use std::sync::Arc;
use std::time::{Duration, Instant};

use diorite_mount::status::{Status, StatusError, TaskStatus, Totals, ask};
use serde_json::{Value, json};

use crate::args::{self, SortBy};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output::Output;
use screen::{Key, Screen};

/// The shortest and the longest interval, in seconds.
const INTERVALS: std::ops::RangeInclusive<f64> = 0.05..=86_400.0;

/// `diorite status`.
pub(crate) fn status(arguments: &args::Status, output: &mut Output) -> Result<()> {
    let status = ask(&arguments.directory).map_err(|error| failure(&error))?;
    output.json(serde_json::to_value(status).map_err(std::io::Error::from)?)
}

/// `diorite top`.
pub(crate) fn top(arguments: &args::Top, output: &mut Output) -> Result<()> {
    if !INTERVALS.contains(&arguments.interval) {
        return Err(Failure::Usage("--interval: from 0.05 to 86400 seconds".to_owned()));
    }
    let interval = Duration::from_secs_f64(arguments.interval);
    let mut earlier = ask(&arguments.directory).map_err(|error| failure(&error))?;
    let screen = if arguments.once || arguments.json { None } else { Screen::open()? };
    // The terminal is restored before this ends.
    interrupt::act(Arc::new(|_| {}));
    let mut sort = arguments.sort;
    loop {
        let waited = wait(interval, screen.as_ref())?;
        match waited {
            Waited::Ended => return Ok(()),
            Waited::Sort(by) => sort = by,
            Waited::Elapsed => {}
        }
        let now = ask(&arguments.directory).map_err(|error| failure(&error))?;
        let usage = Usage::between(&earlier, &now, sort);
        if arguments.json {
            output.text(&format!("{}\n", usage.json(&now)))?;
        } else if screen.is_some() {
            Screen::show(&table::lines(&usage, &now))?;
        } else {
            table::lines(&usage, &now).iter().try_for_each(|line| output.line(line))?;
        }
        output.flush()?;
        if arguments.once {
            return Ok(());
        }
        // A key changes the order, and the interval continues.
        if matches!(waited, Waited::Elapsed) {
            earlier = now;
        }
    }
}

fn failure(error: &StatusError) -> Failure {
    Failure::Failed(error.to_string())
}

/// The end of a wait.
#[derive(Clone, Copy, Debug)]
enum Waited {
    Elapsed,
    Sort(SortBy),
    /// By a key, or an interruption.
    Ended,
}

/// Wait for the end of an interval or, at a terminal, for a key.
fn wait(interval: Duration, screen: Option<&Screen>) -> Result<Waited> {
    const STEP: Duration = Duration::from_millis(50);
    let end = Instant::now() + interval;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if interrupt::check().is_err() {
            return Ok(Waited::Ended);
        }
        if left.is_zero() {
            return Ok(Waited::Elapsed);
        }
        match screen.map(|_| Screen::key(left.min(STEP))).transpose()?.flatten() {
            Some(Key::End) => return Ok(Waited::Ended),
            Some(Key::Sort(by)) => return Ok(Waited::Sort(by)),
            None if screen.is_none() => std::thread::sleep(left.min(STEP)),
            None => {}
        }
    }
}

/// Totals of each process in an interval, in the order of the table.
struct Usage {
    seconds: f64,
    tasks: Vec<TaskStatus>,
}

impl Usage {
    fn between(earlier: &Status, now: &Status, sort: SortBy) -> Self {
        let nothing = TaskStatus::default();
        let is_same_mount = earlier.daemon == now.daemon && earlier.uptime_ms <= now.uptime_ms;
        let before = |pid| {
            let earlier = earlier.tasks.iter().filter(|_| is_same_mount);
            earlier.into_iter().find(|task| task.pid == pid).unwrap_or(&nothing)
        };
        let mut tasks: Vec<TaskStatus> = Vec::new();
        for task in &now.tasks {
            let difference = task.since(before(task.pid));
            if difference.all().operations > 0 {
                tasks.push(difference);
            }
        }
        tasks.sort_by_cached_key(|task| {
            let all = task.all();
            let amount = match sort {
                SortBy::Total => task.read.bytes + task.write.bytes,
                SortBy::Read => task.read.bytes,
                SortBy::Write => task.write.bytes,
                SortBy::Operations => all.operations,
                SortBy::Latency => all.latencies.percentile(99.0).as_micros() as u64,
            };
            std::cmp::Reverse((amount, all.operations))
        });
        let since = if is_same_mount { earlier.uptime_ms } else { 0 };
        Self { seconds: (now.uptime_ms - since).max(1) as f64 / 1000.0, tasks }
    }

    /// Everything together.
    fn total(&self) -> TaskStatus {
        let mut total = TaskStatus::default();
        self.tasks.iter().for_each(|task| total.add(task));
        total
    }

    fn json(&self, now: &Status) -> Value {
        let rate = |count: u64| count as f64 / self.seconds;
        let kind = |totals: &Totals| {
            json!({
                "ops_per_s": rate(totals.operations),
                "mb_per_s": rate(totals.bytes) / 1e6,
                "latency_us": {
                    "mean": totals.mean().as_micros() as u64,
                    "p50": totals.latencies.percentile(50.0).as_micros() as u64,
                    "p99": totals.latencies.percentile(99.0).as_micros() as u64,
                },
            })
        };
        let task = |task: &TaskStatus| {
            json!({
                "pid": task.pid,
                "command": task.command,
                "read": kind(&task.read),
                "write": kind(&task.write),
                "sync": kind(&task.sync),
                "metadata": kind(&task.metadata),
            })
        };
        json!({
            "directory": now.directory,
            "image": now.image,
            "read_only": now.volume.read_only,
            "seconds": self.seconds,
            "requests_in_flight": now.in_flight.len(),
            "tasks": self.tasks.iter().map(task).collect::<Vec<_>>(),
        })
    }
}

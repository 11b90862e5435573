//! The command repro: the published tables beside the figures of simulated disks.

use std::path::Path;

use diorite_bench::bonnie::verdict_line;
use diorite_bench::{Machine, Observer, Report};
use diorite_repro::{Options, Outcome, ReproError, boundary, fairness, matrix, odirect, page, raw};
use rustix::fs::Access;
use rustix::io::Errno;

use crate::args::{Repro, Table, command_line};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output::Output;
use crate::progress::StageProgress;

/// Simulates a table.
type Simulation = fn(&Options) -> Result<Outcome, ReproError>;

/// The tables of one simulation each.
const SIMULATIONS: [(Table, Simulation); 4] =
    [(Table::Fairness, fairness), (Table::Boundary, boundary), (Table::Raw, raw), (Table::Odirect, odirect)];

pub(crate) fn repro(arguments: &Repro, output: &mut Output) -> Result<()> {
    // Checked before the run, which takes long.
    arguments.report.as_deref().map_or(Ok(()), check_can_be_written)?;
    let options = Options { seed: arguments.seed, amount_percent: arguments.amount, ..Options::default() };
    let mut outcomes = Vec::new();
    let mut add = |outcome: Outcome| {
        if !arguments.reporting.json {
            print(&outcome, output)?;
            output.flush()?;
        }
        outcomes.push(outcome);
        Ok::<_, Failure>(())
    };
    for (table, reproduce) in SIMULATIONS.into_iter().filter(|(table, _)| arguments.wants(*table)) {
        add(simulated(table, reproduce, &options)?)?;
    }
    if arguments.wants(Table::Matrix) {
        let done = matrix(&options, &StageProgress::default(), &interrupt::cancel());
        interrupt::check()?;
        add(done?)?;
    }
    let machine = Machine::this(None);
    if let Some(file) = &arguments.report {
        #[expect(clippy::disallowed_methods, reason = "a report, not data I/O")]
        std::fs::write(file, page(&outcomes, &machine).render())
            .map_err(|error| Failure::host(file.display(), "write", &error))?;
    }
    if arguments.reporting.json {
        let mut report = Report::new(command_line(), machine);
        for outcome in outcomes {
            report.rows.extend(outcome.rows);
            report.verdicts.extend(outcome.verdicts);
            report.notes.extend(outcome.notes);
        }
        return output.json(serde_json::to_value(&report).map_err(std::io::Error::from)?);
    }
    Ok(())
}

/// Fail if the file, or the directory of a new file, is not writable.
fn check_can_be_written(file: &Path) -> Result<()> {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let written = if file.exists() { file } else { parent };
    let checked = match rustix::fs::access(written, Access::WRITE_OK) {
        Ok(()) if file.is_dir() => Err(Errno::ISDIR),
        checked => checked,
    };
    checked.map_err(|errno| Failure::host(file.display(), "write", &errno.into()))
}

/// The table of a simulation.
fn simulated(table: Table, reproduce: Simulation, options: &Options) -> Result<Outcome> {
    let progress = StageProgress::default();
    progress.begin(&format!("{table:?}: simulating"), 0);
    let outcome = reproduce(options);
    progress.end();
    Ok(outcome?)
}

fn print(outcome: &Outcome, output: &mut Output) -> Result<()> {
    output.line(outcome.title)?;
    if !outcome.headline.is_empty() {
        output.paragraph(&outcome.headline, "")?;
        output.line("")?;
    }
    output.line(format!("{:<34} {:>11} {:>11} {:<8} {:>6}", "", "published", "now", "", "ratio"))?;
    let mut row = "";
    for line in &outcome.lines {
        if line.row != row {
            output.line(&line.row)?;
            row = &line.row;
        }
        let published = line.published.map_or_else(|| "-".to_owned(), figure);
        let ratio = line.published.map_or_else(String::new, |p| format!("{:.2}", line.measured / p));
        let shown = figure(line.measured);
        let text = format!("    {:<30} {published:>11} {shown:>11} {:<8} {ratio:>6}", line.column, line.unit);
        output.line(text.trim_end())?;
    }
    output.line("")?;
    for verdict in &outcome.verdicts {
        output.paragraph(&verdict_line(verdict), "       ")?;
        if let Some(reason) = &verdict.reason {
            output.paragraph(&format!("       {reason}"), "       ")?;
        }
    }
    output.line("")?;
    for note in &outcome.notes {
        output.paragraph(&format!("  {note}"), "  ")?;
    }
    output.line("")
}

fn figure(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

impl From<ReproError> for Failure {
    fn from(error: ReproError) -> Self {
        Self::Failed(format!("repro: {error}"))
    }
}

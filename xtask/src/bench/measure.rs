//! Running one command, and what the whole machine spent meanwhile.

use std::process::{Command, Output};
use std::time::Instant;

/// What came of one run.
pub(crate) struct Run {
    /// Standard output.
    pub(crate) stdout: String,
    /// CPU seconds of the whole machine, kernel threads and interrupts included.
    pub(crate) cpu_s: f64,
}

/// Run a command line; anything but success is an error with what it said.
pub(crate) fn run(command: &[String]) -> Result<Run, String> {
    let (program, arguments) = command.split_first().ok_or("an empty command")?;
    let idle = idle_seconds()?;
    let start = Instant::now();
    let output =
        Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    let seconds = start.elapsed().as_secs_f64();
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as f64;
    let cpu_s = (seconds * cpus - (idle_seconds()? - idle)).max(0.0);
    Ok(Run { stdout: succeed(command, &output)?, cpu_s })
}

/// Run a command for its effect.
pub(crate) fn call(command: &[&str]) -> Result<String, String> {
    let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
    let (program, arguments) = command.split_first().ok_or("an empty command")?;
    let output =
        Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    succeed(&command, &output)
}

fn succeed(command: &[String], output: &Output) -> Result<String, String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}: {}", command.join(" "), output.status, said.trim()))
}

/// Idle and stolen seconds of all CPUs since boot.
fn idle_seconds() -> Result<f64, String> {
    let text = std::fs::read_to_string("/proc/stat").map_err(|error| format!("/proc/stat: {error}"))?;
    let fields: Vec<f64> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .map(|field| field.parse().unwrap_or(0.0))
        .collect();
    // user nice system idle iowait irq softirq steal, in hundredths of a second
    let at = |index: usize| fields.get(index).copied().unwrap_or(0.0);
    Ok((at(3) + at(4) + at(7)) / 100.0)
}

/// The middle of some numbers.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[len / 2],
        len => f64::midpoint(sorted[len / 2 - 1], sorted[len / 2]),
    }
}

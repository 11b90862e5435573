//! Running one command, and the CPU time of the whole machine during the run.

use std::time::Instant;

use crate::command::call;
use crate::target;

/// The result of one run.
pub(crate) struct Run {
    /// Standard output.
    pub(crate) stdout: String,
    /// CPU seconds of the whole machine, kernel threads and interrupts included.
    pub(crate) cpu_s: f64,
}

/// Run a command line and measure the CPU time of the machine.
pub(crate) fn run<S: AsRef<str>>(command: &[S]) -> Result<Run, String> {
    let idle = idle_seconds()?;
    let start = Instant::now();
    let stdout = call(command)?;
    let seconds = start.elapsed().as_secs_f64();
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as f64;
    let cpu_s = (seconds * cpus - (idle_seconds()? - idle)).max(0.0);
    Ok(Run { stdout, cpu_s })
}

/// Build programs in release mode; `what` are arguments of cargo.
pub(crate) fn build(what: &[&str]) -> Result<(), String> {
    call(&[&["cargo", "build", "--release", "--quiet"], what].concat()).map(drop)
}

/// Build a program of `bench/peers`, or all.
pub(crate) fn build_peers(program: Option<&str>) -> Result<(), String> {
    let directory = target::file("peers");
    let peers = ["--target-dir", &directory, "--manifest-path", "bench/peers/Cargo.toml"];
    let program = program.map(|name| ["--bin", name]);
    build(&[&peers[..], program.as_ref().map_or(&[][..], |words| &words[..])].concat())
}

/// A command line as owned words.
pub(crate) fn words(line: &[&str]) -> Vec<String> {
    line.iter().map(|&word| word.to_owned()).collect()
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

/// The median of the finite numbers.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[len / 2],
        len => f64::midpoint(sorted[len / 2 - 1], sorted[len / 2]),
    }
}

/// The minimum and the maximum.
pub(crate) fn range(values: &[f64]) -> (f64, f64) {
    let (least, most) = (f64::INFINITY, 0.0);
    values.iter().fold((least, most), |(least, most), &value| (value.min(least), value.max(most)))
}

//! Workloads of `cargo xtask bench` without fio: one process is one run.
//!
//! `worker WORKLOAD [COUNT] [WORD...] --on IMAGE` uses the library, `--in DIRECTORY` the system calls of the host (a
//! mount by the kernel or by a FUSE server). Both do the same steps and print their figures as JSON.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark program")]

mod appends;
mod names;
mod place;
mod round_trip;
mod stream;

use std::process::ExitCode;

use diorite::Filesystem;

use place::Place;

/// Errors of the library and of the host.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A figure by its name; rates are per second of wall time.
type Figures = Vec<(String, f64)>;

fn run() -> Result<Figures, Failure> {
    let mut arguments = std::env::args().skip(1);
    let workload = arguments.next().ok_or("no workload")?;
    let (mut place, mut numbers, mut words) = (None, Vec::new(), Vec::new());
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or("an argument needs a value");
        match argument.as_str() {
            "--on" => place = Some(Place::Image(Filesystem::open(value()?)?)),
            "--in" => place = Some(Place::host(value()?.as_ref())?),
            other => match other.parse::<u64>() {
                Ok(number) => numbers.push(number),
                Err(_) => words.push(argument),
            },
        }
    }
    let place = place.ok_or("neither --on nor --in")?;
    let number = |index: usize, default| numbers.get(index).copied().unwrap_or(default);
    let figures = match workload.as_str() {
        "names" => names::run(&place, number(0, 100_000) as usize),
        "appends" => appends::run(&place, number(0, 1) as usize, number(1, 2)),
        "round-trips" => round_trip::run(&place, number(0, 20_000) as u32),
        "stream" => stream::run(&place, number(0, 512), &words),
        other => Err(format!("no workload {other}").into()),
    }?;
    place.close()?;
    Ok(figures)
}

fn main() -> ExitCode {
    match run() {
        Ok(figures) => {
            let figures: serde_json::Map<_, _> =
                figures.into_iter().map(|(name, value)| (name, value.into())).collect();
            println!("{}", serde_json::Value::Object(figures));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("worker: {error}");
            ExitCode::FAILURE
        }
    }
}

//! Workloads of `cargo xtask bench` without fio: one process is one run of one contender.
//!
//! `worker WORKLOAD [COUNT] [WORD...] --on IMAGE` (`--make IMAGE` for a new one of 16 TiB) works through the library, `--in DIRECTORY` through the system calls of the host (a
//! mount by the kernel or by a FUSE server). Both do the same steps; the figures go to standard output as JSON.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark program")]

mod appends;
mod full;
mod names;
mod place;
mod round_trip;
mod scale;
mod stream;

use std::process::ExitCode;
use std::time::Instant;

use place::Place;

/// What can go wrong: the library's errors and the host's.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A figure by its name; rates are per second of wall time.
type Figures = Vec<(String, f64)>;

fn run() -> Result<Figures, Failure> {
    let mut arguments = std::env::args().skip(1);
    let workload = arguments.next().ok_or("no workload")?;
    let (mut place, mut numbers, mut words) = (None, Vec::new(), Vec::new());
    let (mut metadata_mib, mut made_s) = (None, None);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or("an argument needs a value");
        match argument.as_str() {
            "--metadata-mib" => metadata_mib = Some(value()?.parse()?),
            "--on" => place = Some(Place::image(value()?.as_ref(), metadata_mib)?),
            "--in" => place = Some(Place::host(value()?.as_ref())?),
            "--make" => {
                let start = Instant::now();
                place = Some(Place::Image(scale::make(value()?.as_ref())?));
                made_s = Some(start.elapsed().as_secs_f64());
            }
            other => match other.parse::<u64>() {
                Ok(number) => numbers.push(number),
                Err(_) => words.push(argument),
            },
        }
    }
    let place = place.ok_or("neither --on nor --in")?;
    let number = |index: usize, default| numbers.get(index).copied().unwrap_or(default);
    let mut figures = match workload.as_str() {
        "names" => names::run(&place, number(0, 100_000) as usize),
        "appends" => appends::run(&place, number(0, 1) as usize, number(1, 2)),
        "round-trips" => round_trip::run(&place, number(0, 20_000) as u32),
        "stream" => stream::run(&place, number(0, 512), &words),
        "million" => scale::million(&place, number(0, 1_000_000) as usize, metadata_mib),
        "far" => scale::far(&place),
        "extents" => scale::extents(&place, number(0, 100_000)),
        "full" => full::full(&place),
        "rest" => full::rest(&place),
        other => Err(format!("no workload {other}").into()),
    }?;
    place.close()?;
    figures.extend(made_s.map(|seconds| ("make_and_open_s".to_owned(), seconds)));
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

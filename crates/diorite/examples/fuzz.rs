//! Fuzzing with hostile images, without a time limit: `fuzz [--seconds N] [--seed FIRST_CASE] [--case N]`.
//! `cargo xtask fuzz` runs it with a memory limit.
#![allow(missing_docs, reason = "a tool")]

#[path = "../tests/it/fuzz/mod.rs"]
mod fuzz;

use std::process::ExitCode;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let (mut seconds, mut seed, mut cases) = (60, 0, u64::MAX);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().and_then(|value| value.parse::<u64>().ok());
        match (argument.as_str(), value) {
            ("--seconds", Some(value)) => seconds = value,
            ("--seed", Some(value)) => seed = value,
            ("--case", Some(value)) => (seed, cases) = (value, 1),
            _ => {
                eprintln!("usage: fuzz [--seconds N] [--seed FIRST_CASE] [--case N]");
                return ExitCode::from(2);
            }
        }
    }
    let campaign = fuzz::Campaign::new();
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut run, mut failed, mut opened, mut answers, mut errors, mut slowest) =
        (0, 0, [0, 0], 0, 0, Duration::ZERO);
    while Instant::now() < end && run < cases {
        let begin = Instant::now();
        match campaign.run(seed + run) {
            Ok(outcome) => {
                (0..2).for_each(|which| opened[which] += u64::from(outcome.opened[which]));
                answers += outcome.answers;
                errors += outcome.errors;
            }
            Err(what) => {
                println!("FAILED: {what}");
                failed += 1;
            }
        }
        run += 1;
        slowest = slowest.max(begin.elapsed());
        if run % 2000 == 0 {
            println!("{run} cases, {failed} failed, slowest {slowest:?}");
        }
    }
    println!(
        "cases {seed} to {}: {failed} of {run} failed; {} opened read-only, {} for writing; {answers} answers, {errors} errors; slowest {slowest:?}",
        seed + run,
        opened[0],
        opened[1]
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

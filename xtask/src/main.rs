//! Checks and tests of the workspace: `cargo xtask help`.

mod bench;
mod setup;

use std::process::{Command, ExitCode};

const USAGE: &str = "usage: cargo xtask COMMAND

  setup   install the Debian packages that the tests use (needs root), or name those that are missing
  test    setup, then every test of the workspace
  ci      formatting, lints, documentation, then test: before a change lands
  bench   [--directory DIR] [--rounds N] [SUITE...]: ratios against peers, stored under bench/runs
";

fn main() -> ExitCode {
    let command = std::env::args().nth(1).unwrap_or_default();
    let done = match command.as_str() {
        "setup" => setup::install_packages(),
        "test" => test(),
        "ci" => ci(),
        "bench" => bench::run(&std::env::args().skip(2).collect::<Vec<_>>()),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

fn ci() -> Result<(), String> {
    cargo(&["fmt", "--all", "--check"], &[])?;
    cargo(&["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"], &[])?;
    cargo(&["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "--deny warnings")])?;
    test()
}

fn test() -> Result<(), String> {
    setup::install_packages()?;
    cargo(&["test", "--workspace"], &[])
}

/// Run cargo with `arguments`, shown as a heading; its output goes to the terminal.
fn cargo(arguments: &[&str], environment: &[(&str, &str)]) -> Result<(), String> {
    println!("--- cargo {}", arguments.join(" "));
    let status = Command::new(env!("CARGO"))
        .args(arguments)
        .envs(environment.iter().copied())
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("cargo {}: {status}", arguments.join(" "))) }
}

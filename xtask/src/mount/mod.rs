//! Programs that live on a mount: what others wrote to exercise filesystems, databases whose daemon is killed under them, devices that
//! fail. After each the volume is what `e2fsck -fn` likes.

pub(crate) mod databases;
mod faults;
mod programs;
mod served;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::setup;
use served::Served;

/// How long a part of the suite runs where the command does not say.
const SECONDS: u64 = 20;

/// What all parts know.
#[derive(Debug)]
pub(crate) struct Settings {
    /// About how long each part runs.
    pub(crate) time: Duration,
    pub(crate) seed: u64,
    /// The program under test.
    pub(crate) diorite: PathBuf,
}

/// A part of the suite: what it did, or what went wrong.
type Part = fn(&Settings) -> Result<String, String>;

const PARTS: &[(&str, Part)] = &[
    ("sqlite-killed", databases::sqlite),
    ("postgresql-killed", databases::postgresql),
    ("mariadb-killed", databases::mariadb),
    ("device-errors", faults::device_errors),
    ("unmount-under-load", faults::unmount_under_load),
    ("small-memory", faults::small_memory),
];

/// `cargo xtask mount`: all parts, or those whose names begin with an argument.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let mut settings = Settings { time: Duration::from_secs(SECONDS), seed: 1, diorite: PathBuf::new() };
    let mut wanted = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let value = arguments.next().and_then(|value| value.parse().ok());
            value.ok_or_else(|| format!("mount: {argument}: a number is needed"))
        };
        match argument.as_str() {
            "--seconds" => settings.time = Duration::from_secs(number()?),
            "--seed" => settings.seed = number()?,
            name => wanted.push(name.to_owned()),
        }
    }
    if !setup::is_root() {
        return Err("mount: this needs root".to_owned());
    }
    setup::install_mount_packages()?;
    super::cargo(&["build", "--quiet", "--package", "diorite-cli"], &[])?;
    settings.diorite = std::path::absolute("target/debug/diorite").map_err(|error| error.to_string())?;
    let is_wanted =
        |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| name.starts_with(wanted.as_str()));
    let mut failed = Vec::new();
    let mut report = |name: &str, start: Instant, result: Result<String, String>| {
        let seconds = start.elapsed().as_secs();
        match result {
            Ok(said) => println!("{name:24} {seconds:5} s  passed  {said}"),
            Err(said) => {
                println!("{name:24} {seconds:5} s  FAILED  {said}");
                failed.push(name.to_owned());
            }
        }
    };
    for program in programs::PROGRAMS.iter().filter(|program| is_wanted(program.name)) {
        let start = Instant::now();
        report(program.name, start, programs::run(program, &settings));
    }
    for (name, part) in PARTS.iter().filter(|(name, _)| is_wanted(name)) {
        let start = Instant::now();
        report(name, start, part(&settings));
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("mount: {} failed", failed.join(", "))) }
}

//! Programs that live on a mount: what others wrote to exercise filesystems, databases whose daemon is killed under them, devices that
//! fail. After each the volume is what `e2fsck -fn` likes.

pub(crate) mod databases;
mod faults;
mod programs;
mod served;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::setup;
use crate::skips::Skips;
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
    settings.diorite = build_diorite()?;
    let is_wanted =
        |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| name.starts_with(wanted.as_str()));
    let mut failed = Vec::new();
    for program in programs::PROGRAMS.iter().filter(|program| is_wanted(program.name)) {
        match program.missing() {
            Some(why) => println!("SKIPPED: {}: {why}", program.name),
            None => report(program.name, &mut failed, || programs::run(program, &settings)),
        }
    }
    for (name, part) in PARTS.iter().filter(|(name, _)| is_wanted(name)) {
        report(name, &mut failed, || part(&settings));
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("mount: {} failed", failed.join(", "))) }
}

/// fsx on mounts, for `cargo xtask test`: two minutes. What this machine cannot run is added to `skips`.
pub(crate) fn fsx(seed: u32, skips: &mut Skips) -> Result<(), String> {
    println!("--- fsx on mounts, --seed {seed}");
    let mut parts: Vec<_> =
        programs::PROGRAMS.iter().filter(|program| program.name.starts_with("fsx")).collect();
    let installed = setup::install_fsx();
    parts.retain(|part| {
        let why = part.missing().or(installed.is_err().then_some("the crate fsx cannot be installed"));
        why.is_none_or(|why| {
            skips.add(part.name, why);
            false
        })
    });
    if parts.is_empty() {
        return Ok(());
    }
    let (time, seed) = (Duration::from_secs(SECONDS), u64::from(seed));
    let settings = Settings { time, seed, diorite: build_diorite()? };
    let mut failed = Vec::new();
    for part in parts {
        report(part.name, &mut failed, || programs::run(part, &settings));
    }
    let Some(first) = failed.first() else { return Ok(()) };
    let all = failed.join(", ");
    Err(format!("{all} failed with --seed {seed}; `cargo xtask mount --seed {seed} {first}` repeats it"))
}

/// The program under test, built.
fn build_diorite() -> Result<PathBuf, String> {
    super::cargo(&["build", "--quiet", "--package", "diorite-cli"], &[])?;
    std::path::absolute("target/debug/diorite").map_err(|error| error.to_string())
}

/// Run a part, and say what came of it.
fn report(name: &str, failed: &mut Vec<String>, part: impl FnOnce() -> Result<String, String>) {
    let start = Instant::now();
    let result = part();
    let seconds = start.elapsed().as_secs();
    match result {
        Ok(said) => println!("{name:24} {seconds:5} s  passed  {said}"),
        Err(said) => {
            println!("{name:24} {seconds:5} s  FAILED  {said}");
            failed.push(name.to_owned());
        }
    }
}

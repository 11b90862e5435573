//! Programs on a mount: tests of filesystems by other projects, databases while the daemon is killed, and failing devices. Each runs over both
//! transports, with `e2fsck -fn` at the end.

pub(crate) mod databases;
mod faults;
mod programs;
mod served;
pub(crate) mod transport;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::setup;
use crate::skips::Skips;
use crate::target;
use programs::{PROGRAMS, Program};
use served::Served;
use transport::Transport;

/// The default duration of a part.
const SECONDS: u64 = 20;
/// The same for the fsx runs among the tests.
const FSX_SECONDS: u64 = 10;

/// The arguments of a part.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The approximate duration of each part.
    pub(crate) time: Duration,
    pub(crate) seed: u64,
    /// The program under test.
    pub(crate) diorite: PathBuf,
    /// The transport of the mounts.
    pub(crate) transport: Transport,
}

/// A part that is not in [`PROGRAMS`]. Returns a summary.
type Scenario = fn(&Settings) -> Result<String, String>;

const SCENARIOS: &[(&str, Scenario)] = &[
    ("sqlite-killed", databases::sqlite),
    ("postgresql-killed", databases::postgresql),
    ("mariadb-killed", databases::mariadb),
    ("device-errors", faults::device_errors),
    ("unmount-under-load", faults::unmount_under_load),
    ("small-memory", faults::small_memory),
];

#[derive(Clone, Copy)]
enum Work {
    Program(&'static Program),
    Scenario(Scenario),
}

/// A part of the suite: a program or a scenario, over a transport.
struct Part {
    name: String,
    work: Work,
    transport: Transport,
}

impl Part {
    /// The parts whose names begin with one of `wanted`; all parts if it is empty.
    fn select(wanted: &[String]) -> Vec<Self> {
        let programs = PROGRAMS.iter().map(|program| (program.name, Work::Program(program)));
        let scenarios = SCENARIOS.iter().map(|(name, scenario)| (*name, Work::Scenario(*scenario)));
        let over_each = programs.chain(scenarios).flat_map(|(name, work)| {
            Transport::ALL.map(|transport| Self {
                name: format!("{name}{}", transport.suffix()),
                work,
                transport,
            })
        });
        let is_wanted = |part: &Self| {
            wanted.is_empty() || wanted.iter().any(|wanted| part.name.starts_with(wanted.as_str()))
        };
        over_each.filter(is_wanted).collect()
    }

    /// The reason why it cannot run on this machine.
    fn missing(&self) -> Option<&'static str> {
        if setup::is_root() { self.transport.missing() } else { Some("a mount by FUSE needs root") }
    }

    /// Run it and print the result. The name of a failed part is added to `failed`.
    fn run(&self, settings: &Settings, failed: &mut Vec<String>) {
        let settings = Settings { transport: self.transport, ..settings.clone() };
        let start = Instant::now();
        let result = match self.work {
            Work::Program(program) => programs::run(program, &settings),
            Work::Scenario(scenario) => scenario(&settings),
        };
        let (name, seconds) = (&self.name, start.elapsed().as_secs());
        match result {
            Ok(said) => println!("{name:24} {seconds:5} s  passed  {said}"),
            Err(said) => {
                println!("{name:24} {seconds:5} s  FAILED  {said}");
                failed.push(name.clone());
            }
        }
    }
}

/// `cargo xtask mount`: all parts, or those whose names begin with an argument.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let (mut time, mut seed) = (Duration::from_secs(SECONDS), 1);
    let mut wanted = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let value = arguments.next().and_then(|value| value.parse().ok());
            value.ok_or_else(|| format!("mount: {argument}: a number is needed"))
        };
        match argument.as_str() {
            "--seconds" => time = Duration::from_secs(number()?),
            "--seed" => seed = number()?,
            name => wanted.push(name.to_owned()),
        }
    }
    if !setup::is_root() {
        return Err("mount: this needs root".to_owned());
    }
    setup::install_mount_packages()?;
    let settings = Settings { time, seed, diorite: build_diorite()?, transport: Transport::DevFuse };
    let mut failed = Vec::new();
    for part in Part::select(&wanted) {
        match part.missing() {
            Some(why) => println!("SKIPPED: {}: {why}", part.name),
            None => part.run(&settings, &mut failed),
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("mount: {} failed", failed.join(", "))) }
}

/// Two minutes of fsx on mounts by the program built for the tests, for `cargo xtask test`. Parts that cannot run here are added to `skips`.
pub(crate) fn fsx(seed: u32, skips: &mut Skips) -> Result<(), String> {
    println!("--- fsx on mounts, --seed {seed}");
    let mut parts = Part::select(&["fsx".to_owned()]);
    let installed = setup::install_fsx();
    parts.retain(|part| {
        let why = part.missing().or(installed.is_err().then_some("the crate fsx cannot be installed"));
        why.is_none_or(|why| {
            skips.add(&part.name, why);
            false
        })
    });
    if parts.is_empty() {
        return Ok(());
    }
    let (time, seed) = (Duration::from_secs(FSX_SECONDS), u64::from(seed));
    let settings = Settings { time, seed, diorite: diorite()?, transport: Transport::DevFuse };
    let mut failed = Vec::new();
    for part in parts {
        part.run(&settings, &mut failed);
    }
    let Some(first) = failed.first() else { return Ok(()) };
    let all = failed.join(", ");
    Err(format!("{all} failed with --seed {seed}; `cargo xtask mount --seed {seed} {first}` repeats it"))
}

/// Build the program under test.
fn build_diorite() -> Result<PathBuf, String> {
    super::cargo(&["build", "--quiet", "--package", "diorite-cli"], &[])?;
    diorite()
}

fn diorite() -> Result<PathBuf, String> {
    std::path::absolute(target::directory().join("debug/diorite")).map_err(|error| error.to_string())
}

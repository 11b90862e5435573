//! Programs that live on a mount: what others wrote to exercise filesystems, databases whose daemon is killed under them, devices that
//! fail. Each over both transports. After each the volume is what `e2fsck -fn` likes.

pub(crate) mod databases;
mod faults;
mod programs;
mod served;
mod transport;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::setup;
use crate::skips::Skips;
use crate::target;
use programs::{PROGRAMS, Program};
use served::Served;
use transport::Transport;

/// How long a part of the suite runs where the command does not say.
const SECONDS: u64 = 20;

/// The arguments of a part.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// About how long each part runs.
    pub(crate) time: Duration,
    pub(crate) seed: u64,
    /// The program under test.
    pub(crate) diorite: PathBuf,
    /// Of the mounts that it makes.
    pub(crate) transport: Transport,
}

/// A part that is not one of [`PROGRAMS`]: its result, or the error.
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
    /// Those whose names begin with one of `wanted`; all if it has none.
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

    /// Why it cannot run on this machine.
    fn missing(&self) -> Option<&'static str> {
        if setup::is_root() { self.transport.missing() } else { Some("a mount by FUSE needs root") }
    }

    /// Run it, and say what came of it; its name is added to `failed` if it fails.
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

/// fsx on mounts, for `cargo xtask test`: two minutes, of the program that was built for the tests. What this machine cannot run is added to
/// `skips`.
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
    let (time, seed) = (Duration::from_secs(SECONDS), u64::from(seed));
    let settings = Settings { time, seed, diorite: diorite()?, transport: Transport::DevFuse };
    let mut failed = Vec::new();
    for part in parts {
        part.run(&settings, &mut failed);
    }
    let Some(first) = failed.first() else { return Ok(()) };
    let all = failed.join(", ");
    Err(format!("{all} failed with --seed {seed}; `cargo xtask mount --seed {seed} {first}` repeats it"))
}

/// The program under test, built.
fn build_diorite() -> Result<PathBuf, String> {
    super::cargo(&["build", "--quiet", "--package", "diorite-cli"], &[])?;
    diorite()
}

fn diorite() -> Result<PathBuf, String> {
    std::path::absolute(target::directory().join("debug/diorite")).map_err(|error| error.to_string())
}

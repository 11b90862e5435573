//! Ratios against peers, in interleaved runs: `cargo xtask bench [SUITE]`.
//!
//! Most suites are a list of programs that print their figures (`rates.rs`). Raw output, commands and versions are stored under
//! `bench/runs/DATE-HOST/SUITE/`.

mod advise;
mod cached;
mod databases;
mod eight;
mod everyday;
mod host;
mod host_loop;
mod load;
mod measure;
mod metadata;
mod mounts;
mod natural;
mod pool;
mod rates;
mod readers;
mod schedulers;
mod store;
mod stream;
mod tree;

use std::path::PathBuf;

use crate::target;

pub(crate) use databases::run_in as run_databases_in;
pub(crate) use mounts::run_in;

/// The arguments.
#[derive(Clone)]
pub(crate) struct Options {
    /// Directory for images, on the measured disk; an absolute path.
    pub(crate) directory: PathBuf,
    /// Rounds.
    pub(crate) rounds: u32,
    /// Another checkout of the source, whose programs are built: they take turns with ours, and no peer runs.
    pub(crate) before: Option<PathBuf>,
    /// `schedulers`: the matrix of workloads and disks, and nothing else.
    pub(crate) matrix: bool,
}

/// A suite: measures, prints and stores.
type Suite = fn(&Options) -> Result<(), String>;

const SUITES: &[(&str, Suite)] = &[
    ("natural", natural::on_disk),
    ("natural-tmpfs", natural::on_tmpfs),
    ("eight-limited", eight::run),
    ("cached", cached::run),
    ("readers", readers::run),
    ("pool", pool::run),
    ("schedulers", schedulers::run),
    ("names", metadata::names),
    ("appends", metadata::appends),
    ("stream", stream::run),
    ("tree", tree::run),
    ("everyday", everyday::run),
    ("load", load::run),
    ("uncached", host::small_files),
    ("host-copy", host::large_file),
    ("host", host_loop::run),
    ("advise", advise::run),
    ("mount", mounts::on_disk),
    ("mount-tmpfs", mounts::on_tmpfs),
    ("databases", databases::run),
];

/// Run the suites that `arguments` name, or all.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let mut options =
        Options { directory: target::directory().join("bench"), rounds: 5, before: None, matrix: false };
    let mut names = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--directory" => options.directory = PathBuf::from(value()?),
            "--before" => {
                let path = PathBuf::from(value()?);
                let path = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
                options.before = Some(path);
            }
            "--matrix" => options.matrix = true,
            "--rounds" => options.rounds = value()?.parse().map_err(|_| "--rounds needs a number")?,
            name => names.push(name.to_owned()),
        }
    }
    for name in &names {
        if !SUITES.iter().any(|(suite, _)| suite == name) {
            let known: Vec<_> = SUITES.iter().map(|(suite, _)| *suite).collect();
            return Err(format!("no suite {name}; there are: {}", known.join(", ")));
        }
    }
    let directory = &options.directory;
    options.directory = std::fs::create_dir_all(directory)
        .and_then(|()| directory.canonicalize())
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    for (name, suite) in SUITES {
        if names.is_empty() || names.iter().any(|chosen| chosen == name) {
            suite(&options)?;
        }
    }
    Ok(())
}

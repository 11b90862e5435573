//! Suites whose runs are one process each that prints its figures as a JSON object: rates, times, sizes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use super::Options;
use super::contender::figures;
use super::measure::{build, median, range, run as run_command, shell};
use super::store;
pub(super) use crate::setup::is_root as can_mount;
use crate::target;

/// Who takes part in a suite.
pub(super) struct Runner {
    /// Its name in reports.
    pub(super) name: &'static str,
    /// Shell commands before each run, not on any clock.
    pub(super) before: Vec<String>,
    /// The command line that is run; it prints its figures as a JSON object, or a report of fio or of `diorite`.
    pub(super) command: Vec<String>,
    /// Shell commands after each run.
    pub(super) after: Vec<String>,
}

/// A target ratio: a figure of one runner against a figure of another in the same round.
pub(super) struct TargetRatio {
    /// Runner and figure.
    pub(super) ours: (&'static str, &'static str),
    /// Runner and figure of the peer.
    pub(super) peer: (&'static str, &'static str),
    /// The target of the ratio.
    pub(super) bound: Bound,
}

impl TargetRatio {
    /// One figure of two runners.
    pub(super) fn of(figure: &'static str, ours: &'static str, peer: &'static str, bound: Bound) -> Self {
        Self { ours: (ours, figure), peer: (peer, figure), bound }
    }
}

/// The side of the bound on which a ratio must be.
#[derive(Clone, Copy)]
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(bound) => format!(">= {bound}"),
            Self::AtMost(bound) => format!("<= {bound}"),
        }
    }
}

/// The figures of one run, by name.
type Figures = BTreeMap<String, f64>;

/// A suite and what is said about it.
pub(super) struct RateSuite {
    /// Its name, of the directory it is stored in too.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// The work done, and the time measured.
    pub(super) about: String,
    /// Rounds where they are not what the command line says.
    pub(super) rounds: Option<u32>,
    pub(super) runners: Vec<Runner>,
    pub(super) targets: Vec<TargetRatio>,
}

impl RateSuite {
    /// Run all rounds, print, and store.
    pub(super) fn run(&self, options: &Options) -> Result<(), String> {
        let store = store::directory(self.name)?;
        let mut rounds: Vec<Vec<Figures>> = self.runners.iter().map(|_| Vec::new()).collect();
        for round in 0..self.rounds.unwrap_or(options.rounds) {
            // Who comes first changes from round to round.
            for turn in 0..self.runners.len() {
                let index = (turn + round as usize) % self.runners.len();
                let (runner, figures) = (&self.runners[index], &mut rounds[index]);
                let raw = store.join(format!("{}-{round}.json", runner.name));
                let found = run_once(runner, &raw)?;
                let shown: Vec<String> =
                    found.iter().map(|(name, value)| format!("{name} {value:.4}")).collect();
                println!("{} {} round {round}: {}", self.name, runner.name, shown.join(", "));
                figures.push(found);
            }
        }
        let report = self.report(&rounds);
        let mut text =
            format!("# {}\n\n{}\n{}\n{report}\nCommands:\n", self.title, store::versions(), self.about);
        for runner in &self.runners {
            let _ = writeln!(text, "- {}: `{}`", runner.name, runner.command.join(" "));
        }
        store::finish(&store, &text, &report)
    }

    fn report(&self, rounds: &[Vec<Figures>]) -> String {
        let mut text = String::from("| who | figure | median | least | most |\n|---|---|---|---|---|\n");
        for (runner, figures) in self.runners.iter().zip(rounds) {
            let names: Vec<&String> = figures.first().map(|first| first.keys().collect()).unwrap_or_default();
            for name in names {
                let values = series(figures, name);
                let _ = writeln!(
                    text,
                    "| {} | {name} | {} | {} | {} |",
                    runner.name,
                    number(median(values.iter().copied())),
                    number(range(&values).0),
                    number(range(&values).1),
                );
            }
        }
        if !self.targets.is_empty() {
            text.push_str(
                "\n| ratio | of | target | measured (median of rounds; range) | |\n|---|---|---|---|---|\n",
            );
        }
        for target in &self.targets {
            let of = |(runner, figure): (&str, &str)| {
                let index = self.runners.iter().position(|other| other.name == runner)?;
                Some(series(&rounds[index], figure))
            };
            let (Some(ours), Some(peer)) = (of(target.ours), of(target.peer)) else { continue };
            let ratios: Vec<f64> = ours.iter().zip(&peer).map(|(ours, peer)| ours / peer).collect();
            let (ratio, (least, most)) = (median(ratios.iter().copied()), range(&ratios));
            let figure = if target.ours.1 == target.peer.1 {
                target.ours.1.to_owned()
            } else {
                format!("{} / {}", target.ours.1, target.peer.1)
            };
            let _ = writeln!(
                text,
                "| {} / {} | {figure} | {} | {ratio:.3} ({least:.3} to {most:.3}) | {} |",
                target.ours.0,
                target.peer.0,
                target.bound.text(),
                if target.bound.holds(ratio) { "holds" } else { "MISSED" },
            );
        }
        text
    }
}

fn series(figures: &[Figures], name: &str) -> Vec<f64> {
    figures.iter().map(|round| round.get(name).copied().unwrap_or(f64::NAN)).collect()
}

fn number(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

fn run_once(runner: &Runner, raw: &Path) -> Result<Figures, String> {
    let each = |lines: &[String]| lines.iter().try_for_each(|line| shell(line).map(drop));
    let run = each(&runner.before).and_then(|()| run_command(&runner.command));
    let cleaned = each(&runner.after);
    let run = run?;
    cleaned?;
    store::write(raw, &run.stdout)?;
    let value: serde_json::Value = serde_json::from_str(run.stdout.trim())
        .map_err(|error| format!("{}: its figures: {error}", runner.name))?;
    if value.get("jobs").is_some() {
        let rate = figures(&run)?.bandwidth / 1e6;
        return Ok(Figures::from([("mb_per_s".to_owned(), rate)]));
    }
    let object = value.pointer("/rows/0").unwrap_or(&value).as_object();
    let object = object.ok_or("the figures are no JSON object")?;
    Ok(object.iter().filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect())
}

/// The program that does the workloads through the library or the host's system calls, built.
pub(super) fn build_worker() -> Result<String, String> {
    build(&["--package", "diorite-bench", "--example", "worker"])?;
    let path = target::directory().join("release/examples/worker").canonicalize();
    path.map(|path| path.to_string_lossy().into_owned()).map_err(|error| format!("the worker: {error}"))
}

/// A runner that works through the library.
pub(super) fn library(worker: &str, workload: &str, image: &str) -> Runner {
    Runner {
        name: "diorite",
        before: vec![],
        command: worker_words(worker, workload, "--on", image),
        after: vec![],
    }
}

/// A runner that works on the kernel's own mount of the image, the loop device past the host's page cache.
pub(super) fn kernel(worker: &str, workload: &str, image: &str, mount: &str) -> Runner {
    Runner {
        name: "kernel",
        before: vec![loop_mount(image, mount)],
        command: worker_words(worker, workload, "--in", mount),
        after: vec![format!("umount {mount}")],
    }
}

/// A runner that works on a mount by fuse2fs.
pub(super) fn fuse2fs(worker: &str, workload: &str, image: &str, mount: &str) -> Runner {
    Runner {
        name: "fuse2fs",
        before: vec![format!("mkdir -p {mount} && fuse2fs {image} {mount}")],
        command: worker_words(worker, workload, "--in", mount),
        // The server writes everything back after the unmount; the next one wants the image for itself.
        after: vec![format!(
            "umount {mount} && while pgrep -f '^fuse2fs {image} ' >/dev/null; do sleep 0.05; done"
        )],
    }
}

/// The line that mounts an image by the kernel, the loop device past the host's page cache.
pub(super) fn loop_mount(image: &str, mount: &str) -> String {
    format!(
        "mkdir -p {mount} && mount -o loop {image} {mount} && losetup --direct-io=on $(findmnt -no SOURCE {mount})"
    )
}

/// The line that unmounts what fio has used: its ring lets go of the file a moment after fio has ended.
pub(super) fn unmount_after_fio(mount: &str) -> String {
    format!("for try in $(seq 50); do umount {mount} 2>/dev/null && exit 0; sleep 0.1; done; exit 1")
}

fn worker_words(worker: &str, workload: &str, how: &str, place: &str) -> Vec<String> {
    let mut words = vec![worker.to_owned()];
    words.extend(workload.split(' ').map(str::to_owned));
    words.extend([how.to_owned(), place.to_owned()]);
    words
}

/// An image whose blocks the host has really written, formatted by `mke2fs` with these arguments. `mke2fs` punches holes into
/// an image (it discards), so that writing it before is not enough: what it left is written over itself. Without that, the contender that
/// writes to a place first pays for the host's allocation of it, and overwriting looks faster than it is.
pub(super) fn make_image(image: &Path, mib: u32, mke2fs: &str) -> Result<String, String> {
    let path = image.to_string_lossy().into_owned();
    println!("--- making {path}, {mib} MiB: mke2fs {mke2fs}");
    let script = format!(
        "rm -f {path} && truncate -s {mib}M {path} && mke2fs -q -F {mke2fs} {path} && sync && \
         dd if={path} of={path} bs=1M conv=notrunc oflag=direct status=none && sync"
    );
    shell(&script)?;
    Ok(path)
}

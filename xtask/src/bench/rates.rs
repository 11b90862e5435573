//! A suite: programs that print their figures as JSON run in turn, and ratios of their figures are compared with targets.
//!
//! Runners of one workload take turns within a round, so a machine whose speed drifts affects all of them. A ratio is taken within
//! a round; the report has medians over the rounds.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

use super::Options;
use super::measure::{Run, build, median, range, run as run_command};
use super::store;
use crate::command::shell;
pub(super) use crate::setup::is_root as can_mount;
use crate::target;

/// A program of a suite.
#[derive(Clone, Default)]
pub(super) struct Runner {
    /// The workload that it runs; empty in a suite with one workload.
    pub(super) workload: &'static str,
    /// Its name in reports.
    pub(super) name: &'static str,
    /// Shell commands before each run, which are not measured.
    pub(super) before: Vec<String>,
    /// The command line. It prints its figures as a JSON object, or a report of fio or of `diorite`.
    pub(super) command: Vec<String>,
    /// Shell commands after each run.
    pub(super) after: Vec<String>,
}

/// A workload, a runner and a figure.
type Measured = (&'static str, &'static str, &'static str);

/// A target ratio: a figure of one runner against a figure of another in the same round.
pub(super) struct TargetRatio {
    pub(super) ours: Measured,
    pub(super) peer: Measured,
    pub(super) bound: Bound,
}

impl TargetRatio {
    /// One figure of two runners.
    pub(super) fn of(figure: &'static str, ours: &'static str, peer: &'static str, bound: Bound) -> Self {
        Self { ours: ("", ours, figure), peer: ("", peer, figure), bound }
    }

    /// The same ratio for one workload.
    pub(super) fn on(self, workload: &'static str) -> Self {
        let (ours, peer) = ((workload, self.ours.1, self.ours.2), (workload, self.peer.1, self.peer.2));
        Self { ours, peer, ..self }
    }
}

/// The bound of a ratio.
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
pub(super) type Figures = BTreeMap<String, f64>;

/// A suite and its description.
pub(super) struct RateSuite {
    /// Its name, and the name of the directory that stores its runs.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// The work done, and the time measured.
    pub(super) about: String,
    pub(super) runners: Vec<Runner>,
    pub(super) targets: Vec<TargetRatio>,
}

/// The order of the runners in a round: each is first in some round, and each follows as well as precedes its neighbours. A program that runs
/// after another kind of program may pay for memory that the earlier one used differently.
fn order(runners: usize, round: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..runners).map(|turn| (turn + round / 2) % runners).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

impl RateSuite {
    /// Run all rounds, print, and store.
    pub(super) fn run(&self, options: &Options) -> Result<(), String> {
        let name =
            if options.before.is_some() { format!("{}-before", self.name) } else { self.name.to_owned() };
        let store = store::directory(&name)?;
        let report = self.measure(&store, options)?;
        let text = format!("# {}\n\n{}\n{}\n{report}", self.title, store::versions(), self.about);
        store::finish(&store, &text, &report)
    }

    /// Run all rounds. Returns the figures, the ratios and the commands as text. With `options.before`, each runner of a program
    /// that is built here has a twin that runs the other checkout's program.
    pub(super) fn measure(&self, store: &Path, options: &Options) -> Result<String, String> {
        if let Some(before) = &options.before {
            return self.with_twins(before)?.measure(store, &Options { before: None, ..options.clone() });
        }
        let mut rounds: Vec<Vec<Figures>> = self.runners.iter().map(|_| Vec::new()).collect();
        let mut start = 0;
        for group in self.runners.chunk_by(|a, b| a.workload == b.workload) {
            for round in 0..options.rounds as usize {
                for index in order(group.len(), round) {
                    let (runner, name) = (&group[index], title(group[index].workload, group[index].name));
                    let raw = store.join(format!("{}-{round}.json", name.replace(' ', "-")));
                    let figures = run_once(runner, &raw)?;
                    let shown = figures.iter().map(|(name, value)| format!("{name} {value:.4}"));
                    let shown = shown.collect::<Vec<_>>().join(", ");
                    println!("{} {name} round {round}: {shown}", self.name);
                    rounds[start + index].push(figures);
                }
            }
            start += group.len();
        }
        let mut report = self.report(&rounds) + "\nCommands:\n";
        for Runner { workload, name, command, .. } in &self.runners {
            let _ = writeln!(report, "- {}: `{}`", title(workload, name), command.join(" "));
        }
        Ok(report)
    }

    /// Ratios of each runner to its twin, figure by figure.
    fn twins_report(&self, rounds: &[Vec<Figures>]) -> String {
        let mut text = String::new();
        for (pair, rounds) in self.runners.windows(2).zip(rounds.windows(2)) {
            let (now, before) = (&pair[0], &pair[1]);
            if before.workload != now.workload || before.name.strip_suffix("-before") != Some(now.name) {
                continue;
            }
            if text.is_empty() {
                text.push_str(
                    "\n| now / before | figure | measured (median of rounds; range) |\n|---|---|---|\n",
                );
            }
            for figure in rounds[0].first().into_iter().flat_map(BTreeMap::keys) {
                let (_, ratio) = ratio(&series(&rounds[0], figure), &series(&rounds[1], figure));
                let _ = writeln!(text, "| {} | {figure} | {ratio} |", title(now.workload, now.name));
            }
        }
        text
    }

    /// This suite with two runners per program built here: this build and the other checkout's. Peers do not run, even if a program of ours
    /// drives them.
    fn with_twins(&self, before: &Path) -> Result<Self, String> {
        let here =
            target::directory().canonicalize().map_err(|error| format!("the target directory: {error}"))?;
        let other = |line: &String| {
            let from = |line: String, directory: &Path| {
                ["release", "peers/release"].iter().fold(line, |line, built| {
                    line.replace(
                        &format!("{}/{built}/", directory.display()),
                        &format!("{}/target/{built}/", before.display()),
                    )
                })
            };
            // The directory of the other checkout may end like the relative one of this.
            let absolute = from(line.clone(), &here);
            if absolute == *line { from(absolute, target::directory()) } else { absolute }
        };
        let mut suite = Self { about: self.about.clone(), runners: Vec::new(), targets: Vec::new(), ..*self };
        let is_peer = |runner: &&Runner| {
            let is_it = |measured: &Measured| (measured.0, measured.1) == (runner.workload, runner.name);
            let targets = || self.targets.iter();
            targets().any(|target| is_it(&target.peer)) && !targets().any(|target| is_it(&target.ours))
        };
        for runner in self.runners.iter().filter(|runner| !is_peer(runner)) {
            let all = |lines: &[String]| lines.iter().map(other).collect::<Vec<_>>();
            let (setup, command, after) = (all(&runner.before), all(&runner.command), all(&runner.after));
            if (&setup, &command) == (&runner.before, &runner.command) {
                continue;
            }
            let name = format!("{}-before", runner.name).leak();
            suite.runners.extend([runner.clone(), Runner { name, before: setup, command, after, ..*runner }]);
        }
        if suite.runners.is_empty() {
            return Err(format!("{}: no runner uses a program that is built here", self.name));
        }
        Ok(suite)
    }

    fn report(&self, rounds: &[Vec<Figures>]) -> String {
        let mut text = String::from("| runner | figure | median | least | most |\n|---|---|---|---|---|\n");
        for (Runner { workload, name: runner, .. }, figures) in self.runners.iter().zip(rounds) {
            for name in figures.first().into_iter().flat_map(BTreeMap::keys) {
                let values = series(figures, name);
                let _ = writeln!(
                    text,
                    "| {} | {name} | {} | {} | {} |",
                    title(workload, runner),
                    number(median(values.iter().copied())),
                    number(range(&values).0),
                    number(range(&values).1),
                );
            }
        }
        text.push_str(&self.twins_report(rounds));
        if !self.targets.is_empty() {
            text.push_str(
                "\n| ratio | of | target | measured (median of rounds; range) | |\n|---|---|---|---|---|\n",
            );
        }
        for TargetRatio { ours, peer, bound } in &self.targets {
            let of = |(workload, runner, figure): Measured| {
                let is_it = |other: &Runner| (other.workload, other.name) == (workload, runner);
                Some(series(&rounds[self.runners.iter().position(is_it)?], figure))
            };
            let (Some(measured), Some(of_peer)) = (of(*ours), of(*peer)) else { continue };
            let (value, ratio) = ratio(&measured, &of_peer);
            let figure =
                if ours.2 == peer.2 { ours.2.to_owned() } else { format!("{} / {}", ours.2, peer.2) };
            let _ = writeln!(
                text,
                "| {} / {} | {figure} | {} | {ratio} | {} |",
                title(ours.0, ours.1),
                if ours.0 == peer.0 { peer.1.to_owned() } else { title(peer.0, peer.1) },
                bound.text(),
                if bound.holds(value) { "holds" } else { "MISSED" },
            );
        }
        text
    }
}

/// The name of a runner with its workload.
fn title(workload: &str, runner: &str) -> String {
    format!("{workload} {runner}").trim().to_owned()
}

fn series(figures: &[Figures], name: &str) -> Vec<f64> {
    figures.iter().map(|round| round.get(name).copied().unwrap_or(f64::NAN)).collect()
}

/// The median of the ratios within a round; and with their range, as text.
fn ratio(ours: &[f64], peer: &[f64]) -> (f64, String) {
    let ratios: Vec<f64> = ours.iter().zip(peer).map(|(ours, peer)| ours / peer).collect();
    let (ratio, (least, most)) = (median(ratios.iter().copied()), range(&ratios));
    (ratio, format!("{ratio:.3} ({least:.3} to {most:.3})"))
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
    figures(&run).map_err(|error| format!("{}: {error}", title(runner.workload, runner.name)))
}

/// The figures that a program printed.
pub(super) fn figures(run: &Run) -> Result<Figures, String> {
    // fio may print notes before the object.
    let start = run.stdout.find('{').ok_or("no JSON in the output")?;
    let value: Value =
        serde_json::from_str(&run.stdout[start..]).map_err(|error| format!("its JSON: {error}"))?;
    if value.get("jobs").is_some() {
        return figures_of_job(&value["jobs"][0], run.cpu_s);
    }
    let object = value.pointer("/rows/0").unwrap_or(&value).as_object();
    let object = object.ok_or("the figures are no JSON object")?;
    Ok(object.iter().filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect())
}

/// The figures of a job in fio's format. `cpu_s` are the CPU seconds of the whole machine.
fn figures_of_job(job: &Value, cpu_s: f64) -> Result<Figures, String> {
    let directions = ["read", "write"].map(|name| &job[name]);
    let direction = directions.into_iter().find(|direction| direction["total_ios"].as_u64() > Some(0));
    let direction = direction.ok_or("the job moved nothing")?;
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let gb = number(&direction["io_bytes"]) / 1e9;
    let own_percent = number(&job["usr_cpu"]) + number(&job["sys_cpu"]);
    let percentile = |name: &str| number(&direction["clat_ns"]["percentile"][name]) / 1e3;
    let figures = [
        ("mb_per_s", number(&direction["bw_bytes"]) / 1e6),
        ("iops", number(&direction["iops"])),
        ("p50_us", percentile("50.000000")),
        ("p99_us", percentile("99.000000")),
        ("cpu_s_per_gb", cpu_s / gb),
        ("own_cpu_s_per_gb", own_percent / 100.0 * number(&direction["runtime"]) / 1e3 / gb),
    ];
    let reported = figures.into_iter().filter(|(_, value)| value.is_finite());
    Ok(reported.map(|(name, value)| (name.to_owned(), value)).collect())
}

/// Build the program that runs workloads through the library or through system calls.
pub(super) fn build_worker() -> Result<String, String> {
    build(&["--package", "diorite-bench", "--example", "worker"])?;
    let path = target::directory().join("release/examples/worker").canonicalize();
    path.map(|path| path.to_string_lossy().into_owned()).map_err(|error| format!("the worker: {error}"))
}

/// A runner that works through the library.
pub(super) fn library(worker: &str, workload: &str, image: &str) -> Runner {
    let command = worker_words(worker, workload, "--on", image);
    Runner { name: "diorite", command, ..Runner::default() }
}

/// A runner on the kernel's mount of the image, over a loop device with direct I/O.
pub(super) fn kernel(worker: &str, workload: &str, image: &str, mount: &str) -> Runner {
    Runner {
        name: "kernel",
        before: vec![loop_mount(image, mount)],
        command: worker_words(worker, workload, "--in", mount),
        after: vec![format!("umount {mount}")],
        ..Runner::default()
    }
}

/// A runner on a mount by fuse2fs.
pub(super) fn fuse2fs(worker: &str, workload: &str, image: &str, mount: &str) -> Runner {
    Runner {
        name: "fuse2fs",
        before: vec![format!("mkdir -p {mount} && fuse2fs {image} {mount}")],
        command: worker_words(worker, workload, "--in", mount),
        // The server writes everything back after the unmount, and locks the image until then.
        after: vec![format!(
            "umount {mount} && while pgrep -f '^fuse2fs {image} ' >/dev/null; do sleep 0.05; done"
        )],
        ..Runner::default()
    }
}

/// The shell command that mounts an image by the kernel, over a loop device with direct I/O.
pub(super) fn loop_mount(image: &str, mount: &str) -> String {
    format!(
        "mkdir -p {mount} && mount -o loop {image} {mount} && losetup --direct-io=on $(findmnt -no SOURCE {mount})"
    )
}

/// The shell command that unmounts after fio. The kernel closes the files of fio's ring shortly after fio has ended.
pub(super) fn unmount_after_fio(mount: &str) -> String {
    format!("for try in $(seq 50); do umount {mount} 2>/dev/null && exit 0; sleep 0.1; done; exit 1")
}

/// The shell command that reads a file directly, so that all runners find the same content in the caches of the storage below.
pub(super) fn read_directly(file: &Path) -> String {
    format!("dd if={} of=/dev/null bs=1M iflag=direct status=none", file.display())
}

/// A command bound to the last CPU if it has one thread. A thread that waits for each transfer is faster on the CPU that takes
/// the disk's interrupts than on another one, and the difference is larger than those between runners.
pub(super) fn pinned(command: Vec<String>, threads: u32) -> Vec<String> {
    let last = std::thread::available_parallelism().map_or(0, |cpus| cpus.get() - 1);
    if threads > 1 {
        return command;
    }
    [["taskset", "-c", &last.to_string()].map(str::to_owned).to_vec(), command].concat()
}

fn worker_words(worker: &str, workload: &str, option: &str, path: &str) -> Vec<String> {
    let words = [worker].into_iter().chain(workload.split(' ')).chain([option, path]);
    words.map(str::to_owned).collect()
}

/// An image formatted by `mke2fs` with these arguments, whose blocks the host has allocated. `mke2fs` discards, which punches holes into
/// the image, so the image is written again afterwards. Otherwise the runner that writes a block first pays for its allocation.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round_and_across_workloads() {
        let runner = |workload, name| Runner { workload, name, ..Runner::default() };
        let targets = vec![
            TargetRatio::of("rate", "ours", "peer", Bound::AtLeast(2.0)).on("one"),
            TargetRatio {
                ours: ("two", "ours", "rate"),
                peer: ("one", "ours", "rate"),
                bound: Bound::AtMost(1.0),
            },
            TargetRatio::of("rate", "absent", "peer", Bound::AtLeast(2.0)).on("one"),
        ];
        let runners = vec![runner("one", "ours"), runner("one", "peer"), runner("two", "ours")];
        let suite = RateSuite { name: "x", title: "X", about: String::new(), runners, targets };
        let rounds = |rates: [f64; 2]| rates.map(|rate| Figures::from([("rate".to_owned(), rate)])).to_vec();
        let report = suite.report(&[rounds([2.0, 8.0]), rounds([1.0, 4.0]), rounds([3.0, 9.0])]);
        assert!(report.contains("| one ours | rate | 5.000 | 2.000 | 8.000 |"), "{report}");
        assert!(
            report.contains("| one ours / peer | rate | >= 2 | 2.000 (2.000 to 2.000) | holds |"),
            "{report}"
        );
        assert!(
            report.contains("| two ours / one ours | rate | <= 1 | 1.312 (1.125 to 1.500) | MISSED |"),
            "{report}"
        );
        assert!(!report.contains("absent"), "{report}");
    }

    #[test]
    fn neighbours_change_their_order() {
        assert_eq!([0, 1, 2, 3].map(|round| order(2, round)), [[0, 1], [1, 0], [1, 0], [0, 1]]);
        assert_eq!([0, 1, 2].map(|round| order(3, round)), [[0, 1, 2], [2, 1, 0], [1, 2, 0]]);
    }

    #[test]
    fn runners_of_programs_built_here_have_twins_of_another_checkout() {
        let command = |program: String| vec![program, "target/bench/a.img".to_owned()];
        let runner = |name, command| Runner { name, command, ..Runner::default() };
        let ours = runner("ours", command(target::file("release/diorite")));
        let runners = vec![ours, runner("fio", command("fio".to_owned()))];
        let suite = RateSuite { name: "x", title: "X", about: String::new(), runners, targets: Vec::new() };
        std::fs::create_dir_all(target::directory()).expect("the target directory");
        let twins = suite.with_twins(Path::new("/old")).expect("twins");
        let names: Vec<&str> = twins.runners.iter().map(|runner| runner.name).collect();
        assert_eq!(names, ["ours", "ours-before"]);
        assert_eq!(twins.runners[0].command[0], target::file("release/diorite"));
        assert_eq!(twins.runners[1].command, command("/old/target/release/diorite".to_owned()));
        let rounds = |rate: f64| vec![Figures::from([("rate".to_owned(), rate)])];
        let report = twins.report(&[rounds(3.0), rounds(2.0)]);
        assert!(report.contains("| ours | rate | 1.500 (1.500 to 1.500) |"), "{report}");
    }

    #[test]
    fn figures_of_fio_are_in_units() {
        let job = r#"note
            {"jobs":[{"usr_cpu":10,"sys_cpu":40,"read":{"total_ios":0},"write":{"total_ios":9,"io_bytes":2000000000,
            "bw_bytes":1000000,"iops":5.5,"runtime":4000,"clat_ns":{"percentile":{"50.000000":7000}}}}]}"#;
        let figures = figures(&Run { stdout: job.to_owned(), cpu_s: 6.0 }).expect("figures");
        let expected = [
            ("cpu_s_per_gb", 3.0),
            ("iops", 5.5),
            ("mb_per_s", 1.0),
            ("own_cpu_s_per_gb", 1.0),
            ("p50_us", 7.0),
        ];
        assert_eq!(figures, expected.map(|(name, value)| (name.to_owned(), value)).into());
    }
}

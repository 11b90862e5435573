//! Suite `advise`: twelve programs (`bench/advised`), each through the page cache and with direct I/O, in a control group of little memory;
//! what they take beside what `diorite advise` predicts from one recorded run.
//!
//! Prediction and measurement differ by at most a fifth where a verdict holds. Where the ways differ by a tenth, the advice must name the better one.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Options;
use super::measure::{build, median};
use super::store;
use crate::command::{call, shell};
use crate::target;

const PROGRAMS: [&str; 12] = [
    "scan",
    "compaction",
    "database-larger",
    "database-smaller",
    "build",
    "backup",
    "log",
    "model",
    "hot-set",
    "tree",
    "synced-log",
    "video",
];
/// Memory of the control group: `larger` and `smaller` in the programs' names refer to it.
const MEMORY_BYTES: u64 = 256 << 20;
/// Predictions may differ from measurements by this share.
const TOLERANCE: f64 = 0.2;
/// Ways that differ by less are the same.
const SAME: f64 = 1.1;

pub(super) fn run(options: &Options) -> Result<(), String> {
    let Some(group) = Group::new() else {
        println!("SKIPPED: advise: it needs root for a control group");
        return Ok(());
    };
    build(&["--package", "diorite-cli"])?;
    build(&["--target-dir", &target::file("advised"), "--manifest-path", "bench/advised/Cargo.toml"])?;
    let directory = options.directory.join("advise");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    let result = suite(options, &directory, &group);
    let _ = std::fs::remove_dir_all(&directory);
    result
}

/// A control group with a limit of memory.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Self> {
        let (top, limit) = if Path::new("/sys/fs/cgroup/memory").exists() {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            ("/sys/fs/cgroup", "memory.max")
        };
        let group = Self(Path::new(top).join("diorite-advise"));
        let path = group.0.display();
        shell(&format!("mkdir -p {path} && echo {MEMORY_BYTES} > {path}/{limit}")).ok().map(|_| group)
    }

    /// A script that runs a command line in the group, with nothing in the page cache.
    fn script(&self, line: &str) -> String {
        let procs = self.0.join("cgroup.procs");
        format!("sync; echo 3 > /proc/sys/vm/drop_caches; echo $$ > {}; exec {line}", procs.display())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A group of a failed run may still have a process.
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Elapsed and CPU time of a run.
#[derive(Clone, Copy, Debug)]
struct Figures {
    seconds: f64,
    cpu_s: f64,
}

impl Figures {
    fn of_line(text: &str) -> Result<Self, String> {
        let value = |name: &str| {
            let word = text.split_whitespace().find_map(|word| word.strip_prefix(name));
            word.and_then(|word| word.parse().ok()).ok_or_else(|| format!("no {name} in {text}"))
        };
        Ok(Self { seconds: value("seconds=")?, cpu_s: value("cpu_s=")? })
    }

    fn of_prediction(prediction: &Value) -> Self {
        let value = |name: &str| prediction[name].as_f64().unwrap_or(f64::NAN);
        Self { seconds: value("seconds"), cpu_s: value("cpu_s") }
    }

    fn median(runs: &[Self]) -> Self {
        Self {
            seconds: median(runs.iter().map(|run| run.seconds)),
            cpu_s: median(runs.iter().map(|run| run.cpu_s)),
        }
    }
}

/// Measurements and prediction of one program.
struct Compared {
    name: &'static str,
    measured: [Figures; 2],
    predicted: [Figures; 2],
    /// What the advice says for the group of files that matters.
    choices: Vec<(String, String)>,
    confidence: String,
}

fn suite(options: &Options, directory: &Path, group: &Group) -> Result<(), String> {
    let store = store::directory("advise")?;
    let program = target::file("advised/release/advised");
    let mut compared = Vec::new();
    for name in PROGRAMS {
        let place = directory.join(name);
        std::fs::create_dir_all(&place).map_err(|error| error.to_string())?;
        let place = place.display().to_string();
        call(&[&*program, "prepare", name, &place])?;
        let line = |way: &str| format!("{program} {name} {way} {place}");
        let mut runs: [Vec<Figures>; 2] = Default::default();
        let mut raw = String::new();
        for _ in 0..options.rounds {
            for (way, runs) in ["buffered", "direct"].into_iter().zip(&mut runs) {
                let text = shell(&group.script(&line(way)))?;
                let _ = writeln!(raw, "{name} {way} {}", text.trim());
                runs.push(Figures::of_line(&text)?);
            }
        }
        let diorite = target::file("release/diorite");
        let text =
            shell(&group.script(&format!("{diorite} advise --json --cache 160M -- {}", line("buffered"))))?;
        let advice: Value = serde_json::from_str(&text).map_err(|error| format!("{name}: {error}"))?;
        store::write(&store.join(format!("{name}.json")), &text)?;
        store::write(&store.join(format!("{name}.txt")), &raw)?;
        let one = Compared::of(name, &runs, &advice["prediction"]);
        println!("{}", one.line());
        compared.push(one);
        let _ = std::fs::remove_dir_all(&place);
    }
    finish(&store, &compared)
}

impl Compared {
    fn of(name: &'static str, runs: &[Vec<Figures>; 2], prediction: &Value) -> Self {
        let groups = prediction["groups"].as_array().map(Vec::as_slice).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            name,
            measured: [Figures::median(&runs[0]), Figures::median(&runs[1])],
            predicted: [
                Figures::of_prediction(&prediction["buffered"]),
                Figures::of_prediction(&prediction["direct"]),
            ],
            choices: groups.iter().map(|group| (text(&group["choice"]), text(&group["sentence"]))).collect(),
            confidence: text(&prediction["confidence"]),
        }
    }

    /// Prediction over measurement: seconds and CPU, buffered and direct.
    fn ratios(&self) -> [f64; 4] {
        let [buffered, direct] = [0, 1].map(|way: usize| {
            let (predicted, measured) = (self.predicted[way], self.measured[way]);
            [predicted.seconds / measured.seconds, predicted.cpu_s / measured.cpu_s]
        });
        [buffered[0], buffered[1], direct[0], direct[1]]
    }

    /// How much faster direct I/O is.
    fn gain(&self) -> f64 {
        self.measured[0].seconds / self.measured[1].seconds
    }

    /// Whether the advice names the better way; `None` if the ways are the same.
    fn is_right(&self) -> Option<bool> {
        let has = |wanted: &str| self.choices.iter().any(|(choice, _)| choice == wanted);
        let cpu = self.measured[0].cpu_s / self.measured[1].cpu_s;
        let gain = self.gain();
        if gain >= SAME {
            Some(has("use-direct"))
        } else if gain <= 1.0 / SAME {
            Some(!has("use-direct"))
        } else if cpu >= SAME {
            Some(has("use-direct"))
        } else if cpu <= 1.0 / SAME {
            Some(!has("use-direct"))
        } else {
            None
        }
    }

    fn line(&self) -> String {
        let [seconds, cpu, direct_seconds, direct_cpu] = self.ratios();
        let right = match self.is_right() {
            Some(true) => "right",
            Some(false) => "WRONG",
            None => "same",
        };
        let [buffered, direct] = self.measured;
        format!(
            "| {} | {:.2} s, {:.2} s | {:.2} s, {:.2} s | {:.2} | {seconds:.2} | {cpu:.2} | {direct_seconds:.2} | {direct_cpu:.2} | {right} | {} |",
            self.name,
            buffered.seconds,
            buffered.cpu_s,
            direct.seconds,
            direct.cpu_s,
            self.gain(),
            self.confidence
        )
    }
}

fn finish(store: &Path, compared: &[Compared]) -> Result<(), String> {
    let mut shown = "| program | page cache: time, CPU | direct: time, CPU | gain | predicted/measured: time | CPU | direct time | direct CPU | advice | confidence |\n\
         |---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for one in compared {
        let _ = writeln!(shown, "{}", one.line());
    }
    let ratios = compared.iter().flat_map(Compared::ratios);
    let (mut within, mut all) = (0, 0);
    for ratio in ratios {
        all += 1;
        within += u32::from(ratio > 1.0 - TOLERANCE && ratio < 1.0 + TOLERANCE);
    }
    let judged: Vec<bool> = compared.iter().filter_map(Compared::is_right).collect();
    let right = judged.iter().filter(|is_right| **is_right).count();
    let _ = writeln!(
        shown,
        "\n{within} of {all} predictions are within {:.0} % of the measurement. The advice names the better way for {right} of {} programs whose ways differ by a tenth.",
        TOLERANCE * 100.0,
        judged.len()
    );
    let mut text = "# What `diorite advise` predicts, and what programs take\n\n\
         Twelve programs (`bench/advised`) in a control group of 256 MiB, each in turn through the page cache and with direct I/O, with nothing cached \
         before. The prediction is of one recorded run through the page cache. Command: `cargo xtask bench advise`.\n\n"
        .to_owned();
    text += &store::versions();
    let _ = write!(text, "\n{shown}\n## Advice\n\n");
    for one in compared {
        for (_, sentence) in &one.choices {
            let _ = writeln!(text, "- {}: {sentence}", one.name);
        }
    }
    store::finish(store, &text, &shown)
}

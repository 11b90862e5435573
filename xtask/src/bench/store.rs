//! Where runs are kept: `bench/runs/DATE-HOST/SUITE/`.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::contender::Figures;
use super::measure::{call, median, range};

/// One contender's figures of one workload, round by round.
pub(crate) struct Series {
    pub(crate) workload: &'static str,
    pub(crate) contender: &'static str,
    pub(crate) rounds: Vec<Figures>,
}

/// A target ratio: `contender` against `peer` on a workload.
pub(crate) struct Target {
    pub(crate) workload: &'static str,
    pub(crate) contender: &'static str,
    pub(crate) peer: &'static str,
    pub(crate) figure: Figure,
    pub(crate) bound: f64,
}

/// Which figure a ratio is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// More is better.
    Bandwidth,
    /// Less is better.
    CpuPerGb,
    /// Less is better; what others do at the same time does not count.
    OwnCpuPerGb,
}

impl Figure {
    fn name(self) -> &'static str {
        match self {
            Self::Bandwidth => "bandwidth",
            Self::CpuPerGb => "CPU per GB",
            Self::OwnCpuPerGb => "own CPU per GB",
        }
    }

    fn of(self, figures: &Figures) -> f64 {
        match self {
            Self::Bandwidth => figures.bandwidth,
            Self::CpuPerGb => figures.cpu_s_per_gb,
            Self::OwnCpuPerGb => figures.own_cpu_s_per_gb,
        }
    }

    fn holds(self, ratio: f64, bound: f64) -> bool {
        match self {
            Self::Bandwidth => ratio >= bound,
            Self::CpuPerGb | Self::OwnCpuPerGb => ratio <= bound,
        }
    }
}

/// A suite's directory in the store, made.
pub(crate) fn directory(suite: &str) -> Result<PathBuf, String> {
    let host = call(&["hostname"])?.trim().to_owned();
    let date = call(&["date", "+%Y-%m-%d"])?.trim().to_owned();
    let path = PathBuf::from(format!("bench/runs/{date}-{host}/{suite}"));
    std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

/// Write a small text file. Paths below the workspace, where every suite runs, are written relative to it.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), String> {
    let here = std::env::current_dir().map_err(|error| format!("the current directory: {error}"))?;
    let text = text.replace(&format!("{}/", here.display()), "");
    #[expect(clippy::disallowed_methods, reason = "a report, not data I/O")]
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Store the text of a run, and show what of it matters.
pub(crate) fn finish(store: &Path, text: &str, shown: &str) -> Result<(), String> {
    write(&store.join("README.md"), text)?;
    println!("\n{shown}\nstored in {}", store.display());
    Ok(())
}

/// Versions of everything that took part.
pub(crate) fn versions() -> String {
    let ask = |command: &[&str]| call(command).map_or_else(|error| error, |text| text.trim().to_owned());
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("\t: unknown");
    format!(
        "- commit: {}\n- kernel: {}\n- CPU: {} x {}, load before: {}\n- {}\n- {}\n",
        ask(&["git", "describe", "--always", "--dirty"]),
        ask(&["uname", "-srm"]),
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        model.trim_start_matches(['\t', ':', ' ']),
        ask(&["cut", "-d ", "-f1-2", "/proc/loadavg"]),
        ask(&["fio", "--version"]),
        ask(&["rustc", "--version"]),
    )
}

/// A latency, where the program reports latencies.
fn measured(latency_us: f64) -> String {
    if latency_us.is_nan() { "-".to_owned() } else { format!("{latency_us:.0}") }
}

/// Medians of all series as a table, and of all target ratios with a verdict.
pub(crate) fn report(series: &[Series], targets: &[Target]) -> String {
    let mut text = String::from(
        "| workload | contender | MB/s | IOPS | p50 us | p99 us | CPU s/GB | own |\n|---|---|---|---|---|---|---|---|\n",
    );
    for entry in series {
        let of = |figure: fn(&Figures) -> f64| median(entry.rounds.iter().map(figure));
        let _ = writeln!(
            text,
            "| {} | {} | {:.0} | {:.0} | {} | {} | {:.3} | {:.3} |",
            entry.workload,
            entry.contender,
            of(|f| f.bandwidth / 1e6),
            of(|f| f.iops),
            measured(of(|f| f.p50_us)),
            measured(of(|f| f.p99_us)),
            of(|f| f.cpu_s_per_gb),
            of(|f| f.own_cpu_s_per_gb),
        );
    }
    text.push_str(
        "\n| workload | ratio | of | target | measured (median of rounds; range) | |\n|---|---|---|---|---|---|\n",
    );
    for target in targets {
        let find = |name| series.iter().find(|s| s.workload == target.workload && s.contender == name);
        let (Some(ours), Some(peers)) = (find(target.contender), find(target.peer)) else { continue };
        let of = |figures| target.figure.of(figures);
        let ratios: Vec<f64> = ours.rounds.iter().zip(&peers.rounds).map(|(a, b)| of(a) / of(b)).collect();
        let (ratio, (least, most)) = (median(ratios.iter().copied()), range(&ratios));
        let sign = if target.figure == Figure::Bandwidth { ">=" } else { "<=" };
        let _ = writeln!(
            text,
            "| {} | {} / {} | {} | {sign} {} | {ratio:.3} ({least:.3} to {most:.3}) | {} |",
            target.workload,
            target.contender,
            target.peer,
            target.figure.name(),
            target.bound,
            if target.figure.holds(ratio, target.bound) { "holds" } else { "MISSED" },
        );
    }
    text
}

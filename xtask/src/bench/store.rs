//! The store of runs: `bench/runs/DATE-HOST/SUITE/`.

use crate::command::call;
use std::path::{Path, PathBuf};

/// Make a suite's directory in the store.
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

/// Store the text of a run, and print a part of it.
pub(crate) fn finish(store: &Path, text: &str, shown: &str) -> Result<(), String> {
    write(&store.join("README.md"), text)?;
    println!("\n{shown}\nstored in {}", store.display());
    Ok(())
}

/// The host, and the versions of the programs.
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

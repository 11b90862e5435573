//! Suite `cached`: a cached 4 KiB `read_at` against the kernel's `pread` of a page in its own cache.

use std::fmt::Write;
use std::process::Command;

use serde_json::Value;

use super::Options;
use super::measure::{build, median};
use super::store;
use crate::target;

/// The largest ratio to the kernel's time.
const BOUND: f64 = 0.5;

pub(super) fn run(options: &Options) -> Result<(), String> {
    build(&["--package", "diorite", "--example", "cached_read"])?;
    let store = store::directory("cached")?;
    let program = target::file("release/examples/cached_read");
    let command = format!("{program} --json");
    let mut raw = String::new();
    let mut text = format!(
        "# Cached reads of 4 KiB\n\n{}\n| file, KiB | run | diorite, ns | pread, ns | ratio (target <= {BOUND}) | |\n\
         |---|---|---|---|---|---|\n",
        store::versions()
    );
    for round in 0..options.rounds {
        let output = Command::new(&program)
            .arg("--json")
            .env("TMPDIR", &options.directory)
            .output()
            .map_err(|error| format!("{command}: {error}"))?;
        if !output.status.success() {
            return Err(format!("{command}: {}", String::from_utf8_lossy(&output.stderr)));
        }
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let _ = writeln!(raw, "{line}");
            row(&mut text, round, line)?;
        }
    }
    let _ = write!(text, "\nMedians of the rounds of a run. Command: `{command}`\n");
    store::write(&store.join("cached.jsonl"), &raw)?;
    store::finish(&store, &text, &text)
}

/// One size in one run: medians over its interleaved rounds.
fn row(text: &mut String, run: u32, line: &str) -> Result<(), String> {
    let json: Value = serde_json::from_str(line).map_err(|error| format!("cached_read: {error}: {line}"))?;
    let middle = |name: &str| {
        let values = json[name].as_array().into_iter().flatten();
        median(values.filter_map(Value::as_f64))
    };
    let (ours, theirs) = (middle("diorite_ns"), middle("pread_ns"));
    let ratio = ours / theirs;
    let verdict = if ratio <= BOUND { "holds" } else { "MISSED" };
    let _ = writeln!(text, "| {} | {run} | {ours:.0} | {theirs:.0} | {ratio:.3} | {verdict} |", json["kib"]);
    Ok(())
}

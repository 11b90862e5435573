//! Suite `pool`: the buffer pool in a program outside the workspace (`bench/peers/src/bin/pool.rs`). It measures the time of a hit, and a page
//! workload ten times larger than the memory, against the kernel's page cache alone and below the pool.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

use super::Options;
use super::measure::{build_peers, call, median};
use super::store;
use crate::target;

/// Target of a fetch and release, in nanoseconds.
const HIT_NS: f64 = 60.0;
/// Frames of the pool: 32 MiB.
const PAGES: &str = "8192";
const SECONDS: &str = "4";
const ENGINES: [&str; 4] = ["pool-direct", "pool-shared", "pool-cached", "kernel"];

pub(super) fn run(options: &Options) -> Result<(), String> {
    build_peers(Some("pool"))?;
    let (program, store) = (program(), store::directory("pool")?);
    let mut raw = String::new();
    let mut text = format!("# The buffer pool\n\n{}\n", store::versions());
    hits(options, &mut raw, &mut text)?;
    work(options, &mut raw, &mut text)?;
    let _ = write!(
        text,
        "\nMedians of {} interleaved rounds. Commands: `{program} hit`, `{program} work ENGINE DIRECTORY {PAGES} {SECONDS}`.\n",
        options.rounds
    );
    store::write(&store.join("pool.jsonl"), &raw)?;
    store::finish(&store, &text, &text)
}

fn program() -> String {
    target::file("peers/release/pool")
}

/// A line of the program's output.
fn parse(line: &str) -> Result<Value, String> {
    serde_json::from_str(line).map_err(|error| format!("pool: {error}: {line}"))
}

fn verdict(holds: bool) -> &'static str {
    if holds { "holds" } else { "MISSED" }
}

/// Nanoseconds of a hit by the size of the working set.
fn hits(options: &Options, raw: &mut String, text: &mut String) -> Result<(), String> {
    let mut lines = Vec::new();
    for _ in 0..options.rounds {
        for line in call(&[&program(), "hit"])?.lines() {
            let _ = writeln!(raw, "{line}");
            lines.push(parse(line)?);
        }
    }
    let _ = writeln!(
        text,
        "| pages in use | fetch and release, ns (target <= {HIT_NS}) | exclusive, ns | |\n|---|---|---|---|"
    );
    let mut names: Vec<&str> = Vec::new();
    for name in lines.iter().filter_map(|line| line["pages"].as_str()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    for name in names {
        let of = |key: &str| {
            let rows = lines.iter().filter(|line| line["pages"].as_str() == Some(name));
            median(rows.filter_map(|line| line[key].as_f64()))
        };
        let (fetch, exclusive) = (of("fetch_ns"), of("fetch_exclusive_ns"));
        let _ = writeln!(text, "| {name} | {fetch:.1} | {exclusive:.1} | {} |", verdict(fetch <= HIT_NS));
    }
    Ok(())
}

/// Operations per second, per CPU second of the machine and per CPU second of the process.
#[derive(Clone, Copy, Debug)]
struct Rate {
    wall: f64,
    machine: f64,
    own: f64,
    /// Pages read per operation.
    read: f64,
}

fn work(options: &Options, raw: &mut String, text: &mut String) -> Result<(), String> {
    let directory = &options.directory;
    let mut rates: Vec<Vec<Rate>> = vec![Vec::new(); ENGINES.len()];
    let mut is_limited = true;
    for _ in 0..options.rounds {
        for (engine, rates) in ENGINES.iter().zip(&mut rates) {
            let line = one(engine, directory)?;
            let _ = writeln!(raw, "{line}");
            let row = parse(&line)?;
            let number = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
            is_limited &= row["limited"] == Value::Bool(true);
            let operations = number("operations");
            rates.push(Rate {
                wall: operations / number("seconds"),
                machine: operations / number("machine_cpu_s"),
                own: operations / number("own_cpu_s"),
                read: number("pages_read") / operations,
            });
        }
    }
    let memory =
        if is_limited { "limited by a cgroup" } else { "NOT limited: no permission to make a cgroup" };
    let _ = writeln!(
        text,
        "\nFour page changes for each operation, one of them in 320 MiB. Memory: 40 MiB, of which the pool has 32 ({memory}).\n\n\
         | engine | operations/s | per CPU second of the machine | per CPU second of the process | pages read an operation |\n|---|---|---|---|---|"
    );
    for (engine, rates) in ENGINES.iter().zip(&rates) {
        let of = |figure: fn(&Rate) -> f64| median(rates.iter().map(figure));
        let (a, b, c, d) = (of(|r| r.wall), of(|r| r.machine), of(|r| r.own), of(|r| r.read));
        let _ = writeln!(text, "| {engine} | {a:.0} | {b:.0} | {c:.0} | {d:.3} |");
    }
    let _ = writeln!(
        text,
        "\n| operations per CPU second of the machine | target | measured | |\n|---|---|---|---|"
    );
    for (engine, peers) in ENGINES.iter().zip(&rates).skip(2) {
        let ratios = rates[0].iter().zip(peers).map(|(ours, theirs)| ours.machine / theirs.machine);
        let ratio = median(ratios);
        let _ = writeln!(text, "| pool-direct / {engine} | > 1 | {ratio:.2} | {} |", verdict(ratio > 1.0));
    }
    Ok(())
}

/// One engine, one round.
fn one(engine: &str, directory: &Path) -> Result<String, String> {
    let directory = directory.to_string_lossy();
    Ok(call(&[&program(), "work", engine, &directory, PAGES, SECONDS])?.trim().to_owned())
}

//! fio's example job files, from Debian's package fio-examples: each one runs, or is rejected with the reason in the table of
//! crates/job/FIO.md. `--set` reduces sizes and times.

use crate::common;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use common::{Bench, text};

const EXAMPLES: &str = "/usr/share/doc/fio/examples";

/// Reduced values of options of the files.
const SMALLER: &[(&str, &str)] = &[
    ("size", "4m"),
    ("filesize", "4m"),
    ("io_size", "256k"),
    ("offset_increment", "1m"),
    ("runtime", "200ms"),
    ("timeout", "200ms"),
    ("startdelay", "0"),
    ("ramp_time", "0"),
    ("loops", "2"),
    ("number_ios", "20"),
    ("rate", "8m"),
];

/// Devices and files that jobs name, which are files of this size in the directory of the jobs.
const TARGETS: &[&str] = &[
    "dev/XXX",
    "dev/sda",
    "dev/sdb",
    "dev/sdb1",
    "dev/sdd",
    "dev/sdj",
    "dev/nvme0n1",
    "dev/fioa",
    "tmp/testfile",
    "default.0.0",
    "override.0.0",
];
const TARGET_BYTES: u64 = 40 << 20;

/// Values of variables, from the comments of the files.
const VARIABLES: &[(&str, &str)] = &[("FIO_RW", "randread"), ("FIO_IODEPTH", "4"), ("FIO_BS", "8k")];

/// The table: file and result.
fn documented() -> BTreeMap<String, String> {
    let page = include_str!("../../../job/FIO.md");
    let rows =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | "));
    rows.map(|(name, said)| (name.to_owned(), said.to_owned())).collect()
}

/// The result of one file: `runs`, or its errors without line numbers, each once; only the engine if it is not for files.
fn outcome(bench: &Bench, name: &str, content: &str) -> String {
    let path = format!("{EXAMPLES}/{name}");
    // A job that fills a disk gets a small one. Character devices are the machine's; all other files are in the directory.
    let on = if content.contains("fill_device") {
        bench.image("small.img", "ext4", "16M");
        Some("--on=small.img")
    } else if content.contains("=/dev/null") {
        None
    } else {
        Some("--on=.")
    };
    let mut command = bench.diorite(["job", &path].into_iter().chain(on));
    for (option, value) in SMALLER {
        let is_given = content.lines().any(|line| {
            line.trim().strip_prefix(option).is_some_and(|rest| rest.trim_start().starts_with('='))
        });
        if is_given {
            command.arg(format!("--set={option}={value}"));
        }
    }
    let output = command.envs(VARIABLES.iter().copied()).output().expect("the program starts");
    if output.status.success() {
        let said = text(&output.stdout);
        assert!(said.contains("Run status group 0"), "{name}: {said}");
        return "runs".to_owned();
    }
    let failed = text(&output.stderr).replace("diorite: ", "");
    let mut reasons: Vec<&str> = Vec::new();
    for line in failed.lines() {
        let reason = line
            .strip_prefix(&path)
            .map_or(line, |rest| rest.trim_start_matches(|c: char| c == ':' || c.is_ascii_digit()));
        let reason = reason.trim();
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    let engine =
        reasons.iter().find_map(|reason| reason.strip_prefix("ioengine=")?.split_once(": not an engine"));
    engine.map_or_else(|| reasons.join("; "), |(engine, _)| format!("the engine {engine} is not for files"))
}

#[test]
fn each_example_of_fio_runs_or_says_why_not() {
    if !Path::new(EXAMPLES).is_dir() {
        println!("SKIPPED: the package fio-examples is not installed");
        return;
    }
    let bench = Bench::new();
    for target in TARGETS {
        let path = bench.path(target);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        let file = std::fs::File::create_new(path).expect("a new file");
        file.set_len(TARGET_BYTES).expect("its size");
    }
    let mut names: Vec<String> = std::fs::read_dir(EXAMPLES)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "fio"))
        .collect();
    names.sort();
    let (documented, mut different) = (documented(), String::new());
    for name in &names {
        let content = std::fs::read_to_string(format!("{EXAMPLES}/{name}")).expect("an example");
        let found = outcome(&bench, name, &content);
        if documented.get(name) != Some(&found) {
            let _ = writeln!(different, "| `{name}` | {found} |");
        }
    }
    assert!(different.is_empty(), "FIO.md says otherwise of these:\n{different}");
}

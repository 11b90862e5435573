//! The command bonnie: its output, and the removal of its files.

use crate::common;
use std::process::Stdio;

use common::{Bench, tool};

const TESTS: [&str; 6] = ["putc", "rewrite", "block_write", "getc", "block_read", "seeks"];

fn rows(report: &serde_json::Value) -> &Vec<serde_json::Value> {
    report["rows"].as_array().expect("rows")
}

#[test]
fn host_directory_gives_a_row_for_each_test() {
    let bench = Bench::new();
    let report = bench.json("bonnie -d . -s 8");
    let tests: Vec<_> = rows(&report).iter().map(|row| row["test"].as_str().expect("a name")).collect();
    assert_eq!(tests, TESTS);
    assert!(rows(&report).iter().all(|row| row["engine"] == "host" && row["mode"] == "buffered"));
    for key in ["command", "version", "host", "rows", "verdicts"] {
        assert!(report.get(key).is_some(), "{key}");
    }
    assert!(bench.names().is_empty());
}

#[test]
fn image_is_measured_directly_without_a_copy() {
    let bench = Bench::new();
    bench.image("a.img", "ext2", "32M");
    let report = bench.json("bonnie -d a.img:/ -s 8 -o_direct");
    let direct: Vec<_> = rows(&report).iter().filter(|row| row["mode"] == "direct").collect();
    assert_eq!(direct.len(), 4);
    for row in direct {
        assert_eq!(
            (row["engine"].as_str(), row["bytes_copied"].as_u64()),
            (Some("diorite"), Some(0)),
            "{row}"
        );
        assert!(row["bios"].as_u64().expect("bios") > 0);
    }
    assert_eq!(bench.run("ls a.img"), "lost+found\n");
    bench.must_be_clean("a.img");
}

#[test]
fn table_is_the_one_of_2001() {
    let bench = Bench::new();
    let text = bench.run("bonnie -d . -s 1 -m mine -fast");
    assert!(text.contains("Will skip the seek test"));
    let lines: Vec<_> = text.lines().collect();
    assert!(text.contains("-------Sequential Output-------- ---Sequential Input-- --Random--"));
    assert!(lines.iter().all(|line| line.chars().count() <= 80));
    let last = lines.last().expect("a line");
    assert!(last.starts_with("mine        1 ") && last.ends_with("xxx  xxx"), "{last}");
    assert!(last.contains("+++++"), "one megabyte is too short to be accurate: {last}");
}

#[test]
fn csv_is_read_by_the_tools_of_bonnie_plus_plus() {
    let bench = Bench::new();
    let line = bench.run("bonnie -d . -s 8 -m box --csv");
    assert_eq!(line.trim_end().split(',').count(), 50, "{line}");
    assert!(line.starts_with("1.98,"));
    bench.write("line.csv", line.as_bytes());
    let script = format!("bon_csv2txt < {}", bench.path("line.csv").display());
    let Some(output) = tool("bash", ["-c", &script]) else { return };
    if output.status.code() == Some(127) {
        eprintln!("SKIPPED: bon_csv2txt is not installed");
        return;
    }
    let text = common::text(&output.stdout);
    assert!(text.contains("box"), "{text}");
}

#[test]
fn comparison_has_every_way_and_leaves_nothing() {
    let bench = Bench::new();
    let report = bench.json("bonnie -s 16");
    let has = |engine: &str, mode: &str, test: &str| {
        rows(&report).iter().any(|row| row["engine"] == engine && row["mode"] == mode && row["test"] == test)
    };
    assert!(has("host", "buffered", "block_write") && has("diorite", "direct", "block_write"));
    assert!(has("diorite", "buffered", "rewrite") && has("diorite", "buffered-warm", "block_read"));
    assert!(bench.names().is_empty(), "{:?}", bench.names());
    let copied = rows(&report)
        .iter()
        .filter(|row| row["engine"] == "diorite" && row["mode"] == "direct")
        .map(|row| row["bytes_copied"].as_u64().expect("counted"));
    assert_eq!(copied.sum::<u64>(), 0);
}

#[test]
fn interrupted_comparison_leaves_nothing() {
    let bench = Bench::new();
    // A file of the host, and the image.
    for end in ["", ".img"] {
        let mut child = bench
            .diorite(["bonnie", "-s", "64"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let has_file = || bench.names().iter().any(|name| name.starts_with("Bonnie.") && name.ends_with(end));
        common::wait_until("a file of bonnie", || has_file() || child.try_wait().expect("a child").is_some());
        let _ = tool("kill", ["-INT", &child.id().to_string()]);
        let status = child.wait().expect("an end");
        assert!(matches!(status.code(), Some(0 | 1) | None), "{status}");
        assert!(bench.names().is_empty(), "{:?}", bench.names());
    }
}

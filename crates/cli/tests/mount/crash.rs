//! `diorite crash`: programs that lose data after a power cut, and programs that do not.

use std::process::Command;

use super::can_mount;
use crate::common::{Bench, text};

/// The answer of a run, and its exit status.
fn crash(bench: &Bench, options: &[&str], check: &str, workload: &str) -> (serde_json::Value, i32) {
    let words = ["crash", "--json", "--size", "32M", "--check", check];
    let shell = ["--", "sh", "-c", workload];
    let all = words.iter().chain(options).chain(&shell);
    let output =
        bench.diorite(all).env("TMPDIR", bench.directory.path()).output().expect("the program starts");
    let answer = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr)));
    (answer, output.status.code().expect("an exit status"))
}

/// Acknowledged rows are counted, and the database must be sound.
const SQLITE_CHECK: &str = "test \"$(sqlite3 app.db 'PRAGMA integrity_check')\" = ok || { echo damaged; exit 1; }; \
    rows=$(sqlite3 app.db 'SELECT count(*) FROM t'); acked=$(wc -l < $DIORITE_CRASH_ACKED); \
    test $rows -ge $acked || { echo \"$rows rows are left of $acked\"; exit 1; }";

fn sqlite(bench: &Bench, synchronous: &str) -> (serde_json::Value, i32) {
    let workload = format!(
        "for i in 1 2; do sqlite3 app.db \"PRAGMA synchronous={synchronous}; INSERT INTO t VALUES($i)\" && \
         echo row $i >> $DIORITE_CRASH_ACK; done"
    );
    crash(bench, &["--from", "content", "--total", "25", "--tear", "4096"], SQLITE_CHECK, &workload)
}

/// `SQLite` with `synchronous=OFF` loses acknowledged rows, and with `EXTRA` it does not. With `FULL` the removal of the journal is not
/// durable, as its documentation says: the last row can be lost, and the database is never damaged. A state is in a file, and fails again.
#[test]
fn sqlite_loses_rows_without_its_syncs_only() {
    let has_sqlite = Command::new("sqlite3").arg("--version").output().is_ok();
    if !can_mount() || !has_sqlite {
        return eprintln!("SKIPPED: sqlite3 on a mount");
    }
    let bench = Bench::new();
    std::fs::create_dir(bench.path("content")).expect("a directory");
    let made = Command::new("sqlite3").arg(bench.path("content/app.db")).arg("CREATE TABLE t(x)").status();
    assert!(made.expect("sqlite3").success());
    let (answer, status) = sqlite(&bench, "OFF");
    assert_eq!(status, 1, "{answer:#}");
    let failure = &answer["runs"][0]["failure"];
    let why = failure["why"].as_str().expect("words");
    assert!(why.contains("rows are left of") || why == "damaged", "{answer:#}");
    let again = bench.fail("crash replay crash.case", 1);
    assert!(again.contains(why), "{again}");
    bench.run("crash replay crash.case --image state.img");
    bench.run("ls state.img:/app.db");
    let (answer, status) = sqlite(&bench, "FULL");
    assert_eq!(status, 1, "{answer:#}");
    assert_eq!(answer["runs"][0]["failure"]["why"], "0 rows are left of 1", "{answer:#}");
    let (answer, status) = sqlite(&bench, "EXTRA");
    assert_eq!(status, 0, "{answer:#}");
    assert_eq!(answer["runs"][0]["acknowledgements"], 2);
}

/// The answer names the file, the call and the program.
#[test]
fn the_answer_is_in_words_of_files_and_calls() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let check = "test ! -e new || test \"$(cat new)\" = data || { echo the file is empty; exit 1; }";
    let workload = "echo data > new.tmp; mv new.tmp new; echo moved >> $DIORITE_CRASH_ACK";
    let (answer, status) = crash(&bench, &["--fs", "ext3,ext4"], check, workload);
    assert_eq!(status, 1, "{answer:#}");
    for run in answer["runs"].as_array().expect("two runs") {
        let failure = &run["failure"];
        assert_eq!(failure["why"], "the file is empty", "{answer:#}");
        assert_eq!(failure["after"], "moved");
        let timeline = failure["timeline"].to_string();
        assert!(timeline.contains("by mv["), "{answer:#}");
        assert!(failure["unwritten"].to_string().contains("`/new`"), "{answer:#}");
    }
    let right = "echo data > new.tmp; sync new.tmp; mv new.tmp new; echo moved >> $DIORITE_CRASH_ACK";
    let (answer, status) = crash(&bench, &["--total", "40"], check, right);
    assert_eq!(status, 0, "{answer:#}");
}

/// Checks that write, hang, or leave a process, and a workload that fails.
#[test]
fn hostile_programs_are_ended() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let writes = "echo x > own; sleep 100 & test -e own";
    let (answer, status) =
        crash(&bench, &["--total", "10"], writes, "echo data > f; sync f; sleep 100 & exit 3");
    assert_eq!(status, 0, "{answer:#}");
    let words = ["crash", "--check-time", "1", "--total", "4", "--check", "sleep 100", "--", "true"];
    let output =
        bench.diorite(words).env("TMPDIR", bench.directory.path()).output().expect("the program starts");
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("time limit of 1 s"), "{said}");
    // Other tests have mounts of their own.
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    assert!(
        !mounts.contains(text(bench.directory.path().as_os_str().as_encoded_bytes()).as_str()),
        "{mounts}"
    );
    assert_eq!(std::fs::read_dir(bench.directory.path()).expect("a directory").count(), 0);
}

/// A program that goes on after a failed sync is found by an error of the disk; one that reports the error is right.
#[test]
fn a_failed_sync_is_taken_for_success() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let check = "test ! -s $DIORITE_CRASH_ACKED || test \"$(cat f 2> /dev/null)\" = data || { echo f is lost; exit 1; }";
    let options = ["--fault", "eio", "--total", "4"];
    let goes_on = "echo data > f; sync f . 2> /dev/null; echo saved >> $DIORITE_CRASH_ACK";
    let (answer, status) = crash(&bench, &options, check, goes_on);
    assert_eq!(status, 1, "{answer:#}");
    let failure = &answer["runs"][0]["failure"];
    assert!(failure["error"].to_string().contains("EIO at transfer "), "{answer:#}");
    let stops = "echo data > f && sync f . 2> /dev/null && echo saved >> $DIORITE_CRASH_ACK; true";
    let (answer, status) = crash(&bench, &options, check, stops);
    assert_eq!(status, 0, "{answer:#}");
}

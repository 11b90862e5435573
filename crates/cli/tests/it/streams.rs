//! Standard output and standard error that are closed or full, and the errors in the output of `--json`.

use std::io::Read;
use std::process::Stdio;

use crate::common::{self, Bench, pattern};

/// The exit status is the one of SIGPIPE, as `set -o pipefail` expects.
#[test]
fn reader_that_has_gone_is_no_complaint() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "32M");
    bench.write("large", &pattern(8 << 20, 1));
    bench.run("cp large a.img:/large");
    let mut child = bench
        .diorite(["cat", "a.img:/large"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut start = [0; 10];
    child.stdout.take().expect("piped").read_exact(&mut start).expect("some output");
    let output = child.wait_with_output().expect("an end");
    assert_eq!(common::text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(141));
}

/// The output was lost with status 0.
#[test]
fn closed_standard_output_is_an_error() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "32M");
    bench.write("f", b"x");
    bench.run("cp f a.img:/f");
    let program = bench.diorite(["x"]).get_program().to_owned();
    for line in ["cat a.img:/f", "cp a.img:/f -", "ls a.img:/", "df a.img", "help"] {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" >&-"]).arg(&program).args(line.split(' '));
        let output = command.current_dir(bench.directory.path()).output().expect("a shell");
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert_eq!(common::text(&output.stderr), "diorite: standard output: cannot write: it is closed\n");
        // Python's DEVNULL is open for both.
        let null = std::fs::File::options().read(true).write(true).open("/dev/null").expect("the device");
        assert!(bench.diorite(line.split(' ')).stdout(null).status().expect("a status").success(), "{line}");
    }
}

/// The program panicked if it could not print an error. It must exit with the status of the error.
#[test]
fn closed_standard_error_changes_no_status() {
    let bench = Bench::new();
    bench.image("a.img", "ext2", "8M");
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("the device of Linux");
    for (words, status) in [(["ls", "a.img:/missing"], 1), (["ls", "--stats"], 2), (["rm", "a.img"], 2)] {
        let run = bench.diorite(words).stderr(full()).status().expect("the program starts");
        assert_eq!(run.code(), Some(status), "{words:?}");
    }
    let run = bench.diorite(["ls", "--stats", "a.img"]).stderr(full()).output().expect("the program starts");
    assert!(run.status.success() && run.stdout == b"lost+found\n", "{run:?}");
}

/// `diorite help > /dev/full` succeeded.
#[test]
fn help_that_cannot_be_written_is_an_error() {
    let bench = Bench::new();
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("the device of Linux");
    for words in [&["help"][..], &["help", "cp"], &["--version"], &["ls", "--help"]] {
        let output = bench.diorite(words).stdout(full()).output().expect("the program starts");
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(common::text(&output.stderr).contains("standard output: cannot write"), "{words:?}");
        assert!(bench.diorite(words).output().expect("the program starts").status.success(), "{words:?}");
    }
}

/// A failed command with `--json` printed nothing on standard output.
#[test]
fn json_says_why_a_command_failed() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "8M");
    let lines = [
        "mkfs a.img",
        "info none.img",
        "check none.img",
        "trim none.img",
        "extents a.img:/none",
        "ls a.img:/none",
        "tree a.img:/none",
        "stat a.img:/none",
        "cp a.img:/none there",
        "find a.img:/none",
        "head a.img:/none",
        "sync a.img:/none there",
        "diff a.img:/none a.img:/none",
        "tar -c -f t.tar a.img:/none",
        "hash a.img:/none",
        "tail a.img:/none",
        "edit none",
        "rmdir a.img:/none",
        "readlink a.img:/none",
        "chmod 600 a.img:/none",
        "chown 0 a.img:/none",
        "touch a.img:/no/where",
        "truncate -s 1 a.img:/no/where",
        "xattr get user.x a.img:/none",
        "mv a.img:/none a.img:/there",
        "rm a.img:/none",
        "mkdir a.img:/no/where",
        "ln a.img:/none a.img:/there",
        "df none.img",
        "du a.img:/none",
        "top none",
        "bonnie -d none",
        "diskperf none.img",
        "raw none",
        "job none.fio",
        "uncached --json --only  -- true",
        "advise none.rec",
        "crash --json --from none --check true -- true",
        "repro fairness --report none/x.html",
    ];
    for line in lines {
        let output = bench.diorite(line.split(' ').chain(["--json"])).output().expect("the program starts");
        let said = common::text(&output.stderr);
        let object: serde_json::Value = serde_json::from_slice(&output.stdout).expect(line);
        let error = &object["error"];
        assert!(matches!(output.status.code(), Some(1 | 2)), "{line}: {said}");
        assert!(error["what"].is_string() && error["object"].is_string(), "{line}: {error}");
        let message = error["message"].as_str().expect("a message");
        assert!(said.contains(&format!("diorite: {message}")), "{line}: {said}: {message}");
    }
    // Every command that has the switch is tried.
    for command in bench
        .run("help")
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next().map(str::to_owned))
    {
        let help = bench.diorite([command.as_str(), "--help"]).output().expect("the program starts");
        if !command.is_empty() && common::text(&help.stdout).contains("      --json") {
            assert!(lines.iter().any(|line| line.starts_with(&format!("{command} "))), "{command}");
        }
    }
    let error = |line: &str| {
        let output = bench.diorite(line.split(' ')).output().expect("the program starts");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).expect(line)
    };
    let not_found = error("check --json none.img");
    assert_eq!(not_found["error"]["object"], "none.img");
    assert!(not_found["error"]["remedy"].as_str().is_some_and(|remedy| remedy.contains("check the path")));
    assert!(
        error("ls --json --bogus")["error"]["what"].as_str().is_some_and(|what| what.contains("--bogus"))
    );
    // The output has the successes and the failures.
    let missing = error("mv --json")["error"]["message"].to_string();
    assert!(missing.contains("not provided: <FROM> <TO>..."), "{missing}");
    let both = error("stat --json a.img:/ a.img:/none a.img:/neither");
    assert_eq!(both["files"][0]["kind"], "directory");
    assert_eq!(both["errors"].as_array().map(Vec::len), Some(2), "{both}");
    assert_eq!(both["error"], both["errors"][0]);
}

//! Runs the tests and counts those that were skipped: a test that cannot run here prints `SKIPPED: why` and passes.

use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Skips that are no failure, a line each.
const EXPECTED: &str = include_str!("../expected_skips.txt");

/// A test hangs if no line has come for so long. libtest has named it then, as one that has been running for over a minute.
const SILENCE_MAX: Duration = Duration::from_secs(420);

/// What the output of tests says of skips, line by line.
#[derive(Debug, Default)]
pub(crate) struct Skips {
    /// Test and reason.
    found: Vec<(String, String)>,
    /// Within what tests that passed have printed.
    in_passed: bool,
    test: String,
}

impl Skips {
    /// Count what is no test of cargo's.
    pub(crate) fn add(&mut self, test: &str, why: &str) {
        self.found.push((test.to_owned(), why.to_owned()));
    }

    /// Take a line; whether a reader wants to see it.
    fn take(&mut self, line: &str) -> bool {
        if line == "successes:" {
            self.in_passed = true;
        } else if line == "failures:" || line.starts_with("test result:") {
            self.in_passed = false;
        }
        if let Some(test) = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----")) {
            test.clone_into(&mut self.test);
        }
        if let Some((_, why)) = line.split_once("SKIPPED: ") {
            let test = if self.in_passed { self.test.clone() } else { "a thread of some test".to_owned() };
            self.add(&test, why);
        }
        !self.in_passed
    }

    /// Those that are not among `expected`, a line `TEST: REASON` each, which may be a part.
    fn unexpected(&self, expected: &str) -> Vec<&str> {
        let is_expected = |test: &str, why: &str| {
            let mut lines = expected.lines().filter_map(|line| line.split_once(": "));
            lines.any(|(known, reason)| known == test && why.starts_with(reason))
        };
        let unexpected = self.found.iter().filter(|(test, why)| !is_expected(test, why));
        unexpected.map(|(test, _)| test.as_str()).collect()
    }
}

/// `cargo test` with these arguments, all programs of it although one fails, and `then`. The skipped tests are counted and named at the end; with `no_skip` one
/// that is not expected (`expected_skips.txt`) is a failure. Tests that hang are ended.
pub(crate) fn test(
    arguments: &[&str],
    no_skip: bool,
    then: impl FnOnce(&mut Skips) -> Result<(), String>,
) -> Result<(), String> {
    println!("--- cargo test {}", arguments.join(" "));
    // Apart from the tests, of which none takes long.
    crate::cargo(&[&["test", "--no-run"], arguments].concat(), &[])?;
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["test", "--no-fail-fast"])
        .args(arguments)
        .args(["--", "--show-output"])
        .stdout(Stdio::piped());
    let mut child = cargo.spawn().map_err(|error| format!("cargo: {error}"))?;
    let mut skips = Skips::default();
    let lines = lines_of(child.stdout.take());
    loop {
        match lines.recv_timeout(SILENCE_MAX) {
            Ok(line) if skips.take(&line) => println!("{line}"),
            Ok(_) => {}
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                // They are not waited for: what hangs in the kernel cannot be killed.
                let _ = Command::new("pkill").args(["-KILL", "-P", &child.id().to_string()]).status();
                let _ = child.kill();
                return Err(format!(
                    "no test has ended for {} s: those that are named last above hang",
                    SILENCE_MAX.as_secs()
                ));
            }
        }
    }
    let status = child.wait().map_err(|error| format!("cargo: {error}"))?;
    let then = then(&mut skips);
    println!("--- {} skipped", skips.found.len());
    for (test, why) in &skips.found {
        println!("SKIPPED: {test}: {why}");
    }
    if !status.success() {
        return Err(format!("cargo test: {status}"));
    }
    then?;
    let unexpected = skips.unexpected(EXPECTED);
    if no_skip && !unexpected.is_empty() {
        return Err(format!("skipped, and not in xtask/expected_skips.txt: {}", unexpected.join(", ")));
    }
    Ok(())
}

/// The lines of an output as they come, until it ends or cannot be read.
fn lines_of(output: Option<ChildStdout>) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let lines = output.map(BufReader::new).into_iter().flat_map(BufRead::lines);
        for line in lines.map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_are_named_and_the_output_of_tests_that_passed_is_not_shown() {
        let output = "running 2 tests\ntest one ... ok\ntest two ... ok\n\nsuccesses:\n\n---- one stdout ----\nSKIPPED: no disk\n\n\
                      ---- two stdout ----\nchatter\n\n\nsuccesses:\n    one\n    two\n\ntest result: ok. 2 passed";
        let mut skips = Skips::default();
        let shown: Vec<&str> = output.lines().filter(|line| skips.take(line)).collect();
        assert_eq!(skips.found, [("one".to_owned(), "no disk".to_owned())]);
        assert_eq!(
            shown,
            ["running 2 tests", "test one ... ok", "test two ... ok", "", "test result: ok. 2 passed"]
        );
    }

    #[test]
    fn only_expected_skips_are_forgiven() {
        let found =
            [("one", "cannot mount here: a reason"), ("one", "not root"), ("two", "cannot mount here")];
        let found = found.map(|(test, why)| (test.to_owned(), why.to_owned())).to_vec();
        let skips = Skips { found, ..Skips::default() };
        assert_eq!(skips.unexpected("# a comment\none: cannot mount here\n"), ["one", "two"]);
    }

    #[test]
    fn what_failed_is_shown() {
        let output = "successes:\nsuccesses:\n    one\n\nfailures:\n\n---- two stdout ----\npanicked\n";
        let mut skips = Skips::default();
        let shown: Vec<&str> = output.lines().filter(|line| skips.take(line)).collect();
        assert_eq!(shown, ["failures:", "", "---- two stdout ----", "panicked"]);
    }
}

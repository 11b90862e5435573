//! Runs the tests of the workspace. Cargo builds the test programs, and one program per processor runs at a time, because many tests wait for
//! a disk, a timer or another program.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::skips::Skips;

/// The time without output after which a program counts as hanging. libtest has printed the name of the slow test by then.
const SILENCE_MAX: Duration = Duration::from_secs(420);

/// The programs that take longest. They start first, so that no processor is idle at the end.
const LONGEST: [&str; 4] = ["cli: test mount", "ext: test it", "torture: test it", "documentation"];

/// The features outside of the default build, as an argument of cargo.
pub(crate) const FEATURES: &str = "--features=diorite-cli/profile";

/// A test program that cargo has built, or cargo itself for the documentation tests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    name: String,
    path: PathBuf,
    arguments: &'static [&'static str],
    /// The directory of its package.
    directory: PathBuf,
}

impl Program {
    /// The test program of a message of cargo, if the message is about one.
    fn of_message(message: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(message).ok()?;
        if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
            return None;
        }
        let directory = Path::new(message["manifest_path"].as_str()?).parent()?;
        let package = directory.file_name()?.to_string_lossy();
        let target = &message["target"];
        let (kind, name) = (target["kind"][0].as_str()?, target["name"].as_str()?);
        Some(Self {
            name: format!("{package}: {kind} {name}"),
            path: message["executable"].as_str()?.into(),
            arguments: &[],
            directory: directory.to_owned(),
        })
    }

    fn documentation() -> Result<Self, String> {
        Ok(Self {
            name: "documentation".to_owned(),
            path: env!("CARGO").into(),
            arguments: &["test", "--workspace", FEATURES, "--doc", "--quiet", "--no-fail-fast", "--"],
            directory: std::env::current_dir().map_err(|error| error.to_string())?,
        })
    }

    fn spawn(&self, library: Option<&Path>) -> std::io::Result<Child> {
        let mut command = Command::new(&self.path);
        command.args(self.arguments).arg("--show-output").current_dir(&self.directory);
        command.env("CARGO", env!("CARGO"));
        if self.path != Path::new(env!("CARGO")) {
            // As `cargo test` sets it. Cargo itself would build packages whose scripts read it once more.
            command.env("CARGO_MANIFEST_DIR", &self.directory);
        }
        command.envs(library.map(|directory| ("DIORITE_C_LIBRARY", directory)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
    }
}

/// The results of the build.
pub(crate) struct Built {
    programs: Vec<Program>,
    /// The directory of the library for C.
    library: Option<PathBuf>,
}

/// The lines of a failed program that the error repeats: it ends the output, where it is seen first.
const LAST_LINES: usize = 80;

/// The outcome of a program.
struct Outcome {
    /// The lines to print.
    lines: Vec<String>,
    skips: Skips,
    /// The reason of a failure.
    failure: Option<String>,
}

struct Failure {
    what: String,
    last_lines: Vec<String>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(out, "--- FAILED: {}", self.what)?;
        self.last_lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    }
}

/// Run all programs, even after failures. Hanging programs are killed.
pub(crate) fn run(built: Built, skips: &mut Skips) -> Result<(), String> {
    let Built { programs, library } = built;
    let (queue, results) = (Mutex::new(programs.into_iter()), Mutex::new((skips, Vec::new())));
    let at_a_time = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                while let Some(program) = next(&queue) {
                    let start = Instant::now();
                    let outcome = watch(&program, library.as_deref());
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    println!("--- {} ({} s)", program.name, start.elapsed().as_secs());
                    outcome.lines.iter().for_each(|line| println!("{line}"));
                    results.0.extend(outcome.skips);
                    results.1.extend(outcome.failure.map(|why| Failure {
                        what: format!("{}: {why}", program.name),
                        last_lines: outcome.lines[outcome.lines.len().saturating_sub(LAST_LINES)..].to_vec(),
                    }));
                }
            });
        }
    });
    let (_, failed) = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let details: String = failed.iter().map(Failure::to_string).collect();
    let failed: Vec<&str> = failed.iter().map(|failure| failure.what.as_str()).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("tests:\n{details}tests: {}", failed.join(", "))) }
}

fn next(queue: &Mutex<impl Iterator<Item = Program>>) -> Option<Program> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).next()
}

/// Build all test programs, and the C library that some of them use.
pub(crate) fn build() -> Result<Built, String> {
    let mut programs = vec![Program::documentation()?];
    let messages = messages_of(&["test", "--workspace", FEATURES, "--no-run"])?;
    programs.extend(messages.iter().filter_map(|message| Program::of_message(message)));
    let position = |program: &Program| LONGEST.iter().position(|name| *name == program.name);
    programs.sort_by_key(|program| position(program).unwrap_or(LONGEST.len()));
    // `--tests` gives dependencies the same features, so they are not built again.
    let messages = messages_of(&["build", "--workspace", FEATURES, "--lib", "--tests"])?;
    let library = messages.iter().find_map(|message| library_directory(message));
    Ok(Built { programs, library })
}

/// The directory of the C library, if the message of cargo is about it.
fn library_directory(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let built = message["reason"] == "compiler-artifact" && message["profile"]["test"] == false;
    let files = message["filenames"].as_array().filter(|_| built)?;
    let library = files.iter().filter_map(Value::as_str).find(|file| file.ends_with("/libdiorite_c.a"))?;
    Some(Path::new(library).parent()?.to_owned())
}

/// Run cargo and return its JSON messages.
fn messages_of(arguments: &[&str]) -> Result<Vec<String>, String> {
    println!("--- cargo {}", arguments.join(" "));
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments).arg("--message-format=json-render-diagnostics").stdout(Stdio::piped());
    let mut child = cargo.spawn().map_err(|error| format!("cargo: {error}"))?;
    let messages = lines_of(child.stdout.take()).iter().collect();
    let status = child.wait().map_err(|error| format!("cargo: {error}"))?;
    if status.success() { Ok(messages) } else { Err(format!("cargo {}: {status}", arguments.join(" "))) }
}

/// Run a program until it ends or hangs.
fn watch(program: &Program, library: Option<&Path>) -> Outcome {
    let mut outcome = Outcome { lines: Vec::new(), skips: Skips::default(), failure: None };
    let ended = match program.spawn(library) {
        Ok(mut child) => watch_child(&mut child, &mut outcome),
        Err(error) => Err(format!("{}: {error}", program.path.display())),
    };
    outcome.failure = match ended {
        Ok(status) if status.success() => None,
        Ok(status) => Some(status.to_string()),
        Err(why) => Some(why),
    };
    outcome
}

fn watch_child(child: &mut Child, outcome: &mut Outcome) -> Result<ExitStatus, String> {
    let lines = lines_of(child.stdout.take());
    loop {
        match lines.recv_timeout(SILENCE_MAX) {
            Ok(line) if outcome.skips.take(&line) => outcome.lines.push(line),
            Ok(_) => {}
            Err(RecvTimeoutError::Disconnected) => return child.wait().map_err(|error| error.to_string()),
            Err(RecvTimeoutError::Timeout) => {
                // No wait follows, because a process that hangs in the kernel cannot be killed.
                let _ = Command::new("pkill").args(["-KILL", "-P", &child.id().to_string()]).status();
                let _ = child.kill();
                return Err(format!(
                    "no test has ended for {} s: the last tests with a name above hang",
                    SILENCE_MAX.as_secs()
                ));
            }
        }
    }
}

/// The lines of an output, sent as they arrive.
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
    fn what_cargo_built_as_a_test_is_run_in_the_directory_of_its_package() {
        let message = |test: bool| {
            serde_json::json!({
                "reason": "compiler-artifact", "manifest_path": "/w/crates/ext/Cargo.toml", "profile": { "test": test },
                "target": { "kind": ["test"], "name": "read" }, "executable": "/w/target/debug/deps/read-0",
            })
        };
        let program = Program::of_message(&message(true).to_string()).expect("a program");
        assert_eq!((program.name.as_str(), program.directory), ("ext: test read", "/w/crates/ext".into()));
        assert_eq!(program.path, Path::new("/w/target/debug/deps/read-0"));
        assert_eq!(Program::of_message(&message(false).to_string()), None);
        assert_eq!(Program::of_message("no message"), None);
    }

    /// The library was expected in `target/debug`, but cargo may build elsewhere.
    #[test]
    fn library_for_c_is_where_cargo_built_it() {
        let message = serde_json::json!({
            "reason": "compiler-artifact", "profile": { "test": false },
            "filenames": ["/elsewhere/debug/libdiorite_c.so", "/elsewhere/debug/libdiorite_c.a"],
        });
        assert_eq!(library_directory(&message.to_string()), Some("/elsewhere/debug".into()));
        assert_eq!(library_directory("no message"), None);
    }
}

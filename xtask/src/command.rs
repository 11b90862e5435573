//! Commands: run with their output shown, or with their output as the result.

use std::process::{Command, Output, Stdio};

/// Run a command and show its output.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| failed(command, &error.to_string()))?;
    if status.success() { Ok(()) } else { Err(failed(command, &status.to_string())) }
}

/// Run a command and return its output. If it fails, the error has the last lines of the output.
pub(crate) fn output_of(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| failed(command, &error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(command, &format!("{}: {}", output.status, text(&output))))
}

/// As [`output_of`], for a command line.
pub(crate) fn call<S: AsRef<str>>(words: &[S]) -> Result<String, String> {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    let (program, arguments) = words.split_first().ok_or("an empty command")?;
    output_of(Command::new(program).args(arguments).stdin(Stdio::null()))
}

/// As [`output_of`], for a script, which ends at the first failure.
pub(crate) fn shell(script: &str) -> Result<String, String> {
    call(&["sh", "-ec", script])
}

fn failed(command: &Command, why: &str) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    format!("{}: {why}", words.join(" "))
}

/// The last lines of a program's output.
pub(crate) fn text(output: &Output) -> String {
    const LINES: usize = 12;
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    let all = String::from_utf8_lossy(&all).into_owned();
    let lines: Vec<_> = all.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].join(" | ")
}

//! Runs a program with a preloaded library that keeps its files out of the page cache.

mod cleaner;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use diorite_uncached::shared::counters::Counters;
use diorite_uncached::{LIBRARY, preloadable, shared};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::args::Uncached;
use crate::failure::{Failure, Result, complain, print_error, reason};
use crate::interrupt;
use crate::size::{counted, size_in_words};
use cleaner::Cleaner;

/// The exit status of `env` and of shells for a program that cannot be run.
pub(crate) const CANNOT_RUN: u8 = 126;
/// As [`CANNOT_RUN`], for one that is not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// Names of the counters in JSON, in the order of [`Counters`].
const NAMES: [&str; 14] = [
    "processes",
    "read_dontcache",
    "read_direct",
    "read_dropped",
    "written_dontcache",
    "written_direct",
    "written_dropped",
    "kept",
    "other_read",
    "other_written",
    "mapped",
    "spliced",
    "rings",
    "left",
];

const _: () = assert!(size_of::<Counters>() == NAMES.len() * 8);

pub(crate) fn uncached(arguments: &Uncached) -> Result<()> {
    if LIBRARY.is_empty() {
        return Err(Failure::Failed(
            "uncached: this build has no library to preload: it needs glibc on x86-64 or arm64; build for such a target".to_owned(),
        ));
    }
    let [program, rest @ ..] = &*arguments.program else {
        return Err(Failure::Usage("uncached: a program is missing; write -- PROGRAM".to_owned()));
    };
    let shown = Path::new(program).display();
    if let Some(path) = found(program)
        // A program that cannot be read may still be executed.
        && let Ok(Some(why)) = preloadable(&path)
    {
        return Err(Failure::Failed(format!("{shown}: cannot run uncached: {why}")));
    }
    let failed = |error: io::Error| Failure::host("uncached", "prepare the library", &error);
    let library = memory_file("diorite-uncached").map_err(failed)?;
    (&library).write_all(LIBRARY).map_err(failed)?;
    let counters = memory_file("diorite-uncached-counters").map_err(failed)?;
    counters.set_len(size_of::<Counters>() as u64).map_err(failed)?;
    let cleaner = Cleaner::start().map_err(failed)?;
    let mut command = Command::new(program);
    command
        .args(rest)
        .env("LD_PRELOAD", with_others(&path_of(&library)))
        .env(shared::CLEANER, cleaner.variable().map_err(failed)?)
        .env(shared::COUNTERS, path_of(&counters))
        .env(shared::ONLY, patterns("--only", &arguments.only)?)
        .env(shared::KEEP, patterns("--keep", &arguments.keep)?);
    let status = run(&mut command).map_err(|error| {
        complain(&format!("{shown}: cannot start: {}", reason(&error)));
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        Failure::Exit(if is_missing { NOT_FOUND } else { CANNOT_RUN })
    })?;
    cleaner.finish();
    if !arguments.quiet {
        summarize(&values(&counters).map_err(failed)?, arguments.json);
    }
    match exit_status(status) {
        0 => Ok(()),
        status => Err(Failure::Exit(status)),
    }
}

/// The file that the start of `program` executes, as `execvp` finds it.
pub(crate) fn found(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|path| path.is_file())
}

/// A file without a name. Its path is valid while this process runs.
pub(crate) fn memory_file(name: &str) -> io::Result<File> {
    Ok(memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

pub(crate) fn path_of(file: &File) -> OsString {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

/// The value of `LD_PRELOAD`: this library first, then the libraries that the caller preloads.
pub(crate) fn with_others(library: &OsStr) -> OsString {
    let mut list = library.to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}

/// Patterns, one in a line. A relative path begins at the current directory.
fn patterns(flag: &str, globs: &[OsString]) -> Result<OsString> {
    let mut lines = Vec::new();
    for glob in globs {
        let glob = glob.as_bytes();
        if glob.is_empty() || glob.contains(&b'\n') {
            return Err(Failure::Usage(format!(
                "{flag}: an empty pattern, or one with a newline; write a pattern"
            )));
        }
        if glob.contains(&b'/') && !glob.starts_with(b"/") && !glob.starts_with(b"**") {
            let directory = std::env::current_dir()
                .map_err(|error| Failure::host("current directory", "find", &error))?;
            for byte in directory.as_os_str().as_bytes() {
                if b"*?[\\".contains(byte) {
                    lines.push(b'\\');
                }
                lines.push(*byte);
            }
            lines.push(b'/');
            lines.extend(glob.strip_prefix(b"./").unwrap_or(glob));
        } else {
            lines.extend(glob);
        }
        lines.push(b'\n');
    }
    if lines.len() > shared::PATTERNS_BYTES_MAX {
        return Err(Failure::Usage(format!(
            "{flag}: the patterns are longer than {} bytes; use fewer patterns",
            shared::PATTERNS_BYTES_MAX
        )));
    }
    Ok(OsString::from_vec(lines))
}

/// The program, or 0 before it runs.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// Run a program. Signals of a terminal reach it and this process; others are forwarded.
pub(crate) fn run(command: &mut Command) -> io::Result<ExitStatus> {
    // Before the program runs, which may send a signal at once.
    interrupt::act(Arc::new(|_| forward()));
    let mut child = command.spawn()?;
    CHILD.store(child.id() as i32, Ordering::SeqCst);
    // A signal that came before.
    forward();
    wait(&mut child)
}

/// Forward the last signal, if the program runs.
fn forward() {
    let signal = match interrupt::last_signal() {
        signal_hook::consts::SIGTERM => Signal::TERM,
        signal_hook::consts::SIGHUP => Signal::HUP,
        _ => return,
    };
    if let Some(pid) = Pid::from_raw(CHILD.load(Ordering::SeqCst)) {
        let _ = kill_process(pid, signal);
    }
}

fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    loop {
        match child.wait() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            ended => return ended,
        }
    }
}

pub(crate) fn exit_status(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128_u8.wrapping_add(signal as u8),
        (None, None) => 1,
    }
}

/// The counters of all processes.
fn values(counters: &File) -> io::Result<[u64; NAMES.len()]> {
    let mut bytes = [0; NAMES.len() * 8];
    counters.read_exact_at(&mut bytes, 0)?;
    let mut values = [0; NAMES.len()];
    for (value, raw) in values.iter_mut().zip(bytes.chunks_exact(8)) {
        *value = u64::from_ne_bytes(raw.try_into().unwrap_or_default());
    }
    Ok(values)
}

fn summarize(values: &[u64; NAMES.len()], as_json: bool) {
    if as_json {
        let mut object = json!({ "command": "uncached" });
        for (name, value) in NAMES.iter().zip(values) {
            object[*name] = Value::from(*value);
        }
        print_error(&object.to_string());
        return;
    }
    let &[
        processes,
        read_flag,
        read_direct,
        read_dropped,
        written_flag,
        written_direct,
        written_dropped,
        kept,
        other_read,
        other_written,
        mapped,
        spliced,
        rings,
        left,
    ] = values;
    let ways = |flag: u64, direct: u64, dropped: u64| {
        format!(
            "{}: {} with RWF_DONTCACHE, {} by direct I/O, {} dropped from the cache afterwards",
            size_in_words(flag + direct + dropped),
            size_in_words(flag),
            size_in_words(direct),
            size_in_words(dropped)
        )
    };
    print_error(&format!("diorite: uncached: {}", counted(processes, "process", "processes")));
    print_error(&format!("  read     {}", ways(read_flag, read_direct, read_dropped)));
    print_error(&format!("  written  {}", ways(written_flag, written_direct, written_dropped)));
    print_error(&format!(
        "  other    {} read and {} written by streams of stdio and by system calls of the program itself (pipes and terminals included), {} mapped, {} spliced, {}",
        size_in_words(other_read),
        size_in_words(other_written),
        size_in_words(mapped),
        size_in_words(spliced),
        counted(rings, "ring of unknown size", "rings of unknown size")
    ));
    if kept > 0 {
        print_error(&format!(
            "  kept     {} in files that --only and --keep leave alone",
            size_in_words(kept)
        ));
    }
    if left > 0 {
        print_error(&format!(
            "  left     {} stay in the cache: their pages could not be dropped",
            size_in_words(left)
        ));
    }
    if processes == 0 {
        print_error(
            "  no process loaded the library: the program has its own loader, or ended before it loaded the library",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_patterns_begin_at_the_current_directory() {
        let text = |globs: &[&str]| {
            let globs: Vec<OsString> = globs.iter().map(OsString::from).collect();
            patterns("--only", &globs).map(|list| list.to_string_lossy().into_owned())
        };
        assert_eq!(text(&["*.sst", "/data/*", "**/x"]).as_deref(), Ok("*.sst\n/data/*\n**/x\n"));
        let here = std::env::current_dir().expect("a directory");
        assert_eq!(text(&["./a/*"]), Ok(format!("{}/a/*\n", here.display())));
        assert!(text(&[""]).is_err() && text(&["a\nb"]).is_err());
        assert!(text(&[&"x".repeat(5000)]).is_err());
    }

    #[test]
    fn a_signal_is_an_exit_status_of_the_shell() {
        assert_eq!(exit_status(ExitStatus::from_raw(9)), 137);
        assert_eq!(exit_status(ExitStatus::from_raw(3 << 8)), 3);
    }
}

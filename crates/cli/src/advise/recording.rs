//! Runs a program, or watches a process, and records its calls.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use diorite_advise::record::{Run, library, strace};
use diorite_advise::trace::Trace;
use diorite_uncached::shared::counters::Counters;
use diorite_uncached::{LIBRARY, preloadable, shared};
use nix::sys::resource::{UsageWho, getrusage};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

use crate::args::Advise;
use crate::failure::{Failure, Result, complain, reason};
use crate::uncached::{CANNOT_RUN, NOT_FOUND, exit_status, found, memory_file, path_of, run, with_others};

/// `strace` needs about so long for a call, if it cannot be measured.
const STRACE_S_PER_CALL: f64 = 60e-6;

fn failed(error: &io::Error) -> Failure {
    Failure::host("advise", "prepare the recording", error)
}

/// Record a program. Returns its exit status, too.
pub(super) fn program(arguments: &Advise) -> Result<(Trace, u8)> {
    let [program, rest @ ..] = &*arguments.program else {
        return Err(Failure::Usage(
            "advise: a program, a PID or a record is missing; write -- PROGRAM".to_owned(),
        ));
    };
    let unloadable = found(program).and_then(|path| preloadable(&path).ok().flatten());
    if let Some(why) = &unloadable
        && !arguments.strace
    {
        complain(&format!("{}: recording with strace: {why}", Path::new(program).display()));
    }
    if arguments.strace || unloadable.is_some() || LIBRARY.is_empty() {
        return with_strace(arguments);
    }
    let library = memory_file("diorite-advise").map_err(|error| failed(&error))?;
    (&library).write_all(LIBRARY).map_err(|error| failed(&error))?;
    let counters = memory_file("diorite-advise-counters").map_err(|error| failed(&error))?;
    counters.set_len(size_of::<Counters>() as u64).map_err(|error| failed(&error))?;
    let records = memory_file("diorite-advise-records").map_err(|error| failed(&error))?;
    library::prepare(&records).map_err(|error| failed(&error))?;
    let mut command = Command::new(program);
    command
        .args(rest)
        .env("LD_PRELOAD", with_others(&path_of(&library)))
        .env(shared::COUNTERS, path_of(&counters))
        .env(shared::RECORD, path_of(&records));
    let (run, status) = run_measured(command, arguments)?;
    let counters = counters_of(&counters).map_err(|error| failed(&error))?;
    let trace = library::collect(&records, &counters, run).map_err(|error| failed(&error))?;
    Ok((trace, status))
}

/// Run the command, and measure it.
fn run_measured(mut command: Command, arguments: &Advise) -> Result<(Run, u8)> {
    if arguments.reporting.json {
        command.stdout(stderr()?);
    }
    let started_ns = monotonic_ns();
    let (start, before) = (Instant::now(), cpu_s_of_children());
    let status = run(&mut command).map_err(|error| {
        complain(&format!("{}: cannot start: {}", command.get_program().display(), reason(&error)));
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        Failure::Exit(if is_missing { NOT_FOUND } else { CANNOT_RUN })
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let words: Vec<String> =
        arguments.program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let run = Run {
        program: words.join(" "),
        started_ns,
        seconds,
        cpu_s: Some(cpu_s_of_children() - before),
        memory_bytes: memory_of_children(),
    };
    Ok((run, exit_status(status)))
}

/// Standard error, for a program whose standard output is not the report's.
fn stderr() -> Result<Stdio> {
    use std::os::fd::AsFd as _;
    let copy = io::stderr().as_fd().try_clone_to_owned().map_err(|error| failed(&error))?;
    Ok(copy.into())
}

fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn time_of_day_ns() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn cpu_s_of_children() -> f64 {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return 0.0 };
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}

fn memory_of_children() -> u64 {
    let kib = getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0, |usage| usage.max_rss());
    u64::try_from(kib).unwrap_or(0) * 1024
}

fn counters_of(file: &File) -> io::Result<Counters> {
    let counters = Counters::new();
    let Counters { other_read, other_written, mapped, rings, .. } = &counters;
    // In the order of the fields.
    for (field, index) in [(other_read, 8), (other_written, 9), (mapped, 10), (rings, 12)] {
        let mut raw = [0; 8];
        file.read_exact_at(&mut raw, index * 8)?;
        field.store(u64::from_ne_bytes(raw), std::sync::atomic::Ordering::Relaxed);
    }
    Ok(counters)
}

/// Record a program with `strace`.
fn with_strace(arguments: &Advise) -> Result<(Trace, u8)> {
    must_have_strace()?;
    let cost = strace_s_per_call();
    let lines = memory_file("diorite-advise-strace").map_err(|error| failed(&error))?;
    let mut command = Command::new("strace");
    command
        .args(strace::arguments(Path::new(&path_of(&lines)), strace::Subject::Program(&arguments.program)));
    let started_ns = time_of_day_ns();
    let (run, status) = run_measured(command, arguments)?;
    // Its own CPU time is not the program's.
    let run = Run { started_ns, cpu_s: None, ..run };
    Ok((parsed(lines, run, cost, &HashMap::new())?, status))
}

/// Watch a process until it ends, for some time, or until an interrupt.
pub(super) fn process(process: u32, seconds: Option<u64>) -> Result<Trace> {
    must_have_strace()?;
    let directory = format!("/proc/{process}");
    if !Path::new(&directory).exists() {
        return Err(Failure::Failed(format!(
            "{process}: no such process and no such file; check the number"
        )));
    }
    let cost = strace_s_per_call();
    let positions = positions_of(&directory);
    let lines = memory_file("diorite-advise-strace").map_err(|error| failed(&error))?;
    let before = cpu_s_of(&directory);
    let mut command = Command::new("strace");
    command.args(strace::arguments(Path::new(&path_of(&lines)), strace::Subject::Process(process)));
    let (started_ns, start) = (time_of_day_ns(), Instant::now());
    let mut child = command.spawn().map_err(|error| Failure::host("strace", "start", &error))?;
    let stop = Pid::from_raw(child.id() as i32);
    let limit = seconds.map(Duration::from_secs);
    let cancel = crate::interrupt::cancel();
    crate::interrupt::act(std::sync::Arc::new(|_| {}));
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| Failure::host("strace", "wait for", &error))? {
            break status;
        }
        let is_over = limit.is_some_and(|limit| start.elapsed() >= limit) || cancel.is_cancelled();
        if is_over && let Some(stop) = stop {
            // It detaches from the process.
            let _ = kill_process(stop, Signal::INT);
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    if !status.success() && start.elapsed() < Duration::from_millis(500) && status.code() == Some(1) {
        return Err(Failure::Failed(format!(
            "{process}: strace cannot attach: its message is above; run as root or as the owner of the process"
        )));
    }
    let name = std::fs::read_to_string(format!("{directory}/comm")).unwrap_or_default();
    let run = Run {
        program: format!("process {process} {}", name.trim()).trim_end().to_owned(),
        started_ns,
        seconds: start.elapsed().as_secs_f64(),
        cpu_s: cpu_s_of(&directory).zip(before).map(|(after, before)| after - before),
        memory_bytes: 0,
    };
    parsed(lines, run, cost, &positions)
}

fn parsed(mut lines: File, run: Run, cost: f64, positions: &HashMap<u32, u64>) -> Result<Trace> {
    let mut bytes = Vec::new();
    lines.rewind().and_then(|()| lines.read_to_end(&mut bytes)).map_err(|error| failed(&error))?;
    let text = String::from_utf8_lossy(&bytes);
    let size =
        |path: &str| std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|found| found.len());
    Ok(strace::parse(&text, run, cost, &|fd| positions.get(&fd).copied(), &size))
}

fn must_have_strace() -> Result<()> {
    match found(&OsString::from("strace")) {
        Some(_) => Ok(()),
        None => Err(Failure::Failed(
            "strace: not found: it records running and static programs; install the package strace"
                .to_owned(),
        )),
    }
}

/// The time that `strace` adds to a call, by a program of many calls.
fn strace_s_per_call() -> f64 {
    const CALLS: u32 = 1000;
    let program =
        ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=1000", "status=none"].map(OsString::from);
    let timed = |command: &mut Command| {
        let start = Instant::now();
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success()).then(|| start.elapsed().as_secs_f64())
    };
    let plain = timed(Command::new(&program[0]).args(&program[1..]));
    let subject = strace::Subject::Program(&program);
    let traced = timed(Command::new("strace").args(strace::arguments(Path::new("/dev/null"), subject)));
    match (plain, traced) {
        (Some(plain), Some(traced)) if traced > plain => (traced - plain) / f64::from(2 * CALLS),
        _ => STRACE_S_PER_CALL,
    }
}

/// CPU time of a process, from its `stat`.
fn cpu_s_of(directory: &str) -> Option<f64> {
    let text = std::fs::read_to_string(format!("{directory}/stat")).ok()?;
    // The name may have spaces and parentheses.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11..13)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum();
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Positions of the descriptors of a process.
fn positions_of(directory: &str) -> HashMap<u32, u64> {
    let entries = std::fs::read_dir(format!("{directory}/fdinfo")).into_iter().flatten().flatten();
    let position = |entry: std::fs::DirEntry| {
        let text = std::fs::read_to_string(entry.path()).ok()?;
        let position = text.lines().find_map(|line| line.strip_prefix("pos:"))?.trim().parse().ok()?;
        Some((entry.file_name().to_str()?.parse().ok()?, position))
    };
    entries.filter_map(position).collect()
}

//! The command advise: record or load, probe, predict, print.

mod recording;

use std::path::{Path, PathBuf};

use diorite_advise::answer::{self, Advice, Question};
use diorite_advise::probe::{self, Probes, Settings};
use diorite_advise::trace::{self, Trace};
use diorite_bench::Machine;
use rustix::fs::Access;

use crate::args::{Advise, command_line};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output::Output;
use crate::progress::StageProgress;
use crate::size::size_in_words;

pub(crate) fn advise(arguments: &Advise, output: &mut Output) -> Result<()> {
    let (trace, status) = trace_of(arguments)?;
    if let Some(path) = &arguments.record {
        trace::store(&trace, path).map_err(|error| Failure::Failed(error.to_string()))?;
    } else {
        answer_for(arguments, &trace, output)?;
    }
    match status {
        0 => Ok(()),
        status => Err(Failure::Exit(status)),
    }
}

/// The trace, and the exit status of its program.
fn trace_of(arguments: &Advise) -> Result<(Trace, u8)> {
    let Some(subject) = &arguments.subject else { return recording::program(arguments) };
    let path = Path::new(subject);
    let process = subject.to_str().and_then(|text| text.parse::<u32>().ok()).filter(|_| !path.exists());
    match process {
        Some(process) => Ok((recording::process(process, arguments.seconds)?, 0)),
        None => match trace::load(path) {
            Ok(trace) => Ok((trace, 0)),
            Err(error) => Err(Failure::Failed(error.to_string())),
        },
    }
}

fn answer_for(arguments: &Advise, trace: &Trace, output: &mut Output) -> Result<()> {
    if trace.bytes() == 0 && trace.unseen.mapped == 0 {
        return Err(Failure::Failed(format!(
            "{}: no read or write of a file was seen: {}; record with --strace, or a longer run",
            trace.program,
            unseen_text(trace)
        )));
    }
    let directory = directory_of(arguments, trace)?;
    let probes = probes(arguments, &directory)?;
    let question = Question {
        memory_bytes: arguments.memory.map(|size| size.0),
        own_cache_bytes: arguments.cache.map(|size| size.0),
        is_warm: arguments.warm,
    };
    let advice = answer::advise(trace, &probes, question);
    let machine = Machine::this(Some(&directory));
    if let Some(file) = &arguments.html {
        #[expect(clippy::disallowed_methods, reason = "a report, not data I/O")]
        std::fs::write(file, answer::page(&trace.program, &machine, &advice).render())
            .map_err(|error| Failure::host(file.display(), "write", &error))?;
    }
    if arguments.reporting.json {
        let report = answer::report(command_line(), machine, &advice);
        let mut json = serde_json::to_value(&report).map_err(std::io::Error::from)?;
        json["prediction"] = serde_json::to_value(&advice).map_err(std::io::Error::from)?;
        json["probes"] = serde_json::to_value(&probes).map_err(std::io::Error::from)?;
        return output.json(json);
    }
    print(trace, &probes, &advice, output)
}

fn unseen_text(trace: &Trace) -> String {
    let unseen = trace.unseen;
    format!(
        "{} read and {} written by other calls, {} rings",
        size_in_words(unseen.read),
        size_in_words(unseen.written),
        unseen.rings
    )
}

/// The directory to probe: a writable one, with the most bytes of the program.
fn directory_of(arguments: &Advise, trace: &Trace) -> Result<PathBuf> {
    if let Some(directory) = &arguments.probe_dir {
        return Ok(directory.clone());
    }
    let groups = diorite_advise::group::groups(trace);
    let files = groups.iter().filter_map(|group| group.files.first());
    let directories = files.filter_map(|file| Path::new(&trace.files[*file as usize].path).parent());
    let writable = directories
        .into_iter()
        .find(|directory| rustix::fs::access(*directory, Access::WRITE_OK | Access::EXEC_OK).is_ok());
    writable.map(Path::to_owned).ok_or_else(|| {
        Failure::Failed(format!(
            "{}: cannot probe the disk: no directory of its files is writable; name one on the same disk with --probe-dir",
            trace.program
        ))
    })
}

fn probes(arguments: &Advise, directory: &Path) -> Result<Probes> {
    let failed = |error: probe::ProbeFileError| Failure::Failed(error.to_string());
    let stored = probe::path_for(&cache_directory(), directory);
    if arguments.no_probe {
        return probe::load(&stored).map_err(failed);
    }
    // An interrupt of the recorded program does not count. A later one ends the probes after the scratch file is removed.
    interrupt::begin_again();
    interrupt::is_changing();
    let settings = Settings { directory, memory_bytes: None, probe_s: probe::PROBE_S };
    let probes = probe::measure(settings, &interrupt::cancel(), &StageProgress::counting())?;
    if let Err(error) = probe::store(&probes, &stored) {
        crate::failure::complain(&format!("{error}; --no-probe will not work"));
    }
    Ok(probes)
}

/// As in the XDG base directory specification.
fn cache_directory() -> PathBuf {
    let of = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = of("XDG_CACHE_HOME").or_else(|| Some(of("HOME")?.join(".cache")));
    cache.unwrap_or_else(std::env::temp_dir).join("diorite")
}

fn print(trace: &Trace, probes: &Probes, advice: &Advice, output: &mut Output) -> Result<()> {
    for group in &advice.groups {
        output.paragraph(&group.sentence, "  ")?;
    }
    output.line("")?;
    answer::table(advice).iter().try_for_each(|line| output.line(line))?;
    output.line("")?;
    answer::plot(advice).iter().try_for_each(|line| output.line(line))?;
    output.line("")?;
    output.line("Assumptions")?;
    for line in &advice.assumptions {
        output.paragraph(&format!("  {line}"), "  ")?;
    }
    output.paragraph(
        &format!(
            "  {} calls of {} files were recorded. {}",
            trace.events.len(),
            trace.files.len(),
            probed(probes)
        ),
        "  ",
    )
}

fn probed(probes: &Probes) -> String {
    let rate = |curve: &probe::Curve| curve.best_rate() / 1e6;
    let buffered = rate(&probes.buffered.ahead);
    let direct = match &probes.direct {
        Some(direct) => format!(", {:.0} MB/s by direct I/O", rate(&direct.ahead)),
        None => String::new(),
    };
    format!(
        "Probes of {} took {:.1} s: reads in order have {buffered:.0} MB/s through the page cache{direct}.",
        probes.place, probes.seconds
    )
}

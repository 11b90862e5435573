//! The command diskperf: the disk test of 2002, with its syntax of options.

use std::path::Path;
use std::sync::Arc;

use diorite::front_end::ScheduledDevice;
use diorite::{Access, BlockDevice, DirectIo};
use diorite_bench::diskperf::{
    Direction, DiskMode, DiskPerf, DiskPerfError, DiskPerfOutcome, DiskTarget, run_on, run_simulated,
    simulated_devices,
};
use diorite_bench::{Engine, Machine, Observer, Report, SchedulerReport, WorldOptions};

use crate::args::{DiskPerf as Arguments, Opening, command_line};
use crate::failure::{Failure, Result};
use crate::images::Images;
use crate::location::Location;
use crate::output::Output;
use crate::profiling::{self, Profiling};
use crate::progress::StageProgress;
use crate::size::Size;
use crate::{devices, interrupt};

/// Largest transfer.
const MOST_BYTES: u64 = 1 << 30;
/// Most transfers in flight on each device. Each needs a buffer.
const MOST_IN_FLIGHT: u64 = 1024;

pub(crate) fn diskperf(arguments: &Arguments, output: &mut Output) -> Result<()> {
    let (options, names) = understand(&arguments.words)?;
    if names.iter().any(|name| name.starts_with("sim:")) {
        return simulated(arguments, options, &names, output);
    }
    interrupt::is_changing();
    let mut images = Images::new(Opening { queueing: arguments.queueing, ..Opening::default() });
    let done = measured(arguments, options, &names, &mut images, output);
    let closed = images.close();
    done?;
    closed?;
    interrupt::check()
}

/// Run the test on devices, and on files of images, which the caller closes.
fn measured(
    arguments: &Arguments,
    options: DiskPerf,
    names: &[String],
    images: &mut Images,
    output: &mut Output,
) -> Result<()> {
    let (mut targets, mut schedulers) = (Vec::new(), Vec::new());
    for name in names {
        targets.push(match Location::parse(Path::new(name)) {
            Location::Image { image, path } => {
                file_target(arguments, name, (&image, &path), options, images)?
            }
            Location::Host(_) => device_target(arguments, name, options, &mut schedulers)?,
        });
    }
    let progress = StageProgress::default();
    let profiler = profiling::start(arguments.profiling.profile.as_deref())?;
    let outcome = run_on(&targets, options, &progress, &interrupt::cancel())?;
    drop(targets);
    let profiled = profiler.map(Profiling::stop);
    let report =
        |scheduler: &Arc<ScheduledDevice>| SchedulerReport::of(scheduler, |_| Some(scheduler.name()));
    let engine = if options.mode == DiskMode::Raw { Engine::Raw } else { Engine::Diorite };
    let reports: Vec<_> = schedulers.iter().map(report).collect();
    show(arguments, &outcome, engine, &reports, output)?;
    if let Some(profiled) = profiled {
        profiled.show(arguments.reporting, output)?;
    }
    Ok(())
}

fn device_target(
    arguments: &Arguments,
    name: &str,
    options: DiskPerf,
    schedulers: &mut Vec<Arc<ScheduledDevice>>,
) -> Result<DiskTarget> {
    let writes = options.direction == Direction::Write;
    if writes && !arguments.force {
        devices::refuse_to_destroy_data(name, "the write test")?;
    }
    let device = devices::open(name, writes)?;
    let kind = devices::scheduler(&*device, arguments.queueing)?;
    let Some(scheduled) = ScheduledDevice::of_kind(&device, kind) else {
        return Ok(DiskTarget::Device(device));
    };
    schedulers.push(scheduled.clone());
    Ok(DiskTarget::Device(scheduled))
}

/// A file of a volume. A write test creates it if it is missing.
fn file_target(
    arguments: &Arguments,
    name: &str,
    (image, path): (&Path, &Path),
    options: DiskPerf,
    images: &mut Images,
) -> Result<DiskTarget> {
    let writes = options.direction == Direction::Write;
    let access = if writes { Access::ReadWrite } else { Access::ReadOnly };
    let filesystem = images.open(image, access)?;
    let has_content = || filesystem.metadata(path).is_ok_and(|found| found.size > 0);
    if writes && !arguments.force && has_content() {
        return Err(Failure::Failed(format!(
            "{name}: the file has content, which the write test would destroy; use --force to overwrite it"
        )));
    }
    let direct = if options.mode == DiskMode::Direct { DirectIo::Required } else { DirectIo::Off };
    let open = filesystem.open_options().read(true).write(writes).create(writes).direct(direct);
    let file = open.open(path).map_err(Failure::map(name, "open"))?;
    let device = Arc::clone(filesystem.device());
    Ok(DiskTarget::File { name: name.to_owned(), file, device })
}

/// Run the test in virtual time, on simulated devices.
fn simulated(arguments: &Arguments, options: DiskPerf, names: &[String], output: &mut Output) -> Result<()> {
    if let Some(real) = names.iter().find(|name| !name.starts_with("sim:")) {
        let why = format!(
            "{real}: real and simulated devices cannot be in one test: simulated time is virtual; test them separately"
        );
        return Err(Failure::Usage(why));
    }
    arguments.profiling.refuse_in_simulation()?;
    let world = WorldOptions { seed: arguments.seed, ..WorldOptions::default() };
    let scheduler = arguments.queueing.choice()?;
    let progress = StageProgress::default();
    progress.begin("simulating", 0);
    let result =
        simulated_devices(names).and_then(|devices| run_simulated(devices, options, scheduler, world));
    progress.end();
    let (outcome, reports) = result.map_err(|error| Failure::Failed(error.to_string()))?;
    show(arguments, &outcome, Engine::Sim, &reports, output)
}

fn show(
    arguments: &Arguments,
    outcome: &DiskPerfOutcome,
    engine: Engine,
    schedulers: &[SchedulerReport],
    output: &mut Output,
) -> Result<()> {
    if arguments.reporting.json {
        return json(outcome, engine, schedulers, output);
    }
    print(outcome, output)?;
    output.text(&SchedulerReport::text_of_all(schedulers))
}

/// Parse the words: `name=value`, a mode, or a target.
fn understand(words: &[String]) -> Result<(DiskPerf, Vec<String>)> {
    let mut options = DiskPerf::default();
    let mut targets = Vec::new();
    let mut mode: Option<(&str, DiskMode)> = None;
    let mut direction: Option<(&str, Direction)> = None;
    for word in words {
        match word.split_once('=') {
            Some(("blocks", value)) => options.blocks = number(word, value, u64::MAX)?,
            Some(("bs", value)) => options.block_bytes = number(word, value, MOST_BYTES)? as usize,
            Some(("depth", value)) => options.depth = number(word, value, MOST_IN_FLIGHT)? as u32,
            Some((name, _)) if is_word(name) && !Path::new(word).exists() => {
                let why = format!(
                    "{word}: no such option, and no such device; options are blocks=, bs= and depth="
                );
                return Err(Failure::Usage(why));
            }
            _ => match word.as_str() {
                "direct" => choose(&mut mode, word, DiskMode::Direct)?,
                "raw" => choose(&mut mode, word, DiskMode::Raw)?,
                "nocopy" => choose(&mut mode, word, DiskMode::Nocopy)?,
                "read" => choose(&mut direction, word, Direction::Read)?,
                "write" => choose(&mut direction, word, Direction::Write)?,
                _ => targets.push(word.clone()),
            },
        }
    }
    options.mode = mode.map_or(DiskMode::Buffered, |(_, mode)| mode);
    options.direction = direction.map_or(options.direction, |(_, direction)| direction);
    Ok((options, targets))
}

/// At most one word of a kind.
fn choose<'a, T: Copy + PartialEq>(chosen: &mut Option<(&'a str, T)>, word: &'a str, one: T) -> Result<()> {
    match chosen.replace((word, one)) {
        Some((former, other)) if other != one => {
            Err(Failure::Usage(format!("{former} and {word}: choose one of them")))
        }
        _ => Ok(()),
    }
}

fn is_word(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A number from 1 to `most`.
fn number(word: &str, value: &str, most: u64) -> Result<u64> {
    let wrong = |why: String| Failure::Usage(format!("{word}: {why}"));
    let Size(number) = value.parse::<Size>().map_err(wrong)?;
    if (1..=most).contains(&number) {
        Ok(number)
    } else {
        Err(wrong(format!("give a number from 1 to {most}")))
    }
}

fn print(outcome: &DiskPerfOutcome, output: &mut Output) -> Result<()> {
    output.line(outcome.to_string())?;
    let Some(latency) = outcome.latencies.summary() else { return Ok(()) };
    output.line(format!(
        "latency: p50 {:.0}us, p99 {:.0}us, p99.9 {:.0}us, max {:.0}us",
        latency.p50, latency.p99, latency.p99_9, latency.max
    ))?;
    let seconds = outcome.spent.seconds.max(1e-9);
    output.line(format!(
        "CPU: {:.1} % of one, {:.3} s per GB (whole machine: {:.3}); {} transfers at the device, {} bytes copied",
        100.0 * outcome.spent.cpu_s_process / seconds,
        outcome.spent.cpu_s_process / (outcome.bytes as f64 / 1e9).max(1e-9),
        outcome.spent.cpu_s_machine() / (outcome.bytes as f64 / 1e9).max(1e-9),
        outcome.bios,
        outcome.bytes_copied,
    ))
}

fn json(
    outcome: &DiskPerfOutcome,
    engine: Engine,
    schedulers: &[SchedulerReport],
    output: &mut Output,
) -> Result<()> {
    let mut report = Report::new(command_line(), Machine::this(None));
    report.rows.push(outcome.row(engine));
    let mut json = serde_json::to_value(&report).map_err(std::io::Error::from)?;
    if !schedulers.is_empty() {
        json["schedulers"] = schedulers.iter().map(SchedulerReport::json).collect();
    }
    output.json(json)
}

impl From<DiskPerfError> for Failure {
    fn from(error: DiskPerfError) -> Self {
        match error {
            DiskPerfError::Options(why) => Self::Usage(why.to_owned()),
            other => Self::Failed(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The command line of 2002.
    #[test]
    fn the_words_of_2002_are_understood() {
        let words = ["blocks=2K", "bs=1m", "direct", "/dev/sde", "/dev/sdf"].map(str::to_owned);
        let (options, targets) = understand(&words).unwrap();
        assert_eq!((options.blocks, options.block_bytes, options.mode), (2048, 1 << 20, DiskMode::Direct));
        assert_eq!(targets, ["/dev/sde", "/dev/sdf"]);
    }

    #[test]
    fn words_that_cannot_be_are_wrong_usage() {
        let cases = ["bs=huge", "bs=0", "blocks=0", "depth=99999999999", "foo=3", "BLOCKS=4"];
        for word in cases {
            assert!(matches!(understand(&[word.to_owned()]), Err(Failure::Usage(_))), "{word}");
        }
        let both = ["direct", "raw"].map(str::to_owned);
        assert!(matches!(understand(&both), Err(Failure::Usage(why)) if why.starts_with("direct and raw")));
        assert!(understand(&["/dev/disk/by-label=x".to_owned()]).is_ok(), "a path may have an equals sign");
    }
}

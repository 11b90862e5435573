//! The command job: a fio job file on files of the host, in an image, on a device, or on a simulated disk.

use std::path::Path;
use std::sync::Arc;

use diorite::Access;
use diorite_job::{
    HostTarget, JobError, JobFile, JobFileError, JobOutcome, RawTarget, Simulated, Target, VolumeTarget,
    parse_with, run, run_simulated,
};

use crate::args::{Job, Opening};
use crate::failure::{Failure, Result, complain};
use crate::images::Images;
use crate::interrupt;
use crate::output::Output;
use crate::profiling::{self, Profiling};
use crate::progress::StageProgress;

pub(crate) fn job(arguments: &Job, output: &mut Output) -> Result<()> {
    let name = arguments.file.display().to_string();
    let is_volume =
        arguments.on.as_deref().is_some_and(|on| !on.starts_with("raw:") && !Path::new(on).is_dir());
    let is_host = arguments.on.as_deref().is_none_or(|on| Path::new(on).is_dir());
    if arguments.queueing.choice()?.is_some() && is_host {
        return Err(Failure::Usage(
            "--scheduler is for devices: the host's kernel schedules files of the host; give an image, raw:DEVICE or \
             sim:NAME with --on"
                .to_owned(),
        ));
    }
    if arguments.read_ahead.is_some() && !is_volume {
        return Err(Failure::Usage(
            "--read-ahead is for volumes: give an image or sim:NAME with --on".to_owned(),
        ));
    }
    let text = read(&arguments.file, &name)?;
    let file = parse_with(&name, &text, &arguments.set).map_err(|error| refuse(&error))?;
    if !arguments.on.as_deref().is_some_and(|target| target.starts_with("sim:")) {
        // After an interrupt the jobs complete their files.
        interrupt::is_changing();
    }
    match arguments.on.as_deref() {
        None => {
            refuse_to_destroy(arguments, &file, Path::new(""))?;
            on_target(arguments, &file, &(Arc::new(HostTarget::default()) as Arc<dyn Target>), output)
        }
        Some(target) if target.starts_with("sim:") => on_simulated(arguments, &file, target, output),
        Some(target) => match target.strip_prefix("raw:") {
            Some(path) => {
                let writes = file.jobs.iter().any(|job| job.pattern.writes());
                if writes && !arguments.force {
                    crate::devices::refuse_to_destroy(path, "the job")?;
                }
                let device = crate::devices::open(path, writes)?;
                let kind = crate::devices::scheduler(&*device, arguments.queueing)?;
                let target: Arc<dyn Target> = Arc::new(RawTarget::new(device, kind));
                on_target(arguments, &file, &target, output)
            }
            None if Path::new(target).is_dir() => {
                refuse_to_destroy(arguments, &file, Path::new(target))?;
                let target: Arc<dyn Target> = Arc::new(HostTarget::below(target));
                on_target(arguments, &file, &target, output)
            }
            None => on_image(arguments, &file, Path::new(target), output),
        },
    }
}

/// Fail if a job would write to a named file of the host that holds a filesystem.
fn refuse_to_destroy(arguments: &Job, file: &JobFile, below: &Path) -> Result<()> {
    if arguments.force {
        return Ok(());
    }
    for name in file.jobs.iter().filter(|job| job.pattern.writes()).flat_map(diorite_job::Job::named_files) {
        let inside =
            if below.as_os_str().is_empty() { &name } else { name.strip_prefix("/").unwrap_or(&name) };
        let path = below.join(inside);
        crate::devices::refuse_to_destroy(&path.display().to_string(), "the job")?;
    }
    Ok(())
}

/// One line for each error of the job file.
fn refuse(error: &JobFileError) -> Failure {
    let text = error.to_string();
    let (others, last) = text.rsplit_once('\n').unwrap_or(("", &text));
    others.lines().for_each(complain);
    Failure::Failed(last.to_owned())
}

/// The job file as text.
fn read(path: &Path, name: &str) -> Result<String> {
    #[expect(clippy::disallowed_methods, reason = "a text, not data I/O")]
    let bytes = std::fs::read(path).map_err(|error| Failure::host(name, "read", &error))?;
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + String::from_utf8_lossy(good).matches('\n').count();
        Failure::Failed(format!("{name}:{line}: not UTF-8 text; a job file is a text file"))
    })
}

fn on_image(arguments: &Job, file: &JobFile, image: &Path, output: &mut Output) -> Result<()> {
    let mut images =
        Images::new(Opening { stats: arguments.stats, queueing: arguments.queueing, ..Opening::default() })
            .read_ahead(read_ahead_bytes(arguments));
    let filesystem = images.open(image, Access::ReadWrite)?;
    let target: Arc<dyn Target> = Arc::new(VolumeTarget::new(filesystem, "/"));
    let done = on_target(arguments, file, &target, output);
    drop(target);
    let closed = images.close();
    done.and(closed)
}

fn on_simulated(arguments: &Job, file: &JobFile, target: &str, output: &mut Output) -> Result<()> {
    arguments.profiling.refuse_in_simulation()?;
    let on = Simulated {
        disk: target.strip_prefix("sim:").unwrap_or(target).to_owned(),
        flavor: arguments.filesystem.flavor(),
        scheduler: arguments.queueing.choice()?,
        read_ahead_bytes: read_ahead_bytes(arguments),
        seed: arguments.seed,
    };
    let progress = StageProgress::default();
    let outcome = run_simulated(file, &on, &progress).map_err(|error| Failure::Failed(error.to_string()))?;
    show(arguments, &outcome, output)?;
    report_failures(outcome)
}

/// One line for each failed job.
fn report_failures(outcome: JobOutcome) -> Result<()> {
    let mut failures = outcome.failures.into_iter();
    let Some(last) = failures.next_back() else { return Ok(()) };
    failures.for_each(|failure| complain(&failure.to_string()));
    Err(last.into())
}

fn read_ahead_bytes(arguments: &Job) -> Option<usize> {
    arguments.read_ahead.map(|size| usize::try_from(size.0).unwrap_or(usize::MAX))
}

fn show(arguments: &Job, outcome: &JobOutcome, output: &mut Output) -> Result<()> {
    if arguments.reporting.json { output.json(outcome.json()) } else { output.text(&outcome.text()) }
}

fn on_target(arguments: &Job, file: &JobFile, target: &Arc<dyn Target>, output: &mut Output) -> Result<()> {
    let progress = StageProgress::default();
    let profiler = profiling::start(arguments.profiling.profile.as_deref())?;
    let mut outcome = run(file, target, &progress, &interrupt::cancel()).map_err(Failure::from)?;
    outcome.read_ahead_bytes = read_ahead_bytes(arguments);
    let profiled = profiler.map(Profiling::stop);
    show(arguments, &outcome, output)?;
    if let Some(profiled) = profiled {
        profiled.show(arguments.reporting, output)?;
    }
    if interrupt::cancel().is_cancelled() {
        return Err(Failure::Failed(
            "interrupted; the figures cover the time before the interrupt".to_owned(),
        ));
    }
    report_failures(outcome)
}

impl From<JobError> for Failure {
    fn from(error: JobError) -> Self {
        Self::Failed(error.to_string())
    }
}

//! The command job: a fio job file on the host's files, on an image, on a bare device, or on a simulated disk.

use std::path::Path;
use std::sync::Arc;

use diorite::Access;
use diorite_bench::job::{
    HostPlace, JobError, JobFile, Place, RawPlace, Simulated, VolumePlace, parse, run, run_simulated,
};

use crate::args::{Job, Opening};
use crate::failure::{Failure, Result};
use crate::images::Images;
use crate::interrupt;
use crate::output::Output;
use crate::profiling;
use crate::progress::StageProgress;

pub(crate) fn job(arguments: &Job, output: &mut Output) -> Result<()> {
    let name = arguments.file.display().to_string();
    let text =
        std::fs::read_to_string(&arguments.file).map_err(|error| Failure::host(&name, "read", &error))?;
    let file = parse(&name, &text).map_err(|error| Failure::Failed(error.to_string()))?;
    // Files that jobs make are whole when the program ends.
    interrupt::is_changing();
    match arguments.on.as_deref() {
        None => on_place(arguments, &file, &(Arc::new(HostPlace) as Arc<dyn Place>), output),
        Some(target) if target.starts_with("sim:") => on_simulated(arguments, &file, target, output),
        Some(target) => match target.strip_prefix("raw:") {
            Some(path) => {
                let writes = file.jobs.iter().any(|job| job.pattern.writes());
                let device = crate::devices::open(path, writes)?;
                let kind = crate::devices::scheduler(&*device, arguments.queueing);
                let place: Arc<dyn Place> = Arc::new(RawPlace::new(device, kind));
                on_place(arguments, &file, &place, output)
            }
            None => on_image(arguments, &file, Path::new(target), output),
        },
    }
}

fn on_image(arguments: &Job, file: &JobFile, image: &Path, output: &mut Output) -> Result<()> {
    let mut images =
        Images::new(Opening { stats: arguments.stats, queueing: arguments.queueing, ..Opening::default() });
    let filesystem = images.open(image, Access::ReadWrite)?;
    let place: Arc<dyn Place> = Arc::new(VolumePlace::new(filesystem, "/"));
    let done = on_place(arguments, file, &place, output);
    drop(place);
    let closed = images.close();
    done.and(closed)
}

fn on_simulated(arguments: &Job, file: &JobFile, target: &str, output: &mut Output) -> Result<()> {
    let on = Simulated {
        disk: target.strip_prefix("sim:").unwrap_or(target).to_owned(),
        flavor: arguments.filesystem.flavor(),
        scheduler: arguments.queueing.choice(),
        seed: arguments.seed,
    };
    let progress = StageProgress::default();
    let outcome = run_simulated(file, &on, &progress).map_err(|error| Failure::Failed(error.to_string()))?;
    if arguments.reporting.json { output.json(&outcome.json()) } else { output.text(&outcome.text()) }
}

fn on_place(arguments: &Job, file: &JobFile, place: &Arc<dyn Place>, output: &mut Output) -> Result<()> {
    let progress = StageProgress::default();
    let profiler = profiling::start(arguments.profiling.profile.as_deref())?;
    let outcome = run(file, place, &progress, &interrupt::cancel()).map_err(Failure::from)?;
    let profile = profiling::finish(profiler, arguments.profiling.profile.as_deref())?;
    if arguments.reporting.json {
        return output.json(&outcome.json());
    }
    output.text(&outcome.text())?;
    profiling::print(profile.as_ref(), output)
}

impl From<JobError> for Failure {
    fn from(error: JobError) -> Self {
        Self::Failed(error.to_string())
    }
}

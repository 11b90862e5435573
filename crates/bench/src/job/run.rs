//! Runs the jobs of a file: lays their files out, starts a thread for each clone, and collects the results.

use std::sync::Arc;

use diorite::TaskId;
use diorite_block::sync::{Mutex, spawn};

use super::disks::DiskProbe;
use super::files::paths_of;
use super::layout::lay_out_all;
use super::result::{JobOutcome, JobResult};
use super::shared::Shared;
use super::worker::{Worker, run_worker};
use super::{JobError, JobFile, Place};
use crate::watch::{Cancel, Observer};
use crate::{SchedulerReport, world_time};

/// Run all jobs of `file` on `place`. Jobs run at once, except that one with `stonewall` waits for those before it.
///
/// # Errors
/// Nothing ran: files could not be laid out, or threads not be started. What fails later is in [`JobOutcome::failures`], beside what was
/// done until then.
pub fn run(
    file: &JobFile,
    place: &Arc<dyn Place>,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<JobOutcome, JobError> {
    let workers = workers_of(file);
    lay_out_all(&workers, &**place, observer, cancel)?;
    let shared = Shared::new(&workers, cancel);
    let paths = workers.iter().flat_map(|worker| &worker.paths);
    let host_files: Vec<_> = paths.flat_map(|path| place.host_files(path)).collect();
    let disks = DiskProbe::start(&host_files);
    let (mut singles, mut failures) = (Vec::new(), Vec::new());
    let mut rest = workers.as_slice();
    while !rest.is_empty() {
        let end = rest.iter().skip(1).position(|worker| worker.starts_wave).map_or(rest.len(), |at| at + 1);
        let (wave, later) = rest.split_at(end);
        let longest = wave.iter().filter_map(|worker| worker.job.runtime).max().unwrap_or_default();
        let plural = if wave.len() == 1 { "" } else { "s" };
        let time =
            if longest.is_zero() { String::new() } else { format!(", up to {} s", longest.as_secs_f64()) };
        observer.begin(&format!("running {} job{plural}{time}", wave.len()), 0);
        for (single, failed) in run_wave(wave, place, &shared)? {
            singles.push(single);
            failures.extend(failed);
        }
        observer.end();
        rest = later;
    }
    let name_of = |task: TaskId| {
        if task == TaskId::default() {
            return Some("(the volume)".to_owned());
        }
        let worker = workers.iter().find(|worker| worker.task() == task)?;
        let has_clones = worker.job.clones > 1;
        Some(if has_clones {
            format!("{}.{}", worker.job.name, worker.clone)
        } else {
            worker.job.name.clone()
        })
    };
    let scheduler = place.scheduler().map(|device| SchedulerReport::of(&device, name_of));
    let (disks, global_options) = (disks.finish(), file.global_options.clone());
    let ended = world_time::date();
    Ok(JobOutcome { scheduler, disks, global_options, failures, ended, ..JobOutcome::collect(singles) })
}

/// One worker for each clone of each job, with its file.
pub(super) fn workers_of(file: &JobFile) -> Vec<Worker> {
    let mut workers: Vec<Worker> = Vec::new();
    let mut group = 0;
    for (index, job) in file.jobs.iter().enumerate() {
        let apart = index > 0 && (job.stonewall || job.new_group);
        group += u32::from(apart);
        for clone in 0..job.clones {
            let number = workers.len() as u64;
            workers.push(Worker {
                job: job.clone(),
                paths: paths_of(job, &job.section, clone),
                group,
                clone,
                number,
                starts_wave: job.stonewall && clone == 0,
            });
        }
    }
    workers
}

/// Run workers at once and give their results in order, when all have ended.
fn run_wave(
    wave: &[Worker],
    place: &Arc<dyn Place>,
    shared: &Arc<Shared>,
) -> Result<Vec<(JobResult, Option<JobError>)>, JobError> {
    let results = Arc::new(Mutex::new(Vec::new()));
    results.lock().resize_with(wave.len(), || None);
    let mut threads = Vec::new();
    for (index, worker) in wave.iter().enumerate() {
        let (worker, place, shared, results) =
            (worker.clone(), place.clone(), Arc::clone(shared), results.clone());
        let (name, title) = (worker.job.name.clone(), worker.title());
        let thread = spawn(&name, move || {
            let result = run_worker(&worker, &*place, &shared);
            shared.has_ended(worker.number);
            results.lock()[index] = Some(result);
        });
        threads.push(thread.map_err(|source| JobError::Thread { job: title, source }));
    }
    let mut failed = None;
    for thread in threads {
        match thread {
            Ok(thread) => thread.join(),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    let results = std::mem::take(&mut *results.lock());
    Ok(results.into_iter().flatten().collect())
}

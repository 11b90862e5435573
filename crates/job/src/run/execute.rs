//! One worker on its thread, from opening its files to its result.

use std::sync::Arc;

use diorite_block::IoOwner;
use diorite_block::sync::now;

use super::ranges::{FileRange, ranges};
use super::shared::Shared;
use super::steps::{OpenFile, Run, seed_of};
use super::worker::Worker;
use crate::data::offsets::Offsets;
use crate::error::JobError;
use crate::figures::result::JobResult;
use crate::figures::usage::Usage;
use crate::language::spec::Engine;
use crate::target::handle::Handle;
use crate::target::{FileUse, Target};

/// Run a worker on the calling thread: its result, and why it ended early.
pub(super) fn run_worker(
    worker: &Worker,
    target: &dyn Target,
    shared: &Arc<Shared>,
) -> (JobResult, Option<JobError>) {
    let job = &worker.job;
    if let Some(name) = &job.wait_for {
        shared.wait_for(worker, name);
    }
    let _owner = IoOwner { task: worker.task(), priority: job.priority }.enter();
    shared.sleep_until(worker.number, now().saturating_add(job.start_delay));
    let (files, failed) = match open_files(worker, target, shared) {
        Ok(files) => (files, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let used = Usage::of_this_thread();
    let start = now();
    let mut run = Run::new(worker, files, shared);
    let failed = failed.or_else(|| work(&mut run).err());
    let ended = now();
    if let Some(scheduler) = target.scheduler() {
        scheduler.owner_ended(worker.task());
    }
    let mut result = run.account.result;
    result.usage = Usage::of_this_thread().since(&used);
    result.elapsed = ended.saturating_sub(start);
    result.longest = result.elapsed;
    let failed = failed.or_else(|| remove_files(worker, target).err());
    if let Some(error) = &failed {
        result.first_error.get_or_insert(error.errno());
    }
    (result, failed)
}

/// All passes. As in fio, each one ends with its sync and its verification.
fn work(run: &mut Run<'_>) -> Result<(), JobError> {
    let job = &run.worker.job;
    let (passes, at_once) = if job.verify.is_on() { (job.loops, 1) } else { (1, job.loops) };
    for pass in 0..passes {
        if pass > 0 && run.is_over(now()) {
            break;
        }
        run.begin_passes(at_once);
        work_once(run)?;
    }
    Ok(())
}

fn work_once(run: &mut Run<'_>) -> Result<(), JobError> {
    let job = &run.worker.job;
    // One transfer at a time needs no queue: one call submits and waits.
    if job.engine == Engine::Queue && job.direct && job.depth > 1 {
        run.queued()?;
    } else {
        run.synchronous()?;
    }
    if job.end_fsync {
        run.sync(Handle::sync_all)?;
    }
    if !job.verify.after {
        return Ok(());
    }
    run.empty_caches()?;
    run.verify_written()
}

/// Remove the files of a job with `unlink`.
fn remove_files(worker: &Worker, target: &dyn Target) -> Result<(), JobError> {
    for path in worker.paths.iter().filter(|_| worker.job.unlink) {
        match target.remove(path) {
            // Another clone of the job removed it.
            Err(error) if error.kind() == diorite::ErrorKind::NotFound => {}
            removed => removed.map_err(worker.blame(path))?,
        }
    }
    Ok(())
}

fn open_files(worker: &Worker, target: &dyn Target, shared: &Shared) -> Result<Vec<OpenFile>, JobError> {
    let job = &worker.job;
    let seed = seed_of(worker);
    let open = |(index, range): (usize, FileRange)| {
        // Jobs that share a file share its open mode.
        let write = job.pattern.writes() || job.direct && shared.is_written(&range.path);
        let purpose = FileUse { write, create: !job.must_exist, direct: job.direct };
        let handle = target.open_handle(&range.path, purpose).map_err(worker.blame(&range.path))?;
        if job.invalidate {
            handle.drop_cached().map_err(worker.blame(&range.path))?;
        }
        let seed = seed.wrapping_add((index as u64) << 32);
        // Reads of a mix do not follow its writes from offset to offset.
        let apart = u64::from(job.pattern.reads() && job.pattern.writes()) << 48;
        let seed_of = |direction: usize| seed.wrapping_add(apart * direction as u64);
        let offsets =
            std::array::from_fn(|direction| Offsets::new(job, direction, range.len, seed_of(direction)));
        Ok(OpenFile { handle, range, offsets })
    };
    ranges(worker, target)?.into_iter().enumerate().map(open).collect()
}

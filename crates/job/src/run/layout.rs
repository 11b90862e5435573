//! Makes the files of jobs before the jobs run: content for files that are read, blocks for files that are written.
//!
//! Interface: nothing is made if the files together do not fit. A file whose layout fails is removed, unless it existed
//! before.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use diorite::AlignedBuf;

use diorite_bench::{Cancel, Observer};

use super::ranges::{FileRange, ranges, starts};
use super::worker::Worker;
use crate::data::verify::randomize;
use crate::error::JobError;
use crate::target::{FileUse, Target};

/// Bytes of one transfer while files are laid out.
const LAYOUT_BYTES: usize = 1 << 20;

/// Make the missing files of the jobs, and set where their ranges start.
pub(crate) fn lay_out_all(
    workers: &mut [Worker],
    target: &dyn Target,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<(), JobError> {
    for worker in &*workers {
        let directory = worker.job.directory(worker.clone).map_or(Path::new(""), Path::new);
        for path in &worker.paths {
            let parent = path.parent().unwrap_or(directory);
            target.prepare(directory, parent).map_err(worker.blame(path))?;
        }
    }
    check_space(workers, target)?;
    let mut written: Vec<PathBuf> = Vec::new();
    for worker in workers {
        worker.starts = starts(worker, target);
        let ranges = match ranges(worker, target) {
            // An earlier job makes the file, which then has a size.
            Err(JobError::NoSize { .. }) if worker.paths.iter().all(|path| written.contains(path)) => {
                continue;
            }
            other => other?,
        };
        for range in &ranges {
            lay_out_file(worker, range, target, observer, cancel)?;
        }
        if worker.job.pattern.writes() {
            written.extend(worker.paths.iter().cloned());
        }
    }
    Ok(())
}

fn lay_out_file(
    worker: &Worker,
    range: &FileRange,
    target: &dyn Target,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<(), JobError> {
    let (job, path) = (&worker.job, &range.path);
    let size = target.size_of(path);
    if size.is_some_and(|size| size >= range.end()) || job.fills_device {
        return Ok(());
    }
    if job.must_exist {
        let (job, file) = (worker.title(), path.display().to_string());
        return Err(JobError::NoFile { job, file, found: size.unwrap_or(0), needed: range.end() });
    }
    let done = if needs_content(worker, target) {
        lay_out(worker, range, target, observer, cancel)
    } else {
        preallocate(worker, range, target)
    };
    if done.is_err() {
        observer.end();
        if size.is_none() {
            // The first error is reported.
            let _ = target.remove(path);
        }
    }
    done
}

/// Whether a job needs any content in its file. A job that only verifies needs the content that another job wrote.
fn needs_content(worker: &Worker, target: &dyn Target) -> bool {
    let job = &worker.job;
    // A simulated disk holds the files of an earlier run.
    let is_left =
        || target.is_simulated() && job.pattern.writes() && job.preallocate.is_none() && !job.unlink;
    job.overwrite.unwrap_or_else(is_left)
        || job.pattern.reads() && (job.pattern.writes() || !job.verify.is_on())
}

/// An error if the files of all jobs do not fit, with the first job that does not.
fn check_space(workers: &[Worker], target: &dyn Target) -> Result<(), JobError> {
    let Some(free_bytes) = target.free_bytes() else { return Ok(()) };
    let mut sizes: BTreeMap<PathBuf, u64> = BTreeMap::new();
    let mut needed_bytes = 0u64;
    for worker in workers.iter().filter(|worker| !worker.job.fills_device) {
        // A file without a size yet needs no space yet.
        for range in ranges(worker, target).unwrap_or_default() {
            let there = || target.size_of(&range.path).unwrap_or(0);
            let size = sizes.entry(range.path.clone()).or_insert_with(there);
            needed_bytes = needed_bytes.saturating_add(range.end().saturating_sub(*size));
            *size = range.end().max(*size);
            if needed_bytes > free_bytes && !worker.job.tolerance.writes {
                let (job, file) = (worker.title(), range.path.display().to_string());
                return Err(JobError::NoSpace { job, file, needed_bytes, free_bytes });
            }
        }
    }
    Ok(())
}

/// Allocate the blocks of a written file, so that the writes need not.
fn preallocate(worker: &Worker, range: &FileRange, target: &dyn Target) -> Result<(), JobError> {
    if !worker.job.pattern.writes() || !worker.job.preallocate.unwrap_or(target.preallocates()) {
        return Ok(());
    }
    let purpose = FileUse { write: true, create: true, direct: false };
    let handle = target.open_handle(&range.path, purpose).map_err(worker.blame(&range.path))?;
    handle.preallocate(range.end()).map_err(worker.blame(&range.path))
}

/// Fill a file that is read.
fn lay_out(
    worker: &Worker,
    range: &FileRange,
    target: &dyn Target,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<(), JobError> {
    let (path, needed) = (&range.path, range.end());
    let purpose = FileUse { write: true, create: true, direct: false };
    let file = target.open(path, purpose).map_err(worker.blame(path))?;
    // `size_of` does not know the size of every device.
    if file.size() >= needed {
        return Ok(());
    }
    // Present data stays: the job may only read it.
    let mut at = file.size();
    observer.begin(&format!("laying out {}", path.display()), needed - at);
    let mut memory: AlignedBuf = file.buffer(LAYOUT_BYTES).map_err(worker.blame(path))?;
    if !target.is_simulated() {
        randomize(&mut memory, worker.number);
    }
    while at < needed {
        if cancel.is_cancelled() {
            return Err(JobError::Interrupted { file: path.display().to_string() });
        }
        // The first transfer aligns the others.
        let len = (LAYOUT_BYTES as u64 - at % LAYOUT_BYTES as u64).min(needed - at) as usize;
        file.write_all_at(&memory[..len], at).map_err(worker.blame(path))?;
        at += len as u64;
        observer.advance(len as u64);
    }
    file.sync_all().map_err(worker.blame(path))?;
    file.drop_cached(0, needed).map_err(worker.blame(path))?;
    observer.end();
    Ok(())
}

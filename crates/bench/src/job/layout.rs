//! The files of jobs before the jobs run: whether there is space for them, and content for those that are read.
//!
//! Interface: nothing is made if the files together do not fit. A file that could not be laid out to its end is removed,
//! unless it was there before.

use std::collections::BTreeMap;
use std::path::Path;

use diorite::AlignedBuf;

use super::offsets::Random;
use super::place::FileUse;
use super::worker::Worker;
use super::{JobError, Place, Verify, verify};
use crate::watch::{Cancel, Observer};

/// Bytes of one transfer while files are laid out.
const LAYOUT_BYTES: usize = 1 << 20;

/// Make the files that the jobs read, where they are not there yet.
pub(super) fn lay_out_all(
    workers: &[Worker],
    place: &dyn Place,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<(), JobError> {
    for worker in workers {
        place.prepare(worker.job.directory.as_deref()).map_err(worker.blame())?;
    }
    check_space(workers, place)?;
    for worker in workers.iter().filter(|worker| is_read(worker)) {
        let was_there = place.size_of(&worker.path).is_some();
        if let Err(error) = lay_out(worker, place, observer, cancel) {
            observer.end();
            if !was_there {
                // What went wrong first is what is reported.
                let _ = place.remove(&worker.path);
            }
            return Err(error);
        }
    }
    Ok(())
}

/// Whether a job needs content in its file, whatever it is. One that only checks needs what another wrote.
fn is_read(worker: &Worker) -> bool {
    let pattern = worker.job.pattern;
    pattern.reads() && (pattern.writes() || worker.job.verify == Verify::None)
}

/// Bytes of its file that a job uses.
fn needed(worker: &Worker) -> u64 {
    worker.job.offset_bytes.saturating_add(worker.job.size_bytes)
}

/// An error that names the job with which the files become too large together.
fn check_space(workers: &[Worker], place: &dyn Place) -> Result<(), JobError> {
    let Some(free_bytes) = place.free_bytes() else { return Ok(()) };
    let mut sizes: BTreeMap<&Path, u64> = BTreeMap::new();
    let mut needed_bytes = 0u64;
    for worker in workers {
        let size = sizes.entry(&worker.path).or_insert_with(|| place.size_of(&worker.path).unwrap_or(0));
        needed_bytes = needed_bytes.saturating_add(needed(worker).saturating_sub(*size));
        *size = needed(worker).max(*size);
        if needed_bytes > free_bytes {
            let (job, file) = (worker.title(), worker.path.display().to_string());
            return Err(JobError::NoSpace { job, file, needed_bytes, free_bytes });
        }
    }
    Ok(())
}

/// Make sure that a file which is read has something to read.
fn lay_out(
    worker: &Worker,
    place: &dyn Place,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<(), JobError> {
    let needed = needed(worker);
    if place.size_of(&worker.path).is_some_and(|size| size >= needed) {
        return Ok(());
    }
    let purpose = FileUse { write: true, direct: false };
    let file = place.open(&worker.path, purpose).map_err(worker.blame())?;
    // A device has a size that its name does not say.
    if file.size() >= needed {
        return Ok(());
    }
    let mut at = file.size() / LAYOUT_BYTES as u64 * LAYOUT_BYTES as u64;
    observer.begin(&format!("laying out {}", worker.path.display()), needed - at);
    let mut memory: AlignedBuf = file.buffer(LAYOUT_BYTES).map_err(worker.blame())?;
    if !place.lays_out_zeros() {
        let mut random = Random::new(worker.number);
        verify::fill(&mut memory, random.next(), worker.number);
    }
    while at < needed {
        if cancel.is_cancelled() {
            return Err(JobError::Interrupted { file: worker.path.display().to_string() });
        }
        let len = (needed - at).min(LAYOUT_BYTES as u64) as usize;
        file.write_all_at(&memory[..len], at).map_err(worker.blame())?;
        at += len as u64;
        observer.advance(len as u64);
    }
    file.sync_all().map_err(worker.blame())?;
    file.drop_cached(0, needed).map_err(worker.blame())?;
    observer.end();
    Ok(())
}

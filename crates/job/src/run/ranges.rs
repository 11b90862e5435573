//! The part of each file that a job uses.

use std::path::PathBuf;

use super::worker::Worker;
use crate::error::JobError;
use crate::language::spec::{BlockSizes, Size};
use crate::target::Target;

/// Part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileRange {
    pub(super) path: PathBuf,
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl FileRange {
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// Size of a range that only the disk limits.
const WHOLE_DISK: u64 = 1 << 60;

/// Start of the range in each file. As in fio, a share is a share of the present size, so a new file starts at 0, and it is
/// rounded up to a block.
pub(super) fn starts(worker: &Worker, target: &dyn Target) -> Vec<u64> {
    let job = &worker.job;
    let least = job.blocks.iter().map(BlockSizes::least).min().unwrap_or(1);
    let start = |path: &PathBuf| {
        let there = || target.size_of(path).unwrap_or(0);
        let bytes = |size: Size| match size {
            Size::Bytes(bytes) => bytes,
            Size::Percent(_) => size.of(there()).next_multiple_of(least),
        };
        bytes(job.offset).saturating_add(bytes(job.offset_step).saturating_mul(u64::from(worker.clone)))
    };
    worker.paths.iter().map(start).collect()
}

/// The parts of its files that a job uses. Without a size they reach to the present end of the file.
pub(super) fn ranges(worker: &Worker, target: &dyn Target) -> Result<Vec<FileRange>, JobError> {
    let job = &worker.job;
    let count = worker.paths.len() as u64;
    let now = if worker.starts.is_empty() { starts(worker, target) } else { Vec::new() };
    let starts = if worker.starts.is_empty() { &now } else { &worker.starts };
    let mut ranges = Vec::new();
    for (index, (path, offset)) in worker.paths.iter().zip(starts).enumerate() {
        let size = || target.size_of(path);
        let len = match (job.file_bytes, job.size) {
            _ if job.fills_device && job.size.is_none() => Some(WHOLE_DISK),
            // fio draws sizes at random; here they grow from the least to the most.
            (Some((least, most)), _) => Some(least + (most - least) * index as u64 / (count - 1).max(1)),
            (None, Some(Size::Bytes(bytes))) => Some(bytes / count),
            (None, Some(share)) => size().map(|size| share.of(size).min(size.saturating_sub(*offset))),
            (None, None) => size().map(|size| size.saturating_sub(*offset)),
        };
        let largest = job.largest_block();
        match len {
            Some(len) if len >= largest => {
                ranges.push(FileRange { path: path.clone(), offset: *offset, len });
            }
            found => {
                let (job, file) = (worker.title(), path.display().to_string());
                return Err(JobError::NoSize { job, file, found: found.unwrap_or(0), largest });
            }
        }
    }
    Ok(ranges)
}

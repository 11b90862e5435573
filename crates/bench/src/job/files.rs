//! Which files a job uses, and which part of each.

use std::path::{Path, PathBuf};

use super::worker::Worker;
use super::{Job, JobError, Place, Size};

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

/// Paths of the files of a job's clone, as fio names them: `filename`, or `job.clone.file`, in the job's directory.
pub(super) fn paths_of(job: &Job, section: &str, clone: u32) -> Vec<PathBuf> {
    let format = job.filename_format.as_deref().unwrap_or("$jobname.$jobnum.$filenum");
    let names = if job.filenames.is_empty() {
        let name = |file: u32| {
            let name = format.replace("$jobname", section).replace("$jobnum", &clone.to_string());
            name.replace("$filenum", &file.to_string())
        };
        (0..job.files).map(name).collect()
    } else {
        job.filenames.clone()
    };
    let directory = directory_of(job, clone).map_or(Path::new(""), Path::new);
    names.into_iter().map(|name| directory.join(name)).collect()
}

/// The directory of a job's clone.
pub(super) fn directory_of(job: &Job, clone: u32) -> Option<&str> {
    let count = job.directories.len().max(1);
    job.directories.get(clone as usize % count).map(String::as_str)
}

/// How far a file is filled that has no size but that of its disk.
const WHOLE_DISK: u64 = 1 << 60;

/// The parts of its files that a job uses, as they are now: where the job gives no size, it is that of the file.
pub(super) fn ranges(worker: &Worker, place: &dyn Place) -> Result<Vec<FileRange>, JobError> {
    let job = &worker.job;
    let count = worker.paths.len() as u64;
    let offset = job.offset_bytes.saturating_add(job.offset_step.saturating_mul(u64::from(worker.clone)));
    let mut ranges = Vec::new();
    for (index, path) in worker.paths.iter().enumerate() {
        let there = || place.size_of(path).map(|size| size.saturating_sub(offset));
        let len = match (job.file_bytes, job.size) {
            _ if job.fills_device && job.size.is_none() => Some(WHOLE_DISK),
            // fio draws sizes of a range; here they go from the least to the most, file by file.
            (Some((least, most)), _) => Some(least + (most - least) * index as u64 / (count - 1).max(1)),
            (None, Some(Size::Bytes(bytes))) => Some(bytes / count),
            (None, Some(Size::Percent(percent))) => {
                there().map(|size| (u128::from(size) * u128::from(percent) / 100) as u64)
            }
            (None, None) => there(),
        };
        let largest = job.largest_block();
        match len {
            Some(len) if len >= largest => ranges.push(FileRange { path: path.clone(), offset, len }),
            found => {
                let (job, file) = (worker.title(), path.display().to_string());
                return Err(JobError::NoSize { job, file, found: found.unwrap_or(0), largest });
            }
        }
    }
    Ok(ranges)
}

//! One thread of a run: a clone of a job.

use std::path::{Path, PathBuf};

use diorite_block::TaskId;

use crate::error::JobError;
use crate::language::spec::{Job, JobFile};

/// A clone of a job.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) job: Job,
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) group: u32,
    /// Its number among the job's clones.
    pub(crate) clone: u32,
    /// Its number in the whole file.
    pub(crate) number: u64,
    /// Waits for the workers before it.
    pub(crate) starts_wave: bool,
    /// Start of the range in each file, if it is a share of the file. Set when files are laid out.
    pub(crate) starts: Vec<u64>,
}

impl Worker {
    /// The owner of its I/O.
    pub(crate) fn task(&self) -> TaskId {
        TaskId(self.number + 1)
    }

    /// The job in messages.
    pub(crate) fn title(&self) -> String {
        format!("{}: [{}]", self.job.origin, self.job.name)
    }

    /// Adds job and file to an error of the library.
    pub(super) fn blame<'a>(&'a self, path: &'a Path) -> impl Fn(diorite::Error) -> JobError + 'a {
        |source| JobError::File {
            job: format!("{}: [{}]", self.job.file_origin, self.job.name),
            file: path.display().to_string(),
            source: Box::new(source),
        }
    }

    /// As [`Self::blame`], with the first of its files.
    pub(super) fn blame_first(&self) -> impl Fn(diorite::Error) -> JobError + '_ {
        self.blame(self.paths.first().map_or(Path::new(""), PathBuf::as_path))
    }
}

/// A worker for each clone of each job.
pub(crate) fn workers_of(file: &JobFile) -> Vec<Worker> {
    let mut workers: Vec<Worker> = Vec::new();
    let mut group = 0;
    for (index, job) in file.jobs.iter().enumerate() {
        let apart = index > 0 && (job.stonewall || job.new_group);
        group += u32::from(apart);
        for clone in 0..job.clones {
            let number = workers.len() as u64;
            workers.push(Worker {
                job: job.clone(),
                paths: job.paths(clone),
                group,
                clone,
                number,
                starts_wave: job.stonewall && clone == 0,
                starts: Vec::new(),
            });
        }
    }
    workers
}

//! What can go wrong while jobs run.

/// A job that could not be run, or found wrong data.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// A file of the job could not be used.
    #[error("{job}: {}", crate::error::named(file, source))]
    File {
        /// The job, as `file:line: [name]`.
        job: String,
        /// Its file.
        file: String,
        /// What the library said.
        source: Box<diorite::Error>,
    },
    /// Data was read back that was not written.
    #[error("{job}: {file}: verify failed at byte {offset}: {what}")]
    Verify {
        /// The job, as `file:line: [name]`.
        job: String,
        /// Its file.
        file: String,
        /// Where.
        offset: u64,
        /// What is wrong with the block.
        what: &'static str,
    },
    /// The files of the jobs do not fit together.
    #[error(
        "{job}: {file}: no space: up to here the jobs' files need {needed_bytes} bytes more than they have, and {free_bytes} are \
         free; choose a smaller size, or something larger to run on"
    )]
    NoSpace {
        /// The job with which they become too large, as `file:line: [name]`.
        job: String,
        /// Its file.
        file: String,
        /// What the files would grow by.
        needed_bytes: u64,
        /// What is free.
        free_bytes: u64,
    },
    /// A job has no size, and its file says none.
    #[error(
        "{job}: {file}: no size: there are {found} bytes, and a transfer has up to {largest}; add one such as size=1g"
    )]
    NoSize {
        /// The job, as `file:line: [name]`.
        job: String,
        /// Its file.
        file: String,
        /// What is there.
        found: u64,
        /// The largest transfer of the job.
        largest: u64,
    },
    /// A job may not make its file (`allow_file_create=0`).
    #[error("{job}: {file}: has {found} bytes of the {needed} that the job needs, and allow_file_create=0")]
    NoFile {
        /// The job, as `file:line: [name]`.
        job: String,
        /// Its file.
        file: String,
        /// What is there.
        found: u64,
        /// What the job uses.
        needed: u64,
    },
    /// A job was slower than its `rate_min` or `rate_iops_min`.
    #[error("{job}: {measured} {unit} a second are less than the {target} that it must have")]
    TooSlow {
        /// The job, as `file:line: [name]`.
        job: String,
        /// What it must have.
        target: u64,
        /// What it had.
        measured: u64,
        /// `bytes` or `transfers`.
        unit: &'static str,
    },
    /// The user cancelled while a file was laid out.
    #[error("interrupted while {file} was laid out; no job ran")]
    Interrupted {
        /// The file, which was removed unless it was there before.
        file: String,
    },
    /// A thread could not be started.
    #[error("{job}: cannot start a thread: {source}")]
    Thread {
        /// The job, as `file:line: [name]`.
        job: String,
        /// What the system said.
        source: std::io::Error,
    },
}

impl JobError {
    /// The number that fio's report has for it.
    pub(super) fn errno(&self) -> i32 {
        match self {
            Self::File { source, .. } => source.errno(),
            // EILSEQ
            Self::Verify { .. } => 84,
            // ENOSPC
            Self::NoSpace { .. } => 28,
            // EIO
            Self::TooSlow { .. } => 5,
            // EINTR
            Self::Interrupted { .. } => 4,
            Self::Thread { source, .. } => source.raw_os_error().unwrap_or(11),
            // EINVAL
            Self::NoSize { .. } | Self::NoFile { .. } => 22,
        }
    }
}

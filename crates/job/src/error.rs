//! Errors of running jobs.

/// Why a job could not run, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// A file of the job could not be used.
    #[error("{job}: {}", diorite_bench::named(file, source))]
    File {
        /// The job, as `file:line: [name]`.
        job: String,
        /// Its file.
        file: String,
        /// The error of the library.
        source: Box<diorite::Error>,
    },
    /// A block does not hold what was written.
    #[error("{job}: {file}: verify failed at byte {offset}: {what}")]
    Verify {
        /// The job, as `file:line: [name]`.
        job: String,
        /// Its file.
        file: String,
        /// Offset of the wrong part.
        offset: u64,
        /// The difference.
        what: &'static str,
    },
    /// The files of the jobs do not fit.
    #[error(
        "{job}: {file}: no space: the files up to this job need {needed_bytes} more bytes, and {free_bytes} are free; choose a \
         smaller size, or a larger disk"
    )]
    NoSpace {
        /// The first job that does not fit, as `file:line: [name]`.
        job: String,
        /// Its file.
        file: String,
        /// Bytes that the files would grow by.
        needed_bytes: u64,
        /// Free bytes.
        free_bytes: u64,
    },
    /// Neither the job nor its file has a size.
    #[error(
        "{job}: {file}: no size: after its offset the file has {found} bytes, and a transfer up to {largest}; add one such as size=1g"
    )]
    NoSize {
        /// The job, as `file:line: [name]`.
        job: String,
        /// Its file.
        file: String,
        /// Bytes of the file.
        found: u64,
        /// The largest transfer of the job.
        largest: u64,
    },
    /// A job may not make its file (`allow_file_create=0`).
    #[error(
        "{job}: {file}: the file has {found} bytes, and the job needs {needed}; make the file, or remove allow_file_create=0"
    )]
    NoFile {
        /// The job, as `file:line: [name]`.
        job: String,
        /// Its file.
        file: String,
        /// Bytes of the file.
        found: u64,
        /// Bytes that the job uses.
        needed: u64,
    },
    /// Cancelled while a file was laid out.
    #[error("{file}: interrupted while the file was laid out; no job ran")]
    Interrupted {
        /// The file, which was removed unless it existed before.
        file: String,
    },
    /// A thread could not be started.
    #[error("{job}: cannot start a thread: {source}")]
    Thread {
        /// The job, as `file:line: [name]`.
        job: String,
        /// The error of the system.
        source: std::io::Error,
    },
}

impl JobError {
    /// The error number in fio's report.
    pub(super) fn errno(&self) -> i32 {
        match self {
            Self::File { source, .. } => source.errno(),
            // EILSEQ
            Self::Verify { .. } => 84,
            // ENOSPC
            Self::NoSpace { .. } => 28,
            // EINTR
            Self::Interrupted { .. } => 4,
            Self::Thread { source, .. } => source.raw_os_error().unwrap_or(11),
            // EINVAL
            Self::NoSize { .. } | Self::NoFile { .. } => 22,
        }
    }
}

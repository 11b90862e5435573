//! What can go wrong while jobs run.

/// A job that could not be run, or found wrong data.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// A file of the job could not be used.
    #[error("job {job}: {file}: {source}")]
    File {
        /// The job's name.
        job: String,
        /// Its file.
        file: String,
        /// What the library said.
        source: Box<diorite::Error>,
    },
    /// Data was read back that nobody wrote.
    #[error("job {job}: {file}: verify failed at byte {offset}: {what}")]
    Verify {
        /// The job's name.
        job: String,
        /// Its file.
        file: String,
        /// Where.
        offset: u64,
        /// What is wrong with the block.
        what: &'static str,
    },
    /// A thread could not be started.
    #[error("job {job}: cannot start a thread: {source}")]
    Thread {
        /// The job's name.
        job: String,
        /// What the system said.
        source: std::io::Error,
    },
}

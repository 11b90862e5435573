//! Errors.

use std::io;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a pool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A read or a sync of a file failed. The error of a write-back is [`Error::WriteBack`].
    #[error("{file}: {source}")]
    File {
        /// The file's name in the pool.
        file: String,
        /// What happened.
        source: diorite::Error,
    },
    /// Pages could not be written back, here or in another process. They are still dirty in the pool.
    #[error("{file}: write-back of pages failed {errors} times, first of page {page}: {}", io::Error::from_raw_os_error(*errno))]
    WriteBack {
        /// The file's name in the pool.
        file: String,
        /// How many writes failed since the last report.
        errors: u64,
        /// The page that could not be written first.
        page: u64,
        /// Why it could not.
        errno: i32,
    },
    /// The page is beyond the end of a file or device that cannot grow so far.
    #[error("{file}: there is no page {page}: the file can have {pages} pages")]
    BeyondEnd {
        /// The file's name in the pool.
        file: String,
        /// The page, counted from 0.
        page: u64,
        /// Whole pages that the file can have.
        pages: u64,
    },
    /// Pages cannot be written before the log is durable up to here.
    #[error(
        "pages wait for the log up to {lsn}: make it durable, say so with `set_durable_lsn`, and flush again"
    )]
    LogNotDurable {
        /// The greatest log sequence number of the pages that wait: once the log is durable up to it, all of them can be written.
        lsn: u64,
    },
    /// The system refused memory, a thread or what a descriptor was asked for.
    #[error("{what}: {source}")]
    Os {
        /// The operation.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The options contradict each other, or name something that cannot be.
    #[error("{0}")]
    InvalidArgument(&'static str),
    /// No frame can be evicted: each is held or pinned, cannot be written back, or waits for the log
    /// ([`BufferPool::set_durable_lsn`](crate::BufferPool::set_durable_lsn)).
    #[error("no page can be evicted: of {frames} frames {held} are held or pinned, {dirty} are dirty")]
    NoFrames {
        /// Frames of the pool.
        frames: usize,
        /// Held or pinned.
        held: usize,
        /// Dirty.
        dirty: usize,
    },
    /// A page could not be written: a guard has had it exclusively all the time that a flush waits, ten seconds, or was never dropped. The others
    /// are written.
    #[error(
        "{file}: page {page} is dirty and was not written: a guard has it exclusively; drop the guard, and flush again"
    )]
    PageHeld {
        /// The file's name in the pool.
        file: String,
        /// The page, counted from 0.
        page: u64,
    },
    /// This is a forked child of the process that has the pool.
    #[error("a forked child does not use its parent's pool: it attaches by itself")]
    Forked,
    /// A table of the pool is full: 16 processes, 64 files.
    #[error("the pool is full: {0}")]
    Full(&'static str),
    /// A page of a file that this process has not opened in the pool.
    #[error("file {0} of the pool is not open in this process")]
    NotOpen(u16),
}

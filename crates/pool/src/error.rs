//! Errors of a pool.

use std::io;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a pool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A read or a sync of a file failed. A failed writeback is [`Error::WriteBack`].
    #[error("{file}: {source}")]
    File {
        /// The file's name in the pool.
        file: String,
        /// The error.
        source: diorite::Error,
    },
    /// Writeback of pages failed, in this process or another. The pages stay dirty in the pool.
    #[error("{file}: writeback of pages failed {errors} times, first of page {page}: {}", io::Error::from_raw_os_error(*errno))]
    WriteBack {
        /// The file's name in the pool.
        file: String,
        /// The number of failed writes since the last report.
        errors: u64,
        /// The first page that failed.
        page: u64,
        /// Its error.
        errno: i32,
    },
    /// The page is beyond the largest size of the file or device.
    #[error("{file}: there is no page {page}: the file can have {pages} pages")]
    BeyondEnd {
        /// The file's name in the pool.
        file: String,
        /// The page, counted from 0.
        page: u64,
        /// Most whole pages of the file.
        pages: u64,
    },
    /// Pages wait for the log.
    #[error("pages need the log up to {lsn}; make it durable, call `set_durable_lsn`, and flush again")]
    LogNotDurable {
        /// The largest log sequence number of the waiting pages. Once the log is durable up to it, all of them can be written.
        lsn: u64,
    },
    /// The system refused memory, a thread, or an operation on a descriptor.
    #[error("{what}: {source}")]
    Os {
        /// The operation.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// An option or argument is invalid.
    #[error("{0}")]
    InvalidArgument(&'static str),
    /// No frame can be evicted: each is held or pinned, fails to be written back, or waits for the log
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
    /// A page was not written because a guard held it exclusively for the timeout of a flush, ten seconds, or was leaked. The other pages are
    /// written.
    #[error(
        "{file}: page {page} is dirty and was not written: a guard holds it exclusively; drop the guard, and flush again"
    )]
    PageHeld {
        /// The file's name in the pool.
        file: String,
        /// The page, counted from 0.
        page: u64,
    },
    /// This process is a forked child of the process that attached.
    #[error("a forked child cannot use its parent's pool; call `attach` in the child")]
    Forked,
    /// A table of the pool is full: 16 processes, 64 files.
    #[error("the pool is full: {0}")]
    Full(&'static str),
    /// A page of a file that this process has not opened in the pool.
    #[error("file {0} of the pool is not open in this process")]
    NotOpen(u16),
}

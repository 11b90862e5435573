//! Counters of all processes of a run, in shared memory.

use core::sync::atomic::AtomicU64;

/// Bytes by way, unless a field says otherwise.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Counters {
    /// Processes that loaded the library.
    pub processes: AtomicU64,
    /// Read with `RWF_DONTCACHE`.
    pub read_dontcache: AtomicU64,
    /// Read by direct I/O.
    pub read_direct: AtomicU64,
    /// Read through the page cache; pages that were not cached before are dropped.
    pub read_dropped: AtomicU64,
    /// Written with `RWF_DONTCACHE`.
    pub written_dontcache: AtomicU64,
    /// Written by direct I/O.
    pub written_direct: AtomicU64,
    /// Written through the page cache; pages that were not cached before are dropped.
    pub written_dropped: AtomicU64,
    /// Read and written in files that the patterns leave alone.
    pub kept: AtomicU64,
    /// Read by other calls than those of the library: stdio on cached files or on descriptors, the program's own system calls. Pipes
    /// and terminals are included.
    pub other_read: AtomicU64,
    /// As `other_read`, for writes.
    pub other_written: AtomicU64,
    /// Mapped with `mmap`.
    pub mapped: AtomicU64,
    /// Moved by `splice`.
    pub spliced: AtomicU64,
    /// Number of `io_uring` rings and AIO contexts. Their bytes are unknown.
    pub rings: AtomicU64,
    /// Size of the ranges that stay in the page cache, because their file was closed in an unknown way or the range was too large.
    pub left: AtomicU64,
}

impl Counters {
    /// Counters that are all 0.
    pub const fn new() -> Self {
        Self {
            processes: AtomicU64::new(0),
            read_dontcache: AtomicU64::new(0),
            read_direct: AtomicU64::new(0),
            read_dropped: AtomicU64::new(0),
            written_dontcache: AtomicU64::new(0),
            written_direct: AtomicU64::new(0),
            written_dropped: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            other_read: AtomicU64::new(0),
            other_written: AtomicU64::new(0),
            mapped: AtomicU64::new(0),
            spliced: AtomicU64::new(0),
            rings: AtomicU64::new(0),
            left: AtomicU64::new(0),
        }
    }
}

//! Counters of a pool.

/// Counts since the pool was made, of all its processes, except `fetches`, which is of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Pages fetched in this process: shared, exclusively, or by a pin.
    pub fetches: u64,
    /// Pages read from their file on demand, or made.
    pub misses: u64,
    /// Pages that were read ahead.
    pub prefetched: u64,
    /// Pages fetched again soon after their eviction.
    pub ghost_hits: u64,
    /// Pages evicted.
    pub evictions: u64,
    /// Pages written back.
    pub written_pages: u64,
    /// Writes of these pages, each of one or more pages.
    pub writes: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Approximate number of dirty pages at this moment.
    pub dirty_pages: u64,
    /// Processes attached.
    pub processes: usize,
    /// Processes that died while they were attached.
    pub deaths: u64,
    /// Pages that a dead process was changing, restored to their former content.
    pub restored_pages: u64,
    /// Pages that a dead process was changing or loading, discarded: the next fetch reads them again.
    pub discarded_pages: u64,
    /// Whether the memory lies on huge pages, as far as this process knows.
    pub huge_pages: bool,
}

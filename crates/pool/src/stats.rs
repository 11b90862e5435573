//! Counters of a pool.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counts since the pool was made, over all of its processes; but for `fetches`, which are of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Pages fetched in this process: shared, exclusively, or by a pin.
    pub fetches: u64,
    /// Pages that were read from their file on demand, or made.
    pub misses: u64,
    /// Pages that were read ahead.
    pub prefetched: u64,
    /// Pages that came back soon after their eviction.
    pub ghost_hits: u64,
    /// Pages evicted.
    pub evictions: u64,
    /// Pages written back.
    pub written_pages: u64,
    /// Transfers that wrote them.
    pub writes: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Dirty pages at this moment, about.
    pub dirty_pages: u64,
    /// Processes attached.
    pub processes: usize,
    /// Processes that died while they were attached.
    pub deaths: u64,
    /// Pages that such a process was changing, and that have their former content again.
    pub restored_pages: u64,
    /// Pages that such a process was changing or loading, and that are read again.
    pub discarded_pages: u64,
    /// Whether the memory lies on huge pages, as far as this process asked for it.
    pub huge_pages: bool,
}

const SHARDS: usize = 16;

/// A counter that threads do not fight for.
#[derive(Debug, Default)]
pub(crate) struct Sharded([Shard; SHARDS]);

#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard(AtomicU64);

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

impl Sharded {
    #[inline]
    pub(crate) fn increment(&self) {
        let shard = SHARD.with(|shard| {
            if shard.get() == usize::MAX {
                static NEXT: AtomicUsize = AtomicUsize::new(0);
                shard.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
            }
            shard.get()
        });
        self.0[shard % SHARDS].0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(|shard| shard.0.load(Ordering::Relaxed)).sum()
    }
}

//! The layout of the shared memory.
//!
//! ```text
//! 0        header, 4096 bytes
//! 4096     processes, 64 bytes each
//! ...      files, 128 bytes each
//! ...      heads of hash chains, 8 bytes each
//! ...      ghosts: recently evicted pages, 8 bytes each
//! ...      frames, 128 bytes each
//! (2 MiB)  pages
//! ```

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

use super::frame::Frame;

/// Most processes of a pool at a time.
pub(crate) const PROCESSES: usize = 16;
/// Most files of a pool.
pub(crate) const FILES: usize = 64;
/// Words of a file's name.
pub(crate) const NAME_WORDS: usize = 12;

const MAGIC: u64 = u64::from_le_bytes(*b"dioPool3");
/// Fewest frames of a pool.
pub(crate) const FRAMES_MIN: usize = 8;
pub(crate) const FRAMES_MAX: usize = (1 << 30) - 1;
const PAGES_AT: usize = 2 << 20;

/// The first bytes of the memory.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Header {
    /// Written last, so that nothing attaches to an incomplete pool.
    pub(crate) magic: AtomicU64,
    pub(crate) page_bytes: AtomicU64,
    pub(crate) frames: AtomicU64,
    /// 1 if other processes may attach.
    pub(crate) shared: AtomicU32,
    /// The namespace in which the processes of a shared pool have their numbers.
    pub(crate) pid_namespace: AtomicU64,
    /// The lock of the tables of processes and files, and of recovery.
    pub(crate) admin: AtomicU64,
    /// First frame that never had a page.
    pub(crate) never_used: AtomicU32,
    pub(crate) probation_hand: AtomicU32,
    pub(crate) protected_hand: AtomicU32,
    pub(crate) write_back_hand: AtomicU32,
    /// Counts misses: the clock of the replacement.
    pub(crate) tick: AtomicU32,
    /// Approximate number of frames on probation.
    pub(crate) probation: AtomicI64,
    /// Approximate number of dirty frames.
    pub(crate) dirty: AtomicI64,
    /// Pages with a larger log sequence number are not written back yet.
    pub(crate) durable_lsn: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) evictions: AtomicU64,
    pub(crate) written_pages: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) write_errors: AtomicU64,
    pub(crate) prefetched: AtomicU64,
    pub(crate) ghost_hits: AtomicU64,
    pub(crate) deaths: AtomicU64,
    pub(crate) restored_pages: AtomicU64,
    pub(crate) discarded_pages: AtomicU64,
}

/// A process that is attached.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct ProcessEntry {
    /// Its number and start time ([`crate::liveness`]); 0 for none. One word, so that it changes at one moment.
    pub(crate) identity: AtomicU64,
}

/// A file whose pages the pool keeps.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct FileEntry {
    /// The length of its name; 0 for none. Written last.
    pub(crate) name_bytes: AtomicU32,
    /// The first error of writeback since the last report in any process: the number of its page, and the errno in the low 16 bits.
    pub(crate) first_error: AtomicU64,
    /// Number of errors.
    pub(crate) errors: AtomicU64,
    /// Number of errors at the last report.
    pub(crate) reported: AtomicU64,
    pub(crate) name: [AtomicU64; NAME_WORDS],
}

/// Offsets and numbers of entries of the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) page_bytes: usize,
    pub(crate) frames: usize,
    pub(crate) buckets: usize,
    pub(crate) processes_at: usize,
    pub(crate) files_at: usize,
    pub(crate) buckets_at: usize,
    pub(crate) ghosts_at: usize,
    pub(crate) frames_at: usize,
    pub(crate) pages_at: usize,
    pub(crate) total: usize,
}

impl Layout {
    /// Whether a pool can have pages of this size.
    pub(crate) fn can_have_pages_of(page_bytes: usize) -> bool {
        page_bytes.is_power_of_two() && (4096..=65536).contains(&page_bytes)
    }

    /// None for an invalid size.
    pub(crate) fn new(page_bytes: usize, frames: usize) -> Option<Self> {
        if !Self::can_have_pages_of(page_bytes) || !(FRAMES_MIN..=FRAMES_MAX).contains(&frames) {
            return None;
        }
        let buckets = (2 * frames).next_power_of_two();
        let processes_at = 4096;
        let files_at = processes_at + PROCESSES * size_of::<ProcessEntry>();
        let buckets_at = files_at + FILES * size_of::<FileEntry>();
        let ghosts_at = buckets_at + buckets * 8;
        let frames_at = (ghosts_at + frames * 8).next_multiple_of(128);
        let pages_at = (frames_at + frames * size_of::<Frame>()).next_multiple_of(PAGES_AT);
        let total = pages_at.checked_add(frames.checked_mul(page_bytes)?)?.next_multiple_of(PAGES_AT);
        Some(Self {
            page_bytes,
            frames,
            buckets,
            processes_at,
            files_at,
            buckets_at,
            ghosts_at,
            frames_at,
            pages_at,
            total,
        })
    }

    /// Frames on probation while there are enough others.
    pub(crate) fn probation_max(&self) -> i64 {
        (self.frames / 10).max(1) as i64
    }

    pub(crate) fn magic() -> u64 {
        MAGIC
    }
}

const _: () = {
    assert!(size_of::<Header>() <= 4096);
    assert!(size_of::<ProcessEntry>() == 64);
    assert!(size_of::<FileEntry>() == 128);
    assert!(size_of::<Frame>() == 128);
};

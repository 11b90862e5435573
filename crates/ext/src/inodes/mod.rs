//! The inodes of a volume: found, cached, stored.
//!
//! - `cache`: inodes in memory; `store`: between an inode and its bytes in the table
//! - `allocate`: new inodes; `orphan`: those without a name, or being cut, as recorded on disk

mod allocate;
mod cache;
mod orphan;
mod store;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use diorite_block::sync::{Mutex, Rank};

use crate::base::Core;
use crate::dentry_cache::DentryCache;
use crate::inode::Inode;
use crate::map::Mappings;

use cache::InodeCache;
pub(crate) use orphan::FoundOrphan;
use orphan::Orphans;

/// Inodes whose access time is only in memory: see [`crate::Volume::note_access_lazily`].
#[derive(Debug, Default)]
pub(crate) struct LazyTimes {
    pub(crate) inodes: Vec<Arc<Inode>>,
    /// When the first of them began to wait, in seconds.
    pub(crate) since: i64,
}

/// The inodes of a volume: loaded, cached, stored; those without a name are recorded as orphans.
pub struct InodeStore {
    pub(crate) core: Arc<Core>,
    pub(crate) maps: Arc<Mappings>,
    /// Inodes in memory.
    pub(crate) cache: InodeCache,
    /// Inodes whose access time is not written yet.
    pub(crate) lazy_times: Mutex<LazyTimes>,
    /// Inodes without a name, or being cut, as recorded on disk.
    orphans: Mutex<Orphans>,
    /// The generation of the next new inode.
    generations: AtomicU32,
}

diorite_block::short_debug!(InodeStore);

impl InodeStore {
    /// Keeps about `capacity` inodes without references.
    pub(crate) fn new(maps: Arc<Mappings>, capacity: usize, dentries: Arc<DentryCache>) -> Self {
        let core = maps.core.clone();
        let now = core.now();
        let generation = (now.seconds as u32).wrapping_mul(0x85eb_ca6b) ^ now.nanoseconds;
        Self {
            core,
            maps,
            cache: InodeCache::new(capacity, dentries),
            lazy_times: Mutex::ranked(Rank::LazyTimes, LazyTimes::default()),
            orphans: Mutex::ranked(Rank::Orphans, Orphans::default()),
            generations: AtomicU32::new(generation),
        }
    }

    /// Whether no orphan is recorded.
    pub(crate) fn has_no_orphans(&self) -> bool {
        let slots = crate::layout::orphan::entries_per_block(self.core.block_size().bytes() as usize);
        self.orphans.lock().is_empty(slots)
    }
}

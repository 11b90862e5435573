//! The inodes of a volume: found, cached, stored.
//!
//! - `cache`: inodes in memory; `store`: between an inode and its bytes in the table; `table_readahead`: how much of the table is read
//! - `allocate`: new inodes; `orphan`: those without a name, or being cut, as recorded on disk
//! - `lazy_times`: access times that wait

mod allocate;
mod cache;
mod lazy_times;
mod orphan;
mod store;
mod table_readahead;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use diorite_block::sync::{Mutex, Rank};

use crate::base::Core;
use crate::dentry_cache::DentryCache;
use crate::map::Mappings;

use cache::InodeCache;
use lazy_times::LazyTimes;
pub(crate) use orphan::FoundOrphan;
use orphan::Orphans;
use table_readahead::TableReadahead;

/// The inodes of a volume: loaded, cached, stored; those without a name are recorded as orphans.
pub struct InodeStore {
    pub(crate) core: Arc<Core>,
    pub(crate) maps: Arc<Mappings>,
    /// Inodes in memory.
    pub(crate) cache: InodeCache,
    /// Names of inodes in memory.
    dentries: Arc<DentryCache>,
    /// Inodes whose access time is not written yet.
    pub(crate) lazy_times: LazyTimes,
    /// How much of the inode table is read at once.
    table_readahead: TableReadahead,
    /// Inodes without a name, or being cut, as recorded on disk.
    orphans: Mutex<Orphans>,
    /// The generation of the next new inode.
    generations: AtomicU32,
}

diorite_block::short_debug!(InodeStore);

impl InodeStore {
    /// Keeps about `capacity` inodes without references.
    pub(crate) fn new(maps: Arc<Mappings>, dentries: Arc<DentryCache>, capacity: usize) -> Self {
        let core = maps.core.clone();
        let now = core.now();
        let generation = (now.seconds as u32).wrapping_mul(0x85eb_ca6b) ^ now.nanoseconds;
        Self {
            core,
            maps,
            cache: InodeCache::new(capacity),
            dentries,
            lazy_times: LazyTimes::default(),
            table_readahead: TableReadahead::default(),
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

//! Open files by handle.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use diorite_block::sync::{Rank, RwLock};

const SHARDS: usize = 32;

#[derive(Debug)]
pub(super) struct Table<T> {
    next: AtomicU64,
    shards: [RwLock<HashMap<u64, Arc<T>>>; SHARDS],
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            next: AtomicU64::new(1),
            shards: std::array::from_fn(|_| RwLock::ranked(Rank::OpenHandles, HashMap::new())),
        }
    }
}

impl<T> Table<T> {
    /// Any that is so. It looks at all of them.
    pub(super) fn find(&self, is_it: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        self.shards.iter().find_map(|shard| shard.read().values().find(|value| is_it(value)).cloned())
    }

    fn shard(&self, handle: u64) -> &RwLock<HashMap<u64, Arc<T>>> {
        &self.shards[handle as usize % SHARDS]
    }

    pub(super) fn insert(&self, value: T) -> u64 {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        let mut shard = self.shard(handle).write();
        shard.insert(handle, Arc::new(value));
        handle
    }

    pub(super) fn get(&self, handle: u64) -> Option<Arc<T>> {
        self.shard(handle).read().get(&handle).cloned()
    }

    pub(super) fn remove(&self, handle: u64) -> Option<Arc<T>> {
        self.shard(handle).write().remove(&handle)
    }

    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let values = std::mem::take(&mut *shard.write());
            drop(values);
        }
    }
}

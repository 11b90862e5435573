//! Open files by handle. Their number is limited: a remote client or a guest could otherwise exhaust the host's memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use diorite_block::sync::{Rank, RwLock};

const SHARDS: usize = 32;

#[derive(Debug)]
pub(super) struct Table<T> {
    next: AtomicU64,
    most: usize,
    count: AtomicUsize,
    shards: [RwLock<HashMap<u64, Arc<T>>>; SHARDS],
}

impl<T> Table<T> {
    /// For `most` values.
    pub(super) fn new(most: usize) -> Self {
        Self {
            next: AtomicU64::new(1),
            most,
            count: AtomicUsize::new(0),
            shards: std::array::from_fn(|_| RwLock::ranked(Rank::OpenHandles, HashMap::new())),
        }
    }

    /// Any value that fulfils the condition. It looks at all.
    pub(super) fn find(&self, is_it: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        self.shards.iter().find_map(|shard| shard.read().values().find(|value| is_it(value)).cloned())
    }

    fn shard(&self, handle: u64) -> &RwLock<HashMap<u64, Arc<T>>> {
        &self.shards[handle as usize % SHARDS]
    }

    /// `None`: there are too many.
    pub(super) fn insert(&self, value: T) -> Option<u64> {
        if self.count.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        let mut shard = self.shard(handle).write();
        shard.insert(handle, Arc::new(value));
        Some(handle)
    }

    pub(super) fn get(&self, handle: u64) -> Option<Arc<T>> {
        self.shard(handle).read().get(&handle).cloned()
    }

    pub(super) fn remove(&self, handle: u64) -> Option<Arc<T>> {
        let removed = self.shard(handle).write().remove(&handle);
        if removed.is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        removed
    }

    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let values = std::mem::take(&mut *shard.write());
            self.count.fetch_sub(values.len(), Ordering::Relaxed);
            drop(values);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_so_many_and_no_more() {
        let table = Table::new(3);
        let handles: Vec<_> = (0..3).map(|value| table.insert(value).expect("there is space")).collect();
        assert_eq!(table.insert(3), None);
        assert_eq!(table.remove(handles[1]).as_deref(), Some(&1));
        assert_eq!(table.remove(handles[1]), None);
        assert!(table.insert(4).is_some() && table.insert(5).is_none());
        table.clear();
        assert!((0..3).all(|value| table.insert(value).is_some()) && table.insert(3).is_none());
    }
}

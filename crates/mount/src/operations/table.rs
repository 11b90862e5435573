//! Open files by handle. Their number is limited: a remote client or a guest could otherwise exhaust the host's memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use diorite_block::sync::{Rank, RwLock};

#[derive(Debug)]
pub(super) struct Table<T> {
    next: AtomicU64,
    most: usize,
    values: RwLock<HashMap<u64, Arc<T>>>,
}

impl<T> Table<T> {
    /// For `most` values.
    pub(super) fn new(most: usize) -> Self {
        Self { next: AtomicU64::new(1), most, values: RwLock::ranked(Rank::OpenHandles, HashMap::new()) }
    }

    /// Any value that fulfils the condition. It looks at all.
    pub(super) fn find(&self, is_it: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        self.values.read().values().find(|value| is_it(value)).cloned()
    }

    /// `None`: there are too many.
    pub(super) fn insert(&self, value: T) -> Option<u64> {
        let mut values = self.values.write();
        if values.len() >= self.most {
            return None;
        }
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        values.insert(handle, Arc::new(value));
        Some(handle)
    }

    pub(super) fn get(&self, handle: u64) -> Option<Arc<T>> {
        self.values.read().get(&handle).cloned()
    }

    pub(super) fn remove(&self, handle: u64) -> Option<Arc<T>> {
        self.values.write().remove(&handle)
    }

    pub(super) fn clear(&self) {
        let values = std::mem::take(&mut *self.values.write());
        drop(values);
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

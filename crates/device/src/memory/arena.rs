//! The list of arenas: memory that rings may register with the kernel.
//!
//! Where it sits: the heap lists its chunks here while they exist. Every ring keeps a copy of the list, and registers an arena at the first
//! transfer inside it.
//!
//! Invariants:
//! 1. The identity of an arena is never reused, so new memory at the same address is never mistaken for a freed arena.
//! 2. [`generation`] changes with every change of the list: a copy of the present generation is the present list.
//!
//! Locking: one leaf lock around the list, held for no longer than a change or a copy.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::registered;

/// Identity of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ArenaId(u64);

/// Memory that may be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arena {
    pub(crate) id: ArenaId,
    pub(crate) address: usize,
    pub(crate) len: usize,
}

impl Arena {
    /// Whether the whole range lies inside.
    pub(crate) fn contains(&self, address: usize, len: usize) -> bool {
        address.checked_sub(self.address).is_some_and(|at| at <= self.len && len <= self.len - at)
    }
}

static GENERATION: AtomicU64 = AtomicU64::new(1);
static ARENAS: Mutex<Vec<Arena>> = Mutex::new(Vec::new());

/// An entry of the list, until it is dropped. It must be dropped before the memory is freed.
#[derive(Debug)]
pub(crate) struct ArenaEntry(ArenaId);

impl ArenaEntry {
    /// Add memory to the list.
    pub(crate) fn new(address: usize, len: usize) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = ArenaId(NEXT.fetch_add(1, Ordering::Relaxed));
        change(|arenas| {
            let at = arenas.partition_point(|arena| arena.address < address);
            arenas.insert(at, Arena { id, address, len });
        });
        Self(id)
    }
}

impl Drop for ArenaEntry {
    fn drop(&mut self) {
        change(|arenas| arenas.retain(|arena| arena.id != self.0));
        registered::arena_freed(self.0);
    }
}

fn change(edit: impl FnOnce(&mut Vec<Arena>)) {
    let mut arenas = ARENAS.lock().unwrap_or_else(PoisonError::into_inner);
    edit(&mut arenas);
    GENERATION.fetch_add(1, Ordering::SeqCst);
}

/// The list's present generation.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::SeqCst)
}

/// The list, ordered by address, and its generation.
pub(crate) fn snapshot() -> (u64, Vec<Arena>) {
    let arenas = ARENAS.lock().unwrap_or_else(PoisonError::into_inner);
    (generation(), arenas.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_inside_only_with_both_ends() {
        let arena = Arena { id: ArenaId(0), address: 4096, len: 8192 };
        assert!(arena.contains(4096, 8192));
        assert!(arena.contains(12288, 0));
        assert!(!arena.contains(4095, 1));
        assert!(!arena.contains(4096, 8193));
        assert!(!arena.contains(12289, 0));
        assert!(!arena.contains(8192, usize::MAX));
    }

    /// Invariants 1 and 2.
    #[test]
    fn memory_at_an_old_address_is_a_new_arena() {
        let first = ArenaEntry::new(1 << 40, 4096);
        let (before, _) = snapshot();
        let first_id = first.0;
        drop(first);
        let second = ArenaEntry::new(1 << 40, 4096);
        let (after, arenas) = snapshot();
        assert_ne!(before, after);
        assert!(arenas.iter().all(|arena| arena.id != first_id));
        assert!(arenas.iter().any(|arena| arena.id == second.0));
    }
}

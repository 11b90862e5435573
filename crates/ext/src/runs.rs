//! The mappings of a file's mapping that were looked up lately.
//!
//! Invariants:
//! 1. Mappings are sorted by file block and do not overlap.
//! 2. Every mapping agrees with the mapping on disk: a change of the mapping calls [`Runs::forget`] first,
//!    holding the inode's state for writing, and mappings are inserted by holders of the state only.
//! 3. The version is another one before a change can be seen. Threads that look often keep a copy, and compare the version alone: a lock, even a
//!    shared one, would go from processor to processor with each lookup, which costs a transfer to memory a tenth of its time.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use diorite_block::sync::{Rank, RwLock};

use crate::{FileBlock, FsBlock, Mapping, MappingKind};

/// Mappings kept for one inode.
const CAPACITY: usize = if cfg!(test) { 6 } else { 1024 };
/// Of those, kept while the file is not open.
const CAPACITY_UNUSED: usize = 8;
/// Copies that a thread keeps, of different inodes.
const COPIES: usize = 4;
/// Lookups of a thread that found the same version before it takes a copy.
const LOOKUPS_BEFORE_COPY: u32 = 16;

#[derive(Clone, Copy, Debug)]
struct Run {
    mapping: Mapping,
    /// Whether something else is known to follow.
    complete: bool,
}

impl Run {
    /// Whether `next` begins in the file where this ends, and continues it.
    fn is_continued_by(&self, next: &Self) -> bool {
        self.mapping.end() == next.mapping.start.0 && self.mapping.goes_on_with(&next.mapping)
    }
}

/// The mappings of one inode, for all threads.
#[derive(Debug)]
pub(crate) struct Runs {
    /// Of the inode; no other in memory has it, or had it.
    identity: u64,
    version: AtomicU64,
    cache: RwLock<RunCache>,
}

/// A thread's copy of an inode's mappings.
#[derive(Default)]
struct Seen {
    /// Identity and version.
    of: (u64, u64),
    lookups: u32,
    runs: Option<Arc<[Run]>>,
}

thread_local! {
    static SEEN: RefCell<[Seen; COPIES]> = RefCell::default();
}

impl Runs {
    /// None are known; the `identity` is the inode's own.
    pub(crate) fn new(identity: u64) -> Self {
        let cache = RwLock::ranked(Rank::InodeRuns, RunCache::default());
        Self { identity, version: AtomicU64::new(0), cache }
    }

    /// The mapping at `at`, if it is known as far as `max_blocks`.
    pub(crate) fn lookup(&self, at: FileBlock, max_blocks: u64) -> Option<Mapping> {
        let copy = |seen: &RefCell<[Seen; COPIES]>| {
            let seen = &mut seen.try_borrow_mut().ok()?[self.identity as usize % COPIES];
            self.refresh(seen).map(|runs| lookup(runs, at, max_blocks))
        };
        let found = SEEN.try_with(copy).ok().flatten();
        found.unwrap_or_else(|| lookup(&self.cache.read().runs, at, max_blocks))
    }

    /// The thread's copy, if it has this version. It is made for threads with frequent look-ups.
    fn refresh<'a>(&self, seen: &'a mut Seen) -> Option<&'a [Run]> {
        let of = (self.identity, self.version.load(Ordering::Acquire));
        if seen.of != of {
            *seen = Seen { of, ..Seen::default() };
        }
        if seen.runs.is_none() {
            seen.lookups += 1;
            if seen.lookups < LOOKUPS_BEFORE_COPY {
                return None;
            }
            let cache = self.cache.read();
            // Under the lock, nothing changes.
            seen.of.1 = self.version.load(Ordering::Acquire);
            seen.runs = Some(Arc::clone(cache.copy.get_or_init(|| cache.runs.as_slice().into())));
        }
        seen.runs.as_deref()
    }

    fn change(&self, change: impl FnOnce(&mut RunCache)) {
        let mut cache = self.cache.write();
        self.version.fetch_add(1, Ordering::AcqRel);
        cache.copy.take();
        change(&mut cache);
    }

    /// As [`RunCache::insert`].
    pub(crate) fn insert(&self, mapping: Mapping, complete: bool) {
        self.change(|cache| cache.insert(mapping, complete));
    }

    /// The mapping of `[start, end)` is about to change.
    pub(crate) fn forget(&self, start: u64, end: u64) {
        self.change(|cache| cache.forget(start, end));
    }

    /// The file is no longer open: keep a little.
    pub(crate) fn shrink(&self) {
        self.change(RunCache::shrink);
    }
}

/// The mapping at `at`, if it is known as far as `max_blocks`.
fn lookup(runs: &[Run], at: FileBlock, max_blocks: u64) -> Option<Mapping> {
    let index = runs.partition_point(|run| run.mapping.start <= at);
    let run = runs.get(index.checked_sub(1)?)?;
    let end = run.mapping.end();
    let known = at.0 < end && (run.complete || end - at.0 >= max_blocks);
    known.then(|| run.mapping.part(at, max_blocks))
}

/// The mappings of one inode.
#[derive(Debug, Default)]
struct RunCache {
    runs: Vec<Run>,
    /// Of `runs`, for threads.
    copy: OnceLock<Arc<[Run]>>,
}

impl Mapping {
    /// First file block after it.
    pub(crate) fn end(&self) -> u64 {
        self.start.0.saturating_add(self.blocks)
    }

    /// The part of it from `at` on, at most `max_blocks` long; `at` is inside.
    pub(crate) fn part(&self, at: FileBlock, max_blocks: u64) -> Self {
        let skip = at.0 - self.start.0;
        let kind = match self.kind {
            MappingKind::Mapped(block) => MappingKind::Mapped(FsBlock(block.0 + skip)),
            MappingKind::Unwritten(block) => MappingKind::Unwritten(FsBlock(block.0 + skip)),
            other => other,
        };
        Self { start: at, blocks: (self.blocks - skip).min(max_blocks), kind }
    }

    /// Whether `next`, which begins at the end of this range in the file, continues the same mapping.
    pub(crate) fn goes_on_with(&self, next: &Self) -> bool {
        match (self.kind, next.kind) {
            (MappingKind::Hole, MappingKind::Hole) => true,
            (MappingKind::Mapped(a), MappingKind::Mapped(b))
            | (MappingKind::Unwritten(a), MappingKind::Unwritten(b)) => {
                a.0.checked_add(self.blocks) == Some(b.0)
            }
            _ => false,
        }
    }
}

impl RunCache {
    /// Keep a mapping that was just looked up. `complete`: something else follows it. Neighbours that it joins become one
    /// mapping with it, so that a contiguous file is one, whatever blocks of pointers lie between.
    fn insert(&mut self, mapping: Mapping, complete: bool) {
        let mut new = Run { mapping, complete };
        let mut first = self.runs.partition_point(|run| run.mapping.end() <= mapping.start.0);
        let mut after = self.runs.partition_point(|run| run.mapping.start.0 < mapping.end());
        if first > 0 && self.runs[first - 1].is_continued_by(&new) {
            first -= 1;
        }
        if self.runs.get(after).is_some_and(|next| new.is_continued_by(next)) {
            after += 1;
        }
        // Overlapping mappings agree (invariant 2), so the union is one mapping.
        for old in self.runs.drain(first..after) {
            if old.mapping.start < new.mapping.start {
                let end = new.mapping.end();
                new.mapping = Mapping { blocks: end - old.mapping.start.0, ..old.mapping };
            }
            if old.mapping.end() > new.mapping.end() {
                new.mapping.blocks = old.mapping.end() - new.mapping.start.0;
                new.complete = old.complete;
            }
        }
        if self.runs.len() < CAPACITY {
            self.runs.insert(first, new);
        } else {
            // A full list lets a neighbour go: nothing has to move.
            let last = self.runs.len() - 1;
            self.runs[first.min(last)] = new;
        }
    }

    /// The file is no longer open: keep a little.
    fn shrink(&mut self) {
        if self.runs.len() > CAPACITY_UNUSED {
            self.runs.truncate(CAPACITY_UNUSED);
            self.runs.shrink_to_fit();
        }
    }

    /// The mapping of `[start, end)` is about to change.
    fn forget(&mut self, start: u64, end: u64) {
        if self.runs.is_empty() {
            return;
        }
        let first = self.runs.partition_point(|run| run.mapping.end() < start);
        let after = self.runs.partition_point(|run| run.mapping.start.0 < end);
        let mut kept = Vec::with_capacity(2);
        for run in self.runs.get(first..after).unwrap_or_default() {
            let mapping = run.mapping;
            if mapping.start.0 < start {
                kept.push(Run {
                    mapping: Mapping { blocks: start - mapping.start.0, ..mapping },
                    complete: false,
                });
            }
            if mapping.end() > end {
                let part = mapping.part(FileBlock(end.max(mapping.start.0)), u64::MAX);
                kept.push(Run { mapping: part, complete: run.complete });
            }
        }
        if first < after {
            self.runs.splice(first..after, kept);
        }
        if self.runs.len() > 2 * CAPACITY {
            self.runs.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A file whose block `n` is a hole or at device block `f(n)`: mappings of random length. Holes that touch are one.
    fn mapping_at(lens: &[(u8, bool)], at: u64) -> Option<Mapping> {
        let (mut start, mut device) = (0u64, 1000u64);
        for mapping in lens.chunk_by(|(_, hole), (_, next)| *hole && *next) {
            let len: u64 = mapping.iter().map(|(len, _)| u64::from(*len) + 1).sum();
            if at < start + len {
                let hole = mapping[0].1;
                let kind = if hole { MappingKind::Hole } else { MappingKind::Mapped(FsBlock(device)) };
                return Some(Mapping { start: FileBlock(start), blocks: len, kind });
            }
            start += len;
            device += len + 7;
        }
        None
    }

    /// A lookup at random in a large contiguous file searches one mapping, not one for each block of pointers.
    #[test]
    fn neighbours_that_go_on_with_each_other_are_one_mapping() {
        let leaf = |at: u64| Mapping {
            start: FileBlock(at),
            blocks: 10,
            kind: MappingKind::Mapped(FsBlock(1000 + at)),
        };
        let mut cache = RunCache::default();
        for at in [20, 0, 40, 10, 30] {
            cache.insert(leaf(at), at == 40);
        }
        assert_eq!(cache.runs.len(), 1);
        assert_eq!(
            lookup(&cache.runs, FileBlock(5), 100),
            Some(Mapping { blocks: 45, ..leaf(0).part(FileBlock(5), 45) })
        );
        // Mappings that are not contiguous on the device, or have an unknown gap, stay apart.
        cache.insert(Mapping { kind: MappingKind::Mapped(FsBlock(7)), ..leaf(50) }, false);
        cache.insert(leaf(70), false);
        assert_eq!(cache.runs.len(), 3);
        assert_eq!(lookup(&cache.runs, FileBlock(65), 1), None);
    }

    /// An identity that no other test has.
    fn identity() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// A thread's copy finds known runs, and no longer finds them after any thread has forgotten them.
    #[test]
    fn threads_find_nothing_that_was_forgotten_before_they_looked() {
        const CHANGES: u64 = 20_000;
        let (runs, forgotten) = (Runs::new(identity()), AtomicU64::new(0));
        let copies = AtomicU64::new(0);
        let look = || {
            let mut found = 0;
            while forgotten.load(Ordering::Acquire) < CHANGES {
                let before = forgotten.load(Ordering::Acquire);
                if let Some(mapping) = runs.lookup(FileBlock(3), 1) {
                    let MappingKind::Mapped(block) = mapping.kind else { panic!("{mapping:?}") };
                    assert!(block.0 >= before + 3, "{block:?} was forgotten: {before}");
                    found += 1;
                }
                let has_copy = SEEN.with_borrow(|seen| {
                    seen.iter().any(|seen| seen.of.0 == runs.identity && seen.runs.is_some())
                });
                copies.fetch_add(u64::from(has_copy), Ordering::Relaxed);
            }
            found
        };
        let found: u64 = std::thread::scope(|scope| {
            let lookers = [(); 3].map(|()| scope.spawn(look));
            for change in 1..=CHANGES {
                runs.forget(0, 10);
                forgotten.store(change, Ordering::Release);
                let kind = MappingKind::Mapped(FsBlock(change));
                runs.insert(Mapping { start: FileBlock(0), blocks: 10, kind }, true);
                (0..change % 50).for_each(|_| std::hint::spin_loop());
                if change.is_multiple_of(1000) {
                    std::thread::yield_now();
                }
            }
            lookers.map(|looker| looker.join().expect("no assertion failed")).iter().sum()
        });
        assert!(found > 0 && copies.into_inner() > 0);
    }

    proptest! {
        /// The cache returns the mappings of the file, whatever was inserted and forgotten before.
        #[test]
        fn answers_agree_with_the_file(
            lens in proptest::collection::vec((0u8..20, any::<bool>()), 1..20),
            steps in proptest::collection::vec((any::<bool>(), 0u64..200, 1u64..30), 1..60),
        ) {
            let runs = Runs::new(identity());
            for (insert, at, len) in steps {
                if insert {
                    if let Some(run) = mapping_at(&lens, at) {
                        runs.insert(run.part(FileBlock(at), len), at + len > run.end());
                    }
                } else {
                    runs.forget(at, at + len);
                }
                for at in 0..200 {
                    if let Some(answer) = runs.lookup(FileBlock(at), 5) {
                        let right = mapping_at(&lens, at).unwrap();
                        prop_assert_eq!(answer.kind, right.part(FileBlock(at), 5).kind);
                        prop_assert!(answer.end() <= right.end());
                    }
                }
                let cache = runs.cache.read();
                for pair in cache.runs.windows(2) {
                    prop_assert!(pair[0].mapping.end() <= pair[1].mapping.start.0);
                }
                prop_assert!(cache.runs.len() <= 2 * CAPACITY);
            }
        }
    }
}

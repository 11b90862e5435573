//! The mappings of a file's mapping that were looked up lately.
//!
//! Invariants:
//! 1. Mappings are sorted by file block and do not overlap.
//! 2. Every mapping agrees with the mapping on disk: a change of the mapping calls [`RunCache::forget`] first,
//!    holding the inode's state for writing, and mappings are inserted by holders of the state only.

use crate::{FileBlock, FsBlock, Mapping, MappingKind};

/// Mappings kept for one inode.
const CAPACITY: usize = if cfg!(test) { 6 } else { 1024 };
/// Of those, kept while the file is not open.
const CAPACITY_UNUSED: usize = 8;

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

/// The mappings of one inode.
#[derive(Debug, Default)]
pub(crate) struct RunCache {
    runs: Vec<Run>,
}

impl Mapping {
    /// First file block after it.
    pub(crate) fn end(&self) -> u64 {
        self.start.0.saturating_add(self.blocks)
    }

    /// The part of it from `at` on, at most `max_blocks` long; `at` lies inside.
    pub(crate) fn part(&self, at: FileBlock, max_blocks: u64) -> Self {
        let skip = at.0 - self.start.0;
        let kind = match self.kind {
            MappingKind::Mapped(block) => MappingKind::Mapped(FsBlock(block.0 + skip)),
            MappingKind::Unwritten(block) => MappingKind::Unwritten(FsBlock(block.0 + skip)),
            other => other,
        };
        Self { start: at, blocks: (self.blocks - skip).min(max_blocks), kind }
    }

    /// Whether `next`, which begins where this ends in the file, goes on with the same thing.
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
    /// The mapping at `at`, if it is known as far as `max_blocks`.
    pub(crate) fn lookup(&self, at: FileBlock, max_blocks: u64) -> Option<Mapping> {
        let index = self.runs.partition_point(|run| run.mapping.start <= at);
        let run = self.runs.get(index.checked_sub(1)?)?;
        let end = run.mapping.end();
        let known = at.0 < end && (run.complete || end - at.0 >= max_blocks);
        known.then(|| run.mapping.part(at, max_blocks))
    }

    /// Keep a mapping that was just looked up. `complete`: something else follows it. Neighbours that it joins become one
    /// mapping with it, so that a contiguous file is one, whatever blocks of pointers lie between.
    pub(crate) fn insert(&mut self, mapping: Mapping, complete: bool) {
        let mut new = Run { mapping, complete };
        let mut first = self.runs.partition_point(|run| run.mapping.end() <= mapping.start.0);
        let mut after = self.runs.partition_point(|run| run.mapping.start.0 < mapping.end());
        if first > 0 && self.runs[first - 1].is_continued_by(&new) {
            first -= 1;
        }
        if self.runs.get(after).is_some_and(|next| new.is_continued_by(next)) {
            after += 1;
        }
        // What overlaps says the same (invariant 2), so the union is one mapping.
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

    /// The file is not open any more: keep a little.
    pub(crate) fn shrink(&mut self) {
        if self.runs.len() > CAPACITY_UNUSED {
            self.runs.truncate(CAPACITY_UNUSED);
            self.runs.shrink_to_fit();
        }
    }

    /// The mapping of `[start, end)` is about to change.
    pub(crate) fn forget(&mut self, start: u64, end: u64) {
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
            cache.lookup(FileBlock(5), 100),
            Some(Mapping { blocks: 45, ..leaf(0).part(FileBlock(5), 45) })
        );
        // What lies elsewhere on the device, or is not known in between, stays apart.
        cache.insert(Mapping { kind: MappingKind::Mapped(FsBlock(7)), ..leaf(50) }, false);
        cache.insert(leaf(70), false);
        assert_eq!(cache.runs.len(), 3);
        assert_eq!(cache.lookup(FileBlock(65), 1), None);
    }

    proptest! {
        /// What the cache answers is what the file has, whatever was inserted and forgotten before.
        #[test]
        fn answers_agree_with_the_file(
            lens in proptest::collection::vec((0u8..20, any::<bool>()), 1..20),
            steps in proptest::collection::vec((any::<bool>(), 0u64..200, 1u64..30), 1..60),
        ) {
            let mut cache = RunCache::default();
            for (insert, at, len) in steps {
                if insert {
                    if let Some(run) = mapping_at(&lens, at) {
                        cache.insert(run.part(FileBlock(at), len), at + len > run.end());
                    }
                } else {
                    cache.forget(at, at + len);
                }
                for at in 0..200 {
                    if let Some(answer) = cache.lookup(FileBlock(at), 5) {
                        let right = mapping_at(&lens, at).unwrap();
                        prop_assert_eq!(answer.kind, right.part(FileBlock(at), 5).kind);
                        prop_assert!(answer.end() <= right.end());
                    }
                }
                for pair in cache.runs.windows(2) {
                    prop_assert!(pair[0].mapping.end() <= pair[1].mapping.start.0);
                }
                prop_assert!(cache.runs.len() <= 2 * CAPACITY);
            }
        }
    }
}

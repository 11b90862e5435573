//! Used blocks of the new volume: runs instead of bits, so that memory grows with the content and not with the size.

use std::collections::BTreeMap;

use diorite_ext_format::FsBlock;

/// The blocks in use, as runs that do not touch.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// First block of a run, and the block after its last.
    runs: BTreeMap<u64, u64>,
    end: u64,
    /// Blocks of a cluster: clusters are taken as a whole.
    per_cluster: u64,
}

impl Space {
    /// Nothing in use on a volume of `blocks`.
    pub(super) fn new(blocks: u64) -> Self {
        Self { runs: BTreeMap::new(), end: blocks, per_cluster: 1 }
    }

    /// From now on clusters are taken; those that are in use in part are in use.
    pub(super) fn round_to_clusters(&mut self, per_cluster: u64) {
        let runs = std::mem::take(&mut self.runs);
        self.per_cluster = per_cluster;
        let mut taken = 0;
        for (start, end) in runs {
            let start = (start / per_cluster * per_cluster).max(taken);
            taken = taken.max(end.next_multiple_of(per_cluster).min(self.end));
            self.take(FsBlock(start), taken.saturating_sub(start));
        }
    }

    /// Take `[first, first + count)`, which must be free, and the rest of the last cluster.
    pub(super) fn take(&mut self, first: FsBlock, count: u64) {
        let past_end = (first.0 + count).next_multiple_of(self.per_cluster);
        let (mut start, mut end) = (first.0, past_end.min(self.end.max(first.0 + count)));
        if count == 0 {
            return;
        }
        assert!(end <= self.end && self.used_in(start, end) == 0, "blocks {start} to {end} are taken twice");
        if let Some((&before, &before_end)) = self.runs.range(..start).next_back()
            && before_end == start
        {
            self.runs.remove(&before);
            start = before;
        }
        if let Some(after_end) = self.runs.remove(&end) {
            end = after_end;
        }
        self.runs.insert(start, end);
    }

    /// Blocks in use of `[start, end)`.
    pub(super) fn used_in(&self, start: u64, end: u64) -> u64 {
        self.runs_in(start, end).map(|(first, last)| last - first).sum()
    }

    /// The parts of runs in `[start, end)`, as first block and block after the last.
    pub(super) fn runs_in(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let before = self.runs.range(..start).next_back().map(|(_, end)| *end).filter(|end| *end > start);
        let first = before.map(|run_end| (start, run_end.min(end)));
        first
            .into_iter()
            .chain(self.runs.range(start..end).map(move |(first, last)| (*first, (*last).min(end))))
    }

    /// The first free run at or after `goal`: start and length, at most `most`.
    pub(super) fn free_run(&self, goal: u64, most: u64) -> Option<(FsBlock, u64)> {
        let mut start = goal;
        if let Some((_, &end)) = self.runs.range(..=start).next_back() {
            start = start.max(end);
        }
        if start >= self.end {
            return None;
        }
        let limit = self.runs.range(start..).next().map_or(self.end, |(first, _)| *first);
        Some((FsBlock(start), (limit - start).min(most)))
    }

    /// The first free run of at least `count` blocks at or after `goal`, taken.
    pub(super) fn take_contiguous(&mut self, goal: u64, count: u64) -> Option<FsBlock> {
        let mut at = goal;
        loop {
            let (start, found) = self.free_run(at, count)?;
            if found == count {
                self.take(start, count);
                return Some(start);
            }
            at = start.0 + found;
        }
    }

    /// `count` free blocks from `goal` on, in as few runs as lie there, taken; `None` (and nothing taken) if there are not
    /// as many up to the end of the volume.
    pub(super) fn take_runs(&mut self, goal: u64, count: u64) -> Option<Vec<(FsBlock, u64)>> {
        let (mut runs, mut left, mut at) = (Vec::new(), count, goal);
        while left > 0 {
            let (start, found) = self.free_run(at, left)?;
            runs.push((start, found));
            left -= found;
            at = start.0 + found;
        }
        for (start, found) in &runs {
            self.take(*start, *found);
        }
        Some(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_taken_as_a_whole() {
        let mut space = Space::new(96);
        for (start, count) in [(0, 3), (5, 2), (18, 1)] {
            space.take(FsBlock(start), count);
        }
        space.round_to_clusters(4);
        assert_eq!(space.runs, BTreeMap::from([(0, 8), (16, 20)]));
        assert_eq!(space.take_runs(0, 5), Some(vec![(FsBlock(8), 5)]));
        assert_eq!(space.take_runs(0, 1), Some(vec![(FsBlock(20), 1)]));
        assert_eq!(space.used_in(0, 96), 24);
    }

    #[test]
    fn runs_join_and_are_skipped() {
        let mut space = Space::new(100);
        space.take(FsBlock(10), 5);
        space.take(FsBlock(20), 5);
        space.take(FsBlock(15), 5);
        assert_eq!(space.runs, BTreeMap::from([(10, 25)]));
        assert_eq!(space.used_in(0, 12), 2);
        assert_eq!(space.used_in(12, 100), 13);
        assert_eq!(space.take_contiguous(8, 3), Some(FsBlock(25)));
        assert_eq!(space.take_runs(0, 20), Some(vec![(FsBlock(0), 10), (FsBlock(28), 10)]));
        assert_eq!(space.take_runs(0, 63), None);
        assert_eq!(space.used_in(0, 100), 38);
    }
}

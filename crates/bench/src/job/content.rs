//! What writes hold where nothing is verified: `zero_buffers`, `buffer_pattern`, `refill_buffers`,
//! `buffer_compress_percentage`, `dedupe_percentage`.

use std::sync::Arc;

use diorite_block::sync::Mutex;

use super::offsets::Random;
use super::spec::Filling;
use super::verify::randomize;

/// Seeds of the contents that come again.
pub(super) type WorkingSet = Arc<Mutex<Vec<u64>>>;

/// Fills the memory of writes.
#[derive(Debug)]
pub(super) struct Contents {
    filling: Filling,
    random: Random,
    set: WorkingSet,
    /// Contents that the set may have.
    most: usize,
    last: u64,
}

impl Contents {
    /// For a job that writes so many blocks; `shared` is the set of all jobs.
    pub(super) fn new(filling: &Filling, blocks: u64, seed: u64, shared: &WorkingSet) -> Self {
        let percent = u64::from(filling.working_set_percent.unwrap_or(0));
        let set = if filling.dedupe_global { Arc::clone(shared) } else { WorkingSet::default() };
        let most = (blocks * percent / 100).clamp(1, 1 << 24) as usize;
        Self { filling: filling.clone(), random: Random::new(seed), set, most, last: seed }
    }

    /// Content for memory that is written again and again, before the first write.
    pub(super) fn begin(&mut self, memory: &mut [u8]) {
        if self.filling.zeros {
            memory.fill(0);
        } else if self.filling.pattern.is_empty() {
            randomize(memory, self.random.next());
        } else {
            self.fill_with_pattern(memory);
        }
    }

    /// Content for one write, where each has its own.
    pub(super) fn refill(&mut self, memory: &mut [u8]) {
        let has_pattern = !self.filling.pattern.is_empty();
        if !self.filling.is_per_write()
            || self.filling.zeros
            || has_pattern && self.filling.compress_percent == 0
        {
            return;
        }
        let seed = self.seed();
        let same = memory.len() * usize::from(self.filling.compress_percent) / 100;
        let (random, rest) = memory.split_at_mut(memory.len() - same);
        randomize(random, seed);
        if has_pattern { self.fill_with_pattern(rest) } else { rest.fill(0) }
    }

    fn fill_with_pattern(&self, memory: &mut [u8]) {
        let pattern = self.filling.pattern.iter().cycle();
        memory.iter_mut().zip(pattern).for_each(|(byte, pattern)| *byte = *pattern);
    }

    /// The seed of a content: one that was there before, or another.
    fn seed(&mut self) -> u64 {
        let is_repeated = self.random.below(100) < u64::from(self.filling.dedupe_percent);
        let uses_set = self.filling.working_set_percent.is_some();
        if is_repeated && !uses_set {
            return self.last;
        }
        if is_repeated {
            let set = self.set.lock();
            if !set.is_empty() {
                return set[self.random.below(set.len() as u64) as usize];
            }
        }
        self.last = self.random.next();
        if uses_set {
            let mut set = self.set.lock();
            if set.len() < self.most {
                set.push(self.last);
            }
        }
        self.last
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn different(filling: &Filling) -> usize {
        let mut contents = Contents::new(filling, 1000, 1, &WorkingSet::default());
        let mut memory = vec![0; 4096];
        let mut write = |_| {
            contents.refill(&mut memory);
            memory.clone()
        };
        (0..1000).map(&mut write).collect::<BTreeSet<_>>().len()
    }

    #[test]
    fn blocks_come_again_as_often_as_asked() {
        let half = Filling { dedupe_percent: 50, ..Filling::default() };
        assert!((450..550).contains(&different(&half)));
        assert!((450..550).contains(&different(&Filling { working_set_percent: Some(10), ..half })));
        assert_eq!(different(&Filling { refill: true, ..Filling::default() }), 1000);
    }

    #[test]
    fn part_of_a_block_is_zeros_or_the_pattern() {
        for (pattern, same) in [(vec![], 0), (vec![7], 7)] {
            let filling = Filling { compress_percent: 75, pattern, ..Filling::default() };
            let mut memory = vec![1; 4096];
            Contents::new(&filling, 1, 1, &WorkingSet::default()).refill(&mut memory);
            assert_eq!(memory.iter().rev().take_while(|byte| **byte == same).count(), 3072);
        }
    }
}

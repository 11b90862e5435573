//! Content of writes without `verify`: `zero_buffers`, `buffer_pattern`, `refill_buffers`, `buffer_compress_percentage`.

use super::random::Random;
use super::verify::randomize;
use crate::language::spec::Filling;

/// Fills the memory of writes.
#[derive(Debug)]
pub(crate) struct Contents {
    filling: Filling,
    random: Random,
}

impl Contents {
    pub(crate) fn new(filling: &Filling, seed: u64) -> Self {
        Self { filling: filling.clone(), random: Random::new(seed) }
    }

    /// Fill memory before its first write.
    pub(crate) fn begin(&mut self, memory: &mut [u8]) {
        if self.filling.zeros {
            memory.fill(0);
        } else if self.filling.pattern.is_empty() {
            randomize(memory, self.random.next());
        } else {
            self.fill_with_pattern(memory);
        }
    }

    /// Fill memory for one write, where each write has its own content.
    pub(crate) fn refill(&mut self, memory: &mut [u8]) {
        let has_pattern = !self.filling.pattern.is_empty();
        if !self.filling.is_per_write()
            || self.filling.zeros
            || has_pattern && self.filling.compress_percent == 0
        {
            return;
        }
        let same = memory.len() * usize::from(self.filling.compress_percent) / 100;
        let (random, rest) = memory.split_at_mut(memory.len() - same);
        randomize(random, self.random.next());
        if has_pattern { self.fill_with_pattern(rest) } else { rest.fill(0) }
    }

    fn fill_with_pattern(&self, memory: &mut [u8]) {
        let pattern = self.filling.pattern.iter().cycle();
        memory.iter_mut().zip(pattern).for_each(|(byte, pattern)| *byte = *pattern);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each write has new random bytes before them.
    #[test]
    fn part_of_a_block_is_zeros_or_the_pattern() {
        for (pattern, same) in [(vec![], 0), (vec![7], 7)] {
            let filling = Filling { compress_percent: 75, pattern, ..Filling::default() };
            let mut memory = vec![1; 4096];
            let mut contents = Contents::new(&filling, 1);
            contents.refill(&mut memory);
            assert_eq!(memory.iter().rev().take_while(|byte| **byte == same).count(), 3072);
            let first = memory.clone();
            contents.refill(&mut memory);
            assert_ne!(memory, first);
        }
    }
}

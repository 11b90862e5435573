//! Content of writes without `verify`: `zero_buffers`, `buffer_pattern`, `refill_buffers`.

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
            let pattern = self.filling.pattern.iter().cycle();
            memory.iter_mut().zip(pattern).for_each(|(byte, pattern)| *byte = *pattern);
        }
    }

    /// Fill memory for one write, where each write has its own content.
    pub(crate) fn refill(&mut self, memory: &mut [u8]) {
        if !self.filling.zeros && self.filling.pattern.is_empty() {
            randomize(memory, self.random.next());
        }
    }
}

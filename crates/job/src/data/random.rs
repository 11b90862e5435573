//! Random numbers that a seed repeats.

/// A generator of random numbers (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The bias is below 2^-32 for every bound that a file has.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from 0 to below 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Spread a number over all bits.
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A permutation of the numbers below `count` without a table: a Feistel network over the next even power of two, applied
/// until the result is below `count`.
#[derive(Clone, Debug)]
pub(super) struct Permutation {
    pub(super) count: u64,
    half_bits: u32,
    seed: u64,
}

impl Permutation {
    pub(super) fn new(count: u64, seed: u64) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        Self { count, half_bits: bits.div_ceil(2).max(1), seed }
    }

    /// The number at position `index`, which is below `count`.
    pub(super) fn at(&self, index: u64) -> u64 {
        let mut value = index;
        loop {
            value = self.step(value);
            if value < self.count {
                return value;
            }
        }
    }

    fn step(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..4 {
            let mixed = mix(right ^ self.seed.wrapping_add(round)) & mask;
            (left, right) = (right, left ^ mixed);
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_visits_every_block_once() {
        for count in [1, 2, 3, 7, 64, 1000, 4097] {
            let permutation = Permutation::new(count, 42);
            let mut seen: Vec<_> = (0..count).map(|index| permutation.at(index)).collect();
            if count > 100 {
                assert!(seen.windows(2).filter(|pair| pair[1] == pair[0] + 1).count() < count as usize / 50);
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn sequences_repeat_by_seed_and_stay_in_range() {
        let (mut a, mut b) = (Random::new(7), Random::new(7));
        for _ in 0..1000 {
            let value = a.below(10);
            assert!(value < 10);
            assert_eq!(value, b.below(10));
        }
    }
}

//! A sequence that a seed decides (`SplitMix64`), and bytes that say which write they come from.

use std::ops::Range;

/// The sequence.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// By seed; close seeds give unlike sequences.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ 0x5851_f42d_4c95_7f2d)
    }

    #[must_use]
    /// Another sequence, which this one decides.
    pub fn fork(&mut self) -> Self {
        Self::new(self.number())
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound.max(1)
    }

    /// A number in `range`.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// An index of a list of `len`.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True once in `bound` times.
    pub fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    /// One of a list.
    pub fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.index(list.len())].clone()
    }
}

fn mix(value: u64) -> u64 {
    let mixed = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The initial content of a device: no write contains it.
pub const MARKER: u8 = 0xa5;

/// The bytes that the write number `stamp` puts at `offset`: neither zero nor [`MARKER`].
pub fn stamp_bytes(stamp: u64, offset: u64, memory: &mut [u8]) {
    for (index, byte) in memory.iter_mut().enumerate() {
        *byte = stamp_byte(stamp, offset + index as u64);
    }
}

/// One byte of [`stamp_bytes`].
pub fn stamp_byte(stamp: u64, offset: u64) -> u8 {
    let word = mix(stamp.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ (offset / 8));
    1 + ((word >> (offset % 8 * 8)) as u8) % 160
}

/// The same as a vector.
pub fn stamped(stamp: u64, offset: u64, len: usize) -> Vec<u8> {
    let mut memory = vec![0; len];
    stamp_bytes(stamp, offset, &mut memory);
    memory
}

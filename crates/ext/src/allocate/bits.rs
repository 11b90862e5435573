//! Searching and changing bitmaps, 64 bits at a time.
//!
//! A set bit is in use. In memory a group's bits are `u64` words; on disk they are bytes, bit 0 first, which is
//! the same order in little-endian words.

/// A group's bits in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bits {
    words: Box<[u64]>,
    len: u32,
}

impl Bits {
    /// The first `len` bits of an on-disk bitmap; bits that it does not have are in use.
    pub(crate) fn from_bytes(bytes: &[u8], len: u32) -> Self {
        let mut words = vec![u64::MAX; (len as usize).div_ceil(64)].into_boxed_slice();
        for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut full = [0xff; 8];
            full[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_le_bytes(full);
        }
        if let Some(last) = words.last_mut()
            && !len.is_multiple_of(64)
        {
            *last |= u64::MAX << (len % 64);
        }
        Self { words, len }
    }

    /// Number of clear bits.
    pub(crate) fn count_clear(&self) -> u32 {
        self.words.iter().map(|word| word.count_zeros()).sum()
    }

    /// Set or clear a range that the caller has checked.
    pub(crate) fn fill(&mut self, start: u32, count: u32, value: bool) {
        assert!(start + count <= self.len, "a range of bits outside of its group");
        let mut at = start;
        let end = start + count;
        while at < end {
            let upto = ((at / 64 + 1) * 64).min(end);
            let width = upto - at;
            let mask = if width == 64 { u64::MAX } else { ((1 << width) - 1) << (at % 64) };
            let word = &mut self.words[(at / 64) as usize];
            if value {
                *word |= mask;
            } else {
                *word &= !mask;
            }
            at = upto;
        }
    }

    /// The first bit of the given value at or after `from`; the length if there is none.
    pub(super) fn next(&self, from: u32, value: bool) -> u32 {
        let mut index = (from / 64) as usize;
        let mut mask = u64::MAX << (from % 64);
        while let Some(&word) = self.words.get(index) {
            let found = (if value { word } else { !word }) & mask;
            if found != 0 {
                return (index as u32 * 64 + found.trailing_zeros()).min(self.len);
            }
            mask = u64::MAX;
            index += 1;
        }
        self.len
    }

    /// Length of the clear run that starts at `start`, at most `limit`.
    pub(crate) fn clear_run_at(&self, start: u32, limit: u32) -> u32 {
        if start >= self.len { 0 } else { (self.next(start, true) - start).min(limit) }
    }

    /// The first clear run of at least `wanted` bits at or after `from`, or else before it; or, without one, the longest
    /// clear run that there is: `(start, length)` with the length cut to `wanted`, and whether it is long enough.
    pub(crate) fn find_clear_run(&self, from: u32, wanted: u32) -> SearchResult {
        let mut longest = (0, 0);
        let from = from.min(self.len);
        for (start, end) in [(from, self.len), (0, self.len)] {
            let mut at = start;
            while at < end {
                let first = self.next(at, false);
                if first >= end {
                    break;
                }
                let after = self.next(first, true);
                let run = after - first;
                if run >= wanted {
                    return SearchResult::Enough { start: first };
                }
                if run > longest.1 {
                    longest = (first, run);
                }
                at = after;
            }
        }
        if longest.1 == 0 {
            SearchResult::Full
        } else {
            SearchResult::Longest { start: longest.0, count: longest.1 }
        }
    }
}

/// Result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SearchResult {
    /// As many as wanted from here.
    Enough {
        /// First bit.
        start: u32,
    },
    /// Fewer: this is the longest run of all.
    Longest {
        /// First bit.
        start: u32,
        /// Its length.
        count: u32,
    },
    /// No bit is clear.
    Full,
}

/// Set bits in an on-disk bitmap. Returns whether all of them were clear before.
pub(crate) fn set_in_bytes(bytes: &mut [u8], start: u32, count: u32) -> bool {
    change_in_bytes(bytes, start, count, |byte, mask| {
        let was_clear = *byte & mask == 0;
        *byte |= mask;
        was_clear
    })
}

/// Clear bits in an on-disk bitmap. Returns whether all of them were set before.
pub(crate) fn clear_in_bytes(bytes: &mut [u8], start: u32, count: u32) -> bool {
    change_in_bytes(bytes, start, count, |byte, mask| {
        let was_set = *byte & mask == mask;
        *byte &= !mask;
        was_set
    })
}

fn change_in_bytes(bytes: &mut [u8], start: u32, count: u32, change: impl Fn(&mut u8, u8) -> bool) -> bool {
    let (mut at, end) = (start, start + count);
    let mut as_expected = true;
    while at < end {
        let upto = ((at / 8 + 1) * 8).min(end);
        let mask = (((1u16 << (upto - at)) - 1) as u8) << (at % 8);
        match bytes.get_mut((at / 8) as usize) {
            Some(byte) => as_expected &= change(byte, mask),
            None => return false,
        }
        at = upto;
    }
    as_expected
}

/// Whether a bit is set; those beyond the end are.
pub(crate) fn is_set_in_bytes(bytes: &[u8], bit: u32) -> bool {
    bytes.get(bit as usize / 8).is_none_or(|byte| byte >> (bit % 8) & 1 == 1)
}

/// The first clear bit of an on-disk bitmap in `from..end`.
pub(crate) fn first_clear_in_bytes(bytes: &[u8], from: u32, end: u32) -> Option<u32> {
    let mut at = from;
    while at < end {
        let byte = *bytes.get((at / 8) as usize)?;
        let free = !byte & (0xff << (at % 8));
        if free != 0 {
            let bit = at / 8 * 8 + free.trailing_zeros();
            return (bit < end).then_some(bit);
        }
        at = (at / 8 + 1) * 8;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn model_longest(bits: &[bool]) -> u32 {
        bits.split(|&bit| bit).map(|run| run.len() as u32).max().unwrap_or(0)
    }

    proptest! {
        /// Words, bytes and a plain list of bits agree.
        #[test]
        fn words_and_bytes_agree_with_a_list(
            bytes in proptest::collection::vec(any::<u8>(), 1..64),
            cut in 0u32..8, start in 0u32..500, count in 0u32..200, wanted in 1u32..40, from in 0u32..500,
        ) {
            let len = bytes.len() as u32 * 8 - cut;
            let mut list: Vec<bool> = (0..len).map(|bit| bytes[(bit / 8) as usize] & (1 << (bit % 8)) != 0).collect();
            let mut bits = Bits::from_bytes(&bytes, len);
            prop_assert_eq!(bits.count_clear() as usize, list.iter().filter(|bit| !**bit).count());
            match bits.find_clear_run(from, wanted) {
                SearchResult::Enough { start } => {
                    prop_assert!((start..start + wanted).all(|bit| !list[bit as usize]));
                }
                SearchResult::Longest { start, count } => {
                    prop_assert!(count < wanted);
                    prop_assert_eq!(count, model_longest(&list));
                    prop_assert!((start..start + count).all(|bit| !list[bit as usize]));
                }
                SearchResult::Full => prop_assert!(list.iter().all(|bit| *bit)),
            }
            let start = start.min(len);
            let count = count.min(len - start);
            let mut disk = bytes.clone();
            let all_clear = list[start as usize..(start + count) as usize].iter().all(|bit| !bit);
            prop_assert_eq!(set_in_bytes(&mut disk, start, count), all_clear);
            bits.fill(start, count, true);
            list[start as usize..(start + count) as usize].fill(true);
            prop_assert_eq!(&bits, &Bits::from_bytes(&disk, len));
            prop_assert_eq!(
                first_clear_in_bytes(&disk, 0, len),
                list.iter().position(|bit| !bit).map(|bit| bit as u32)
            );
            prop_assert!(clear_in_bytes(&mut disk, start, count));
            bits.fill(start, count, false);
            prop_assert_eq!(&bits, &Bits::from_bytes(&disk, len));
        }
    }
}

//! The message by which a process hands over pages of a file that it closes: a descriptor of the file, and a [`Range`].

/// The largest page of the cache.
pub const WINDOW_BYTES: u64 = 2 << 20;
/// The smallest one.
pub const PAGE_BYTES: u64 = 4096;
/// Pages of a window.
pub const PAGES: usize = (WINDOW_BYTES / PAGE_BYTES) as usize;

/// Pages, by bit.
pub type PageSet = [u64; PAGES / 64];

/// A range of a file that was written.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Offset.
    pub start: u64,
    /// Length.
    pub len: u64,
    /// Pages from the start that stay in the cache.
    pub hot: PageSet,
}

/// The size of a message.
pub const RANGE_BYTES: usize = size_of::<Range>();

impl Range {
    /// The range of a message.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; RANGE_BYTES]) -> Self {
        let mut numbers = bytes.chunks_exact(8).map(|raw| {
            let mut number = [0; 8];
            number.copy_from_slice(raw);
            u64::from_ne_bytes(number)
        });
        let mut next = || numbers.next().unwrap_or(0);
        Self { start: next(), len: next(), hot: [0; PAGES / 64].map(|_| next()) }
    }

    /// Call `drop` with offset and length of each part that must leave the cache.
    pub fn each_cold(&self, mut drop: impl FnMut(u64, u64)) {
        if self.hot.iter().all(|bits| *bits == 0) {
            if self.len > 0 {
                drop(self.start, self.len);
            }
            return;
        }
        let is_hot = |page: usize| self.hot[page / 64] >> (page % 64) & 1 == 1;
        let mut page = 0;
        while page < PAGES {
            let first = page;
            while page < PAGES && !is_hot(page) {
                page += 1;
            }
            if page > first {
                drop(self.start + first as u64 * PAGE_BYTES, (page - first) as u64 * PAGE_BYTES);
            }
            page += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cold(range: &Range) -> Vec<(u64, u64)> {
        let mut parts = Vec::new();
        range.each_cold(|start, len| parts.push((start, len)));
        parts
    }

    #[test]
    fn hot_pages_are_between_the_cold_parts() {
        let mut range = Range { start: WINDOW_BYTES, len: WINDOW_BYTES, hot: [0; PAGES / 64] };
        assert_eq!(cold(&range), [(WINDOW_BYTES, WINDOW_BYTES)]);
        range.hot[0] = 0b101;
        range.hot[7] = 1 << 63;
        let (first, last) = (WINDOW_BYTES + PAGE_BYTES, 2 * WINDOW_BYTES - PAGE_BYTES);
        assert_eq!(
            cold(&range),
            [(first, PAGE_BYTES), (first + 2 * PAGE_BYTES, last - first - 2 * PAGE_BYTES)]
        );
        range.hot = [u64::MAX; PAGES / 64];
        assert_eq!(cold(&range), []);
        assert_eq!(cold(&Range { len: 0, hot: [0; PAGES / 64], ..range }), []);
    }

    #[test]
    fn a_message_has_the_numbers_in_order() {
        let mut bytes = [0; RANGE_BYTES];
        for (index, number) in bytes.chunks_exact_mut(8).enumerate() {
            number.copy_from_slice(&(index as u64 + 1).to_ne_bytes());
        }
        let range = Range::from_bytes(&bytes);
        assert_eq!((range.start, range.len, range.hot), (1, 2, [3, 4, 5, 6, 7, 8, 9, 10]));
    }
}

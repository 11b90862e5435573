//! Readahead for sequential readers.
//!
//! Where it sits: one [`ReadAhead`] per open handle watches its reads; the workers read.
//!
//! States: random (`window` 0), without readahead. A read that starts where the last one ended opens a window. When
//! the reader enters the last pages of readahead, the window doubles and the next one is read in the background. The
//! device therefore always has a whole window in flight. A read elsewhere closes the window. A window is read in
//! several concurrent transfers, and a reader waits only for the one that it needs. At high load windows are small,
//! because they share the cache.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The first window: 128 KiB.
pub(crate) const WINDOW_MIN: u64 = 32;
/// Pages of one piece of a window: 1 MiB, one transfer on most devices.
const PIECE: u64 = 256;
const NOWHERE: u64 = u64::MAX;

/// See the module's head. The atomics are relaxed: a lost update costs only a worse guess.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    /// The page after the last read. Shared with waiting jobs, which skip pages that the reader has passed.
    next: Arc<AtomicU64>,
    /// The end of readahead.
    until: AtomicU64,
    /// Pages of the window; 0 for random access.
    window: AtomicU64,
    /// The last page that was used.
    current: AtomicU64,
    /// Reads leave no page in the cache.
    uncached: bool,
}

impl Default for ReadAhead {
    fn default() -> Self {
        Self {
            // A reader that starts at offset 0 counts as sequential.
            next: Arc::default(),
            until: AtomicU64::new(0),
            window: AtomicU64::new(0),
            current: AtomicU64::new(NOWHERE),
            uncached: false,
        }
    }
}

/// A readahead job. The reader may overtake it.
#[derive(Debug)]
pub(crate) struct Ahead {
    pages: Range<u64>,
    reader: Arc<AtomicU64>,
    /// The pages must not stay in the cache.
    pub(crate) uncached: bool,
}

impl Ahead {
    /// Its pages, also pages that the reader has passed.
    pub(crate) fn len(&self) -> usize {
        (self.pages.end - self.pages.start) as usize
    }

    /// Its pages that the reader has not passed.
    pub(crate) fn left(&self) -> Range<u64> {
        self.pages.start.max(self.reader.load(Ordering::Relaxed))..self.pages.end
    }
}

impl ReadAhead {
    /// For reads that leave nothing in the cache.
    pub(crate) fn uncached() -> Self {
        Self { uncached: true, ..Self::default() }
    }

    /// Whether reads leave no page in the cache.
    #[inline]
    pub(crate) fn is_uncached(&self) -> bool {
        self.uncached
    }

    /// Jobs for a range of pages, in pieces.
    pub(crate) fn pieces(&self, pages: Range<u64>) -> impl Iterator<Item = Ahead> {
        let end = pages.end;
        pages.step_by(PIECE as usize).map(move |start| Ahead {
            pages: start..end.min(start + PIECE),
            reader: Arc::clone(&self.next),
            uncached: self.uncached,
        })
    }

    /// Whether a read of `pages` continues the last one.
    pub(crate) fn is_followed_by(&self, pages: &Range<u64>) -> bool {
        follows(pages, self.next.load(Ordering::Relaxed))
    }

    /// Note that a page is used. Returns whether it differs from the last one.
    #[inline]
    pub(crate) fn enter_page(&self, page: u64) -> bool {
        let is_other = self.current.load(Ordering::Relaxed) != page;
        if is_other {
            self.current.store(page, Ordering::Relaxed);
        }
        is_other
    }

    /// `pages` were read. Returns pages to read in the background.
    #[inline]
    pub(crate) fn note(
        &self,
        pages: Range<u64>,
        window_max: u64,
        end: impl FnOnce() -> u64,
    ) -> Option<Range<u64>> {
        let next = self.next.load(Ordering::Relaxed);
        if next != pages.end {
            self.next.store(pages.end, Ordering::Relaxed);
        }
        let window = self.window.load(Ordering::Relaxed);
        if window == 0 {
            return None;
        }
        let (until, is_sequential) = (self.until.load(Ordering::Relaxed), follows(&pages, next));
        if !is_sequential {
            self.window.store(0, Ordering::Relaxed);
            return None;
        }
        if pages.end + window <= until {
            return None;
        }
        self.open(pages.end.max(until), (window * 2).min(window_max), end())
    }

    /// `pages` are about to be read, and not all are cached. Returns pages to read in the background meanwhile.
    pub(crate) fn before_miss(
        &self,
        pages: Range<u64>,
        window_max: u64,
        end: impl FnOnce() -> u64,
    ) -> Option<Range<u64>> {
        if window_max == 0 || !follows(&pages, self.next.load(Ordering::Relaxed)) {
            self.window.store(0, Ordering::Relaxed);
            return None;
        }
        if self.window.load(Ordering::Relaxed) > 0 && pages.end < self.until.load(Ordering::Relaxed) {
            return None;
        }
        let window = ((pages.end - pages.start) * 2).max(WINDOW_MIN).min(window_max);
        self.open(pages.end, window.max(self.window.load(Ordering::Relaxed)), end())
    }

    fn open(&self, from: u64, window: u64, end: u64) -> Option<Range<u64>> {
        let to = from.saturating_add(window).min(end);
        self.window.store(window, Ordering::Relaxed);
        self.until.store(to.max(from), Ordering::Relaxed);
        (from < to).then_some(from..to)
    }
}

/// Whether a read of `pages` continues one that ended before `next`.
fn follows(pages: &Range<u64>, next: u64) -> bool {
    pages.start == next || pages.start + 1 == next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_double_for_a_sequential_reader_and_close_for_a_random_one() {
        let ahead = ReadAhead::default();
        let end = || 1 << 20;
        assert_eq!(ahead.before_miss(0..4, 512, end), Some(4..36));
        assert_eq!(ahead.note(0..4, 512, end), None);
        assert_eq!(ahead.note(4..20, 512, end), Some(36..100), "it has entered the window");
        assert_eq!(ahead.note(20..36, 512, end), None);
        assert_eq!(ahead.note(36..37, 512, end), Some(100..228));
        assert_eq!(ahead.note(5000..5001, 512, end), None, "elsewhere");
        assert_eq!(ahead.before_miss(9000..9001, 512, end), None);
        assert_eq!(ahead.note(9000..9001, 512, end), None);
        assert_eq!(ahead.before_miss(9001..9002, 512, end), Some(9002..9034), "twice in a row");
    }

    #[test]
    fn a_window_comes_in_pieces_that_leave_nothing_out() {
        let ahead = ReadAhead::default();
        let pieces: Vec<_> = ahead.pieces(100..700).map(|piece| piece.left()).collect();
        assert_eq!(pieces, [100..356, 356..612, 612..700]);
        ahead.note(0..400, 512, || 1 << 20);
        let left: Vec<_> = ahead.pieces(100..700).map(|piece| piece.left()).collect();
        assert_eq!(left[1..], [400..612, 612..700]);
        assert!(left[0].is_empty(), "the reader was faster");
    }

    #[test]
    fn nothing_is_read_beyond_the_end() {
        let ahead = ReadAhead::default();
        assert_eq!(ahead.before_miss(0..4, 512, || 10), Some(4..10));
        assert_eq!(ahead.note(0..10, 512, || 10), None);
        assert_eq!(ReadAhead::default().before_miss(0..4, 0, || 10), None, "switched off");
    }
}

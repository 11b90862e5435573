//! Ranges of files in use, and which of their pages were cached before.
//!
//! A window is 2 MiB, the largest page of the cache, so that no cached page is in two windows. It is made before the first transfer in its
//! range. When it is settled, it is written back if needed, and its pages that were not cached before are dropped. A window is
//! settled when its file is closed, when it is the oldest one and another one is needed, and when the process ends.
//!
//! Dirty windows of closed files are handed over to the cleaner, so that a close does not wait for the disk.
//!
//! Invariant: a window has a descriptor of its file; before use, it is checked that the descriptor still refers to that file.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::cleaner::Second;
use crate::file::{File, Key};
use crate::settings::{add, counters};
use crate::shared::cleaning::{PAGE_BYTES, PAGES, PageSet, Range, WINDOW_BYTES};
use crate::sys;

const WINDOWS: usize = 160;
/// The kernel reads ahead at most this many windows of a file that is read in order.
const AHEAD: u64 = 8;
/// The kernel reads at most this much around other reads.
const AROUND_BYTES: u64 = 512 << 10;

/// Descriptors that may have windows, by bit; numbers with the same remainder share one. The close of any other descriptor takes no lock.
static WATCHED: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

/// The place of a descriptor in [`WATCHED`].
fn place(fd: i32) -> (usize, u64) {
    let fd = fd.unsigned_abs() as usize;
    (fd / 64 % WATCHED.len(), 1 << (fd % 64))
}

fn begin_to_watch(fd: i32) {
    let (word, bit) = place(fd);
    WATCHED[word].fetch_or(bit, Ordering::Relaxed);
}

/// Whether a descriptor may have windows.
pub(crate) fn may_watch(fd: i32) -> bool {
    let (word, bit) = place(fd);
    WATCHED[word].load(Ordering::Relaxed) & bit != 0
}

#[derive(Clone, Copy)]
struct Window {
    /// Grows with each window; 0 is free.
    sequence: u64,
    key: Key,
    /// The descriptor that was used last. The window is settled when it is closed.
    fd: i32,
    is_dirty: bool,
    /// Bytes transferred.
    used: u64,
    /// Its hot pages are those that were cached before.
    range: Range,
}

const FREE: Window = Window {
    sequence: 0,
    key: Key::NONE,
    fd: -1,
    is_dirty: false,
    used: 0,
    range: Range { start: 0, len: 0, hot: [0; PAGES / 64] },
};

/// All windows of a process.
pub(crate) struct Windows {
    all: [Window; WINDOWS],
    last_sequence: u64,
}

impl Windows {
    #[expect(clippy::large_stack_arrays, reason = "of a static, and evaluated by the compiler")]
    pub(crate) const fn new() -> Self {
        Self { all: [FREE; WINDOWS], last_sequence: 0 }
    }

    fn find(&mut self, key: Key, start: u64) -> Option<&mut Window> {
        self.all
            .iter_mut()
            .find(|window| window.sequence > 0 && window.key == key && window.range.start == start)
    }

    /// A range is about to be read.
    pub(crate) fn watch_read(&mut self, file: &File, start: u64, end: u64) {
        let window = start / WINDOW_BYTES * WINDOW_BYTES;
        let is_in_order = match window.checked_sub(WINDOW_BYTES) {
            None => true,
            Some(previous) => self.find(file.key, previous).is_some(),
        };
        let ahead = if is_in_order { AHEAD * WINDOW_BYTES } else { AROUND_BYTES };
        self.watch(file, start, end.saturating_add(ahead).min(file.size));
    }

    /// A range is about to be written.
    pub(crate) fn watch(&mut self, file: &File, start: u64, end: u64) {
        let mut at = start / WINDOW_BYTES * WINDOW_BYTES;
        while at < end {
            if self.find(file.key, at).is_none() {
                let hot = hot_pages(file, at);
                let range = Range { start: at, len: WINDOW_BYTES, hot };
                self.add(Window { key: file.key, fd: file.fd, range, ..FREE });
            }
            at += WINDOW_BYTES;
        }
    }

    /// The whole file of a stream was read or written; no page of it was cached before.
    pub(crate) fn watch_all(&mut self, file: &File, is_dirty: bool, used: u64) {
        let range = Range { len: file.size, ..FREE.range };
        self.add(Window { key: file.key, fd: file.fd, is_dirty, used, range, ..FREE });
    }

    fn add(&mut self, window: Window) {
        let mut oldest = 0;
        for (index, known) in self.all.iter().enumerate() {
            if known.sequence < self.all[oldest].sequence {
                oldest = index;
            }
        }
        self.settle(oldest);
        begin_to_watch(window.fd);
        self.last_sequence += 1;
        self.all[oldest] = Window { sequence: self.last_sequence, ..window };
    }

    /// A range was read.
    pub(crate) fn read(&mut self, file: &File, start: u64, end: u64) {
        self.each_of(file, start, end, |_| {});
    }

    /// A range was written. Windows that are complete are written back in the background.
    pub(crate) fn wrote(&mut self, file: &File, start: u64, end: u64) {
        self.each_of(file, start, end, |window| {
            window.is_dirty = true;
            let range = window.range;
            if end >= range.start + range.len {
                sys::begin_writeback(file.fd, range.start, range.len);
            }
        });
    }

    fn each_of(&mut self, file: &File, start: u64, end: u64, mut work: impl FnMut(&mut Window)) {
        let mut at = start / WINDOW_BYTES * WINDOW_BYTES;
        while at < end {
            let used = end.min(at + WINDOW_BYTES) - start.max(at);
            match self.find(file.key, at) {
                Some(window) => {
                    window.used += used;
                    if window.fd != file.fd {
                        window.fd = file.fd;
                        begin_to_watch(file.fd);
                    }
                    work(window);
                }
                None => add(&counters().left, used),
            }
            at += WINDOW_BYTES;
        }
    }

    /// A descriptor is about to be closed. `is_locked`: the process may have POSIX locks on the file.
    pub(crate) fn close(&mut self, fd: i32, is_locked: impl Fn(Key) -> bool) {
        let (mut file, mut second) = (None, None);
        for index in 0..WINDOWS {
            let window = self.all[index];
            if window.sequence == 0 || window.fd != fd {
                continue;
            }
            self.all[index] = FREE;
            let file: &Option<File> = file.get_or_insert_with(|| File::regular(fd));
            let Some(file) = file.filter(|file| file.key == window.key) else {
                add(&counters().left, window.used);
                continue;
            };
            if window.is_dirty && !is_locked(window.key) {
                let second: &Option<Second> = second.get_or_insert_with(|| Second::of(&file));
                if second.as_ref().is_some_and(|second| second.send(&window.range)) {
                    continue;
                }
            }
            window.clean();
        }
        let (word, bit) = place(fd);
        if !self.all.iter().any(|window| window.sequence > 0 && place(window.fd) == (word, bit)) {
            WATCHED[word].fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Settle everything.
    pub(crate) fn settle_all(&mut self) {
        for window in self.all.iter().filter(|window| window.sequence > 0 && window.is_dirty) {
            if File::key_of(window.fd) == Some(window.key) {
                sys::begin_writeback(window.fd, window.range.start, window.range.len);
            }
        }
        for index in 0..WINDOWS {
            self.settle(index);
        }
    }

    /// In a forked child: the windows are the parent's.
    pub(crate) fn forget(&mut self) {
        self.all.fill(FREE);
        for word in &WATCHED {
            word.store(0, Ordering::Relaxed);
        }
    }

    fn settle(&mut self, index: usize) {
        let window = core::mem::replace(&mut self.all[index], FREE);
        if window.sequence == 0 {
            return;
        }
        if File::key_of(window.fd) != Some(window.key) {
            add(&counters().left, window.used);
            return;
        }
        window.clean();
    }
}

impl Window {
    /// Write back and drop its pages.
    fn clean(&self) {
        if self.is_dirty {
            sys::write_back(self.fd, self.range.start, self.range.len);
        }
        self.range.each_cold(|start, len| sys::drop_pages(self.fd, start, len));
    }
}

/// The cached pages of the window at `start`. If the kernel does not tell, all of them.
fn hot_pages(file: &File, start: u64) -> PageSet {
    let mut hot = [0; PAGES / 64];
    let pages = file.size.saturating_sub(start).div_ceil(PAGE_BYTES).min(PAGES as u64) as usize;
    if pages == 0 || hot_by_count(file.fd, start, 0, pages, &mut hot).is_some() {
        return hot;
    }
    let mut map = [0; PAGES];
    if sys::cached_map(file.fd, start, &mut map[..pages]).is_none() {
        return [u64::MAX; PAGES / 64];
    }
    for (page, state) in map.iter().enumerate() {
        hot[page / 64] |= u64::from(state & 1) << (page % 64);
    }
    hot
}

/// By halving, because files are mostly cached in whole or not at all.
fn hot_by_count(fd: i32, start: u64, first: usize, count: usize, hot: &mut PageSet) -> Option<()> {
    let range = start + first as u64 * PAGE_BYTES;
    let cached = sys::cached_pages(fd, range, count as u64 * PAGE_BYTES)?;
    if cached == 0 {
        return Some(());
    }
    if cached >= count as u64 {
        for page in first..first + count {
            hot[page / 64] |= 1 << (page % 64);
        }
        return Some(());
    }
    let half = count / 2;
    hot_by_count(fd, start, first, half, hot)?;
    hot_by_count(fd, start, first + half, count - half, hot)
}

//! Ranges of files in use, and which of their pages were cached before.
//!
//! A window is 2 MiB, the largest page of the cache, so that no cached page is in two windows. It is made before the first transfer in its
//! range. When it is settled, it is written back if needed, and its pages that were not cached before are dropped. A window is
//! settled when its file is closed, when it is the oldest one and another one is needed, and when the process ends.
//!
//! Dirty windows of closed files are written back together, through second descriptors, so that a close does not wait for the disk.
//!
//! Invariants:
//! 1. A window has a descriptor of its file; before use, it is checked that the descriptor still refers to that file.
//! 2. Owned descriptors are closed by this library only, and never while the process may have POSIX locks on their file.

use crate::file::{File, Key, ProcPath};
use crate::settings::{add, counters};
use crate::sys::{self, PAGE_BYTES};

pub(crate) const WINDOW_BYTES: u64 = 2 << 20;
const PAGES: usize = (WINDOW_BYTES / PAGE_BYTES) as usize;
const WINDOWS: usize = 160;
/// The kernel reads ahead at most this many windows of a file that is read in order.
const AHEAD: u64 = 8;
/// The kernel reads at most this much around other reads.
const AROUND_BYTES: u64 = 512 << 10;
/// The number of closed files that are written back together, which is much faster than one by one.
const OWNED_MAX: usize = 96;
/// Programs that count descriptors see theirs only.
const OWNED_FROM: i32 = 900;

#[derive(Clone, Copy)]
struct Window {
    /// Grows with each window; 0 is free.
    sequence: u64,
    key: Key,
    start: u64,
    len: u64,
    fd: i32,
    is_owned: bool,
    is_dirty: bool,
    /// Bytes transferred.
    used: u64,
    /// Pages that were cached before, by bit.
    hot: [u64; PAGES / 64],
}

const FREE: Window = Window {
    sequence: 0,
    key: Key::NONE,
    start: 0,
    len: 0,
    fd: -1,
    is_owned: false,
    is_dirty: false,
    used: 0,
    hot: [0; PAGES / 64],
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
        self.all.iter_mut().find(|window| window.sequence > 0 && window.key == key && window.start == start)
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
                self.add(Window { key: file.key, start: at, len: WINDOW_BYTES, fd: file.fd, hot, ..FREE });
            }
            at += WINDOW_BYTES;
        }
    }

    /// The whole file of a stream was read or written; no page of it was cached before.
    pub(crate) fn watch_all(&mut self, file: &File, is_dirty: bool, used: u64) {
        self.add(Window { key: file.key, len: file.size, fd: file.fd, is_dirty, used, ..FREE });
    }

    fn add(&mut self, window: Window) {
        let mut oldest = 0;
        for (index, known) in self.all.iter().enumerate() {
            if known.sequence < self.all[oldest].sequence {
                oldest = index;
            }
        }
        self.settle(oldest);
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
            if end >= window.start + window.len {
                sys::begin_writeback(file.fd, window.start, window.len);
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
                    work(window);
                }
                None => add(&counters().left, used),
            }
            at += WINDOW_BYTES;
        }
    }

    /// The descriptor of `file` is about to be closed. `may_reopen`: the process has no POSIX locks on it.
    pub(crate) fn close(&mut self, file: &File, may_reopen: bool) {
        let mut owned = None;
        for index in 0..WINDOWS {
            let window = self.all[index];
            if window.sequence == 0 || window.is_owned || window.key != file.key {
                continue;
            }
            self.all[index].fd = file.fd;
            if window.is_dirty && may_reopen {
                if owned.is_none() {
                    owned = self.reopen(file);
                }
                if let Some(fd) = owned {
                    self.all[index] = Window { fd, is_owned: true, ..window };
                    continue;
                }
            }
            self.settle(index);
        }
    }

    /// A second descriptor of a file.
    fn reopen(&mut self, file: &File) -> Option<i32> {
        if self.owned_files() >= OWNED_MAX {
            self.settle_owned(|_| true);
        }
        let low = sys::open(ProcPath::of(file.fd).bytes(), 0)?;
        let fd = sys::duplicate(low, OWNED_FROM);
        sys::close(low);
        fd
    }

    fn owned_files(&self) -> usize {
        let is_first = |index: usize| {
            let fd = self.all[index].fd;
            self.all[index].is_owned
                && !self.all[..index].iter().any(|window| window.is_owned && window.fd == fd)
        };
        (0..WINDOWS).filter(|index| is_first(*index)).count()
    }

    /// Whether a descriptor belongs to the library.
    pub(crate) fn owns(&self, fd: i32) -> bool {
        self.all.iter().any(|window| window.is_owned && window.fd == fd)
    }

    /// Settle the windows of closed files that `fits` selects, and close their descriptors.
    fn settle_owned(&mut self, fits: impl Fn(&Window) -> bool) {
        self.begin_writeback(|window| window.is_owned && fits(window));
        for index in 0..WINDOWS {
            if self.all[index].is_owned && fits(&self.all[index]) {
                self.settle(index);
            }
        }
    }

    /// The process is about to lock a file: close the library's descriptors of it, which would release the lock later.
    pub(crate) fn before_lock(&mut self, key: Key) {
        self.settle_owned(|window| window.key == key);
    }

    /// Give up one descriptor.
    pub(crate) fn release(&mut self, fd: i32) {
        self.settle_owned(|window| window.fd == fd);
    }

    /// Give up descriptors of a range of numbers.
    pub(crate) fn release_range(&mut self, first: u32, last: u32) {
        self.settle_owned(|window| (first..=last).contains(&window.fd.unsigned_abs()));
    }

    /// Begin to write back all dirty windows that `fits` selects, so that they are written at once.
    fn begin_writeback(&self, fits: impl Fn(&Window) -> bool) {
        for window in self.all.iter().filter(|window| window.sequence > 0 && window.is_dirty && fits(window))
        {
            if File::key_of(window.fd) == Some(window.key) {
                sys::begin_writeback(window.fd, window.start, window.len);
            }
        }
    }

    /// Settle everything.
    pub(crate) fn settle_all(&mut self) {
        self.begin_writeback(|_| true);
        for index in 0..WINDOWS {
            self.settle(index);
        }
    }

    /// In a forked child: the windows are the parent's.
    pub(crate) fn forget(&mut self) {
        for index in 0..WINDOWS {
            let fd = self.all[index].fd;
            if self.all[index].is_owned && !self.all[..index].iter().any(|window| window.fd == fd) {
                sys::close(fd);
            }
        }
        self.all.fill(FREE);
    }

    fn settle(&mut self, index: usize) {
        let window = core::mem::replace(&mut self.all[index], FREE);
        if window.sequence == 0 {
            return;
        }
        let is_same = File::key_of(window.fd) == Some(window.key);
        if !is_same {
            add(&counters().left, window.used);
            return;
        }
        if window.is_dirty {
            sys::write_back(window.fd, window.start, window.len);
        }
        drop_cold(&window);
        if window.is_owned && !self.owns(window.fd) {
            sys::close(window.fd);
        }
    }
}

/// Drop the pages that were not cached before.
fn drop_cold(window: &Window) {
    if window.hot.iter().all(|bits| *bits == 0) {
        if window.len > 0 {
            sys::drop_pages(window.fd, window.start, window.len);
        }
        return;
    }
    let is_hot = |page: usize| window.hot[page / 64] >> (page % 64) & 1 == 1;
    let mut page = 0;
    while page < PAGES {
        let first = page;
        while page < PAGES && !is_hot(page) {
            page += 1;
        }
        if page > first {
            let start = window.start + first as u64 * PAGE_BYTES;
            sys::drop_pages(window.fd, start, (page - first) as u64 * PAGE_BYTES);
        }
        page += 1;
    }
}

/// The cached pages of the window at `start`. If the kernel does not tell, all of them.
fn hot_pages(file: &File, start: u64) -> [u64; PAGES / 64] {
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
fn hot_by_count(fd: i32, start: u64, first: usize, count: usize, hot: &mut [u64; PAGES / 64]) -> Option<()> {
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

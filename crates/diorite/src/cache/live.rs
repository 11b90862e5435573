//! Live pages: cached pages that windows of mapped views show, in memory that any thread loads from and stores to at any time.
//!
//! Where it sits: beside the arena. A file has one [`LiveMemory`], in which a page has the place that it has in the file; while windows
//! show the page, its content is there, and its frame in the arena has what the device has (or is being given). Which pages are live is
//! in their state (`pages.rs`), and how they become live and are written back in `content/file_cache/live.rs`.
//!
//! Invariants:
//! 1. All access to the memory is by relaxed atomic words, so that no call and no store of a window makes another undefined.
//! 2. A change of a part of a word keeps what others store to the rest of it at the same time.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use diorite_block::sync::{Mutex, Rank};
use diorite_device::{SharedMemory, SharedWords};

use crate::cache::arena::PAGE_SIZE;
use crate::{Error, Result};

/// Bytes of a word.
pub(crate) const WORD: usize = size_of::<u64>();
const PAGE_WORDS: usize = PAGE_SIZE as usize / WORD;
/// Pages of a mapping, or a multiple: few large ones, which views share. A process can have some ten thousand.
const MAPPED_PAGES: u64 = if cfg!(miri) { 64 } else { 1 << 18 };
/// Bytes of the memory of one file, nearly all of which never exist.
const MEMORY_BYTES: u64 = 1 << 62;

/// Pages of a file, at an address.
#[derive(Debug)]
pub(crate) struct Mapping {
    pages: Range<u64>,
    words: SharedWords,
}

impl Mapping {
    /// One page.
    pub(crate) fn page(&self, page: u64) -> LivePage<'_> {
        let at = (page - self.pages.start) as usize * PAGE_WORDS;
        LivePage(&self.words[at..at + PAGE_WORDS])
    }

    /// The words of a range of bytes of the file that are whole.
    pub(crate) fn words(&self, bytes: &Range<u64>) -> &[AtomicU64] {
        let start = (bytes.start - self.pages.start * PAGE_SIZE).div_ceil(WORD as u64) as usize;
        let end = (bytes.end - self.pages.start * PAGE_SIZE) as usize / WORD;
        &self.words[start.min(end)..end]
    }

    fn contains(&self, pages: &Range<u64>) -> bool {
        self.pages.start <= pages.start && pages.end <= self.pages.end
    }
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct LiveMemory {
    memory: OnceLock<SharedMemory>,
    mappings: Mutex<Vec<Arc<Mapping>>>,
    /// Windows that were closed while another thread had their range: pages.
    closing: Mutex<Vec<Range<u64>>>,
    /// Live pages.
    pages: AtomicUsize,
}

impl Default for LiveMemory {
    fn default() -> Self {
        Self {
            memory: OnceLock::new(),
            mappings: Mutex::ranked(Rank::LiveMappings, Vec::new()),
            closing: Mutex::ranked(Rank::LiveMappings, Vec::new()),
            pages: AtomicUsize::new(0),
        }
    }
}

impl LiveMemory {
    /// Whether no page is live.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.load(std::sync::atomic::Ordering::Acquire) == 0
    }

    /// Pages become live.
    pub(crate) fn add(&self, pages: usize) {
        self.pages.fetch_add(pages, std::sync::atomic::Ordering::AcqRel);
    }

    /// These pages are not live any more; their memory is given back.
    pub(crate) fn end(&self, pages: &[u64]) {
        for run in pages.chunk_by(|a, b| a + 1 == *b) {
            let bytes = run[0] * PAGE_SIZE..(run[run.len() - 1] + 1) * PAGE_SIZE;
            self.memory.get().inspect(|memory| memory.discard(bytes));
        }
        self.pages.fetch_sub(pages.len(), std::sync::atomic::Ordering::AcqRel);
    }

    /// The memory of a range of pages, in one piece.
    pub(crate) fn map(&self, pages: Range<u64>) -> Result<Arc<Mapping>> {
        let no_memory = |source| Error::Os { what: "cannot map a view", source };
        let memory = if let Some(memory) = self.memory.get() {
            memory
        } else {
            let made = SharedMemory::sparse(MEMORY_BYTES).map_err(no_memory)?;
            self.memory.get_or_init(|| made)
        };
        let end = pages.end.next_multiple_of(MAPPED_PAGES).min(MEMORY_BYTES / PAGE_SIZE);
        let pages = pages.start / MAPPED_PAGES * MAPPED_PAGES..end;
        let mut mappings = self.mappings.lock();
        if let Some(found) = mappings.iter().find(|mapping| mapping.contains(&pages)) {
            return Ok(Arc::clone(found));
        }
        if self.is_empty() {
            // What no view and no live page uses.
            mappings.retain(|mapping| Arc::strong_count(mapping) > 1);
        }
        let words = memory.map(pages.start * PAGE_SIZE..pages.end * PAGE_SIZE).map_err(no_memory)?;
        let mapping = Arc::new(Mapping { pages, words });
        mappings.push(Arc::clone(&mapping));
        Ok(mapping)
    }

    /// A mapping that has a live page.
    pub(crate) fn of_page(&self, page: u64) -> Arc<Mapping> {
        let mappings = self.mappings.lock();
        let found = mappings.iter().find(|mapping| mapping.pages.contains(&page));
        Arc::clone(found.expect("a live page is mapped"))
    }

    /// A window was closed while its range was in use.
    pub(crate) fn close_later(&self, pages: Range<u64>) {
        self.closing.lock().push(pages);
    }

    /// Windows that wait to be closed.
    pub(crate) fn take_closing(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut *self.closing.lock())
    }
}

/// A page of live memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LivePage<'a>(&'a [AtomicU64]);

impl LivePage<'_> {
    /// Copy bytes from `at` on out.
    pub(crate) fn read(self, at: usize, into: &mut [u8]) {
        for (word, bytes) in words_of(at, into.len()) {
            let now = self.0[word].load(Relaxed).to_ne_bytes();
            let from = word * WORD + bytes.start - at;
            into[from..from + bytes.len()].copy_from_slice(&now[bytes]);
        }
    }

    /// Store bytes from `at` on.
    pub(crate) fn write(self, at: usize, from: &[u8]) {
        for (word, bytes) in words_of(at, from.len()) {
            let start = word * WORD + bytes.start - at;
            let new = &from[start..start + bytes.len()];
            if let Ok(whole) = <[u8; WORD]>::try_from(new) {
                self.0[word].store(u64::from_ne_bytes(whole), Relaxed);
            } else {
                change(&self.0[word], |now| now[bytes.clone()].copy_from_slice(new));
            }
        }
    }

    /// Store `new` where the page has what `old` has: what was stored since it was `old` stays.
    pub(crate) fn merge(self, old: &[u8], new: &[u8]) {
        let (old, new) = (old.chunks_exact(WORD), new.chunks_exact(WORD));
        for (word, (old, new)) in self.0.iter().zip(old.zip(new)) {
            if old != new {
                change(word, |now| {
                    for (now, (old, new)) in now.iter_mut().zip(old.iter().zip(new)) {
                        *now = if *now == *old { *new } else { *now };
                    }
                });
            }
        }
    }

    /// Whether a range of bytes, of whole words but at the end, is other than `frame` has.
    pub(crate) fn differs(self, bytes: Range<usize>, frame: &[u8]) -> bool {
        words_of(bytes.start, bytes.len()).any(|(word, within)| {
            let now = self.0[word].load(Relaxed).to_ne_bytes();
            let at = word * WORD;
            now[within.clone()] != frame[at + within.start..at + within.end]
        })
    }
}

/// Bytes of a window that are not words of their own.
pub(crate) fn load_bytes(mapping: &Mapping, mut at: u64, mut into: &mut [u8]) {
    while !into.is_empty() {
        let within = (at % PAGE_SIZE) as usize;
        let (now, later) = into.split_at_mut(into.len().min(PAGE_SIZE as usize - within));
        mapping.page(at / PAGE_SIZE).read(within, now);
        at += now.len() as u64;
        into = later;
    }
}

/// As [`load_bytes`], the other way.
pub(crate) fn store_bytes(mapping: &Mapping, mut at: u64, mut from: &[u8]) {
    while !from.is_empty() {
        let within = (at % PAGE_SIZE) as usize;
        let (now, later) = from.split_at(from.len().min(PAGE_SIZE as usize - within));
        mapping.page(at / PAGE_SIZE).write(within, now);
        at += now.len() as u64;
        from = later;
    }
}

/// Change a word as one step.
fn change(word: &AtomicU64, mut change: impl FnMut(&mut [u8; WORD])) {
    let changed = |now: u64| {
        let mut bytes = now.to_ne_bytes();
        change(&mut bytes);
        Some(u64::from_ne_bytes(bytes))
    };
    // Always stores.
    let _ = word.fetch_update(Relaxed, Relaxed, changed);
}

/// The words of a range of bytes, each with the bytes of it that lie in the range.
fn words_of(start: usize, len: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    let end = start + len;
    (start / WORD..end.div_ceil(WORD)).map(move |word| {
        let base = word * WORD;
        (word, start.max(base) - base..end.min(base + WORD) - base)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live() -> LiveMemory {
        LiveMemory::default()
    }

    #[test]
    fn bytes_go_in_and_come_out_at_any_place() {
        let memory = live();
        let mapping = memory.map(2..4).expect("map");
        let data: Vec<u8> = (0..100).collect();
        for at in [2 * PAGE_SIZE, 2 * PAGE_SIZE + 3, 3 * PAGE_SIZE - 50, 4 * PAGE_SIZE - 100] {
            store_bytes(&mapping, at, &data);
            let mut read = vec![0; 100];
            load_bytes(&mapping, at, &mut read);
            assert_eq!(read, data, "at {at}");
        }
        assert_eq!(mapping.words(&(2 * PAGE_SIZE + 1..2 * PAGE_SIZE + 25)).len(), 2);
        assert_eq!(mapping.words(&(2 * PAGE_SIZE + 1..2 * PAGE_SIZE + 7)).len(), 0);
        assert!(Arc::ptr_eq(&memory.map(3..4).expect("map"), &mapping), "one memory");
    }

    /// A store beside a merge is lost by neither: it stays, and the bytes around it are new.
    #[test]
    fn a_merge_keeps_what_was_stored() {
        let memory = live();
        let mapping = memory.map(0..1).expect("map");
        let page = mapping.page(0);
        let (old, mut new) = (vec![1; PAGE_SIZE as usize], vec![1; PAGE_SIZE as usize]);
        new[8..24].fill(2);
        page.write(0, &old);
        page.write(10, &[9]);
        page.merge(&old, &new);
        let mut read = vec![0; 32];
        page.read(0, &mut read);
        assert_eq!(read[..], [&[1; 8][..], &[2, 2, 9], &[2; 13], &[1; 8]].concat());
        assert!(page.differs(8..16, &new) && !page.differs(16..4096, &new));
    }

    /// Invariant 2, with real threads.
    #[test]
    fn threads_change_bytes_of_one_word() {
        let memory = live();
        let mapping = memory.map(0..1).expect("map");
        std::thread::scope(|scope| {
            for byte in 0..4_usize {
                let page = mapping.page(0);
                scope.spawn(move || {
                    for value in 0..if cfg!(miri) { 8 } else { 200_u8 } {
                        page.write(byte, &[value]);
                        let mut now = [0];
                        page.read(byte, &mut now);
                        assert_eq!(now, [value], "no other thread writes this byte");
                    }
                });
            }
        });
    }
}

//! The heap for transfers: chunks of huge pages, cut into buffers. A ring registers a chunk as a whole, once.
//!
//! Where it sits: under [`crate::AlignedBuf`], above [`Region`]. A buffer of at most a huge page crosses no boundary of huge pages, so
//! a transfer to or from it is one segment for the disk.
//!
//! Invariants:
//! 1. A byte of a chunk is in its list of free ranges or in one [`HeapBuf`], never in both, never twice.
//! 2. The bytes of a chunk above `used_to` were never allocated, and are zero.
//! 3. A chunk stays mapped while it has a buffer. One chunk without buffers is kept, others are unmapped.
//!
//! Locking: one leaf lock around the list of chunks. Chunks are mapped and unmapped without it. One thread at a time maps a chunk, so that
//! concurrent threads share it.
//!
//! Safety policy: a [`HeapBuf`] is the only owner of its range of a chunk (invariant 1), which the chunk keeps mapped. Like a
//! [`Region`] it gives out only a pointer and a length.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::arena::ArenaEntry;
use super::region::{HUGE_PAGE, Region, out_of_memory};
use crate::fork::OfProcess;

/// Buffers begin and end at multiples of this.
const UNIT: usize = 4096;
/// Chunks are multiples of this long.
const CHUNK_UNIT: usize = if cfg!(miri) { 64 << 10 } else { HUGE_PAGE };
/// A new chunk is a quarter as long as all others together, up to this length, or as long as the buffer. All of it is allocated, because
/// it is registered as a whole. So a longer chunk wastes memory.
const CHUNK_BYTES_MAX: usize = 32 << 20;
/// The largest length of an object in Rust. No sum of two offsets below it overflows.
const LEN_MAX: usize = isize::MAX as usize;

/// A range of the heap, zeroed when it is allocated.
#[derive(Debug)]
pub(crate) struct HeapBuf {
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: the range belongs to this value alone (invariant 1), as a `Vec`'s memory to the `Vec`.
unsafe impl Send for HeapBuf {}
// SAFETY: as above; a shared `HeapBuf` gives out only its address and length.
unsafe impl Sync for HeapBuf {}

/// Memory that a ring registers as a whole.
#[derive(Debug)]
struct Chunk {
    /// Before `region`, so that the entry is gone when the memory is.
    _entry: ArenaEntry,
    region: Region,
    /// Free ranges: start and length.
    free: BTreeMap<usize, usize>,
    used_to: usize,
}

static CHUNKS: Mutex<Vec<Chunk>> = Mutex::new(Vec::new());
/// Held while a chunk is made.
static GROWING: OfProcess<Mutex<()>> = OfProcess::new();

fn chunks() -> MutexGuard<'static, Vec<Chunk>> {
    CHUNKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the heap supports this alignment.
pub(crate) fn can_align(alignment: usize) -> bool {
    alignment <= CHUNK_UNIT
}

impl HeapBuf {
    /// `len` zeroed bytes at a multiple of `alignment`, a power of two that [`can_align`].
    pub(crate) fn zeroed(len: usize, alignment: usize) -> io::Result<Self> {
        assert!(alignment.is_power_of_two() && can_align(alignment), "alignment {alignment}");
        let (buffer, is_used) = Self::take(len, alignment)?;
        // SAFETY: the range is ours alone (invariant 1) and mapped.
        unsafe { buffer.address.write_bytes(0, is_used) };
        Ok(buffer)
    }

    /// A range, and the number of bytes at its start that were used before.
    fn take(len: usize, alignment: usize) -> io::Result<(Self, usize)> {
        let whole = len.max(1).checked_next_multiple_of(UNIT).filter(|&whole| whole <= LEN_MAX);
        let whole = whole.ok_or_else(out_of_memory)?;
        if let Ok(found) = Self::take_free(whole, len, alignment) {
            return Ok(found);
        }
        let _growing = GROWING.get().lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have mapped a chunk meanwhile.
        let mapped = match Self::take_free(whole, len, alignment) {
            Ok(found) => return Ok(found),
            Err(mapped) => mapped,
        };
        let mut chunk = Chunk::new(whole.max((mapped / 4).min(CHUNK_BYTES_MAX)))?;
        let found = chunk.take(whole, len, alignment).expect("a new chunk has space for what it is made for");
        chunks().push(chunk);
        Ok(found)
    }

    /// The same from the present chunks; without space, their total length.
    fn take_free(whole: usize, len: usize, alignment: usize) -> Result<(Self, usize), usize> {
        let mut chunks = chunks();
        let found = chunks.iter_mut().find_map(|chunk| chunk.take(whole, len, alignment));
        found.ok_or_else(|| chunks.iter().map(|chunk| chunk.region.len()).sum())
    }

    pub(crate) fn address(&self) -> NonNull<u8> {
        self.address
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for HeapBuf {
    fn drop(&mut self) {
        let unused = {
            let mut chunks = chunks();
            let at = chunks.iter().position(|chunk| chunk.offset_of(self.address).is_some());
            let at = at.expect("a buffer lies in a chunk");
            chunks[at].give_back(self.address, self.len);
            let unused = |chunk: &Chunk| chunk.free.get(&0) == Some(&chunk.region.len());
            let others = chunks.iter().filter(|chunk| unused(chunk)).count() > 1;
            let too_long = chunks[at].region.len() > CHUNK_BYTES_MAX;
            (unused(&chunks[at]) && (others || too_long)).then(|| chunks.swap_remove(at))
        };
        // Unmapped without the lock, because rings unregister it first.
        drop(unused);
    }
}

impl Chunk {
    fn new(len: usize) -> io::Result<Self> {
        let len = len.checked_next_multiple_of(CHUNK_UNIT).ok_or_else(out_of_memory)?;
        let region = if cfg!(miri) {
            Region::zeroed(len, CHUNK_UNIT)
        } else {
            Region::on_huge_pages(len, CHUNK_UNIT)
        }?;
        region.populate();
        let entry = ArenaEntry::new(region.address().addr().get(), len);
        Ok(Self { _entry: entry, region, free: BTreeMap::from([(0, len)]), used_to: 0 })
    }

    /// The offset of `address`, if it is in the chunk.
    fn offset_of(&self, address: NonNull<u8>) -> Option<usize> {
        let offset = address.addr().get().checked_sub(self.region.address().addr().get())?;
        (offset < self.region.len()).then_some(offset)
    }

    /// The first free range of `whole` bytes for a buffer of `len`, and the number of its bytes that were used before.
    fn take(&mut self, whole: usize, len: usize, alignment: usize) -> Option<(HeapBuf, usize)> {
        let (start, free_start, free_len) = self.free.iter().find_map(|(&free_start, &free_len)| {
            let start = fit(free_start, whole, alignment);
            (start + whole <= free_start + free_len).then_some((start, free_start, free_len))
        })?;
        let (end, free_end) = (start + whole, free_start + free_len);
        self.free.remove(&free_start);
        if start > free_start {
            self.free.insert(free_start, start - free_start);
        }
        if free_end > end {
            self.free.insert(end, free_end - end);
        }
        let was_used = self.used_to.saturating_sub(start).min(len);
        self.used_to = self.used_to.max(end);
        // SAFETY: `start` lies inside the region.
        let address = unsafe { self.region.address().add(start) };
        Some((HeapBuf { address, len }, was_used))
    }

    fn give_back(&mut self, address: NonNull<u8>, len: usize) {
        let mut start = self.offset_of(address).expect("a buffer of this chunk");
        let mut end = start + len.max(1).next_multiple_of(UNIT);
        if let Some((&before, &before_len)) = self.free.range(..start).next_back() {
            assert!(before + before_len <= start, "a range is given back once");
            if before + before_len == start {
                self.free.remove(&before);
                start = before;
            }
        }
        if let Some(after_len) = self.free.remove(&end) {
            end += after_len;
        }
        self.free.insert(start, end - start);
    }
}

/// The first aligned offset from `from` on where the range crosses the fewest boundaries of huge pages.
fn fit(from: usize, len: usize, alignment: usize) -> usize {
    let start = from.next_multiple_of(alignment);
    let huge_end = start.next_multiple_of(HUGE_PAGE);
    let crosses = huge_end > start && start + len > huge_end;
    if crosses { huge_end } else { start }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    fn check(chunk: &Chunk) {
        let mut last_end = None;
        for (&start, &len) in &chunk.free {
            assert!(len > 0 && last_end.is_none_or(|end| end < start), "ranges that touch are one");
            last_end = Some(start + len);
        }
        assert!(last_end.is_none_or(|end| end <= chunk.region.len()));
    }

    /// Invariants 1 and 2, with a mark in each buffer.
    #[test]
    fn buffers_are_disjoint_zeroed_and_come_back() {
        let mut chunk = Chunk::new(4 * CHUNK_UNIT).expect("memory");
        let (mut state, mut taken) = (1_u64, Vec::<(HeapBuf, u8)>::new());
        for round in 0..if cfg!(miri) { 60 } else { 2000_u32 } {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let random = (state >> 33) as usize;
            if random % 5 < 3 {
                let len = 1 + random % (CHUNK_UNIT / 8);
                let alignment = 512 << (random % 4);
                let whole = len.next_multiple_of(UNIT);
                let Some((buffer, used)) = chunk.take(whole, len, alignment) else { continue };
                assert_eq!(buffer.address.addr().get() % alignment, 0);
                let start = chunk.offset_of(buffer.address).expect("inside");
                assert_eq!(start / HUGE_PAGE, (start + len - 1) / HUGE_PAGE, "one huge page");
                // SAFETY: the buffer is ours, mapped and initialised; `used` bytes of it were used before.
                let slice = unsafe {
                    buffer.address.write_bytes(0, used);
                    std::slice::from_raw_parts_mut(buffer.address.as_ptr(), len)
                };
                assert!(slice.iter().all(|byte| *byte == 0), "round {round}");
                slice.fill(round as u8 | 1);
                taken.push((buffer, round as u8 | 1));
            } else if !taken.is_empty() {
                let (buffer, mark) = taken.swap_remove(random % taken.len());
                // SAFETY: as above.
                let slice = unsafe { std::slice::from_raw_parts(buffer.address.as_ptr(), buffer.len) };
                assert!(slice.iter().all(|byte| *byte == mark), "no other buffer was written there");
                chunk.give_back(buffer.address, buffer.len);
                // It is of no chunk in the list.
                std::mem::forget(buffer);
            }
            check(&chunk);
        }
        for (buffer, _) in taken {
            chunk.give_back(buffer.address, buffer.len);
            std::mem::forget(buffer);
        }
        assert_eq!(chunk.free, BTreeMap::from([(0, chunk.region.len())]));
    }

    #[test]
    fn a_buffer_crosses_the_fewest_huge_pages() {
        assert_eq!(fit(0, 4096, 4096), 0);
        assert_eq!(fit(HUGE_PAGE - 4096, 4096, 4096), HUGE_PAGE - 4096);
        assert_eq!(fit(HUGE_PAGE - 4096, 8192, 4096), HUGE_PAGE);
        assert_eq!(fit(4096, HUGE_PAGE, 4096), HUGE_PAGE);
        assert_eq!(fit(HUGE_PAGE, 3 * HUGE_PAGE, 4096), HUGE_PAGE);
        assert_eq!(fit(512, 512, 8192), 8192);
    }

    /// The end of a range beyond all memory must not wrap around to one that is free.
    #[test]
    fn a_length_beyond_all_memory_is_an_error() {
        let first = HeapBuf::zeroed(UNIT, UNIT).expect("memory");
        for len in
            [usize::MAX, usize::MAX & !(UNIT - 1), usize::MAX - 3 * UNIT, isize::MAX as usize + 1, LEN_MAX]
        {
            assert!(HeapBuf::zeroed(len, UNIT).is_err(), "{len}");
        }
        drop(first);
    }

    /// Each thread without space mapped a chunk of its own, and used one buffer of it.
    #[test]
    fn concurrent_threads_share_a_new_chunk() {
        const THREADS: usize = 24;
        if cfg!(miri) {
            return;
        }
        let len = CHUNK_UNIT / 4;
        // So much that a new chunk has space for all.
        let mapped = HeapBuf::zeroed(8 * THREADS * len, UNIT).expect("memory");
        let (start, in_use) = (&Barrier::new(THREADS), &Barrier::new(THREADS + 1));
        // Other tests have chunks for long buffers.
        let is_usual = |len: &usize| *len <= CHUNK_BYTES_MAX;
        let sum = || chunks().iter().map(|chunk| chunk.region.len()).filter(is_usual).sum::<usize>();
        let before = sum();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(move || {
                    start.wait();
                    let buffer = HeapBuf::zeroed(len, UNIT).expect("memory");
                    in_use.wait();
                    in_use.wait();
                    drop(buffer);
                });
            }
            in_use.wait();
            let grown = sum().saturating_sub(before);
            in_use.wait();
            assert!(grown < THREADS * len * 4, "{grown} bytes for {}", THREADS * len);
        });
        drop(mapped);
    }

    #[test]
    fn memory_for_a_long_buffer_is_given_back() {
        let chunks_of = |len: usize| chunks().iter().filter(|chunk| chunk.region.len() >= len).count();
        if cfg!(miri) {
            return;
        }
        // Longer than the buffers of other tests.
        let long = 5 * CHUNK_BYTES_MAX;
        let buffer = HeapBuf::zeroed(long, 4096).expect("memory");
        assert_eq!(chunks_of(long), 1);
        drop(buffer);
        assert_eq!(chunks_of(long), 0);
    }
}

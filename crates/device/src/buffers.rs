//! A pool of equal buffers on huge pages that `io_uring` rings keep registered.
//!
//! Safety policy: a pool's memory is cut into disjoint slots. A slot's number is either in the free list or owned by exactly one
//! [`RegisteredBuf`], which alone makes references to the slot's bytes. Each `RegisteredBuf` keeps the memory alive.
//!
//! Invariants:
//! 1. Every slot number is in the free list or in one `RegisteredBuf`, never in both, never twice.
//!
//! Locking: one leaf lock around the free list.
#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use diorite_block::IoMemory;
use diorite_block::sync::{Condvar, Mutex, Rank};

use crate::buffer::AlignedBuf;
use crate::region::PageKind;

/// Alignment of pooled buffers, which every direct device takes.
const ALIGNMENT: usize = 4096;
/// The kernel registers at most this much memory as one buffer.
const ARENA_BYTES_MAX: usize = 1 << 30;

/// A fixed number of buffers of one size. Clones share the buffers.
#[derive(Clone)]
pub struct RegisteredBuffers {
    shared: Arc<Shared>,
}

struct Shared {
    free: Mutex<Vec<u32>>,
    returned: Condvar,
    arenas: Vec<AlignedBuf>,
    slots_per_arena: usize,
    slot_bytes: usize,
    buffer_bytes: usize,
    count: u32,
}

impl RegisteredBuffers {
    /// `count` buffers of `buffer_bytes`, each at a multiple of 4096.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(buffer_bytes: usize, count: u32) -> io::Result<Self> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let slot_bytes = buffer_bytes.max(1).checked_next_multiple_of(ALIGNMENT).ok_or_else(too_large)?;
        let slots_per_arena = (ARENA_BYTES_MAX / slot_bytes).max(1);
        let mut arenas = Vec::new();
        let mut missing = count as usize;
        while missing > 0 {
            let slots = missing.min(slots_per_arena);
            let len = slots.checked_mul(slot_bytes).ok_or_else(too_large)?;
            arenas.push(AlignedBuf::registered(len, ALIGNMENT)?);
            missing -= slots;
        }
        let free = Mutex::ranked(Rank::RegisteredBuffers, (0..count).rev().collect());
        let returned = Condvar::new();
        let shared = Shared { free, returned, arenas, slots_per_arena, slot_bytes, buffer_bytes, count };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Size of each buffer.
    pub fn buffer_bytes(&self) -> usize {
        self.shared.buffer_bytes
    }

    /// Number of buffers.
    pub fn count(&self) -> u32 {
        self.shared.count
    }

    /// Buffers that no thread has at this moment.
    pub fn available(&self) -> u32 {
        self.shared.free.lock().len() as u32
    }

    /// What kind of pages the buffers lie on.
    pub fn page_kind(&self) -> PageKind {
        self.shared.arenas.first().map_or(PageKind::Normal, AlignedBuf::page_kind)
    }

    /// A buffer, if one is free. Its content is what its last user left.
    pub fn try_take(&self) -> Option<RegisteredBuf> {
        let slot = self.shared.free.lock().pop()?;
        Some(self.buffer(slot))
    }

    /// A buffer; waits until one is free. Its content is what its last user left.
    pub fn take(&self) -> RegisteredBuf {
        assert!(self.shared.count > 0, "a pool without buffers never has one free");
        let mut free = self.shared.free.lock();
        loop {
            if let Some(slot) = free.pop() {
                drop(free);
                return self.buffer(slot);
            }
            free = self.shared.returned.wait(free);
        }
    }

    fn buffer(&self, slot: u32) -> RegisteredBuf {
        let (arena, at) =
            (slot as usize / self.shared.slots_per_arena, slot as usize % self.shared.slots_per_arena);
        let base = self.shared.arenas[arena].as_non_null();
        // SAFETY: `at` is smaller than the arena's number of slots, so the slot lies inside the arena.
        let address = unsafe { base.add(at * self.shared.slot_bytes) };
        RegisteredBuf { shared: Arc::clone(&self.shared), slot, address }
    }
}

impl fmt::Debug for RegisteredBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredBuffers")
            .field("buffer_bytes", &self.buffer_bytes())
            .field("count", &self.count())
            .field("available", &self.available())
            .finish_non_exhaustive()
    }
}

/// A buffer of a [`RegisteredBuffers`]; goes back when dropped.
pub struct RegisteredBuf {
    shared: Arc<Shared>,
    slot: u32,
    address: NonNull<u8>,
}

// SAFETY: the slot belongs to this value alone (invariant 1), as a `Vec`'s memory to the `Vec`.
unsafe impl Send for RegisteredBuf {}
// SAFETY: as above; a shared `RegisteredBuf` gives out only shared slices.
unsafe impl Sync for RegisteredBuf {}

impl Deref for RegisteredBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the slot is inside an arena that `shared` keeps alive, was zeroed at first, and is ours alone.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.shared.buffer_bytes) }
    }
}

impl DerefMut for RegisteredBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes it the only borrow.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.shared.buffer_bytes) }
    }
}

impl Drop for RegisteredBuf {
    fn drop(&mut self) {
        self.shared.free.lock().push(self.slot);
        self.shared.returned.notify_one();
    }
}

impl fmt::Debug for RegisteredBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredBuf")
            .field("slot", &self.slot)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

// SAFETY: the slot's address never changes, and the slot belongs to this value alone until it is dropped.
unsafe impl IoMemory for RegisteredBuf {
    fn as_slice(&self) -> &[u8] {
        self
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant 1, by writing a mark into every buffer at once.
    #[test]
    fn buffers_of_a_pool_are_disjoint_and_come_back() {
        let pool = RegisteredBuffers::new(5000, 4).unwrap();
        let mut taken: Vec<_> = (0..4).map(|_| pool.take()).collect();
        assert!(pool.try_take().is_none());
        for (mark, buffer) in taken.iter_mut().enumerate() {
            assert_eq!((buffer.len(), buffer.as_ptr().addr() % 4096), (5000, 0));
            buffer.fill(mark as u8);
        }
        for (mark, buffer) in taken.iter().enumerate() {
            assert!(buffer.iter().all(|byte| *byte == mark as u8));
        }
        taken.truncate(1);
        assert_eq!(pool.available(), 3);
        drop(pool);
        taken[0].fill(9);
        assert_eq!(taken[0][4999], 9, "a buffer outlives the pool's handle");
    }

    #[test]
    fn take_waits_for_a_buffer() {
        let pool = RegisteredBuffers::new(4096, 1).unwrap();
        let held = pool.take();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| pool.take().len());
            std::thread::yield_now();
            drop(held);
            assert_eq!(waiter.join().unwrap(), 4096);
        });
    }
}

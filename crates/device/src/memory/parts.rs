//! One memory, cut into parts that transfers own at the same time.
//!
//! Where it sits: over any memory of a queue. A loader cuts an arena into transfers, and joins it when all have ended.
//!
//! Invariants:
//! 1. Parts are disjoint, because each is cut from the front of what is left.
//! 2. The whole memory is returned only when no part exists.
//!
//! Safety policy: the owner gives out only its address until it is taken apart, and a part accesses only its own range.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use diorite_block::IoMemory;

/// The memory of all parts. Its fields are constant, and the memory itself is not accessed through `memory`.
struct Owner {
    memory: Box<dyn IoMemory>,
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: `IoMemory` is `Send`, and the address belongs to it.
unsafe impl Send for Owner {}
// SAFETY: a shared owner gives out only its address and its length.
unsafe impl Sync for Owner {}

impl Owner {
    fn new(mut memory: Box<dyn IoMemory>) -> Self {
        let bytes = memory.as_mut_slice();
        let (address, len) = (NonNull::from(&mut *bytes).cast(), bytes.len());
        Self { memory, address, len }
    }

    /// The address of byte `at`.
    fn at(&self, at: usize) -> NonNull<u8> {
        assert!(at <= self.len, "byte {at} of {}", self.len);
        // SAFETY: the byte lies in the memory, or at its end.
        unsafe { self.address.add(at) }
    }
}

/// Memory that is cut into parts (see the module's head).
pub struct MemoryParts {
    owner: Arc<Owner>,
    used: usize,
}

impl MemoryParts {
    /// Begin with the whole memory.
    pub fn new(memory: Box<dyn IoMemory>) -> Self {
        Self { owner: Arc::new(Owner::new(memory)), used: 0 }
    }

    /// Cut `len` bytes from the front. `None` if fewer are left.
    pub fn take(&mut self, len: usize) -> Option<MemoryPart> {
        let end = self.used.checked_add(len).filter(|end| *end <= self.owner.len)?;
        let range = self.used..end;
        self.used = end;
        Some(MemoryPart { owner: Arc::clone(&self.owner), range })
    }

    /// Allocates the pages of this memory from another thread, while parts of it are in use.
    pub fn populator(&self) -> MemoryPopulator {
        MemoryPopulator { owner: Arc::clone(&self.owner) }
    }

    /// The whole memory again, if no part exists.
    ///
    /// # Errors
    /// A part exists.
    pub fn join(self) -> Result<Box<dyn IoMemory>, Self> {
        let used = self.used;
        Arc::try_unwrap(self.owner).map(|owner| owner.memory).map_err(|owner| Self { owner, used })
    }
}

impl fmt::Debug for MemoryParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { owner, used } = self;
        f.debug_struct("MemoryParts").field("len", &owner.len).field("used", used).finish_non_exhaustive()
    }
}

/// A part of a [`MemoryParts`].
pub struct MemoryPart {
    owner: Arc<Owner>,
    range: Range<usize>,
}

impl fmt::Debug for MemoryPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryPart").field("range", &self.range).finish_non_exhaustive()
    }
}

// SAFETY: the range belongs to this part alone (invariant 1), and the owner keeps it valid at its address.
unsafe impl IoMemory for MemoryPart {
    fn as_slice(&self) -> &[u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.owner.at(self.range.start).as_ptr(), self.range.len()) }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes it the only borrow.
        unsafe { std::slice::from_raw_parts_mut(self.owner.at(self.range.start).as_ptr(), self.range.len()) }
    }
}

/// Allocates the pages of a [`MemoryParts`]. It counts as a part: the memory joins after it is dropped.
pub struct MemoryPopulator {
    owner: Arc<Owner>,
}

impl MemoryPopulator {
    /// Allocate the pages of a range now. The content does not change. A kernel before 5.14 allocates them at the first access instead.
    pub fn populate(&self, range: Range<usize>) {
        #[cfg(not(miri))]
        {
            let page = rustix::param::page_size();
            let (start, end) = (self.owner.at(range.start), self.owner.at(range.end));
            let skipped = start.addr().get().next_multiple_of(page) - start.addr().get();
            let len = end.addr().get().saturating_sub(start.addr().get() + skipped) / page * page;
            if len > 0 {
                let first = start.as_ptr().wrapping_add(skipped);
                // SAFETY: whole pages of the owner's memory. The advice changes no content.
                let _ =
                    unsafe { rustix::mm::madvise(first.cast(), len, rustix::mm::Advice::LinuxPopulateWrite) };
            }
        }
        #[cfg(miri)]
        let _ = range;
    }
}

impl fmt::Debug for MemoryPopulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryPopulator").field("len", &self.owner.len).finish_non_exhaustive()
    }
}

/// Memory whose owners read it, and which lives as long as the last of them. A binding may store through [`SharedMemory::as_non_null`] under
/// its own rules.
#[derive(Clone)]
pub struct SharedMemory {
    owner: Arc<Owner>,
}

impl SharedMemory {
    /// Share the memory.
    pub fn new(memory: Box<dyn IoMemory>) -> Self {
        Self { owner: Arc::new(Owner::new(memory)) }
    }

    /// The first byte. It stays at this address until the last clone is dropped.
    pub fn as_non_null(&self) -> NonNull<u8> {
        self.owner.address
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is valid for its length while an owner exists, and no safe code stores to it.
        unsafe { std::slice::from_raw_parts(self.owner.address.as_ptr(), self.owner.len) }
    }
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemory").field("len", &self.owner.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlignedBuf;

    /// Invariants 1 and 2.
    #[test]
    fn parts_are_disjoint_and_join() {
        let mut parts = MemoryParts::new(Box::new(AlignedBuf::zeroed(4096, 512)));
        let mut taken: Vec<_> = (0..4).map(|_| parts.take(1000).expect("left")).collect();
        assert!(parts.take(97).is_none());
        assert!(parts.take(usize::MAX).is_none());
        parts.populator().populate(100..4096);
        for (mark, part) in taken.iter_mut().enumerate() {
            part.as_mut_slice().fill(mark as u8 + 1);
        }
        let last = taken.pop();
        let parts = parts.join().expect_err("a part exists");
        drop((taken, last));
        let memory = parts.join().expect("no part");
        let shared = SharedMemory::new(memory);
        let other = shared.clone();
        drop(shared);
        for (at, byte) in other.bytes().iter().enumerate() {
            assert_eq!(usize::from(*byte), if at < 4000 { at / 1000 + 1 } else { 0 }, "byte {at}");
        }
        assert_eq!(other.as_non_null().addr().get() % 512, 0);
    }
}

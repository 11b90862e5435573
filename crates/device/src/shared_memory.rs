//! Memory without a size limit of its own, of which only the pages that are used exist, and that can be mapped more than once.
//!
//! Where it sits: under the mapped views of files. The pages are those of a memfd, so a fork shares them and copies none.
//!
//! Safety policy: the memory is only ever lent as [`AtomicU64`]s: any thread may load and store at any time, and there is no other access.
//! A [`SharedWords`] owns its mapping, which stays where it is until it is dropped. The memfd is sealed against shrinking and never leaves
//! this module, so no access is beyond its end.
#![allow(unsafe_code)]

use std::io;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Bytes of a word.
const WORD: usize = size_of::<AtomicU64>();
/// Unit of mappings.
#[cfg(not(miri))]
const PAGE: u64 = 4096;

/// See the module's head. Reads as zeros where nothing was stored.
#[derive(Debug)]
pub struct SharedMemory {
    #[cfg(not(miri))]
    file: std::os::fd::OwnedFd,
    len: u64,
}

/// A part of [`SharedMemory`], at an address of this process.
#[derive(Debug)]
pub struct SharedWords {
    address: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: what is lent are atomics, which threads may share.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedMemory {
    /// Memory of `len` bytes, none of which exists yet.
    ///
    /// # Errors
    /// The system has no memfd, or refuses the length.
    pub fn sparse(len: u64) -> io::Result<Self> {
        #[cfg(not(miri))]
        {
            use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
            let len = len.checked_next_multiple_of(PAGE).ok_or(io::ErrorKind::InvalidInput)?;
            let file = memfd_create(c"diorite", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            ftruncate(&file, len)?;
            fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
            Ok(Self { file, len })
        }
        #[cfg(miri)]
        Ok(Self { len })
    }

    /// Map a range of whole pages. (Under Miri each mapping is memory of its own.)
    ///
    /// # Errors
    /// The range is not of whole pages of the memory, or there is no address space for it.
    pub fn map(&self, range: Range<u64>) -> io::Result<SharedWords> {
        let refused = || io::Error::from(io::ErrorKind::InvalidInput);
        let len = range.end.checked_sub(range.start).filter(|len| *len > 0).ok_or_else(refused)?;
        let bytes = usize::try_from(len).ok().filter(|len| isize::try_from(*len).is_ok());
        let bytes = bytes.filter(|_| range.end <= self.len).ok_or_else(refused)?;
        #[cfg(not(miri))]
        let address = {
            use rustix::mm::{MapFlags, ProtFlags, mmap};
            if !range.start.is_multiple_of(PAGE) || !len.is_multiple_of(PAGE) {
                return Err(refused());
            }
            let access = ProtFlags::READ | ProtFlags::WRITE;
            let flags = MapFlags::SHARED | MapFlags::NORESERVE;
            // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
            unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, &self.file, range.start) }?
        };
        #[cfg(miri)]
        let address = {
            let words: Box<[AtomicU64]> = (0..bytes / WORD).map(|_| AtomicU64::new(0)).collect();
            Box::into_raw(words)
        };
        let address = NonNull::new(address.cast()).ok_or_else(refused)?;
        Ok(SharedWords { address, words: bytes / WORD })
    }

    /// Give the memory of a range of whole pages back: it reads as zeros from now on, in all mappings.
    pub fn discard(&self, range: Range<u64>) {
        #[cfg(not(miri))]
        if range.start < range.end {
            use rustix::fs::{FallocateFlags, fallocate};
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Memory that the system does not take back is only not free.
            let _ = fallocate(&self.file, flags, range.start, range.end - range.start);
        }
        #[cfg(miri)]
        let _ = range;
    }
}

impl Deref for SharedWords {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is that long, aligned to pages, initialised (zeros) and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.words) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        #[cfg(not(miri))]
        // SAFETY: the mapping that `map` made, unmapped only here; all borrows of it ended before.
        let _ = unsafe { rustix::mm::munmap(self.address.as_ptr().cast(), self.words * WORD) };
        #[cfg(miri)]
        // SAFETY: the box that `map` made, freed only here.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.address.as_ptr(), self.words)) });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn threads_share_words() {
        let memory = SharedMemory::sparse(1 << 20).expect("memory");
        let words = memory.map(8192..16384).expect("map");
        assert_eq!(words.len(), 1024);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for word in &words[..10] {
                        word.fetch_add(1, Relaxed);
                    }
                });
            }
        });
        assert!(words[..10].iter().all(|word| word.load(Relaxed) == 2) && words[10].load(Relaxed) == 0);
        assert!(memory.map(0..0).is_err() && memory.map(0..1 << 21).is_err());
    }

    #[cfg(not(miri))]
    #[test]
    fn mappings_of_one_page_are_one_memory_and_huge_ones_are_cheap() {
        let memory = SharedMemory::sparse(1 << 44).expect("memory");
        let (all, page) = (memory.map(0..1 << 44).expect("map"), memory.map(1 << 40..(1 << 40) + 4096));
        let page = page.expect("map");
        all[(1 << 40) / WORD].store(7, Relaxed);
        assert_eq!(page[0].load(Relaxed), 7);
        memory.discard(1 << 40..(1 << 40) + 4096);
        assert_eq!((page[0].load(Relaxed), all[(1 << 40) / WORD].load(Relaxed)), (0, 0));
        assert!(memory.map(1..4097).is_err());
    }
}

//! Memory that direct I/O takes as it is: aligned, zeroed, owned.
//!
//! Safety policy: an [`AlignedBuf`] is the only owner of its [`Region`]; slices of it are lent out under the
//! borrow of the buffer itself, so the usual rules of references hold for its bytes.
#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};

use diorite_block::IoMemory;

use crate::arena::ArenaEntry;
use crate::region::{PageKind, Region};

/// From this size on, registered memory lies on huge pages: they make each transfer cheaper, and at most seven eighths of one
/// stay unused.
const HUGE_FROM: usize = 256 << 10;
/// To register smaller memory costs more than its few transfers gain; a [`BufferPool`](crate::BufferPool) registers many such buffers
/// at once.
const REGISTERED_FROM: usize = 64 << 10;

/// Bytes at an address that is a multiple of any wanted power of two.
///
/// From 2 MiB on they lie on huge pages where the system has them, which makes direct I/O cheaper.
pub struct AlignedBuf {
    /// Before `region`, so that the entry is gone when the memory is.
    entry: Option<ArenaEntry>,
    region: Region,
}

impl AlignedBuf {
    /// `len` zeroed bytes at a multiple of `alignment`, a power of two. Without memory the program ends, as with `Vec`.
    pub fn zeroed(len: usize, alignment: usize) -> Self {
        Self::try_zeroed(len, alignment).unwrap_or_else(|_| {
            let layout = std::alloc::Layout::from_size_align(len, alignment);
            std::alloc::handle_alloc_error(layout.unwrap_or(std::alloc::Layout::new::<u8>()))
        })
    }

    /// As [`AlignedBuf::zeroed`], with an error where there is no memory.
    ///
    /// # Errors
    /// There is no memory, or the size and the alignment are too large.
    pub fn try_zeroed(len: usize, alignment: usize) -> io::Result<Self> {
        Ok(Self { entry: None, region: Region::zeroed(len, alignment)? })
    }

    /// As [`AlignedBuf::try_zeroed`], and entered into the list of memory that `io_uring` rings register with the
    /// kernel when they first use it. Worth it for large memory that is used again and again; all pages are
    /// provided at once.
    ///
    /// # Errors
    /// As [`AlignedBuf::try_zeroed`].
    pub fn registered(len: usize, alignment: usize) -> io::Result<Self> {
        let region = if len >= HUGE_FROM {
            Region::on_huge_pages(len, alignment)
        } else {
            Region::zeroed(len, alignment)
        }?;
        region.populate();
        let entry = Some(ArenaEntry::new(region.address().addr().get(), len));
        Ok(Self { entry, region })
    }

    /// Memory for transfers: registered with rings where that pays, from 64 KiB on; smaller memory is used as it is.
    ///
    /// # Errors
    /// As [`AlignedBuf::try_zeroed`].
    pub fn for_transfers(len: usize, alignment: usize) -> io::Result<Self> {
        if len >= REGISTERED_FROM {
            Self::registered(len, alignment)
        } else {
            Self::try_zeroed(len, alignment)
        }
    }

    /// What kind of pages it lies on.
    pub fn page_kind(&self) -> PageKind {
        self.region.page_kind()
    }

    /// Whether rings register it.
    pub fn is_registered(&self) -> bool {
        self.entry.is_some()
    }

    /// Where the memory starts. It stays there until the buffer is dropped. A caller that shares the memory through this pointer
    /// must not use the buffer's slices meanwhile.
    pub fn as_non_null(&self) -> std::ptr::NonNull<u8> {
        self.region.address()
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the region is valid and initialised for its length, and borrowed with `self`.
        unsafe { std::slice::from_raw_parts(self.region.address().as_ptr(), self.region.len()) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes it the only borrow.
        unsafe { std::slice::from_raw_parts_mut(self.region.address().as_ptr(), self.region.len()) }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, pages) = (self.len(), self.page_kind());
        f.debug_struct("AlignedBuf").field("len", &len).field("pages", &pages).finish_non_exhaustive()
    }
}

// SAFETY: the region stays at its address until the buffer is dropped, and belongs to the buffer alone.
unsafe impl IoMemory for AlignedBuf {
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

    #[test]
    fn buffer_is_aligned_zeroed_and_writable() {
        for alignment in [1, 2, 512, 4096, 1 << 16, 4 << 20] {
            for len in [0, 1, 511, 4096, 10_000, 2 << 20, (2 << 20) + 1] {
                if cfg!(miri) && len > 10_000 {
                    continue;
                }
                let mut buffer = AlignedBuf::zeroed(len, alignment);
                assert_eq!(buffer.len(), len);
                assert_eq!(buffer.as_ptr().addr() % alignment, 0, "{len} bytes at {alignment}");
                assert!(buffer.iter().all(|byte| *byte == 0));
                buffer.fill(7);
                assert!(buffer.iter().all(|byte| *byte == 7));
            }
        }
    }

    /// The promise of `IoMemory`: the same address wherever the value goes.
    #[test]
    fn buffer_keeps_its_address_when_moved() {
        let mut buffer = AlignedBuf::zeroed(4096, 512);
        buffer[0] = 1;
        let address = buffer.as_slice().as_ptr();
        let boxed: Box<dyn IoMemory> = Box::new(buffer);
        assert_eq!(boxed.as_slice().as_ptr(), address);
        let buffer = *boxed.into_any().downcast::<AlignedBuf>().expect("the same type");
        assert_eq!((buffer.as_ptr(), buffer[0]), (address, 1));
    }

    #[test]
    fn buffer_too_large_is_an_error() {
        assert!(AlignedBuf::try_zeroed(usize::MAX - 4096, 4096).is_err());
    }
}

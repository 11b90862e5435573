//! Aligned, zeroed, owned memory for direct I/O.
//!
//! Safety policy: an [`AlignedBuf`] is the only owner of its memory. Its slices borrow the buffer, so the usual rules of references hold
//! for its bytes.
#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use diorite_block::{BlockDevice, IoError, IoMemory};

use super::heap::{self, HeapBuf};
use super::region::Region;

/// From this size on, memory comes from the heap for transfers.
const HEAP_FROM: usize = 16 << 10;
/// The same for memory known to be for transfers.
const HEAP_FROM_FOR_TRANSFERS: usize = 4 << 10;
/// Larger memory has its own pages, which the system allocates on first use, unless it is registered.
const HEAP_TO: usize = 16 << 20;

/// Bytes at an address that is a multiple of any wanted power of two.
///
/// From 16 KiB on (`File::buffer`: from 4 KiB on) they lie on huge pages if the system has them, and rings register them. Both make
/// direct I/O cheaper.
pub struct AlignedBuf {
    memory: Memory,
}

enum Memory {
    Heap(HeapBuf),
    Own(Region),
}

impl AlignedBuf {
    /// `len` zeroed bytes at a multiple of `alignment`, a power of two. Without memory the program aborts, as with `Vec`.
    pub fn zeroed(len: usize, alignment: usize) -> Self {
        Self::try_zeroed(len, alignment).unwrap_or_else(|_| {
            let layout = std::alloc::Layout::from_size_align(len, alignment);
            std::alloc::handle_alloc_error(layout.unwrap_or(std::alloc::Layout::new::<u8>()))
        })
    }

    /// As [`AlignedBuf::zeroed`], with an error if there is no memory.
    ///
    /// # Errors
    /// There is no memory, or the size and the alignment are too large.
    pub fn try_zeroed(len: usize, alignment: usize) -> io::Result<Self> {
        if (HEAP_FROM..=HEAP_TO).contains(&len) {
            Self::registered(len, alignment)
        } else {
            Self::own(len, alignment)
        }
    }

    /// As [`AlignedBuf::try_zeroed`], of any size, from memory that rings register with the kernel at their first transfer of it. All pages
    /// are allocated at once.
    ///
    /// # Errors
    /// As [`AlignedBuf::try_zeroed`].
    pub fn registered(len: usize, alignment: usize) -> io::Result<Self> {
        if !heap::can_align(alignment) {
            return Self::own(len, alignment);
        }
        Ok(Self { memory: Memory::Heap(HeapBuf::zeroed(len, alignment)?) })
    }

    /// Memory for transfers: from 4 KiB on as [`AlignedBuf::registered`], smaller memory unregistered.
    ///
    /// # Errors
    /// As [`AlignedBuf::try_zeroed`].
    pub fn for_transfers(len: usize, alignment: usize) -> io::Result<Self> {
        if len >= HEAP_FROM_FOR_TRANSFERS {
            Self::registered(len, alignment)
        } else {
            Self::own(len, alignment)
        }
    }

    fn own(len: usize, alignment: usize) -> io::Result<Self> {
        Ok(Self { memory: Memory::Own(Region::zeroed(len, alignment)?) })
    }

    /// Whether rings register it.
    pub fn is_registered(&self) -> bool {
        matches!(self.memory, Memory::Heap(_))
    }

    /// The first byte. It stays at this address until the buffer is dropped. A caller that shares the memory through this pointer
    /// must not use the buffer's slices meanwhile.
    pub fn as_non_null(&self) -> NonNull<u8> {
        self.range().0
    }

    fn range(&self) -> (NonNull<u8>, usize) {
        match &self.memory {
            Memory::Heap(buffer) => (buffer.address(), buffer.len()),
            Memory::Own(region) => (region.address(), region.len()),
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let (address, len) = self.range();
        // SAFETY: the memory is valid and initialised for its length, and borrowed with `self`.
        unsafe { std::slice::from_raw_parts(address.as_ptr(), len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        let (address, len) = self.range();
        // SAFETY: as above, and `&mut self` makes it the only borrow.
        unsafe { std::slice::from_raw_parts_mut(address.as_ptr(), len) }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf").field("len", &self.len()).finish_non_exhaustive()
    }
}

// SAFETY: the memory stays at its address until the buffer is dropped, and belongs to the buffer alone.
unsafe impl IoMemory for AlignedBuf {
    fn as_slice(&self) -> &[u8] {
        self
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        self
    }
}

/// Read `len` bytes at any byte offset. The device reads whole blocks.
///
/// # Errors
/// The device failed, or the range is not within it.
pub fn read_unaligned(device: &dyn BlockDevice, offset: u64, len: usize) -> Result<Vec<u8>, IoError> {
    let block = u64::from(device.geometry().logical_block_size);
    let start = offset - offset % block;
    let end = (offset + len as u64).next_multiple_of(block);
    let mut memory = AlignedBuf::zeroed((end - start) as usize, 4096);
    device.read_bytes(start, &mut memory)?;
    let skip = (offset - start) as usize;
    Ok(memory[skip..skip + len].to_vec())
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
        let buffer = *(boxed as Box<dyn std::any::Any>).downcast::<AlignedBuf>().expect("the same type");
        assert_eq!((buffer.as_ptr(), buffer[0]), (address, 1));
    }

    #[test]
    fn buffer_too_large_is_an_error() {
        assert!(AlignedBuf::try_zeroed(usize::MAX - 4096, 4096).is_err());
    }
}

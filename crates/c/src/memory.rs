//! Direct I/O needs memory with the alignment that `diorite_get_alignment` returns. Any such memory is possible: from posix_memalign, mmap or an
//! arena of the application. Memory of `diorite_buffer_allocate` has the alignment of the file, uses huge pages if the system has them, and is
//! registered with io_uring, which saves CPU time. Calls also accept addresses inside a buffer, so a large buffer can be divided into pages.
//!
//! Threads: all calls may run in many threads at once.
//!
//! Invariants:
//! 1. From its allocation until it is freed, a buffer is in `BUFFERS` under its address.
//! 2. A buffer is freed only if no transfer of a queue holds it. Each transfer holds an `Arc` of its buffer.
//!
//! Locking: `BUFFERS` is a leaf lock; only the allocator is called while it is held.
//!
//! Safety policy: a buffer is accessed only through its address. No reference to its bytes is made from the `AlignedBuf`, so only calls and
//! transfers have references, and the C program keeps these apart.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use diorite::{AlignedBuf, Error};

use crate::boundary::{handle, invalid, output, status};
use crate::error::Failure;
use crate::file::diorite_file;

/// An alignment that is enough for every file.
const ANY_FILE: usize = 4096;

/// Memory that this library allocated.
#[derive(Debug)]
pub(crate) struct Buffer {
    range: Range<usize>,
    _memory: AlignedBuf,
}

impl Buffer {
    fn contains(&self, address: usize, len: usize) -> bool {
        self.range.contains(&address) && len <= self.range.end - address
    }
}

static BUFFERS: RwLock<BTreeMap<usize, Arc<Buffer>>> = RwLock::new(BTreeMap::new());

/// The buffer that contains the memory; `None` if the memory is the caller's own.
pub(crate) fn find(address: usize, len: usize) -> Option<Arc<Buffer>> {
    let buffers = BUFFERS.read().unwrap_or_else(PoisonError::into_inner);
    let (_, buffer) = buffers.range(..=address).next_back()?;
    buffer.contains(address, len).then(|| Arc::clone(buffer))
}

/// Allocate `len` zeroed bytes for direct I/O on `file`. If `file` is NULL, the alignment is 4096, which is enough for any file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_buffer_allocate(
    file: *mut diorite_file,
    len: usize,
    memory: *mut *mut c_void,
) -> c_int {
    status(|| {
        let memory = output!(memory);
        *memory = std::ptr::null_mut();
        if len == 0 {
            return Err(invalid("a buffer needs at least one byte"));
        }
        let buffer = if file.is_null() {
            let what = "cannot get memory for a buffer";
            AlignedBuf::for_transfers(len, ANY_FILE).map_err(|source| Error::Os { what, source })?
        } else {
            handle!(file).file.buffer(len)?
        };
        let address = buffer.as_non_null();
        let at = address.as_ptr().expose_provenance();
        let buffer = Arc::new(Buffer { range: at..at + len, _memory: buffer });
        BUFFERS.write().unwrap_or_else(PoisonError::into_inner).insert(at, buffer);
        *memory = address.as_ptr().cast();
        Ok(())
    })
}

/// Free the memory of `diorite_buffer_allocate`. NULL is ignored.
///
/// -EBUSY if a transfer of a queue uses the memory, -EINVAL if no buffer begins there. The buffer is not freed then.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_buffer_free(memory: *mut c_void) -> c_int {
    status(|| {
        if memory.is_null() {
            return Ok(());
        }
        let mut buffers = BUFFERS.write().unwrap_or_else(PoisonError::into_inner);
        let at = memory.addr();
        let buffer = buffers.get(&at).ok_or_else(|| invalid("no buffer begins at this address"))?;
        if Arc::strong_count(buffer) > 1 {
            let text = "a transfer in flight uses the buffer; reap it first";
            return Err(Failure::Call(libc::EBUSY, text));
        }
        let buffer = buffers.remove(&at);
        drop(buffers);
        drop(buffer);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocate(len: usize) -> *mut c_void {
        let mut memory = std::ptr::null_mut();
        // SAFETY: no file, and a place of our own.
        assert_eq!(unsafe { diorite_buffer_allocate(std::ptr::null_mut(), len, &raw mut memory) }, 0);
        memory
    }

    #[test]
    fn buffers_are_found_by_any_address_within_them_until_they_are_freed() {
        let (first, second) = (allocate(8192), allocate(4096));
        for _ in 0..2 {
            let found = find(first.addr() + 4096, 4096).expect("within the first");
            assert_eq!(found.range.start, first.addr());
            assert_eq!(diorite_buffer_free(first), -libc::EBUSY);
        }
        assert!(find(first.addr() + 4096, 4097).is_none(), "beyond the end");
        assert!(find(second.addr(), 4096).is_some());
        assert_eq!(diorite_buffer_free(first.wrapping_byte_add(4096)), -libc::EINVAL);
        assert_eq!(diorite_buffer_free(first), 0);
        assert_eq!(diorite_buffer_free(first), -libc::EINVAL);
        assert!(find(first.addr(), 4096).is_none());
        assert_eq!(diorite_buffer_free(second), 0);
        assert_eq!(diorite_buffer_free(std::ptr::null_mut()), 0);
    }
}

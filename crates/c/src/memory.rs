//! Any memory will do that is aligned as `diorite_get_alignment` says (from posix_memalign, mmap, an arena of the
//! application's): data moves straight between it and the device. Memory of `diorite_buffer_allocate` is aligned for the file, lies on huge
//! pages where the system has them, and is registered with io_uring, which saves CPU time. It is plain memory: one large buffer may be
//! cut into pages, and an address within it given to any call.
//!
//! Threads: all calls may run in many threads at once.
//!
//! Invariants:
//! 1. A buffer is in `BUFFERS` from its allocation until it is freed, under its address.
//! 2. It is freed only while no transfer of a queue holds it: each holds an `Arc` of it.
//!
//! Locking: `BUFFERS` is a leaf; nothing is called while it is held but the allocator.
//!
//! Safety policy: a buffer is reached through its address alone. No reference to its bytes is made from the `AlignedBuf`, so that those of calls
//! and transfers, which the C program keeps apart, are the only ones.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};

use diorite::{AlignedBuf, Error};

use crate::boundary::{handle, invalid, output, status};
use crate::error::Failure;
use crate::file::diorite_file;

/// Alignment that every file takes.
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
/// Raised when a buffer is freed.
static FREED: AtomicU64 = AtomicU64::new(0);

/// Finds the buffer that memory lies in, and remembers the last one: a queue's transfers are mostly within one.
#[derive(Debug, Default)]
pub(crate) struct Finder {
    last: Weak<Buffer>,
    range: Range<usize>,
    freed: u64,
}

impl Finder {
    /// The buffer that has all of this memory; none if it is the caller's own.
    pub(crate) fn find(&mut self, address: usize, len: usize) -> Option<Arc<Buffer>> {
        let is_last = self.range.contains(&address) && len <= self.range.end - address;
        if is_last && self.freed == FREED.load(Ordering::Acquire) {
            return self.last.upgrade();
        }
        let buffers = BUFFERS.read().unwrap_or_else(PoisonError::into_inner);
        let (_, buffer) = buffers.range(..=address).next_back()?;
        let buffer = Arc::clone(buffer).contains(address, len).then(|| Arc::clone(buffer))?;
        *self = Self {
            last: Arc::downgrade(&buffer),
            range: buffer.range.clone(),
            freed: FREED.load(Ordering::Acquire),
        };
        Some(buffer)
    }
}

/// Allocate `len` bytes of zeros for direct I/O on `file`, or, if that is NULL, on any file (aligned to 4096).
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
            return Err(invalid("a buffer has at least one byte"));
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
/// -EBUSY while a transfer of a queue uses it, -EINVAL if no buffer begins there: nothing was done.
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
            let text = "a transfer in flight uses the buffer; reap it before its memory is freed";
            return Err(Failure::Call(libc::EBUSY, text));
        }
        let buffer = buffers.remove(&at);
        FREED.fetch_add(1, Ordering::AcqRel);
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
        let mut finder = Finder::default();
        for _ in 0..2 {
            let found = finder.find(first.addr() + 4096, 4096).expect("within the first");
            assert_eq!(found.range.start, first.addr());
            assert_eq!(diorite_buffer_free(first), -libc::EBUSY);
        }
        assert!(finder.find(first.addr() + 4096, 4097).is_none(), "beyond the end");
        assert!(finder.find(second.addr(), 4096).is_some());
        assert_eq!(diorite_buffer_free(first.wrapping_byte_add(4096)), -libc::EINVAL);
        assert_eq!(diorite_buffer_free(first), 0);
        assert_eq!(diorite_buffer_free(first), -libc::EINVAL);
        assert!(finder.find(first.addr(), 4096).is_none());
        assert_eq!(diorite_buffer_free(second), 0);
        assert_eq!(diorite_buffer_free(std::ptr::null_mut()), 0);
    }
}

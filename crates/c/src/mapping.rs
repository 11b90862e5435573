//! A range of a file as memory: what is written to the file shows in it, and what is stored in it is seen by every later read,
//! buffered or direct. As mmap(2) with MAP_SHARED, on the library's own page cache.
//!
//! Loads and stores need no call and take effect word by word (8 bytes), at any moment; threads that share a word use atomics. What is
//! stored is written back as other cached data: by `diorite_mapping_sync`, `diorite_fsync`, in the background, and before a direct read.
//!
//! A mapping does not make the file longer. If the file is truncated under it, what is lost is zeros: there is no SIGBUS. Do not
//! give its memory to calls that read or write the same range.
//!
//! Threads: all calls on a mapping may run in many threads at once, but for `diorite_unmap`, which must be the last.
//!
//! Safety policy: that of the crate. The memory of a window is atomic words on our side; that of the C program is used by its own rules.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use diorite::{MappedView, MappedWindowMut};

use crate::boundary::{close_silently, handle, invalid, open, output, status};
use crate::file::diorite_file;

/// A range of a file as memory.
#[derive(Debug)]
pub struct diorite_mapping {
    // In this order: the window goes before its view.
    window: MappedWindowMut,
    view: MappedView,
    _file: Arc<()>,
}

/// Map `len` bytes from `offset` of a file that is open for reading and writing (O_RDWR). `offset` is a multiple of 8, and the range ends
/// within the file. Holes in it get blocks, so that no store fails for lack of space. All mappings together have at most a quarter of
/// the page cache (-EINVAL beyond).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_map(
    file: *mut diorite_file,
    offset: u64,
    len: u64,
    mapping: *mut *mut diorite_mapping,
) -> c_int {
    status(|| {
        open(output!(mapping), || {
            let file = handle!(file);
            let end = offset.checked_add(len).filter(|_| len > 0 && offset.is_multiple_of(8));
            let end =
                end.ok_or_else(|| invalid("a mapping has at least one byte and begins at a multiple of 8"))?;
            let view = file.file.map(offset..end)?;
            let window = view.window_mut(0..len)?;
            Ok(diorite_mapping { window, view, _file: Arc::clone(&file.uses) })
        })
    })
}

/// The memory of a mapping, valid until it is unmapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_mapping_memory(mapping: *mut diorite_mapping) -> *mut c_void {
    let mut memory = std::ptr::null_mut();
    status(|| {
        memory = handle!(mapping).window.words().as_ptr().cast_mut().cast();
        Ok(())
    });
    memory
}

/// Make durable what was stored (msync with MS_SYNC).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_mapping_sync(mapping: *mut diorite_mapping) -> c_int {
    status(|| Ok(handle!(mapping).view.flush()?))
}

/// End a mapping. What was stored stays in the page cache until it is written back. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_unmap(mapping: *mut diorite_mapping) {
    // SAFETY: NULL, or a handle that was not closed, and this is its last use (the crate's safety policy).
    unsafe { close_silently(mapping) };
}

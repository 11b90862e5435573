//! A directory is listed entry by entry, so memory does not depend on its size.
//!
//! Threads: only one thread at a time may use a `diorite_dir`. A concurrent call fails with -EBUSY.
//!
//! Safety policy: the policy of the crate. An entry points to a string of the handle, which the next call overwrites.

use std::ffi::{c_char, c_int};

use diorite::{FileKind, ReadDir};

use crate::boundary::{OneAtATime, close_silently, handle, open, output, path_of, status};
use crate::filesystem::diorite_filesystem;

/// An open directory.
#[derive(Debug)]
pub struct diorite_dir {
    listing: OneAtATime<Listing>,
}

#[derive(Debug)]
struct Listing {
    entries: ReadDir,
    /// The name of the last entry, with a NUL.
    name: Vec<u8>,
}

/// An entry of a directory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct diorite_entry {
    /// The name. Valid until the next call with this directory.
    pub name: *const c_char,
    /// Its length in bytes.
    pub name_len: usize,
    /// Inode number.
    pub inode: u64,
    /// The type, as d_type (DT_REG, DT_DIR, ...); DT_UNKNOWN (0) if the directory does not store it.
    pub kind: u32,
    /// Zeros.
    pub spare: u32,
}

/// Open a directory for listing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_opendir(
    filesystem: *mut diorite_filesystem,
    path: *const c_char,
    dir: *mut *mut diorite_dir,
) -> c_int {
    status(|| {
        open(output!(dir), || {
            let entries = handle!(filesystem).filesystem.read_dir(path_of!(path))?;
            Ok(diorite_dir { listing: OneAtATime::new(Listing { entries, name: Vec::new() }) })
        })
    })
}

/// Get the next entry, without `.` and `..`, in no particular order. Returns 1 with an entry, 0 at the end. A name that exists during the whole
/// listing is returned once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_readdir(dir: *mut diorite_dir, entry: *mut diorite_entry) -> c_int {
    let mut is_entry = false;
    let result = status(|| {
        let entry = output!(entry);
        handle!(dir).listing.with(|listing| {
            let Some(next) = listing.entries.next().transpose()? else { return Ok(()) };
            listing.name.clone_from(&next.name);
            listing.name.push(0);
            *entry = diorite_entry {
                name: listing.name.as_ptr().cast(),
                name_len: next.name.len(),
                inode: u64::from(next.inode.0),
                kind: next.kind.map_or(0, directory_type),
                spare: 0,
            };
            is_entry = true;
            Ok(())
        })
    });
    if is_entry { 1 } else { result }
}

/// `d_type` is the upper part of `st_mode`.
fn directory_type(kind: FileKind) -> u32 {
    u32::from(kind.mode_bits()) >> 12
}

/// Close a directory. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_closedir(dir: *mut diorite_dir) {
    // SAFETY: NULL, or a handle that was not closed, and this is its last use (the crate's safety policy).
    unsafe { close_silently(dir) };
}

//! A file of the host, mapped into memory.
//!
//! Where it sits: beside transfers, for data that the host's page cache has already. A mapping copies nothing and reads nothing.
//!
//! Safety policy:
//! 1. The mapping is private: a store changes the memory and never the file.
//! 2. Another process can write or truncate the file. A write may show in pages that were not stored to, as with every mapped file, and no code
//!    makes a decision on bytes that it has read before. An access beyond a truncated end ends the process with `SIGBUS`.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;

use diorite_block::IoMemory;
use rustix::fs::{Mode, OFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A private mapping of a whole file, readable and writable (see the module's head).
#[derive(Debug)]
pub struct FileMapping {
    file: OwnedFd,
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value, and nothing refers to the thread that made it.
unsafe impl Send for FileMapping {}

impl FileMapping {
    /// Map the file at `path`.
    ///
    /// # Errors
    /// What the system says; `InvalidInput` for an empty file and for anything but a regular file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file =
            rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        let len = usize::try_from(stat.st_size).unwrap_or(0);
        if len == 0 || rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
                &file,
                0,
            )
        }?;
        let address = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { file, address, len })
    }

    /// The bytes of a range that are in the host's page cache, in whole pages. `None` if the system does not say: before Linux 6.5, and for a file of
    /// another user.
    pub fn cached_bytes(&self, offset: u64, len: u64) -> Option<u64> {
        /// `struct cachestat` of `linux/mman.h`: counts of pages.
        #[repr(C)]
        #[derive(Default)]
        struct Cached {
            cache: u64,
            dirty: u64,
            writeback: u64,
            evicted: u64,
            recently_evicted: u64,
        }
        /// The number of the call on every architecture.
        const CACHESTAT: libc::c_long = 451;
        let range = [offset, len];
        let mut cached = Cached::default();
        // SAFETY: the kernel reads the range and fills the counts, which live until the call returns.
        let returned = unsafe {
            libc::syscall(
                CACHESTAT,
                self.file.as_raw_fd(),
                range.as_ptr(),
                &raw mut cached,
                0 as libc::c_uint,
            )
        };
        (returned == 0).then(|| cached.cache.saturating_mul(rustix::param::page_size() as u64))
    }

    /// Begin to read the pages of the file that are not cached.
    pub fn read_ahead(&self) {
        // SAFETY: advice on a mapping that is ours alone, and that keeps its content.
        let _ = unsafe { rustix::mm::madvise(self.address.as_ptr().cast(), self.len, Advice::WillNeed) };
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `open`, unmapped only here.
        let unmapped = unsafe { rustix::mm::munmap(self.address.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "our own mapping");
    }
}

// SAFETY: the mapping stays at its address until the value is dropped, and belongs to it alone. Policy 2 covers other processes.
unsafe impl IoMemory for FileMapping {
    fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped for this length until the drop.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.len) }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, writable and private.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.len) }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the file that is mapped")]
    fn a_store_changes_the_memory_and_not_the_file() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), [7; 5000]).expect("written");
        let mut mapping = FileMapping::open(file.path()).expect("mapped");
        assert_eq!(mapping.as_slice(), [7; 5000]);
        if let Some(bytes) = mapping.cached_bytes(0, 5000) {
            assert_eq!(bytes, 8192, "just written, so in the cache");
        }
        mapping.as_mut_slice()[4999] = 1;
        assert_eq!(mapping.as_slice()[4998..], [7, 1]);
        assert_eq!(std::fs::read(file.path()).expect("read"), [7; 5000]);
    }

    #[test]
    fn an_empty_file_and_a_directory_are_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        for path in [file.path(), file.path().parent().expect("a directory"), Path::new("/dev/null")] {
            let error = FileMapping::open(path).expect_err("refused");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{}", path.display());
        }
    }
}

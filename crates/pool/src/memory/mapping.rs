//! A memfd, mapped.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use diorite_block::Process;
#[cfg(not(miri))]
use rustix::fs::FallocateFlags;
use rustix::fs::{MemfdFlags, SealFlags};
#[cfg(not(miri))]
use rustix::mm::{MapFlags, ProtFlags};

use super::frame::{Frame, FrameIndex};
use super::layout::{FILES, FileEntry, Header, Layout, PROCESSES, ProcessEntry};

const HUGE_PAGE: usize = 2 << 20;

/// The whole memory of a pool, mapped into this process. See the safety policy of the module above.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    layout: Layout,
    fd: OwnedFd,
    is_huge: bool,
    /// The process that mapped it.
    process: Process,
}

// SAFETY: callers get references to atomics, and bytes under a latch.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// New zeroed memory, all of it allocated, on huge pages if the system has them.
    pub(crate) fn create(layout: Layout, shared: bool) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let reserved = make(layout, flags | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB);
        let is_reserved = reserved.is_ok();
        let fd = reserved.or_else(|_| make(layout, flags))?;
        let mut mapping = Self::map(fd, layout)?;
        mapping.is_huge = is_reserved || mapping.collapse();
        let header = mapping.header();
        header.page_bytes.store(layout.page_bytes as u64, Ordering::Relaxed);
        header.frames.store(layout.frames as u64, Ordering::Relaxed);
        header.shared.store(u32::from(shared), Ordering::Relaxed);
        header.magic.store(Layout::magic(), Ordering::Release);
        Ok(mapping)
    }

    /// The memory of a pool that another process made.
    pub(crate) fn attach(fd: OwnedFd) -> io::Result<Self> {
        let bad = |what: &'static str| io::Error::new(io::ErrorKind::InvalidData, what);
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|_| bad("it is not the memory of a pool"))?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(bad("it is not the memory of a pool"));
        }
        let mut start = [0; 24];
        if rustix::io::pread(&fd, &mut start, 0)? != start.len() {
            return Err(bad("it is not the memory of a pool"));
        }
        let word = |at: usize| u64::from_ne_bytes(start[at..at + 8].try_into().expect("eight bytes"));
        if word(0) != Layout::magic() {
            return Err(bad("it is not the memory of a pool of this version"));
        }
        let layout =
            Layout::new(word(8) as usize, word(16) as usize).ok_or(bad("its sizes are impossible"))?;
        if rustix::fs::fstat(&fd)?.st_size != layout.total as i64 {
            return Err(bad("its size differs from its header"));
        }
        Self::map(fd, layout)
    }

    /// Miri has no shared mappings: memory of the heap, for threads only.
    #[cfg(miri)]
    fn map(fd: OwnedFd, layout: Layout) -> io::Result<Self> {
        // SAFETY: the layout is not empty.
        let base = unsafe { std::alloc::alloc_zeroed(Self::heap_layout(layout)) };
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, layout, fd, is_huge: false, process: Process::current() })
    }

    #[cfg(miri)]
    fn heap_layout(layout: Layout) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(layout.total, HUGE_PAGE).expect("a small pool")
    }

    #[cfg(not(miri))]
    fn map(fd: OwnedFd, layout: Layout) -> io::Result<Self> {
        // The address has the same alignment to huge pages as the offset.
        let reserved_bytes = layout.total + HUGE_PAGE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let reserved = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                reserved_bytes,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let skipped = reserved.addr().next_multiple_of(HUGE_PAGE) - reserved.addr();
        // SAFETY: the range lies inside the mapping just made, which is not used yet; its rest is unmapped.
        let base = unsafe {
            let wanted = reserved.byte_add(skipped);
            let mapped = rustix::mm::mmap(
                wanted,
                layout.total,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::FIXED,
                &fd,
                0,
            );
            if let Err(errno) = mapped {
                let _ = rustix::mm::munmap(reserved, reserved_bytes);
                return Err(errno.into());
            }
            if skipped > 0 {
                let _ = rustix::mm::munmap(reserved, skipped);
            }
            let _ = rustix::mm::munmap(wanted.byte_add(layout.total), HUGE_PAGE - skipped);
            wanted
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, layout, fd, is_huge: false, process: Process::current() })
    }

    /// Ask for transparent huge pages. Returns whether all memory lies on them.
    fn collapse(&self) -> bool {
        let address = self.base.as_ptr().cast();
        // SAFETY: advice on our own mapping, which keeps its content.
        unsafe {
            libc::madvise(address, self.layout.total, libc::MADV_HUGEPAGE);
            libc::madvise(address, self.layout.total, libc::MADV_COLLAPSE) == 0
        }
    }

    /// Whether this is a forked child of the process that mapped it: its pins belong to the parent and are not released here.
    #[inline]
    pub(crate) fn is_of_parent(&self) -> bool {
        !self.process.is_current()
    }

    pub(crate) fn is_huge(&self) -> bool {
        self.is_huge
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// `count` entries at an offset.
    ///
    /// # Safety
    /// `T` consists of atomics, any bytes are a valid `T`, and the entries lie inside the memory, aligned.
    #[inline]
    unsafe fn entries<T>(&self, at: usize, count: usize) -> &[T] {
        // SAFETY: promised by the caller; the memory is mapped as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.base.add(at).cast::<T>().as_ptr(), count) }
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: at the start of the mapping, atomics only.
        unsafe { &self.entries(0, 1)[0] }
    }

    pub(crate) fn processes(&self) -> &[ProcessEntry] {
        // SAFETY: where the layout has them, atomics only.
        unsafe { self.entries(self.layout.processes_at, PROCESSES) }
    }

    pub(crate) fn files(&self) -> &[FileEntry] {
        // SAFETY: where the layout has them, atomics only.
        unsafe { self.entries(self.layout.files_at, FILES) }
    }

    #[inline]
    pub(crate) fn buckets(&self) -> &[AtomicU64] {
        // SAFETY: where the layout has them, atomics only.
        unsafe { self.entries(self.layout.buckets_at, self.layout.buckets) }
    }

    pub(crate) fn ghosts(&self) -> &[AtomicU64] {
        // SAFETY: where the layout has them, atomics only.
        unsafe { self.entries(self.layout.ghosts_at, self.layout.frames) }
    }

    #[inline]
    pub(crate) fn frames(&self) -> &[Frame] {
        // SAFETY: where the layout has them, atomics only.
        unsafe { self.entries(self.layout.frames_at, self.layout.frames) }
    }

    #[inline]
    pub(crate) fn frame(&self, index: FrameIndex) -> &Frame {
        &self.frames()[index as usize]
    }

    /// The first byte of a frame's page; `page_bytes` from there are inside the mapping.
    #[inline]
    pub(super) fn page_address(&self, index: FrameIndex) -> NonNull<u8> {
        assert!((index as usize) < self.layout.frames, "frame {index} is outside the pool");
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.base.add(self.layout.pages_at + index as usize * self.layout.page_bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[cfg(miri)]
        // SAFETY: allocated in `map` with this layout.
        unsafe {
            std::alloc::dealloc(self.base.as_ptr(), Self::heap_layout(self.layout));
        }
        #[cfg(not(miri))]
        // SAFETY: our own mapping, to which no reference is left.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.layout.total) };
    }
}

#[cfg(miri)]
fn make(_layout: Layout, _flags: MemfdFlags) -> io::Result<OwnedFd> {
    Ok(std::fs::OpenOptions::new().read(true).open("/dev/null")?.into())
}

/// A memfd of fixed size, with all of its memory allocated.
#[cfg(not(miri))]
fn make(layout: Layout, flags: MemfdFlags) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(c"diorite-pool", flags)?;
    rustix::fs::ftruncate(&fd, layout.total as u64)?;
    // A failure at the first access would be a signal.
    rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, layout.total as u64)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

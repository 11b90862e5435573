//! Zeroed memory of any alignment: from the allocator when small, from huge pages when large.
//!
//! Where it sits: under [`crate::AlignedBuf`] and the heap, which lend slices of it.
//!
//! Safety policy: a [`Region`] is the only owner of its memory. It gives out only a pointer and a
//! length, and frees the memory exactly once, when it is dropped. `address..address + len` is valid, initialised
//! (zeroed) and aligned from construction to drop, wherever the value is moved.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ptr::NonNull;

#[cfg(not(miri))]
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Size of a huge page, and the size from which memory is taken from them.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Region {
    address: NonNull<u8>,
    len: usize,
    backing: Backing,
}

#[derive(Debug)]
enum Backing {
    None,
    Heap(Layout),
    #[cfg(not(miri))]
    Mapped {
        mapped_bytes: usize,
    },
}

// SAFETY: the region owns its memory and has no interior mutability of its own. The types above give out `&mut` only from `&mut self`
// or for disjoint parts.
unsafe impl Send for Region {}
// SAFETY: as above; a shared `Region` gives out only its address and length.
unsafe impl Sync for Region {}

impl Region {
    /// `len` zeroed bytes at a multiple of `alignment`, which must be a power of two.
    pub(crate) fn zeroed(len: usize, alignment: usize) -> io::Result<Self> {
        assert!(alignment.is_power_of_two(), "alignment {alignment} is not a power of two");
        if len == 0 {
            let address = NonNull::new(std::ptr::without_provenance_mut(alignment));
            return Ok(Self { address: address.expect("not zero"), len, backing: Backing::None });
        }
        #[cfg(not(miri))]
        if len >= HUGE_PAGE {
            return Self::mapped(len, alignment);
        }
        let layout = Layout::from_size_align(len, alignment).map_err(|_| out_of_memory())?;
        // SAFETY: the layout's size is not zero.
        let address = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(out_of_memory)?;
        Ok(Self { address, len, backing: Backing::Heap(layout) })
    }

    /// As [`Region::zeroed`], on huge pages even if a part of the last one stays unused.
    pub(crate) fn on_huge_pages(len: usize, alignment: usize) -> io::Result<Self> {
        assert!(alignment.is_power_of_two(), "alignment {alignment} is not a power of two");
        #[cfg(not(miri))]
        if len > 0 {
            return Self::mapped(len, alignment);
        }
        Self::zeroed(len, alignment)
    }

    #[cfg(not(miri))]
    fn mapped(len: usize, alignment: usize) -> io::Result<Self> {
        let mapped_bytes = len.checked_next_multiple_of(HUGE_PAGE).ok_or_else(out_of_memory)?;
        if alignment <= HUGE_PAGE
            && let Ok(address) = map(mapped_bytes, MapFlags::HUGETLB | MapFlags::HUGE_2MB)
        {
            return Ok(Self { address, len, backing: Backing::Mapped { mapped_bytes } });
        }
        let alignment = alignment.max(HUGE_PAGE);
        let with_slack = mapped_bytes.checked_add(alignment).ok_or_else(out_of_memory)?;
        let base = map(with_slack, MapFlags::empty())?;
        let skipped = base.addr().get().next_multiple_of(alignment) - base.addr().get();
        // SAFETY: `skipped < alignment`, so the address lies inside the mapping just made; the parts before and
        // after the aligned range are unmapped and never used again.
        let address = unsafe {
            let address = base.add(skipped);
            unmap(base, skipped);
            unmap(address.add(mapped_bytes), alignment - skipped);
            address
        };
        // SAFETY: advice on a mapping that is ours alone and that keeps its content.
        let _ = unsafe { rustix::mm::madvise(address.as_ptr().cast(), mapped_bytes, Advice::LinuxHugepage) };
        Ok(Self { address, len, backing: Backing::Mapped { mapped_bytes } })
    }

    /// Its first byte.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Allocate all pages now rather than one by one at the first touch.
    pub(crate) fn populate(&self) {
        #[cfg(not(miri))]
        if let Backing::Mapped { mapped_bytes, .. } = self.backing {
            // SAFETY: the advice fills in pages and changes no content. A kernel before 5.14 refuses it, which
            // costs only the faults later.
            let _ = unsafe {
                rustix::mm::madvise(self.address.as_ptr().cast(), mapped_bytes, Advice::LinuxPopulateWrite)
            };
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        match self.backing {
            Backing::None => {}
            // SAFETY: allocated with this layout in `zeroed`, and freed only here.
            Backing::Heap(layout) => unsafe { dealloc(self.address.as_ptr(), layout) },
            #[cfg(not(miri))]
            // SAFETY: the mapping made in `mapped`, unmapped only here.
            Backing::Mapped { mapped_bytes, .. } => unsafe { unmap(self.address, mapped_bytes) },
        }
    }
}

#[cfg(not(miri))]
fn map(len: usize, flags: MapFlags) -> io::Result<NonNull<u8>> {
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing memory.
    let address = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | flags,
        )
    }?;
    NonNull::new(address.cast()).ok_or_else(out_of_memory)
}

/// # Safety
/// The range must be mapped, ours, and not used afterwards.
#[cfg(not(miri))]
unsafe fn unmap(address: NonNull<u8>, len: usize) {
    if len > 0 {
        // SAFETY: promised by the caller.
        let unmapped = unsafe { rustix::mm::munmap(address.as_ptr().cast(), len) };
        debug_assert!(unmapped.is_ok(), "our own mapping");
    }
}

pub(crate) fn out_of_memory() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOMEM)
}

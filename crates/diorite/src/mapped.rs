//! Mapped views: a range of a file as memory.
//!
//! Where it sits: beside [`File`], over the windows of its content (`content/window.rs`).
//!
//! Two ways in. The calls of a view are like those of a file: whole, and at one moment. The words of a window are loaded and stored
//! without a call, each by itself.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::cache::arena::PAGE_SIZE;
use crate::cache::live::{Mapping, load_bytes, store_bytes};
use crate::content::window::{Window, WindowUse};
use crate::content::{ReadAhead, pages_of};
use crate::write::Growth;
use crate::{Error, File, Result};

/// A range of a file as memory: what others write to the file shows in it, and what is stored in it is seen by every later read, buffered or
/// direct.
///
/// The range has its addresses from the start, and no more: pages are read when a [`window`](MappedView::window) shows them, so a view
/// of a huge sparse file costs nothing. Two ways to use it:
///
/// - [`read_at`](MappedView::read_at) and [`write_at`](MappedView::write_at) are calls like those of [`File`]: each takes effect whole, at one moment.
/// - A window is memory. Loads and stores are atomic word by word, and need no call; those of several words are not one step, and a write of
///   the file shows in it word by word. Nothing waits for a window, and none waits for anything.
///
/// A view does not make the file longer, and what lies beyond the end of the file is an error
/// ([`Error::UnexpectedEnd`]), never a signal. If the file is truncated under a window, the lost part of the window is zeros, and what is stored
/// there is lost. A window that stores has space for what it shows from the start; if a hole is made under it and the volume is full then, what is stored
/// in that hole stays in memory, and each sync fails until there is space for it.
///
/// ```no_run
/// # fn main() -> diorite::Result<()> {
/// # let filesystem = diorite::Filesystem::open("disk.img")?;
/// use std::sync::atomic::Ordering::Relaxed;
///
/// let file = filesystem.open_options().read(true).write(true).open("/counters")?;
/// let view = file.map(0..4096)?;
/// let window = view.window_mut(0..4096)?;
/// window.words()[7].fetch_add(1, Relaxed);
/// view.flush()?; // durable
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct MappedView {
    file: File,
    range: Range<u64>,
    mapping: Arc<Mapping>,
    ahead: Arc<ReadAhead>,
}

impl File {
    /// Map a range of the file, which may reach beyond its end. The view is read through the page cache, also where the file is open for direct I/O.
    ///
    /// # Errors
    /// [`Error::NotOpenFor`] reading; [`Error::InvalidArgument`] if the range ends before it begins, or is larger than any file; there is no address space for it.
    pub fn map(&self, range: Range<u64>) -> Result<MappedView> {
        self.check_read()?;
        let made = if range.start > range.end || range.end > self.content().store.map.max_size() {
            Err(Error::InvalidArgument("the range of a view must lie within the largest possible file"))
        } else {
            let pages = pages_of(range.start, range.end);
            self.content().cache.live.map(pages.start..pages.end.max(pages.start + 1))
        };
        let mapping = self.named(made)?;
        Ok(MappedView { file: self.clone(), range, mapping, ahead: Arc::default() })
    }
}

impl MappedView {
    /// The range of the file.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The range of the file that a range of the view is.
    fn within(&self, range: Range<u64>) -> Result<Range<u64>> {
        if range.start > range.end || range.end > self.len() {
            return self.file.named(Err(Error::InvalidArgument("the range is not within the view")));
        }
        Ok(self.range.start + range.start..self.range.start + range.end)
    }

    /// Fill `memory` from byte `at` of the view: what it has at one moment.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] beyond the view, [`Error::UnexpectedEnd`] beyond the end of the file; the device or the volume failed.
    pub fn read_at(&self, memory: &mut [u8], at: u64) -> Result<()> {
        let bytes = self.within(at..at.saturating_add(memory.len() as u64))?;
        let got = self.file.named(self.file.content().read_cached(memory, bytes.start, &self.ahead))?;
        if got == memory.len() {
            return Ok(());
        }
        self.file.named(Err(Error::UnexpectedEnd { end: bytes.start + got as u64 }))
    }

    /// Write all of `data` from byte `at` of the view on, as one step.
    ///
    /// # Errors
    /// As [`MappedView::read_at`]; [`Error::NotOpenFor`] writing, and as [`File::write_at`] through the cache.
    pub fn write_at(&self, data: &[u8], at: u64) -> Result<()> {
        self.file.check_write()?;
        let bytes = self.within(at..at.saturating_add(data.len() as u64))?;
        self.file.check_write_at(bytes.start)?;
        self.file.write_all_cached(data, bytes.start, Growth::Refused)
    }

    /// Show a range of the view. Its pages are in memory until the window is dropped.
    ///
    /// # Errors
    /// As [`MappedView::read_at`]; [`Error::InvalidArgument`] where all windows would have more than a quarter of the page cache.
    pub fn window(&self, range: Range<u64>) -> Result<MappedWindow> {
        self.open(range, WindowUse::Load)
    }

    /// As [`MappedView::window`], to store to as well. What is stored is written back as other dirty data: in the background, and by the next sync or [`flush`](MappedView::flush) of the file, or before a direct read of it.
    /// The range gets blocks, so that a store cannot fail for lack of space unless they are taken away again ([`File::punch_hole`]).
    ///
    /// # Errors
    /// As [`MappedView::window`]; [`Error::NotOpenFor`] writing; [`StorageFull`](crate::ErrorKind::StorageFull) or [`QuotaExceeded`](crate::ErrorKind::QuotaExceeded) where holes
    /// cannot be filled.
    pub fn window_mut(&self, range: Range<u64>) -> Result<MappedWindowMut> {
        self.file.check_write()?;
        self.file.check_write_at(self.within(range.clone())?.start)?;
        Ok(MappedWindowMut { window: self.open(range, WindowUse::Store)? })
    }

    fn open(&self, range: Range<u64>, usage: WindowUse) -> Result<MappedWindow> {
        let bytes = self.within(range)?;
        let opened = self.file.content().open_window(bytes, Arc::clone(&self.mapping), usage);
        Ok(MappedWindow { window: self.file.named(opened)?, _file: self.file.clone() })
    }

    /// Make the file durable, with what was stored in windows of it (`msync`, `fdatasync`).
    ///
    /// # Errors
    /// As [`File::sync_data`].
    pub fn flush(&self) -> Result<()> {
        self.file.sync_data()
    }
}

/// Memory of a [`MappedView`] to load from, until it is dropped.
///
/// Other threads may store to it at any time, so it is no slice of bytes: bytes are copied out, or loaded word by word.
#[derive(Debug)]
pub struct MappedWindow {
    window: Window,
    /// The volume stays open.
    _file: File,
}

impl MappedWindow {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        (self.window.bytes.end - self.window.bytes.start) as usize
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.window.bytes.is_empty()
    }

    /// Where it begins in the file.
    pub fn offset(&self) -> u64 {
        self.window.bytes.start
    }

    fn at(&self, at: usize, len: usize) -> u64 {
        assert!(
            at <= self.len() && len <= self.len() - at,
            "{len} bytes at {at} of a window of {}",
            self.len()
        );
        self.window.bytes.start + at as u64
    }

    /// Copy bytes from `at` on out, each word at a moment of its own.
    ///
    /// # Panics
    /// The bytes are not all within the window.
    pub fn load(&self, at: usize, into: &mut [u8]) {
        load_bytes(&self.window.mapping, self.at(at, into.len()), into);
    }

    /// One word in the byte order of the machine, at a multiple of 8 bytes in the file.
    ///
    /// # Panics
    /// It is not within the window, or not at a multiple of 8 bytes of the file.
    pub fn load_word(&self, at: usize) -> u64 {
        let offset = self.at(at, size_of::<u64>());
        assert!(offset.is_multiple_of(8), "byte {offset} of the file is not at a multiple of 8");
        self.window.mapping.words(&(offset..offset + 8))[0].load(std::sync::atomic::Ordering::Acquire)
    }
}

/// Memory of a [`MappedView`] to load from and to store to, until it is dropped.
#[derive(Debug)]
pub struct MappedWindowMut {
    window: MappedWindow,
}

impl MappedWindowMut {
    /// Copy bytes to `at` and what follows, each word at a moment of its own.
    ///
    /// # Panics
    /// The bytes are not all within the window.
    pub fn store(&self, at: usize, from: &[u8]) {
        store_bytes(&self.window.window.mapping, self.window.at(at, from.len()), from);
    }

    /// The words that lie whole in the window, at multiples of 8 bytes of the file, in the byte order of the machine.
    pub fn words(&self) -> &[AtomicU64] {
        let window = &self.window.window;
        window.mapping.words(&window.bytes)
    }
}

impl Deref for MappedWindowMut {
    type Target = MappedWindow;

    fn deref(&self) -> &MappedWindow {
        &self.window
    }
}

const _: () = assert!(PAGE_SIZE.is_multiple_of(size_of::<AtomicU64>() as u64));

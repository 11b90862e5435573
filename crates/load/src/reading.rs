//! Reads bytes of a file at any offset, through one aligned window, past every cache.
//!
//! Where it sits: below headers, archives and decompression. Data of tensors does not pass through it, unless it is compressed.

use std::cell::RefCell;
use std::io::{self, BufRead, Read};
use std::path::Path;

use diorite::{AlignedBuf, File};
use rawzip::ReaderAt;

use crate::error::Result;

/// Bytes that are read at once.
const WINDOW_BYTES: usize = 256 << 10;

/// The bytes of a file (see the module's head).
pub(crate) struct FileBytes<'f> {
    file: &'f File,
    name: &'f Path,
    size: u64,
    window: RefCell<Window>,
}

struct Window {
    memory: AlignedBuf,
    /// Offset in the file, and bytes that were read.
    start: u64,
    filled: usize,
}

impl Window {
    fn at(&self, offset: u64) -> &[u8] {
        match offset.checked_sub(self.start).and_then(|at| usize::try_from(at).ok()) {
            Some(at) if at < self.filled => &self.memory[at..self.filled],
            _ => &[],
        }
    }
}

impl<'f> FileBytes<'f> {
    pub(crate) fn new(file: &'f File, name: &'f Path) -> Result<Self> {
        let memory = file.buffer(WINDOW_BYTES)?;
        let window = RefCell::new(Window { memory, start: 0, filled: 0 });
        Ok(Self { file, name, size: file.size(), window })
    }

    /// The name of the file.
    pub(crate) fn name(&self) -> &'f Path {
        self.name
    }

    /// The size of the file.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Call `take` on the bytes at `offset`, at least one and at most `len`; on none at the end of the file.
    pub(crate) fn with<R>(&self, offset: u64, len: u64, take: impl FnOnce(&[u8]) -> R) -> diorite::Result<R> {
        let mut window = self.window.borrow_mut();
        if window.at(offset).is_empty() {
            let unit = u64::from(self.file.alignment().offset).max(4096);
            window.start = offset - offset % unit;
            window.filled = 0;
            window.filled = self.file.read_at(&mut window.memory, offset - offset % unit)?;
        }
        let bytes = window.at(offset);
        Ok(take(&bytes[..bytes.len().min(usize::try_from(len).unwrap_or(usize::MAX))]))
    }

    /// A stream of a range.
    pub(crate) fn reader(&self, start: u64, end: u64) -> RangeReader<'_> {
        RangeReader { bytes: self, at: start, end, piece: Vec::new(), used: 0 }
    }
}

impl ReaderAt for FileBytes<'_> {
    fn read_at(&self, memory: &mut [u8], offset: u64) -> io::Result<usize> {
        let copied = self.with(offset, memory.len() as u64, |bytes| {
            memory[..bytes.len()].copy_from_slice(bytes);
            bytes.len()
        });
        copied.map_err(io::Error::other)
    }
}

/// A stream of a range of a file.
pub(crate) struct RangeReader<'b> {
    bytes: &'b FileBytes<'b>,
    at: u64,
    end: u64,
    piece: Vec<u8>,
    used: usize,
}

impl BufRead for RangeReader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used == self.piece.len() {
            let Self { bytes, at, end, piece, used } = self;
            piece.clear();
            *used = 0;
            bytes.with(*at, *end - *at, |bytes| piece.extend_from_slice(bytes)).map_err(io::Error::other)?;
            *at += piece.len() as u64;
        }
        Ok(&self.piece[self.used..])
    }

    fn consume(&mut self, count: usize) {
        self.used += count;
    }
}

impl Read for RangeReader<'_> {
    fn read(&mut self, memory: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?;
        let count = bytes.len().min(memory.len());
        memory[..count].copy_from_slice(&bytes[..count]);
        self.consume(count);
        Ok(count)
    }
}

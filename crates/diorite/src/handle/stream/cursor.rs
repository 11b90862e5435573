//! The position of a reading stream.

use std::ops::Range;

use crate::File;

/// The offset of the next transfer, and how many of its bytes were returned already. A transfer that met the end of
/// the file within a block is made again from that block on when the file has grown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    next: u64,
    returned: usize,
}

impl Cursor {
    pub(crate) fn at(offset: u64) -> Self {
        Self { next: offset, returned: 0 }
    }

    /// Whether the file has more bytes.
    pub(crate) fn has_more(&self, file: &File) -> bool {
        self.next + (self.returned as u64) < file.size()
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// A transfer of `len` bytes was submitted.
    pub(crate) fn advance(&mut self, len: usize) {
        self.next += len as u64;
    }

    /// The new part of the `len` bytes of the next piece.
    pub(crate) fn new_of(&mut self, len: usize) -> Range<usize> {
        std::mem::take(&mut self.returned).min(len)..len
    }

    /// The first of the last `pieces` transfers, all of `buffer_bytes`, met the end of the file after `len` bytes:
    /// continue there. The others are dropped, also if the file has grown meanwhile.
    pub(crate) fn go_back(&mut self, pieces: usize, buffer_bytes: usize, len: usize, unit: u32) {
        let end = self.next - pieces as u64 * buffer_bytes as u64 + len as u64;
        let unit = u64::from(unit);
        self.next = end / unit * unit;
        self.returned = (end - self.next) as usize;
    }
}

//! Reads the header of a file from front to back, with limits.
//!
//! Where it sits: below the formats, above `reading.rs`.
//!
//! Invariants:
//! 1. Memory does not depend on lengths in the file, apart from text that the format keeps.
//! 2. A header has at most [`HEADER_BYTES_MAX`] bytes.

use std::path::Path;

use crate::HEADER_BYTES_MAX;
use crate::error::{Damage, InFile, LoadError, Result};
use crate::reading::FileBytes;

/// A position in a header, which begins with the file (see the module's head).
pub(crate) struct HeaderReader<'b> {
    bytes: &'b FileBytes<'b>,
    at: u64,
}

impl<'b> HeaderReader<'b> {
    pub(crate) fn new(bytes: &'b FileBytes<'b>) -> Self {
        Self { bytes, at: 0 }
    }

    /// The offset of the next byte.
    pub(crate) fn position(&self) -> u64 {
        self.at
    }

    /// The size of the file.
    pub(crate) fn size(&self) -> u64 {
        self.bytes.size()
    }

    /// The name of the file.
    pub(crate) fn name(&self) -> &'b Path {
        self.bytes.name()
    }

    /// An error of the file.
    pub(crate) fn damaged(&self, damage: Damage) -> LoadError {
        damage.at(self.name(), None)
    }

    /// The offset after the next `len` bytes, if the header may have them.
    fn end(&self, len: u64) -> Result<u64> {
        let end = self.at.checked_add(len).ok_or(Damage::Overflow).in_file(self.name())?;
        if end > self.size() {
            return Err(self.damaged(Damage::HeaderBeyondEnd { end, size: self.size() }));
        }
        if end > HEADER_BYTES_MAX {
            return Err(self.damaged(Damage::LongHeader { bytes: end }));
        }
        Ok(end)
    }

    /// Call `take` on the next `len` bytes, piece by piece.
    fn each(&mut self, len: u64, mut take: impl FnMut(&[u8])) -> Result<()> {
        let end = self.end(len)?;
        while self.at < end {
            let count = self.bytes.with(self.at, end - self.at, |piece| {
                take(piece);
                piece.len() as u64
            })?;
            if count == 0 {
                // The file became shorter.
                return Err(self.damaged(Damage::HeaderBeyondEnd { end, size: self.at }));
            }
            self.at += count;
        }
        Ok(())
    }

    /// Pass over `len` bytes without reading them.
    pub(crate) fn skip(&mut self, len: u64) -> Result<()> {
        self.at = self.end(len)?;
        Ok(())
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, len: u64) -> Result<Vec<u8>> {
        self.end(len)?;
        let mut bytes = Vec::with_capacity(len as usize);
        self.each(len, |piece| bytes.extend_from_slice(piece))?;
        Ok(bytes)
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (mut array, mut at) = ([0; N], 0);
        self.each(N as u64, |piece| {
            array[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        })?;
        Ok(array)
    }

    /// A 32-bit little-endian number.
    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// A 64-bit little-endian number.
    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }
}

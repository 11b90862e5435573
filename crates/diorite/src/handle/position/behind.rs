//! Write-behind of a handle without a cache.
//!
//! Small writes that follow each other are gathered in pages, so that every other handle sees them at once and no data is lost that a
//! call has returned for. The background writes the pages in large transfers and drops them. At most half of the pages are
//! dirty: a faster writer waits for the device. Other writes are single transfers.

use std::io::IoSlice;

use crate::content::write::{Position, Written, len_of};
use crate::{File, IoFlags, Result};

/// A write of this size is worth a transfer of its own.
const LARGE: u64 = 4 << 20;

/// Where the writes of a handle go.
#[derive(Debug, Default)]
pub(super) struct BehindWriter {
    /// The end of the last write.
    next: u64,
}

impl BehindWriter {
    /// Write `data` at `to`.
    pub(super) fn write(&mut self, file: &File, data: &[IoSlice<'_>], to: Position) -> Result<Written> {
        let follows = match to {
            Position::At(offset) | Position::NotBeforeEnd(offset) => offset == self.next,
            Position::End => true,
        };
        let written = if follows && len_of(data) < LARGE && file.sync_mode().is_none() {
            file.write_behind(data, to)?
        } else {
            file.write_to(data, to, IoFlags::NONE)?
        };
        self.next = written.offset + written.len as u64;
        Ok(written)
    }
}

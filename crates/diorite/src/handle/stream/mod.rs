//! Streams: transfers of a whole file in order, several direct ones in flight.
//!
//! Nothing reads ahead for direct I/O, and a reader that waits for each transfer leaves the disk idle in between. A stream
//! keeps N buffers in flight: readahead and write-behind without a cache and without a copy.

mod async_reader;
mod async_writer;
mod cursor;
mod reader;
mod unsubmitted;
mod writer;

pub use async_reader::AsyncReader;
pub use async_writer::AsyncWriter;
use cursor::Cursor;
pub use reader::DirectReader;
use unsubmitted::Unsubmitted;
pub use writer::DirectWriter;

use crate::{Error, File, RegisteredBuffers, Result};

/// Buffers of a stream, at most: no device has more transfers in flight.
const BUFFERS_MAX: u32 = 4096;
/// Bytes of all of them, at most: they are taken at once, and may be pinned.
const BYTES_MAX: u64 = 4 << 30;

/// The buffers of a writer.
fn writer_pool(file: &File, buffer_bytes: usize, buffers: u32) -> Result<RegisteredBuffers> {
    pool(file, buffer_bytes, buffers, u64::MAX)
}

/// The buffers of a reader from `offset` on: no more than the file has use for now.
fn reader_pool(file: &File, offset: u64, buffer_bytes: usize, buffers: u32) -> Result<RegisteredBuffers> {
    let needed = file.size().saturating_sub(offset).div_ceil(buffer_bytes.max(1) as u64);
    pool(file, buffer_bytes, buffers, needed.max(1))
}

fn pool(file: &File, buffer_bytes: usize, buffers: u32, needed: u64) -> Result<RegisteredBuffers> {
    let unit = file.alignment().offset as usize;
    if buffer_bytes == 0 || !buffer_bytes.is_multiple_of(unit) || buffers == 0 {
        return Err(Error::InvalidArgument(
            "a stream needs at least one buffer, whose size is a multiple of the device's logical block size",
        ));
    }
    let buffers = u32::try_from(needed).map_or(buffers, |needed| buffers.min(needed));
    if buffers > BUFFERS_MAX || (buffer_bytes as u64).saturating_mul(u64::from(buffers)) > BYTES_MAX {
        return Err(Error::InvalidArgument(
            "a stream has at most 4096 buffers, and 4 GiB for all of them; give it fewer or smaller ones",
        ));
    }
    RegisteredBuffers::new(buffer_bytes, buffers)
        .map_err(|source| Error::Os { what: "cannot get memory for a stream", source })
}

//! skeleton
use crate::{File, Result};
/// Reads a file from front to back with several direct reads in flight.
#[derive(Debug)]
pub struct DirectReader {}
#[expect(unused_variables, clippy::unused_self, reason = "skeleton")]
impl DirectReader {
    /// Read `file` from `offset` on, with `buffers` transfers of `buffer_bytes` in flight.
    pub fn new(file: File, offset: u64, buffer_bytes: usize, buffers: u32) -> Result<Self> {
        todo!()
    }
    /// The next piece of the file; `None` at its end.
    pub fn next_chunk(&mut self) -> Result<Option<&[u8]>> {
        todo!()
    }
}
/// Writes a file from front to back with several direct writes in flight.
#[derive(Debug)]
pub struct DirectWriter {}
#[expect(unused_variables, clippy::unused_self, reason = "skeleton")]
impl DirectWriter {
    /// Write `file` from `offset` on, with `buffers` transfers of `buffer_bytes` in flight.
    pub fn new(file: File, offset: u64, buffer_bytes: usize, buffers: u32) -> Result<Self> {
        todo!()
    }
    /// Memory to fill; [`DirectWriter::submit`] writes it.
    pub fn buffer(&mut self) -> Result<&mut [u8]> {
        todo!()
    }
    /// Write the first `len` bytes of the buffer. All but the last must be whole.
    pub fn submit(&mut self, len: usize) -> Result<()> {
        todo!()
    }
    /// Wait for everything and give the file back. The size is exactly what was submitted.
    pub fn finish(self) -> Result<File> {
        todo!()
    }
}

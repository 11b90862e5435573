//! skeleton
use crate::{AlignedBuf, Attributes, Result};
use diorite_block::Sector;
use std::io::{IoSlice, IoSliceMut};
/// What direct I/O on a file needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Offset and length are multiples of this many bytes.
    pub offset: u32,
    /// So is the address of each memory segment of this.
    pub memory: u32,
    /// The largest transfer that the device takes as one.
    pub max_transfer: u32,
}
/// What a stretch of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Data.
    Data,
    /// Allocated, never written: reads as zeros.
    Unwritten,
    /// Written to the cache; its place is chosen at write-back.
    Delayed,
    /// In the inode.
    Inline,
}
/// A stretch of a file and its place on the device. Holes are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// First sector on the device, where it has a place.
    pub sector: Option<Sector>,
    /// What it is.
    pub kind: ExtentKind,
}
/// An open file. All operations take `&self` and may run in many threads at once.
#[derive(Debug)]
pub struct File {}
#[expect(unused_variables, clippy::unused_self, reason = "skeleton")]
impl File {
    /// What direct I/O needs here.
    pub fn alignment(&self) -> Alignment {
        todo!()
    }
    /// Memory of `len` bytes that direct I/O takes as it is.
    pub fn buffer(&self, len: usize) -> Result<AlignedBuf> {
        todo!()
    }
    /// The size in bytes.
    pub fn size(&self) -> u64 {
        todo!()
    }
    /// What `stat` tells.
    pub fn metadata(&self) -> Result<Attributes> {
        todo!()
    }
    /// Read; returns how many bytes, fewer only at the end of the file.
    pub fn read_at(&self, memory: &mut [u8], offset: u64) -> Result<usize> {
        todo!()
    }
    /// Write all of `data`; returns its length.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        todo!()
    }
    /// As [`File::read_at`], into several segments.
    pub fn read_vectored_at(&self, memory: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        todo!()
    }
    /// As [`File::write_at`], from several segments.
    pub fn write_vectored_at(&self, data: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        todo!()
    }
    /// Fill `memory`, or fail with `UnexpectedEnd`.
    pub fn read_exact_at(&self, memory: &mut [u8], offset: u64) -> Result<()> {
        todo!()
    }
    /// Write all of `data`.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        todo!()
    }
    /// Write all of `data` at the end; returns the offset where it went.
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        todo!()
    }
    /// Make data, and what is needed to read it, durable (`fdatasync`).
    pub fn sync_data(&self) -> Result<()> {
        todo!()
    }
    /// Make data and inode durable (`fsync`).
    pub fn sync_all(&self) -> Result<()> {
        todo!()
    }
    /// Set the size.
    pub fn set_len(&self, size: u64) -> Result<()> {
        todo!()
    }
    /// First hole at or after `offset` (the end of the file is one).
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        todo!()
    }
    /// First data at or after `offset`; [`crate::Error::BeyondEnd`] if there is none.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        todo!()
    }
    /// Give the range blocks; it keeps its content. The file grows if it ends before the range does.
    pub fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        todo!()
    }
    /// Make the range read as zeros and free its whole blocks.
    pub fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        todo!()
    }
    /// Make the range read as zeros.
    pub fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        todo!()
    }
    /// Where the file's data is, in file order.
    pub fn extents(&self) -> Result<Vec<Extent>> {
        todo!()
    }
    /// Show the cached pages of a range to `each`, in order and without a copy, reading what is missing into the cache; returns how
    /// many bytes were shown, fewer only at the end of the file. What `nocopy` of diskperf measures.
    pub fn view(&self, offset: u64, len: usize, each: &mut dyn FnMut(&[u8])) -> Result<usize> {
        todo!()
    }
    /// What was done so far on the filesystem or device that the file belongs to.
    pub fn stats(&self) -> crate::Stats {
        todo!()
    }
    /// Write back the dirty pages of a range without waiting for metadata; drop the clean ones.
    pub fn drop_cached(&self, offset: u64, len: u64) -> Result<()> {
        todo!()
    }
}
impl std::io::Read for &File {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        todo!()
    }
}
impl std::io::Write for &File {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        todo!()
    }
    fn flush(&mut self) -> std::io::Result<()> {
        todo!()
    }
}
impl std::io::Seek for &File {
    fn seek(&mut self, _: std::io::SeekFrom) -> std::io::Result<u64> {
        todo!()
    }
}
impl std::io::Read for File {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        todo!()
    }
}
impl std::io::Write for File {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        todo!()
    }
    fn flush(&mut self) -> std::io::Result<()> {
        todo!()
    }
}
impl std::io::Seek for File {
    fn seek(&mut self, _: std::io::SeekFrom) -> std::io::Result<u64> {
        todo!()
    }
}

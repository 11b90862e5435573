//! Sequential reads and writes of a file in chunks, for the block tests.
//!
//! A [`super::Target`] chooses the way. One chunk at a time is the way of the program of 2001, and suits a kernel with
//! readahead and writeback. Direct I/O on a file of an image has no readahead, so it keeps several chunks in flight
//! ([`DirectReader`], [`DirectWriter`]).

use std::sync::Arc;

use diorite::{DirectReader, DirectWriter};
use diorite_device::AlignedBuf;

use super::CHUNK_BYTES;
use crate::error::Error;
use crate::host::WorkFile;

/// Chunks in flight of a stream. The device gets the next request before the last completion, and one interrupt and one
/// wake-up serve several chunks.
pub(super) const IN_FLIGHT: u32 = 8;

/// Alignment of huge pages, which make direct I/O cheaper.
const HUGE_BYTES: usize = 2 << 20;

/// At least `len` bytes on huge pages, made by `allocate`.
pub(super) fn huge_buffer(
    len: usize,
    allocate: impl Fn(usize, usize) -> std::io::Result<AlignedBuf>,
) -> Result<AlignedBuf, Error> {
    let bytes = len.max(1).next_multiple_of(HUGE_BYTES);
    allocate(bytes, HUGE_BYTES).map_err(|source| Error::Memory { bytes, source })
}

/// Writes a file chunk by chunk from its start.
pub trait ChunkWriter {
    /// The memory of the next chunk, with the content of an earlier chunk.
    fn buffer(&mut self) -> Result<&mut [u8], Error>;

    /// Write the chunk.
    fn submit(&mut self) -> Result<(), Error>;

    /// Wait for all chunks, and make them durable.
    fn finish(self: Box<Self>) -> Result<(), Error>;
}

/// Reads a file chunk by chunk from its start.
pub trait ChunkReader {
    /// The next chunk; `None` at the end of the file.
    fn next_chunk(&mut self) -> Result<Option<&[u8]>, Error>;
}

/// One chunk at a time.
pub(super) struct OneAtATime {
    file: Arc<dyn WorkFile>,
    memory: AlignedBuf,
    offset: u64,
}

impl OneAtATime {
    /// From the start of `file`, with memory for at least a chunk.
    pub(super) fn new(file: Arc<dyn WorkFile>, memory: AlignedBuf) -> Self {
        Self { file, memory, offset: 0 }
    }
}

impl ChunkWriter for OneAtATime {
    fn buffer(&mut self) -> Result<&mut [u8], Error> {
        Ok(&mut self.memory[..CHUNK_BYTES])
    }

    fn submit(&mut self) -> Result<(), Error> {
        self.file.write_all_at(&self.memory[..CHUNK_BYTES], self.offset)?;
        self.offset += CHUNK_BYTES as u64;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        self.file.sync()
    }
}

impl ChunkReader for OneAtATime {
    fn next_chunk(&mut self) -> Result<Option<&[u8]>, Error> {
        let count = self.file.read_at(&mut self.memory[..CHUNK_BYTES], self.offset)?;
        self.offset += count as u64;
        Ok((count > 0).then_some(&self.memory[..count]))
    }
}

/// Several chunks in flight; `blame` adds the file's name to an error of the library.
pub(super) struct Streamed<S, E> {
    pub(super) stream: S,
    pub(super) blame: E,
}

impl<E: Fn(diorite::Error) -> Error> ChunkWriter for Streamed<DirectWriter, E> {
    fn buffer(&mut self) -> Result<&mut [u8], Error> {
        self.stream.buffer().map_err(&self.blame)
    }

    fn submit(&mut self) -> Result<(), Error> {
        self.stream.submit(CHUNK_BYTES).map_err(&self.blame)
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        let Self { stream, blame } = *self;
        stream.finish().and_then(|file| file.sync_all()).map_err(blame)
    }
}

impl<E: Fn(diorite::Error) -> Error> ChunkReader for Streamed<DirectReader, E> {
    fn next_chunk(&mut self) -> Result<Option<&[u8]>, Error> {
        self.stream.next_chunk().map_err(&self.blame)
    }
}

#[cfg(test)]
mod tests {
    use diorite::{BlockDevice, Filesystem, mkfs};
    use diorite_sim::image::ImageDevice;

    use super::*;
    use crate::bonnie::{FileIo, ImageTarget, Target};

    /// Chunks in flight are written at their offsets and read in order.
    #[test]
    fn streams_keep_the_order_of_their_chunks() {
        const CHUNKS: u8 = 3 * IN_FLIGHT as u8 + 1;
        let device: Arc<dyn BlockDevice> = ImageDevice::zeroed(32 << 20);
        mkfs::mkfs(&*device, &mkfs::MkfsOptions::default()).unwrap();
        let target = ImageTarget::new(Filesystem::options().open_device(device).unwrap(), "memory", "/");
        let mut writer = target.writer(FileIo::Direct).unwrap();
        for number in 0..CHUNKS {
            writer.buffer().unwrap().fill(number);
            writer.submit().unwrap();
        }
        writer.finish().unwrap();
        assert_eq!(target.counts().unwrap().bytes_copied, 0);
        for io in [FileIo::Direct, FileIo::Buffered] {
            let mut reader = target.reader(io).unwrap();
            for number in 0..CHUNKS {
                let chunk = reader.next_chunk().unwrap().expect("all written chunks");
                assert!(
                    chunk.len() == CHUNK_BYTES && chunk.iter().all(|byte| *byte == number),
                    "{number} {io:?}"
                );
            }
            assert!(reader.next_chunk().unwrap().is_none());
        }
    }
}

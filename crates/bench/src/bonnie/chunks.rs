//! A file from front to back in chunks: how the block tests write and read.
//!
//! A [`super::Place`] chooses how: one chunk at a time, as the program of 2001 and as fits a kernel that reads ahead and
//! does write-behind by itself; or, for direct I/O on a file of an image, with several chunks in flight ([`DirectReader`],
//! [`DirectWriter`]), since nothing else reads ahead there.

use std::sync::Arc;

use diorite::{DirectReader, DirectWriter};
use diorite_device::AlignedBuf;

use super::CHUNK_BYTES;
use crate::Error;

/// Chunks in flight where several are: the device hears of the next before the last is done, and one interrupt and one wake-up
/// serve several.
pub(super) const IN_FLIGHT: u32 = 8;

/// An open file of a [`super::Place`].
pub trait WorkFile: Send + Sync {
    /// Read; fewer bytes only at the end of the file.
    fn read_at(&self, memory: &mut [u8], offset: u64) -> Result<usize, Error>;

    /// Write all of it.
    fn write_all_at(&self, memory: &[u8], offset: u64) -> Result<(), Error>;

    /// Make what was written durable (`fsync`).
    fn sync(&self) -> Result<(), Error>;
}

/// Writes a file chunk by chunk, beginning at its start.
pub trait ChunkWriter {
    /// The memory of the next chunk; it holds what some earlier one held.
    fn buffer(&mut self) -> Result<&mut [u8], Error>;

    /// Write it.
    fn submit(&mut self) -> Result<(), Error>;

    /// Wait for everything, and make it durable.
    fn finish(self: Box<Self>) -> Result<(), Error>;
}

/// Reads a file chunk by chunk, beginning at its start.
pub trait ChunkReader {
    /// The next chunk; `None` at the end of the file.
    fn next_chunk(&mut self) -> Result<Option<&[u8]>, Error>;
}

/// Waits for each chunk before the next.
pub(super) struct OneAtATime {
    file: Arc<dyn WorkFile>,
    memory: AlignedBuf,
    offset: u64,
}

impl OneAtATime {
    /// From the start of `file`, through memory for a chunk at least.
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

/// Keeps several chunks in flight; `blame` turns an error of the library into one that names the file.
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
    use diorite_device::MemoryDevice;

    use super::*;
    use crate::bonnie::{FileIo, ImagePlace, Place};

    /// Chunks in flight are written where they belong, and come back in order, whichever way they are read.
    #[test]
    fn streams_keep_the_order_of_their_chunks() {
        const CHUNKS: u8 = 3 * IN_FLIGHT as u8 + 1;
        let device: Arc<dyn BlockDevice> = MemoryDevice::new(32 << 20);
        mkfs::mkfs(&*device, &mkfs::MkfsOptions::default()).unwrap();
        let place = ImagePlace::new(Filesystem::options().open_device(device).unwrap(), "memory", "/");
        let mut writer = place.writer(FileIo::Direct).unwrap();
        for number in 0..CHUNKS {
            writer.buffer().unwrap().fill(number);
            writer.submit().unwrap();
        }
        writer.finish().unwrap();
        assert_eq!(place.counts().unwrap().bytes_copied, 0);
        for io in [FileIo::Direct, FileIo::Buffered] {
            let mut reader = place.reader(io).unwrap();
            for number in 0..CHUNKS {
                let chunk = reader.next_chunk().unwrap().expect("as many as were written");
                assert!(
                    chunk.len() == CHUNK_BYTES && chunk.iter().all(|byte| *byte == number),
                    "{number} {io:?}"
                );
            }
            assert!(reader.next_chunk().unwrap().is_none());
        }
    }
}

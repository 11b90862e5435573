//! Streams that read, for one thread.

use std::io::{self, BufRead, Read};

use super::AsyncReader;
use crate::{AsyncQueue, File, Result};

/// Reads a file from front to back with several direct reads in flight: readahead without a cache.
///
/// [`next_chunk`](Self::next_chunk) and [`BufRead::fill_buf`] show the bytes where the device put them; [`Read::read`] copies them to the
/// caller. After an error the stream is over. At the end of the file it continues when the file has grown.
///
/// While a reader is open, its transfers hold their ranges of the file: a write to them by the same thread would wait for itself,
/// and so would another way to read them, where another thread waits to write there.
///
/// ```no_run
/// use std::io::BufRead;
/// use diorite::{DirectIo, DirectReader, Filesystem};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let filesystem = Filesystem::open("disk.img")?;
/// let file = filesystem.open_options().read(true).direct(DirectIo::Required).open("/log")?;
/// let reader = DirectReader::new(file, 0, 1 << 20, 4)?;
/// println!("{} lines", reader.lines().count());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct DirectReader(AsyncReader);

impl DirectReader {
    /// Read `file` from `offset` on, with `buffers` transfers of `buffer_bytes` in flight; fewer where the file ends earlier.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if `buffer_bytes` is no multiple of the file's
    /// [`Alignment::offset`](crate::Alignment::offset), `buffers` is 0, or there would be more than 4096 buffers, or than 4 GiB; there is no
    /// memory. A transfer of a file that is open for direct I/O fails where its offset is not aligned, also with
    /// [`Unaligned::Bounce`](crate::Unaligned::Bounce).
    pub fn new(file: File, offset: u64, buffer_bytes: usize, buffers: u32) -> Result<Self> {
        let queue = AsyncQueue::of_one_thread(buffers);
        AsyncReader::new(&queue, file, offset, buffer_bytes, buffers).map(Self)
    }

    /// The next piece of the file; `None` at its end, as it is now. After [`BufRead::consume`], the rest of the current piece.
    ///
    /// # Errors
    /// The device or the volume failed. The stream is over then: every later call fails as well.
    pub fn next_chunk(&mut self) -> Result<Option<&[u8]>> {
        self.wait_for_unread()?;
        Ok(self.0.take_unread())
    }

    fn wait_for_unread(&mut self) -> Result<()> {
        let queue = self.0.queue.clone();
        queue.block_on(|context| self.0.poll_unread(context))
    }
}

impl BufRead for DirectReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.wait_for_unread()?;
        Ok(self.0.unread())
    }

    fn consume(&mut self, amount: usize) {
        self.0.consume(amount);
    }
}

impl Read for DirectReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let len = self.fill_buf()?.read(to)?;
        self.consume(len);
        Ok(len)
    }
}

//! Streams that write, for one thread.

use std::io::{self, Write};
use std::task::{Context, Poll};

use super::AsyncWriter;
use crate::{AsyncQueue, File, Result};

/// Writes a file from front to back with several direct writes in flight: write-behind without a cache.
///
/// [`buffer`](Self::buffer) and [`submit`](Self::submit) write without a copy; [`Write::write`] copies into the buffer and submits it when it is
/// full. The two can be mixed.
///
/// - [`Write::flush`] submits every whole logical block that was written and waits for all transfers. The rest of a
///   block stays in memory until more bytes follow.
/// - [`finish`](Self::finish) writes everything and gives the file back. **Without it the end of the stream is
///   lost**: dropping a writer only waits for submitted transfers.
/// - Neither call makes data durable: [`File::sync_data`] after `finish` does, or
///   [`OpenOptions::dsync`](crate::OpenOptions::dsync).
/// - While transfers are in flight they hold their ranges of the file: a read of them by the same thread would wait for itself.
/// - When a transfer fails the stream is over: it is unknown how much of it was written, and every later call, also
///   `finish`, fails with that
///   first error ([`Error::Stream`](crate::Error::Stream)).
///
/// ```no_run
/// use diorite::{DirectIo, DirectWriter, Filesystem};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let filesystem = Filesystem::open("disk.img")?;
/// let file = filesystem.open_options().write(true).create(true).direct(DirectIo::Required).open("/copy")?;
/// let mut writer = DirectWriter::new(file, 0, 1 << 20, 4)?;
/// std::io::copy(&mut std::fs::File::open("original")?, &mut writer)?;
/// writer.finish()?.sync_data()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct DirectWriter(AsyncWriter);

impl DirectWriter {
    /// Write `file` from `offset` on, with `buffers` transfers of `buffer_bytes` in flight.
    ///
    /// # Errors
    /// As [`DirectReader::new`](super::DirectReader::new). A transfer of a file that is open for direct I/O fails where its offset is not aligned,
    /// also with [`Unaligned::Bounce`](crate::Unaligned::Bounce).
    pub fn new(file: File, offset: u64, buffer_bytes: usize, buffers: u32) -> Result<Self> {
        let queue = AsyncQueue::of_one_thread(buffers);
        AsyncWriter::new(&queue, file, offset, buffer_bytes, buffers).map(Self)
    }

    fn wait<T>(
        &mut self,
        mut poll: impl FnMut(&mut AsyncWriter, &mut Context<'_>) -> Poll<Result<T>>,
    ) -> Result<T> {
        let queue = self.0.queue.clone();
        queue.block_on(|context| poll(&mut self.0, context))
    }

    /// Memory to fill; [`DirectWriter::submit`] writes it. It has the bytes of an earlier piece.
    ///
    /// # Errors
    /// A transfer in flight failed.
    pub fn buffer(&mut self) -> Result<&mut [u8]> {
        self.wait(AsyncWriter::poll_buffer)?;
        Ok(self.0.unsubmitted.free())
    }

    /// Write the first `len` bytes of the buffer. All pieces but the last must fill their buffers.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if a piece shorter than its buffer was submitted before, or `len` is longer than
    /// the buffer; a transfer in flight failed.
    pub fn submit(&mut self, len: usize) -> Result<()> {
        self.wait(|writer, context| writer.poll_submit(context, len))
    }

    /// Write everything, wait for it, and give the file back. The bytes after the last whole logical block go through aligned memory. The
    /// data is not durable yet: see [`File::sync_data`].
    ///
    /// # Errors
    /// A transfer failed, now or in an earlier call. How much of the stream was written is unknown then.
    pub fn finish(mut self) -> Result<File> {
        self.wait(AsyncWriter::poll_finished)?;
        Ok(self.0.file.clone())
    }
}

impl Write for DirectWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Ok(self.wait(|writer, context| writer.poll_copy(context, data))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(self.wait(AsyncWriter::poll_flushed)?)
    }
}

//! Streams that write.

use std::io::{self, Write};
use std::sync::Arc;

use super::{Unsubmitted, writer_pool};
use crate::handle::queue::{DirectQueue, Finished};
use crate::{Error, File, RegisteredBuf, RegisteredBuffers, Result};

/// Writes a file from front to back with several direct writes in flight: write-behind without a cache.
///
/// [`buffer`](Self::buffer) and [`submit`](Self::submit) write without a copy; [`Write::write`] copies into the buffer and submits it when it is
/// full. The two can be mixed.
///
/// - [`Write::flush`] submits every whole logical block that was written and waits for all transfers. What is left of a block stays in
///   memory until more follows.
/// - [`finish`](Self::finish) writes everything and gives the file back. **Without it the end of the stream is lost**: dropping a writer only waits for what
///   was submitted.
/// - Neither makes anything durable: [`File::sync_data`] after `finish` does, or [`OpenOptions::dsync`](crate::OpenOptions::dsync).
/// - While transfers are in flight they hold their ranges of the file: a read of them by the same thread would wait for itself.
/// - When a transfer fails the stream is over: what of it was written is not known, and every later call, also `finish`, fails with that
///   first error ([`Error::Stream`]).
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
pub struct DirectWriter {
    queue: DirectQueue<RegisteredBuf>,
    file: File,
    pool: RegisteredBuffers,
    unsubmitted: Unsubmitted,
    /// Where the next transfer goes.
    next: u64,
    /// Offset and length of each transfer in flight.
    submitted: Vec<(u64, usize)>,
    /// The first error of a transfer.
    failed: Option<Arc<Error>>,
}

impl DirectWriter {
    /// Write `file` from `offset` on, with `buffers` transfers of `buffer_bytes` in flight.
    ///
    /// # Errors
    /// As [`DirectReader::new`](super::DirectReader::new). A transfer of a file that is open for direct I/O fails where its offset is not aligned,
    /// also with [`Unaligned::Bounce`](crate::Unaligned::Bounce).
    pub fn new(file: File, offset: u64, buffer_bytes: usize, buffers: u32) -> Result<Self> {
        let pool = writer_pool(&file, buffer_bytes, buffers)?;
        let queue = DirectQueue::new(buffers);
        Ok(Self {
            queue,
            file,
            pool,
            unsubmitted: Unsubmitted::default(),
            next: offset,
            submitted: Vec::new(),
            failed: None,
        })
    }

    /// Memory to fill; [`DirectWriter::submit`] writes it. Its content is what was written some time before.
    ///
    /// # Errors
    /// A transfer in flight failed.
    pub fn buffer(&mut self) -> Result<&mut [u8]> {
        self.attempt(|writer| {
            while !writer.unsubmitted.has_buffer() {
                match writer.pool.try_take() {
                    Some(memory) => writer.unsubmitted.put_buffer(memory),
                    None => writer.wait()?,
                }
            }
            Ok(())
        })?;
        Ok(self.unsubmitted.free())
    }

    /// Do something with transfers; the first error is kept, and nothing is done after it.
    fn attempt<T>(&mut self, action: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if let Some(first) = &self.failed {
            return Err(Error::Stream(Arc::clone(first)));
        }
        action(self).map_err(|error| {
            let first = self.failed.insert(Arc::new(error));
            Error::Stream(Arc::clone(first))
        })
    }

    fn wait(&mut self) -> Result<()> {
        let mut done = Vec::new();
        self.queue.reap(1, &mut done)?;
        let is_short = |finished: &Finished<RegisteredBuf>| {
            let mut submitted = self.submitted.iter();
            let len = submitted.find(|(offset, _)| *offset == finished.tag).map_or(0, |(_, len)| *len);
            finished.result.as_ref().is_ok_and(|written| *written < len)
        };
        if done.iter().any(is_short) {
            // What is left of it is written by a call that would wait for the ranges of those in flight.
            while self.queue.in_flight() > 0 {
                self.queue.reap(1, &mut done)?;
            }
        }
        for Finished { tag: offset, memory, result } in done {
            let at = self.submitted.iter().position(|(other, _)| *other == offset);
            let (_, len) = self.submitted.swap_remove(at.expect("a transfer ends once"));
            let written = result?;
            if written < len {
                // The volume filled up on the way: it takes the rest now, or says why not.
                self.file.write_all_at(&memory[written..len], offset + written as u64)?;
            }
        }
        Ok(())
    }

    fn wait_for_all(&mut self) -> Result<()> {
        while self.queue.in_flight() > 0 {
            self.wait()?;
        }
        Ok(())
    }

    /// Write the first `len` bytes of the buffer. All but the last must be whole.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a piece shorter than its buffer was submitted before, or `len` is longer than the buffer; a transfer
    /// failed, this one or one in flight.
    pub fn submit(&mut self, len: usize) -> Result<()> {
        if self.unsubmitted.is_last() || len > self.buffer()?.len() {
            return Err(Error::InvalidArgument(
                "only the last piece of a stream may be shorter than the buffer",
            ));
        }
        if !self.unsubmitted.fill(len) {
            self.unsubmitted.end();
        }
        self.attempt(Self::submit_whole_blocks)
    }

    /// Submit the whole logical blocks of the buffer.
    fn submit_whole_blocks(&mut self) -> Result<()> {
        let unit = self.file.alignment().offset as usize;
        let Some((mut memory, whole)) = self.unsubmitted.take_whole_blocks(unit) else { return Ok(()) };
        loop {
            match self.queue.write(&self.file, self.next, memory, whole, self.next) {
                Ok(()) => break,
                Err(full) if full.is_full() => {
                    memory = full.into_memory();
                    self.wait()?;
                }
                Err(failed) => return Err(failed.into_error()),
            }
        }
        self.submitted.push((self.next, whole));
        self.next += whole as u64;
        self.queue.issue()
    }

    /// Write everything, wait for it, and give the file back. The bytes after the last whole logical block, if there are any, go through
    /// aligned memory. Nothing is durable by it: [`File::sync_data`].
    ///
    /// # Errors
    /// A transfer failed, now or in an earlier call; what of the stream was written is not known then.
    pub fn finish(mut self) -> Result<File> {
        self.attempt(|writer| {
            writer.submit_whole_blocks()?;
            writer.wait_for_all()?;
            if !writer.unsubmitted.rest().is_empty() {
                writer.file.write_tail(writer.unsubmitted.rest(), writer.next)?;
            }
            Ok(writer.file.clone())
        })
    }
}

impl Write for DirectWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.unsubmitted.is_last() {
            return Err(Error::InvalidArgument("the last piece of the stream has been submitted").into());
        }
        let buffer = self.buffer()?;
        let len = data.len().min(buffer.len());
        buffer[..len].copy_from_slice(&data[..len]);
        if self.unsubmitted.fill(len) {
            self.attempt(Self::submit_whole_blocks)?;
        }
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.attempt(|writer| {
            writer.submit_whole_blocks()?;
            writer.wait_for_all()
        })?;
        Ok(())
    }
}

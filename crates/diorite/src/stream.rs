//! Streams: a file from front to back with several direct transfers in flight.
//!
//! Nothing reads ahead for direct I/O, and a reader that waits for each transfer leaves the disk idle in between. A stream
//! keeps N buffers in flight: read-ahead and write-behind without a cache and without a copy.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read, Write};
use std::ops::Range;
use std::sync::Arc;

use crate::queue::{DirectQueue, Finished};
use crate::{Error, File, RegisteredBuf, RegisteredBuffers, Result};

/// Buffers of a stream, at most: no device has more transfers in flight.
const BUFFERS_MAX: u32 = 4096;
/// Bytes of all of them, at most: they are taken at once, and may be pinned.
const BYTES_MAX: u64 = 4 << 30;

/// The buffers of a writer.
pub(crate) fn writer_pool(file: &File, buffer_bytes: usize, buffers: u32) -> Result<RegisteredBuffers> {
    pool(file, buffer_bytes, buffers, u64::MAX)
}

/// The buffers of a reader from `offset` on: no more than the file has use for now.
pub(crate) fn reader_pool(
    file: &File,
    offset: u64,
    buffer_bytes: usize,
    buffers: u32,
) -> Result<RegisteredBuffers> {
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

/// Reads a file from front to back with several direct reads in flight: read-ahead without a cache.
///
/// [`next_chunk`](Self::next_chunk) and [`BufRead::fill_buf`] show the bytes where the device put them; [`Read::read`] copies them to the
/// caller. After an error the stream is over.
///
/// While a reader is open, its transfers hold their ranges of the file: a write to them by the same thread would wait for itself.
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
pub struct DirectReader {
    queue: DirectQueue<RegisteredBuf>,
    file: File,
    pool: RegisteredBuffers,
    /// Where the next transfer goes.
    next: u64,
    /// What has ended, by number, until its turn comes.
    ended: VecDeque<Option<Finished<RegisteredBuf>>>,
    /// Number of the first entry of `ended`.
    first: u64,
    current: Option<RegisteredBuf>,
    /// The part of `current` that was not returned yet.
    unread: Range<usize>,
    at_end: bool,
    has_failed: bool,
}

impl DirectReader {
    /// Read `file` from `offset` on, with `buffers` transfers of `buffer_bytes` in flight; fewer where the file ends earlier.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `buffer_bytes` is no multiple of the file's [`Alignment::offset`](crate::Alignment::offset), there
    /// is no buffer, or there would be more than 4096 buffers, or than 4 GiB; there is no memory.
    pub fn new(file: File, offset: u64, buffer_bytes: usize, buffers: u32) -> Result<Self> {
        let pool = reader_pool(&file, offset, buffer_bytes, buffers)?;
        let queue = DirectQueue::new(pool.count());
        Ok(Self {
            queue,
            file,
            pool,
            next: offset,
            ended: VecDeque::new(),
            first: 0,
            current: None,
            unread: 0..0,
            at_end: false,
            has_failed: false,
        })
    }

    fn fill(&mut self) -> Result<()> {
        let len = self.pool.buffer_bytes();
        while !self.at_end && self.next < self.file.size() {
            let Some(memory) = self.pool.try_take() else { break };
            let tag = self.first + self.ended.len() as u64;
            match self.queue.read(&self.file, self.next, memory, len, tag) {
                Ok(()) => {}
                Err(full) if full.is_full() => break,
                Err(failed) => return Err(failed.into_error()),
            }
            self.ended.push_back(None);
            self.next += len as u64;
        }
        self.queue.issue()
    }

    /// The next piece of the file; `None` at its end. After [`BufRead::consume`], what is left of the current piece.
    ///
    /// # Errors
    /// The device or the volume failed. The stream is over then: every later call fails as well.
    pub fn next_chunk(&mut self) -> Result<Option<&[u8]>> {
        self.have_unread()?;
        let chunk = std::mem::take(&mut self.unread);
        Ok(self.current.as_ref().filter(|_| !chunk.is_empty()).map(|memory| &memory[chunk]))
    }

    /// Get the next piece, unless something of the current one is unread. Nothing is unread afterwards only at the end.
    fn have_unread(&mut self) -> Result<()> {
        if !self.unread.is_empty() {
            return Ok(());
        }
        if self.has_failed {
            return Err(Error::InvalidArgument("an earlier read of this stream failed; open another one"));
        }
        self.advance().inspect_err(|_| self.has_failed = true)
    }

    fn advance(&mut self) -> Result<()> {
        self.current = None;
        self.fill()?;
        let mut done = Vec::new();
        while let Some(None) = self.ended.front() {
            self.queue.reap(1, &mut done)?;
            for finished in done.drain(..) {
                let at = (finished.tag - self.first) as usize;
                self.ended[at] = Some(finished);
            }
        }
        let Some(Some(Finished { memory, result, .. })) = self.ended.pop_front() else { return Ok(()) };
        self.first += 1;
        let len = result?;
        self.at_end |= len < self.pool.buffer_bytes();
        self.unread = 0..len;
        self.current = Some(memory);
        Ok(())
    }
}

impl BufRead for DirectReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.have_unread()?;
        Ok(self.current.as_ref().map_or(&[], |memory| &memory[self.unread.clone()]))
    }

    fn consume(&mut self, amount: usize) {
        self.unread.start = self.unread.end.min(self.unread.start + amount);
    }
}

impl Read for DirectReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let len = self.fill_buf()?.read(to)?;
        self.consume(len);
        Ok(len)
    }
}

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
    current: Option<RegisteredBuf>,
    /// Bytes at the front of `current` that are content.
    filled: usize,
    /// Where the next transfer goes.
    next: u64,
    /// Offset and length of each transfer in flight.
    submitted: Vec<(u64, usize)>,
    /// What a last piece has beyond its last whole logical block.
    tail: Vec<u8>,
    is_last: bool,
    /// The first error of a transfer.
    failed: Option<Arc<Error>>,
}

impl DirectWriter {
    /// Write `file` from `offset` on, with `buffers` transfers of `buffer_bytes` in flight.
    ///
    /// # Errors
    /// As [`DirectReader::new`].
    pub fn new(file: File, offset: u64, buffer_bytes: usize, buffers: u32) -> Result<Self> {
        let pool = writer_pool(&file, buffer_bytes, buffers)?;
        let queue = DirectQueue::new(buffers);
        let (submitted, tail) = (Vec::new(), Vec::new());
        Ok(Self {
            queue,
            file,
            pool,
            current: None,
            filled: 0,
            next: offset,
            submitted,
            tail,
            is_last: false,
            failed: None,
        })
    }

    /// Memory to fill; [`DirectWriter::submit`] writes it. Its content is what was written some time before.
    ///
    /// # Errors
    /// A transfer in flight failed.
    pub fn buffer(&mut self) -> Result<&mut [u8]> {
        self.attempt(|writer| {
            while writer.current.is_none() {
                match writer.pool.try_take() {
                    Some(memory) => writer.current = Some(memory),
                    None => writer.wait()?,
                }
            }
            Ok(())
        })?;
        Ok(&mut self.current.as_deref_mut().expect("just taken")[self.filled..])
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
        if self.is_last || len > self.pool.buffer_bytes() - self.filled {
            return Err(Error::InvalidArgument(
                "only the last piece of a stream may be shorter than the buffer",
            ));
        }
        self.buffer()?;
        self.filled += len;
        self.is_last = self.filled < self.pool.buffer_bytes();
        self.attempt(Self::submit_whole_blocks)
    }

    /// Submit the whole logical blocks of the buffer; what is left goes to the tail.
    fn submit_whole_blocks(&mut self) -> Result<()> {
        let Some(mut memory) = self.current.take() else { return Ok(()) };
        let unit = self.file.alignment().offset as usize;
        let filled = std::mem::take(&mut self.filled);
        let whole = filled / unit * unit;
        self.tail.extend_from_slice(&memory[whole..filled]);
        if whole == 0 {
            return Ok(());
        }
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
            if !writer.tail.is_empty() {
                writer.file.write_tail(&writer.tail, writer.next)?;
            }
            Ok(writer.file.clone())
        })
    }
}

impl Write for DirectWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.is_last {
            return Err(Error::InvalidArgument("the last piece of the stream has been submitted").into());
        }
        let buffer = self.buffer()?;
        let len = data.len().min(buffer.len());
        buffer[..len].copy_from_slice(&data[..len]);
        self.filled += len;
        if self.filled == self.pool.buffer_bytes() {
            self.attempt(Self::submit_whole_blocks)?;
        }
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.is_last {
            return Ok(self.attempt(Self::wait_for_all)?);
        }
        self.attempt(|writer| {
            writer.submit_whole_blocks()?;
            writer.wait_for_all()
        })?;
        // What follows continues the block that is not whole yet.
        let rest = std::mem::take(&mut self.tail);
        self.buffer()?[..rest.len()].copy_from_slice(&rest);
        self.filled = rest.len();
        Ok(())
    }
}

//! Streams that read.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read};
use std::ops::Range;

use super::{Cursor, reader_pool};
use crate::handle::queue::{DirectQueue, Finished};
use crate::{Error, File, RegisteredBuf, RegisteredBuffers, Result};

/// Reads a file from front to back with several direct reads in flight: read-ahead without a cache.
///
/// [`next_chunk`](Self::next_chunk) and [`BufRead::fill_buf`] show the bytes where the device put them; [`Read::read`] copies them to the
/// caller. After an error the stream is over. At the end of the file it goes on when the file has grown.
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
pub struct DirectReader {
    queue: DirectQueue<RegisteredBuf>,
    file: File,
    pool: RegisteredBuffers,
    cursor: Cursor,
    /// What has ended, by number, until its turn comes.
    ended: VecDeque<Option<Finished<RegisteredBuf>>>,
    /// Number of the first entry of `ended`.
    first: u64,
    current: Option<RegisteredBuf>,
    /// The part of `current` that was not returned yet.
    unread: Range<usize>,
    has_failed: bool,
}

impl DirectReader {
    /// Read `file` from `offset` on, with `buffers` transfers of `buffer_bytes` in flight; fewer where the file ends earlier.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `buffer_bytes` is no multiple of the file's [`Alignment::offset`](crate::Alignment::offset), there
    /// is no buffer, or there would be more than 4096 buffers, or than 4 GiB; there is no memory. A transfer of a file that is open for
    /// direct I/O fails where its offset is not aligned, also with [`Unaligned::Bounce`](crate::Unaligned::Bounce).
    pub fn new(file: File, offset: u64, buffer_bytes: usize, buffers: u32) -> Result<Self> {
        let pool = reader_pool(&file, offset, buffer_bytes, buffers)?;
        let queue = DirectQueue::new(pool.count());
        Ok(Self {
            queue,
            file,
            pool,
            cursor: Cursor::at(offset),
            ended: VecDeque::new(),
            first: 0,
            current: None,
            unread: 0..0,
            has_failed: false,
        })
    }

    fn fill(&mut self) -> Result<()> {
        let len = self.pool.buffer_bytes();
        while self.cursor.has_more(&self.file) {
            let Some(memory) = self.pool.try_take() else { break };
            let tag = self.first + self.ended.len() as u64;
            match self.queue.read(&self.file, self.cursor.next(), memory, len, tag) {
                Ok(()) => {}
                Err(full) if full.is_full() => break,
                Err(failed) => return Err(failed.into_error()),
            }
            self.ended.push_back(None);
            self.cursor.advance(len);
        }
        self.queue.issue()
    }

    /// The next piece of the file; `None` at its end, as it is now. After [`BufRead::consume`], what is left of the current piece.
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
        self.unread = self.cursor.new_of(len);
        self.current = Some(memory);
        if len < self.pool.buffer_bytes() { self.go_back(len) } else { Ok(()) }
    }

    /// The piece that was just taken has only `len` bytes: drop those after it.
    fn go_back(&mut self, len: usize) -> Result<()> {
        while self.queue.in_flight() > 0 {
            self.queue.reap(1, &mut Vec::new())?;
        }
        let pieces = 1 + self.ended.len();
        self.first += self.ended.len() as u64;
        self.ended.clear();
        self.cursor.go_back(pieces, self.pool.buffer_bytes(), len, self.file.alignment().offset);
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

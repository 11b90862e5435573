//! A file from front to back with several direct reads in flight, for async code.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::{Cursor, reader_pool};
use crate::{AsyncQueue, Error, File, RegisteredBuf, RegisteredBuffers, Result, Transfer};

/// [`DirectReader`](crate::DirectReader) for async code: readahead without a cache.
///
/// [`next_chunk`](Self::next_chunk) shows the bytes where the device put them. With the feature `futures-io` or `tokio` it is an
/// `AsyncBufRead` of that crate. Dropping the future of a call loses nothing. After an error the stream is over. At
/// the end of the file it continues when the file has grown.
///
/// ```no_run
/// use diorite::{AsyncQueue, AsyncReader, DirectIo, Filesystem};
///
/// # fn main() -> diorite::Result<()> {
/// let filesystem = Filesystem::open("disk.img")?;
/// let file = filesystem.open_options().read(true).direct(DirectIo::Required).open("/log")?;
/// let queue = AsyncQueue::new(4)?;
/// let mut reader = AsyncReader::new(&queue, file, 0, 1 << 20, 4)?;
/// let len = queue.run(async {
///     let mut len = 0;
///     while let Some(chunk) = reader.next_chunk().await? {
///         len += chunk.len();
///     }
///     Ok::<_, diorite::Error>(len)
/// })?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncReader {
    pub(super) queue: AsyncQueue<RegisteredBuf>,
    file: File,
    pool: RegisteredBuffers,
    cursor: Cursor,
    flying: VecDeque<Transfer<RegisteredBuf>>,
    /// Number of transfers in flight to drop, from the first on: a piece before them met the end of the file.
    dropped: usize,
    current: Option<RegisteredBuf>,
    /// The part of `current` that was not consumed.
    unread: Range<usize>,
    has_failed: bool,
}

impl AsyncReader {
    /// Read `file` from `offset` on, with `buffers` transfers of `buffer_bytes` in flight on `queue`, as far as it has space for them.
    /// All memory of a queue is of one type, and a stream's is registered with the rings ([`RegisteredBuffers`]): transfers of other memory
    /// go on another queue.
    ///
    /// # Errors
    /// As [`DirectReader::new`](crate::DirectReader::new).
    pub fn new(
        queue: &AsyncQueue<RegisteredBuf>,
        file: File,
        offset: u64,
        buffer_bytes: usize,
        buffers: u32,
    ) -> Result<Self> {
        let pool = reader_pool(&file, offset, buffer_bytes, buffers)?;
        Ok(Self {
            queue: queue.clone(),
            file,
            pool,
            cursor: Cursor::at(offset),
            flying: VecDeque::new(),
            dropped: 0,
            current: None,
            unread: 0..0,
            has_failed: false,
        })
    }

    /// The next piece of the file; `None` at its end. After a partial `consume`, the rest of the current piece.
    ///
    /// # Errors
    /// The device or the volume failed. The stream is over then: every later call fails as well.
    pub async fn next_chunk(&mut self) -> Result<Option<&[u8]>> {
        poll_fn(|context| self.poll_unread(context)).await?;
        Ok(self.take_unread())
    }

    /// Consume the unread part of the current piece; `None` if there is none.
    pub(super) fn take_unread(&mut self) -> Option<&[u8]> {
        let chunk = std::mem::take(&mut self.unread);
        self.current.as_ref().filter(|_| !chunk.is_empty()).map(|memory| &memory[chunk])
    }

    /// Have unread bytes, unless the file has ended.
    pub(super) fn poll_unread(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        if !self.unread.is_empty() {
            return Poll::Ready(Ok(()));
        }
        if self.has_failed {
            let over = "an earlier read of this stream failed; open another one";
            return Poll::Ready(Err(Error::InvalidArgument(over)));
        }
        let advanced = ready!(self.poll_advance(context));
        self.has_failed = advanced.is_err();
        Poll::Ready(advanced)
    }

    fn poll_advance(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.current = None;
        while self.dropped > 0 {
            let _ = ready!(self.poll_first(context));
            self.dropped -= 1;
        }
        let len = self.pool.buffer_bytes();
        while self.cursor.has_more(&self.file) {
            let Some(memory) = self.pool.try_take() else { break };
            let mut transfer = self.queue.read(&self.file, self.cursor.next(), memory, len);
            transfer.submit();
            self.flying.push_back(transfer);
            self.cursor.advance(len);
        }
        let Some((result, memory)) = ready!(self.poll_first(context)) else { return Poll::Ready(Ok(())) };
        let read = result?;
        self.unread = self.cursor.new_of(read);
        self.current = Some(memory);
        if read < len {
            self.dropped = self.flying.len();
            self.cursor.go_back(1 + self.flying.len(), len, read, self.file.alignment().offset);
        }
        Poll::Ready(Ok(()))
    }

    /// The completion of the oldest transfer; `None` if there is none.
    fn poll_first(&mut self, context: &mut Context<'_>) -> Poll<Option<(Result<usize>, RegisteredBuf)>> {
        let Some(first) = self.flying.front_mut() else { return Poll::Ready(None) };
        let ended = Pin::new(first).poll(context);
        if ended.is_ready() {
            self.flying.pop_front();
        }
        ended.map(Some)
    }

    /// The unread part of the current piece.
    pub(super) fn unread(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], |memory| &memory[self.unread.clone()])
    }

    pub(super) fn consume(&mut self, amount: usize) {
        self.unread.start = self.unread.end.min(self.unread.start + amount);
    }
}

#[cfg(feature = "futures-io")]
mod futures_traits {
    use std::io;

    use super::{AsyncReader, Context, Pin, Poll, ready};

    impl futures_io::AsyncBufRead for AsyncReader {
        fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
            let this = self.get_mut();
            ready!(this.poll_unread(context))?;
            Poll::Ready(Ok(this.unread()))
        }

        fn consume(self: Pin<&mut Self>, amount: usize) {
            AsyncReader::consume(self.get_mut(), amount);
        }
    }

    impl futures_io::AsyncRead for AsyncReader {
        fn poll_read(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            to: &mut [u8],
        ) -> Poll<io::Result<usize>> {
            let this = self.get_mut();
            ready!(this.poll_unread(context))?;
            let len = io::Read::read(&mut this.unread(), to)?;
            this.consume(len);
            Poll::Ready(Ok(len))
        }
    }
}

#[cfg(feature = "tokio")]
mod tokio_traits {
    use std::io;

    use super::{AsyncReader, Context, Pin, Poll, ready};

    impl tokio::io::AsyncBufRead for AsyncReader {
        fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
            let this = self.get_mut();
            ready!(this.poll_unread(context))?;
            Poll::Ready(Ok(this.unread()))
        }

        fn consume(self: Pin<&mut Self>, amount: usize) {
            AsyncReader::consume(self.get_mut(), amount);
        }
    }

    impl tokio::io::AsyncRead for AsyncReader {
        fn poll_read(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            to: &mut tokio::io::ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let this = self.get_mut();
            ready!(this.poll_unread(context))?;
            let len = this.unread().len().min(to.remaining());
            to.put_slice(&this.unread()[..len]);
            this.consume(len);
            Poll::Ready(Ok(()))
        }
    }
}

//! A file from front to back with several direct writes in flight, for async code.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::{Unsubmitted, writer_pool};
use crate::handle::queue::TransferKind;
use crate::{AsyncQueue, Error, File, RegisteredBuf, RegisteredBuffers, Result, Transfer};

/// [`DirectWriter`](crate::DirectWriter) for async code: write-behind without a cache.
///
/// [`write_all`](Self::write_all) copies into buffers that are submitted when they are full; [`buffer`](Self::buffer) and
/// [`submit`](Self::submit) write without a copy. With the feature `futures-io` or `tokio` it is an `AsyncWrite` of that crate, whose close
/// (shutdown) is [`finish`](Self::finish).
///
/// As with `DirectWriter`: **without `finish` the end of the stream is lost**, nothing is durable before
/// [`File::sync_data`], and after a failed transfer every call fails with that first error ([`Error::Stream`]).
#[derive(Debug)]
pub struct AsyncWriter {
    pub(super) queue: AsyncQueue<RegisteredBuf>,
    pub(super) file: File,
    pool: RegisteredBuffers,
    pub(super) unsubmitted: Unsubmitted,
    /// The offset of the next transfer.
    next: u64,
    flying: VecDeque<Flying>,
    /// Written only in part, because the volume filled up: waits until nothing is in flight.
    short: Vec<(u64, RegisteredBuf, std::ops::Range<usize>)>,
    is_finished: bool,
    failed: Option<Arc<Error>>,
}

#[derive(Debug)]
struct Flying {
    offset: u64,
    len: usize,
    transfer: Transfer<RegisteredBuf>,
}

impl AsyncWriter {
    /// Write `file` from `offset` on, with `buffers` transfers of `buffer_bytes` in flight on `queue`, as far as it has space for them.
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
        let pool = writer_pool(&file, buffer_bytes, buffers)?;
        Ok(Self {
            queue: queue.clone(),
            file,
            pool,
            unsubmitted: Unsubmitted::default(),
            next: offset,
            flying: VecDeque::new(),
            short: Vec::new(),
            is_finished: false,
            failed: None,
        })
    }

    /// Memory to fill; [`submit`](Self::submit) writes it. It has the bytes of an earlier piece.
    ///
    /// # Errors
    /// A transfer in flight failed.
    pub async fn buffer(&mut self) -> Result<&mut [u8]> {
        poll_fn(|context| self.poll_buffer(context)).await?;
        Ok(self.unsubmitted.free())
    }

    /// Write the first `len` bytes of the buffer. All but the last must be whole.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a piece shorter than its buffer was submitted before, or `len` is longer than the buffer; a transfer
    /// failed, this one or one in flight.
    pub async fn submit(&mut self, len: usize) -> Result<()> {
        poll_fn(|context| self.poll_submit(context, len)).await
    }

    /// Write all of `data`, copied.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub async fn write_all(&mut self, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            let len = poll_fn(|context| self.poll_copy(context, data)).await?;
            data = &data[len..];
        }
        Ok(())
    }

    /// Submit every whole logical block that was written, and wait for all transfers. The rest of a block stays in
    /// memory until more bytes follow.
    ///
    /// # Errors
    /// A transfer failed.
    pub async fn flush(&mut self) -> Result<()> {
        poll_fn(|context| self.poll_flushed(context)).await
    }

    /// Write everything, wait for it, and give the file back.
    ///
    /// # Errors
    /// A transfer failed, now or in an earlier call. How much of the stream was written is unknown then.
    pub async fn finish(mut self) -> Result<File> {
        poll_fn(|context| self.poll_finished(context)).await?;
        Ok(self.file.clone())
    }

    /// Run `action`, unless an earlier one has failed. The first error is kept.
    fn attempt<T>(
        &mut self,
        context: &mut Context<'_>,
        action: impl FnOnce(&mut Self, &mut Context<'_>) -> Poll<Result<T>>,
    ) -> Poll<Result<T>> {
        if let Some(first) = &self.failed {
            return Poll::Ready(Err(Error::Stream(Arc::clone(first))));
        }
        action(self, context).map_err(|error| {
            let first = self.failed.insert(Arc::new(error));
            Error::Stream(Arc::clone(first))
        })
    }

    pub(super) fn poll_buffer(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.attempt(context, |writer, context| {
            while !writer.unsubmitted.has_buffer() {
                match writer.pool.try_take() {
                    Some(memory) => writer.unsubmitted.put_buffer(memory),
                    None => drop(ready!(writer.poll_first(context))?),
                }
            }
            Poll::Ready(Ok(()))
        })
    }

    pub(super) fn poll_submit(&mut self, context: &mut Context<'_>, len: usize) -> Poll<Result<()>> {
        ready!(self.poll_buffer(context))?;
        if self.unsubmitted.is_last() || len > self.unsubmitted.free().len() {
            return Poll::Ready(Err(Error::InvalidArgument(
                "only the last buffer of a stream can be partly filled",
            )));
        }
        if !self.unsubmitted.fill(len) {
            self.unsubmitted.end();
        }
        self.submit_whole_blocks();
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_copy(&mut self, context: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize>> {
        if self.unsubmitted.is_last() {
            return Poll::Ready(Err(Error::InvalidArgument(
                "the last buffer of the stream was submitted already",
            )));
        }
        ready!(self.poll_buffer(context))?;
        let buffer = self.unsubmitted.free();
        let len = data.len().min(buffer.len());
        buffer[..len].copy_from_slice(&data[..len]);
        if self.unsubmitted.fill(len) {
            self.submit_whole_blocks();
        }
        Poll::Ready(Ok(len))
    }

    /// Begin the transfer of the whole logical blocks of the buffer.
    fn submit_whole_blocks(&mut self) {
        let unit = self.file.alignment().offset as usize;
        if let Some((memory, whole)) = self.unsubmitted.take_whole_blocks(unit) {
            self.submit_transfer(TransferKind::Write, self.next, memory, whole);
            self.next += whole as u64;
        }
    }

    /// Begin the transfer of the rest of the stream in one logical block; returns whether there was any. Nothing is
    /// in flight.
    fn submit_rest(&mut self) -> bool {
        let unit = self.file.alignment().offset as usize;
        let at = (self.next % unit as u64) as usize;
        let rest = self.unsubmitted.take_rest(unit - at);
        if rest.is_empty() {
            return false;
        }
        let mut memory = self.pool.try_take().expect("a buffer is free where nothing is in flight");
        memory[at..at + rest.len()].copy_from_slice(&rest);
        self.submit_transfer(TransferKind::WriteInBlock, self.next, memory, rest.len());
        self.next += rest.len() as u64;
        true
    }

    fn submit_transfer(&mut self, kind: TransferKind, offset: u64, memory: RegisteredBuf, len: usize) {
        let mut transfer = Transfer::new(self.queue.clone(), kind, self.file.clone(), offset, memory, len);
        transfer.submit();
        self.flying.push_back(Flying { offset, len, transfer });
    }

    /// The completion of the oldest transfer; `false` if there is none.
    fn poll_first(&mut self, context: &mut Context<'_>) -> Poll<Result<bool>> {
        let Some(Flying { offset, len, transfer }) = self.flying.front_mut() else {
            return Poll::Ready(Ok(self.submit_short()));
        };
        let (offset, len) = (*offset, *len);
        let (result, memory) = ready!(Pin::new(transfer).poll(context));
        self.flying.pop_front();
        let written = result?;
        if written < len {
            self.short.push((offset + written as u64, memory, written..len));
        }
        Poll::Ready(Ok(true))
    }

    /// Nothing is in flight: write the bytes again for which the volume had no space. Returns whether there were any.
    fn submit_short(&mut self) -> bool {
        for (offset, mut memory, range) in std::mem::take(&mut self.short) {
            memory.copy_within(range.clone(), 0);
            self.submit_transfer(TransferKind::Write, offset, memory, range.len());
        }
        !self.flying.is_empty()
    }

    fn poll_all(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        while ready!(self.poll_first(context))? {}
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_flushed(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.submit_whole_blocks();
        self.attempt(context, Self::poll_all)
    }

    pub(super) fn poll_finished(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        if self.is_finished {
            return Poll::Ready(Ok(()));
        }
        self.submit_whole_blocks();
        self.unsubmitted.end();
        loop {
            ready!(self.attempt(context, Self::poll_all))?;
            if !self.submit_rest() {
                break;
            }
        }
        self.is_finished = true;
        Poll::Ready(Ok(()))
    }
}

#[cfg(feature = "futures-io")]
impl futures_io::AsyncWrite for AsyncWriter {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.get_mut().poll_copy(context, data).map_err(Into::into)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.get_mut().poll_flushed(context).map_err(Into::into)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.get_mut().poll_finished(context).map_err(Into::into)
    }
}

#[cfg(feature = "tokio")]
impl tokio::io::AsyncWrite for AsyncWriter {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.get_mut().poll_copy(context, data).map_err(Into::into)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.get_mut().poll_flushed(context).map_err(Into::into)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.get_mut().poll_finished(context).map_err(Into::into)
    }
}

//! Streams: a file from front to back with several direct transfers in flight.
//!
//! Nothing reads ahead for direct I/O, and a reader that waits for each transfer leaves the disk idle in between. A stream
//! keeps N buffers in flight: read-ahead and write-behind without a cache and without a copy.

use std::collections::VecDeque;

use crate::queue::{DirectQueue, Finished};
use crate::{BufferPool, Error, File, PoolBuf, Result};

fn pool(file: &File, buffer_bytes: usize, buffers: u32) -> Result<BufferPool> {
    let unit = file.alignment().offset as usize;
    if buffer_bytes == 0 || !buffer_bytes.is_multiple_of(unit) || buffers == 0 {
        return Err(Error::InvalidArgument(
            "a stream needs at least one buffer, of a multiple of the device's logical block size",
        ));
    }
    BufferPool::new(buffer_bytes, buffers)
        .map_err(|source| Error::Os { what: "cannot get memory for a stream", source })
}

/// Reads a file from front to back with several direct reads in flight.
#[derive(Debug)]
pub struct DirectReader {
    queue: DirectQueue<PoolBuf>,
    file: File,
    pool: BufferPool,
    /// Where the next transfer goes.
    next: u64,
    /// What has ended, by number, until its turn comes.
    ended: VecDeque<Option<Finished<PoolBuf>>>,
    /// Number of the first entry of `ended`.
    first: u64,
    current: Option<PoolBuf>,
    at_end: bool,
}

impl DirectReader {
    /// Read `file` from `offset` on, with `buffers` transfers of `buffer_bytes` in flight.
    pub fn new(file: File, offset: u64, buffer_bytes: usize, buffers: u32) -> Result<Self> {
        let pool = pool(&file, buffer_bytes, buffers)?;
        let queue = DirectQueue::new(buffers);
        Ok(Self {
            queue,
            file,
            pool,
            next: offset,
            ended: VecDeque::new(),
            first: 0,
            current: None,
            at_end: false,
        })
    }

    fn fill(&mut self) -> Result<()> {
        let len = self.pool.buffer_bytes();
        while !self.at_end && self.next < self.file.size() {
            let Some(memory) = self.pool.try_take() else { break };
            let tag = self.first + self.ended.len() as u64;
            if let Err(refused) = self.queue.read(&self.file, self.next, memory, len, tag) {
                match refused.error {
                    Some(error) => return Err(error),
                    None => break,
                }
            }
            self.ended.push_back(None);
            self.next += len as u64;
        }
        self.queue.issue()
    }

    /// The next piece of the file; `None` at its end.
    pub fn next_chunk(&mut self) -> Result<Option<&[u8]>> {
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
        let Some(Some(Finished { memory, result, .. })) = self.ended.pop_front() else { return Ok(None) };
        self.first += 1;
        let len = result?;
        if len < self.pool.buffer_bytes() {
            self.at_end = true;
        }
        let memory = self.current.insert(memory);
        Ok((len > 0).then_some(&memory[..len]))
    }
}

/// Writes a file from front to back with several direct writes in flight.
#[derive(Debug)]
pub struct DirectWriter {
    queue: DirectQueue<PoolBuf>,
    file: File,
    pool: BufferPool,
    current: Option<PoolBuf>,
    /// Where the next transfer goes.
    next: u64,
    /// What a last piece has beyond its last whole logical block.
    tail: Vec<u8>,
    is_last: bool,
}

impl DirectWriter {
    /// Write `file` from `offset` on, with `buffers` transfers of `buffer_bytes` in flight.
    pub fn new(file: File, offset: u64, buffer_bytes: usize, buffers: u32) -> Result<Self> {
        let pool = pool(&file, buffer_bytes, buffers)?;
        let queue = DirectQueue::new(buffers);
        Ok(Self { queue, file, pool, current: None, next: offset, tail: Vec::new(), is_last: false })
    }

    /// Memory to fill; [`DirectWriter::submit`] writes it. Its content is what was written some time before.
    pub fn buffer(&mut self) -> Result<&mut [u8]> {
        while self.current.is_none() {
            match self.pool.try_take() {
                Some(memory) => self.current = Some(memory),
                None => self.wait()?,
            }
        }
        Ok(self.current.as_deref_mut().expect("just taken"))
    }

    fn wait(&mut self) -> Result<()> {
        let mut done = Vec::new();
        self.queue.reap(1, &mut done)?;
        for Finished { tag: offset, memory, result } in done {
            // Of the last piece less may have been submitted.
            let len = memory.len().min((self.next - offset) as usize);
            let written = result?;
            if written < len {
                // The volume filled up on the way: it takes the rest now, or says why not.
                self.file.write_all_at(&memory[written..len], offset + written as u64)?;
            }
        }
        Ok(())
    }

    /// Write the first `len` bytes of the buffer. All but the last must be whole.
    pub fn submit(&mut self, len: usize) -> Result<()> {
        if self.is_last || len > self.pool.buffer_bytes() {
            return Err(Error::InvalidArgument(
                "only the last piece of a stream may be shorter than the buffer",
            ));
        }
        self.buffer()?;
        let Some(mut memory) = self.current.take() else { return Ok(()) };
        let unit = self.file.alignment().offset as usize;
        let whole = len / unit * unit;
        self.is_last = len < self.pool.buffer_bytes();
        self.tail.extend_from_slice(&memory[whole..len]);
        if whole == 0 {
            return Ok(());
        }
        loop {
            match self.queue.write(&self.file, self.next, memory, whole, self.next) {
                Ok(()) => break,
                Err(refused) => {
                    if let Some(error) = refused.error {
                        return Err(error);
                    }
                    memory = refused.memory;
                    self.wait()?;
                }
            }
        }
        self.next += whole as u64;
        self.queue.issue()
    }

    /// Wait for everything and give the file back. The bytes after the last whole logical block, if there are any, go through
    /// aligned memory.
    pub fn finish(mut self) -> Result<File> {
        while self.queue.in_flight() > 0 {
            self.wait()?;
        }
        if !self.tail.is_empty() {
            self.file.write_tail(&self.tail, self.next)?;
        }
        Ok(self.file.clone())
    }
}

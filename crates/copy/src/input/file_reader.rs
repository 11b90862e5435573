//! A part of a file as a stream. Skipped data is not read, unless a checksum of all bytes is needed.

use std::io::{self, Read};
use std::ops::Range;
use std::rc::Rc;

use sha2::{Digest as _, Sha256};

use crate::Error;
use crate::pax::Stream;
use crate::tree::ReadFile;

/// Size of a read from the file.
const BUFFER_BYTES: usize = 64 << 10;
/// Size of a read of data that only the checksum needs.
const SKIP_BYTES: u64 = 1 << 20;

/// Reads a part of a file from front to back.
pub(crate) struct FileReader {
    file: Rc<dyn ReadFile>,
    part: Range<u64>,
    /// The offset in the file of the next read.
    at: u64,
    buffer: Vec<u8>,
    /// The bytes of the buffer that were not read yet.
    buffered: Range<usize>,
    checksum: Option<Sha256>,
}

impl FileReader {
    pub(crate) fn new(file: Rc<dyn ReadFile>, part: Range<u64>) -> Self {
        let at = part.start;
        Self { file, part, at, buffer: Vec::new(), buffered: 0..0, checksum: None }
    }

    /// The same, with a checksum of all bytes.
    pub(crate) fn with_checksum(self) -> Self {
        Self { checksum: Some(Sha256::new()), ..self }
    }

    /// The next bytes, which are read again later; fewer than `len` only at the end.
    pub(crate) fn peek(&mut self, len: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; (len as u64).min(self.part.end - self.at) as usize];
        let count = self.file.read_at(&mut bytes, self.at)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// The part from here to its end, as a file.
    pub(crate) fn rest(&self) -> Rc<dyn ReadFile> {
        let from = self.at - self.buffered.len() as u64;
        if from == 0 {
            return Rc::clone(&self.file);
        }
        Rc::new(Part { file: Rc::clone(&self.file), part: from..self.part.end })
    }

    /// The SHA-256 checksum of the whole part; reads its rest.
    pub(crate) fn finish(mut self) -> io::Result<[u8; 32]> {
        self.skip(u64::MAX)?;
        Ok(self.checksum.unwrap_or_default().finalize().into())
    }

    /// Read from the file.
    fn read_direct(&mut self, memory: &mut [u8]) -> io::Result<usize> {
        let most = (memory.len() as u64).min(self.part.end - self.at) as usize;
        let count = self.file.read_at(&mut memory[..most], self.at).map_err(into_io)?;
        self.at += count as u64;
        if let Some(checksum) = &mut self.checksum {
            checksum.update(&memory[..count]);
        }
        Ok(count)
    }
}

/// The error of a file as that of a stream.
fn into_io(error: Error) -> io::Error {
    match error {
        Error::Host { source, .. } => source,
        other => io::Error::other(other),
    }
}

impl Read for FileReader {
    fn read(&mut self, memory: &mut [u8]) -> io::Result<usize> {
        if self.buffered.is_empty() {
            if memory.len() >= BUFFER_BYTES {
                return self.read_direct(memory);
            }
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.resize(BUFFER_BYTES, 0);
            let count = self.read_direct(&mut buffer);
            self.buffer = buffer;
            self.buffered = 0..count?;
        }
        let count = memory.len().min(self.buffered.len());
        memory[..count].copy_from_slice(&self.buffer[self.buffered.start..][..count]);
        self.buffered.start += count;
        Ok(count)
    }
}

impl Stream for FileReader {
    fn skip(&mut self, count: u64) -> io::Result<u64> {
        let buffered = count.min(self.buffered.len() as u64);
        self.buffered.start += buffered as usize;
        let rest = (count - buffered).min(self.part.end - self.at);
        if self.checksum.is_none() {
            self.at += rest;
            return Ok(buffered + rest);
        }
        let (mut done, mut memory) = (0, vec![0; rest.min(SKIP_BYTES) as usize]);
        while done < rest {
            let most = (rest - done).min(SKIP_BYTES) as usize;
            match self.read_direct(&mut memory[..most])? {
                0 => break,
                count => done += count as u64,
            }
        }
        Ok(buffered + done)
    }
}

/// A part of a file as a file without holes.
struct Part {
    file: Rc<dyn ReadFile>,
    part: Range<u64>,
}

impl ReadFile for Part {
    fn read_at(&self, memory: &mut [u8], offset: u64) -> Result<usize, Error> {
        let most = (memory.len() as u64).min((self.part.end - self.part.start).saturating_sub(offset));
        self.file.read_at(&mut memory[..most as usize], self.part.start + offset)
    }

    fn size(&self) -> Result<u64, Error> {
        Ok(self.part.end - self.part.start)
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, Error> {
        let end = self.part.end - self.part.start;
        Ok((offset < end).then_some((offset, end)))
    }
}

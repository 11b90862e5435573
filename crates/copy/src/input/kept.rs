//! A stream that is kept in a temporary file while it is read, so that its data can be read again.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::Error;
use crate::pax::Stream;

/// Size of a read and a write.
const BUFFER_BYTES: usize = 256 << 10;

/// A stream and its temporary file, which has no name. Offsets in both are equal.
pub(super) struct Kept<R> {
    stream: R,
    file: File,
    directory: PathBuf,
    buffer: Vec<u8>,
    /// The part of the buffer that was not read yet. All of the buffer is in the file.
    start: usize,
    end: usize,
}

impl<R: Read> Kept<R> {
    /// Keep a stream in a file of `directory`.
    pub(super) fn new(stream: R, directory: &Path) -> Result<Self, Error> {
        let file = tempfile::tempfile_in(directory)
            .map_err(|error| Error::host(directory, "make a temporary file in", error))?;
        let (directory, buffer) = (directory.to_owned(), vec![0; BUFFER_BYTES]);
        Ok(Self { stream, file, directory, buffer, start: 0, end: 0 })
    }

    /// The temporary file.
    pub(super) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Read the rest of the stream without keeping it: a compressed stream has a checksum at its end, and its writer must not fail.
    pub(super) fn finish(mut self) -> io::Result<()> {
        io::copy(&mut self.stream, &mut io::sink()).map(drop)
    }

    /// Read more into the empty buffer. Returns whether there is more.
    fn fill(&mut self) -> io::Result<bool> {
        let count = loop {
            match self.stream.read(&mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.file.write_all(&self.buffer[..count]).map_err(|error| {
            let why = format!(
                "cannot write it to a temporary file in {}: {error}; free some space there",
                self.directory.display()
            );
            io::Error::new(error.kind(), why)
        })?;
        (self.start, self.end) = (0, count);
        Ok(count > 0)
    }
}

impl<R: Read> Read for Kept<R> {
    fn read(&mut self, memory: &mut [u8]) -> io::Result<usize> {
        if self.start == self.end && !self.fill()? {
            return Ok(0);
        }
        let count = memory.len().min(self.end - self.start);
        memory[..count].copy_from_slice(&self.buffer[self.start..][..count]);
        self.start += count;
        Ok(count)
    }
}

impl<R: Read> Stream for Kept<R> {
    fn skip(&mut self, count: u64) -> io::Result<u64> {
        let mut done = 0;
        while done < count && (self.start < self.end || self.fill()?) {
            let now = (count - done).min((self.end - self.start) as u64);
            self.start += now as usize;
            done += now;
        }
        Ok(done)
    }
}

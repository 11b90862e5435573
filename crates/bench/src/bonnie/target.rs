//! The file of a test, in a directory of the host or of an image.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use diorite_device::AlignedBuf;

use super::CHUNK_BYTES;
use super::chunks::{ChunkReader, ChunkWriter, OneAtATime, huge_buffer};
use super::host_stream::{Direction, HostStream};
use crate::error::Error;
use crate::host::{FileIo, HostFile, Start, TemporaryFile, WorkFile, remove_file, sync_filesystem};
use crate::rows::{Engine, Mode};

/// Counters of the layers below. The kernel does not report them for a host file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetCounts {
    /// Bios submitted.
    pub bios: u64,
    /// Bytes of file data copied by the CPU.
    pub bytes_copied: u64,
}

/// One file of the tests.
pub trait Target: Send + Sync + fmt::Debug {
    /// The stack that moves the data.
    fn engine(&self) -> Engine;

    /// Open the file.
    fn open(&self, io: FileIo, start: Start) -> Result<Arc<dyn WorkFile>, Error>;

    /// Write a new file in chunks.
    fn writer(&self, io: FileIo) -> Result<Box<dyn ChunkWriter>, Error> {
        Ok(one_at_a_time(self, io, Start::New)?)
    }

    /// Read the file of an earlier test in chunks.
    fn reader(&self, io: FileIo) -> Result<Box<dyn ChunkReader>, Error> {
        Ok(one_at_a_time(self, io, Start::Existing)?)
    }

    /// Drop cached pages of the file, which must be synced.
    fn forget_cached(&self) -> Result<(), Error>;

    /// Remove the file, if it exists.
    fn remove(&self) -> Result<(), Error>;

    /// Present counters of the layers below.
    fn counts(&self) -> Option<TargetCounts>;

    /// Memory for transfers of at least `len` bytes.
    fn buffer(&self, io: FileIo, len: usize) -> Result<AlignedBuf, Error> {
        let _ = io;
        huge_buffer(len, AlignedBuf::try_zeroed)
    }

    /// Mode of the rows.
    fn mode(&self, io: FileIo) -> Mode {
        match io {
            FileIo::Buffered => Mode::Buffered,
            FileIo::Direct => Mode::Direct,
        }
    }

    /// The file's name in messages.
    fn name(&self) -> String;
}

/// The file of `target`, a chunk at a time.
pub(super) fn one_at_a_time<P: Target + ?Sized>(
    target: &P,
    io: FileIo,
    start: Start,
) -> Result<Box<OneAtATime>, Error> {
    Ok(Box::new(OneAtATime::new(target.open(io, start)?, target.buffer(io, CHUNK_BYTES)?)))
}

/// A file in a directory of the host; removed when this is dropped.
#[derive(Debug)]
pub struct HostTarget {
    file: TemporaryFile,
    in_flight: bool,
}

impl HostTarget {
    /// A file with a name of this process in `directory`. `label` distinguishes files of one process.
    pub fn new(directory: &Path, label: &str) -> Result<Self, Error> {
        let name = format!("Bonnie.{}{label}", std::process::id());
        Ok(Self { file: TemporaryFile::new(directory, name.as_ref())?, in_flight: false })
    }

    /// Direct block writes and reads keep eight chunks in flight.
    #[must_use]
    pub fn in_flight(mut self) -> Self {
        self.in_flight = true;
        self
    }

    fn open_file(&self, io: FileIo, start: Start) -> Result<HostFile, Error> {
        if start == Start::New {
            remove_file(self.path())?;
            // Otherwise the journal would free the old blocks while another contender is measured.
            sync_filesystem(self.path().parent().unwrap_or(Path::new(".")))?;
        }
        HostFile::open(self.path(), io, start)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}

impl Target for HostTarget {
    fn engine(&self) -> Engine {
        Engine::Host
    }

    fn open(&self, io: FileIo, start: Start) -> Result<Arc<dyn WorkFile>, Error> {
        Ok(Arc::new(self.open_file(io, start)?))
    }

    fn writer(&self, io: FileIo) -> Result<Box<dyn ChunkWriter>, Error> {
        if !self.in_flight || io == FileIo::Buffered {
            return Ok(one_at_a_time(self, io, Start::New)?);
        }
        Ok(Box::new(HostStream::new(self.open_file(io, Start::New)?, Direction::Write)?))
    }

    fn reader(&self, io: FileIo) -> Result<Box<dyn ChunkReader>, Error> {
        if !self.in_flight || io == FileIo::Buffered {
            return Ok(one_at_a_time(self, io, Start::Existing)?);
        }
        Ok(Box::new(HostStream::new(self.open_file(io, Start::Existing)?, Direction::Read)?))
    }

    fn mode(&self, io: FileIo) -> Mode {
        match io {
            FileIo::Buffered => Mode::Buffered,
            FileIo::Direct if self.in_flight => Mode::DirectInFlight,
            FileIo::Direct => Mode::Direct,
        }
    }

    fn forget_cached(&self) -> Result<(), Error> {
        HostFile::open(self.path(), FileIo::Buffered, Start::Existing)?.forget_cached()
    }

    fn remove(&self) -> Result<(), Error> {
        remove_file(self.path())
    }

    fn counts(&self) -> Option<TargetCounts> {
        None
    }

    fn name(&self) -> String {
        self.path().display().to_string()
    }
}

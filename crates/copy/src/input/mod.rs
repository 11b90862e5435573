//! Tar archives in files and streams, compressed or not, as trees in memory.
//!
//! Where it sits: above `archive/`, which reads entries, and `memory/`, which records them. Data of an uncompressed file stays there. Any
//! other stream is kept in an unlinked temporary file while it is read.

mod compression;
mod file_reader;
mod kept;

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::archive::{UnpackOptions, unpack_stream};
use crate::host::{HostFile, HostStream};
use crate::input::compression::Compression;
use crate::input::kept::Kept;
use crate::members::Members;
use crate::memory::{MemoryTree, Role};
use crate::pax::{START_BYTES, Stream, no_archive};
use crate::tree::{ReadFile, ReadStream};
use crate::{Error, StandardInput, Watch};

pub(crate) use file_reader::FileReader;

/// Options to record an archive.
#[derive(Clone, Copy)]
pub struct Recording<'a> {
    /// Whether the archive is a layer of several.
    pub role: Role,
    /// The directory of temporary files.
    pub temporary: &'a Path,
    /// Can stop the reading, and gets the attributes that are lost.
    pub watch: &'a dyn Watch,
}

/// The source of the bytes of an archive.
enum Input {
    File(Box<FileReader>),
    Stream(Box<dyn ReadStream>),
}

/// An opened archive whose start has been read.
pub struct Archive {
    name: String,
    start: Vec<u8>,
    input: Input,
}

impl Archive {
    /// The archive in a file, a pipe or a device.
    ///
    /// # Errors
    /// It cannot be read.
    #[expect(clippy::disallowed_methods, reason = "the archive is a file of the host")]
    pub fn open(path: &Path, watch: &dyn Watch) -> Result<Self, Error> {
        let failed = |what| move |error: io::Error| Error::host(path, what, error);
        let found = path.metadata().map_err(failed("read"))?;
        let name = path.display().to_string();
        if !found.is_file() {
            return Self::of_stream(name, Box::new(HostStream::open(path)?), watch);
        }
        let file = fs::File::open(path).map_err(failed("open"))?;
        Self::of_file(name, file, path, 0)
    }

    /// The archive that standard input is.
    ///
    /// # Errors
    /// It is closed, or cannot be read.
    pub fn standard_input(watch: &dyn Watch) -> Result<Self, Error> {
        let (name, input) = (StandardInput::NAME.to_owned(), StandardInput::new()?);
        match input.regular_file() {
            Some((file, position)) => Self::of_file(name, file, Path::new(StandardInput::NAME), position),
            None => Self::of_stream(name, Box::new(input), watch),
        }
    }

    fn of_file(name: String, file: fs::File, path: &Path, start: u64) -> Result<Self, Error> {
        let file = HostFile::new(file, path.to_owned());
        let end = file.size()?;
        let mut reader = FileReader::new(Rc::new(file), start..end.max(start));
        let start = reader.peek(START_BYTES)?;
        Ok(Self { name, start, input: Input::File(Box::new(reader)) })
    }

    fn of_stream(name: String, mut stream: Box<dyn ReadStream>, watch: &dyn Watch) -> Result<Self, Error> {
        let (mut start, mut len) = (vec![0; START_BYTES], 0);
        while len < start.len() {
            match stream.read(&mut start[len..], watch)? {
                0 => break,
                count => len += count,
            }
        }
        start.truncate(len);
        Ok(Self { name, start, input: Input::Stream(stream) })
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its first bytes: [`START_BYTES`], or all.
    pub fn start(&self) -> &[u8] {
        &self.start
    }

    /// Why it cannot be read, if its first bytes say so.
    pub fn refusal(&self) -> Option<String> {
        if Compression::of(&self.start).is_some() { None } else { no_archive(&self.start) }
    }

    /// Read it with `read`, decompressed. `read` also gets its name.
    pub fn read<T>(self, watch: &dyn Watch, read: impl FnOnce(&mut dyn Read, &str) -> T) -> T {
        let mut raw: Box<dyn Read + '_> = match self.input {
            Input::File(reader) => reader,
            Input::Stream(stream) => Box::new(self.start.as_slice().chain(Watched { stream, watch })),
        };
        match Compression::of(&self.start) {
            Some(compression) => read(&mut *compression.decompress(&mut *raw), &self.name),
            None => read(&mut *raw, &self.name),
        }
    }

    /// A tree in memory of its entries.
    ///
    /// # Errors
    /// It is no archive, or damaged, or the temporary file cannot be written.
    pub fn record(self, recording: Recording<'_>) -> Result<MemoryTree, Error> {
        let compression = Compression::of(&self.start);
        let mut raw: Box<dyn Read + '_> = match self.input {
            Input::File(mut reader) => return record_file(&self.name, &mut reader, recording),
            Input::Stream(stream) => {
                let rest = Watched { stream, watch: recording.watch };
                Box::new(self.start.as_slice().chain(rest))
            }
        };
        match compression {
            Some(compression) => keep(&self.name, compression.decompress(&mut *raw), recording),
            None => keep(&self.name, raw, recording),
        }
    }
}

/// A tree in memory of the archive that a reader of a file is at.
pub(crate) fn record_file(
    name: &str,
    reader: &mut FileReader,
    recording: Recording<'_>,
) -> Result<MemoryTree, Error> {
    match Compression::of(&reader.peek(compression::MARK_BYTES)?) {
        Some(compression) => keep(name, compression.decompress(reader), recording),
        None => record(name, reader.rest(), reader, recording),
    }
}

/// Record a stream whose data is kept in a temporary file.
fn keep(name: &str, stream: impl Read, recording: Recording<'_>) -> Result<MemoryTree, Error> {
    let mut kept = Kept::new(stream, recording.temporary)?;
    let failed = |error| Error::host(recording.temporary, "use a temporary file in", error);
    let file = HostFile::new(kept.file().map_err(failed)?, PathBuf::from(name));
    let tree = record(name, Rc::new(file), &mut kept, recording)?;
    kept.finish().map_err(|source| Error::Archive { archive: name.to_owned(), source })?;
    Ok(tree)
}

fn record(
    name: &str,
    archive: Rc<dyn ReadFile>,
    stream: impl Stream,
    recording: Recording<'_>,
) -> Result<MemoryTree, Error> {
    let mut tree = MemoryTree::new(name, recording.role).with_archive(archive);
    let top = tree.top();
    let wanted = (&mut Members::default(), UnpackOptions::default());
    let summary = unpack_stream(stream, name, &tree, top, wanted, recording.watch)?;
    tree.note_lost(summary.attributes_lost);
    Ok(tree)
}

/// A stream as a [`Read`]. Reads fail when `watch` is cancelled.
struct Watched<'a> {
    stream: Box<dyn ReadStream>,
    watch: &'a dyn Watch,
}

impl Read for Watched<'_> {
    fn read(&mut self, memory: &mut [u8]) -> io::Result<usize> {
        self.stream.read(memory, self.watch).map_err(|error| match error {
            Error::Host { source, .. } => source,
            other => io::Error::other(other),
        })
    }
}

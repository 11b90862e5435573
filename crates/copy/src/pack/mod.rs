//! A tree as a tar stream, in the pax format of POSIX.1-2001, with the extensions that GNU tar and star read: `SCHILY.xattr` and `SCHILY.acl`
//! for extended attributes and access lists, and GNU sparse files 1.0.
//!
//! Where it sits: beside `archive/`, which reads such streams. Entries follow in the order of their names, so equal trees make equal
//! streams.

mod header;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use diorite::FileKind;
use tar::EntryType;

use crate::tree::{Entered, Follow, Item, Meta, ReadFile, Source, data_ranges};
use crate::{Error, Summary, Watch};
use header::{add_attribute, record, sparse_name};

const BLOCK: u64 = 512;
const CHUNK_BYTES: usize = 1 << 20;
/// GNU tar pads streams to records of 20 blocks.
const RECORD_BLOCKS: u64 = 20;
/// Holes below this size are stored as zeros: a map would take as much.
const HOLE_MIN: u64 = 4096;

/// Writes a tar stream.
pub struct Packer<'a> {
    /// The name of the stream in messages.
    name: &'a str,
    stream: &'a mut dyn Write,
    watch: &'a dyn Watch,
    written: u64,
    /// The names of files with several links.
    linked: HashMap<(u64, u64), Vec<u8>>,
    summary: Summary,
    memory: Vec<u8>,
}

/// A file on the way into the stream.
struct Entry<'s> {
    source: &'s dyn Source,
    path: PathBuf,
    /// Its name in the archive.
    name: Vec<u8>,
    depth: usize,
}

/// The data ranges of a file, as start and length.
type Map = Vec<(u64, u64)>;

impl<'a> Packer<'a> {
    /// A stream that messages call `name`.
    pub fn new(name: &'a str, stream: &'a mut dyn Write, watch: &'a dyn Watch) -> Self {
        let (linked, summary) = (HashMap::new(), Summary::default());
        Self { name, stream, watch, written: 0, linked, summary, memory: vec![0; CHUNK_BYTES] }
    }

    /// Add the file or tree at `from`; `name` is its name in the archive. A file that cannot be read is reported, and the rest is added.
    ///
    /// # Errors
    /// The stream cannot be written, `from` cannot be read, or the copy was cancelled.
    pub fn add(&mut self, source: &dyn Source, from: &Path, name: &[u8]) -> Result<(), Error> {
        let mut entered = Entered::default();
        let mut waiting = vec![Entry { source, path: from.to_owned(), name: name.to_vec(), depth: 0 }];
        while let Some(item) = waiting.pop() {
            if self.watch.is_cancelled() {
                return Err(Error::Interrupted);
            }
            match self.add_one(&item, &mut entered) {
                Ok(below) => waiting.extend(below.into_iter().rev()),
                Err(error)
                    if item.depth == 0
                        || matches!(error, Error::Interrupted | Error::Host { what: WRITE, .. }) =>
                {
                    return Err(error);
                }
                Err(error) => {
                    self.summary.failed += 1;
                    self.watch.failed(error);
                }
            }
        }
        Ok(())
    }

    /// End the stream.
    ///
    /// # Errors
    /// The stream cannot be written.
    pub fn finish(mut self) -> Result<Summary, Error> {
        let record = RECORD_BLOCKS * BLOCK;
        let end = (self.written + 2 * BLOCK).next_multiple_of(record);
        self.write_zeros(end - self.written)?;
        self.stream.flush().map_err(|error| self.failure(error))?;
        Ok(self.summary)
    }

    fn failure(&self, error: io::Error) -> Error {
        Error::host(Path::new(self.name), WRITE, error)
    }

    fn write(&mut self, data: &[u8]) -> Result<(), Error> {
        self.stream.write_all(data).map_err(|error| self.failure(error))?;
        self.written += data.len() as u64;
        Ok(())
    }

    fn write_zeros(&mut self, mut count: u64) -> Result<(), Error> {
        const ZEROS: [u8; 10_240] = [0; 10_240];
        while count > 0 {
            let now = count.min(ZEROS.len() as u64);
            self.write(&ZEROS[..now as usize])?;
            count -= now;
        }
        Ok(())
    }

    /// Fill the last block.
    fn pad(&mut self) -> Result<(), Error> {
        self.write_zeros(self.written.next_multiple_of(BLOCK) - self.written)
    }

    /// Add one file. Returns the entries of a directory.
    fn add_one<'s>(&mut self, item: &Entry<'s>, entered: &mut Entered) -> Result<Vec<Entry<'s>>, Error> {
        let Entry { source, path, name, .. } = item;
        self.watch.entry(name);
        let meta = source.meta(path, Follow::No)?;
        let mut records = Vec::new();
        // Errors of reading come before anything of the file is written.
        for (attribute, value) in source.attributes(path)? {
            add_attribute(&mut records, &attribute, &value);
        }
        if meta.kind == FileKind::Directory {
            return self.add_directory(item, &meta, records, entered);
        }
        if meta.links > 1
            && let Some(first) = self.linked.get(&meta.identity).cloned()
        {
            self.header(&meta, name, EntryType::Link, 0, &first, Vec::new())?;
            self.summary.others += 1;
            return Ok(Vec::new());
        }
        match meta.kind {
            FileKind::Regular => {
                let file = source.open(path, &meta)?;
                self.add_regular(item, &meta, &*file, records)?;
            }
            FileKind::Symlink => {
                let target = source.link_target(path)?;
                self.header(&meta, name, EntryType::Symlink, 0, &target, records)?;
                self.summary.others += 1;
            }
            FileKind::Socket => {
                let why = "it is a socket, which an archive cannot contain; the program that listens makes it again";
                self.watch.left_out(Error::not_copied(source.name_of(path), why));
                self.summary.skipped += 1;
                return Ok(Vec::new());
            }
            kind => {
                let kind = match kind {
                    FileKind::CharacterDevice => EntryType::Char,
                    FileKind::BlockDevice => EntryType::Block,
                    _ => EntryType::Fifo,
                };
                self.header(&meta, name, kind, 0, b"", records)?;
                self.summary.others += 1;
            }
        }
        if meta.links > 1 {
            self.linked.insert(meta.identity, name.clone());
        }
        Ok(Vec::new())
    }

    fn add_directory<'s>(
        &mut self,
        item: &Entry<'s>,
        meta: &Meta,
        records: Vec<u8>,
        entered: &mut Entered,
    ) -> Result<Vec<Entry<'s>>, Error> {
        let Entry { source, path, name, depth } = item;
        entered.enter(Item { source: *source, path, meta }, *depth)?;
        let names = source.names(path)?;
        let stored = [&**name, b"/"].concat();
        self.header(meta, &stored, EntryType::Directory, 0, b"", records)?;
        self.summary.directories += 1;
        if let Some(damage) = names.damage {
            self.summary.failed += 1;
            self.watch.failed(damage);
        }
        let below = names.names.iter().map(|entry| Entry {
            source: *source,
            path: path.join(std::ffi::OsStr::from_bytes(entry)),
            name: [&**name, b"/", entry].concat(),
            depth: depth + 1,
        });
        Ok(below.collect())
    }

    fn add_regular(
        &mut self,
        item: &Entry<'_>,
        meta: &Meta,
        file: &dyn ReadFile,
        mut records: Vec<u8>,
    ) -> Result<(), Error> {
        self.watch.begin(&item.path, meta.size);
        let map = map_of(file, meta.size)?;
        let data: u64 = map.iter().map(|(_, len)| len).sum();
        let is_whole = map.len() <= 1 && data == meta.size;
        if is_whole {
            self.header(meta, &item.name, EntryType::Regular, meta.size, b"", records)?;
        } else {
            let mut text = format!("{}\n", map.len());
            for (start, len) in &map {
                let _ = writeln!(text, "{start}\n{len}");
            }
            let map_bytes = (text.len() as u64).next_multiple_of(BLOCK);
            record(&mut records, "GNU.sparse.major", b"1");
            record(&mut records, "GNU.sparse.minor", b"0");
            record(&mut records, "GNU.sparse.name", &item.name);
            record(&mut records, "GNU.sparse.realsize", meta.size.to_string().as_bytes());
            let stored = sparse_name(&item.name);
            self.header(meta, &stored, EntryType::Regular, map_bytes + data, b"", records)?;
            self.write(text.as_bytes())?;
            self.pad()?;
        }
        for (start, len) in map {
            self.add_data(item, file, start, len)?;
        }
        self.pad()?;
        self.summary.files += 1;
        self.summary.bytes += data;
        Ok(())
    }

    fn add_data(&mut self, item: &Entry<'_>, file: &dyn ReadFile, start: u64, len: u64) -> Result<(), Error> {
        let end = start + len;
        let mut at = start;
        while at < end {
            let now = usize::try_from(end - at).unwrap_or(usize::MAX).min(CHUNK_BYTES);
            let mut memory = std::mem::take(&mut self.memory);
            let read = file.read_at(&mut memory[..now], at);
            // The header has announced these bytes, so they follow whatever happens.
            let written = match &read {
                Ok(count) => self.write(&memory[..*count]),
                Err(_) => Ok(()),
            };
            self.memory = memory;
            written?;
            let count = read.unwrap_or_else(|error| {
                self.summary.failed += 1;
                self.watch.failed(error);
                0
            });
            if count < now {
                self.write_zeros(end - at - count as u64)?;
                let why = "it shrank or could not be read: the archive has zeros for the rest of its data";
                self.watch.failed(Error::not_copied(item.source.name_of(&item.path), why));
                self.summary.failed += 1;
                return Ok(());
            }
            at += count as u64;
            self.watch.advance(count as u64);
            if self.watch.is_cancelled() {
                return Err(Error::Interrupted);
            }
        }
        Ok(())
    }
}

/// The operation of errors of the stream, which end the copy.
const WRITE: &str = "write the archive";

/// The data ranges of a file of `size` bytes; one range if its holes are small. A last empty range marks a hole at the end.
fn map_of(file: &dyn ReadFile, size: u64) -> Result<Map, Error> {
    let mut map: Map = Vec::new();
    for range in data_ranges(file, size) {
        let Range { start, end } = range?;
        match map.last_mut() {
            Some((first, len)) if start - (*first + *len) < HOLE_MIN => *len = end - *first,
            None if start < HOLE_MIN => map.push((0, end)),
            _ => map.push((start, end - start)),
        }
    }
    let end = map.last().map_or(0, |(start, len)| start + len);
    if end < size {
        if size - end < HOLE_MIN && !map.is_empty() {
            if let Some((start, len)) = map.last_mut() {
                *len = size - *start;
            }
        } else {
            map.push((size, 0));
        }
    }
    Ok(map)
}

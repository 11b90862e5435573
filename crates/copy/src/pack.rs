//! A tree as a tar stream, in the pax format of POSIX.1-2001, with the extensions that GNU tar and star read: `SCHILY.xattr` and `SCHILY.acl`
//! for extended attributes and access lists, and GNU sparse files 1.0.
//!
//! Where it sits: beside `archive.rs`, which reads such streams. Entries follow in the order of their names, so equal trees make equal
//! streams.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use diorite::{FileKind, Timestamp};
use tar::{EntryType, Header};

use crate::acl_text;
use crate::records::ACLS;
use crate::tree::{Follow, Meta, ReadFile, Source};
use crate::{Error, Summary, Watch};

const BLOCK: u64 = 512;
const CHUNK_BYTES: usize = 1 << 20;
/// GNU tar pads streams to records of 20 blocks.
const RECORD_BLOCKS: u64 = 20;
/// Larger numbers do not fit into 7 octal digits.
const OCTAL_MAX: u64 = 0o777_7777;
/// Larger sizes and times do not fit into 11 octal digits.
const LONG_OCTAL_MAX: u64 = 0o777_7777_7777;
/// Holes below this size are stored as zeros: a map would take as much.
const HOLE_MIN: u64 = 4096;
/// The deepest level of a directory.
const DEPTH_MAX: usize = 2048;

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

impl std::fmt::Debug for Packer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packer")
            .field("name", &self.name)
            .field("summary", &self.summary)
            .finish_non_exhaustive()
    }
}

/// A file on the way into the stream.
struct Item<'s> {
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
        let mut seen = HashSet::new();
        let mut waiting = vec![Item { source, path: from.to_owned(), name: name.to_vec(), depth: 0 }];
        while let Some(item) = waiting.pop() {
            if self.watch.is_cancelled() {
                return Err(Error::Interrupted);
            }
            match self.add_one(&item, &mut seen) {
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
    fn add_one<'s>(
        &mut self,
        item: &Item<'s>,
        seen: &mut HashSet<(u64, u64)>,
    ) -> Result<Vec<Item<'s>>, Error> {
        let Item { source, path, name, .. } = item;
        self.watch.entry(name);
        let meta = source.meta(path, Follow::No)?;
        let mut records = Vec::new();
        // Errors of reading come before anything of the file is written.
        for (attribute, value) in source.attributes(path)? {
            add_attribute(&mut records, &attribute, &value);
        }
        if meta.kind == FileKind::Directory {
            return self.add_directory(item, &meta, records, seen);
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
                let why = "it is a socket, and an archive has none; a program that listens makes it";
                return Err(Error::not_copied(source.name_of(path), why));
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
        item: &Item<'s>,
        meta: &Meta,
        records: Vec<u8>,
        seen: &mut HashSet<(u64, u64)>,
    ) -> Result<Vec<Item<'s>>, Error> {
        let Item { source, path, name, depth } = item;
        let is_new = seen.insert(meta.identity) || source.may_repeat_directories();
        if !is_new || *depth == DEPTH_MAX {
            let why = if is_new {
                "directories are nested too deep"
            } else {
                "it was copied already under another name, so the image is damaged"
            };
            return Err(Error::not_copied(source.name_of(path), why));
        }
        let names = source.names(path)?;
        let stored = [&**name, b"/"].concat();
        self.header(meta, &stored, EntryType::Directory, 0, b"", records)?;
        self.summary.directories += 1;
        if let Some(damage) = names.damage {
            self.summary.failed += 1;
            self.watch.failed(damage);
        }
        let below = names.names.iter().map(|entry| Item {
            source: *source,
            path: path.join(std::ffi::OsStr::from_bytes(entry)),
            name: [&**name, b"/", entry].concat(),
            depth: depth + 1,
        });
        Ok(below.collect())
    }

    fn add_regular(
        &mut self,
        item: &Item<'_>,
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

    fn add_data(&mut self, item: &Item<'_>, file: &dyn ReadFile, start: u64, len: u64) -> Result<(), Error> {
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
                let why = "it shrank or could not be read: zeros follow its data in the archive";
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

    /// Write the header of an entry, after a header with the records that do not fit into it.
    fn header(
        &mut self,
        meta: &Meta,
        name: &[u8],
        kind: EntryType,
        size: u64,
        target: &[u8],
        mut records: Vec<u8>,
    ) -> Result<(), Error> {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(u32::from(meta.permissions));
        let fits = |number: u64, most: u64| if number <= most { number } else { 0 };
        for (keyword, id) in [("uid", meta.uid), ("gid", meta.gid)] {
            if u64::from(id) > OCTAL_MAX {
                record(&mut records, keyword, id.to_string().as_bytes());
            }
        }
        header.set_uid(fits(meta.uid.into(), OCTAL_MAX));
        header.set_gid(fits(meta.gid.into(), OCTAL_MAX));
        if size > LONG_OCTAL_MAX {
            record(&mut records, "size", size.to_string().as_bytes());
        }
        header.set_size(fits(size, LONG_OCTAL_MAX));
        let seconds = u64::try_from(meta.modified.seconds).unwrap_or(0);
        header.set_mtime(fits(seconds, LONG_OCTAL_MAX));
        if meta.modified.nanoseconds != 0 || meta.modified.seconds != fits(seconds, LONG_OCTAL_MAX) as i64 {
            record(&mut records, "mtime", time_text(meta.modified).as_bytes());
        }
        if matches!(kind, EntryType::Char | EntryType::Block) {
            // The fields exist in this format.
            let _ =
                header.set_device_major(meta.device.0).and_then(|()| header.set_device_minor(meta.device.1));
        }
        let Some(fields) = header.as_ustar_mut() else { return Ok(()) };
        if !put(&mut fields.name, name) {
            record(&mut records, "path", name);
        }
        if !put(&mut fields.linkname, target) {
            record(&mut records, "linkpath", target);
        }
        if !records.is_empty() {
            let mut extended = Header::new_ustar();
            extended.set_entry_type(EntryType::XHeader);
            extended.set_mode(0o644);
            extended.set_size(records.len() as u64);
            if let Some(fields) = extended.as_ustar_mut() {
                put(&mut fields.name, b"PaxHeaders/entry");
            }
            extended.set_cksum();
            self.write(extended.as_bytes())?;
            self.write(&records)?;
            self.pad()?;
        }
        header.set_cksum();
        self.write(header.as_bytes())
    }
}

/// The operation of errors of the stream, which end the copy.
const WRITE: &str = "write the archive";

/// Put text into a field. Returns whether it fits, in ASCII; the start of it is put in any case.
fn put(field: &mut [u8], text: &[u8]) -> bool {
    let len = text.len().min(field.len());
    field[..len].copy_from_slice(&text[..len]);
    len == text.len() && text.is_ascii()
}

/// Add a record `LEN KEY=VALUE\n`; the length counts itself.
fn record(records: &mut Vec<u8>, key: impl AsRef<[u8]>, value: &[u8]) {
    let key = key.as_ref();
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while len.to_string().len() + rest != len {
        len = len.to_string().len() + rest;
    }
    records.extend(format!("{len} ").bytes());
    records.extend([key, b"=", value].concat());
    records.push(b'\n');
}

/// An extended attribute as a record.
fn add_attribute(records: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let list = ACLS.iter().find(|(_, attribute)| *attribute == name);
    if let Some((keyword, _)) = list
        && let Some(text) = acl_text::to_text(value)
    {
        record(records, keyword, text.as_bytes());
        return;
    }
    // As in GNU tar: the `=` of a name must not end the keyword.
    let encoded = name.iter().flat_map(|byte| match byte {
        b'%' => b"%25".to_vec(),
        b'=' => b"%3D".to_vec(),
        other => vec![*other],
    });
    record(records, [b"SCHILY.xattr.".to_vec(), encoded.collect()].concat(), value);
}

fn time_text(time: Timestamp) -> String {
    let Timestamp { seconds, nanoseconds } = time;
    // The fraction of a negative time counts away from zero.
    let (sign, seconds, nanoseconds) = match (seconds < 0, nanoseconds) {
        (true, 0) => ("-", seconds.unsigned_abs(), 0),
        (true, fraction) => ("-", (seconds + 1).unsigned_abs(), 1_000_000_000 - fraction),
        (false, fraction) => ("", seconds.unsigned_abs(), fraction),
    };
    if nanoseconds == 0 { format!("{sign}{seconds}") } else { format!("{sign}{seconds}.{nanoseconds:09}") }
}

/// The name of a sparse entry for programs that do not know them.
fn sparse_name(name: &[u8]) -> Vec<u8> {
    let at = name.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    [&name[..at], b"GNUSparseFile.0/", &name[at..]].concat()
}

/// The data ranges of a file of `size` bytes; one range if its holes are small. A last empty range marks a hole at the end.
fn map_of(file: &dyn ReadFile, size: u64) -> Result<Map, Error> {
    let mut map: Map = Vec::new();
    let mut at = 0;
    while at < size {
        let Some((start, end)) = file.next_data(at)? else { break };
        let (start, end) = (start.min(size), end.min(size));
        if start >= end {
            break;
        }
        match map.last_mut() {
            Some((first, len)) if start - (*first + *len) < HOLE_MIN => *len = end - *first,
            None if start < HOLE_MIN => map.push((0, end)),
            _ => map.push((start, end - start)),
        }
        at = end;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_of_a_record_counts_itself() {
        let text = |key: &str, value: &str| {
            let mut records = Vec::new();
            record(&mut records, key, value.as_bytes());
            String::from_utf8(records).unwrap()
        };
        assert_eq!(text("a", "b"), "6 a=b\n");
        assert_eq!(text("path", "12"), "11 path=12\n");
        assert_eq!(text("k", &"x".repeat(93)), format!("99 k={}\n", "x".repeat(93)));
        assert_eq!(text("k", &"x".repeat(94)), format!("101 k={}\n", "x".repeat(94)));
    }

    #[test]
    fn times_have_a_sign_and_a_fraction() {
        let text = |seconds, nanoseconds| time_text(Timestamp { seconds, nanoseconds });
        assert_eq!(text(5, 0), "5");
        assert_eq!(text(5, 1), "5.000000001");
        assert_eq!(text(-1, 500_000_000), "-0.500000000");
        assert_eq!(text(-3, 0), "-3");
    }
}

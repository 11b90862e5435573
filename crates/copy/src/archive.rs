//! A tar stream as the source of a copy.
//!
//! The stream is read once, from front to back. Names are taken relative to the destination; an entry that points outside of it
//! (`..`, or through a symbolic link that the archive brought) is refused.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use diorite::{FileKind, Timestamp};
use tar::{Archive, Entry, EntryType};

use crate::acl_text;
use crate::pax::{Extra, PaxFilter, PaxRecords, Records, SparseMap, decoded};
use crate::tree::{Attributes, Follow, Meta, Sink};
use crate::{Error, Summary, Watch};

/// Size of a write; archives come through pipes in smaller pieces.
const CHUNK_BYTES: usize = 1 << 20;
/// Prefix of extended attributes in pax headers.
const XATTR_PREFIX: &[u8] = b"SCHILY.xattr.";
/// Access control lists in pax headers, as text, and the attributes that they are.
const ACLS: [(&[u8], &[u8]); 2] = [
    (b"SCHILY.acl.access", b"system.posix_acl_access"),
    (b"SCHILY.acl.default", b"system.posix_acl_default"),
];
/// Type of a directory in an incremental archive of GNU tar; its content is a list of names.
const DUMP_DIRECTORY: u8 = b'D';
/// Prefix of the keys of sparse files in the form that only pax archives have.
const SPARSE_PREFIX: &[u8] = b"GNU.sparse.";

/// Put the content of a tar stream into the directory `to` of `sink`, which is not synced. `name` is what messages call
/// the stream.
pub fn unpack(
    stream: impl Read,
    name: &str,
    sink: &dyn Sink,
    to: &Path,
    watch: &dyn Watch,
) -> Result<Summary, Error> {
    let (stream, records) = PaxFilter::new(stream);
    let (summary, directories) = (Summary::default(), BTreeMap::new());
    let current = String::new();
    let mut unpacker = Unpacker { name, sink, to, watch, records, summary, directories, current };
    let mut archive = Archive::new(stream);
    let unpacked = unpacker.entries(&mut archive);
    // Whatever became of the entries (invariant 3). Deepest first, because making entries changed the times of their directories.
    let finished = unpacker
        .directories
        .iter()
        .rev()
        .map(|(path, (meta, attributes))| unpacker.set_meta(path, meta, attributes))
        .fold(Ok(()), Result::and);
    unpacked.and(finished)?;
    Ok(unpacker.summary)
}

struct Unpacker<'a> {
    name: &'a str,
    sink: &'a dyn Sink,
    to: &'a Path,
    watch: &'a dyn Watch,
    records: PaxRecords,
    summary: Summary,
    /// Attributes of directories, set at the end.
    directories: BTreeMap<PathBuf, (Meta, Attributes)>,
    /// The name of the entry that is unpacked.
    current: String,
}

/// What an entry becomes. A hard link is what its file is.
fn kind_of(kind: EntryType, name: &[u8]) -> FileKind {
    match kind {
        EntryType::Directory => FileKind::Directory,
        kind if kind.as_byte() == DUMP_DIRECTORY => FileKind::Directory,
        // Archives from before 1988 have no type for it.
        EntryType::Regular | EntryType::Continuous if name.ends_with(b"/") => FileKind::Directory,
        EntryType::Symlink => FileKind::Symlink,
        EntryType::Char => FileKind::CharacterDevice,
        EntryType::Block => FileKind::BlockDevice,
        EntryType::Fifo => FileKind::Fifo,
        // Also of a type that is not known, as POSIX wants it.
        _ => FileKind::Regular,
    }
}

impl Unpacker<'_> {
    fn error(&self, source: io::Error) -> Error {
        let archive = self.name.to_owned();
        if source.kind() == io::ErrorKind::UnexpectedEof && !self.current.is_empty() {
            return Error::Truncated { archive, entry: self.current.clone() };
        }
        Error::Archive { archive, source }
    }

    /// The entry that is unpacked cannot be made of what the archive has.
    fn entry_error(&self, why: impl Into<String>) -> Error {
        Error::Entry { archive: self.name.to_owned(), entry: self.current.clone(), why: why.into() }
    }

    fn entries(&mut self, archive: &mut Archive<impl Read>) -> Result<(), Error> {
        for entry in archive.entries().map_err(|source| self.error(source))? {
            if self.watch.is_cancelled() {
                return Err(Error::Interrupted);
            }
            let entry = entry.map_err(|source| self.error(source))?;
            self.entry(entry)?;
        }
        Ok(())
    }

    fn set_meta(&self, path: &Path, meta: &Meta, attributes: &Attributes) -> Result<(), Error> {
        match self.sink.set_meta(path, meta, attributes)?.into_iter().next() {
            None => Ok(()),
            Some(attribute) => Err(attribute.into_error(self.sink.name_of(path))),
        }
    }

    fn entry(&mut self, mut entry: Entry<'_, impl Read>) -> Result<(), Error> {
        let Extra { records, sparse } = self.records.next();
        let name = last(&records, b"GNU.sparse.name").or_else(|| with_newlines(&records, b"path"));
        let name = name.unwrap_or_else(|| entry.path_bytes().into_owned());
        let link = || {
            let whole = with_newlines(&records, b"linkpath");
            whole.unwrap_or_else(|| entry.link_name_bytes().unwrap_or_default().into_owned())
        };
        let link = link();
        self.current = String::from_utf8_lossy(&name).into_owned();
        let path = self.destination(&name)?;
        let mut extended = self.extended(&records, &name)?;
        extended.sparse_size = sparse.as_ref().map(|map| map.size).or(extended.sparse_size);
        let meta = self.meta(&entry, kind_of(entry.header().entry_type(), &name), &extended)?;
        let attributes = std::mem::take(&mut extended.attributes);
        let Some(path) = path else {
            // `./`: the destination itself is as it says.
            if meta.kind != FileKind::Directory {
                return Err(self.entry_error("its name is that of the root, and it is no directory"));
            }
            self.directories.insert(self.to.to_owned(), (meta, attributes));
            return Ok(());
        };
        self.make_parents(&path, meta.modified)?;
        if meta.kind == FileKind::Directory {
            self.make_directory(&path)?;
            self.directories.insert(path, (meta, attributes));
            return Ok(());
        }
        let kind = entry.header().entry_type();
        if kind.is_hard_link() {
            return self.hard_link(&link, &path);
        }
        self.remove_existing(&path)?;
        match meta.kind {
            FileKind::Symlink => self.sink.make_link(&path, &link)?,
            FileKind::Regular => {
                let map = match (sparse, extended.sparse_size) {
                    (None, Some(size)) => {
                        Some(sparse_map(&mut entry, size).map_err(|source| self.error(source))?)
                    }
                    (sparse, _) => sparse,
                };
                self.report_unknown(kind);
                self.file(&mut entry, &path, map)?;
            }
            _ => self.sink.make_node(&path, &meta)?,
        }
        self.summary.others += u64::from(meta.kind != FileKind::Regular);
        self.set_meta(&path, &meta, &attributes)
    }

    /// Say that nothing more is known of an entry than its content.
    fn report_unknown(&self, kind: EntryType) {
        if !matches!(kind, EntryType::Regular | EntryType::Continuous) {
            let (archive, entry) = (self.name.to_owned(), self.current.clone());
            self.watch.failed(Error::UnknownType { archive, entry, kind: char::from(kind.as_byte()) });
        }
    }

    fn hard_link(&mut self, link: &[u8], path: &Path) -> Result<(), Error> {
        let original = self.destination(link)?;
        let there = original.as_ref().map(|original| self.sink.existing(original, Follow::No)).transpose()?;
        let (Some(original), Some(Some(_))) = (original, there) else {
            let link = String::from_utf8_lossy(link);
            return Err(self.entry_error(format!(
                "it is another name of `{link}`, which is not before it in the archive; make the archive with both"
            )));
        };
        if original == path {
            return Ok(());
        }
        self.remove_existing(path)?;
        self.sink.make_hard_link(&original, path)?;
        self.summary.others += 1;
        Ok(())
    }

    /// Where an entry goes; `None` for the destination itself.
    fn destination(&self, name: &[u8]) -> Result<Option<PathBuf>, Error> {
        let name = PathBuf::from(OsString::from_vec(name.to_vec()));
        let escapes = || Error::Escapes { archive: self.name.to_owned(), entry: name.display().to_string() };
        let mut path = self.to.to_owned();
        for component in name.components() {
            match component {
                Component::Normal(part) if part.as_bytes().contains(&0) => return Err(escapes()),
                Component::Normal(part) => {
                    // A symbolic link that the archive brought must not lead the next entries elsewhere.
                    if path != self.to
                        && self
                            .sink
                            .existing(&path, Follow::No)?
                            .is_some_and(|at| at.kind == FileKind::Symlink)
                    {
                        return Err(escapes());
                    }
                    path.push(part);
                }
                Component::CurDir | Component::RootDir => {}
                Component::ParentDir | Component::Prefix(_) => return Err(escapes()),
            }
        }
        Ok(Some(path).filter(|path| path != self.to))
    }

    /// Directories that have no entry, or none yet, are those of an ordinary tree of root, as old as what is in them.
    fn make_parents(&mut self, path: &Path, modified: Timestamp) -> Result<(), Error> {
        let missing: Vec<PathBuf> = path
            .ancestors()
            .skip(1)
            .take_while(|parent| *parent != self.to && parent.parent().is_some())
            .map(Path::to_owned)
            .collect();
        for parent in missing.into_iter().rev() {
            if self.make_directory(&parent)? {
                let meta = Meta {
                    kind: FileKind::Directory,
                    permissions: 0o755,
                    uid: 0,
                    gid: 0,
                    size: 0,
                    accessed: modified,
                    modified,
                    links: 1,
                    identity: (0, 0),
                    device: (0, 0),
                };
                self.directories.insert(parent, (meta, Attributes::new()));
            }
        }
        Ok(())
    }

    /// Whether it was not there.
    fn make_directory(&mut self, path: &Path) -> Result<bool, Error> {
        match self.sink.existing(path, Follow::No)? {
            Some(existing) if existing.kind == FileKind::Directory => Ok(false),
            Some(_) => Err(self.two_kinds(path)),
            None => {
                self.sink.make_directory(path)?;
                self.summary.directories += 1;
                Ok(true)
            }
        }
    }

    fn two_kinds(&self, path: &Path) -> Error {
        let name = path.strip_prefix(self.to).unwrap_or(path).display();
        self.entry_error(format!(
            "`{name}` is both a directory and something else in the archive; make the archive again without one of them"
        ))
    }

    /// Later entries of an archive replace earlier ones.
    fn remove_existing(&self, path: &Path) -> Result<(), Error> {
        match self.sink.existing(path, Follow::No)? {
            Some(existing) if existing.kind == FileKind::Directory => Err(self.two_kinds(path)),
            Some(_) => self.sink.remove(path),
            None => Ok(()),
        }
    }

    fn file(
        &mut self,
        entry: &mut Entry<'_, impl Read>,
        path: &Path,
        sparse: Option<SparseMap>,
    ) -> Result<(), Error> {
        let (is_sparse, size) = (sparse.is_some(), sparse.as_ref().map_or(entry.size(), |map| map.size));
        self.watch.begin(path, size);
        let file = self.sink.create(path, size)?;
        let mut buffer = vec![0; CHUNK_BYTES];
        let pieces = sparse.map_or_else(|| vec![(0, u64::MAX)], |map| map.pieces);
        let mut end = 0;
        for (start, len) in pieces {
            let (mut offset, until) = (start, start.saturating_add(len));
            while offset < until {
                if self.watch.is_cancelled() {
                    return Err(Error::Interrupted);
                }
                let most = (until - offset).min(CHUNK_BYTES as u64) as usize;
                let count = fill(entry, &mut buffer[..most]).map_err(|source| self.error(source))?;
                if count == 0 && is_sparse {
                    return Err(self.entry_error("it is a sparse file, and has less data than it says"));
                } else if count == 0 {
                    break;
                }
                // Chunks of nothing but zeros stay holes.
                if buffer[..count].iter().any(|byte| *byte != 0) {
                    file.write_at(&buffer[..count], offset)?;
                    self.summary.bytes += count as u64;
                }
                offset += count as u64;
                self.watch.advance(count as u64);
            }
            end = offset;
        }
        file.set_size(if is_sparse { size } else { end })?;
        self.summary.files += 1;
        Ok(())
    }

    fn meta(&self, entry: &Entry<'_, impl Read>, kind: FileKind, extended: &Extended) -> Result<Meta, Error> {
        let header = entry.header();
        let read = || -> io::Result<Meta> {
            let modified = match extended.modified {
                Some(modified) => modified,
                None => Timestamp { seconds: header.mtime()? as i64, nanoseconds: 0 },
            };
            // Only entries of devices are sure to have numbers here.
            let device = match kind {
                FileKind::CharacterDevice | FileKind::BlockDevice => {
                    (header.device_major()?.unwrap_or(0), header.device_minor()?.unwrap_or(0))
                }
                _ => (0, 0),
            };
            Ok(Meta {
                kind,
                permissions: (header.mode()? & 0o7777) as u16,
                uid: header.uid()? as u32,
                gid: header.gid()? as u32,
                size: extended.sparse_size.unwrap_or(entry.size()),
                accessed: extended.accessed.unwrap_or(modified),
                modified,
                links: 1,
                identity: (0, 0),
                device,
            })
        };
        read().map_err(|source| self.error(source))
    }

    fn extended(&self, records: &Records, name: &[u8]) -> Result<Extended, Error> {
        let mut extended = Extended::default();
        let time = |value: &[u8]| std::str::from_utf8(value).ok().and_then(time_of);
        for (key, value) in records {
            if key == b"mtime" {
                extended.modified = time(value);
            } else if key == b"atime" {
                extended.accessed = time(value);
            } else if let Some(name) = key.strip_prefix(XATTR_PREFIX) {
                extended.attributes.push((decoded(name), value.clone()));
            } else if let Some((_, attribute)) = ACLS.iter().find(|(known, _)| key == known) {
                let value = acl_text::to_attribute(value).map_err(|why| {
                    let name = String::from_utf8_lossy(name);
                    self.error(io::Error::other(format!("the access control list of `{name}`: {why}")))
                })?;
                extended.attributes.push((attribute.to_vec(), value));
            }
        }
        if records.iter().any(|(key, _)| key.starts_with(SPARSE_PREFIX)) {
            let has = |key: &[u8], expected: &[u8]| last(records, key).is_some_and(|value| value == expected);
            let is_known = has(b"GNU.sparse.major", b"1") && has(b"GNU.sparse.minor", b"0");
            let size = last(records, b"GNU.sparse.realsize").filter(|_| is_known);
            let size = size.and_then(|size| std::str::from_utf8(&size).ok()?.parse().ok());
            extended.sparse_size = Some(size.ok_or_else(|| {
                let name = String::from_utf8_lossy(name);
                let why =
                    format!("`{name}` is sparse in an old form; make the archive with --sparse-version=1.0");
                self.error(io::Error::other(why))
            })?);
        }
        // The same list may be there as text and as an attribute.
        extended.attributes.sort();
        extended.attributes.dedup_by(|a, b| a.0 == b.0);
        Ok(extended)
    }
}

/// Where the data of a sparse file of `size` bytes lies: the number of pieces, then offset and length of each, in decimal and a line each,
/// in whole blocks before the data (GNU tar manual, "Storing Sparse Files", version 1.0).
fn sparse_map(entry: &mut impl Read, size: u64) -> io::Result<SparseMap> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "the map of a sparse file is malformed");
    let (mut block, mut at) = ([0; 512], 512);
    let mut number = || -> io::Result<u64> {
        let mut number = None;
        loop {
            if at == block.len() {
                entry.read_exact(&mut block)?;
                at = 0;
            }
            let byte = block[at];
            at += 1;
            match (byte, number) {
                (b'0'..=b'9', _) => {
                    let digit = u64::from(byte - b'0');
                    let more =
                        number.unwrap_or(0u64).checked_mul(10).and_then(|more| more.checked_add(digit));
                    number = Some(more.ok_or_else(wrong)?);
                }
                (b'\n', Some(number)) => return Ok(number),
                _ => return Err(wrong()),
            }
        }
    };
    let mut map = SparseMap { size, pieces: Vec::new() };
    for _ in 0..number()? {
        map.push(number()?, number()?)?;
    }
    Ok(map)
}

/// The last value of a key.
fn last(records: &Records, key: &[u8]) -> Option<Vec<u8>> {
    records.iter().rev().find(|(known, _)| known == key).map(|(_, value)| value.clone())
}

/// The last value of a key, where it is one that the crate `tar` does not see as it is.
fn with_newlines(records: &Records, key: &[u8]) -> Option<Vec<u8>> {
    last(records, key).filter(|value| value.contains(&b'\n'))
}

/// What the pax headers of an entry say beyond its own header.
#[derive(Debug, Default)]
struct Extended {
    attributes: Attributes,
    modified: Option<Timestamp>,
    accessed: Option<Timestamp>,
    /// The size of a sparse file whose map comes before its data.
    sparse_size: Option<u64>,
}

/// Seconds since 1970 in decimal, perhaps negative, perhaps with a fraction.
fn time_of(text: &str) -> Option<Timestamp> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let nanoseconds: u32 = digits.parse().ok()?;
    if !whole.starts_with('-') || nanoseconds == 0 {
        return Some(Timestamp { seconds, nanoseconds });
    }
    Some(Timestamp { seconds: seconds.checked_sub(1)?, nanoseconds: 1_000_000_000 - nanoseconds })
}

/// Read until the buffer is full or the entry ends.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match reader.read(&mut buffer[done..]) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::{HostTree, Unwatched};

    fn archive(entries: &[(EntryType, &str, &str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (kind, name, link, data) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o755);
            header.set_mtime(1_000_000_000);
            header.set_size(data.len() as u64);
            // Set by hand, since the builder would refuse what hostile archives contain.
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
            header.set_uid(u64::from(rustix::process::geteuid().as_raw()));
            header.set_gid(u64::from(rustix::process::getegid().as_raw()));
            header.set_cksum();
            builder.append(&header, *data).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn unpack_here(bytes: &[u8], to: &Path) -> Result<Summary, Error> {
        unpack(bytes, "test.tar", &HostTree::new(), to, &Unwatched)
    }

    #[test]
    fn archive_is_unpacked_with_links_and_times() {
        let directory = tempfile::tempdir().unwrap();
        let bytes = archive(&[
            (EntryType::Directory, "./", "", b""),
            (EntryType::Directory, "sub/", "", b""),
            (EntryType::Regular, "sub/file", "", b"content"),
            (EntryType::Link, "again", "sub/file", b""),
            (EntryType::Symlink, "link", "sub/file", b""),
            (EntryType::Regular, "deep/without/parents", "", b"x"),
        ]);
        let summary = unpack_here(&bytes, directory.path()).unwrap();
        assert_eq!((summary.files, summary.directories, summary.others, summary.bytes), (2, 3, 2, 8));
        assert_eq!(std::fs::read_to_string(directory.path().join("again")).unwrap(), "content");
        let modified = directory.path().join("sub").metadata().unwrap().modified().unwrap();
        assert_eq!(modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs(), 1_000_000_000);
    }

    /// Directories that the archive does not name would be accessible to their owner only.
    #[test]
    fn parents_without_an_entry_are_open_to_all() {
        let directory = tempfile::tempdir().unwrap();
        let bytes = archive(&[
            (EntryType::Regular, "without/parents/file", "", b"x"),
            (EntryType::Regular, "late/file", "", b"x"),
            (EntryType::Directory, "late/", "", b""),
        ]);
        unpack_here(&bytes, directory.path()).unwrap();
        for name in ["without", "without/parents", "late"] {
            let metadata = directory.path().join(name).metadata().unwrap();
            assert_eq!((metadata.mode() & 0o7777, metadata.mtime()), (0o755, 1_000_000_000), "{name}");
        }
    }

    #[test]
    fn times_of_pax_headers_have_fractions_and_signs() {
        let time = |text| time_of(text).map(|time| (time.seconds, time.nanoseconds));
        assert_eq!(time("1234567890.5"), Some((1_234_567_890, 500_000_000)));
        assert_eq!(time("9999999999.0123456789"), Some((9_999_999_999, 12_345_678)));
        assert_eq!(time("-1.25"), Some((-2, 750_000_000)));
        assert_eq!(time("-0.5"), Some((-1, 500_000_000)));
        assert_eq!(time("-7"), Some((-7, 0)));
        for wrong in ["", "x", "1.x", "1.-5", "99999999999999999999"] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn archive_cannot_write_outside_of_the_destination() {
        for entries in [
            &[(EntryType::Regular, "../evil", "", &b"x"[..])][..],
            &[(EntryType::Symlink, "out", "/tmp", b""), (EntryType::Regular, "out/evil", "", b"x")],
            &[(EntryType::Link, "again", "../../etc/passwd", b"")],
        ] {
            let directory = tempfile::tempdir().unwrap();
            let to = directory.path().join("to");
            std::fs::create_dir(&to).unwrap();
            let error = unpack_here(&archive(entries), &to).unwrap_err();
            assert!(matches!(error, Error::Escapes { .. }), "{error}");
            assert!(!directory.path().join("evil").exists());
        }
    }
}

//! A tar stream as the source of a copy.
//!
//! The stream is read once, from front to back. The destination is the root of all names. A symbolic link in the middle of a name is
//! followed here and not by the sink: `/` and `..` in its target lead no further than the destination. A name with `..` is rejected.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use diorite::front_end::InodeFlags;
use diorite::{ErrorKind, FileKind, Timestamp};
use tar::{EntryType, Header};

use crate::copied_names::{Age, CopiedNames};
use crate::members::Members;
use crate::new_file::{OnFailure, make_and_rename, temporary_name};
use crate::numbers::{self, MAJORS, MINORS, MODES, OWNERS, SECONDS};
use crate::pax::{Entries, Entry, Forward, SparseMap, Stream};
use crate::records::{Extended, Sparse, leading_map};
use crate::tree::{Attributes, Follow, LostAttribute, Meta, Piece, Recorder, Sink, Target, WriteFile};
use crate::{Error, Summary, Watch};

/// Size of a write. Reads from a pipe are smaller.
const CHUNK_BYTES: usize = 1 << 20;
/// Type of a directory in an incremental archive of GNU tar; its content is a list of names.
const DUMP_DIRECTORY: u8 = b'D';
/// As many symbolic links as Linux follows in a path.
const LINKS_MAX: u32 = 40;
/// As many levels of directories as a copy makes.
const LEVELS_MAX: usize = 2048;
/// Keywords that are reported once and not again; more than that come from a hostile archive.
const KEYWORDS_MAX: usize = 1000;

/// A symbolic link of the destination, where the archive has a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectoryLinks {
    /// The directory and its entries are errors.
    #[default]
    Refuse,
    /// A link to a directory within the destination is followed.
    Follow,
}

/// How to unpack an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnpackOptions {
    /// Consequence of one entry's error for the rest. Errors of the archive itself, and a full destination, end the extraction in any case.
    pub on_failure: OnFailure,
    /// Links of the destination in place of directories.
    pub directory_links: DirectoryLinks,
}

/// Unpack a tar stream into the directory `to` of `sink`. Messages call the stream `name`. Nothing is synced.
///
/// # Errors
/// As [`unpack_members`].
pub fn unpack(
    stream: impl Read,
    name: &str,
    sink: &dyn Sink,
    to: &Path,
    watch: &dyn Watch,
) -> Result<Summary, Error> {
    unpack_members(stream, name, sink, to, (&mut Members::default(), UnpackOptions::default()), watch)
}

/// As [`unpack`], only these entries of the stream.
///
/// # Errors
/// The stream or the destination failed, or an entry cannot be unpacked.
pub fn unpack_members(
    stream: impl Read,
    name: &str,
    sink: &dyn Sink,
    to: &Path,
    (members, options): (&mut Members, UnpackOptions),
    watch: &dyn Watch,
) -> Result<Summary, Error> {
    unpack_stream(Forward(stream), name, sink, to, (members, options), watch)
}

/// As [`unpack_members`], from a stream that can skip data.
pub(crate) fn unpack_stream(
    stream: impl Stream,
    name: &str,
    sink: &dyn Sink,
    to: &Path,
    (members, options): (&mut Members, UnpackOptions),
    watch: &dyn Watch,
) -> Result<Summary, Error> {
    let mut unpacker = Unpacker {
        name,
        sink,
        to,
        options,
        watch,
        summary: Summary::default(),
        directories: BTreeMap::new(),
        parents: BTreeMap::new(),
        flags: BTreeMap::new(),
        copied_names: CopiedNames::new(Age::Existing),
        lost_keywords: HashSet::new(),
        own_links: HashSet::new(),
        refused_links: HashSet::new(),
        current: String::new(),
    };
    let unpacked = unpacker.entries(&mut Entries::new(stream), members);
    let finished = unpacker.finish();
    unpacked.and(finished)?;
    Ok(unpacker.summary)
}

/// Call `each` with the name of every wanted entry of a tar stream, and with the target of a link.
///
/// # Errors
/// The stream cannot be read, or `each` failed.
pub fn list_archive<E: From<Error>>(
    stream: impl Read,
    name: &str,
    members: &mut Members,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut entries = Entries::new(Forward(stream));
    let failure = |source| Error::Archive { archive: name.to_owned(), source };
    while let Some(entry) = entries.next_entry().map_err(failure)? {
        let is_link = matches!(entry.header.entry_type(), EntryType::Symlink | EntryType::Link);
        if members.wants(&entry.name) {
            each(&entry.name, if is_link { &entry.link } else { b"" })?;
        }
    }
    Ok(())
}

struct Unpacker<'a> {
    name: &'a str,
    sink: &'a dyn Sink,
    to: &'a Path,
    options: UnpackOptions,
    watch: &'a dyn Watch,
    summary: Summary,
    /// Attributes of directories, set at the end.
    directories: BTreeMap<PathBuf, (Meta, Attributes)>,
    /// Attributes of directories that have no entry, set at the end.
    parents: BTreeMap<PathBuf, Meta>,
    /// Inode flags, set after everything else: they forbid changes.
    flags: BTreeMap<PathBuf, InodeFlags>,
    /// Files made in directories that ignore case or normalise names.
    copied_names: CopiedNames,
    /// Keywords of records that were reported as not kept.
    lost_keywords: HashSet<String>,
    /// Symbolic links that came from the archive.
    own_links: HashSet<PathBuf>,
    /// Symbolic links that were there before, where the archive has a directory. Nothing is unpacked through them.
    refused_links: HashSet<PathBuf>,
    /// The name of the current entry.
    current: String,
}

/// The kind of file that an entry becomes. A hard link has the kind of its file.
fn kind_of(kind: EntryType, name: &[u8]) -> FileKind {
    match kind {
        EntryType::Directory => FileKind::Directory,
        kind if kind.as_byte() == DUMP_DIRECTORY => FileKind::Directory,
        // Archives from before 1988 have no type for directories.
        EntryType::Regular | EntryType::Continuous if name.ends_with(b"/") => FileKind::Directory,
        EntryType::Symlink => FileKind::Symlink,
        EntryType::Char => FileKind::CharacterDevice,
        EntryType::Block => FileKind::BlockDevice,
        EntryType::Fifo => FileKind::Fifo,
        // Also an unknown type, as POSIX says.
        _ => FileKind::Regular,
    }
}

/// Whether no later entry can be unpacked.
fn ends_extraction(error: &Error) -> bool {
    matches!(error, Error::Archive { .. })
        || matches!(error.kind(), Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
        || error.is_final("")
}

impl Unpacker<'_> {
    fn error(&self, source: io::Error) -> Error {
        let archive = self.name.to_owned();
        if source.kind() == io::ErrorKind::UnexpectedEof && !self.current.is_empty() {
            let why = format!("it ends in the middle of `{}`; copy the archive again", self.current);
            return Error::Archive { archive, source: io::Error::new(source.kind(), why) };
        }
        Error::Archive { archive, source }
    }

    /// An error of the current entry.
    fn entry_error(&self, why: impl Into<String>) -> Error {
        Error::Entry { archive: self.name.to_owned(), entry: self.current.clone(), why: why.into() }
    }

    fn entries(&mut self, entries: &mut Entries<impl Stream>, members: &mut Members) -> Result<(), Error> {
        while let Some(entry) = entries.next_entry().map_err(|source| self.error(source))? {
            if self.watch.is_cancelled() {
                return Err(Error::Interrupted);
            }
            if members.wants(&entry.name) {
                self.watch.entry(&entry.name);
                let done = self.entry(entry, entries);
                self.go_on_after(done)?;
            }
        }
        Ok(())
    }

    /// Report the failure of one entry if the rest is unpacked.
    fn go_on_after(&mut self, done: Result<(), Error>) -> Result<(), Error> {
        match done {
            Err(error) if self.options.on_failure == OnFailure::GoOn && !ends_extraction(&error) => {
                self.summary.failed += 1;
                self.watch.failed(error);
                Ok(())
            }
            done => done,
        }
    }

    /// Set the attributes of directories and the flags, also after an error (invariant 3). The deepest directories come first: entries change
    /// the times of their directories.
    fn finish(&mut self) -> Result<(), Error> {
        let mut finished = Ok(());
        // Those that got an entry later have its attributes.
        let mut parents = std::mem::take(&mut self.parents);
        parents.retain(|path, _| !self.directories.contains_key(path));
        if let Some(recorder) = self.sink.recorder() {
            for (path, meta) in &parents {
                finished = finished.and(recorder.set_parent_meta(path, meta));
            }
        } else {
            let parents = parents.into_iter().map(|(path, meta)| (path, (meta, Attributes::new())));
            self.directories.extend(parents);
        }
        for (path, (meta, attributes)) in std::mem::take(&mut self.directories).iter().rev() {
            let done = self.set_meta(path, meta, attributes);
            finished = finished.and(self.go_on_after(done));
        }
        for (path, flags) in std::mem::take(&mut self.flags) {
            if let Err(why) = self.sink.add_flags(&path, flags) {
                self.report_lost(&path, [LostAttribute { attribute: format!("flags {flags:?}"), why }]);
            }
        }
        finished
    }

    fn set_meta(&mut self, path: &Path, meta: &Meta, attributes: &Attributes) -> Result<(), Error> {
        let lost = self.sink.set_meta(path, meta, attributes)?;
        self.report_lost(path, lost);
        Ok(())
    }

    fn report_lost(&mut self, path: &Path, lost: impl IntoIterator<Item = LostAttribute>) {
        for attribute in lost {
            self.summary.attributes_lost += 1;
            self.watch.failed(attribute.into_error(self.sink.name_of(path)));
        }
    }

    /// Report each keyword with data that is not kept, with the first entry that has it.
    fn report_lost_keywords(&mut self, lost: Vec<(String, &'static str)>) {
        for (keyword, why) in lost {
            self.summary.attributes_lost += 1;
            let is_full = self.lost_keywords.len() >= KEYWORDS_MAX;
            if is_full || self.lost_keywords.insert(keyword.clone()) {
                let (archive, entry) = (self.name.to_owned(), self.current.clone());
                self.watch.failed(Error::RecordLost { archive, keyword, entry, why });
            }
        }
    }

    /// Make the file of an entry with this `data`.
    fn entry(&mut self, entry: Entry, data: &mut Entries<impl Stream>) -> Result<(), Error> {
        let Entry { header, records, name, link, size, sparse } = entry;
        self.current = String::from_utf8_lossy(&name).into_owned();
        let path = self.destination(&name, Follow::No)?;
        let mut extended = Extended::of(&records).map_err(|why| self.entry_error(why))?;
        self.report_lost_keywords(std::mem::take(&mut extended.lost));
        let sparse = sparse.map(Sparse::Known).or_else(|| extended.sparse.take());
        let size = match &sparse {
            Some(Sparse::Known(map)) => map.size,
            Some(Sparse::Leading(size)) => *size,
            None => size,
        };
        let kind = header.entry_type();
        let meta = self.meta(&header, kind_of(kind, &name), size, &extended)?;
        let attributes: Attributes = std::mem::take(&mut extended.attributes).into_iter().collect();
        let Some(path) = path else {
            // `./` sets the attributes of the destination itself.
            if meta.kind != FileKind::Directory {
                return Err(self.entry_error("it has the name of the root and is not a directory"));
            }
            self.directories.insert(self.to.to_owned(), (meta, attributes));
            return Ok(());
        };
        self.make_parents(&path, meta.modified)?;
        if meta.kind == FileKind::Directory {
            let path = self.behind_link(&name, path)?;
            self.make_directory(&path)?;
            self.note_flags(&path, extended.flags);
            self.directories.insert(path, (meta, attributes));
            return Ok(());
        }
        if kind.is_hard_link() {
            return self.hard_link(&link, &path);
        }
        let lost = if meta.kind == FileKind::Regular {
            let map = match sparse {
                Some(Sparse::Leading(size)) => {
                    Some(leading_map(data, size).map_err(|source| self.error(source))?)
                }
                Some(Sparse::Known(map)) => Some(map),
                None => None,
            };
            self.report_unknown(kind);
            match self.sink.recorder() {
                Some(recorder) => {
                    self.record(recorder, data, &path, size, map)?;
                    self.sink.set_meta(&path, &meta, &attributes)?
                }
                None => self.file(data, &path, (&meta, &attributes), map)?,
            }
        } else {
            let sink = self.sink;
            self.place(&path, |at| {
                match meta.kind {
                    FileKind::Symlink => sink.make_link(at, &link)?,
                    _ => sink.make_node(at, &meta)?,
                }
                sink.set_meta(at, &meta, &attributes)
            })?
        };
        if meta.kind == FileKind::Symlink && self.sink.recorder().is_none() {
            self.own_links.insert(path.clone());
        }
        self.note_made(&path)?;
        self.note_flags(&path, extended.flags);
        self.summary.others += u64::from(meta.kind != FileKind::Regular);
        self.report_lost(&path, lost);
        Ok(())
    }

    fn note_flags(&mut self, path: &Path, flags: InodeFlags) {
        self.flags.remove(path);
        if !flags.is_empty() {
            self.flags.insert(path.to_owned(), flags);
        }
    }

    fn may_fold_names(&self, path: &Path) -> Result<bool, Error> {
        self.sink.may_fold_names(path.parent().unwrap_or(path))
    }

    /// Something new is at `path`.
    fn note_made(&mut self, path: &Path) -> Result<(), Error> {
        if self.may_fold_names(path)? { self.copied_names.note(self.sink, path) } else { Ok(()) }
    }

    /// The file at `path`. An error if the archive has it under another name.
    fn existing(&self, path: &Path) -> Result<Option<Meta>, Error> {
        let existing = self.sink.existing(path, Follow::No)?;
        if existing.is_some() && self.may_fold_names(path)? {
            let archive = || format!("{}: `{}`", self.name, self.current);
            self.copied_names.check(self.sink, archive, path)?;
        }
        Ok(existing)
    }

    /// Report an entry of an unknown type.
    fn report_unknown(&self, kind: EntryType) {
        if !matches!(kind, EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse) {
            let (archive, entry) = (self.name.to_owned(), self.current.clone());
            self.watch.failed(Error::UnknownType { archive, entry, kind: char::from(kind.as_byte()) });
        }
    }

    fn hard_link(&mut self, link: &[u8], path: &Path) -> Result<(), Error> {
        let original = self.destination(link, Follow::No)?;
        let there = original.as_ref().map(|original| self.sink.existing(original, Follow::No)).transpose()?;
        let (Some(original), Some(Some(there))) = (&original, there) else {
            let is_recorded = |(recorder, original): (&dyn Recorder, &PathBuf)| {
                recorder.link_to_lower_layer(original, path)
            };
            if self.sink.recorder().zip(original.as_ref()).is_some_and(is_recorded) {
                self.summary.others += 1;
                return Ok(());
            }
            let link = String::from_utf8_lossy(link);
            return Err(self.entry_error(format!(
                "its original `{link}` does not precede it in the archive; make the archive with both"
            )));
        };
        let is_linked = |at: &Meta| at.kind != FileKind::Directory && at.identity == there.identity;
        if original != path && !self.existing(path)?.as_ref().is_some_and(is_linked) {
            self.place(path, |at| self.sink.make_hard_link(original, at))?;
        }
        self.note_made(path)?;
        self.summary.others += 1;
        Ok(())
    }

    /// The directory for the entry `name` at `path`: that one, or the target of a link of the destination.
    fn behind_link(&mut self, name: &[u8], path: PathBuf) -> Result<PathBuf, Error> {
        let is_link = self.existing(&path)?.is_some_and(|existing| existing.kind == FileKind::Symlink);
        if !is_link || self.sink.recorder().is_some() || self.own_links.contains(&path) {
            return Ok(path);
        }
        if self.options.directory_links == DirectoryLinks::Follow {
            let target = self.destination(name, Follow::Yes)?.unwrap_or_else(|| self.to.to_owned());
            let found = self.sink.existing(&target, Follow::No)?;
            if found.is_some_and(|found| found.kind == FileKind::Directory) {
                return Ok(target);
            }
        }
        let why = match self.options.directory_links {
            DirectoryLinks::Refuse => {
                "the archive has a directory there; remove the link, or use --keep-directory-symlink to unpack into its target"
            }
            DirectoryLinks::Follow => {
                "the archive has a directory there, and the link leads to no directory of the destination; remove the link"
            }
        };
        let name = self.sink.name_of(&path);
        self.refused_links.insert(path);
        Err(Error::Refused { name, what: "the symbolic link is not replaced", why: why.to_owned() })
    }

    /// The path of an entry. Symbolic links are followed in all parts of its name but the last, and in that one by `last`. `None` for the
    /// destination itself.
    fn destination(&self, name: &[u8], last: Follow) -> Result<Option<PathBuf>, Error> {
        let name = Path::new(OsStr::from_bytes(name));
        let (archive, entry) = (self.name.to_owned(), name.display().to_string());
        let is_wrong = |part| match part {
            Component::Normal(part) => part.as_bytes().contains(&0),
            part => part == Component::ParentDir,
        };
        if name.components().any(is_wrong) {
            return Err(Error::Entry {
                archive,
                entry,
                why: "its name leads out of the destination".to_owned(),
            });
        }
        if name.components().nth(LEVELS_MAX).is_some() {
            return Err(self.entry_error("its directories are nested too deep"));
        }
        let (mut path, mut links) = (self.to.to_owned(), 0);
        let mut waiting = parts_reversed(name);
        while let Some(part) = waiting.pop() {
            if part == ".." {
                // The destination is its own parent, as a root is.
                if path != self.to {
                    path.pop();
                }
                continue;
            }
            path.push(part);
            let is_last = waiting.is_empty();
            let existing =
                if is_last && last == Follow::No { None } else { self.sink.existing(&path, Follow::No)? };
            if existing.is_some_and(|at| at.kind == FileKind::Symlink) {
                if self.refused_links.contains(&path) {
                    let why = "its directory is a symbolic link in the destination, which was not replaced";
                    return Err(self.entry_error(why));
                }
                links += 1;
                if links > LINKS_MAX {
                    return Err(self.entry_error("its name has too many symbolic links"));
                }
                let target = PathBuf::from(OsString::from_vec(self.sink.link_target(&path)?));
                path.pop();
                if target.has_root() {
                    self.to.clone_into(&mut path);
                }
                waiting.extend(parts_reversed(&target));
            }
        }
        Ok(Some(path).filter(|path| path != self.to))
    }

    /// Make directories that have no entry yet, with mode 755, the owner root, and the time of this entry.
    fn make_parents(&mut self, path: &Path, modified: Timestamp) -> Result<(), Error> {
        let missing: Vec<PathBuf> = path
            .ancestors()
            .skip(1)
            .take_while(|parent| *parent != self.to && parent.parent().is_some())
            .map(Path::to_owned)
            .collect();
        for parent in missing.into_iter().rev() {
            if self.make_directory(&parent)? {
                let meta = Meta::new(FileKind::Directory, 0o755, (0, 0), 0, modified);
                self.parents.insert(parent, meta);
            }
        }
        Ok(())
    }

    /// Whether it was not there.
    fn make_directory(&mut self, path: &Path) -> Result<bool, Error> {
        match self.existing(path)? {
            Some(existing) if existing.kind == FileKind::Directory => Ok(false),
            Some(_) => Err(self.two_kinds(path)),
            None => {
                self.sink.make_directory(path)?;
                self.note_made(path)?;
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

    /// Whether a file replaces another one: later entries of an archive replace earlier ones, and files of the destination.
    fn is_taken(&self, path: &Path) -> Result<bool, Error> {
        match self.existing(path)? {
            Some(existing) if existing.kind == FileKind::Directory => Err(self.two_kinds(path)),
            existing => Ok(existing.is_some()),
        }
    }

    fn target<'p>(&self, path: &'p Path) -> Result<Target<'p>, Error> {
        let temporary = temporary_name(path, &self.sink.mark_of_incomplete());
        Ok(Target { to: path, temporary, is_taken: self.is_taken(path)? })
    }

    /// Make anything but a regular file with data. An existing file is replaced when that is done.
    fn place<T>(&self, path: &Path, make: impl FnOnce(&Path) -> Result<T, Error>) -> Result<T, Error> {
        if self.is_taken(path)? { make_and_rename(self.sink, &self.target(path)?, make) } else { make(path) }
    }

    /// Record where the data of a regular file is.
    fn record(
        &mut self,
        recorder: &dyn Recorder,
        data: &mut Entries<impl Stream>,
        path: &Path,
        size: u64,
        sparse: Option<SparseMap>,
    ) -> Result<(), Error> {
        let (mut from, len) = data.data();
        let ranges = sparse.map_or_else(|| vec![(0, len)], |map| map.pieces);
        if ranges.iter().try_fold(0u64, |sum, (_, len)| sum.checked_add(*len)).is_none_or(|sum| sum > len) {
            return Err(self.entry_error("the sparse file has less data than its map"));
        }
        let mut pieces = Vec::with_capacity(ranges.len());
        for (start, len) in ranges {
            pieces.push(Piece { start, len, from });
            from += len;
        }
        // A stream is kept as far as it was read.
        data.skip_data().map_err(|source| self.error(source))?;
        if self.is_taken(path)? {
            self.sink.remove(path)?;
        }
        recorder.make_reference(path, size, &pieces)?;
        self.summary.files += 1;
        Ok(())
    }

    /// Make a regular file. Returns the attributes that the destination does not hold.
    fn file(
        &mut self,
        data: &mut impl Read,
        path: &Path,
        (meta, attributes): (&Meta, &Attributes),
        sparse: Option<SparseMap>,
    ) -> Result<Vec<LostAttribute>, Error> {
        self.watch.begin(path, meta.size);
        let file = self.sink.create_new(&self.target(path)?, Some(meta.size))?;
        self.write(data, file.content(), meta.size, sparse)?;
        let lost = file.set_meta(meta, attributes)?;
        file.complete()?;
        self.summary.files += 1;
        Ok(lost)
    }

    fn write(
        &mut self,
        data: &mut impl Read,
        file: &dyn WriteFile,
        size: u64,
        sparse: Option<SparseMap>,
    ) -> Result<(), Error> {
        let is_sparse = sparse.is_some();
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
                let count = fill(data, &mut buffer[..most]).map_err(|source| self.error(source))?;
                if count == 0 && is_sparse {
                    return Err(self.entry_error("the sparse file has less data than its map"));
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
        file.set_size(if is_sparse { size } else { end })
    }

    fn meta(&self, header: &Header, kind: FileKind, size: u64, extended: &Extended) -> Result<Meta, Error> {
        let read = || -> Result<Meta, String> {
            let old = header.as_old();
            let field = |what, bytes| numbers::checked(what, numbers::field(bytes), &OWNERS);
            let modified = if let Some(modified) = extended.modified {
                modified
            } else {
                let seconds = numbers::checked("mtime", numbers::field(&old.mtime), &SECONDS)?;
                Timestamp { seconds, nanoseconds: 0 }
            };
            let permissions = numbers::checked::<u16>("mode", numbers::field(&old.mode), &MODES)? & 0o7777;
            let uid = extended.uid.map_or_else(|| field("uid", &old.uid), Ok)?;
            let gid = extended.gid.map_or_else(|| field("gid", &old.gid), Ok)?;
            Ok(Meta {
                accessed: extended.accessed.unwrap_or(modified),
                device: device_of(header, kind, extended)?,
                ..Meta::new(kind, permissions, (uid, gid), size, modified)
            })
        };
        read().map_err(|why| self.entry_error(why))
    }
}

/// Major and minor number of a device. Other entries may have anything in these fields.
fn device_of(header: &Header, kind: FileKind, extended: &Extended) -> Result<(u32, u32), String> {
    if !matches!(kind, FileKind::CharacterDevice | FileKind::BlockDevice) {
        return Ok((0, 0));
    }
    let fields = header.as_ustar().map(|header| (&header.dev_major, &header.dev_minor));
    let fields = fields.or_else(|| header.as_gnu().map(|header| (&header.dev_major, &header.dev_minor)));
    let number = |what, given: Option<u32>, field: Option<&[u8; 8]>, range| match (given, field) {
        (Some(given), _) => Ok(given),
        (None, Some(field)) => numbers::checked(what, numbers::field(field), range),
        (None, None) => Ok(0),
    };
    Ok((
        number("major device number", extended.major, fields.map(|(major, _)| major), &MAJORS)?,
        number("minor device number", extended.minor, fields.map(|(_, minor)| minor), &MINORS)?,
    ))
}

/// The names in a path and its `..`, the first one last.
fn parts_reversed(path: &Path) -> Vec<OsString> {
    let is_part = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    let mut parts: Vec<_> =
        path.components().filter(is_part).map(|part| part.as_os_str().to_owned()).collect();
    parts.reverse();
    parts
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
    fn archive_cannot_write_outside_of_the_destination() {
        for entries in [
            &[(EntryType::Regular, "../evil", "", &b"x"[..])][..],
            &[(EntryType::Link, "again", "../../etc/passwd", b"")],
        ] {
            let directory = tempfile::tempdir().unwrap();
            let to = directory.path().join("to");
            std::fs::create_dir(&to).unwrap();
            let error = unpack_here(&archive(entries), &to).unwrap_err();
            assert!(error.to_string().contains("leads out of the destination"), "{error}");
            assert!(!directory.path().join("evil").exists());
        }
    }

    /// A failed or interrupted archive left a part of a file in place of the old one.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the file that is kept")]
    fn an_entry_that_cannot_be_completed_leaves_the_old_file() {
        struct Stop;
        impl Watch for Stop {
            fn begin(&self, _: &Path, _: u64) {}
            fn advance(&self, _: u64) {
                STOP.set(true);
            }
            fn is_cancelled(&self) -> bool {
                STOP.get()
            }
        }
        thread_local!(static STOP: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
        let directory = tempfile::tempdir().unwrap();
        let mut options = diorite::mkfs::MkfsOptions::new(diorite::mkfs::Flavor::Ext4);
        options.features = "^has_journal".to_owned();
        let image = directory.path().join("disk.img");
        let filesystem = diorite::Filesystem::create(image, 16 << 20, &options).unwrap();
        filesystem.create_dir("/to").unwrap();
        let image = crate::ImageTree::new(filesystem.clone(), "disk.img", None);
        let host = directory.path().join("host");
        std::fs::create_dir(&host).unwrap();
        let large = archive(&[(EntryType::Regular, "file", "", &vec![1; 3 * CHUNK_BYTES])]);
        let too_large = archive(&[(EntryType::Regular, "file", "", &vec![1; 20 << 20])]);
        let cut = &large[..2 * CHUNK_BYTES];
        for old in [None, Some(b"old".to_vec())] {
            if let Some(old) = &old {
                std::fs::write(host.join("file"), old).unwrap();
                filesystem.write("/to/file", old).unwrap();
            }
            for (tree, to) in [(&image as &dyn Sink, Path::new("/to")), (&HostTree::new(), &host)] {
                STOP.set(false);
                let stopped = unpack(large.as_slice(), "t.tar", tree, to, &Stop);
                assert!(matches!(stopped, Err(Error::Interrupted)), "{stopped:?}");
                unpack(cut, "t.tar", tree, to, &Unwatched).unwrap_err();
            }
            unpack(too_large.as_slice(), "t.tar", &image, Path::new("/to"), &Unwatched).unwrap_err();
            assert_eq!(filesystem.read("/to/file").ok(), old);
            assert_eq!(std::fs::read(host.join("file")).ok(), old);
            let names = || std::fs::read_dir(&host).unwrap().count();
            assert_eq!(
                (names(), crate::Source::names(&image, Path::new("/to")).unwrap().names.len()),
                (usize::from(old.is_some()), usize::from(old.is_some()))
            );
        }
    }

    /// An entry through a link of the archive was rejected, though `tar -x` takes it.
    #[test]
    fn links_lead_no_further_than_the_destination() {
        let directory = tempfile::tempdir().unwrap();
        let to = directory.path().join("to");
        std::fs::create_dir(&to).unwrap();
        let bytes = archive(&[
            (EntryType::Directory, "usr/lib/", "", b""),
            (EntryType::Symlink, "lib", "usr/lib", b""),
            (EntryType::Symlink, "usr/up", "../../../lib/deep", b""),
            (EntryType::Symlink, "root", "/usr", b""),
            (EntryType::Symlink, "out", "/tmp/diorite", b""),
            (EntryType::Regular, "lib/a", "", b"a"),
            (EntryType::Regular, "usr/up/b", "", b"b"),
            (EntryType::Regular, "root/lib/c", "", b"c"),
            (EntryType::Regular, "out/d", "", b"d"),
            (EntryType::Link, "root/lib/e", "lib/a", b""),
        ]);
        unpack_here(&bytes, &to).unwrap();
        for (name, content) in
            [("lib/a", "a"), ("lib/deep/b", "b"), ("lib/c", "c"), ("../tmp/diorite/d", "d"), ("lib/e", "a")]
        {
            let path = to.join("usr").join(name);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content, "{}", path.display());
        }
        let bytes = archive(&[
            (EntryType::Symlink, "a", "b", b""),
            (EntryType::Symlink, "b", "a", b""),
            (EntryType::Regular, "a/file", "", b"x"),
        ]);
        let error = unpack_here(&bytes, &to).unwrap_err().to_string();
        assert!(error.contains("too many symbolic links"), "{error}");
    }

    /// The message said that the archive has both a directory and a link, and a link out of the destination must not be followed.
    #[test]
    fn links_of_the_destination_stand_for_directories_if_wanted() {
        let directory = tempfile::tempdir().unwrap();
        let bytes = archive(&[
            (EntryType::Directory, "lib/", "", b""),
            (EntryType::Regular, "lib/a", "", b"a"),
            (EntryType::Directory, "out/", "", b""),
            (EntryType::Regular, "out/b", "", b"b"),
            (EntryType::Regular, "last", "", b"c"),
        ]);
        std::fs::create_dir(directory.path().join("outside")).unwrap();
        for (directory_links, failed) in [(DirectoryLinks::Refuse, 4), (DirectoryLinks::Follow, 2)] {
            let to = directory.path().join(format!("{failed}"));
            std::fs::create_dir_all(to.join("usr/lib")).unwrap();
            std::os::unix::fs::symlink("usr/lib", to.join("lib")).unwrap();
            std::os::unix::fs::symlink("../outside", to.join("out")).unwrap();
            let options = UnpackOptions { on_failure: OnFailure::GoOn, directory_links };
            let wanted = (&mut Members::default(), options);
            let tree = HostTree::new();
            let summary = unpack_members(bytes.as_slice(), "t.tar", &tree, &to, wanted, &Unwatched).unwrap();
            assert_eq!(summary.failed, failed);
            assert_eq!(to.join("usr/lib/a").exists(), directory_links == DirectoryLinks::Follow);
            assert!(to.join("last").exists() && to.join("lib").is_symlink());
            assert!(!directory.path().join("outside/b").exists());
        }
    }

    /// The second of two entries whose names differ by case replaced the first. A later entry of the same name still does.
    #[test]
    fn entries_that_are_one_in_the_destination_are_errors() {
        let directory = tempfile::tempdir().unwrap();
        let mut options = diorite::mkfs::MkfsOptions::new(diorite::mkfs::Flavor::Ext4);
        options.features = "casefold".to_owned();
        let image = directory.path().join("disk.img");
        let filesystem = diorite::Filesystem::create(image, 32 << 20, &options).unwrap();
        filesystem.create_dir("/to").unwrap();
        let tree = crate::ImageTree::new(filesystem, "disk.img", None);
        tree.add_flags(Path::new("/to"), InodeFlags::CASEFOLD).unwrap();
        let unpack_into = |entries: &[(EntryType, &str, &str, &[u8])]| {
            unpack(archive(entries).as_slice(), "t.tar", &tree, Path::new("/to"), &Unwatched)
        };
        let file = |name| (EntryType::Regular, name, "", &b"x"[..]);
        let directory = |name| (EntryType::Directory, name, "", &b""[..]);
        let link = |name| (EntryType::Symlink, name, "target", &b""[..]);
        for entries in [
            [file("README"), file("readme")],
            [directory("Sub/"), directory("sub/")],
            [directory("Deep/"), file("deep/file")],
            [link("link"), file("LINK")],
            [file("cafe\u{301}"), file("caf\u{e9}")],
            [file("one"), (EntryType::Link, "ONE", "one", b"")],
        ] {
            let error = unpack_into(&entries).unwrap_err();
            assert!(matches!(error, Error::NameClash { .. }), "{error}");
        }
        unpack_into(&[
            file("twice"),
            (EntryType::Link, "name", "twice", b""),
            file("name"),
            file("twice"),
            directory("again/"),
            file("again/file"),
            directory("again/"),
        ])
        .unwrap();
    }
}

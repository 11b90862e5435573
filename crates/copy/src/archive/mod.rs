//! A tar stream as the source of a copy.
//!
//! The stream is read once, from front to back. The destination is the root of all names. A symbolic link in the middle of a name is
//! followed here and not by the sink: `/` and `..` in its target cannot leave the destination. A name with `..` is rejected.

mod data;
mod places;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use diorite::FileKind;
use diorite::front_end::InodeFlags;
use tar::EntryType;

use crate::copied_names::{Age, CopiedNames};
use crate::entry_meta::{kind_of, meta_of};
use crate::members::Members;
use crate::options::OnFailure;
use crate::pax::{Entries, Entry, Forward, Stream};
use crate::records::{Extended, Sparse, leading_map};
use crate::tree::{Attributes, Follow, LostAttribute, Meta, Recorder, Sink};
use crate::{Error, Summary, Watch};

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

/// Options to unpack an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnpackOptions {
    /// Consequence of one entry's error for the rest. Errors of the archive itself, and a full destination, end the extraction in any case.
    pub on_failure: OnFailure,
    /// Links of the destination in place of directories.
    pub directory_links: DirectoryLinks,
}

/// Unpack these entries of a tar stream into the directory `to` of `sink`. Messages call the stream `name`. Nothing is synced.
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

/// Whether no later entry can be unpacked. Smaller files may still fit into a full volume.
fn ends_extraction(error: &Error) -> bool {
    matches!(error, Error::Archive { .. }) || error.is_final("")
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
        let meta = meta_of(&header, kind_of(kind, &name), size, &extended);
        let meta = meta.map_err(|why| self.entry_error(why))?;
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
}

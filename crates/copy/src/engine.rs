//! The walk of a copy: one file, or a directory with everything in it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use diorite::FileKind;

use crate::copied_names::{Age, CopiedNames};
use crate::new_file::{Content, FileMaker, cannot_be_replaced, is_special};
use crate::options::{Clobber, CopyOptions, Depth, OnFailure, Sync};
use crate::tree::{Attributes, Entered, Follow, Item, Meta, Names, ReadStream, Sink, Source};
use crate::{Error, Summary, Watch};

/// A copy in progress: several sources into one destination.
pub struct Copier<'a> {
    files: FileMaker<'a>,
    /// Device numbers of the filesystems that were written, each with a directory there.
    destinations: HashMap<Option<u64>, PathBuf>,
    /// Directories of the source that were entered, and the depth of the current one.
    entered: Entered,
    depth: usize,
    /// Directories of [`Self::copy_parents`], which get their attributes at the end.
    parents: BTreeMap<PathBuf, (Meta, Attributes)>,
}

impl<'a> Copier<'a> {
    /// Copies into `sink` as `options` say.
    pub fn new(sink: &'a dyn Sink, options: CopyOptions, watch: &'a dyn Watch) -> Self {
        let files = FileMaker::new(sink, options, watch);
        Self {
            files,
            destinations: HashMap::new(),
            entered: Entered::default(),
            depth: 0,
            parents: BTreeMap::new(),
        }
    }

    /// Summary so far.
    pub fn summary(&self) -> Summary {
        self.files.summary
    }

    /// Copy `from` to exactly `to`. The caller has decided that `to` is not a directory to copy into.
    pub fn copy(&mut self, source: &dyn Source, from: &Path, to: &Path) -> Result<(), Error> {
        (self.entered, self.depth) = (Entered::default(), 0);
        let follow = match self.files.options.depth {
            Depth::File => Follow::Yes,
            Depth::Tree => Follow::No,
        };
        let meta = source.meta(from, follow)?;
        let item = Item { source, path: from, meta: &meta };
        self.refuse_directory(item)?;
        self.note_destination(to.parent().unwrap_or(to));
        let is_stream = self.files.options.depth == Depth::File && is_special(meta.kind);
        let special = self.files.special_target(to)?;
        if !is_stream && special.is_none() {
            return self.copy_known(item, to);
        }
        FileMaker::refuse_own_image(item)?;
        if !is_stream {
            let reader = source.open(from, &meta)?;
            return self.files.put(&mut Content::File(item, &*reader), special, to);
        }
        // The bytes of the stream become a file with the time of the copy.
        let mut stream = source.open_stream(from)?;
        let now = crate::host::now();
        let meta = Meta { kind: FileKind::Regular, size: 0, links: 1, accessed: now, modified: now, ..meta };
        self.files.put(&mut Content::Stream { stream: &mut *stream, name: from, meta: &meta }, special, to)
    }

    /// Make a regular file at exactly `to` of the bytes of `stream`, which messages call `name`.
    pub fn copy_stream(
        &mut self,
        stream: &mut dyn ReadStream,
        name: &Path,
        meta: &Meta,
        to: &Path,
    ) -> Result<(), Error> {
        self.note_destination(to.parent().unwrap_or(to));
        let special = self.files.special_target(to)?;
        self.files.put(&mut Content::Stream { stream, name, meta }, special, to)
    }

    /// Copy the entries of the directory `from` into the existing directory `to`, and give `to` the attributes of `from`. `to` can be a link
    /// to a directory.
    pub fn copy_content(&mut self, source: &dyn Source, from: &Path, to: &Path) -> Result<(), Error> {
        let meta = source.meta(from, Follow::Yes)?;
        let item = Item { source, path: from, meta: &meta };
        self.refuse_directory(item)?;
        self.note_destination(to);
        // If `to` is a link, its directory gets the attributes, too.
        let is_link =
            self.files.sink.existing(to, Follow::No)?.is_some_and(|at| at.kind == FileKind::Symlink);
        let itself = if is_link { to.join(".") } else { to.to_owned() };
        self.copy_into(item, &itself, source.names(from)?, Age::Existing)
    }

    /// Make the directories between `to` and `to/below`, with the attributes of those above `from`, whose path ends with `below`. Links of the
    /// source are followed.
    pub fn copy_parents(
        &mut self,
        source: &dyn Source,
        from: &Path,
        to: &Path,
        below: &Path,
    ) -> Result<(), Error> {
        let above = below.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty());
        let missing: Vec<_> = from.ancestors().skip(1).zip(above).collect();
        for (original, path) in missing.into_iter().rev() {
            let copy = to.join(path);
            match self.files.sink.existing(&copy, Follow::Yes)? {
                Some(there) if there.kind == FileKind::Directory => continue,
                Some(_) => {
                    let why = "it is not a directory, and the source is";
                    return Err(cannot_be_replaced(self.files.sink.name_of(&copy), why));
                }
                None => {}
            }
            let meta = source.meta(original, Follow::Yes)?;
            let attributes = source.attributes(original)?;
            self.files.sink.make_directory(&copy)?;
            self.files.summary.directories += 1;
            self.files.watch.copied(source, original, self.files.sink, &copy);
            self.parents.insert(copy, (meta, attributes));
        }
        Ok(())
    }

    /// Make the directory `to`, which everyone can read, because a source goes into it.
    pub fn make_destination(&mut self, to: &Path) -> Result<(), Error> {
        self.files.sink.make_directory(to)?;
        self.files.summary.directories += 1;
        let meta = Meta::new(FileKind::Directory, 0o755, (0, 0), 0, crate::host::now());
        self.files.sink.set_meta(to, &meta, &Attributes::new()).map(drop)
    }

    /// Only a copy of trees takes directories.
    fn refuse_directory(&self, item: Item<'_>) -> Result<(), Error> {
        if item.meta.kind == FileKind::Directory && self.files.options.depth == Depth::File {
            return Err(Error::not_copied(item.source.name_of(item.path), "it is a directory; use -r"));
        }
        Ok(())
    }

    /// End the copy, and make it durable if [`CopyOptions::sync`] says so.
    pub fn finish(mut self) -> Result<Summary, Error> {
        // The deepest directories come first: a new entry changes the time of its directory.
        for (path, (meta, attributes)) in std::mem::take(&mut self.parents).into_iter().rev() {
            let lost = self.files.sink.set_meta(&path, &meta.safe(), &attributes)?;
            self.files.report_lost(&meta, lost, &path);
        }
        self.files.set_flags();
        if self.files.options.sync == Sync::AtEnd {
            self.destinations.values().try_for_each(|directory| self.files.sink.sync(directory))?;
        }
        Ok(self.files.summary)
    }

    /// [`Self::finish`] syncs the filesystem of this directory.
    fn note_destination(&mut self, directory: &Path) {
        // The parent of a plain name is the empty path.
        let at = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        let meta = self.files.sink.existing(at, Follow::Yes).ok().flatten();
        let device = meta.map(|meta| meta.identity.0);
        self.destinations.entry(device).or_insert_with(|| directory.to_owned());
    }

    /// Copy the entries of these names.
    fn copy_entries(
        &mut self,
        directory: Item<'_>,
        to: &Path,
        names: &[Vec<u8>],
        age: Age,
    ) -> Result<(), Error> {
        let source = directory.source;
        let mut copied_names = self.files.sink.may_fold_names(to)?.then(|| CopiedNames::new(age));
        for name in names {
            let (path, to) = (directory.path.join(OsStr::from_bytes(name)), to.join(OsStr::from_bytes(name)));
            let meta = source.meta(&path, Follow::No);
            let copied = meta.and_then(|meta| {
                let item = Item { source, path: &path, meta: &meta };
                match &mut copied_names {
                    Some(names) => self.copy_unless_folded(item, &to, names),
                    None => self.copy_known(item, &to),
                }
            });
            match copied {
                Err(error)
                    if self.files.options.on_failure == OnFailure::GoOn
                        && !error.is_final(&source.name_of(&path)) =>
                {
                    self.files.summary.failed += 1;
                    self.files.watch.failed(error);
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// Copy an entry, unless its name means an entry that was copied before.
    fn copy_unless_folded(
        &mut self,
        item: Item<'_>,
        to: &Path,
        names: &mut CopiedNames,
    ) -> Result<(), Error> {
        names.check(self.files.sink, || item.source.name_of(item.path), to)?;
        let before = self.files.sink.existing(to, Follow::No)?;
        let copied = self.copy_known(item, to);
        // An unchanged file is a hard link that existed before, which can have other names here.
        let is_directory = item.meta.kind == FileKind::Directory;
        let after = self.files.sink.existing(to, Follow::No)?;
        if is_directory || before.map(|meta| meta.identity) != after.map(|meta| meta.identity) {
            names.note(self.files.sink, to)?;
        }
        copied
    }

    fn copy_known(&mut self, item: Item<'_>, to: &Path) -> Result<(), Error> {
        let meta = item.meta;
        if self.files.watch.is_cancelled() {
            return Err(Error::Interrupted);
        }
        if meta.kind == FileKind::Directory {
            return self.copy_directory(item, to);
        }
        self.files.copy(item, to)
    }

    fn copy_directory(&mut self, item: Item<'_>, to: &Path) -> Result<(), Error> {
        self.entered.enter(item, self.depth)?;
        self.depth += 1;
        let copied = self.copy_below(item, to);
        self.depth -= 1;
        copied
    }

    fn copy_below(&mut self, item: Item<'_>, to: &Path) -> Result<(), Error> {
        // Before the directory is made, so that an unreadable one leaves nothing.
        let names = item.source.names(item.path)?;
        // A link is not followed: it can lead out of the destination.
        let age = match self.files.sink.existing(to, Follow::No)? {
            // It can be the root of another filesystem.
            Some(existing) if existing.kind == FileKind::Directory => {
                self.note_destination(to);
                Age::Existing
            }
            Some(existing)
                if self.files.options.clobber == Clobber::KeepSame
                    && !self.files.sink.is_image(&existing) =>
            {
                // As rsync: a file or a link makes way for a directory.
                self.files.sink.remove(to)?;
                self.make_directory(item, to)?
            }
            Some(existing) => {
                let why = match existing.kind {
                    FileKind::Symlink => "it is a symbolic link, and the source is a directory",
                    _ => "it is not a directory, and the source is",
                };
                return Err(cannot_be_replaced(self.files.sink.name_of(to), why));
            }
            None => self.make_directory(item, to)?,
        };
        self.copy_into(item, to, names, age)
    }

    fn make_directory(&mut self, item: Item<'_>, to: &Path) -> Result<Age, Error> {
        self.files.sink.make_directory(to)?;
        self.files.summary.directories += 1;
        self.files.watch.copied(item.source, item.path, self.files.sink, to);
        Ok(Age::New)
    }

    /// Copy the entries of a directory, and then its attributes, even if an entry failed (invariant 3).
    fn copy_into(&mut self, directory: Item<'_>, to: &Path, names: Names, age: Age) -> Result<(), Error> {
        // Before the entries change its time.
        if age == Age::Existing
            && self.files.options.clobber == Clobber::KeepSame
            && let Some(existing) = self.files.sink.existing(to, Follow::No)?
        {
            self.files.remove_outdated(directory, to, &existing)?;
        }
        let copied = self.copy_entries(directory, to, &names.names, age);
        let finished = self.files.finish_attributes(directory, to, to);
        let finished = finished.and_then(|()| self.files.note_flags(directory, to));
        copied.and(finished).and(names.damage.map_or(Ok(()), Err))
    }
}

/// Whether the directory `at` of a sink is, or is below, the directory with that identity. Links and `..` in `at` are followed.
pub fn is_within(sink: &dyn Sink, at: &Path, directory: (u64, u64)) -> bool {
    let identity = |path: &Path| sink.existing(path, Follow::Yes).ok().flatten().map(|meta| meta.identity);
    let top = identity(Path::new("/"));
    let mut above = at.to_owned();
    for _ in 0..Entered::DEPTH_MAX {
        match identity(&above) {
            Some(here) if here == directory => return true,
            here if here.is_none() || here == top => return false,
            _ => above.push(".."),
        }
    }
    false
}

/// Bytes that a copy of `path` will move, for a progress bar. Files that cannot be read or copied count as 0. Counting ends when
/// `is_cancelled` returns `true`.
pub fn data_bytes(source: &dyn Source, path: &Path, depth: Depth, is_cancelled: &dyn Fn() -> bool) -> u64 {
    let follow = if depth == Depth::File { Follow::Yes } else { Follow::No };
    let mut waiting = vec![(path.to_owned(), 0)];
    let mut seen = HashSet::new();
    let mut bytes = 0u64;
    while let Some((path, level)) = waiting.pop()
        && !is_cancelled()
    {
        let Ok(meta) = source.meta(&path, follow) else { continue };
        let is_entered = depth == Depth::Tree && level < Entered::DEPTH_MAX;
        match meta.kind {
            FileKind::Regular => bytes = bytes.saturating_add(meta.size),
            FileKind::Directory if is_entered && seen.insert(meta.identity) => {
                let names = source.names(&path).unwrap_or_default().names;
                waiting.extend(names.iter().map(|name| (path.join(OsStr::from_bytes(name)), level + 1)));
            }
            _ => {}
        }
    }
    bytes
}

#[cfg(test)]
mod tests;

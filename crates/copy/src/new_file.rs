//! One new file of a copy: its content, its attributes, and the file that it replaces.
//!
//! Where it sits: below [`Copier`](crate::Copier), which walks trees.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use diorite::FileKind;
use diorite::front_end::InodeFlags;

use crate::compare::is_up_to_date;
use crate::file_data::{Copied, FileData};
use crate::linked::Linked;
use crate::options::{Clobber, CopyOptions, Data, Depth, Sync};
use crate::outdated::Outdated;
use crate::tree::{
    Attributes, Follow, Item, LostAttribute, Meta, ReadFile, ReadStream, Sink, Target, WriteFile,
};
use crate::{Error, Summary, Watch};

/// The longest name of a file.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// The content of a new regular file.
pub(crate) enum Content<'s> {
    /// The content of another file.
    File(Item<'s>, &'s dyn ReadFile),
    /// The bytes of a stream, which messages call `name`.
    Stream { stream: &'s mut dyn ReadStream, name: &'s Path, meta: &'s Meta },
}

impl Content<'_> {
    fn meta(&self) -> &Meta {
        match self {
            Self::File(item, _) => item.meta,
            Self::Stream { meta, .. } => meta,
        }
    }

    fn attributes(&self) -> Result<Attributes, Error> {
        match self {
            Self::File(item, _) => item.source.attributes(item.path),
            Self::Stream { .. } => Ok(Attributes::new()),
        }
    }
}

/// The error of a file where a directory is needed, or a directory where a file is needed.
pub(crate) fn cannot_be_replaced(name: String, why: &str) -> Error {
    let why = format!("{why}; remove it first or choose another destination");
    Error::Refused { name, what: "cannot be replaced", why }
}

/// The error of a file that holds an image of the copy.
fn own_image(name: String, what: &'static str) -> Error {
    let why = format!("this copy uses it as an image; a file in it is {name}:/PATH");
    Error::Refused { name, what, why }
}

/// Devices, pipes and sockets.
pub(crate) fn is_special(kind: FileKind) -> bool {
    !matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink)
}

/// Makes files in a sink.
pub(crate) struct FileMaker<'a> {
    pub(crate) sink: &'a dyn Sink,
    pub(crate) options: CopyOptions,
    pub(crate) watch: &'a dyn Watch,
    pub(crate) summary: Summary,
    linked: Linked,
    /// Inode flags, set after everything else: they forbid changes.
    flags: Vec<(PathBuf, InodeFlags)>,
    file_data: FileData,
}

impl<'a> FileMaker<'a> {
    pub(crate) fn new(sink: &'a dyn Sink, options: CopyOptions, watch: &'a dyn Watch) -> Self {
        let (linked, file_data) = (Linked::default(), FileData::new());
        Self { sink, options, watch, summary: Summary::default(), linked, flags: Vec::new(), file_data }
    }

    /// Make a copy of anything but a directory at exactly `to`, unless an existing file is kept.
    pub(crate) fn copy(&mut self, item: Item<'_>, to: &Path) -> Result<(), Error> {
        if self.options.clobber == Clobber::KeepSame && self.keep_same(item, to)? {
            return Ok(());
        }
        let made = self.make_at(item.meta, to, |maker, target, sync| maker.make(item, target, sync))?;
        if made {
            self.note_flags(item, to)?;
            self.watch.copied(item.source, item.path, self.sink, to);
            if item.meta.links > 1 {
                self.linked.note(item.meta.identity, to);
            }
        }
        Ok(())
    }

    /// Keep a file that is up to date. Returns whether there is one.
    fn keep_same(&mut self, item: Item<'_>, to: &Path) -> Result<bool, Error> {
        let Some(existing) = self.sink.existing(to, Follow::No)? else { return Ok(false) };
        if !is_up_to_date(item.source, item.path, item.meta, self.sink, to, &existing)? {
            return Ok(false);
        }
        if self.remove_outdated(item, to, &existing)? {
            self.finish_attributes(item, to, to)?;
        }
        if item.meta.links > 1 {
            self.linked.note(item.meta.identity, to);
        }
        self.summary.skipped += 1;
        Ok(true)
    }

    /// Remove the extended attributes that the source does not have, and report all differences of the attributes. Returns whether there are
    /// any; [`Self::finish_attributes`] sets the others.
    pub(crate) fn remove_outdated(&self, item: Item<'_>, to: &Path, existing: &Meta) -> Result<bool, Error> {
        let Outdated { what, extra } = Outdated::of(item, self.sink, to, existing)?;
        if what.is_empty() {
            return Ok(false);
        }
        if !extra.is_empty() {
            self.sink.remove_attributes(to, &extra)?;
        }
        self.watch.updated(self.sink, to, &what);
        Ok(true)
    }

    /// Put content into a new file at `to`, or into the device or pipe there.
    pub(crate) fn put(
        &mut self,
        content: &mut Content<'_>,
        special: Option<Box<dyn WriteFile + 'a>>,
        to: &Path,
    ) -> Result<(), Error> {
        if let Some(writer) = special {
            return self.copy_data(content, &*writer, self.options.sync);
        }
        let meta = content.meta().clone();
        self.make_at(&meta, to, |maker, target, sync| maker.make_regular(content, target, sync)).map(drop)
    }

    /// The device or pipe at `to`, if a file is copied into one.
    pub(crate) fn special_target(&self, to: &Path) -> Result<Option<Box<dyn WriteFile + 'a>>, Error> {
        if self.options.depth == Depth::Tree || self.options.clobber == Clobber::Keep {
            return Ok(None);
        }
        match self.sink.existing(to, Follow::No)? {
            Some(existing) if self.leads_to_special(to, &existing) => {
                let device = self.sink.existing(to, Follow::Yes)?.unwrap_or(existing);
                self.refuse_image(to, &device)?;
                self.sink.open_special(to, self.watch)
            }
            _ => Ok(None),
        }
    }

    /// Call `make` for a file at `to`. Returns whether it was made; an existing file can be kept instead.
    fn make_at(
        &mut self,
        meta: &Meta,
        to: &Path,
        make: impl FnOnce(&mut Self, &Target<'_>, Sync) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let mut existing = self.sink.existing(to, Follow::No)?;
        if let Some(existing) = &existing {
            let is_kept = match self.options.clobber {
                Clobber::Replace | Clobber::KeepSame => false,
                Clobber::Keep => true,
                Clobber::KeepNewer => {
                    let time = self.sink.kept_time(meta.modified);
                    existing.kind != FileKind::Directory && existing.modified >= time
                }
            };
            if is_kept || !self.watch.may_replace(self.sink, to) {
                self.summary.skipped += 1;
                return Ok(false);
            }
        }
        existing.take_if(|existing| self.makes_way(to, existing));
        if let Some(existing) = &existing {
            self.refuse_to_replace(to, existing, meta)?;
            self.linked.note_replacement(to, meta.identity);
        }
        let temporary = temporary_name(to, &self.sink.mark_of_incomplete());
        let target = Target { to, temporary, is_taken: existing.is_some() };
        // A replacement is durable before the old file is removed, in case the power fails.
        let sync = if target.is_taken { self.options.sync } else { Sync::Never };
        make(self, &target, sync).map(|()| true)
    }

    /// As rsync: an empty directory makes way for a file.
    fn makes_way(&self, to: &Path, existing: &Meta) -> bool {
        existing.kind == FileKind::Directory
            && self.options.clobber == Clobber::KeepSame
            && self.sink.is_empty_directory(to).unwrap_or(false)
            && self.sink.remove_directory(to).is_ok()
    }

    /// A file replaces no directory, and no device or pipe either: the user may have wanted to write into it, also through a link such as
    /// `/dev/stdout`. In a tree, a device replaces a device.
    fn refuse_to_replace(&self, to: &Path, existing: &Meta, new: &Meta) -> Result<(), Error> {
        self.refuse_image(to, existing)?;
        let why = if existing.kind == FileKind::Directory {
            "it is a directory, and the source is not"
        } else if new.kind == FileKind::Regular && self.leads_to_special(to, existing) {
            "it is a device or a pipe"
        } else {
            return Ok(());
        };
        Err(cannot_be_replaced(self.sink.name_of(to), why))
    }

    /// The source can be in that image.
    fn refuse_image(&self, to: &Path, existing: &Meta) -> Result<(), Error> {
        if self.sink.is_image(existing) {
            return Err(own_image(self.sink.name_of(to), "not replaced"));
        }
        Ok(())
    }

    /// The image that is written changes while it is read.
    pub(crate) fn refuse_own_image(item: Item<'_>) -> Result<(), Error> {
        if item.source.is_image(item.meta) {
            return Err(own_image(item.source.name_of(item.path), "not copied"));
        }
        Ok(())
    }

    /// Whether `to` is a device or a pipe, or a link to one.
    fn leads_to_special(&self, to: &Path, existing: &Meta) -> bool {
        let followed = match existing.kind {
            FileKind::Symlink => self.sink.existing(to, Follow::Yes).unwrap_or_default(),
            _ => None,
        };
        is_special(followed.as_ref().unwrap_or(existing).kind)
    }

    /// Make a copy of anything but a directory. `sync`: whether its data is durable then.
    fn make(&mut self, item: Item<'_>, target: &Target<'_>, sync: Sync) -> Result<(), Error> {
        let meta = item.meta;
        let original = (meta.links > 1).then(|| self.linked.original(meta.identity)).flatten();
        if let Some(original) = original
            && target.is_taken
            && self.is_same_file(original, target.to)?
        {
            // `rename` between two names of one file does nothing, so a temporary link would stay.
            return Ok(());
        }
        if self.options.data == Data::Link && !self.is_same_file(item.path, target.to)? {
            make_and_rename(self.sink, target, |at| self.sink.make_hard_link(item.path, at))?;
            self.summary.others += 1;
            return Ok(());
        } else if self.options.data == Data::Link {
            return Ok(());
        }
        if meta.kind == FileKind::Regular && original.is_none() {
            Self::refuse_own_image(item)?;
            let reader = item.source.open(item.path, meta)?;
            return self.make_regular(&mut Content::File(item, &*reader), target, sync);
        }
        make_and_rename(self.sink, target, |at| {
            if let Some(original) = self.linked.original(meta.identity).filter(|_| meta.links > 1) {
                return self.sink.make_hard_link(original, at);
            }
            match meta.kind {
                FileKind::Symlink => self.sink.make_link(at, &item.source.link_target(item.path)?)?,
                _ => self.sink.make_node(at, meta)?,
            }
            self.finish_attributes(item, at, target.to)
        })?;
        self.summary.others += 1;
        Ok(())
    }

    /// Whether two paths of the sink name one file.
    fn is_same_file(&self, one: &Path, other: &Path) -> Result<bool, Error> {
        let identity = |path| Ok(self.sink.existing(path, Follow::No)?.map(|meta| meta.identity));
        let (one, other) = (identity(one)?, identity(other)?);
        Ok(one.is_some() && one == other)
    }

    fn make_regular(
        &mut self,
        content: &mut Content<'_>,
        target: &Target<'_>,
        sync: Sync,
    ) -> Result<(), Error> {
        let size = matches!(content, Content::File(..)).then(|| content.meta().size);
        let file = self.sink.create_new(target, size)?;
        self.copy_data(content, file.content(), sync)?;
        let lost = file.set_meta(&content.meta().safe(), &content.attributes()?)?;
        self.report_lost(content.meta(), lost, target.to);
        file.complete()
    }

    fn copy_data(
        &mut self,
        content: &mut Content<'_>,
        writer: &dyn WriteFile,
        sync: Sync,
    ) -> Result<(), Error> {
        let size = content.meta().size;
        let Copied { data_end, end, bytes } = match content {
            Content::File(item, reader) => {
                self.watch.begin(item.path, size);
                self.file_data.copy(*reader, writer, size, self.watch)?
            }
            Content::Stream { stream, name, .. } => {
                self.watch.begin(name, size);
                self.file_data.copy_stream(*stream, writer, self.watch)?
            }
        };
        if end > data_end {
            writer.set_size(end)?;
        }
        if sync == Sync::AtEnd {
            writer.sync()?;
        }
        self.summary.files += 1;
        self.summary.bytes += bytes;
        Ok(())
    }

    /// Set the attributes of the file `at`, which is renamed to `to` later.
    pub(crate) fn finish_attributes(&mut self, item: Item<'_>, at: &Path, to: &Path) -> Result<(), Error> {
        let lost = self.sink.set_meta(at, &item.meta.safe(), &item.source.attributes(item.path)?)?;
        self.report_lost(item.meta, lost, to);
        Ok(())
    }

    /// Flags of the copy at `to` are set by [`Self::set_flags`].
    pub(crate) fn note_flags(&mut self, item: Item<'_>, to: &Path) -> Result<(), Error> {
        let flags = item.source.flags(item.path)?;
        if !flags.is_empty() {
            self.flags.push((to.to_owned(), flags));
        }
        Ok(())
    }

    /// Set the flags of all copies.
    pub(crate) fn set_flags(&mut self) {
        for (path, flags) in std::mem::take(&mut self.flags) {
            if let Err(why) = self.sink.add_flags(&path, flags) {
                self.summary.attributes_lost += 1;
                let lost = LostAttribute { attribute: format!("flags {flags:?}"), why };
                self.watch.failed(lost.into_error(self.sink.name_of(&path)));
            }
        }
    }

    /// A lost attribute does not end the copy.
    pub(crate) fn report_lost(&mut self, meta: &Meta, lost: Vec<LostAttribute>, to: &Path) {
        let owner = meta.has_unknown_owner.then(|| LostAttribute {
            attribute: "owner".to_owned(),
            why: "this user namespace does not show it".to_owned(),
        });
        for attribute in owner.into_iter().chain(lost) {
            self.summary.attributes_lost += 1;
            self.watch.failed(attribute.into_error(self.sink.name_of(to)));
        }
    }
}

/// Call `make` with the temporary name, and rename the result.
pub(crate) fn make_and_rename<T>(
    sink: &dyn Sink,
    target: &Target<'_>,
    make: impl FnOnce(&Path) -> Result<T, Error>,
) -> Result<T, Error> {
    let temporary = &target.temporary;
    // A killed run can have left one.
    if sink.existing(temporary, Follow::No)?.is_some() {
        sink.remove(temporary)?;
    }
    let made = make(temporary).and_then(|made| sink.rename(temporary, target.to).map(|()| made));
    made.map_err(|error| {
        // The first error is reported. The temporary file may not exist.
        let _ = sink.remove(temporary);
        error.about(temporary, target.to)
    })
}

/// The name of an incomplete file: hidden, in the same directory.
pub(crate) fn temporary_name(path: &Path, mark: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let kept = name.len().min(NAME_BYTES_MAX - 1 - mark.len());
    let mut temporary = vec![b'.'];
    temporary.extend_from_slice(&name[..kept]);
    temporary.extend_from_slice(mark.as_bytes());
    path.with_file_name(OsString::from_vec(temporary))
}

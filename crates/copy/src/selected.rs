//! A source with a choice: files left out, links followed, one filesystem, another owner. And a sink that writes nothing.
//!
//! Where it sits: between a [`Copier`](crate::Copier) and the trees, so that the copy itself knows nothing of the choice.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use diorite::front_end::InodeFlags;
use diorite::{ErrorKind, FileKind, Timestamp};

use crate::tree::{
    Attributes, FileTree, Follow, LostAttribute, Meta, Names, NewFile, ReadFile, ReadStream, Sink, Source,
    Target, WriteFile,
};
use crate::{Error, Watch};

/// Whether a file is left out, by its path; the second argument says whether it is a directory.
pub type Exclude<'a> = dyn Fn(&Path, &dyn Fn() -> bool) -> bool + 'a;

/// The choice of a [`Selected`].
#[derive(Clone, Copy, Default)]
pub struct Selection<'a> {
    /// Whether the file at a path below the source is left out; a directory with everything in it.
    pub exclude: Option<&'a Exclude<'a>>,
    /// Symbolic links are followed.
    pub follow_links: bool,
    /// Directories on other filesystems are left empty.
    pub one_filesystem: bool,
    /// The owner of all copies.
    pub uid: Option<u32>,
    /// The group of all copies.
    pub gid: Option<u32>,
    /// File data is not read.
    pub without_data: bool,
}

/// A part of another source.
#[derive(Clone, Copy)]
pub struct Selected<'a> {
    source: &'a dyn Source,
    selection: Selection<'a>,
    /// The filesystem of the start.
    device: Option<u64>,
}

impl<'a> Selected<'a> {
    /// The selected part of the tree at `start`.
    pub fn new(source: &'a dyn Source, selection: Selection<'a>, start: &Path) -> Self {
        let start = selection.one_filesystem.then(|| source.meta(start, Follow::Yes).ok()).flatten();
        Self { source, selection, device: start.map(|meta| meta.identity.0) }
    }
}

impl FileTree for Selected<'_> {
    fn is_image(&self, meta: &Meta) -> bool {
        self.source.is_image(meta)
    }

    fn name_of(&self, path: &Path) -> String {
        self.source.name_of(path)
    }

    fn kept_time(&self, time: Timestamp) -> Timestamp {
        self.source.kept_time(time)
    }

    fn link_target(&self, path: &Path) -> Result<Vec<u8>, Error> {
        self.source.link_target(path)
    }
}

impl Source for Selected<'_> {
    fn meta(&self, path: &Path, follow: Follow) -> Result<Meta, Error> {
        let follow = if self.selection.follow_links { Follow::Yes } else { follow };
        let mut meta = self.source.meta(path, follow)?;
        meta.uid = self.selection.uid.unwrap_or(meta.uid);
        meta.gid = self.selection.gid.unwrap_or(meta.gid);
        meta.has_unknown_owner &= self.selection.uid.is_none() || self.selection.gid.is_none();
        Ok(meta)
    }

    fn may_repeat_directories(&self) -> bool {
        self.selection.follow_links || self.source.may_repeat_directories()
    }

    fn names(&self, path: &Path) -> Result<Names, Error> {
        if let Some(device) = self.device
            && self.source.meta(path, Follow::Yes)?.identity.0 != device
        {
            return Ok(Names::default());
        }
        let mut names = self.source.names(path)?;
        if let Some(exclude) = self.selection.exclude {
            names.names.retain(|name| {
                let entry = path.join(OsStr::from_bytes(name));
                let is_directory =
                    || self.meta(&entry, Follow::No).is_ok_and(|meta| meta.kind == FileKind::Directory);
                !exclude(&entry, &is_directory)
            });
        }
        Ok(names)
    }

    fn attributes(&self, path: &Path) -> Result<Attributes, Error> {
        self.source.attributes(path)
    }

    fn open(&self, path: &Path, meta: &Meta) -> Result<Box<dyn ReadFile>, Error> {
        if self.selection.without_data { Ok(Box::new(NoData)) } else { self.source.open(path, meta) }
    }

    fn open_stream(&self, path: &Path) -> Result<Box<dyn ReadStream>, Error> {
        self.source.open_stream(path)
    }
}

/// A file whose content is of no interest.
struct NoData;

impl ReadFile for NoData {
    fn read_at(&self, _: &mut [u8], _: u64) -> Result<usize, Error> {
        Ok(0)
    }

    fn size(&self) -> Result<u64, Error> {
        Ok(0)
    }

    fn next_data(&self, _: u64) -> Result<Option<(u64, u64)>, Error> {
        Ok(None)
    }
}

/// A sink that shows the files of another one, and writes nothing: for a rehearsal of a copy.
#[derive(Clone)]
pub struct Rehearsal<'a> {
    sink: &'a dyn Sink,
    /// Files that would be gone by now.
    removed: RefCell<HashSet<PathBuf>>,
    /// The directories that they were in.
    changed: HashSet<PathBuf>,
}

impl<'a> Rehearsal<'a> {
    /// A rehearsal of a copy into `sink`, after the files at `removed` were removed.
    pub fn new(sink: &'a dyn Sink, removed: impl IntoIterator<Item = PathBuf>) -> Self {
        let removed: HashSet<PathBuf> = removed.into_iter().collect();
        let changed = removed.iter().filter_map(|path| path.parent()).map(Path::to_owned).collect();
        Self { sink, removed: RefCell::new(removed), changed }
    }
}

impl FileTree for Rehearsal<'_> {
    fn is_image(&self, meta: &Meta) -> bool {
        self.sink.is_image(meta)
    }

    fn name_of(&self, path: &Path) -> String {
        self.sink.name_of(path)
    }

    fn kept_time(&self, time: Timestamp) -> Timestamp {
        self.sink.kept_time(time)
    }

    fn link_target(&self, path: &Path) -> Result<Vec<u8>, Error> {
        self.sink.link_target(path)
    }
}

impl Sink for Rehearsal<'_> {
    fn mark_of_incomplete(&self) -> String {
        self.sink.mark_of_incomplete()
    }

    fn existing(&self, path: &Path, follow: Follow) -> Result<Option<Meta>, Error> {
        if path.ancestors().any(|path| self.removed.borrow().contains(path)) {
            return Ok(None);
        }
        // Below a directory that was not made there is no file.
        let existing = self
            .sink
            .existing(path, follow)
            .or_else(|error| if error.kind() == Some(ErrorKind::NotFound) { Ok(None) } else { Err(error) })?;
        let has_changed = self.changed.contains(path);
        Ok(existing.map(|meta| {
            let modified = if has_changed { crate::host::now() } else { meta.modified };
            Meta { modified, ..meta }
        }))
    }

    fn may_fold_names(&self, directory: &Path) -> Result<bool, Error> {
        match self.existing(directory, Follow::Yes)? {
            Some(_) => self.sink.may_fold_names(directory),
            None => Ok(false),
        }
    }

    fn make_directory(&self, _: &Path) -> Result<(), Error> {
        Ok(())
    }

    fn make_link(&self, _: &Path, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }

    fn make_hard_link(&self, _: &Path, _: &Path) -> Result<(), Error> {
        Ok(())
    }

    fn make_node(&self, _: &Path, _: &Meta) -> Result<(), Error> {
        Ok(())
    }

    fn create_new(&self, _: &Target<'_>, _: Option<u64>) -> Result<Box<dyn NewFile>, Error> {
        Ok(Box::new(Nowhere))
    }

    fn open_special<'w>(
        &self,
        path: &Path,
        _: &'w dyn Watch,
    ) -> Result<Option<Box<dyn WriteFile + 'w>>, Error> {
        let is_special = |meta: Meta| !matches!(meta.kind, FileKind::Regular | FileKind::Directory);
        let special = self.sink.existing(path, Follow::Yes)?.is_some_and(is_special);
        Ok(special.then(|| Box::new(Nowhere) as _))
    }

    fn rename(&self, _: &Path, _: &Path) -> Result<(), Error> {
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        self.removed.borrow_mut().insert(path.to_owned());
        Ok(())
    }

    fn is_empty_directory(&self, path: &Path) -> Result<bool, Error> {
        self.sink.is_empty_directory(path)
    }

    fn remove_directory(&self, _: &Path) -> Result<(), Error> {
        Ok(())
    }

    fn set_meta(&self, _: &Path, _: &Meta, _: &Attributes) -> Result<Vec<LostAttribute>, Error> {
        Ok(Vec::new())
    }

    fn existing_attributes(&self, path: &Path) -> Result<Attributes, Error> {
        self.sink.existing_attributes(path)
    }

    fn takes_all_attributes(&self) -> bool {
        self.sink.takes_all_attributes()
    }

    fn add_flags(&self, _: &Path, _: InodeFlags) -> Result<(), String> {
        Ok(())
    }

    fn sync(&self, _: &Path) -> Result<(), Error> {
        Ok(())
    }
}

/// A new file of a rehearsal.
struct Nowhere;

impl WriteFile for Nowhere {
    fn write_at(&self, _: &[u8], _: u64) -> Result<(), Error> {
        Ok(())
    }

    fn set_size(&self, _: u64) -> Result<(), Error> {
        Ok(())
    }

    fn sync(&self) -> Result<(), Error> {
        Ok(())
    }
}

impl NewFile for Nowhere {
    fn content(&self) -> &dyn WriteFile {
        self
    }

    fn set_meta(&self, _: &Meta, _: &Attributes) -> Result<Vec<LostAttribute>, Error> {
        Ok(Vec::new())
    }

    fn complete(self: Box<Self>) -> Result<(), Error> {
        Ok(())
    }
}

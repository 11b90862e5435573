//! The two sides of a copy, as small traits.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use diorite::front_end::InodeFlags;
use diorite::{FileKind, Timestamp};

use crate::{Error, Watch};

/// The attributes of a file, without the extended ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Kind.
    pub kind: FileKind,
    /// Permission bits: 12 bits.
    pub permissions: u16,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The real user or group has no number in this user namespace.
    pub has_unknown_owner: bool,
    /// Size in bytes.
    pub size: u64,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of content.
    pub modified: Timestamp,
    /// Hard links.
    pub links: u64,
    /// Filesystem and inode number, the same for all names of one file.
    pub identity: (u64, u64),
    /// Major and minor number of a device node.
    pub device: (u32, u32),
}

impl Meta {
    /// A file with one name, whose content was read when it was changed last. It is on no filesystem yet.
    pub(crate) fn new(
        kind: FileKind,
        permissions: u16,
        (uid, gid): (u32, u32),
        size: u64,
        modified: Timestamp,
    ) -> Self {
        Self {
            kind,
            permissions,
            uid,
            gid,
            has_unknown_owner: false,
            size,
            accessed: modified,
            modified,
            links: 1,
            identity: (0, 0),
            device: (0, 0),
        }
    }

    /// The same without set-user-ID and set-group-ID if the owner is unknown: the bits would be for another user.
    pub(crate) fn safe(&self) -> Self {
        let kept = if self.has_unknown_owner { 0o1777 } else { 0o7777 };
        Self { permissions: self.permissions & kept, ..self.clone() }
    }
}

/// Extended attributes: names with their prefix, and values.
pub type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// The names in a directory.
#[derive(Debug, Default)]
pub struct Names {
    /// Those that can be read, sorted.
    pub names: Vec<Vec<u8>>,
    /// The damage that hides others, if there is any.
    pub damage: Option<Error>,
}

/// A tree of files.
pub trait FileTree {
    /// Whether this holds the image at the other end of the copy.
    fn is_image(&self, meta: &Meta) -> bool {
        let _ = meta;
        false
    }
    /// The name of a file in messages.
    fn name_of(&self, path: &Path) -> String;
    /// A time as the files of this tree keep it.
    fn kept_time(&self, time: Timestamp) -> Timestamp {
        time
    }
    /// The target of a symbolic link.
    fn link_target(&self, path: &Path) -> Result<Vec<u8>, Error>;
}

/// A tree that is read. Methods follow symbolic links only if they say so.
pub trait Source: FileTree {
    /// As `stat` or `lstat`, by `follow`.
    fn meta(&self, path: &Path, follow: Follow) -> Result<Meta, Error>;
    /// Whether a sound tree can show one directory in several places.
    fn may_repeat_directories(&self) -> bool {
        false
    }
    /// Names in a directory, without `.` and `..`, sorted.
    fn names(&self, path: &Path) -> Result<Names, Error>;
    /// Extended attributes, sorted by name.
    fn attributes(&self, path: &Path) -> Result<Attributes, Error>;
    /// Inode flags that the copy gets, too.
    fn flags(&self, path: &Path) -> Result<InodeFlags, Error> {
        let _ = path;
        Ok(InodeFlags::empty())
    }
    /// Open a regular file for reading; links are followed. Fails if another file than the one in `meta` has the name by now.
    fn open(&self, path: &Path, meta: &Meta) -> Result<Box<dyn ReadFile>, Error>;
    /// Open a pipe or a device for reading; links are followed.
    fn open_stream(&self, path: &Path) -> Result<Box<dyn ReadStream>, Error> {
        let why = "it is a device, a pipe or a socket in an image; use -r to copy it as such";
        Err(Error::not_copied(self.name_of(path), why))
    }
}

/// A file or directory of a source.
#[derive(Clone, Copy)]
pub(crate) struct Item<'s> {
    pub(crate) source: &'s dyn Source,
    pub(crate) path: &'s Path,
    pub(crate) meta: &'s Meta,
}

/// Directories that a walk entered. A damaged tree can have one below itself.
#[derive(Default)]
pub(crate) struct Entered(HashSet<(u64, u64)>);

impl Entered {
    /// The deepest level of a directory below the start of a walk.
    pub(crate) const DEPTH_MAX: usize = 2048;

    /// Enter a directory at a level. Rejects a tree without end.
    pub(crate) fn enter(&mut self, directory: Item<'_>, depth: usize) -> Result<(), Error> {
        let is_new = self.0.insert(directory.meta.identity) || directory.source.may_repeat_directories();
        let why = if !is_new {
            "it was found already under another name, so the tree is damaged"
        } else if depth >= Self::DEPTH_MAX {
            "directories are nested too deep"
        } else {
            return Ok(());
        };
        let name = directory.source.name_of(directory.path);
        Err(Error::Refused { name, what: "not entered", why: why.to_owned() })
    }
}

/// Whether a symbolic link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// The link itself.
    No,
    /// Its target.
    Yes,
}

/// As many symbolic links as Linux follows in a path.
pub(crate) const LINKS_MAX: u32 = 40;

/// The names in a path and its `..`, the first one last.
pub(crate) fn parts_reversed(path: &Path) -> Vec<&OsStr> {
    let is_part = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().rev().filter(is_part).map(Component::as_os_str).collect()
}

/// A file that is read.
pub trait ReadFile {
    /// Read; fewer bytes only at the end.
    fn read_at(&self, memory: &mut [u8], offset: u64) -> Result<usize, Error>;
    /// The current size. Other programs can change it.
    fn size(&self) -> Result<u64, Error>;
    /// The next data range at or after `offset`, as start and end; `None` if only a hole follows.
    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, Error>;
    /// The file in the library, if its data is transferred directly.
    fn in_library(&self) -> Option<&diorite::File> {
        None
    }
    /// The error of the library about this file.
    fn error_of_library(&self, what: &'static str, error: diorite::Error) -> Error {
        Error::Refused { name: "the file".to_owned(), what, why: error.to_string() }
    }
}

/// The data ranges of a file of `size` bytes.
pub(crate) fn data_ranges(file: &dyn ReadFile, size: u64) -> impl Iterator<Item = Result<Range<u64>, Error>> {
    let mut offset = 0;
    std::iter::from_fn(move || match if offset < size { file.next_data(offset) } else { Ok(None) } {
        Ok(Some((start, end))) if start < end.min(size) => {
            offset = end.min(size);
            Some(Ok(start..offset))
        }
        Ok(_) => None,
        Err(error) => {
            offset = size;
            Some(Err(error))
        }
    })
}

/// A pipe or a device that is read from front to back.
pub trait ReadStream {
    /// Read some bytes; 0 at the end. Stops waiting when `watch` is cancelled.
    fn read(&mut self, memory: &mut [u8], watch: &dyn Watch) -> Result<usize, Error>;
}

/// An attribute that could not be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostAttribute {
    /// An extended attribute with its name, an owner, or a time.
    pub attribute: String,
    /// Why it was not set.
    pub why: String,
}

impl LostAttribute {
    /// An extended attribute.
    pub fn extended(name: &[u8], why: String) -> Self {
        Self { attribute: format!("extended attribute {}", String::from_utf8_lossy(name)), why }
    }

    /// The error for the file `name`.
    pub fn into_error(self, name: String) -> Error {
        Error::AttributeLost { name, attribute: self.attribute, why: self.why }
    }
}

/// A tree that is written.
pub trait Sink: FileTree {
    /// The suffix of incomplete files. Concurrent writers have different ones.
    fn mark_of_incomplete(&self) -> String;
    /// The file at a path, if there is one.
    fn existing(&self, path: &Path, follow: Follow) -> Result<Option<Meta>, Error>;
    /// Whether two different names can mean one file in a directory that ignores case or normalises names.
    fn may_fold_names(&self, directory: &Path) -> Result<bool, Error>;
    /// Make a directory. Only its owner can use it until its attributes are set.
    fn make_directory(&self, path: &Path) -> Result<(), Error>;
    /// Make a symbolic link.
    fn make_link(&self, path: &Path, target: &[u8]) -> Result<(), Error>;
    /// Give a file of this tree another name.
    fn make_hard_link(&self, original: &Path, path: &Path) -> Result<(), Error>;
    /// Make a device node, pipe or socket.
    fn make_node(&self, path: &Path, meta: &Meta) -> Result<(), Error>;
    /// Make a regular file that gets the name of `target` when it is complete. `size` is its final size, if known.
    fn create_new(&self, target: &Target<'_>, size: Option<u64>) -> Result<Box<dyn NewFile>, Error>;
    /// Open a pipe or a device for writing; links are followed. `None` if this tree cannot write to one. Stops waiting for a reader when
    /// `watch` is cancelled.
    fn open_special<'w>(
        &self,
        path: &Path,
        watch: &'w dyn Watch,
    ) -> Result<Option<Box<dyn WriteFile + 'w>>, Error> {
        let _ = (path, watch);
        Ok(None)
    }
    /// Rename, replacing an existing file.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error>;
    /// Remove anything but a directory.
    fn remove(&self, path: &Path) -> Result<(), Error>;
    /// Whether a directory has no entries.
    fn is_empty_directory(&self, path: &Path) -> Result<bool, Error>;
    /// Remove an empty directory.
    fn remove_directory(&self, path: &Path) -> Result<(), Error>;
    /// Set owner, permissions, times and extended attributes of a new file. Returns the attributes that could not be set. All others are set,
    /// even if this fails.
    fn set_meta(
        &self,
        path: &Path,
        meta: &Meta,
        attributes: &Attributes,
    ) -> Result<Vec<LostAttribute>, Error>;
    /// The extended attributes of an existing file. A tree whose files are all new has none.
    fn existing_attributes(&self, path: &Path) -> Result<Attributes, Error> {
        let _ = path;
        Ok(Attributes::new())
    }
    /// Remove extended attributes of an existing file.
    fn remove_attributes(&self, path: &Path, names: &[Vec<u8>]) -> Result<(), Error> {
        let _ = (path, names);
        Ok(())
    }
    /// Whether this user can set any owner, and attributes of the system.
    fn takes_all_attributes(&self) -> bool {
        true
    }
    /// Add inode flags (`chattr`). The error is the reason as text.
    fn add_flags(&self, path: &Path, flags: InodeFlags) -> Result<(), String>;
    /// Sync the filesystem of `directory`.
    fn sync(&self, directory: &Path) -> Result<(), Error>;
    /// This sink as one that records archives, if it is one.
    fn recorder(&self) -> Option<&dyn Recorder> {
        None
    }
}

/// A sink that records where the data of an archive is, instead of copying it.
pub trait Recorder {
    /// Make a regular file of `size` bytes. Its data is in the archive, and holes are between the pieces.
    fn make_reference(&self, path: &Path, size: u64, pieces: &[Piece]) -> Result<(), Error>;
    /// As [`Sink::set_meta`], for a directory without an entry of its own.
    fn set_parent_meta(&self, path: &Path, meta: &Meta) -> Result<(), Error>;
    /// Record a hard link whose original is not in the archive. Returns whether it can be in a lower layer.
    fn link_to_lower_layer(&self, original: &Path, path: &Path) -> bool;
}

/// A range of data of a file in another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset in the file.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// Offset in the other file.
    pub from: u64,
}

impl Piece {
    /// The offset in the file where the piece ends.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.len
    }
}

/// A file that is written from front to back, perhaps by another thread.
pub trait WriteFile: Sync {
    /// Write all of `data`.
    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), Error>;
    /// Set the size. Growing makes a hole.
    fn set_size(&self, size: u64) -> Result<(), Error>;
    /// Make it durable.
    fn sync(&self) -> Result<(), Error>;
    /// The file in the library, if its data is transferred directly.
    fn in_library(&self) -> Option<&diorite::File> {
        None
    }
    /// The error of the library about this file.
    fn error_of_library(&self, what: &'static str, error: diorite::Error) -> Error {
        Error::Refused { name: "the file".to_owned(), what, why: error.to_string() }
    }
}

/// The name of a new file.
#[derive(Clone, Debug)]
pub struct Target<'p> {
    /// Its name when it is complete.
    pub to: &'p Path,
    /// Its name until then: hidden, in the same directory. A killed run can have left a file there.
    pub temporary: PathBuf,
    /// Whether it replaces an existing file.
    pub is_taken: bool,
}

/// An incomplete file. Dropping it removes it.
pub trait NewFile {
    /// The file to write the content to.
    fn content(&self) -> &dyn WriteFile;
    /// As [`Sink::set_meta`].
    fn set_meta(&self, meta: &Meta, attributes: &Attributes) -> Result<Vec<LostAttribute>, Error>;
    /// Give it its name. Replaces an existing file.
    fn complete(self: Box<Self>) -> Result<(), Error>;
}

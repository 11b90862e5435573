//! The two sides of a copy, as small traits.

use std::path::{Path, PathBuf};

use diorite::layout::InodeFlags;
use diorite::{FileKind, Timestamp};

use crate::{Error, Watch};

/// What is kept of a file besides its content and extended attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits: 12 bits.
    pub permissions: u16,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// User and group stand for numbers that are not known here, as in a user namespace that does not map them.
    pub has_unknown_owner: bool,
    /// Size in bytes.
    pub size: u64,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of content.
    pub modified: Timestamp,
    /// Hard links.
    pub links: u64,
    /// Filesystem and inode: equal for names of one file, and different for all others that are open at the time.
    pub identity: (u64, u64),
    /// Major and minor number of a device node.
    pub device: (u32, u32),
}

impl Meta {
    /// The same without set-user-ID and set-group-ID where the owner is unknown: they would be for another one.
    pub(crate) fn safe(&self) -> Self {
        let kept = if self.has_unknown_owner { 0o1777 } else { 0o7777 };
        Self { permissions: self.permissions & kept, ..self.clone() }
    }
}

/// Extended attributes: names with their prefix, and values.
pub type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// A tree that is read. Symbolic links are not followed, except where a method says so.
pub trait Source {
    /// Whether this holds the image that the copy writes.
    fn is_image(&self, meta: &Meta) -> bool {
        let _ = meta;
        false
    }
    /// What it is called in messages.
    fn name_of(&self, path: &Path) -> String;
    /// What `lstat` returns, or `stat` where `follow` says so.
    fn meta(&self, path: &Path, follow: Follow) -> Result<Meta, Error>;
    /// Whether one directory may soundly be met in several places.
    fn may_repeat_directories(&self) -> bool {
        false
    }
    /// Names in a directory, without `.` and `..`, sorted.
    fn names(&self, path: &Path) -> Result<Vec<Vec<u8>>, Error>;
    /// Where a symbolic link points.
    fn link_target(&self, path: &Path) -> Result<Vec<u8>, Error>;
    /// Extended attributes, sorted by name.
    fn attributes(&self, path: &Path) -> Result<Attributes, Error>;
    /// Open a regular file (links followed) for reading. It is the one that `meta` describes: another that has its name by now is not opened.
    fn open(&self, path: &Path, meta: &Meta) -> Result<Box<dyn ReadFile>, Error>;
    /// Open a pipe or a device (links followed), to read what comes out of it.
    fn open_stream(&self, path: &Path) -> Result<Box<dyn ReadStream>, Error> {
        Err(Error::NotRegular { name: self.name_of(path) })
    }
}

/// Whether a symbolic link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// The link itself.
    No,
    /// What it points to.
    Yes,
}

/// A file that is read.
pub trait ReadFile {
    /// Read; fewer bytes only at the end.
    fn read_at(&self, memory: &mut [u8], offset: u64) -> Result<usize, Error>;
    /// Its size now: others may change it meanwhile.
    fn size(&self) -> Result<u64, Error>;
    /// The next data range at or after `offset`, as start and end; `None` if only a hole follows.
    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, Error>;
}

/// What comes out of a pipe or a device, from front to back.
pub trait ReadStream {
    /// Read some bytes; 0 at the end. Waits for them no longer than `watch` lets the copy go on.
    fn read(&mut self, memory: &mut [u8], watch: &dyn Watch) -> Result<usize, Error>;
}

/// An attribute that the destination did not take, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostAttribute {
    /// What it is: an extended attribute with its name, or a time.
    pub attribute: String,
    /// Why it was not set.
    pub why: String,
}

impl LostAttribute {
    /// An extended attribute.
    pub fn extended(name: &[u8], why: String) -> Self {
        Self { attribute: format!("extended attribute {}", String::from_utf8_lossy(name)), why }
    }

    /// The error that says so of the file `name`.
    pub fn into_error(self, name: String) -> Error {
        Error::AttributeLost { name, attribute: self.attribute, why: self.why }
    }
}

/// A tree that is written.
pub trait Sink {
    /// Whether this holds an image that the copy reads.
    fn is_image(&self, meta: &Meta) -> bool {
        let _ = meta;
        false
    }
    /// What it is called in messages.
    fn name_of(&self, path: &Path) -> String;
    /// Ends the names of files that are not complete; differs from that of others who may write here at the same time.
    fn mark_of_incomplete(&self) -> String;
    /// What is at a path, if anything.
    fn existing(&self, path: &Path, follow: Follow) -> Result<Option<Meta>, Error>;
    /// Whether two names that differ may mean one file in a directory, because it ignores case or normalises names.
    fn may_fold_names(&self, directory: &Path) -> Result<bool, Error>;
    /// Where a symbolic link of this tree points.
    fn link_at(&self, path: &Path) -> Result<Vec<u8>, Error>;
    /// Make a directory that only its owner may use until its attributes are set.
    fn make_directory(&self, path: &Path) -> Result<(), Error>;
    /// Make a symbolic link.
    fn make_link(&self, path: &Path, target: &[u8]) -> Result<(), Error>;
    /// Give a file of this tree another name.
    fn make_hard_link(&self, original: &Path, path: &Path) -> Result<(), Error>;
    /// Make a device node, pipe or socket.
    fn make_node(&self, path: &Path, meta: &Meta) -> Result<(), Error>;
    /// Make a regular file that must not exist.
    fn create(&self, path: &Path, size: u64) -> Result<Box<dyn WriteFile>, Error>;
    /// Make a regular file that is to have the name of `place` when it is complete. `size`: how long it will be, if that is known.
    fn create_new(&self, place: &Place<'_>, size: Option<u64>) -> Result<Box<dyn NewFile>, Error>;
    /// Open a pipe or a device (links followed) for writing; `None` where content cannot be written to one. Waits for a reader, and
    /// writes, no longer than `watch` lets the copy go on.
    fn open_special<'w>(
        &self,
        path: &Path,
        watch: &'w dyn Watch,
    ) -> Result<Option<Box<dyn WriteFile + 'w>>, Error> {
        let _ = (path, watch);
        Ok(None)
    }
    /// Rename, replacing what is there.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error>;
    /// Remove anything but a directory.
    fn remove(&self, path: &Path) -> Result<(), Error>;
    /// Set owner, permissions, times and, where this user may, extended attributes of what was just made. Returns the attributes that
    /// could not be set; everything else is set all the same, also where this fails.
    fn set_meta(
        &self,
        path: &Path,
        meta: &Meta,
        attributes: &Attributes,
    ) -> Result<Vec<LostAttribute>, Error>;
    /// Set flags of an inode (`chattr`) beside those that it has. Returns why, if that cannot be.
    fn add_flags(&self, path: &Path, flags: InodeFlags) -> Result<(), String>;
    /// Make everything durable that was written to the filesystem of `directory`.
    fn sync(&self, directory: &Path) -> Result<(), Error>;
}

/// A file that is written from front to back, perhaps by another thread than the one that made it.
pub trait WriteFile: Sync {
    /// Write all of `data`.
    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), Error>;
    /// Set the size, which makes a hole at the end if that is needed.
    fn set_size(&self, size: u64) -> Result<(), Error>;
    /// Make it durable.
    fn sync(&self) -> Result<(), Error>;
}

/// Where something new is to be.
#[derive(Clone, Debug)]
pub struct Place<'p> {
    /// The name that it gets.
    pub to: &'p Path,
    /// A name that it may have until it is complete: hidden, in the same directory. A killed run may have left something there.
    pub temporary: PathBuf,
    /// Whether something has the name, and is replaced.
    pub is_taken: bool,
}

/// A file that is not complete: dropped, it is gone.
pub trait NewFile {
    /// Where its content goes.
    fn content(&self) -> &dyn WriteFile;
    /// As [`Sink::set_meta`].
    fn set_meta(&self, meta: &Meta, attributes: &Attributes) -> Result<Vec<LostAttribute>, Error>;
    /// Give it its name, in place of what has it.
    fn complete(self: Box<Self>) -> Result<(), Error>;
}

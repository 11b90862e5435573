//! A tree of the host.
//!
//! Data goes through the page cache of the host.
#![allow(clippy::disallowed_methods, reason = "the files of the host are the other side of a copy")]

mod attributes;
mod file;
mod path;
mod stream;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use diorite::front_end::InodeFlags;
use diorite::{FileKind, Timestamp};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::host_direct::{PastCache, Purpose};
use crate::tree::{
    Attributes, FileTree, Follow, LostAttribute, Meta, Names, NewFile, ReadFile, ReadStream, Sink, Source,
    Target, WriteFile,
};
use crate::user_namespace::UnknownOwners;
use crate::{Error, Watch};
use attributes::{Subject, cannot_see};
use file::{NewHostFile, create_at, path_of_open};
use path::reachable;
use stream::SpecialFile;

pub(crate) use file::HostFile;
pub use stream::StandardInput;
pub(crate) use stream::{HostStream, now};

/// The host's filesystem as one side of a copy.
#[derive(Clone, Debug)]
pub struct HostTree {
    is_root: bool,
    /// Whether [`path_of_open`] works.
    shows_open_files: bool,
    unknown_owners: UnknownOwners,
    /// Files and devices that hold the images of this copy.
    images: Vec<Meta>,
    past_cache: PastCache,
}

impl Default for HostTree {
    fn default() -> Self {
        Self::new()
    }
}

impl HostTree {
    /// With the rights of this process.
    pub fn new() -> Self {
        Self {
            is_root: rustix::process::geteuid().is_root(),
            shows_open_files: Path::new("/proc/self/fd").exists(),
            unknown_owners: UnknownOwners::of_process(),
            images: Vec::new(),
            past_cache: PastCache::Never,
        }
    }

    /// The same, with the files and devices of the image on the other side. A copy neither copies nor replaces them.
    #[must_use]
    pub fn beside_images(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.images.extend(paths.into_iter().filter_map(|path| look(&path, Follow::Yes).ok()));
        self
    }

    /// The same, with these files read and written past the page cache of the host.
    #[must_use]
    pub fn past_cache(self, past_cache: PastCache) -> Self {
        Self { past_cache, ..self }
    }

    /// Open a file that is open already in the library, if its data goes past the cache.
    fn in_library(
        &self,
        file: &fs::File,
        path: &Path,
        size: u64,
        purpose: Purpose,
    ) -> Result<Option<diorite::File>, Error> {
        if !self.shows_open_files {
            return Ok(None);
        }
        self.past_cache.open(&path_of_open(file), path, size, purpose)
    }

    fn holds_image(&self, meta: &Meta) -> bool {
        let is_device = meta.kind == FileKind::BlockDevice;
        let is_it = |image: &Meta| {
            image.identity == meta.identity
                || is_device && image.kind == meta.kind && image.device == meta.device
        };
        self.images.iter().any(is_it)
    }
}

fn meta_of(metadata: &fs::Metadata) -> Meta {
    let kind = metadata.file_type();
    let kind = match () {
        () if kind.is_dir() => FileKind::Directory,
        () if kind.is_symlink() => FileKind::Symlink,
        () if kind.is_block_device() => FileKind::BlockDevice,
        () if kind.is_char_device() => FileKind::CharacterDevice,
        () if kind.is_fifo() => FileKind::Fifo,
        () if kind.is_socket() => FileKind::Socket,
        () => FileKind::Regular,
    };
    let time = |seconds, nanoseconds: i64| Timestamp { seconds, nanoseconds: nanoseconds as u32 };
    Meta {
        kind,
        permissions: (metadata.mode() & 0o7777) as u16,
        uid: metadata.uid(),
        gid: metadata.gid(),
        has_unknown_owner: false,
        size: metadata.len(),
        accessed: time(metadata.atime(), metadata.atime_nsec()),
        modified: time(metadata.mtime(), metadata.mtime_nsec()),
        links: metadata.nlink(),
        identity: (metadata.dev(), metadata.ino()),
        device: (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev())),
    }
}

/// Call `act` with a path that system calls take. An error says that `path` cannot be `what`.
fn at<T>(path: &Path, what: &'static str, act: impl FnOnce(&Path) -> io::Result<T>) -> Result<T, Error> {
    reachable(path).and_then(|at| act(&at)).map_err(|error| Error::host(path, what, error))
}

fn look(path: &Path, follow: Follow) -> io::Result<Meta> {
    let path = reachable(path)?;
    let metadata = match follow {
        Follow::Yes => fs::metadata(&path),
        Follow::No => fs::symlink_metadata(&path),
    };
    metadata.map(|metadata| meta_of(&metadata))
}

/// The largest list and value of extended attributes in Linux (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const ATTRIBUTE_BYTES_MAX: usize = 65536;

/// The bytes that `read` writes into its argument.
fn bytes_of(read: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut few = [0; 1024];
    match read(&mut few) {
        Err(Errno::RANGE) => {
            let mut bytes = vec![0; ATTRIBUTE_BYTES_MAX];
            let len = read(&mut bytes)?;
            bytes.truncate(len);
            Ok(bytes)
        }
        len => Ok(few[..len?].to_vec()),
    }
}

impl FileTree for HostTree {
    fn is_image(&self, meta: &Meta) -> bool {
        self.holds_image(meta)
    }

    fn name_of(&self, path: &Path) -> String {
        path.display().to_string()
    }

    fn link_target(&self, path: &Path) -> Result<Vec<u8>, Error> {
        Ok(OsString::from(at(path, "read the link", |at| fs::read_link(at))?).into_vec())
    }
}

impl Source for HostTree {
    /// A bind mount shows a directory again. The length of a path ends a loop.
    fn may_repeat_directories(&self) -> bool {
        true
    }

    fn meta(&self, path: &Path, follow: Follow) -> Result<Meta, Error> {
        let mut meta = look(path, follow).map_err(|error| Error::host(path, "read", error))?;
        meta.has_unknown_owner = self.unknown_owners.has(meta.uid, meta.gid);
        Ok(meta)
    }

    fn names(&self, path: &Path) -> Result<Names, Error> {
        let name = |entry: io::Result<fs::DirEntry>| entry.map(|entry| entry.file_name().into_vec());
        let mut names: Vec<_> = at(path, "list", |at| fs::read_dir(at)?.map(name).collect())?;
        names.sort();
        Ok(Names { names, damage: None })
    }

    fn attributes(&self, path: &Path) -> Result<Attributes, Error> {
        let at = reachable(path).map_err(|error| Error::host(path, "list the attributes", error))?;
        let names = match bytes_of(|buffer| rustix::fs::llistxattr(&*at, buffer)) {
            Ok(names) => names,
            Err(errno) if cannot_see(errno) => return Ok(Vec::new()),
            Err(errno) => return Err(Error::host(path, "list the attributes", errno)),
        };
        let mut attributes = Vec::new();
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            match bytes_of(|buffer| rustix::fs::lgetxattr(&*at, OsStr::from_bytes(name), buffer)) {
                Ok(value) => attributes.push((name.to_vec(), value)),
                Err(errno) if errno == Errno::NODATA || cannot_see(errno) => {}
                Err(errno) => return Err(Error::host(path, "read an extended attribute", errno)),
            }
        }
        attributes.sort();
        Ok(attributes)
    }

    /// The owner of a file can replace it by a link to a file that only this user can read. The copy would then belong to that owner.
    fn open(&self, path: &Path, meta: &Meta) -> Result<Box<dyn ReadFile>, Error> {
        let failed = |error| Error::host(path, "open", error);
        // Does not block if it is a pipe by now.
        let flags = OFlags::NONBLOCK.union(OFlags::NOCTTY).bits() as i32;
        let at = reachable(path).map_err(failed)?;
        let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(at).map_err(failed)?;
        let opened = meta_of(&file.metadata().map_err(failed)?);
        if (opened.identity, opened.kind) != (meta.identity, meta.kind) {
            return Err(Error::not_copied(
                path.display().to_string(),
                "another file has this name now; copy it again",
            ));
        }
        let library = self.in_library(&file, path, opened.size, Purpose::Read)?;
        Ok(Box::new(HostFile { file, path: path.to_owned(), library }))
    }

    fn open_stream(&self, path: &Path) -> Result<Box<dyn ReadStream>, Error> {
        Ok(Box::new(HostStream::open(path)?))
    }
}

impl Sink for HostTree {
    fn mark_of_incomplete(&self) -> String {
        format!(".diorite-{}", std::process::id())
    }

    fn existing(&self, path: &Path, follow: Follow) -> Result<Option<Meta>, Error> {
        match look(path, follow) {
            Ok(meta) => Ok(Some(meta)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::host(path, "look up", error)),
        }
    }

    /// No system call says whether a directory folds names.
    fn may_fold_names(&self, _: &Path) -> Result<bool, Error> {
        Ok(true)
    }

    fn make_directory(&self, path: &Path) -> Result<(), Error> {
        at(path, "make the directory", |at| fs::DirBuilder::new().mode(0o700).create(at))
    }

    fn make_link(&self, path: &Path, target: &[u8]) -> Result<(), Error> {
        at(path, "make the link", |at| std::os::unix::fs::symlink(OsStr::from_bytes(target), at))
    }

    fn make_hard_link(&self, original: &Path, path: &Path) -> Result<(), Error> {
        at(path, "make the link", |at| fs::hard_link(reachable(original)?, at))
    }

    fn make_node(&self, path: &Path, meta: &Meta) -> Result<(), Error> {
        let kind = match meta.kind {
            FileKind::BlockDevice => FileType::BlockDevice,
            FileKind::CharacterDevice => FileType::CharacterDevice,
            FileKind::Fifo => FileType::Fifo,
            FileKind::Socket => FileType::Socket,
            FileKind::Regular | FileKind::Directory | FileKind::Symlink => {
                return Err(Error::host(path, "make the node", Errno::INVAL));
            }
        };
        let device = rustix::fs::makedev(meta.device.0, meta.device.1);
        let mode = Mode::from_raw_mode(0o600);
        at(path, "make the node", |at| Ok(rustix::fs::mknodat(CWD, at, kind, mode, device)?))
    }

    /// A file without a name (`O_TMPFILE`), if the filesystem has them: a killed process leaves nothing.
    fn create_new(&self, target: &Target<'_>, size: Option<u64>) -> Result<Box<dyn NewFile>, Error> {
        let directory = target.to.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        let directory = reachable(directory).map_err(|error| Error::host(target.to, "create", error))?;
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let unnamed =
            self.shows_open_files.then(|| rustix::fs::open(&*directory, flags, Mode::from_raw_mode(0o600)));
        let (file, name) = match unnamed {
            Some(Ok(file)) => (file.into(), None),
            _ => (create_at(&target.temporary)?, Some(target.temporary.clone())),
        };
        let library = self.in_library(&file, target.to, size.unwrap_or(0), Purpose::Write)?;
        let file = HostFile { file, path: target.to.to_owned(), library };
        Ok(Box::new(NewHostFile { file, name, temporary: target.temporary.clone(), is_root: self.is_root }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        at(to, "rename to", |to| fs::rename(reachable(from)?, to))
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        at(path, "remove", |at| fs::remove_file(at))
    }

    fn is_empty_directory(&self, path: &Path) -> Result<bool, Error> {
        at(path, "list", |at| fs::read_dir(at).map(|mut entries| entries.next().is_none()))
    }

    fn remove_directory(&self, path: &Path) -> Result<(), Error> {
        at(path, "remove the directory", |at| fs::remove_dir(at))
    }

    fn open_special<'w>(
        &self,
        path: &Path,
        watch: &'w dyn Watch,
    ) -> Result<Option<Box<dyn WriteFile + 'w>>, Error> {
        Ok(Some(Box::new(SpecialFile::open(path, watch)?)))
    }

    fn set_meta(
        &self,
        path: &Path,
        meta: &Meta,
        attributes: &Attributes,
    ) -> Result<Vec<LostAttribute>, Error> {
        let at = reachable(path).map_err(|error| Error::host(path, "set the attributes", error))?;
        Subject::At(&at).set_all(path, meta, attributes, self.is_root)
    }

    fn existing_attributes(&self, path: &Path) -> Result<Attributes, Error> {
        self.attributes(path)
    }

    fn remove_attributes(&self, path: &Path, names: &[Vec<u8>]) -> Result<(), Error> {
        at(path, "remove an extended attribute", |at| {
            names.iter().try_for_each(|name| match rustix::fs::lremovexattr(at, OsStr::from_bytes(name)) {
                Err(errno) if errno != Errno::NODATA => Err(errno.into()),
                _ => Ok(()),
            })
        })
    }

    fn takes_all_attributes(&self) -> bool {
        self.is_root
    }

    fn add_flags(&self, _: &Path, _: InodeFlags) -> Result<(), String> {
        Err("flags are set in images only".to_owned())
    }

    fn sync(&self, directory: &Path) -> Result<(), Error> {
        // The parent of a plain name is the empty path.
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        let error = |error: io::Error| Error::host(directory, "sync", error);
        match reachable(directory).and_then(fs::File::open) {
            Ok(open) => rustix::fs::syncfs(&open).map_err(|errno| error(errno.into())),
            // A directory that cannot be opened for reading: sync all filesystems.
            Err(denied) if denied.kind() == io::ErrorKind::PermissionDenied => {
                rustix::fs::sync();
                Ok(())
            }
            Err(other) => Err(error(other)),
        }
    }
}

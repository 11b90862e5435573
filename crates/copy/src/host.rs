//! A tree of the host.
//!
//! Data goes through the page cache of the host.
#![allow(clippy::disallowed_methods, reason = "the files of the host are the other side of a copy")]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use diorite::front_end::InodeFlags;
use diorite::{FileKind, Timestamp};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::at_depth::write_end;
use crate::host_attributes::{Subject, cannot_see};
use crate::host_direct::{PastCache, Purpose};
use crate::host_path::reachable;
use crate::host_stream::{HostStream, SpecialFile};
use crate::tree::{
    Attributes, FileTree, Follow, LostAttribute, Meta, Names, NewFile, ReadFile, ReadStream, Sink, Source,
    Target, WriteFile,
};
use crate::user_namespace::UnknownOwners;
use crate::{Error, Watch};

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
        let read = || fs::read_link(reachable(path)?);
        let target = read().map_err(|error| Error::host(path, "read the link", error))?;
        Ok(OsString::from(target).into_vec())
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
        let list = || -> io::Result<Vec<Vec<u8>>> {
            fs::read_dir(reachable(path)?)?
                .map(|entry| entry.map(|entry| entry.file_name().into_vec()))
                .collect()
        };
        let mut names = list().map_err(|error| Error::host(path, "list", error))?;
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
        let make = || fs::DirBuilder::new().mode(0o700).create(reachable(path)?);
        make().map_err(|error| Error::host(path, "make the directory", error))
    }

    fn make_link(&self, path: &Path, target: &[u8]) -> Result<(), Error> {
        let make = || std::os::unix::fs::symlink(OsStr::from_bytes(target), reachable(path)?);
        make().map_err(|error| Error::host(path, "make the link", error))
    }

    fn make_hard_link(&self, original: &Path, path: &Path) -> Result<(), Error> {
        let make = || fs::hard_link(reachable(original)?, reachable(path)?);
        make().map_err(|error| Error::host(path, "make the link", error))
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
        let at = reachable(path).map_err(|error| Error::host(path, "make the node", error))?;
        rustix::fs::mknodat(CWD, &*at, kind, Mode::from_raw_mode(0o600), device)
            .map_err(|errno| Error::host(path, "make the node", errno))
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
        let rename = || fs::rename(reachable(from)?, reachable(to)?);
        rename().map_err(|error| Error::host(to, "rename to", error))
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        let remove = || fs::remove_file(reachable(path)?);
        remove().map_err(|error| Error::host(path, "remove", error))
    }

    fn remove_directory(&self, path: &Path) -> Result<(), Error> {
        let remove = || fs::remove_dir(reachable(path)?);
        remove().map_err(|error| Error::host(path, "remove the directory", error))
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
        let failed = |error: io::Error| Error::host(path, "remove an extended attribute", error);
        let at = reachable(path).map_err(failed)?;
        for name in names {
            match rustix::fs::lremovexattr(&*at, OsStr::from_bytes(name)) {
                Ok(()) | Err(Errno::NODATA) => {}
                Err(errno) => return Err(failed(errno.into())),
            }
        }
        Ok(())
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

/// An open file of the host.
pub(crate) struct HostFile {
    file: fs::File,
    path: PathBuf,
    /// The same file, if its data goes past the page cache.
    library: Option<diorite::File>,
}

impl HostFile {
    /// An open file; errors name `path`.
    pub(crate) fn new(file: fs::File, path: PathBuf) -> Self {
        Self { file, path, library: None }
    }

    fn error(&self, what: &'static str) -> impl FnOnce(diorite::Error) -> Error {
        let path = self.path.clone();
        move |source| Error::HostDirect { path, what, source: Box::new(source) }
    }
}

impl ReadFile for HostFile {
    fn read_at(&self, memory: &mut [u8], offset: u64) -> Result<usize, Error> {
        if let Some(file) = &self.library {
            return file.read_at(memory, offset).map_err(self.error("read"));
        }
        let mut done = 0;
        while done < memory.len() {
            match self.file.read_at(&mut memory[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::host(&self.path, "read", error)),
            }
        }
        Ok(done)
    }

    fn size(&self) -> Result<u64, Error> {
        let metadata = self.file.metadata().map_err(|error| Error::host(&self.path, "read", error))?;
        Ok(metadata.len())
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, Error> {
        let start = match rustix::fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // A filesystem without holes, or a file without a size.
            Err(Errno::INVAL | Errno::SPIPE | Errno::OPNOTSUPP) => return Ok(Some((offset, u64::MAX))),
            Err(errno) => return Err(Error::host(&self.path, "look for data in", errno)),
        };
        let end = rustix::fs::seek(&self.file, SeekFrom::Hole(start)).unwrap_or(u64::MAX);
        Ok(Some((start, end)))
    }

    fn in_library(&self) -> Option<&diorite::File> {
        self.library.as_ref()
    }

    fn error_of_library(&self, what: &'static str, error: diorite::Error) -> Error {
        self.error(what)(error)
    }
}

impl WriteFile for HostFile {
    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        if let Some(file) = &self.library {
            return write_end(file, data, offset).map_err(self.error("write"));
        }
        self.file.write_all_at(data, offset).map_err(|error| Error::host(&self.path, "write", error))
    }

    fn set_size(&self, size: u64) -> Result<(), Error> {
        if let Some(file) = &self.library {
            return file.set_len(size).map_err(self.error("set the size of"));
        }
        self.file.set_len(size).map_err(|error| Error::host(&self.path, "set the size of", error))
    }

    fn sync(&self) -> Result<(), Error> {
        if let Some(file) = &self.library {
            return file.sync_all().map_err(self.error("sync"));
        }
        self.file.sync_all().map_err(|error| Error::host(&self.path, "sync", error))
    }

    fn in_library(&self) -> Option<&diorite::File> {
        self.library.as_ref()
    }

    fn error_of_library(&self, what: &'static str, error: diorite::Error) -> Error {
        self.error(what)(error)
    }
}

/// The path of an open file of this process.
fn path_of_open(file: &fs::File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Make a file under a temporary name. A killed process with the same number can have left one.
fn create_at(temporary: &Path) -> Result<fs::File, Error> {
    let open = |at: &Path| fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(at);
    let opened = reachable(temporary).and_then(|at| match open(&at) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(&at).and_then(|()| open(&at))
        }
        opened => opened,
    });
    opened.map_err(|error| Error::host(temporary, "create", error))
}

/// An incomplete file.
struct NewHostFile {
    file: HostFile,
    /// Its temporary name, if it has one.
    name: Option<PathBuf>,
    temporary: PathBuf,
    is_root: bool,
}

impl NewHostFile {
    fn link(&self, name: &Path) -> io::Result<()> {
        let name = reachable(name)?;
        Ok(rustix::fs::linkat(CWD, path_of_open(&self.file.file), CWD, &*name, AtFlags::SYMLINK_FOLLOW)?)
    }
}

impl NewFile for NewHostFile {
    fn content(&self) -> &dyn WriteFile {
        &self.file
    }

    fn set_meta(&self, meta: &Meta, attributes: &Attributes) -> Result<Vec<LostAttribute>, Error> {
        Subject::Open(&self.file.file).set_all(&self.file.path, meta, attributes, self.is_root)
    }

    fn complete(mut self: Box<Self>) -> Result<(), Error> {
        let to = self.file.path.clone();
        let error = |error| Error::host(&to, "make the name", error);
        let exists = |linked: &io::Result<()>| {
            linked.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists)
        };
        if self.name.is_none() {
            let linked = self.link(&to);
            // A link replaces nothing.
            if !exists(&linked) {
                return linked.map_err(error);
            }
            let mut linked = self.link(&self.temporary);
            if exists(&linked) {
                // A killed process with the same number has left it.
                let _ = reachable(&self.temporary).and_then(fs::remove_file);
                linked = self.link(&self.temporary);
            }
            linked.map_err(error)?;
            self.name = Some(self.temporary.clone());
        }
        let rename = || fs::rename(reachable(&self.temporary)?, reachable(&to)?);
        rename().map_err(|error| Error::host(&to, "rename to", error))?;
        self.name = None;
        Ok(())
    }
}

impl Drop for NewHostFile {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // The caller reports why it is incomplete.
            let _ = reachable(name).and_then(fs::remove_file);
        }
    }
}

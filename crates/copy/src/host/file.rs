//! Open and new files of the host.
#![allow(clippy::disallowed_methods, reason = "the files of the host are the other side of a copy")]

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, SeekFrom};
use rustix::io::Errno;

use super::attributes::Subject;
use super::path::reachable;
use crate::Error;
use crate::at_depth::write_end;
use crate::tree::{Attributes, LostAttribute, Meta, NewFile, ReadFile, WriteFile};

/// An open file of the host.
pub(crate) struct HostFile {
    pub(super) file: fs::File,
    pub(super) path: PathBuf,
    /// The same file, if its data goes past the page cache.
    pub(super) library: Option<diorite::File>,
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
pub(super) fn path_of_open(file: &fs::File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Make a file under a temporary name. A killed process with the same number can have left one.
pub(super) fn create_at(temporary: &Path) -> Result<fs::File, Error> {
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
pub(super) struct NewHostFile {
    pub(super) file: HostFile,
    /// Its temporary name, if it has one.
    pub(super) name: Option<PathBuf>,
    pub(super) temporary: PathBuf,
    pub(super) is_root: bool,
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

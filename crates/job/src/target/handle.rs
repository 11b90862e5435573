//! An open file of a job: of this library, or of the host's kernel for buffered files of the host.

use std::fs::File as KernelFile;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use diorite::{Error, File};
use rustix::fs::{Advice, FallocateFlags};

/// An open file.
#[derive(Debug)]
pub enum Handle {
    /// Of the library: on a volume, a device, or a host file with direct I/O.
    Stack(File),
    /// Of the host, through the kernel's page cache.
    Kernel(KernelFile),
}

fn os(what: &'static str, source: impl Into<io::Error>) -> Error {
    Error::Os { what, source: source.into() }
}

impl Handle {
    pub(crate) fn read_at(&self, memory: &mut [u8], offset: u64) -> Result<usize, Error> {
        match self {
            Self::Stack(file) => file.read_at(memory, offset),
            Self::Kernel(file) => file.read_at(memory, offset).map_err(|source| os("cannot read", source)),
        }
    }

    pub(crate) fn write_at(&self, memory: &[u8], offset: u64) -> Result<usize, Error> {
        match self {
            Self::Stack(file) => file.write_at(memory, offset),
            Self::Kernel(file) => file.write_at(memory, offset).map_err(|source| os("cannot write", source)),
        }
    }

    pub(crate) fn sync_all(&self) -> Result<(), Error> {
        match self {
            Self::Stack(file) => file.sync_all(),
            Self::Kernel(file) => file.sync_all().map_err(|source| os("cannot sync", source)),
        }
    }

    pub(crate) fn sync_data(&self) -> Result<(), Error> {
        match self {
            Self::Stack(file) => file.sync_data(),
            Self::Kernel(file) => file.sync_data().map_err(|source| os("cannot sync", source)),
        }
    }

    /// Drop cached pages of the file.
    pub(crate) fn drop_cached(&self) -> Result<(), Error> {
        match self {
            Self::Stack(file) => file.drop_cached(0, u64::MAX),
            // Devices without a page cache return these errors.
            Self::Kernel(file) => match rustix::fs::fadvise(file, 0, None, Advice::DontNeed) {
                Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::SPIPE) => Ok(()),
                Err(source) => Err(os("cannot drop cached pages", source)),
            },
        }
    }

    /// Set size and blocks of a file before it is written. A file that has the size is not changed.
    pub(crate) fn preallocate(&self, len: u64) -> Result<(), Error> {
        match self {
            Self::Stack(file) if file.size() >= len => Ok(()),
            Self::Stack(file) => match file.allocate(0, len) {
                // A file without extents has no unwritten blocks.
                Err(error) if error.kind() == diorite::ErrorKind::Unsupported => file.set_len(len),
                other => other,
            },
            Self::Kernel(file) => preallocate_in_kernel(file, len),
        }
    }
}

fn preallocate_in_kernel(file: &KernelFile, len: u64) -> Result<(), Error> {
    let metadata = file.metadata().map_err(|source| os("cannot examine the file", source))?;
    if !metadata.is_file() || metadata.len() >= len {
        return Ok(());
    }
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len) {
        Err(rustix::io::Errno::OPNOTSUPP) => {
            file.set_len(len).map_err(|source| os("cannot set the size", source))
        }
        other => other.map_err(|source| os("cannot allocate blocks", source)),
    }
}

/// A file of the host through its page cache.
pub(crate) fn open_in_kernel(path: &Path, write: bool, create: bool) -> Result<Handle, Error> {
    let opened = std::fs::OpenOptions::new().read(true).write(write).create(create).open(path);
    opened.map(Handle::Kernel).map_err(|source| os("cannot open", source))
}

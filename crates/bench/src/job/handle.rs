//! An open file of a job: of this library's stack, or of the host's kernel where the job is to go through its page cache.

use std::fs::File as KernelFile;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use diorite::{Error, File};
use rustix::fs::{Advice, FallocateFlags};

use super::spec::Preallocate;

/// An open file.
#[derive(Debug)]
pub enum Handle {
    /// Of the library: a volume, a device, a host file past its page cache.
    Stack(File),
    /// Of the host, through the kernel's page cache.
    Kernel(KernelFile),
}

fn os(what: &'static str, source: impl Into<io::Error>) -> Error {
    Error::Os { what, source: source.into() }
}

impl Handle {
    pub(super) fn read_at(&self, memory: &mut [u8], offset: u64) -> Result<usize, Error> {
        match self {
            Self::Stack(file) => file.read_at(memory, offset),
            Self::Kernel(file) => file.read_at(memory, offset).map_err(|source| os("cannot read", source)),
        }
    }

    pub(super) fn write_at(&self, memory: &[u8], offset: u64) -> Result<usize, Error> {
        match self {
            Self::Stack(file) => file.write_at(memory, offset),
            Self::Kernel(file) => file.write_at(memory, offset).map_err(|source| os("cannot write", source)),
        }
    }

    pub(super) fn punch_hole(&self, offset: u64, len: u64) -> Result<(), Error> {
        match self {
            Self::Stack(file) => file.punch_hole(offset, len),
            Self::Kernel(file) => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(file, flags, offset, len)
                    .map_err(|source| os("cannot punch a hole", source))
            }
        }
    }

    pub(super) fn sync_all(&self) -> Result<(), Error> {
        match self {
            Self::Stack(file) => file.sync_all(),
            Self::Kernel(file) => file.sync_all().map_err(|source| os("cannot sync", source)),
        }
    }

    pub(super) fn sync_data(&self) -> Result<(), Error> {
        match self {
            Self::Stack(file) => file.sync_data(),
            Self::Kernel(file) => file.sync_data().map_err(|source| os("cannot sync", source)),
        }
    }

    /// Forget what is cached of the file.
    pub(super) fn drop_cached(&self) -> Result<(), Error> {
        match self {
            Self::Stack(file) => file.drop_cached(0, u64::MAX),
            // Devices without pages refuse it.
            Self::Kernel(file) => match rustix::fs::fadvise(file, 0, None, Advice::DontNeed) {
                Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::SPIPE) => Ok(()),
                Err(source) => Err(os("cannot drop cached pages", source)),
            },
        }
    }

    /// Give a file that is to be written its blocks, or its size alone. What has the size keeps what it has.
    pub(super) fn preallocate(&self, len: u64, how: Preallocate) -> Result<(), Error> {
        match (self, how) {
            (_, Preallocate::None) => Ok(()),
            (Self::Stack(file), _) if file.size() >= len => Ok(()),
            (Self::Stack(file), Preallocate::Size) => match file.allocate(0, len) {
                // Without extents there are no blocks that are not written.
                Err(error) if error.kind() == diorite::ErrorKind::Unsupported => file.set_len(len),
                other => other,
            },
            (Self::Stack(file), Preallocate::KeepSize) => file.allocate_keep_size(0, len),
            (Self::Stack(file), Preallocate::Truncate) => file.set_len(len),
            (Self::Kernel(file), how) => preallocate_in_kernel(file, len, how),
        }
    }
}

fn preallocate_in_kernel(file: &KernelFile, len: u64, how: Preallocate) -> Result<(), Error> {
    let metadata = file.metadata().map_err(|source| os("cannot examine the file", source))?;
    if !metadata.is_file() || metadata.len() >= len {
        return Ok(());
    }
    let flags = match how {
        Preallocate::KeepSize => FallocateFlags::KEEP_SIZE,
        _ => FallocateFlags::empty(),
    };
    if how != Preallocate::Truncate {
        match rustix::fs::fallocate(file, flags, 0, len) {
            Err(rustix::io::Errno::OPNOTSUPP) => {}
            other => return other.map_err(|source| os("cannot allocate blocks", source)),
        }
    }
    file.set_len(len).map_err(|source| os("cannot set the size", source))
}

/// A file of the host through its page cache.
pub(super) fn open_in_kernel(path: &Path, write: bool, create: bool) -> Result<Handle, Error> {
    let opened = std::fs::OpenOptions::new().read(true).write(write).create(create).open(path);
    opened.map(Handle::Kernel).map_err(|source| os("cannot open", source))
}

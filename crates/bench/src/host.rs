//! Files of the host's filesystem, which is the measured peer. Only this module moves data of the host.
//!
//! Interface: [`HostFile`] reads and writes whole ranges, through the host's page cache or with `O_DIRECT`;
//! [`TemporaryFile`] removes its file when it is dropped.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, FallocateFlags, Mode, OFlags};

use crate::error::Error;

/// Whether I/O uses a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileIo {
    /// Through the cache of the host or of Diorite.
    Buffered,
    /// Between the disk and the caller's memory: offset, length and memory must be aligned.
    Direct,
}

/// The file at the start of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The file of an earlier test.
    Existing,
    /// A new file.
    New,
}

/// An open file of the tests, on the host or in an image.
pub trait WorkFile: Send + Sync {
    /// Read at `offset`; fewer bytes only at the end of the file.
    fn read_at(&self, memory: &mut [u8], offset: u64) -> Result<usize, Error>;

    /// Write all of `memory` at `offset`.
    fn write_all_at(&self, memory: &[u8], offset: u64) -> Result<(), Error>;

    /// Make written data durable (`fsync`).
    fn sync(&self) -> Result<(), Error>;
}

/// An open file of the host.
#[derive(Debug)]
pub struct HostFile {
    path: PathBuf,
    fd: OwnedFd,
}

impl HostFile {
    /// Open `path` for reading and writing.
    pub fn open(path: &Path, io: FileIo, create: Start) -> Result<Self, Error> {
        let mut flags = OFlags::RDWR | OFlags::CLOEXEC;
        if io == FileIo::Direct {
            flags |= OFlags::DIRECT;
        }
        let what = match create {
            Start::Existing => "open",
            Start::New => {
                flags |= OFlags::CREATE | OFlags::EXCL;
                "create"
            }
        };
        let what = if io == FileIo::Direct { "open with O_DIRECT" } else { what };
        let fd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH)
            .map_err(|errno| Error::host(path, what, errno))?;
        Ok(Self { path: path.to_owned(), fd })
    }

    /// Drop the host's clean cached pages of the file.
    pub fn forget_cached(&self) -> Result<(), Error> {
        rustix::fs::fadvise(&self.fd, 0, None, Advice::DontNeed)
            .map_err(|errno| Error::host(&self.path, "drop the cache of", errno))
    }

    /// Allocate blocks for `len` bytes. A filesystem without preallocation is no error, because writes follow.
    pub fn preallocate(&self, len: u64) -> Result<(), Error> {
        match rustix::fs::fallocate(&self.fd, FallocateFlags::empty(), 0, len) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(Error::host(&self.path, "preallocate", errno)),
        }
    }
}

impl WorkFile for HostFile {
    fn read_at(&self, memory: &mut [u8], offset: u64) -> Result<usize, Error> {
        let mut done = 0;
        while done < memory.len() {
            match rustix::io::pread(&self.fd, &mut memory[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(Error::host(&self.path, "read", errno)),
            }
        }
        Ok(done)
    }

    fn write_all_at(&self, memory: &[u8], offset: u64) -> Result<(), Error> {
        let mut done = 0;
        while done < memory.len() {
            match rustix::io::pwrite(&self.fd, &memory[done..], offset + done as u64) {
                Ok(0) => return Err(Error::host(&self.path, "write", rustix::io::Errno::NOSPC)),
                Ok(count) => done += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(Error::host(&self.path, "write", errno)),
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), Error> {
        rustix::fs::fsync(&self.fd).map_err(|errno| Error::host(&self.path, "sync", errno))
    }
}

/// Remove a file of the host, if it exists.
pub fn remove_file(path: &Path) -> Result<(), Error> {
    match rustix::fs::unlink(path) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(errno) => Err(Error::host(path, "remove", errno)),
    }
}

/// Sync the filesystem of `directory`.
pub(crate) fn sync_filesystem(directory: &Path) -> Result<(), Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(directory, flags, Mode::empty())
        .and_then(rustix::fs::syncfs)
        .map_err(|errno| Error::host(directory, "sync the filesystem of", errno))
}

/// Free bytes of the filesystem of `directory` for an unprivileged user.
pub fn free_bytes(directory: &Path) -> Result<u64, Error> {
    let stat = rustix::fs::statvfs(directory)
        .map_err(|errno| Error::host(directory, "get its free space", errno))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The text of a small file of the system, such as those in `/proc`.
pub(crate) fn read_text(path: &str) -> io::Result<String> {
    std::fs::read_to_string(path)
}

/// A file that is removed when this is dropped.
#[derive(Debug)]
pub struct TemporaryFile {
    path: PathBuf,
}

impl TemporaryFile {
    /// The file `name` in `directory`, which need not exist yet. A file of a killed run is removed.
    pub fn new(directory: &Path, name: &OsStr) -> Result<Self, Error> {
        let path = directory.join(name);
        remove_file(&path)?;
        Ok(Self { path })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // A destructor cannot report an error.
        let _ = remove_file(&self.path);
    }
}

//! The kind of a path: a file, a block device, or neither.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Stat};

use crate::error::{DIRECTORY, OpenError, os_error};

/// Kinds that a device can be opened on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    BlockDevice,
}

impl Kind {
    /// From the type of the file.
    pub(crate) fn of(path: &Path, stat: &Stat) -> Result<Self, OpenError> {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => return Ok(Self::File),
            FileType::BlockDevice => return Ok(Self::BlockDevice),
            FileType::Directory => DIRECTORY,
            FileType::CharacterDevice => "a character device",
            FileType::Fifo => "a fifo",
            FileType::Socket => "a socket",
            _ => "an unknown kind of file",
        };
        Err(OpenError::NotADevice { path: path.to_owned(), kind })
    }

    /// From the open file. An earlier check of the path may have seen another file.
    pub(crate) fn of_open(path: &Path, fd: &OwnedFd) -> Result<Self, OpenError> {
        let stat = rustix::fs::fstat(fd).map_err(os_error(path, "examine"))?;
        Self::of(path, &stat)
    }
}

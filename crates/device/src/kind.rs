//! What a path names: something that has sectors, or not.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Stat};

use crate::error::{DIRECTORY, OpenError, os_error};

/// What a device can be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    BlockDevice,
}

impl Kind {
    /// By what the system says of it; what it is instead, if it has no sectors.
    pub(crate) fn of(path: &Path, stat: &Stat) -> Result<Self, OpenError> {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => return Ok(Self::File),
            FileType::BlockDevice => return Ok(Self::BlockDevice),
            FileType::Directory => DIRECTORY,
            FileType::CharacterDevice => "a character device",
            FileType::Fifo => "a fifo",
            FileType::Socket => "a socket",
            _ => "something without sectors",
        };
        Err(OpenError::NotADevice { path: path.to_owned(), kind })
    }

    /// Of the file that was opened at `path`; an earlier check may have seen another file.
    pub(crate) fn of_open(path: &Path, fd: &OwnedFd) -> Result<Self, OpenError> {
        let stat = rustix::fs::fstat(fd).map_err(os_error(path, "examine"))?;
        Self::of(path, &stat)
    }
}

//! One file that a process opens several times, with one device.
//!
//! Where it sits: before the device exists. The caller opens the file ([`SharedOpen`]), looks for the device of its [`FileIdentity`], and then
//! makes one ([`FileDevice::of_shared`](crate::FileDevice::of_shared)) or joins it ([`FileDevice::join`](crate::FileDevice::join)). Locks of
//! two opens would exclude each other, also in one process.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FileType, Stat};

use super::open_or_make;
use crate::error::{OpenError, os_error};
use crate::options::OpenOptions;

/// The device and inode number of a file: the same by every name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
}

/// A file that is open, without a lock and without a device. A file that this open has created is removed if it does not become a device.
#[derive(Debug)]
pub struct SharedOpen {
    pub(super) path: PathBuf,
    pub(super) options: OpenOptions,
    pub(super) fd: OwnedFd,
    pub(super) made: bool,
}

impl SharedOpen {
    /// Open or create the file.
    ///
    /// # Errors
    /// As [`FileDevice::open`](crate::FileDevice::open), apart from locks and direct I/O.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let (fd, made) = open_or_make(path, options)?;
        Ok(Self { path: path.to_owned(), options: options.clone(), fd, made })
    }

    /// Which file it is; none for a block device, of which each open has a device of its own.
    ///
    /// # Errors
    /// The error of the system.
    pub fn identity(&self) -> Result<Option<FileIdentity>, OpenError> {
        let stat = rustix::fs::fstat(&self.fd).map_err(os_error(&self.path, "examine"))?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        Ok(is_file.then_some(FileIdentity { device: stat.st_dev, inode: stat.st_ino }))
    }
}

/// What the host records of the content of a file: size, time of modification, time of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion {
    /// The size in bytes.
    pub size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileVersion {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }

    /// Whether the times are older than `age`. A younger file may change again without a change of its times: a host's clock has ticks, of
    /// up to two seconds (FAT).
    pub fn is_older_than(&self, age: Duration) -> bool {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let limit = now.tv_sec - i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
        self.changed.0 < limit && self.modified.0 < limit
    }
}

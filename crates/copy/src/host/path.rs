//! Paths of the host that are longer than a system call accepts.
//!
//! Where it sits: below `mod.rs`. A short path is used unchanged. The directories of a long one are opened part by part, and the rest is
//! reached through `/proc/self/fd`.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

/// The longest path of a call, with the zero at its end (`PATH_MAX`).
const PATH_BYTES_MAX: usize = 4096;
/// The longest part of a longer path, which leaves space for the number of a directory.
const PART_BYTES_MAX: usize = PATH_BYTES_MAX - 64;

/// A path that system calls take.
#[derive(Debug)]
pub(crate) struct Reachable<'p> {
    path: Cow<'p, Path>,
    /// The directory that it begins in.
    _directory: Option<OwnedFd>,
}

impl Deref for Reachable<'_> {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl AsRef<Path> for Reachable<'_> {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

/// The same path, as system calls take it.
pub(crate) fn reachable(path: &Path) -> io::Result<Reachable<'_>> {
    let mut rest = path.as_os_str().as_bytes();
    if rest.len() < PATH_BYTES_MAX {
        return Ok(Reachable { path: Cow::Borrowed(path), _directory: None });
    }
    let mut directory: Option<OwnedFd> = None;
    while rest.len() > PART_BYTES_MAX {
        let end = rest[..PART_BYTES_MAX].iter().rposition(|byte| *byte == b'/');
        let end = end.filter(|end| *end > 0).ok_or(Errno::NAMETOOLONG)?;
        let part = OsStr::from_bytes(&rest[..end]);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        directory = Some(match &directory {
            None => rustix::fs::openat(CWD, part, flags, Mode::empty())?,
            Some(above) => rustix::fs::openat(above, part, flags, Mode::empty())?,
        });
        rest = &rest[end + 1..];
    }
    let mut path = PathBuf::from("/proc/self/fd");
    path.extend(directory.iter().map(|directory| directory.as_raw_fd().to_string()));
    path.push(OsStr::from_bytes(rest));
    Ok(Reachable { path: Cow::Owned(path), _directory: directory })
}

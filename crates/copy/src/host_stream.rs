//! Pipes and devices of the host: what comes out of one, and what is written into one.
//!
//! Where it sits: beside `host.rs`, which has the regular files.
#![allow(clippy::disallowed_methods, reason = "the files of the host are the other side of a copy")]

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use diorite::{FileKind, Timestamp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::tree::{Meta, ReadStream, WriteFile};
use crate::{Error, Watch};

/// How long a read waits before it asks whether the copy goes on.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Zeros that are written at once where the source has a hole.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// What a file gets whose content has no permissions of its own.
const PERMISSIONS: u16 = 0o644;

/// The time now.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() }
}

/// A pipe or a device that is read.
#[derive(Debug)]
pub(crate) struct HostStream {
    file: fs::File,
    path: PathBuf,
}

impl HostStream {
    /// Does not wait for a pipe's writer; the first read does.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = fs::OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.union(OFlags::NOCTTY).bits() as i32)
            .open(path)
            .map_err(|error| Error::host(path, "open", error))?;
        Ok(Self { file, path: path.to_owned() })
    }
}

impl ReadStream for HostStream {
    fn read(&mut self, memory: &mut [u8], watch: &dyn Watch) -> Result<usize, Error> {
        let error = |path: &Path, error: io::Error| Error::host(path, "read", error);
        loop {
            if watch.is_cancelled() {
                return Err(Error::Interrupted);
            }
            match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&WAIT)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(errno) => return Err(error(&self.path, errno.into())),
            }
            match self.file.read(memory) {
                Ok(count) => return Ok(count),
                Err(again)
                    if matches!(again.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Err(failed) => return Err(error(&self.path, failed)),
            }
        }
    }
}

/// The standard input of this process, as the content of a file that belongs to this user.
#[derive(Debug)]
pub struct StandardInput(HostStream);

impl StandardInput {
    /// What messages call it.
    pub const NAME: &str = "standard input";

    /// From where it stands.
    pub fn new() -> Result<Self, Error> {
        let path = Path::new(Self::NAME);
        let owned: OwnedFd =
            rustix::io::dup(rustix::stdio::stdin()).map_err(|errno| Error::host(path, "open", errno))?;
        Ok(Self(HostStream { file: owned.into(), path: path.to_owned() }))
    }

    /// What is kept of a file with this content.
    pub fn meta() -> Meta {
        Meta {
            kind: FileKind::Regular,
            permissions: PERMISSIONS,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            size: 0,
            accessed: now(),
            modified: now(),
            links: 1,
            identity: (0, 0),
            device: (0, 0),
        }
    }
}

impl ReadStream for StandardInput {
    fn read(&mut self, memory: &mut [u8], watch: &dyn Watch) -> Result<usize, Error> {
        self.0.read(memory, watch)
    }
}

/// A pipe or a device that is written, from front to back.
pub(crate) struct SpecialFile {
    file: Mutex<(fs::File, u64)>,
    path: PathBuf,
}

impl SpecialFile {
    /// Waits for a pipe's reader.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = fs::OpenOptions::new().write(true).open(path);
        let file = file.map_err(|error| Error::host(path, "open", error))?;
        Ok(Self { file: Mutex::new((file, 0)), path: path.to_owned() })
    }

    /// Write `data` at `offset`, which is not before what was written last; zeros in between.
    fn put(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut held = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, position) = &mut *held;
        while *position < offset {
            let len = (offset - *position).min(ZEROS.len() as u64);
            file.write_all(&ZEROS[..len as usize])?;
            *position += len;
        }
        file.write_all(data)?;
        *position += data.len() as u64;
        Ok(())
    }
}

impl WriteFile for SpecialFile {
    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        self.put(data, offset).map_err(|error| Error::host(&self.path, "write", error))
    }

    fn set_size(&self, size: u64) -> Result<(), Error> {
        self.put(&[], size).map_err(|error| Error::host(&self.path, "write", error))
    }

    fn sync(&self) -> Result<(), Error> {
        let held = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        match held.0.sync_all() {
            // A pipe has nothing to sync.
            Err(error) if error.raw_os_error() != Some(Errno::INVAL.raw_os_error()) => {
                Err(Error::host(&self.path, "sync", error))
            }
            _ => Ok(()),
        }
    }
}

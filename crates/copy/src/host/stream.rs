//! Pipes and devices of the host, read and written as streams.
//!
//! Where it sits: beside `mod.rs`, which has the regular files.
#![allow(clippy::disallowed_methods, reason = "the files of the host are the other side of a copy")]

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use diorite::{FileKind, Timestamp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use crate::tree::{Meta, ReadStream, WriteFile};
use crate::{Error, Watch};

/// The time that a read waits before it checks whether the copy is cancelled.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Time between attempts to open a pipe without a reader.
const READER_WAIT: Duration = Duration::from_millis(50);
/// Zeros for holes of the source.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// Permissions of a file that is made of a stream.
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
    /// Does not wait for a writer of the pipe; the first read does.
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
    /// Its name in messages.
    pub const NAME: &str = "standard input";

    /// From its current position.
    ///
    /// # Errors
    /// This process was started without one (`<&-`).
    pub fn new() -> Result<Self, Error> {
        let path = Path::new(Self::NAME);
        if is_placeholder(rustix::stdio::stdin()) {
            return Err(Error::host(path, "open", io::Error::other("it is closed")));
        }
        let owned: OwnedFd =
            rustix::io::dup(rustix::stdio::stdin()).map_err(|errno| Error::host(path, "open", errno))?;
        Ok(Self(HostStream { file: owned.into(), path: path.to_owned() }))
    }

    /// The file and the position in it, if this is a regular file.
    pub(crate) fn regular_file(&self) -> Option<(fs::File, u64)> {
        let file = self.0.file.try_clone().ok()?;
        let is_file = file.metadata().is_ok_and(|found| found.is_file());
        let position = rustix::fs::tell(&file).ok()?;
        is_file.then_some((file, position))
    }

    /// The attributes of a file with this content.
    pub fn meta() -> Meta {
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Meta::new(FileKind::Regular, PERMISSIONS, owner, 0, now())
    }
}

/// Whether a descriptor was closed when this process was started: the standard library puts `/dev/null` in place of it before
/// `main`, open for reading and writing. A shell's `< /dev/null` is open for reading only.
fn is_placeholder(descriptor: BorrowedFd<'_>) -> bool {
    let is_open_for_both = rustix::fs::fcntl_getfl(descriptor)
        .is_ok_and(|flags| flags.intersection(OFlags::RWMODE) == OFlags::RDWR);
    let null = rustix::fs::stat("/dev/null");
    let is_null = rustix::fs::fstat(descriptor).is_ok_and(|stat| {
        null.is_ok_and(|null| {
            FileType::from_raw_mode(stat.st_mode).is_char_device() && stat.st_rdev == null.st_rdev
        })
    });
    is_open_for_both && is_null
}

impl ReadStream for StandardInput {
    fn read(&mut self, memory: &mut [u8], watch: &dyn Watch) -> Result<usize, Error> {
        self.0.read(memory, watch)
    }
}

/// A pipe or a device that is written from front to back.
pub(crate) struct SpecialFile<'a> {
    file: Mutex<(fs::File, u64)>,
    path: PathBuf,
    watch: &'a dyn Watch,
}

impl<'a> SpecialFile<'a> {
    /// Waits for a reader of the pipe until `watch` is cancelled.
    pub(crate) fn open(path: &Path, watch: &'a dyn Watch) -> Result<Self, Error> {
        let mut options = fs::OpenOptions::new();
        options.write(true).custom_flags(OFlags::NONBLOCK.union(OFlags::NOCTTY).bits() as i32);
        let file = loop {
            match options.open(path) {
                // A pipe without a reader. Only repeated attempts can be cancelled.
                Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) && is_fifo(path) => {
                    if watch.is_cancelled() {
                        return Err(Error::Interrupted);
                    }
                    std::thread::sleep(READER_WAIT);
                }
                opened => break opened.map_err(|error| Error::host(path, "open", error))?,
            }
        };
        Ok(Self { file: Mutex::new((file, 0)), path: path.to_owned(), watch })
    }

    /// Write `data` at `offset`, which must not be before the end of the last write. The gap becomes zeros.
    fn put(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        let mut held = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, position) = &mut *held;
        while *position < offset {
            let len = (offset - *position).min(ZEROS.len() as u64);
            self.write_all(file, &ZEROS[..len as usize])?;
            *position += len;
        }
        self.write_all(file, data)?;
        *position += data.len() as u64;
        Ok(())
    }

    fn write_all(&self, file: &mut fs::File, mut data: &[u8]) -> Result<(), Error> {
        let error = |error: io::Error| Error::host(&self.path, "write", error);
        while !data.is_empty() {
            if self.watch.is_cancelled() {
                return Err(Error::Interrupted);
            }
            match poll(&mut [PollFd::new(&*file, PollFlags::OUT)], Some(&WAIT)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(errno) => return Err(error(errno.into())),
            }
            match file.write(data) {
                Ok(0) => return Err(error(io::ErrorKind::WriteZero.into())),
                Ok(count) => data = &data[count..],
                Err(again)
                    if matches!(again.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Err(failed) => return Err(error(failed)),
            }
        }
        Ok(())
    }
}

fn is_fifo(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.file_type().is_fifo())
}

impl WriteFile for SpecialFile<'_> {
    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        self.put(data, offset)
    }

    fn set_size(&self, size: u64) -> Result<(), Error> {
        self.put(&[], size)
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

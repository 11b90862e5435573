//! A file of the host's filesystem, with this library's page cache in place of the host's.
//!
//! The mapping is the identity up to the end of the file. The host manages holes and allocation. A write after the
//! end extends the file in whole logical blocks, and its commit truncates the file to its exact size.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use diorite_block::{Bio, BlockDevice, Op, Process, Sector};
use diorite_device::{Create, FileDevice, Growth, OpenError};

use crate::cache::engine::{Engine, EngineOptions};
use crate::content::Content;
use crate::error::AtPath;
use crate::handle::file::FileOwner;
use crate::handle::options::Opening;
use crate::handle::raw::{OwnedContent, device_attributes};
use crate::store::map::{MapBlocks, Mapping, ReservationToken, Reserved, ReservedRun, SyncKind, WriteCommit};
use crate::{Attributes, DirectIo, Error, File, OpenOptions, Result};
use diorite_block::sync::{Mutex, Rank};

/// `EOPNOTSUPP`.
const UNSUPPORTED: i32 = 95;

/// A file of the host's filesystem as a [`File`], with this library's page cache in place of the host's, or past both. Opened with
/// [`HostFile::options`].
///
/// One handle at a time: cached pages do not show writes of another program, or of another open of the same file.
///
/// ```no_run
/// use diorite::{DirectIo, HostFile};
///
/// # fn main() -> diorite::Result<()> {
/// let file = HostFile::options().read(true).write(true).create(true).direct(DirectIo::Required).open("pages.db")?;
/// let page = file.buffer(4096)?;
/// file.write_all_at(&page, 0)?;
/// file.sync_data()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HostFile;

impl HostFile {
    /// Options to set before opening a file.
    pub fn options() -> OpenOptions<Self> {
        OpenOptions::of(Self, DirectIo::Off)
    }

    pub(crate) fn open_with(path: &Path, options: &Opening) -> Result<File> {
        options.check().at_path(path)?;
        let mut device_options = options.device_options();
        if options.create_new {
            device_options = device_options.create(Create::NewSized(0));
        } else if options.create {
            device_options = device_options.create(Create::Sized(0));
        }
        let device = match FileDevice::open(path, &device_options.growth(Growth::Free)) {
            Err(OpenError::NotADevice { kind: "a directory", .. }) => {
                let is_directory = std::io::Error::from_raw_os_error(21);
                return Err(os("cannot open it as a file", is_directory)).at_path(path);
            }
            opened => opened?,
        };
        if options.truncate && !device.is_block_device() {
            device.set_file_size(0).map_err(|source| os("cannot truncate the file", source)).at_path(path)?;
        }
        Self::with_device(device, path, options).at_path(path)
    }

    fn with_device(device: Arc<FileDevice>, path: &Path, options: &Opening) -> Result<File> {
        let engine = Engine::new(&EngineOptions::default())?;
        let size = device.file_size().map_err(|source| os("cannot get the size", source))?;
        let shared: Arc<dyn BlockDevice> = device.clone();
        // Changes from before the open may not be durable.
        let length =
            Arc::new(Mutex::ranked(Rank::HostLength, Length { size, changes: 1, ..Length::default() }));
        let map = HostMap { device, shared, length, can_write: options.can_write() };
        let content = Content::new(Box::new(map), engine)?;
        let owner = HostOwner { owned: OwnedContent::new(&content), path: path.to_owned() };
        Ok(File::new(content, Box::new(owner), options.clone(), Some(path.to_owned())))
    }
}

fn os(what: &'static str, source: std::io::Error) -> Error {
    Error::Os { what, source }
}

#[derive(Debug)]
struct HostMap {
    device: Arc<FileDevice>,
    /// The same.
    shared: Arc<dyn BlockDevice>,
    length: Arc<Mutex<Length>>,
    can_write: bool,
}

/// The size of the file. Transfers are of whole logical blocks, so the file is longer than its recorded size while
/// one reaches past that. Transfers in flight are not truncated.
///
/// A forked child knows the size of the moment of the fork. Its parent may have made the file longer since, so it sets no size.
///
/// Locking: held while the host sets the size, so that no transfer begins in between.
#[derive(Debug, Default)]
struct Length {
    /// The recorded size.
    size: u64,
    /// Ends of the transfers in flight that reach past it.
    in_flight: Vec<u64>,
    /// Number of the last change of the size, and of the last that a sync has covered.
    changes: u64,
    durable: u64,
    process: Process,
}

impl Length {
    /// Whether this process may set the size.
    fn check_process(&self) -> Result<()> {
        if self.process.is_current() { Ok(()) } else { Err(diorite_ext::Error::Forked.into()) }
    }

    /// Set the size of the file to the recorded size, or the end of the transfers in flight.
    fn settle(&mut self, device: &FileDevice) -> Result<()> {
        if !self.process.is_current() {
            return Ok(());
        }
        let reach = self.in_flight.iter().copied().fold(self.size, u64::max);
        let actual = device.file_size().map_err(|source| os("cannot get the size", source))?;
        if (self.size..=reach).contains(&actual) {
            return Ok(());
        }
        self.changes += 1;
        device.set_file_size(reach).map_err(|source| os("cannot set the size", source))
    }

    fn ended(&mut self, end: u64) {
        let at = self.in_flight.iter().position(|other| *other == end);
        self.in_flight.swap_remove(at.expect("a transfer ends once"));
    }
}

/// A transfer that reaches past the recorded end. The host reserves nothing.
#[derive(Debug)]
struct Token {
    end: u64,
    length: Arc<Mutex<Length>>,
    device: Arc<FileDevice>,
    is_committed: bool,
}

impl ReservationToken for Token {}

impl Drop for Token {
    fn drop(&mut self) {
        if self.is_committed {
            return;
        }
        let mut length = self.length.lock();
        length.ended(self.end);
        // The transfer's own error is reported; a size that cannot be set is set at the next commit.
        let _ = length.settle(&self.device);
    }
}

impl HostMap {
    fn in_flight(&self, end: u64) -> Token {
        self.length.lock().in_flight.push(end);
        let (length, device) = (Arc::clone(&self.length), Arc::clone(&self.device));
        Token { end, length, device, is_committed: false }
    }
}

impl MapBlocks for HostMap {
    fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.shared
    }

    fn block_size(&self) -> u64 {
        u64::from(self.shared.geometry().logical_block_size)
    }

    fn recorded_size(&self) -> u64 {
        self.length.lock().size
    }

    fn max_size(&self) -> u64 {
        self.shared.geometry().capacity_bytes
    }

    fn map(&self, offset: u64, len: u64) -> Result<Mapping> {
        let block = self.block_size();
        Ok(Mapping::identity(offset, len, block, self.recorded_size().next_multiple_of(block)))
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<Reserved> {
        if !self.can_write {
            return Err(diorite_ext::Error::ReadOnly("the file is open for reading".to_owned()).into());
        }
        self.length.lock().check_process()?;
        let runs = vec![ReservedRun { offset, len, sector: Sector::containing(offset) }];
        Ok(Reserved { runs, token: Box::new(self.in_flight(offset + len)) })
    }

    fn reserve_past_end(&self, end: u64) -> Result<Option<Reserved>> {
        let length = self.length.lock();
        let is_past = end > length.size;
        if is_past {
            length.check_process()?;
        }
        drop(length);
        Ok(is_past.then(|| Reserved { runs: Vec::new(), token: Box::new(self.in_flight(end)) }))
    }

    fn claim(&self, _blocks: u64) -> Result<()> {
        Ok(())
    }

    fn release_claim(&self, _blocks: u64) {}

    fn commit(&self, commit: WriteCommit) -> Result<()> {
        let mut length = self.length.lock();
        for reserved in commit.reserved {
            let mut token: Token = reserved.into_token();
            token.is_committed = true;
            length.ended(token.end);
        }
        if let Some(size) = commit.size_at_least.filter(|size| *size > length.size) {
            length.check_process()?;
            length.size = size;
            length.changes += 1;
        }
        length.settle(&self.device)
    }

    fn allocate(&self, offset: u64, len: u64, size_at_least: Option<u64>) -> Result<()> {
        self.length.lock().check_process()?;
        let file_end = self.recorded_size().max(size_at_least.unwrap_or(0));
        if offset + len > file_end.next_multiple_of(self.block_size()) {
            // The next write that is not of whole blocks would truncate them.
            return Err(Error::Unsupported("a file of the host cannot keep blocks beyond its end"));
        }
        self.device.reserve_blocks(offset, len).map_err(|source| match source.raw_os_error() {
            Some(UNSUPPORTED) => Error::Unsupported("the host's filesystem cannot reserve blocks"),
            _ => os("cannot allocate blocks", source),
        })?;
        self.commit(WriteCommit { size_at_least, ..WriteCommit::default() })
    }

    fn truncate(&self, new: u64) -> Result<()> {
        let mut length = self.length.lock();
        length.check_process()?;
        let old = std::mem::replace(&mut length.size, new);
        length.changes += 1;
        // Transfers in flight lie before both sizes: the caller has everything after them.
        self.device.set_file_size(new).map_err(|source| {
            length.size = old;
            os("cannot set the size", source)
        })
    }

    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let end = offset.saturating_add(len).min(self.recorded_size().next_multiple_of(self.block_size()));
        if offset >= end {
            return Ok(());
        }
        let hole = |op| {
            self.shared.execute(&mut [Bio::without_memory(op, Sector::containing(offset), end - offset)])
        };
        // A filesystem without holes gets zeros.
        Ok(hole(Op::Discard).or_else(|_| hole(Op::WriteZeroes))?)
    }

    fn is_durable(&self, _kind: SyncKind) -> bool {
        let length = self.length.lock();
        length.durable == length.changes
    }

    fn sync(&self, _kind: SyncKind) -> Result<()> {
        let changes = self.length.lock().changes;
        self.shared.flush()?;
        let mut length = self.length.lock();
        length.durable = length.durable.max(changes);
        Ok(())
    }
}

#[derive(Debug)]
struct HostOwner {
    owned: OwnedContent,
    path: PathBuf,
}

impl FileOwner for HostOwner {
    fn write_back(&self) -> Result<()> {
        self.owned.write_back()
    }

    fn attributes(&self) -> Result<Attributes> {
        use std::os::unix::fs::MetadataExt;
        let host = std::fs::metadata(&self.path).map_err(|source| os("cannot get the attributes", source))?;
        let time = |seconds, nanoseconds: i64| crate::Timestamp { seconds, nanoseconds: nanoseconds as u32 };
        let modified = self.owned.content.store.time.get().unwrap_or(time(host.mtime(), host.mtime_nsec()));
        Ok(Attributes {
            permissions: (host.mode() & 0o7777) as u16,
            links: host.nlink() as u32,
            owner: crate::Owner { uid: host.uid(), gid: host.gid() },
            sectors: host.blocks(),
            accessed: time(host.atime(), host.atime_nsec()),
            changed: time(host.ctime(), host.ctime_nsec()),
            ..device_attributes(self.owned.content.store.size(), modified)
        })
    }
}

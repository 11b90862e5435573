//! A whole device as one file.
//!
//! The mapping is the identity: byte N of the file is byte N of the device. Nothing is allocated and the size is fixed.

use std::path::PathBuf;
use std::sync::Arc;

use diorite_block::sync::{Mutex, Rank};
use diorite_block::{BlockDevice, Op, Process, Sector};

use crate::cache::engine::{CACHE_BYTES, Engine, EngineOptions};
use crate::content::Content;
use crate::error::AtPath;
use crate::handle::file::FileOwner;
use crate::handle::options::Opening;
use crate::open::open_target;
use crate::store::map::{MapBlocks, Mapping, Reserved, SyncKind, WriteCommit};
use crate::{
    Attributes, DirectIo, Error, File, FileKind, InodeNumber, OpenOptions, Owner, Result, Timestamp,
};

/// A whole device as one [`File`]: byte N of the file is byte N of the device. Opened with [`RawFile::options`].
///
/// ```no_run
/// use diorite::{DirectIo, RawFile};
///
/// # fn main() -> diorite::Result<()> {
/// let disk = RawFile::options().read(true).direct(DirectIo::Required).open("/dev/sdb")?;
/// let mut memory = disk.buffer(1 << 20)?;
/// disk.read_exact_at(&mut memory, 0)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RawFile;

impl RawFile {
    /// Options to set before opening a device.
    pub fn options() -> OpenOptions<Self> {
        OpenOptions::of(Self, DirectIo::Off)
    }

    pub(crate) fn open_with(target: &str, options: &Opening) -> Result<File> {
        options.check().at_path(target)?;
        let device = open_target(target, &options.device_options())?;
        Self::with_device(device, options, CACHE_BYTES).at_path(target)
    }

    pub(crate) fn with_device(
        device: Arc<dyn BlockDevice>,
        options: &Opening,
        cache_bytes: usize,
    ) -> Result<File> {
        options.check()?;
        let engine = Engine::new(&EngineOptions { cache_bytes, ..EngineOptions::default() })?;
        let path = PathBuf::from(device.name());
        let content = Content::new(Box::new(RawMap { device }), engine)?;
        let changed = Mutex::ranked(Rank::RawChanged, Timestamp::default());
        let owner = RawOwner { owned: OwnedContent::new(&content), changed };
        Ok(File::new(content, Box::new(owner), options.clone(), Some(path)))
    }
}

#[derive(Debug)]
struct RawMap {
    device: Arc<dyn BlockDevice>,
}

impl MapBlocks for RawMap {
    fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    fn block_size(&self) -> u64 {
        u64::from(self.device.geometry().logical_block_size)
    }

    fn recorded_size(&self) -> u64 {
        self.device.geometry().capacity_bytes
    }

    fn max_size(&self) -> u64 {
        self.device.geometry().capacity_bytes
    }

    fn map(&self, offset: u64, len: u64) -> Result<Mapping> {
        Ok(Mapping::identity(offset, len, self.block_size(), self.recorded_size()))
    }

    fn reserve(&self, _offset: u64, _len: u64) -> Result<Reserved> {
        Err(diorite_ext::Error::NoSpace.into())
    }

    fn claim(&self, _blocks: u64) -> Result<()> {
        Err(diorite_ext::Error::NoSpace.into())
    }

    fn release_claim(&self, _blocks: u64) {}

    fn commit(&self, _commit: WriteCommit) -> Result<()> {
        Ok(())
    }

    fn allocate(&self, _offset: u64, _len: u64, _size_at_least: Option<u64>) -> Result<()> {
        Ok(())
    }

    fn truncate(&self, size: u64) -> Result<()> {
        if size == self.recorded_size() {
            return Ok(());
        }
        Err(Error::Unsupported("the size of a device is fixed"))
    }

    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let end = offset.saturating_add(len).min(self.recorded_size());
        if offset >= end {
            return Ok(());
        }
        let bio =
            diorite_block::Bio::without_memory(Op::WriteZeroes, Sector::containing(offset), end - offset);
        Ok(self.device.execute(&mut [bio])?)
    }

    fn zero(&self, offset: u64, len: u64) -> Result<()> {
        self.punch(offset, len)
    }

    fn is_durable(&self, _kind: SyncKind) -> bool {
        true
    }

    fn sync(&self, _kind: SyncKind) -> Result<()> {
        Ok(self.device.flush()?)
    }
}

/// The content of a file without an inode, written back when its last handle is dropped.
#[derive(Debug)]
pub(crate) struct OwnedContent {
    pub(crate) content: Arc<Content>,
    process: Process,
}

impl OwnedContent {
    pub(crate) fn new(content: &Arc<Content>) -> Self {
        Self { content: Arc::clone(content), process: Process::current() }
    }

    pub(crate) fn write_back(&self) -> Result<()> {
        self.content.cache.write_back_all().and(self.content.store.record_metadata(SyncKind::All))
    }
}

impl Drop for OwnedContent {
    fn drop(&mut self) {
        // There is no caller to report an error to: `File::close` reports it. In a forked child the pages are the parent's to write.
        if self.process.is_current() {
            let _ = self.write_back();
        }
        // The file can be opened again at once: no readahead still uses the device.
        self.content.engine.workers.stop();
    }
}

#[derive(Debug)]
struct RawOwner {
    owned: OwnedContent,
    changed: Mutex<Timestamp>,
}

impl FileOwner for RawOwner {
    fn write_back(&self) -> Result<()> {
        self.owned.content.cache.write_back_all()
    }

    fn attributes(&self) -> Result<Attributes> {
        let store = &self.owned.content.store;
        let mut changed = self.changed.lock();
        if let Some(modified) = store.time.get() {
            *changed = modified;
        }
        Ok(device_attributes(store.size(), *changed))
    }
}

/// The attributes of a file without an inode.
pub(crate) fn device_attributes(size: u64, changed: Timestamp) -> Attributes {
    Attributes {
        inode: InodeNumber(0),
        kind: FileKind::Regular,
        permissions: 0o600,
        links: 1,
        owner: Owner::default(),
        size,
        sectors: size.div_ceil(512),
        accessed: changed,
        modified: changed,
        changed,
        created: None,
        device: (0, 0),
        flags: 0,
        generation: 0,
        project: 0,
    }
}

//! A filesystem that is open.
//!
//! The volume ties its parts together: metadata buffers, the log below transaction handles, the allocator and the
//! inodes in memory. Operations are methods of [`Volume`] in the module of what they work on.

mod checksums;
mod free_space;
mod mmp;
mod open;
pub(crate) mod superblock;
mod sync;
mod types;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use diorite_block::BlockDevice;
use diorite_block::sync::Mutex;

use crate::allocate::{Allocator, Zone};
use crate::buffer::BufferCache;
use crate::inode::{InodeCache, Orphans, TableAhead};
use crate::layout::{Features, Incompat, InodeFlags, Layout, Superblock};
use crate::quota::Quotas;
use crate::transaction::{AbortLatch, Log};
use crate::{BlockSize, Corrupt, DataMode, Error, FileKind, Inode, Result, Timestamp};

pub(crate) use free_space::Promise;
pub use types::{
    Access, Claim, DirectoryEntry, Mapping, MappingKind, MmpWait, MmpWatch, QuotaLimits, RenameMode,
    Reservation, ReservedBlocks, ReservedRun, SpaceUse, SyncKind, VolumeOptions, WriteCommit, XattrMode,
};

/// A filesystem that is open: shared by all threads that use it.
#[derive(Debug)]
pub struct Volume {
    device: Arc<dyn BlockDevice>,
    /// Bytes that had been written to the device when the volume was opened.
    written_before: u64,
    options: VolumeOptions,
    layout: Layout,
    /// The superblock as it was when the volume was opened: what never changes is read here, without a lock.
    format: Arc<Superblock>,
    /// The superblock as it is to be written.
    superblock: Arc<Mutex<Superblock>>,
    cache: Arc<BufferCache>,
    log: Box<dyn Log>,
    latch: Arc<AbortLatch>,
    allocator: Arc<Allocator>,
    inodes: InodeCache,
    /// How much of the inode table is read at once.
    pub(crate) table_ahead: TableAhead,
    /// Why the volume cannot be written although nothing failed.
    read_only: Option<String>,
    /// What was found damaged or missing when it was opened.
    defects: Vec<String>,
    /// What of the journal could not be replayed.
    journal_damage: Option<Corrupt>,
    /// Whether the superblock on disk says that the volume is in use.
    in_use: AtomicBool,
    /// Held to change that.
    marking: Mutex<()>,
    closed: AtomicBool,
    /// Serialises renames of directories.
    pub(crate) rename_lock: Mutex<()>,
    /// What says to other hosts that the volume is open here.
    pub(crate) mmp: Option<mmp::Mmp>,
    /// Files that count what users, groups and projects use.
    pub(crate) quotas: Quotas,
    /// What is remembered of directories.
    pub(crate) names: crate::names::NameState,
    /// Inodes without a name, or being cut, as recorded on disk.
    pub(crate) orphans: Mutex<Orphans>,
    /// The generation of the next new inode.
    pub(crate) generations: AtomicU32,
}

impl Volume {
    /// The device.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Why nothing can be written, if so: as asked, or because of features, or after a failed write.
    pub fn read_only_reason(&self) -> Option<String> {
        if let Some(reason) = self.latch.reason() {
            return Some(format!("an earlier write failed: {reason}"));
        }
        self.read_only.clone()
    }

    /// What was found damaged or missing when it was opened, so that what is read may not be the newest, nor everything.
    pub fn defects(&self) -> &[String] {
        &self.defects
    }

    /// What of the journal could not be replayed: the volume is shown as it was before that, and is not written.
    pub fn journal_damage(&self) -> Option<&Corrupt> {
        self.journal_damage.as_ref()
    }

    /// The block size.
    pub fn block_size(&self) -> BlockSize {
        self.layout.block_size
    }

    /// The volume's clock.
    pub fn now(&self) -> Timestamp {
        self.options.clock.now()
    }

    /// The superblock as it was when the volume was opened.
    pub fn superblock(&self) -> &Superblock {
        &self.format
    }

    /// What the volume uses.
    pub fn features(&self) -> Features {
        self.format.features()
    }

    /// Whether files may lie in their inodes.
    pub fn has_inline_data(&self) -> bool {
        self.features().has_incompat(Incompat::INLINE_DATA)
    }

    /// What is asked of the journal for file data: by the options, or else by the volume.
    pub fn data_mode(&self) -> DataMode {
        self.options.data_mode.unwrap_or_else(|| self.format.default_data_mode())
    }

    /// Whether limits were asked to hold.
    pub(crate) fn quota_limits(&self) -> QuotaLimits {
        self.options.quota_limits
    }

    /// Whether an inode's data is to go through the journal: all data does, or the inode has the flag (`chattr +j`).
    pub fn wants_journalled_data(&self, inode: &Inode) -> bool {
        let flags = InodeFlags::from_bits_retain(inode.state.read().flags);
        let wanted = self.data_mode() == DataMode::Journal || flags.contains(InodeFlags::JOURNAL_DATA);
        wanted && self.has_journal() && inode.kind() == FileKind::Regular
    }

    /// Where things are.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Metadata blocks.
    pub(crate) fn cache(&self) -> &Arc<BufferCache> {
        &self.cache
    }

    /// What collects changes.
    pub(crate) fn log(&self) -> &dyn Log {
        &*self.log
    }

    /// What latches failed writes.
    pub(crate) fn latch(&self) -> &AbortLatch {
        &self.latch
    }

    /// Free blocks and inodes.
    pub(crate) fn allocator(&self) -> &Arc<Allocator> {
        &self.allocator
    }

    /// The filesystem's own blocks.
    pub(crate) fn zone(&self) -> &Zone {
        self.allocator.zone()
    }

    /// Inodes in memory.
    pub(crate) fn inodes(&self) -> &InodeCache {
        &self.inodes
    }

    /// The superblock as it is to be written; a caller that changes it touches its buffer in a handle.
    pub(crate) fn current_superblock(&self) -> &Mutex<Superblock> {
        &self.superblock
    }

    /// Refuse a change if the volume cannot be written.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.latch.check()?;
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::ReadOnly("it was closed".to_owned()));
        }
        match &self.read_only {
            Some(reason) => Err(Error::ReadOnly(reason.clone())),
            None => Ok(()),
        }
    }
}

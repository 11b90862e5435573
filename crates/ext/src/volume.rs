//! A filesystem that is open.

use std::sync::Arc;
use std::time::Duration;

use diorite_block::BlockDevice;
use diorite_block::sync::Mutex;

use crate::buffer::BufferCache;
use crate::transaction::{AbortLatch, Log};
use crate::{
    Attributes, BlockSize, Clock, Error, FileBlock, FileKind, FsBlock, Inode, InodeNumber, Result,
    SetAttributes, SetTime, SystemClock, Timestamp,
};

/// Whether a volume may be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Nothing is written, not even a journal replay (that goes into memory).
    ReadOnly,
    /// Read and write.
    #[default]
    ReadWrite,
}

/// How to open a volume.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    /// Whether it may be changed.
    pub access: Access,
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
    /// Memory for metadata buffers, in bytes. Dirty buffers are written back before it is exceeded.
    pub metadata_cache_bytes: usize,
    /// How long a transaction stays open before it is committed by whoever comes next.
    pub commit_interval: Duration,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            access: Access::ReadWrite,
            clock: SystemClock::shared(),
            metadata_cache_bytes: 64 << 20,
            commit_interval: Duration::from_secs(5),
        }
    }
}

/// What a stretch of a file is on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingKind {
    /// Nothing is allocated: reads as zeros.
    Hole,
    /// Data at consecutive blocks from this one.
    Mapped(FsBlock),
    /// Allocated at consecutive blocks from this one, never written: reads as zeros.
    Unwritten(FsBlock),
    /// The content is in the inode: see [`Volume::read_inline`].
    Inline,
}

/// A stretch of a file that is one thing on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First block in the file.
    pub start: FileBlock,
    /// Number of blocks, at least 1.
    pub blocks: u64,
    /// What it is.
    pub kind: MappingKind,
}

/// A run of blocks kept for file blocks, in memory only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedRun {
    /// First block in the file.
    pub start: FileBlock,
    /// First block on the device.
    pub block: FsBlock,
    /// Number of blocks.
    pub blocks: u64,
}

/// Blocks kept for data that is about to be written; given back when dropped without
/// [`Volume::commit_write`]. Nothing on the disk knows of them.
#[derive(Debug)]
pub struct Reservation {
    runs: Vec<ReservedRun>,
}

impl Reservation {
    /// The runs, in file order.
    pub fn runs(&self) -> &[ReservedRun] {
        &self.runs
    }
}

/// What a finished data write records in metadata, in one transaction.
#[derive(Debug, Default)]
pub struct WriteCommit {
    /// Reserved blocks whose data has been written.
    pub reservations: Vec<Reservation>,
    /// Unwritten ranges (first file block, number of blocks) whose data has been written.
    pub converted: Vec<(FileBlock, u64)>,
    /// The file's size is at least this now.
    pub size_at_least: Option<u64>,
    /// New modification time (the change time follows); `None` leaves both.
    pub modified: Option<SetTime>,
}

/// How much [`Volume::sync_inode`] must make durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// What is needed to read the data back: mapping and size (`fdatasync`).
    Data,
    /// Everything of the inode (`fsync`).
    All,
}

/// `statfs` of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceUse {
    /// Block size in bytes.
    pub block_size: u64,
    /// Blocks for files, without the filesystem's own.
    pub blocks: u64,
    /// Blocks that are free (not allocated, not reserved for data in flight).
    pub blocks_free: u64,
    /// Of those, blocks that everyone may use.
    pub blocks_available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
}

/// An entry as a directory listing gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Name, any bytes but `/` and NUL.
    pub name: Vec<u8>,
    /// Inode.
    pub inode: InodeNumber,
    /// Kind, where the directory stores it.
    pub kind: Option<FileKind>,
    /// Where to continue after this entry.
    pub next_cursor: u64,
}

/// What `rename` does when the new name exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameMode {
    /// Replace it, as POSIX says.
    #[default]
    Replace,
    /// Refuse.
    NoReplace,
    /// Exchange the two.
    Exchange,
}

/// What setting an extended attribute does when it exists or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// Create or replace.
    #[default]
    Set,
    /// Create only.
    Create,
    /// Replace only.
    Replace,
}

/// A filesystem that is open: shared by all threads that use it.
#[derive(Debug)]
pub struct Volume {
    device: Arc<dyn BlockDevice>,
    cache: Arc<BufferCache>,
    log: Box<dyn Log>,
    latch: Arc<AbortLatch>,
    /// Serialises renames of directories.
    #[expect(dead_code, reason = "skeleton")]
    pub(crate) rename_lock: Mutex<()>,
}

impl Volume {
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

    /// Refuse a change if the volume cannot be written.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.latch.check()?;
        match self.read_only_reason() {
            Some(reason) => Err(Error::ReadOnly(reason)),
            None => Ok(()),
        }
    }
}

#[expect(unused_variables, clippy::needless_pass_by_value, reason = "skeleton")]
impl Volume {
    /// Open the volume on `device`, with all checks; replays the journal where there is one.
    pub fn open(device: Arc<dyn BlockDevice>, options: VolumeOptions) -> Result<Arc<Self>> {
        todo!()
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Why nothing can be written, if so: as asked, or because of features, or after a failed write.
    pub fn read_only_reason(&self) -> Option<String> {
        todo!()
    }

    /// The block size.
    pub fn block_size(&self) -> BlockSize {
        todo!()
    }

    /// Space and inodes.
    pub fn space(&self) -> SpaceUse {
        todo!()
    }

    /// The volume's clock.
    pub fn now(&self) -> Timestamp {
        todo!()
    }

    /// Largest size of a file mapped as this one is.
    pub fn max_file_size(&self, inode: &Inode) -> u64 {
        todo!()
    }

    // Inodes.

    /// The inode of that number; `NotFound` if it is free.
    pub fn inode(&self, number: InodeNumber) -> Result<Arc<Inode>> {
        todo!()
    }

    /// What `stat` tells.
    pub fn attributes(&self, inode: &Inode) -> Attributes {
        todo!()
    }

    /// Change attributes.
    pub fn set_attributes(&self, inode: &Inode, changes: &SetAttributes) -> Result<()> {
        todo!()
    }

    /// A user has the inode open from now on: it outlives its last name until [`Volume::close_inode`].
    pub fn open_inode(&self, inode: &Arc<Inode>) {
        todo!()
    }

    /// The counterpart of [`Volume::open_inode`]; frees the inode if that was the last user and no name is left.
    pub fn close_inode(&self, inode: &Arc<Inode>) -> Result<()> {
        todo!()
    }

    // Data.

    /// The mapping at file block `at`: the longest stretch of one kind from there, at most `max_blocks` long. A
    /// contiguous run on the device is one stretch, whatever indirect or extent blocks lie between. Ranges
    /// beyond the end of the file are holes.
    pub fn map(&self, inode: &Inode, at: FileBlock, max_blocks: u64) -> Result<Mapping> {
        todo!()
    }

    /// Keep `blocks` free blocks for the holes of `[at, at + blocks)`, near the file's other blocks, in as few runs as
    /// possible. Skips what is mapped already. All or `NoSpace`.
    pub fn reserve(&self, inode: &Inode, at: FileBlock, blocks: u64) -> Result<Reservation> {
        todo!()
    }

    /// Take `blocks` (data, and what mapping them may need) from the free count without choosing them: the promise
    /// that lets a buffered write succeed before its blocks are chosen. Given back by [`Volume::release_claim`].
    pub fn claim(&self, blocks: u64) -> Result<()> {
        todo!()
    }

    /// Give a claim, or a part of one, back: after the blocks were reserved, or when the data was discarded.
    pub fn release_claim(&self, blocks: u64) {
        todo!()
    }

    /// Record data that has been written: allocate and map the reserved blocks, convert unwritten ranges, set size
    /// and times, in one transaction.
    pub fn commit_write(&self, inode: &Inode, commit: WriteCommit) -> Result<()> {
        todo!()
    }

    /// Allocate unwritten blocks for the holes of a range, on files that can have them (extents);
    /// `Unsupported` otherwise. `size_at_least` as in [`WriteCommit`].
    pub fn allocate_unwritten(
        &self,
        inode: &Inode,
        at: FileBlock,
        blocks: u64,
        size_at_least: Option<u64>,
    ) -> Result<()> {
        todo!()
    }

    /// Set the size. Blocks beyond a smaller size are freed (not given out again before the transaction is on
    /// disk). The caller has zeroed the rest of the last block.
    pub fn truncate(&self, inode: &Inode, size: u64) -> Result<()> {
        todo!()
    }

    /// Turn whole blocks into holes.
    pub fn punch(&self, inode: &Inode, at: FileBlock, blocks: u64) -> Result<()> {
        todo!()
    }

    /// The content of a file whose mapping is [`MappingKind::Inline`].
    pub fn read_inline(&self, inode: &Inode) -> Result<Vec<u8>> {
        todo!()
    }

    /// Move an inline file's content out of the inode into a block. No-op for others.
    pub fn make_not_inline(&self, inode: &Inode) -> Result<()> {
        todo!()
    }

    // Durability.

    /// Make one inode durable, and exactly what that needs. File data must have been written before; this flushes
    /// the device.
    pub fn sync_inode(&self, inode: &Inode, kind: SyncKind) -> Result<()> {
        todo!()
    }

    /// Make everything durable.
    pub fn sync(&self) -> Result<()> {
        todo!()
    }

    /// Sync, mark the volume clean, and refuse everything from now on.
    pub fn close(&self) -> Result<()> {
        todo!()
    }
}

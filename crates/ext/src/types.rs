//! Parameters and results of a [`Volume`](crate::Volume)'s operations.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::allocate::Allocator;
use crate::{
    AllocationPolicy, Clock, DataMode, FileBlock, FileKind, FsBlock, InodeNumber, Owner, ReservedBlocks,
    SystemClock, Timestamp,
};

pub use diorite_block::Access;

/// Whether the limits in a volume's quota files hold. Usage is counted in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuotaLimits {
    /// They do not, as on a mount without `usrquota`, `grpquota` and `prjquota`, and for the superuser on any.
    #[default]
    Ignored,
    /// An allocation above a hard limit fails ([`crate::Error::QuotaExceeded`]).
    Enforced,
}

/// How to open a volume.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    /// Access to the volume. With read-only access, a journal is replayed in memory only.
    pub access: Access,
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
    /// Memory for metadata blocks, in bytes: buffers, and what a journal keeps of them until it is in its place. Dirty buffers are
    /// written back before it is exceeded. Inodes, names and the places of names in directories that are kept although nothing uses
    /// them take at most one and a half times as much again: two and a half times this together. Each group of the volume takes
    /// about 100 bytes besides. At least 256 blocks are kept, however small this is.
    pub metadata_cache_bytes: usize,
    /// How long a transaction stays open before it is committed: by the caller's timer ([`Volume::wait_until_old`](crate::Volume::wait_until_old)),
    /// and without one, or if that is late by as much or by a second, by the next change.
    pub commit_interval: Duration,
    /// The caller made the volume just now: that it is opened to be filled is not recorded as a mount.
    pub is_new: bool,
    /// The journal mode of data; that of the superblock (`tune2fs -o`) if `None`.
    pub data_mode: Option<DataMode>,
    /// Access to the blocks that `mke2fs -m` reserves.
    pub reserved_blocks: ReservedBlocks,
    /// The order in which free blocks and inodes are taken.
    pub allocation: AllocationPolicy,
    /// Whether limits hold.
    pub quota_limits: QuotaLimits,
    /// The name of this host, for others that want to open the volume at the same time (feature `mmp`).
    pub host_name: String,
    /// Called while an open waits to see whether another host uses the volume (feature `mmp`).
    pub mmp_watch: Option<MmpWatch>,
}

/// Why an open of a volume with multi-mount protection waits: the volume carries the mark of a host that did not close it, and only
/// time shows whether that host still renews it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MmpWait {
    /// The host that has the volume open, or had it when it stopped.
    pub node: String,
    /// The device there.
    pub device: String,
    /// When that host renewed its mark last: seconds since 1970.
    pub time: u64,
    /// How long the wait lasts at most.
    pub total: Duration,
    /// How much of it is over.
    pub elapsed: Duration,
}

/// Called several times a second during an [`MmpWait`]; [`ControlFlow::Break`] ends the open with [`crate::Error::Interrupted`].
#[derive(Clone)]
pub struct MmpWatch(Arc<WatchFunction>);

type WatchFunction = dyn Fn(&MmpWait) -> ControlFlow<()> + Send + Sync;

impl MmpWatch {
    /// Calls `watch`.
    pub fn new(watch: impl Fn(&MmpWait) -> ControlFlow<()> + Send + Sync + 'static) -> Self {
        Self(Arc::new(watch))
    }

    pub(crate) fn is_to_stop(&self, wait: &MmpWait) -> bool {
        (self.0)(wait).is_break()
    }
}

diorite_block::short_debug!(MmpWatch);

impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            access: Access::ReadWrite,
            clock: SystemClock::shared(),
            metadata_cache_bytes: 64 << 20,
            commit_interval: Duration::from_secs(5),
            is_new: false,
            data_mode: None,
            reserved_blocks: ReservedBlocks::Kept,
            allocation: AllocationPolicy::Spread,
            quota_limits: QuotaLimits::Ignored,
            host_name: "diorite".to_owned(),
            mmp_watch: None,
        }
    }
}

/// State of a mapping of a file on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingKind {
    /// Nothing is allocated: reads as zeros.
    Hole,
    /// Data at consecutive blocks from this one.
    Mapped(FsBlock),
    /// Allocated at consecutive blocks from this one, never written: reads as zeros.
    Unwritten(FsBlock),
    /// The content is in the inode: see [`Files::read_inline`](crate::Files::read_inline).
    Inline,
}

/// A mapping of a file that is one thing on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First block in the file.
    pub start: FileBlock,
    /// Number of blocks, at least 1.
    pub blocks: u64,
    /// Its kind.
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

/// Blocks that were claimed with [`Files::claim`](crate::Files::claim) and are not chosen yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// For data.
    pub data: u64,
    /// For the mapping of that data.
    pub mapping: u64,
}

/// Blocks kept for data that is about to be written; given back when dropped without
/// [`Files::commit_write`](crate::Files::commit_write). Nothing on the disk knows of them.
#[derive(Debug)]
pub struct Reservation {
    pub(crate) inode: InodeNumber,
    pub(crate) runs: Vec<ReservedRun>,
    /// Clusters of the file that this covers in part, and their locations on the volume. Empty without clusters.
    pub(crate) held: BTreeMap<u64, FsBlock>,
    /// Clusters claimed for the mapping's own growth.
    pub(crate) claimed: u64,
    /// The part of its maker's claim that it took.
    pub(crate) taken: Claim,
    /// Blocks claimed for the mapping's growth; `claimed` has them until they are handed over.
    pub(crate) growth: u64,
    /// Space was short: `growth` is the number as it was counted then, not the most that it can be.
    pub(crate) is_counted: bool,
    pub(crate) allocator: Arc<Allocator>,
}

impl Reservation {
    /// The runs, in file order.
    pub fn runs(&self) -> &[ReservedRun] {
        &self.runs
    }

    /// Blocks taken from the claim that it was made with: the caller no longer gives them back.
    pub fn taken(&self) -> Claim {
        self.taken
    }

    /// Hand its claim for the growth of the mapping to the caller, which gives it back: [`Files::commit_write`](crate::Files::commit_write)
    /// returns how much of it was used. Returns blocks.
    pub fn take_mapping_claim(&mut self) -> u64 {
        std::mem::take(&mut self.claimed)
    }

    /// Whether space was short, and the mapping's blocks were counted exactly: another change of the file can increase them.
    pub fn is_counted(&self) -> bool {
        self.is_counted
    }

    /// Give a run back, but for parts of clusters at its ends: those are held.
    fn release_whole_clusters(&self, run: &ReservedRun) {
        let per_cluster = self.allocator.blocks_per_cluster();
        let (at, end) = (run.start.0, run.start.0 + run.blocks);
        let first = at.next_multiple_of(per_cluster);
        let blocks = (end / per_cluster * per_cluster).saturating_sub(first);
        if blocks > 0 {
            self.allocator.release(FsBlock(run.block.0 + (first - at)), blocks);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        for run in &self.runs {
            self.release_whole_clusters(run);
        }
        for number in self.held.keys() {
            self.allocator.release_hold(self.inode, *number);
        }
        self.allocator.release_claim(self.claimed);
    }
}

/// Metadata changes of a completed data write, made in one transaction.
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

/// How much [`Volume::sync_inode`](crate::Volume::sync_inode) must make durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// The metadata needed to read the data back: mapping and size (`fdatasync`).
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
    /// Of those, blocks that any user may use.
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

impl DirectoryEntry {
    /// The name, as part of a path.
    pub fn file_name(&self) -> &std::ffi::OsStr {
        std::os::unix::ffi::OsStrExt::from_bytes(&self.name)
    }
}

/// Behaviour of `rename` when the new name exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameMode {
    /// Replace it, as POSIX says.
    #[default]
    Replace,
    /// Refuse.
    NoReplace,
    /// Exchange the two.
    Exchange,
    /// Replace it, and leave a whiteout under the old name: a character device 0:0, by which overlayfs hides a name of a lower layer.
    /// Owner of the whiteout, as for other inodes that the caller makes in the directory.
    Whiteout(Owner),
}

/// Behaviour of setting an extended attribute when it exists or not.
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

/// Attributes of a new inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// Kind; a symbolic link is made by its own operation.
    pub kind: FileKind,
    /// Permission bits, with set-user-ID, set-group-ID and sticky: 12 bits.
    pub permissions: u16,
    /// Permission bits that it does not get, unless its directory has a default access control list, which decides then.
    pub umask: u16,
    /// Owner.
    pub owner: Owner,
    /// Major and minor number, for device nodes only.
    pub device: (u32, u32),
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The volume's clock.
    Now,
    /// The change time from a caller that keeps times itself; may be recorded even where the inode's flags forbid to set it.
    Observed(Timestamp),
    /// This time.
    To(Timestamp),
}

//! State that all parts of an open volume share: the device, its layout and superblock, metadata buffers, free space and the log.
//!
//! Where it sits: below every other part of a [`Volume`](crate::Volume). It knows no inode, file or name.

mod handle;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use diorite_block::BlockDevice;
use diorite_block::sync::{Mutex, now};

use crate::allocate::{Allocator, FreeSpace};
use crate::buffer::{BlockKind, Buffer, BufferCache};
use crate::layout::superblock::{STATE_ERROR, STATE_VALID};
use crate::layout::{Compat, Features, Incompat, Layout, RoCompat, Superblock, uuid_text};
use crate::mmp::Mmp;
use crate::transaction::{AbortLatch, HomeWriter, MetadataStore, Transactions};
use crate::types::VolumeOptions;
pub(crate) use handle::{Handle, finish};

use crate::{BlockSize, Corrupt, Error, FileBlock, FsBlock, InodeNumber, Result, Timestamp};

/// Blocks that are left free for the next operation where a change in place does as well.
const OPERATION_BLOCKS: u64 = 8;

/// Blocks that settling inodes joins in one handle: a block of entries for each kind, of the owner before and after, of two inodes.
pub(crate) const SETTLE_CREDITS: u32 = 12;

/// See the module's head.
pub(crate) struct Core {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) options: VolumeOptions,
    pub(crate) layout: Layout,
    /// The superblock from the opening of the volume: fields that never change are read here, without a lock.
    pub(crate) format: Arc<Superblock>,
    /// The current superblock; a caller that changes it touches its buffer in a handle.
    pub(crate) superblock: Arc<Mutex<Superblock>>,
    /// Metadata blocks.
    pub(crate) buffers: Arc<BufferCache>,
    /// Free blocks and inodes.
    pub(crate) allocator: Arc<Allocator>,
    pub(crate) transactions: Arc<Transactions>,
    pub(crate) latch: Arc<AbortLatch>,
    /// The metadata store that handles begin on: buffers, transactions and latch.
    pub(crate) store: MetadataStore,
    /// Why the volume cannot be written although nothing failed.
    pub(crate) read_only: OnceLock<String>,
    /// Bytes that had been written to the device when the volume was opened.
    pub(crate) written_before: u64,
    /// Whether the superblock on disk says that the volume is in use.
    pub(crate) in_use: AtomicBool,
    /// Held to change that.
    pub(crate) marking: Mutex<()>,
    pub(crate) closed: AtomicBool,
    /// The mark by which other hosts know that the volume is open here.
    pub(crate) mmp: Option<Mmp>,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uuid = uuid_text(&self.format.uuid());
        f.debug_struct("Core")
            .field("device", &self.device.name())
            .field("uuid", &uuid)
            .finish_non_exhaustive()
    }
}

impl Core {
    pub(crate) fn block_size(&self) -> BlockSize {
        self.layout.block_size
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.options.clock.now()
    }

    pub(crate) fn features(&self) -> Features {
        self.format.features()
    }

    /// Whether changes go through a journal.
    pub(crate) fn has_journal(&self) -> bool {
        self.features().has_compat(Compat::HAS_JOURNAL)
    }

    /// Blocks of a cluster: 1 without clusters.
    pub(crate) fn blocks_per_cluster(&self) -> u64 {
        u64::from(self.layout.blocks_per_cluster)
    }

    /// Sectors of a cluster, the unit of an inode's count.
    pub(crate) fn cluster_sectors(&self) -> u64 {
        self.block_size().bytes() / 512 * self.blocks_per_cluster()
    }

    /// Refuse a change if the volume cannot be written. The failure that made it so was an error of the operation that met it, and of those under way
    /// ([`AbortLatch::check`]); for those that begin afterwards the volume is read-only, as in the kernel (`ext4_emergency_state`).
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.latch.check_process()?;
        if let Some(reason) = self.failure() {
            return Err(Error::ReadOnly(reason));
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::ReadOnly("it was closed".to_owned()));
        }
        match self.read_only.get() {
            Some(reason) => Err(Error::ReadOnly(reason.clone())),
            None => Ok(()),
        }
    }

    /// Whether a sync can have anything to write: not if the volume was never to be written.
    ///
    /// # Errors
    /// A write failed, so that earlier changes may be lost; or this is a forked child.
    pub(crate) fn can_sync(&self) -> Result<bool> {
        match self.check_writable() {
            Err(Error::ReadOnly(_)) if self.latch.reason().is_none() => Ok(false),
            checked => checked.map(|()| true),
        }
    }

    /// The write that failed, where nothing is written any more for that.
    pub(crate) fn failure(&self) -> Option<String> {
        self.latch.reason().map(|reason| format!("an earlier write failed: {reason}"))
    }

    /// Check that a run of blocks from a mapping is on the volume and not metadata of the volume itself.
    pub(crate) fn check_run(
        &self,
        inode: InodeNumber,
        at: FileBlock,
        block: FsBlock,
        blocks: u64,
    ) -> Result<()> {
        let checked = self.allocator.zone().check(block, blocks);
        checked.map_err(|what| Corrupt::map(inode, at, what).into())
    }

    /// Refuse, before any change, to take more blocks than an operation needs.
    pub(crate) fn check_unclaimed(&self) -> Result<()> {
        if self.allocator.has_unclaimed(OPERATION_BLOCKS) { Ok(()) } else { Err(Error::NoSpace) }
    }

    /// Blocks for an operation.
    pub(crate) fn free_space(&self) -> FreeSpace<'_> {
        FreeSpace { allocator: &self.allocator, transactions: &self.transactions }
    }

    /// Begin a handle that joins at most `credits` blocks.
    pub(crate) fn begin(&self, credits: u32) -> Result<Handle<'_>> {
        self.check_writable()?;
        self.check_mmp()?;
        self.mark_in_use()?;
        self.free_space().relieve()?;
        Handle::begin(self, credits)
    }

    /// Write to the superblock on disk that the volume is in use, before the first change.
    pub(crate) fn mark_in_use(&self) -> Result<()> {
        if self.in_use.load(Ordering::Acquire) {
            return Ok(());
        }
        let _marking = self.marking.lock();
        if self.in_use.load(Ordering::Acquire) {
            return Ok(());
        }
        let now = self.now().seconds;
        if self.has_journal() && self.format.orphan_file().is_some() {
            self.mark_orphans_present(true);
        }
        {
            let mut superblock = self.superblock.lock();
            let state = superblock.state();
            if !self.options.is_new {
                superblock.set_mount_time(now);
            }
            superblock.set_write_time(now);
            if self.has_journal() {
                let mut features = superblock.features();
                features.incompat |= Incompat::RECOVER;
                superblock.set_features(features);
            } else {
                superblock.set_state(state & !STATE_VALID);
            }
        }
        let buffer = self.superblock_buffer()?;
        let bytes = buffer.freeze(self.buffers.checksums());
        let home = HomeWriter::new(self.device.clone(), self.block_size());
        let written = home.write(vec![(buffer.block(), bytes)]);
        written.and_then(|()| home.flush()).inspect_err(|error| self.latch.abort(error))?;
        self.in_use.store(true, Ordering::Release);
        Ok(())
    }

    /// Set features of the volume before their first use.
    pub(crate) fn add_features(
        &self,
        handle: &mut Handle<'_>,
        compat: Compat,
        ro_compat: RoCompat,
    ) -> Result<()> {
        let has_all = |features: Features| features.has_compat(compat) && features.has_ro_compat(ro_compat);
        if has_all(self.features()) {
            return Ok(());
        }
        {
            let mut superblock = self.superblock.lock();
            let mut features = superblock.features();
            if has_all(features) {
                return Ok(());
            }
            features.compat |= compat;
            features.ro_compat |= ro_compat;
            superblock.set_features(features);
        }
        self.touch_superblock(handle)
    }

    /// Set or clear the flag that the orphan file may have entries, in the superblock in memory.
    pub(crate) fn mark_orphans_present(&self, present: bool) {
        let mut superblock = self.superblock.lock();
        let mut features = superblock.features();
        features.ro_compat.set(RoCompat::ORPHAN_PRESENT, present);
        superblock.set_features(features);
    }

    /// The superblock says from now on that errors were found.
    pub(crate) fn record_errors(&self) -> Result<()> {
        let mut handle = self.begin(1)?;
        {
            let mut superblock = self.superblock.lock();
            let state = superblock.state();
            superblock.set_state(state | STATE_ERROR);
        }
        self.touch_superblock(&mut handle)?;
        handle.commit().map(drop)
    }

    fn superblock_buffer(&self) -> Result<Arc<Buffer>> {
        Ok(self.buffers.get(self.layout.superblock_block(), BlockKind::Superblock)?)
    }

    /// Join the superblock to a handle, after it was changed in memory.
    pub(crate) fn touch_superblock(&self, handle: &mut Handle<'_>) -> Result<()> {
        Ok(handle.touch(&self.superblock_buffer()?)?)
    }
}

impl Core {
    pub(crate) fn renew_mmp(&self, mmp: &Mmp, at: Duration) -> Result<()> {
        let time = self.now().seconds.max(0) as u64;
        mmp.renew(at, time).inspect_err(|error| self.latch.abort(error))
    }

    /// Before a transaction begins: the volume must still be ours.
    pub(crate) fn check_mmp(&self) -> Result<()> {
        match &self.mmp {
            Some(mmp) if mmp.due() <= now() => self.renew_mmp(mmp, now()),
            _ => Ok(()),
        }
    }

    /// Give the volume back to other hosts.
    pub(crate) fn release_mmp(&self) -> Result<()> {
        self.mmp.as_ref().map_or(Ok(()), Mmp::release)
    }
}

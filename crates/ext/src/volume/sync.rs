//! Durability, the volume's state in the superblock, and space.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::buffer::{BlockKind, Buffer};
use crate::journal;
use crate::layout::Incompat;
use crate::layout::superblock::STATE_VALID;
use crate::transaction::{Handle, TransactionId};
use crate::volume::{SpaceUse, SyncKind, Volume};
use crate::{Inode, Result};

impl Volume {
    /// Make an inode and its data durable (`fsync`, `fdatasync`): returns when the transaction that last changed what `kind`
    /// names is on the disk, and the device was flushed after this call began. File data must have been written before.
    pub fn sync_inode(&self, inode: &Inode, kind: SyncKind) -> Result<()> {
        self.latch().check()?;
        if self.check_writable().is_err() {
            return Ok(());
        }
        self.log().sync_through(inode.last_change(kind))
    }

    /// As [`Volume::sync_inode`], for an inode whose data is durable already (written with FUA, or a directory): the device
    /// is flushed only if a transaction must be written.
    pub fn sync_inode_metadata(&self, inode: &Inode, kind: SyncKind) -> Result<()> {
        self.latch().check()?;
        if self.check_writable().is_err() {
            return Ok(());
        }
        self.log().commit_through(inode.last_change(kind))
    }

    /// Whether [`Volume::sync_inode_metadata`] would have nothing to write. It holds for the changes whose calls have returned.
    /// After a failed write nothing is known to be durable: the sync reports it.
    pub fn is_inode_durable(&self, inode: &Inode, kind: SyncKind) -> bool {
        let can_change = self.read_only.is_none();
        !self.latch().is_aborted() && (!can_change || self.log().is_durable(inode.last_change(kind)))
    }

    /// Make everything durable.
    pub fn sync(&self) -> Result<()> {
        self.latch().check()?;
        if self.check_writable().is_err() {
            return Ok(());
        }
        // With a journal the counters in the superblock are made right when the volume is opened next.
        let is_changed = !self.log().is_durable(self.log().running());
        if is_changed && self.in_use.load(Ordering::Acquire) && !self.has_journal() {
            let mut handle = self.begin(1)?;
            self.count_written();
            self.touch_superblock(&mut handle)?;
            handle.commit()?;
        }
        self.log().sync()
    }

    /// Commit what has waited for longer than [`crate::VolumeOptions::commit_interval`], for callers with a timer
    /// ([`Volume::wait_until_old`]). This crate has no threads: without this an idle volume keeps its last changes in
    /// memory until the next change, sync or close.
    pub fn commit_old(&self) -> Result<()> {
        if self.check_writable().is_err() {
            return self.latch().check();
        }
        self.log().commit_old()
    }

    /// For the thread of a timer: wait until [`Volume::commit_old`] has something to do; `false` when the volume is closed or
    /// cannot be written.
    pub fn wait_until_old(&self) -> bool {
        self.check_writable().is_ok() && self.log().wait_until_old()
    }

    /// No waiter is in [`Volume::wait_until_old`] from now on.
    pub fn end_waiting(&self) {
        self.log().end_waiting();
    }

    /// Sync, mark the volume clean, and refuse everything from now on.
    pub fn close(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        let closed = self.close_now();
        let result = closed.and(self.release_mmp());
        self.closed.store(true, Ordering::Release);
        self.end_waiting();
        result
    }

    fn close_now(&self) -> Result<()> {
        self.latch().check()?;
        if self.check_writable().is_err() {
            return Ok(());
        }
        self.allocator().release_windows();
        if !self.in_use.load(Ordering::Acquire) {
            return self.log().close();
        }
        self.log().sync()?;
        // The state that the volume was found in: one that was not clean then is not clean now.
        let mut handle = self.begin(1)?;
        let slots = crate::layout::orphan::entries_per_block(self.block_size().bytes() as usize);
        if self.has_orphan_file() && self.orphans.lock().is_empty(slots) {
            self.mark_orphans_present(false);
        }
        {
            let mut superblock = self.current_superblock().lock();
            superblock.set_state(self.superblock().state());
            superblock.set_write_time(self.now().seconds);
        }
        self.count_written();
        self.touch_superblock(&mut handle)?;
        handle.commit()?;
        self.log().close()?;
        if self.has_journal() {
            // Only now that nothing is left to replay, and so not through the log.
            journal::clear_needs_recovery(&**self.device()).inspect_err(|error| self.latch().abort(error))?;
        }
        Ok(())
    }

    /// Bring the count of what was written over the volume's life up to date. As in the kernel it counts everything that was
    /// written to the device while the volume was open, and what this superblock's own block adds is left to the next time.
    fn count_written(&self) {
        let written = self.device().counters().snapshot().write_bytes.saturating_sub(self.written_before);
        let total = self.superblock().kib_written().saturating_add(written / 1024);
        self.current_superblock().lock().set_kib_written(total);
    }

    /// Say on disk that the volume is in use, before the first change.
    pub(crate) fn mark_in_use(&self) -> Result<()> {
        if self.in_use.load(Ordering::Acquire) {
            return Ok(());
        }
        let _marking = self.marking.lock();
        if self.in_use.load(Ordering::Acquire) {
            return Ok(());
        }
        let now = self.now().seconds;
        if self.has_journal() && self.has_orphan_file() {
            self.mark_orphans_present(true);
        }
        {
            let mut superblock = self.current_superblock().lock();
            let state = superblock.state();
            superblock.set_mount_time(now);
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
        let bytes = buffer.freeze(self.cache().checksums());
        let offset = self.block_size().address_of(buffer.block());
        let written = self.device().write_bytes(offset, &bytes, diorite_block::BioFlags::META);
        written.and_then(|()| self.device().flush()).inspect_err(|error| self.latch().abort(error))?;
        self.in_use.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether changes go through a journal.
    pub(crate) fn has_journal(&self) -> bool {
        self.features().has_compat(crate::layout::Compat::HAS_JOURNAL)
    }

    fn superblock_buffer(&self) -> Result<Arc<Buffer>> {
        self.cache().get(self.layout().superblock_block(), BlockKind::Superblock)
    }

    /// Join the superblock to a handle, after it was changed in memory.
    pub(crate) fn touch_superblock(&self, handle: &mut Handle<'_>) -> Result<()> {
        handle.touch(&self.superblock_buffer()?)
    }

    /// Space and inodes.
    pub fn space(&self) -> SpaceUse {
        let layout = self.layout();
        // As the kernel: what the superblock says that the filesystem itself takes, journal and all, if that can be.
        let stored = self.superblock().overhead_clusters() * u64::from(layout.blocks_per_cluster);
        let overhead = if (1..layout.blocks_count).contains(&stored) {
            stored
        } else {
            self.allocator().zone_blocks() + layout.first_data_block
        };
        let blocks_free = self.allocator().free_for_users() * u64::from(layout.blocks_per_cluster);
        SpaceUse {
            block_size: layout.block_size.bytes(),
            blocks: layout.blocks_count.saturating_sub(overhead),
            blocks_free,
            blocks_available: blocks_free.saturating_sub(self.superblock().reserved_blocks_count()),
            inodes: u64::from(layout.inodes_count),
            inodes_free: u64::from(self.allocator().free_on_disk().1),
        }
    }
}

impl Inode {
    /// The transaction that a sync of this kind waits for.
    fn last_change(&self, kind: SyncKind) -> TransactionId {
        match kind {
            SyncKind::Data => self.last_data_change(),
            SyncKind::All => self.last_any_change(),
        }
    }
}

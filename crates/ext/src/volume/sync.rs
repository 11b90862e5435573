//! Durability, the volume's state in the superblock, and space.

use std::sync::atomic::Ordering;

use crate::layout::superblock::STATE_ERROR;
use crate::transaction::TransactionId;
use crate::types::{SpaceUse, SyncKind};
use crate::volume::{Volume, journal};
use crate::{Inode, Result};

impl Volume {
    /// Make an inode and its data durable (`fsync`, `fdatasync`): returns when the transaction that last changed what `kind`
    /// names is on the disk, and the device was flushed after this call began. File data must have been written before.
    pub fn sync_inode(&self, inode: &Inode, kind: SyncKind) -> Result<()> {
        if !self.core.can_sync()? {
            return Ok(());
        }
        if kind == SyncKind::All {
            self.store_lazy_time(inode)?;
        }
        Ok(self.core.transactions.sync_through(inode.last_change(kind))?)
    }

    /// Whether [`Volume::sync_inode`] would have nothing to write. It holds for the changes whose calls have returned.
    /// After a failed write nothing is known to be durable: the sync reports it.
    pub fn is_inode_durable(&self, inode: &Inode, kind: SyncKind) -> bool {
        let can_change = self.core.read_only.get().is_none();
        let is_stored = kind == SyncKind::Data || !inode.has_lazy_time();
        is_stored
            && !self.core.latch.is_aborted()
            && (!can_change || self.core.transactions.is_durable(inode.last_change(kind)))
    }

    /// Make everything durable.
    pub fn sync(&self) -> Result<()> {
        if !self.core.can_sync()? {
            return Ok(());
        }
        self.store_lazy_times()?;
        // With a journal the counters in the superblock are made right when the volume is opened next.
        let is_changed = !self.core.transactions.is_durable(self.core.transactions.running());
        if is_changed && self.core.in_use.load(Ordering::Acquire) && !self.core.has_journal() {
            let mut handle = self.core.begin(1)?;
            self.count_written();
            self.core.touch_superblock(&mut handle)?;
            handle.commit()?;
        }
        Ok(self.core.transactions.sync()?)
    }

    /// Commit what has waited for longer than [`crate::VolumeOptions::commit_interval`], for callers with a timer
    /// ([`Volume::wait_until_old`]). This crate has no threads: without this an idle volume keeps its last changes in
    /// memory until the next change, sync or close.
    pub fn commit_old(&self) -> Result<()> {
        if self.core.check_writable().is_err() {
            return Ok(self.core.latch.check()?);
        }
        Ok(self.core.transactions.commit_old()?)
    }

    /// For the thread of a timer: wait until [`Volume::commit_old`] has something to do; `false` when the volume is closed or
    /// cannot be written.
    pub fn wait_until_old(&self) -> bool {
        self.core.check_writable().is_ok() && self.core.transactions.wait_until_old()
    }

    /// No waiter is in [`Volume::wait_until_old`] from now on.
    pub fn end_waiting(&self) {
        self.core.transactions.end_waiting();
    }

    /// Whether this process may change the volume.
    ///
    /// # Errors
    /// [`Error::Forked`](crate::Error::Forked) in a forked child of the process that opened it.
    pub fn check_process(&self) -> Result<()> {
        Ok(self.core.latch.check_process()?)
    }

    /// Sync, mark the volume clean, and refuse everything from now on.
    pub fn close(&self) -> Result<()> {
        if self.core.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.check_process()?;
        let closed = self.close_now();
        let result = closed.and(self.core.release_mmp());
        self.core.closed.store(true, Ordering::Release);
        self.end_waiting();
        result
    }

    fn close_now(&self) -> Result<()> {
        self.core.latch.check()?;
        if self.core.check_writable().is_err() {
            return Ok(());
        }
        self.core.allocator.release_windows();
        self.store_lazy_times()?;
        if !self.core.in_use.load(Ordering::Acquire) {
            return Ok(self.core.transactions.close()?);
        }
        self.core.transactions.sync()?;
        // The state that the volume was found in, and errors found since.
        let mut handle = self.core.begin(1)?;
        if self.core.format.orphan_file().is_some() && self.inodes.has_no_orphans() {
            self.core.mark_orphans_present(false);
        }
        {
            let mut superblock = self.core.superblock.lock();
            let errors = superblock.state() & STATE_ERROR;
            superblock.set_state(self.core.format.state() | errors);
            superblock.set_write_time(self.core.now().seconds);
        }
        self.count_written();
        self.core.touch_superblock(&mut handle)?;
        handle.commit()?;
        self.core.transactions.close()?;
        if self.core.has_journal() {
            // Only now that nothing is left to replay, and so not through the log.
            journal::clear_needs_recovery(&*self.core.device)
                .inspect_err(|error| self.core.latch.abort(error))?;
        }
        Ok(())
    }

    /// Update the count of bytes written over the volume's life. As in the kernel, it counts all bytes written to the
    /// device while the volume was open. The write of the superblock itself is counted by the next update.
    fn count_written(&self) {
        let written =
            self.core.device.counters().snapshot().write_bytes.saturating_sub(self.core.written_before);
        let total = self.core.format.kib_written().saturating_add(written / 1024);
        self.core.superblock.lock().set_kib_written(total);
    }

    /// Space and inodes.
    pub fn space(&self) -> SpaceUse {
        let layout = &self.core.layout;
        // As in the kernel: the overhead recorded in the superblock, with the journal, if it is plausible.
        let stored = self.core.format.overhead_clusters() * u64::from(layout.blocks_per_cluster);
        let overhead = if (1..layout.blocks_count).contains(&stored) {
            stored
        } else {
            self.core.allocator.zone_blocks() + layout.first_data_block
        };
        let blocks_free = self.core.allocator.free_for_users() * u64::from(layout.blocks_per_cluster);
        SpaceUse {
            block_size: layout.block_size.bytes(),
            blocks: layout.blocks_count.saturating_sub(overhead),
            blocks_free,
            blocks_available: blocks_free.saturating_sub(self.core.format.reserved_blocks_count()),
            inodes: u64::from(layout.inodes_count),
            inodes_free: u64::from(self.core.allocator.free_on_disk().1),
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

//! Access times that wait in memory (`lazytime`).
//!
//! Such a time is written with the next other change of its inode, by a sync of the inode or of the volume, or at the close of the volume.
//! A new time also writes the waiting ones if there are many, or if the first has waited for a day. A crash loses waiting times.
//!
//! Locking: the list is locked for a look at it alone, with or without an inode.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::finish;
use crate::inode::Inode;
use crate::inode::STORE_CREDITS;
use crate::{Error, Result, Volume};

/// Most inodes that wait.
const WAITING_MAX: usize = 1024;
/// How long the first of them waits.
const WAIT_SECONDS_MAX: i64 = 24 * 60 * 60;

impl Volume {
    /// As [`Volume::note_access`], but the time waits in memory.
    ///
    /// # Errors
    /// The volume is read-only; the inode was freed; what waited cannot be written.
    pub fn note_access_lazily(&self, inode: &Arc<Inode>) -> Result<()> {
        self.core.check_writable()?;
        let now = self.core.now();
        let time = inode.time_as_stored(now);
        inode.write_in_use()?.accessed = time;
        if inode.has_lazy_time.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let must_store = {
            let mut waiting = self.inodes.lazy_times.lock();
            if waiting.inodes.is_empty() {
                waiting.since = now.seconds;
            }
            waiting.inodes.push(Arc::clone(inode));
            waiting.inodes.len() >= WAITING_MAX || now.seconds - waiting.since >= WAIT_SECONDS_MAX
        };
        if must_store { self.store_lazy_times() } else { Ok(()) }
    }

    /// Write all access times that wait, as other changes are written.
    pub(crate) fn store_lazy_times(&self) -> Result<()> {
        let inodes = std::mem::take(&mut self.inodes.lazy_times.lock().inodes);
        inodes.iter().try_for_each(|inode| self.store_lazy_time(inode))
    }

    /// Write the inode's access time if it waits.
    pub(crate) fn store_lazy_time(&self, inode: &Inode) -> Result<()> {
        if !inode.has_lazy_time.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let mut state = match inode.write_in_use() {
            Err(Error::Stale) => return Ok(()),
            state => state?,
        };
        let mut handle = self.core.begin(STORE_CREDITS)?;
        let result = self.files.store(&mut handle, inode, &mut state);
        finish(handle, result)
    }
}

//! A filesystem that is open.
//!
//! The volume ties its parts together. An operation that needs one part is called on that part; a method of [`Volume`] needs several.

mod attributes;
#[cfg(test)]
mod budget_tests;
pub(crate) mod checksums;
mod content_use;
pub(crate) mod journal;
mod lazy_times;
mod open;
mod status;
pub(crate) mod superblock;
mod sync;
mod trim;
mod xattrs;

use std::sync::Arc;
use std::time::Duration;

use diorite_block::BlockDevice;

use crate::base::Core;
use crate::file::Files;
use crate::inodes::InodeStore;
use crate::layout::superblock::CheckReason;
use crate::layout::{Features, Incompat, Superblock};
use crate::lifecycle::Lifecycle;
use crate::map::Mappings;
use crate::names::Names;
use crate::quota::Quotas;
use crate::xattr::Xattrs;
use crate::{BlockSize, Corrupt, Result, Timestamp};

pub use status::{LogUse, TransactionStatus, VolumeStatus};

/// A filesystem that is open: shared by all threads that use it.
pub struct Volume {
    pub(crate) core: Arc<Core>,
    pub(crate) maps: Arc<Mappings>,
    /// Inodes: found, cached, stored.
    pub inodes: Arc<InodeStore>,
    /// Usage and limits of users, groups and projects.
    pub quotas: Arc<Quotas>,
    /// Data of files: where it is, and space for more.
    pub files: Arc<Files>,
    /// Extended attributes.
    pub xattrs: Arc<Xattrs>,
    /// The end of inodes.
    pub lifecycle: Arc<Lifecycle>,
    /// Directories.
    pub names: Names,
    /// Damage found when the volume was opened.
    defects: Vec<String>,
    /// The part of the journal that could not be replayed.
    journal_damage: Option<Corrupt>,
}

diorite_block::short_debug!(Volume, core);

impl Volume {
    /// The device.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.core.device
    }

    /// Why nothing can be written, if so: as asked, or because of features, or after a failed write.
    pub fn read_only_reason(&self) -> Option<String> {
        self.core.failure().or_else(|| self.core.read_only.get().cloned())
    }

    /// Damage found when the volume was opened: reads may return old or incomplete content.
    pub fn defects(&self) -> &[String] {
        &self.defects
    }

    /// Why the volume needs `e2fsck` before it is changed; `None` if it cannot be changed.
    pub fn check_reason(&self) -> Option<CheckReason> {
        if self.read_only_reason().is_some() {
            None
        } else {
            self.core.format.check_reason(self.now().seconds)
        }
    }

    /// The part of the journal that could not be replayed or read: the volume shows the state before it, and is not written.
    pub fn journal_damage(&self) -> Option<&Corrupt> {
        self.journal_damage.as_ref()
    }

    /// The block size.
    pub fn block_size(&self) -> BlockSize {
        self.core.block_size()
    }

    /// The volume's clock.
    pub fn now(&self) -> Timestamp {
        self.core.now()
    }

    /// The superblock as it was when the volume was opened.
    pub fn superblock(&self) -> &Superblock {
        &self.core.format
    }

    /// Features of the volume.
    pub fn features(&self) -> Features {
        self.core.features()
    }

    /// Whether files may lie in their inodes.
    pub fn has_inline_data(&self) -> bool {
        self.features().has_incompat(Incompat::INLINE_DATA)
    }
}

impl Volume {
    /// Renew the mark that says to other hosts that the volume is open here (MMP), if it is due at `at` (time of
    /// [`diorite_block::sync::now`]). Returns when to call again; `None` if there is no such mark to keep. If another host has
    /// written its own mark, this volume is read-only from then on.
    pub fn mmp_tick(&self, at: Duration) -> Result<Option<Duration>> {
        let Some(mmp) = &self.core.mmp else { return Ok(None) };
        if self.core.check_writable().is_err() {
            return Ok(None);
        }
        self.core.renew_mmp(mmp, at)?;
        Ok(Some(mmp.due()))
    }
}

//! A filesystem that is open.
//!
//! The volume ties its parts together. What needs one of them is called on that; a method of [`Volume`] needs several.

pub(crate) mod checksums;
mod core;
mod mmp;
mod open;
mod status;
pub(crate) mod superblock;
mod sync;
mod types;

use std::sync::Arc;

use diorite_block::BlockDevice;

use crate::file::Files;
use crate::inode::{InodeStore, Lifecycle};
use crate::layout::superblock::CheckReason;
use crate::layout::{Features, Incompat, Superblock};
use crate::map::Mappings;
use crate::names::Names;
use crate::quota::Quotas;
use crate::xattr::Xattrs;
use crate::{BlockSize, Corrupt, Timestamp};

pub(crate) use self::core::Core;
pub use status::{LogUse, VolumeStatus};
pub use types::{
    Access, Claim, DirectoryEntry, Mapping, MappingKind, MmpWait, MmpWatch, QuotaLimits, RenameMode,
    Reservation, ReservedRun, SpaceUse, SyncKind, VolumeOptions, WriteCommit, XattrMode,
};

/// A filesystem that is open: shared by all threads that use it.
pub struct Volume {
    pub(crate) core: Arc<Core>,
    pub(crate) maps: Arc<Mappings>,
    /// Inodes: found, cached, stored.
    pub inodes: Arc<InodeStore>,
    /// What users, groups and projects use, and may use.
    pub quotas: Arc<Quotas>,
    /// Data of files: where it is, and space for more.
    pub files: Arc<Files>,
    /// Extended attributes.
    pub xattrs: Arc<Xattrs>,
    /// The end of inodes.
    pub lifecycle: Arc<Lifecycle>,
    /// Directories.
    pub names: Names,
    /// What was found damaged or missing when it was opened.
    defects: Vec<String>,
    /// What of the journal could not be replayed.
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

    /// What was found damaged or missing when it was opened, so that what is read may not be the newest, nor everything.
    pub fn defects(&self) -> &[String] {
        &self.defects
    }

    /// Why `e2fsck` is to run before it is changed; `None` where it cannot be changed.
    pub fn check_reason(&self) -> Option<CheckReason> {
        if self.read_only_reason().is_some() {
            None
        } else {
            self.core.format.check_reason(self.now().seconds)
        }
    }

    /// What of the journal could not be replayed, or read at all: the volume is shown as it was before that, and is not written.
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

    /// What the volume uses.
    pub fn features(&self) -> Features {
        self.core.features()
    }

    /// Whether files may lie in their inodes.
    pub fn has_inline_data(&self) -> bool {
        self.features().has_incompat(Incompat::INLINE_DATA)
    }
}

//! Names for mounts, servers and tools. Programs that read and write files do not need them.
//!
//! Anything here may change in any release.

pub use diorite_arrays::array_of;
pub use diorite_block::{IoOwner, IoPriority, OwnerGuard, TaskId};
pub use diorite_device::OpenError;
pub use diorite_ext::layout::InodeFlags;
pub use diorite_ext::{
    AllocationPolicy, Clock, DirectoryEntry, LogUse, MmpWait, NamesVersion, ReservedBlocks,
    ReservedBlocksGuard, SuperblockBackup, SystemClock, TransactionStatus, VolumeInfo, VolumeStatus,
};
pub use diorite_scheduler::{ScheduledDevice, UnknownScheduler};

pub use crate::cache::engine::WriteBack;
pub use crate::cache::model::CacheModel;
pub use crate::open::bindings::RawBindings;
pub use crate::open::foreign::{ForeignFormat, foreign_format};
pub use crate::open::{
    TargetKind, array_read_only_reason, end_of_target, host_paths, is_new_file, kind_of_target, open_target,
};
pub use crate::store::pending_time::ContentTimes;
pub use crate::volume::status::{CacheUse, FilesystemStatus};
pub use crate::volume::volume_target::{open_volume_target, partitions_with_volumes};
pub use crate::volume::walk::SeenDirectories;
pub use crate::volume::what_is_on::what_is_on;

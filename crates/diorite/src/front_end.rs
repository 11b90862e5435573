//! What front ends need and programs do not: mounts, servers, and the command line.
//!
//! Anything here may change in any release.

pub use diorite_arrays::array_of;
pub use diorite_device::{LockHolder, Partition, has_partitions, partitions};
pub use diorite_ext::{
    LogUse, MmpWait, NamesVersion, ReservedBlocksGuard, SuperblockBackup, TransactionStatus, VolumeStatus,
};

pub use crate::handle::options::ContentTimes;
pub use crate::open::bindings::RawBindings;
pub use crate::open::foreign::{ForeignFormat, foreign_content, foreign_format};
pub use crate::open::{
    TargetKind, array_read_only_reason, end_of_target, host_paths, is_new_file, kind_of_target,
};
pub use crate::volume::volume_target::{open_volume_target, partitions_with_volumes};
pub use crate::volume::walk::SeenDirectories;
pub use crate::volume::what_is_on::what_is_on;

//! What front ends need and programs do not: mounts, servers, and the command line.
//!
//! Anything here may change in any release.

pub use diorite_device::{
    ForeignFormat, LockHolder, Partition, RawBindings, TargetKind, array_of, array_read_only_reason,
    end_of_target, foreign_content, foreign_format, has_partitions, host_paths, is_new_file, kind_of_target,
    partitions,
};
pub use diorite_ext::{
    LogUse, MmpWait, NamesVersion, ReservedBlocksGuard, SuperblockBackup, TransactionStatus, VolumeStatus,
};

pub use crate::handle::options::ContentTimes;
pub use crate::volume::volume_target::{open_volume_target, partitions_with_volumes};
pub use crate::volume::walk::SeenDirectories;
pub use crate::volume::what_is_on::what_is_on;

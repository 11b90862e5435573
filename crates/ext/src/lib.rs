//! ext2, ext3 and ext4 on a block device: format, metadata, allocation, mapping, names, and consistency.
//!
//! This crate owns everything that is on the disk except file data: it says where a file's data is
//! ([`Volume::map`]), keeps blocks for data that is about to be written ([`Volume::reserve`]) and records them when
//! it has been written ([`Volume::commit_write`]). It has no threads and never touches file data, except
//! data that lives in the inode.
//!
//! Locking (outer first): the volume's rename lock; inode locks, directories by number, then others by
//! number (who holds one directory waits for no other); then a transaction handle; then, as leaves, allocator groups and
//! buffers. A thread that has a handle takes no inode lock.

mod allocate;
mod buffer;
mod directory;
mod error;
mod info;
mod inode;
mod journal;
mod map;
mod memory;
mod names;
mod quota;
mod transaction;
mod types;
mod volume;
mod xattr;

pub mod check;
pub mod layout;
pub mod mkfs;

pub use error::{Corrupt, Error, Incompatible, Result};
pub use info::{VolumeInfo, read_descriptors, read_superblock};
pub use inode::{Attributes, Inode, SetAttributes, SetTime};
pub(crate) use types::BlockRun;
pub use types::{
    BlockSize, Clock, FileBlock, FileKind, FsBlock, GroupNumber, InodeNumber, NodeSpec, Owner, SystemClock,
    Timestamp,
};
pub use volume::{
    Access, Claim, DataMode, DirectoryEntry, Mapping, MappingKind, QuotaLimits, RenameMode, Reservation,
    ReservedBlocks, ReservedRun, SpaceUse, SyncKind, Volume, VolumeOptions, WriteCommit, XattrMode,
};

//! An open ext2, ext3 or ext4 volume on a block device: metadata buffers, transactions, journal, allocation, mapping, names.
//!
//! The on-disk format is the crate `diorite-ext-format`. This crate owns all of it except file data: it maps where a file's data is
//! ([`Files::map`]), keeps blocks for data that is about to be written ([`Files::reserve`]) and records them when
//! it has been written ([`Files::commit_write`]). It has no threads and never touches file data, except
//! data that lives in the inode.
//!
//! Each feature that a default image does not have is in one module, which the other modules call through a hook:
//!
//! | feature | module | hook |
//! | --- | --- | --- |
//! | quota | `quota` | [`Quotas`]: `check`, `prepare`, `settle` |
//! | MMP | `mmp` | `Mmp::acquire` when opened, `check_mmp` when a handle begins, [`Volume::mmp_tick`] |
//! | bigalloc | `map::cluster`, `allocate::holds` | `Mappings::clusters`: `hold`, `record`, `free` whole clusters for parts of them |
//! | casefold, encrypted names | `directory::form` | `NameForm`: the key and the shown form of a name |
//! | fast-commit replay | `volume::journal` | when opened; `FastReplay` |
//! | verity, encrypted content | `inode::content_use` | `check_verity`, `check_encrypted` |
//!
//! Locking: in the order of [`Rank`](diorite_block::sync::Rank). Of several inodes, directories are locked first, by number, and
//! then the others, by number (a thread that holds one directory waits for no other). Then a transaction handle begins; a thread that
//! has one takes no inode lock.

mod allocate;
mod attribute_areas;
mod base;
mod block_map;
mod block_reader;
mod buffer;
mod dentry_cache;
mod directory;
mod error;
mod file;
mod info;
mod inode;
mod inodes;
mod lifecycle;
mod map;
mod mmp;
mod names;
mod quota;
mod runs;
mod transaction;
mod types;
mod volume;
mod xattr;

pub use allocate::{AllocationPolicy, ReservedBlocks, ReservedBlocksGuard, Trim};
pub use block_map::{MapSink, walk_map};
pub use block_reader::{BlockBytes, BlockRange, BlockReader};
pub use diorite_ext_format as layout;
pub use diorite_ext_format::{
    BlockSize, Corrupt, DataMode, FileBlock, FileKind, FsBlock, GroupNumber, Incompatible, InodeNumber,
    Owner, Timestamp,
};
pub(crate) use diorite_journal::BlockRun;
pub use diorite_journal::{Clock, SystemClock, memory};
pub use directory::EntryBatch;
pub use error::{Error, Result};
pub use file::Files;
pub use info::{VolumeInfo, read_descriptors};
pub use inode::{Attributes, ContentUse, Inode, NamesVersion, SetAttributes};
pub use inodes::InodeStore;
pub use lifecycle::Lifecycle;
pub use names::Names;
pub use quota::Quotas;
pub use types::{
    Access, Claim, DirectoryEntry, Mapping, MappingKind, MmpWait, MmpWatch, NodeSpec, QuotaLimits,
    RenameMode, Reservation, ReservedRun, SetTime, SpaceUse, SyncKind, VolumeOptions, WriteCommit, XattrMode,
};
pub use volume::journal::replay_in_memory;
pub use volume::superblock::{SuperblockBackup, find_superblock, read_superblock};
pub use volume::{LogUse, TransactionStatus, Volume, VolumeStatus};
pub use xattr::Xattrs;

//! The on-disk format of ext2, ext3 and ext4 volumes: parse, validate, serialise, checksums. No I/O, no caches, no state.
//!
//! One module for each on-disk concept. Everything is a pure function of bytes that the caller has read. Numbers are checked once,
//! when a structure is parsed, and are typed values from then on; bytes that no field describes survive a write. An invalid structure
//! is a [`Corrupt`] with coordinates; a valid one that is newer than this crate is [`Incompatible`] with its name. Source of
//! the format: the kernel's `Documentation/filesystems/ext4`.
//!
//! - the volume: [`superblock`] with the [`Layout`] derived from it, [`features`], [`group_descriptor`], [`checksum`]
//! - files: [`mod@inode`], [`extent`], [`xattr`], [`orphan`]
//! - directories: [`directory`], [`htree`], [`hash`], [`casefold`]
//! - optional features: [`quota`], [`mmp`]; and the log: [`journal`] (jbd2)
//!
//! ```
//! use diorite_ext_format::{Corrupt, Error, FsBlock, GroupNumber, Layout, Superblock};
//!
//! // A superblock is 1024 bytes at byte 1024 of a volume. This one: 8192 blocks of 1 KiB in one group.
//! let mut bytes = [0; 1024];
//! for (offset, value) in [(0x00, 1024_u32), (0x04, 8192), (0x14, 1), (0x20, 8192), (0x24, 8192), (0x28, 1024)] {
//!     bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
//! }
//! assert!(matches!(Superblock::parse(&bytes), Err(Error::Corrupt(Corrupt::Magic { found: 0 }))));
//! bytes[0x38..0x3a].copy_from_slice(&0xef53_u16.to_le_bytes());
//!
//! let superblock = Superblock::parse(&bytes)?;
//! let layout = Layout::new(&superblock);
//! assert_eq!((superblock.blocks_count(), superblock.block_size().bytes()), (8192, 1024));
//! assert_eq!(layout.group_of(FsBlock(5000)), Some(GroupNumber(0)));
//! assert_eq!(superblock.block_size().address_of(layout.descriptor_block(0)), 2048);
//! # Ok::<(), Error>(())
//! ```
#![warn(clippy::missing_errors_doc)]

mod block_kind;
pub mod casefold;
pub mod checksum;
pub mod directory;
mod error;
pub mod extent;
pub mod features;
pub mod group_descriptor;
pub mod hash;
pub mod htree;
pub mod inode;
mod inode_flags;
pub mod journal;
pub mod mmp;
pub mod orphan;
pub mod quota;
pub mod superblock;
mod types;
pub mod xattr;

pub use block_kind::{BlockKind, Role};
pub use checksum::ChecksumSeed;
pub use error::{Corrupt, Error, Incompatible, Result, elsewhere, uuid_text};
pub use features::{Compat, Features, Incompat, RoCompat};
pub use group_descriptor::{GroupDescriptor, GroupFlags};
pub use inode::{DiskInode, InodeFlags};
pub use quota::{QuotaEntry, QuotaKind};
pub use superblock::{InodeLocation, Layout, Superblock};
pub use types::{
    BlockSize, DataMode, FileBlock, FileKind, FsBlock, GroupNumber, InodeNumber, Owner, Timestamp,
};

/// Little-endian 16-bit number at a byte offset, if it is inside.
pub fn try_le16(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes.get(offset..)?.first_chunk().map(|b| u16::from_le_bytes(*b))
}

/// Little-endian 32-bit number at a byte offset, if it is inside.
pub fn try_le32(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

/// Little-endian 16-bit number at a byte offset; 0 beyond the end.
#[inline]
pub fn le16(bytes: &[u8], offset: usize) -> u16 {
    try_le16(bytes, offset).unwrap_or(0)
}

/// Little-endian 32-bit number at a byte offset; 0 beyond the end.
#[inline]
pub fn le32(bytes: &[u8], offset: usize) -> u32 {
    try_le32(bytes, offset).unwrap_or(0)
}

/// Whether all bytes are zero: by groups, because most bytes of tables and maps are.
pub fn is_zero(bytes: &[u8]) -> bool {
    let (groups, rest) = bytes.as_chunks::<32>();
    groups.iter().all(|group| *group == [0; 32]) && rest.iter().all(|byte| *byte == 0)
}

/// Store bytes at an offset that the caller knows to be inside.
pub fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
    bytes[offset..offset + value.len()].copy_from_slice(value);
}

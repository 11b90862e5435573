//! The on-disk structures, one file each: where their bytes are, what values they may have, and their checksums.
//!
//! Everything here is a pure function of bytes. Numbers are checked once, when a structure is parsed, and are
//! typed values from then on; bytes that no field describes survive a write. Source of the format:
//! the kernel's `Documentation/filesystems/ext4`.

pub mod casefold;
pub mod checksum;
pub mod directory;
mod error;
pub mod extent;
pub mod features;
pub mod geometry;
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

pub use checksum::ChecksumSeed;
pub use error::{Corrupt, Error, Incompatible, Result, elsewhere};
pub use features::{Compat, Features, Incompat, RoCompat};
pub use geometry::{InodeLocation, Layout};
pub use group_descriptor::{GroupDescriptor, GroupFlags};
pub use inode::{DiskInode, InodeFlags};
pub use quota::{QuotaEntry, QuotaKind};
pub use superblock::Superblock;
pub use types::{
    BlockSize, DataMode, FileBlock, FileKind, FsBlock, GroupNumber, InodeNumber, Owner, Timestamp,
};

/// Little-endian 16-bit number at a byte offset; 0 beyond the end.
pub fn le16(bytes: &[u8], offset: usize) -> u16 {
    bytes.get(offset..).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_le_bytes(*b))
}

/// Little-endian 32-bit number at a byte offset; 0 beyond the end.
pub fn le32(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

/// Store bytes at an offset that the caller knows to be inside.
pub fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
    bytes[offset..offset + value.len()].copy_from_slice(value);
}

//! An inode in memory.

use std::sync::atomic::AtomicU32;

use diorite_block::sync::RwLock;

use crate::{FileKind, InodeNumber, Owner, Timestamp};

/// An inode that is in use: shared by everyone who has it open or works on it.
#[derive(Debug)]
pub struct Inode {
    number: InodeNumber,
    kind: FileKind,
    /// Handles of users; the inode of a removed file is freed when the last one is closed.
    #[expect(dead_code, reason = "skeleton")]
    pub(crate) opens: AtomicU32,
    #[expect(dead_code, reason = "skeleton")]
    pub(crate) state: RwLock<()>,
}

impl Inode {
    /// Its number.
    pub fn number(&self) -> InodeNumber {
        self.number
    }

    /// What it is; never changes.
    pub fn kind(&self) -> FileKind {
        self.kind
    }
}

/// What `stat` tells of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Number.
    pub inode: InodeNumber,
    /// Kind.
    pub kind: FileKind,
    /// Permission bits: 12 bits.
    pub permissions: u16,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub owner: Owner,
    /// Size in bytes, as recorded on the volume.
    pub size: u64,
    /// Sectors of 512 bytes allocated, metadata of the mapping included.
    pub sectors: u64,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of content.
    pub modified: Timestamp,
    /// Last change of the inode.
    pub changed: Timestamp,
    /// Creation, where the inode is large enough to say.
    pub created: Option<Timestamp>,
    /// Major and minor number of a device node.
    pub device: (u32, u32),
    /// Inode flags as `lsattr` shows them (`EXT4_*_FL`).
    pub flags: u32,
    /// Generation, for NFS-like handles.
    pub generation: u32,
    /// Project.
    pub project: u32,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The volume's clock.
    Now,
    /// This time.
    To(Timestamp),
}

/// Changes of an inode's attributes; `None` leaves a field. The size is changed by [`crate::Volume::truncate`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits: 12 bits.
    pub permissions: Option<u16>,
    /// User.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub accessed: Option<SetTime>,
    /// Last change of content.
    pub modified: Option<SetTime>,
    /// Flags as `chattr` sets them.
    pub flags: Option<u32>,
}

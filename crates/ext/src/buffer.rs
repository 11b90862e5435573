//! Kinds of metadata blocks. The blocks in memory are those of [`diorite_journal::buffer`].

use diorite_journal::buffer::{self, Role};

use crate::{GroupNumber, InodeNumber};

pub(crate) use diorite_journal::buffer::{Buffer, BufferCache, Checksums, READ_AHEAD_BLOCKS_MAX};

/// Kind of a metadata block: how it is verified after a read and completed before a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// Nothing to verify: indirect blocks, symbolic link targets, the resize inode's blocks.
    Plain,
    /// The block with the superblock in it.
    Superblock,
    /// A block of group descriptors; `.0` is its index in the descriptor table. Its content is made from the group
    /// table before it is written.
    GroupDescriptors(u32),
    /// A group's block bitmap; its checksum is in the group's descriptor.
    BlockBitmap(GroupNumber),
    /// A group's inode bitmap; its checksum is in the group's descriptor.
    InodeBitmap(GroupNumber),
    /// Inodes; each carries its own checksum, made when the inode is stored.
    InodeTable,
    /// A block of a directory: entries, or a root or node of its index (distinguished by content).
    Directory {
        /// The directory.
        inode: InodeNumber,
        /// Its generation.
        generation: u32,
    },
    /// A node of an extent tree outside the inode.
    ExtentNode {
        /// The file.
        inode: InodeNumber,
        /// Its generation.
        generation: u32,
    },
    /// An extended attribute block.
    Xattr,
    /// A block of the orphan file.
    OrphanFile {
        /// The orphan file's inode.
        inode: InodeNumber,
        /// Its generation.
        generation: u32,
    },
}

impl From<BlockKind> for buffer::BlockKind {
    fn from(kind: BlockKind) -> Self {
        let node = |tag| Self { role: Role::Node, tag };
        match kind {
            BlockKind::Plain => Self::PLAIN,
            BlockKind::Superblock => Self { role: Role::Summary, tag: [1, 0, 0] },
            BlockKind::GroupDescriptors(index) => Self { role: Role::Derived, tag: [2, index, 0] },
            BlockKind::BlockBitmap(group) => node([3, group.0, 0]),
            BlockKind::InodeBitmap(group) => node([4, group.0, 0]),
            BlockKind::InodeTable => Self { role: Role::Table, tag: [5, 0, 0] },
            BlockKind::Directory { inode, generation } => node([6, inode.0, generation]),
            BlockKind::ExtentNode { inode, generation } => node([7, inode.0, generation]),
            BlockKind::Xattr => node([8, 0, 0]),
            BlockKind::OrphanFile { inode, generation } => node([9, inode.0, generation]),
        }
    }
}

impl From<buffer::BlockKind> for BlockKind {
    fn from(kind: buffer::BlockKind) -> Self {
        let [code, number, generation] = kind.tag;
        let inode = InodeNumber(number);
        match code {
            1 => Self::Superblock,
            2 => Self::GroupDescriptors(number),
            3 => Self::BlockBitmap(GroupNumber(number)),
            4 => Self::InodeBitmap(GroupNumber(number)),
            5 => Self::InodeTable,
            6 => Self::Directory { inode, generation },
            7 => Self::ExtentNode { inode, generation },
            8 => Self::Xattr,
            9 => Self::OrphanFile { inode, generation },
            _ => Self::Plain,
        }
    }
}

//! Kinds of metadata blocks.

use crate::{GroupNumber, InodeNumber};

/// When a metadata block is completed and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It refers to other blocks, or to none.
    Node,
    /// All blocks are found through it, as through a table of inodes: in place it is written after the blocks that it refers to.
    Table,
    /// As [`Role::Table`], with checksums or counts of other blocks in it: it is completed last.
    Summary,
    /// As [`Role::Summary`], and its content is made of memory, under locks of the filesystem's that are taken after the block's own.
    Derived,
}

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

impl BlockKind {
    /// When a block of this kind is completed and written.
    pub fn role(self) -> Role {
        match self {
            Self::Superblock => Role::Summary,
            Self::GroupDescriptors(_) => Role::Derived,
            Self::InodeTable => Role::Table,
            _ => Role::Node,
        }
    }
}

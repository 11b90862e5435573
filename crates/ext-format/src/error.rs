//! Errors in the bytes of a volume.

use crate::{FileBlock, FsBlock, InodeNumber};

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error in the bytes of a volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// They contradict themselves.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// They are sound but use something that this program does not.
    #[error(transparent)]
    Incompatible(#[from] Incompatible),
}

/// A contradiction on the disk, with the place where it was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// No superblock.
    #[error(
        "not an ext2, ext3 or ext4 volume: the magic number at byte 1080 is {found:#06x} in place of 0xef53"
    )]
    Magic {
        /// The value found.
        found: u16,
    },
    /// A superblock field with a value that cannot be.
    #[error("superblock: {field} is {value}, {why}")]
    Superblock {
        /// Field, as the kernel's documentation calls it.
        field: &'static str,
        /// Its value.
        value: u64,
        /// Why that cannot be.
        why: &'static str,
    },
    /// A group descriptor with a value that cannot be.
    #[error("group {group}: {what}")]
    Group {
        /// The group.
        group: u32,
        /// The damage.
        what: &'static str,
    },
    /// An inode with a value that cannot be.
    #[error("inode {inode}: {what}")]
    Inode {
        /// The inode.
        inode: InodeNumber,
        /// The damage.
        what: &'static str,
    },
    /// A directory block with an entry that cannot be.
    #[error("directory inode {inode}, block {block}, offset {offset}: {what}")]
    Directory {
        /// The directory.
        inode: InodeNumber,
        /// The block of the directory.
        block: u64,
        /// Byte in that block.
        offset: u32,
        /// The damage.
        what: &'static str,
    },
    /// A mapping that points where no data can be, or does not fit together.
    #[error("inode {inode}: mapping at file block {file_block}: {what}")]
    Map {
        /// The inode.
        inode: InodeNumber,
        /// The place in the file.
        file_block: u64,
        /// The damage.
        what: &'static str,
    },
    /// An address outside of the volume.
    #[error("block {block} is not on the volume")]
    Address {
        /// The address.
        block: FsBlock,
    },
    /// A block that two structures claim.
    #[error("block {block} is used twice")]
    SharedBlock {
        /// The block.
        block: FsBlock,
    },
    /// A block whose checksum does not match its content.
    #[error("block {block}: {what} checksum does not match")]
    Checksum {
        /// The block.
        block: FsBlock,
        /// The kind of block.
        what: &'static str,
    },
    /// An extended attribute area that does not fit together.
    #[error("inode {inode}: extended attributes: {what}")]
    Xattr {
        /// The inode.
        inode: InodeNumber,
        /// The damage.
        what: &'static str,
    },
    /// An invalid block of multi-mount protection.
    #[error("block {block}: {what}")]
    Mmp {
        /// The block.
        block: FsBlock,
        /// The damage.
        what: &'static str,
    },
    /// A journal that does not fit together.
    #[error("journal block {block}: {what}")]
    Journal {
        /// Block within the journal.
        block: u64,
        /// The damage.
        what: &'static str,
    },
}

impl Corrupt {
    /// A mapping that cannot be.
    pub fn map(inode: InodeNumber, at: FileBlock, what: &'static str) -> Self {
        Self::Map { inode, file_block: at.0, what }
    }
}

/// Something sound that this program does not handle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Incompatible {
    /// Feature flags that must be understood to read the volume.
    #[error("the volume uses features that are not supported: {names}")]
    Features {
        /// Their names, as `mke2fs` spells them.
        names: String,
    },
    /// A revision that does not exist yet.
    #[error("revision {0} of the format is not known")]
    Revision(u32),
    /// A device whose logical block is larger than the filesystem's.
    #[error(
        "blocks of {block_size} bytes cannot be read from a device with logical blocks of {logical} bytes; \
         open it with direct I/O `preferred` or `off` (without --direct)"
    )]
    LogicalBlock {
        /// Of the filesystem.
        block_size: u64,
        /// Of the device.
        logical: u32,
    },
    /// The journal must be replayed first, and is on another device.
    #[error("{}; it must be replayed first: e2fsck -y does, or a mount by the kernel, with that device there", elsewhere(uuid, *device))]
    ExternalJournal {
        /// The journal's UUID.
        uuid: [u8; 16],
        /// Number of the device that it was on last, as the superblock has it.
        device: u32,
    },
    /// No volume, but the journal of one.
    #[error(
        "it is a journal, with UUID {}, not a filesystem; open the volume that it belongs to",
        uuid_text(uuid)
    )]
    JournalDevice {
        /// The journal's UUID.
        uuid: [u8; 16],
    },
    /// Anything else, named.
    #[error("{0}")]
    Other(&'static str),
}

impl Incompatible {
    /// Fast commits of such files are not replayed here.
    pub const FAST_COMMIT_WITHOUT_EXTENTS: Self = Self::Other(
        "the journal holds a fast commit of a file that is not mapped by extents: let e2fsck replay it",
    );
}

/// The place of a volume's journal, if it is not in the volume.
pub fn elsewhere(uuid: &[u8; 16], device: u32) -> String {
    let text = format!("its journal is on another device, the one with UUID {}", uuid_text(uuid));
    // Eight bits of the minor number, then the major number, then the rest of the minor.
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00);
    if device == 0 { text } else { format!("{text} (last {major}:{minor})") }
}

/// A UUID in the usual form.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    uuid::Uuid::from_bytes(*uuid).to_string()
}

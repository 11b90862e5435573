//! The flags of an inode.

use bitflags::bitflags;

bitflags! {
    /// `i_flags`, as `lsattr` shows them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct InodeFlags: u32 {
        /// Secure deletion.
        const SECURE_DELETION = 0x1;
        /// Undelete.
        const UNDELETE = 0x2;
        /// Compressed.
        const COMPRESSED = 0x4;
        /// Synchronous updates.
        const SYNC = 0x8;
        /// May not be changed.
        const IMMUTABLE = 0x10;
        /// Writes append only.
        const APPEND = 0x20;
        /// Not dumped.
        const NO_DUMP = 0x40;
        /// Access time is not kept.
        const NO_ATIME = 0x80;
        /// Encrypted.
        const ENCRYPTED = 0x800;
        /// The directory has a hash tree.
        const INDEX = 0x1000;
        /// AFS.
        const IMAGIC = 0x2000;
        /// Data goes through the journal.
        const JOURNAL_DATA = 0x4000;
        /// Tails are not merged.
        const NO_TAIL = 0x8000;
        /// Synchronous directory.
        const DIR_SYNC = 0x1_0000;
        /// Top of a directory hierarchy, for the allocator.
        const TOP_DIR = 0x2_0000;
        /// The sector count is in blocks.
        const HUGE_FILE = 0x4_0000;
        /// Mapped by extents.
        const EXTENTS = 0x8_0000;
        /// A Merkle tree follows the data.
        const VERITY = 0x10_0000;
        /// The inode holds the value of an extended attribute.
        const EA_INODE = 0x20_0000;
        /// Blocks beyond the end of the file.
        const EOF_BLOCKS = 0x40_0000;
        /// A snapshot.
        const SNAPSHOT = 0x100_0000;
        /// DAX.
        const DAX = 0x200_0000;
        /// The content is in the inode.
        const INLINE_DATA = 0x1000_0000;
        /// New files inherit the project.
        const PROJECT_INHERIT = 0x2000_0000;
        /// Names ignore case.
        const CASEFOLD = 0x4000_0000;
    }
}

impl InodeFlags {
    /// Flags that a new file inherits from its directory.
    pub const INHERITED: Self = Self::SECURE_DELETION
        .union(Self::UNDELETE)
        .union(Self::COMPRESSED)
        .union(Self::SYNC)
        .union(Self::NO_DUMP)
        .union(Self::NO_ATIME)
        .union(Self::NO_TAIL)
        .union(Self::JOURNAL_DATA)
        .union(Self::DIR_SYNC)
        .union(Self::PROJECT_INHERIT)
        .union(Self::CASEFOLD)
        .union(Self::DAX);

    /// Flags that a user may change.
    pub const USER_SETTABLE: Self = Self::SECURE_DELETION
        .union(Self::UNDELETE)
        .union(Self::COMPRESSED)
        .union(Self::SYNC)
        .union(Self::IMMUTABLE)
        .union(Self::APPEND)
        .union(Self::NO_DUMP)
        .union(Self::NO_ATIME)
        .union(Self::JOURNAL_DATA)
        .union(Self::NO_TAIL)
        .union(Self::DIR_SYNC)
        .union(Self::TOP_DIR)
        .union(Self::PROJECT_INHERIT)
        .union(Self::DAX)
        .union(Self::CASEFOLD);

    /// Flags that a user may pass, with or without effect (`EXT4_FL_USER_VISIBLE`): others are rejected.
    pub const USER_KNOWN: Self = Self::from_bits_retain(0x725b_dfff);

    /// Flags of directories only.
    pub const OF_DIRECTORIES: Self =
        Self::DIR_SYNC.union(Self::TOP_DIR).union(Self::PROJECT_INHERIT).union(Self::CASEFOLD);

    /// Content that cannot be used in place (DAX).
    pub const NOT_IN_PLACE: Self =
        Self::ENCRYPTED.union(Self::JOURNAL_DATA).union(Self::VERITY).union(Self::INLINE_DATA);
}

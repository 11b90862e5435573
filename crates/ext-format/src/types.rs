//! Numbers with a unit or an origin, and the small enums of the format.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A block of the filesystem: an address on the volume in units of the volume's block size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FsBlock(pub u64);

/// A block of a file, counted from the file's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileBlock(pub u64);

/// A block group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupNumber(pub u32);

/// An inode's number; the first is 1, the root directory is 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeNumber(pub u32);

impl InodeNumber {
    /// The root directory.
    pub const ROOT: Self = Self(2);
    /// Space reserved for growth of the group descriptors.
    pub const RESIZE: Self = Self(7);
}

impl fmt::Display for InodeNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for FsBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The size of a filesystem block: a power of two from 1 to 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockSize(u8);

impl BlockSize {
    /// The block size of `bytes`, if ext allows it.
    pub const fn new(bytes: u32) -> Option<Self> {
        if bytes.is_power_of_two() && bytes >= 1024 && bytes <= 65536 {
            Some(Self(bytes.trailing_zeros() as u8))
        } else {
            None
        }
    }

    /// Bytes in a block.
    pub const fn bytes(self) -> u64 {
        1 << self.0
    }

    /// Base-two logarithm of the size in bytes: 10 to 16.
    pub const fn log2(self) -> u32 {
        self.0 as u32
    }

    /// The byte at which a block starts on the volume; saturates for numbers that no device can have.
    pub const fn address_of(self, block: FsBlock) -> u64 {
        block.0.saturating_mul(self.bytes())
    }

    /// Blocks that `bytes` need, rounded up.
    pub const fn blocks_for(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.bytes())
    }

    /// The file block that holds the byte at `offset`.
    pub const fn block_of(self, offset: u64) -> FileBlock {
        FileBlock(offset >> self.0)
    }

    /// The byte offset at which a file block starts; saturates.
    pub const fn offset_of(self, block: FileBlock) -> u64 {
        block.0.saturating_mul(self.bytes())
    }
}

/// Kind of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl FileKind {
    /// Each kind with the upper four bits of its mode.
    const MODES: [(Self, u16); 7] = [
        (Self::Fifo, 0x1),
        (Self::CharacterDevice, 0x2),
        (Self::Directory, 0x4),
        (Self::BlockDevice, 0x6),
        (Self::Regular, 0x8),
        (Self::Symlink, 0xa),
        (Self::Socket, 0xc),
    ];

    /// The kind in the upper four bits of a mode; `None` for values that are no kind.
    pub fn from_mode(mode: u16) -> Option<Self> {
        Self::MODES.iter().find(|(_, bits)| *bits == mode >> 12).map(|(kind, _)| *kind)
    }

    /// The upper four bits of a mode for this kind.
    pub fn mode_bits(self) -> u16 {
        Self::MODES.iter().find(|(kind, _)| *kind == self).map_or(0, |(_, bits)| bits << 12)
    }
}

/// Seconds since 1970 and nanoseconds, as ext4 can store: years 1901 to 2446 in large inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// The time from `earlier` to this one; `None` if that is not earlier, or too long to tell.
    pub fn since(self, earlier: Self) -> Option<Duration> {
        let seconds = u64::try_from(self.seconds.checked_sub(earlier.seconds)?).ok()?;
        let whole = Duration::from_secs(seconds) + Duration::from_nanos(self.nanoseconds.into());
        whole.checked_sub(Duration::from_nanos(earlier.nanoseconds.into()))
    }
}

impl From<Timestamp> for SystemTime {
    /// A time that the host cannot have is 1970.
    fn from(time: Timestamp) -> Self {
        let seconds = Duration::from_secs(time.seconds.unsigned_abs());
        let whole =
            if time.seconds < 0 { UNIX_EPOCH.checked_sub(seconds) } else { UNIX_EPOCH.checked_add(seconds) };
        let nanoseconds = Duration::from_nanos(time.nanoseconds.into());
        whole.and_then(|whole| whole.checked_add(nanoseconds)).unwrap_or(UNIX_EPOCH)
    }
}

/// User and group of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Journal mode of file data (`data=` of a mount).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataMode {
    /// Data is in its place before the metadata that makes it readable is committed.
    #[default]
    Ordered,
    /// Nothing. Data is in its place before its metadata all the same, since that costs nothing here.
    Writeback,
    /// Data goes through the log, in other implementations. Here it goes to its place before its metadata, and through
    /// the page cache: such files are not open for direct I/O, as in the kernel.
    Journal,
}

//! What can go wrong in a filesystem.

use diorite_block::IoError;

use crate::{FsBlock, InodeNumber};

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong: the medium, the format, or the request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The volume contradicts itself.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The volume is sound but uses something that this program does not.
    #[error(transparent)]
    Incompatible(#[from] Incompatible),
    /// No entry of that name.
    #[error("no such file or directory")]
    NotFound,
    /// The file was removed since it was looked up, and nobody has it open: look its name up again.
    #[error("the file was removed meanwhile")]
    Stale,
    /// The name is taken.
    #[error("it exists already")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotADirectory,
    /// Anything but a directory was needed.
    #[error("is a directory")]
    IsADirectory,
    /// The directory has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// No free block or inode is left.
    #[error("no space left on the volume")]
    NoSpace,
    /// Another host has the volume open, or e2fsck works on it (multi-mount protection).
    #[error("{}", in_use_text(*by_check, node, device, *time))]
    InUse {
        /// Whether it is e2fsck.
        by_check: bool,
        /// The host.
        node: String,
        /// The device there.
        device: String,
        /// When it said so last: seconds since 1970.
        time: u64,
    },
    /// A limit in the volume's quota files is reached.
    #[error("quota exceeded: {kind} {id} may have no more {what}")]
    QuotaExceeded {
        /// Whose.
        kind: &'static str,
        /// The number of the user, group or project.
        id: u32,
        /// Of what: `space` or `inodes`.
        what: &'static str,
    },
    /// The directory hands its project on to what is in it, and the file belongs to another.
    #[error("the directory belongs to another project, which all its files have")]
    OtherProject,
    /// Content, or names, are encrypted, and there is no key.
    #[error("inode {inode} is encrypted, and there is no key for it here")]
    Encrypted {
        /// The file or directory.
        inode: InodeNumber,
    },
    /// The inode has as many links as the format can count.
    #[error("too many links")]
    TooManyLinks,
    /// A name longer than 255 bytes, or a symbolic link longer than a block.
    #[error("name too long")]
    NameTooLong,
    /// The format cannot address that offset.
    #[error("file too large: this file can have at most {max_bytes} bytes")]
    FileTooLarge {
        /// The largest size of this file.
        max_bytes: u64,
    },
    /// The volume is open read-only.
    #[error("the volume is read-only: {0}")]
    ReadOnly(String),
    /// A write to the volume failed earlier; nothing more is written until it is opened again.
    #[error("the volume was shut down after an earlier write failed; open it again after checking it")]
    Aborted,
    /// The argument makes no sense for this object.
    #[error("{0}")]
    InvalidArgument(&'static str),
    /// This operation is not available on this file or volume.
    #[error("{0}")]
    Unsupported(&'static str),
    /// No extended attribute of that name.
    #[error("no such extended attribute")]
    NoAttribute,
    /// Extended attributes do not fit.
    #[error("no room for the extended attribute")]
    AttributeTooLarge,
    /// A file that is marked immutable or append-only.
    #[error("operation not permitted: the file is marked {0}")]
    NotPermitted(&'static str),
}

impl Error {
    /// The `errno` that says the same.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Io(error) => error.kind.errno(),
            Self::Corrupt(_) => 117,
            Self::Incompatible(_) | Self::Unsupported(_) => 95,
            Self::NotFound => 2,
            Self::Stale => 116,
            Self::Exists => 17,
            Self::NotADirectory => 20,
            Self::IsADirectory => 21,
            Self::NotEmpty => 39,
            Self::NoSpace | Self::AttributeTooLarge => 28,
            Self::InUse { .. } => 16,
            Self::QuotaExceeded { .. } => 122,
            Self::OtherProject => 18,
            Self::Encrypted { .. } => 126,
            Self::TooManyLinks => 31,
            Self::NameTooLong => 36,
            Self::FileTooLarge { .. } => 27,
            Self::ReadOnly(_) => 30,
            Self::Aborted => 5,
            Self::InvalidArgument(_) => 22,
            Self::NoAttribute => 61,
            Self::NotPermitted(_) => 1,
        }
    }
}

/// Where a volume's journal is, if not in it.
pub(crate) fn elsewhere(uuid: &[u8; 16], device: u32) -> String {
    let text = format!("its journal is on another device, the one with UUID {}", uuid_text(uuid));
    // Eight bits of the minor number, then the major number, then the rest of the minor.
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00);
    if device == 0 { text } else { format!("{text} (last {major}:{minor})") }
}

/// A UUID in the usual form.
fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in uuid.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.extend(
            [byte >> 4, byte & 15].into_iter().filter_map(|digit| char::from_digit(u32::from(digit), 16)),
        );
    }
    text
}

fn in_use_text(by_check: bool, node: &str, device: &str, time: u64) -> String {
    let who = if by_check { "e2fsck on " } else { "" };
    let cure = if by_check {
        "let it finish; if it does not run any more, tune2fs -f -E clear_mmp clears the mark"
    } else {
        "close or unmount it there first"
    };
    let (days, of_day) = (time / 86_400, time % 86_400);
    let (year, month, day) = date_of(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!(
        "in use by {who}{node} ({device}), last updated \
         {year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC; {cure}"
    )
}

/// Year, month and day of a day counted from 1970-01-01.
fn date_of(days: u64) -> (u64, u64, u64) {
    // Counted from March 0000, so that the leap day is a year's last: eras of 400 years have 146,097 days.
    let days = days.saturating_add(719_468);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

/// A contradiction on the disk, with the place where it was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// No superblock.
    #[error(
        "not an ext2, ext3 or ext4 volume: the magic number at byte 1080 is {found:#06x} in place of 0xef53"
    )]
    Magic {
        /// What stands there.
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
        /// What is wrong.
        what: &'static str,
    },
    /// An inode with a value that cannot be.
    #[error("inode {inode}: {what}")]
    Inode {
        /// The inode.
        inode: InodeNumber,
        /// What is wrong.
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
        /// What is wrong.
        what: &'static str,
    },
    /// A mapping that points where no data can be, or does not fit together.
    #[error("inode {inode}: mapping at file block {file_block}: {what}")]
    Map {
        /// The inode.
        inode: InodeNumber,
        /// Where in the file.
        file_block: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// An address outside of the volume.
    #[error("block {block} is not on the volume")]
    Address {
        /// The address.
        block: FsBlock,
    },
    /// A block that two structures claim.
    #[error("block {block} is used for two things")]
    SharedBlock {
        /// The block.
        block: FsBlock,
    },
    /// A block whose checksum does not match its content.
    #[error("block {block}: {what} checksum does not match")]
    Checksum {
        /// The block.
        block: FsBlock,
        /// What kind of block it is.
        what: &'static str,
    },
    /// An extended attribute area that does not fit together.
    #[error("inode {inode}: extended attributes: {what}")]
    Xattr {
        /// The inode.
        inode: InodeNumber,
        /// What is wrong.
        what: &'static str,
    },
    /// A block of multi-mount protection that is none.
    #[error("block {block}: {what}")]
    Mmp {
        /// The block.
        block: FsBlock,
        /// What is wrong.
        what: &'static str,
    },
    /// A journal that does not fit together.
    #[error("journal block {block}: {what}")]
    Journal {
        /// Block within the journal.
        block: u64,
        /// What is wrong.
        what: &'static str,
    },
}

/// Something sound that this program does not handle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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
        "it is a journal, the one with UUID {}, and no filesystem; name the volume that it belongs to",
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
    pub(crate) const FAST_COMMIT_WITHOUT_EXTENTS: Self = Self::Other(
        "the journal holds a fast commit of a file that is not mapped by extents: let e2fsck replay it",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_volume_is_told_with_the_time_and_what_to_do() {
        let error = |by_check, time| {
            Error::InUse { by_check, node: "host".to_owned(), device: "sda1".to_owned(), time }.to_string()
        };
        assert_eq!(
            error(false, 1_709_210_096),
            "in use by host (sda1), last updated 2024-02-29 12:34:56 UTC; close or unmount it there first"
        );
        assert!(error(true, 951_868_800).contains("e2fsck on host (sda1), last updated 2000-03-01 00:00:00"));
        assert_eq!(date_of(0), (1970, 1, 1));
        assert_eq!(date_of(11_016), (2000, 2, 29));
        assert_eq!(date_of(364), (1970, 12, 31));
        let _ = error(false, u64::MAX);
    }
}

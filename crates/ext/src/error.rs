//! Errors of a filesystem.

use diorite_block::IoError;

use crate::{Corrupt, Incompatible, InodeNumber};

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of the medium, the format, or the request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
    /// The file was removed since it was looked up, and is not open: look its name up again.
    #[error("the file was removed in the meantime")]
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
    /// The caller ended a wait (see [`crate::MmpWatch`]).
    #[error("interrupted")]
    Interrupted,
    /// A limit in the volume's quota files is reached.
    #[error("quota exceeded: {kind} {id} has reached the limit of {what}")]
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
    #[error("inode {inode} is encrypted, and Diorite has no key for it")]
    Encrypted {
        /// The file or directory.
        inode: InodeNumber,
    },
    /// The inode has as many links as the format can count.
    #[error("too many links")]
    TooManyLinks,
    /// A name longer than 255 bytes.
    #[error("name too long: a name has at most 255 bytes")]
    NameTooLong,
    /// A symbolic link whose target does not fit into a block.
    #[error("the target of the link has {bytes} bytes, and can have at most {most} with blocks of this size")]
    LinkTooLong {
        /// The actual value.
        bytes: usize,
        /// The most.
        most: usize,
    },
    /// The format cannot address that offset.
    #[error("file too large: this file can have at most {max_bytes} bytes")]
    FileTooLarge {
        /// The largest size of this file.
        max_bytes: u64,
    },
    /// The volume is open read-only.
    #[error("the volume is read-only: {0}")]
    ReadOnly(String),
    /// A write to the volume failed while the operation was under way; nothing more is written until it is opened again.
    #[error("the volume was shut down after an earlier write failed; open it again after checking it")]
    Aborted,
    /// The process was forked from the process that opened the volume, which continues with changes that are unknown here.
    #[error(
        "it is open in the process that this one was forked from, which alone can change it; open it again in this process after it is closed there"
    )]
    Forked,
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
    #[error("no space for the extended attribute")]
    AttributeTooLarge,
    /// A flag or the kind of the file forbids it: immutable, append-only, a directory.
    #[error("operation not permitted: the file is {0}")]
    NotPermitted(&'static str),
}

impl From<diorite_journal::Error> for Error {
    fn from(error: diorite_journal::Error) -> Self {
        match error {
            diorite_journal::Error::Io(error) => Self::Io(error),
            diorite_journal::Error::Corrupt(corrupt) => Self::Corrupt(corrupt),
            diorite_journal::Error::Incompatible(incompatible) => Self::Incompatible(incompatible),
            diorite_journal::Error::Forked => Self::Forked,
            diorite_journal::Error::TooLarge => Self::Unsupported("a transaction is larger than the journal"),
            _ => Self::Aborted,
        }
    }
}

impl From<diorite_ext_format::Error> for Error {
    fn from(error: diorite_ext_format::Error) -> Self {
        match error {
            diorite_ext_format::Error::Corrupt(corrupt) => Self::Corrupt(corrupt),
            diorite_ext_format::Error::Incompatible(incompatible) => Self::Incompatible(incompatible),
        }
    }
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
            Self::Interrupted => 4,
            Self::QuotaExceeded { .. } => 122,
            Self::OtherProject => 18,
            Self::Encrypted { .. } => 126,
            Self::TooManyLinks => 31,
            Self::NameTooLong | Self::LinkTooLong { .. } => 36,
            Self::FileTooLarge { .. } => 27,
            Self::ReadOnly(_) => 30,
            Self::Aborted => 5,
            Self::InvalidArgument(_) => 22,
            Self::NoAttribute => 61,
            Self::NotPermitted(_) | Self::Forked => 1,
        }
    }
}

fn in_use_text(by_check: bool, node: &str, device: &str, time: u64) -> String {
    let who = if by_check { "e2fsck on " } else { "" };
    let cure = if by_check {
        "let it finish; if it no longer runs, tune2fs -f -E clear_mmp clears the mark"
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

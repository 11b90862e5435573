//! The tests of a search: each is true or false for an entry.

use std::os::unix::ffi::OsStrExt;

use diorite::{Attributes, ErrorKind, FileKind, Filesystem, InodeNumber, Result, Timestamp, WalkEntry};
use regex::bytes::Regex;

use crate::pattern::Pattern;

const SECONDS_OF_A_DAY: i64 = 86_400;

/// A test.
#[derive(Clone, Debug)]
pub(super) enum Test {
    Constant(bool),
    Name(Pattern),
    Path(Pattern),
    /// The whole path.
    Regex(Regex),
    /// The target of a symbolic link.
    LinkTarget(Pattern),
    Kind(Vec<FileKind>),
    /// The kind of the file that a symbolic link leads to, if there is one.
    TargetKind(Vec<FileKind>),
    /// The size, rounded up to units of these bytes.
    Size {
        number: Number,
        unit: u64,
    },
    Links(Number),
    Inode(Number),
    User(Number),
    Group(Number),
    /// A user without a name: the known numbers.
    NoUser(Vec<u32>),
    NoGroup(Vec<u32>),
    Empty,
    Permissions {
        wanted: u16,
        how: Fit,
    },
    /// The age in units of these seconds, rounded down.
    Age {
        time: Time,
        number: Number,
        unit: i64,
        now: Timestamp,
    },
    /// Later than this time.
    Newer {
        time: Time,
        than: Timestamp,
    },
    SameFile(InodeNumber),
    /// Has an extended attribute whose name fits.
    Attribute(Pattern),
}

/// `N`, `+N` or `-N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Exactly(u64),
    MoreThan(u64),
    LessThan(u64),
}

impl Number {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let number =
            |digits: &str| digits.parse().ok().filter(|_| digits.starts_with(|c: char| c.is_ascii_digit()));
        match text.as_bytes().first()? {
            b'+' => number(&text[1..]).map(Self::MoreThan),
            b'-' => number(&text[1..]).map(Self::LessThan),
            _ => number(text).map(Self::Exactly),
        }
    }

    fn fits(self, value: u64) -> bool {
        match self {
            Self::Exactly(number) => value == number,
            Self::MoreThan(number) => value > number,
            Self::LessThan(number) => value < number,
        }
    }

    /// As [`Number::fits`], for an age that may be in the future.
    fn fits_age(self, age: i64) -> bool {
        match self {
            Self::LessThan(_) if age < 0 => true,
            _ => u64::try_from(age).is_ok_and(|age| self.fits(age)),
        }
    }
}

/// How permissions are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Exactly,
    /// All wanted bits are set.
    All,
    /// One of the wanted bits is set, or none is wanted.
    Any,
}

/// One of the times of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    Accessed,
    Modified,
    Changed,
    Born,
}

impl Time {
    pub(super) fn of(self, attributes: &Attributes) -> Option<Timestamp> {
        match self {
            Self::Accessed => Some(attributes.accessed),
            Self::Modified => Some(attributes.modified),
            Self::Changed => Some(attributes.changed),
            Self::Born => attributes.created,
        }
    }
}

impl Test {
    pub(super) fn holds(&self, filesystem: &Filesystem, found: &WalkEntry) -> Result<bool> {
        // Read if a test needs them: most searches are by name and kind.
        let attributes = || found.metadata();
        Ok(match self {
            Self::Constant(value) => *value,
            Self::Name(pattern) => {
                let name = found.path.file_name().unwrap_or(found.path.as_os_str());
                pattern.fits(name.as_bytes())
            }
            Self::Path(pattern) => pattern.fits(found.path.as_os_str().as_bytes()),
            Self::Regex(expression) => expression.is_match(found.path.as_os_str().as_bytes()),
            Self::LinkTarget(pattern) => {
                found.kind == FileKind::Symlink
                    && pattern.fits(&filesystem.node(attributes()?.inode)?.read_link()?)
            }
            Self::Kind(kinds) => kinds.contains(&found.kind),
            Self::TargetKind(kinds) => kinds.contains(&target_kind(filesystem, found)?),
            Self::Size { number, unit } => number.fits(attributes()?.size.div_ceil(*unit)),
            Self::Links(number) => number.fits(attributes()?.links.into()),
            Self::Inode(number) => number.fits(attributes()?.inode.0.into()),
            Self::User(number) => number.fits(attributes()?.owner.uid.into()),
            Self::Group(number) => number.fits(attributes()?.owner.gid.into()),
            Self::NoUser(known) => known.binary_search(&attributes()?.owner.uid).is_err(),
            Self::NoGroup(known) => known.binary_search(&attributes()?.owner.gid).is_err(),
            Self::Empty => match found.kind {
                FileKind::Regular => attributes()?.size == 0,
                FileKind::Directory => is_empty(filesystem, attributes()?.inode)?,
                _ => false,
            },
            Self::Permissions { wanted, how } => match how {
                Fit::Exactly => attributes()?.permissions == *wanted,
                Fit::All => attributes()?.permissions & wanted == *wanted,
                Fit::Any => *wanted == 0 || attributes()?.permissions & wanted != 0,
            },
            Self::Age { time, number, unit, now } => time.of(attributes()?).is_some_and(|at| {
                let mut seconds = now.seconds.saturating_sub(at.seconds);
                if at.nanoseconds > now.nanoseconds {
                    seconds = seconds.saturating_sub(1);
                }
                number.fits_age(seconds.div_euclid(*unit))
            }),
            Self::Newer { time, than } => time
                .of(attributes()?)
                .is_some_and(|at| (at.seconds, at.nanoseconds) > (than.seconds, than.nanoseconds)),
            Self::SameFile(inode) => attributes()?.inode == *inode,
            Self::Attribute(pattern) => {
                let names = filesystem.node(attributes()?.inode)?.xattr_names()?;
                names.iter().any(|name| pattern.fits(name))
            }
        })
    }

    /// An age in days.
    pub(super) const DAYS: i64 = SECONDS_OF_A_DAY;
}

fn target_kind(filesystem: &Filesystem, found: &WalkEntry) -> Result<FileKind> {
    if found.kind != FileKind::Symlink {
        return Ok(found.kind);
    }
    match filesystem.metadata(&found.path) {
        Ok(target) => Ok(target.kind),
        Err(error) if error.is_not_found() || error.kind() == ErrorKind::NotADirectory => Ok(found.kind),
        Err(error) => Err(error),
    }
}

fn is_empty(filesystem: &Filesystem, directory: InodeNumber) -> Result<bool> {
    Ok(filesystem.node(directory)?.read_dir()?.next().transpose()?.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_sign() {
        assert_eq!(Number::parse("5"), Some(Number::Exactly(5)));
        assert_eq!(Number::parse("+5"), Some(Number::MoreThan(5)));
        assert_eq!(Number::parse("-5"), Some(Number::LessThan(5)));
        for text in ["", "+", "--5", "+-5", "5x", "++5"] {
            assert_eq!(Number::parse(text), None, "{text}");
        }
        assert!(Number::LessThan(1).fits_age(-3) && !Number::MoreThan(1).fits_age(-3));
    }
}

//! Errors of a copy, each with its file.

use std::io;
use std::path::{Path, PathBuf};

use diorite::ErrorKind;
use rustix::io::Errno;

/// Why a file was not copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host refused.
    #[error("{}: cannot {what}: {source}", path.display())]
    Host {
        /// The file.
        path: PathBuf,
        /// The operation.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The library refused direct I/O on a file of the host.
    #[error("{}: cannot {what}: {}", path.display(), source.without_path())]
    HostDirect {
        /// The file.
        path: PathBuf,
        /// The operation.
        what: &'static str,
        /// Why it failed.
        source: Box<diorite::Error>,
    },
    /// The image refused.
    #[error("{image}:{}: cannot {what}: {}", path.display(), source.without_path())]
    Image {
        /// The image.
        image: String,
        /// The file in it.
        path: PathBuf,
        /// The operation.
        what: &'static str,
        /// Why it failed.
        source: Box<diorite::Error>,
    },
    /// The archive cannot be read.
    #[error("{archive}: cannot read the archive: {source}")]
    Archive {
        /// Its name.
        archive: String,
        /// Why.
        source: io::Error,
    },
    /// A malformed entry, or one that the destination cannot hold.
    #[error("{archive}: cannot unpack `{entry}`: {why}")]
    Entry {
        /// Its name.
        archive: String,
        /// The name of the entry.
        entry: String,
        /// The problem.
        why: String,
    },
    /// An entry of an unknown type, unpacked as a regular file.
    #[error("{archive}: `{entry}`: unpacked as a regular file: its type `{kind}` is unknown")]
    UnknownType {
        /// Its name.
        archive: String,
        /// The name of the entry.
        entry: String,
        /// The type, as a character.
        kind: char,
    },
    /// An attribute that the destination cannot hold.
    #[error("{name}: cannot keep the {attribute}: {why}")]
    AttributeLost {
        /// The file.
        name: String,
        /// The attribute.
        attribute: String,
        /// Why it was not set.
        why: String,
    },
    /// A pax record with data that is not kept.
    #[error("{archive}: the pax record `{keyword}` is not kept: {why} (first in `{entry}`)")]
    RecordLost {
        /// The name of the archive.
        archive: String,
        /// The keyword of the record.
        keyword: String,
        /// The first entry that has it.
        entry: String,
        /// Why it is not kept.
        why: &'static str,
    },
    /// Two names of the source mean one file in the destination.
    #[error(
        "{name}: not copied: the destination treats its name as equal to `{other}`; copy it under another name"
    )]
    NameClash {
        /// The file.
        name: String,
        /// The name that was copied before.
        other: String,
    },
    /// A file that is not copied, or not replaced.
    #[error("{name}: {what}: {why}")]
    Refused {
        /// The file.
        name: String,
        /// The consequence for it.
        what: &'static str,
        /// The reason and the remedy.
        why: String,
    },
    /// The user interrupted the copy.
    #[error("interrupted; complete files are kept, and no file is incomplete")]
    Interrupted,
}

impl Error {
    pub(crate) fn host(path: &Path, what: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Host { path: path.to_owned(), what, source: source.into() }
    }

    pub(crate) fn not_copied(name: String, why: impl Into<String>) -> Self {
        Self::Refused { name, what: "not copied", why: why.into() }
    }

    /// The same error with the name `to` in place of `temporary`.
    pub(crate) fn about(mut self, temporary: &Path, to: &Path) -> Self {
        if let Self::Host { path, .. } | Self::HostDirect { path, .. } | Self::Image { path, .. } = &mut self
            && path == temporary
        {
            to.clone_into(path);
        }
        self
    }

    /// Whether the error ends the copy: it was cancelled, or the device of the destination failed or is read-only. ENOSPC does not, because a
    /// smaller file can fit. An error of the file that messages call `source` does not either.
    pub(crate) fn is_final(&self, source: &str) -> bool {
        matches!(self, Self::Interrupted)
            || self.kind() == Some(ErrorKind::ReadOnly)
            || self.is_of_device() && !self.is_about(source)
    }

    /// Whether the device failed or was removed.
    fn is_of_device(&self) -> bool {
        match self {
            Self::Host { source, .. } => {
                let failures = [Errno::IO, Errno::NODEV, Errno::NOMEDIUM, Errno::SHUTDOWN, Errno::NOTCONN];
                source.raw_os_error().is_some_and(|errno| failures.contains(&Errno::from_raw_os_error(errno)))
            }
            Self::Image { source, .. } | Self::HostDirect { source, .. } => {
                source.is_of_device() || source.kind() == ErrorKind::Io
            }
            _ => false,
        }
    }

    /// Whether it is an error of the file that messages call `name`.
    fn is_about(&self, name: &str) -> bool {
        match self {
            Self::Host { path, .. } | Self::HostDirect { path, .. } => path.display().to_string() == name,
            Self::Image { image, path, .. } => format!("{image}:{}", path.display()) == name,
            _ => false,
        }
    }

    /// The class of the error, if it is one of a file.
    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Host { source, .. } | Self::Archive { source, .. } => {
                source.raw_os_error().map(ErrorKind::from_errno)
            }
            Self::Image { source, .. } | Self::HostDirect { source, .. } => Some(source.kind()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_destinations_device_ends_a_copy() {
        let error = |errno: Errno| Error::host(Path::new("/a"), "write", errno);
        for errno in [Errno::NOSPC, Errno::DQUOT, Errno::ACCESS, Errno::FBIG] {
            assert!(!error(errno).is_final("/source"), "{errno}");
        }
        for errno in [Errno::IO, Errno::NODEV, Errno::ROFS] {
            assert!(error(errno).is_final("/source"), "{errno}");
        }
        assert!(!error(Errno::IO).is_final("/a"), "a source that cannot be read");
        assert!(Error::Interrupted.is_final("/source"));
    }
}

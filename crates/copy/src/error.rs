//! What can go wrong in a copy: always with the file it happened to.

use std::io;
use std::path::{Path, PathBuf};

use diorite::ErrorKind;

/// Why something was not copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host refused.
    #[error("{}: cannot {what}: {source}", path.display())]
    Host {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The image refused.
    #[error("{image}:{}: cannot {what}: {}", path.display(), source.without_path())]
    Image {
        /// The image.
        image: String,
        /// The file in it.
        path: PathBuf,
        /// What was tried.
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
    /// The archive wants a file outside of the destination.
    #[error("{archive}: refused: the entry `{entry}` points outside of the destination")]
    Escapes {
        /// Its name.
        archive: String,
        /// The name of the entry.
        entry: String,
    },
    /// What an extended attribute's value or name asks of the destination is more than it has.
    #[error("{name}: copied without the extended attribute {attribute}: {why}")]
    AttributeLost {
        /// The file.
        name: String,
        /// The attribute.
        attribute: String,
        /// Why it was not set.
        why: String,
    },
    /// A pipe or a device that has no content of its own.
    #[error("{name}: not copied: it is a device, a pipe or a socket in an image; use -r to copy it as such")]
    NotRegular {
        /// The file.
        name: String,
    },
    /// A directory without the wish to copy directories.
    #[error("{name}: not copied: it is a directory; use -r")]
    IsDirectory {
        /// The directory.
        name: String,
    },
    /// A directory would be copied into itself without end.
    #[error("{name}: not copied: the destination is inside of it; choose another destination")]
    IntoItself {
        /// The directory.
        name: String,
    },
    /// Directories that do not form a tree.
    #[error("{name}: not copied: {why}")]
    NotATree {
        /// The directory.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Source and destination are one file.
    #[error("{name}: not copied: source and destination are the same file")]
    SameFile {
        /// The file.
        name: String,
    },
    /// A file of the host holds an image that the copy reads or writes.
    #[error("{name}: {what}: this copy uses it as an image; a file in it is {name}:/PATH")]
    OwnImage {
        /// The file.
        name: String,
        /// What was not done.
        what: &'static str,
    },
    /// A file where a directory must be, or the other way round.
    #[error("{name}: cannot be replaced: {why}; remove it first or choose another destination")]
    WrongKind {
        /// What is there.
        name: String,
        /// What it is, and what it would have to be.
        why: &'static str,
    },
    /// The user wants no more.
    #[error("interrupted; what was complete is there, nothing is half written")]
    Interrupted,
}

impl Error {
    pub(crate) fn host(path: &Path, what: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Host { path: path.to_owned(), what, source: source.into() }
    }

    /// What happened to the file `temporary` happened to `to`, as far as the user is concerned.
    pub(crate) fn about(mut self, temporary: &Path, to: &Path) -> Self {
        if let Self::Host { path, .. } | Self::Image { path, .. } = &mut self
            && path == temporary
        {
            to.clone_into(path);
        }
        self
    }

    /// Whether it would happen to every file that is still to come: no space, a destination that cannot be written, cancellation.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Interrupted)
            || matches!(
                self.kind(),
                Some(ErrorKind::StorageFull | ErrorKind::ReadOnly | ErrorKind::QuotaExceeded)
            )
    }

    /// The class of the failure, where it comes from a file.
    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Host { source, .. } | Self::Archive { source, .. } => {
                source.raw_os_error().map(ErrorKind::from_errno)
            }
            Self::Image { source, .. } => Some(source.kind()),
            _ => None,
        }
    }
}

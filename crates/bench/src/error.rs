//! What can go wrong in a measurement.

use std::path::{Path, PathBuf};

/// Why a measurement ended without a result. Messages are `OBJECT: what happened: why`, with the cure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host's filesystem refused.
    #[error("{}: cannot {what}: {source}{}", path.display(), cure_of(*source))]
    Host {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: rustix::io::Errno,
    },
    /// Diorite refused.
    #[error("{object}: {source}")]
    Diorite {
        /// The image, or the file in it.
        object: String,
        /// Why.
        source: Box<diorite::Error>,
    },
    /// No filesystem could be made in the image.
    #[error("{}: cannot make the filesystem: {source}", path.display())]
    Mkfs {
        /// The image.
        path: PathBuf,
        /// Why.
        source: diorite::mkfs::MkfsError,
    },
    /// Memory for the transfers could not be had.
    #[error("memory for {bytes} bytes of buffers: {source}")]
    Memory {
        /// How much was asked for.
        bytes: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// The files would not fit.
    #[error(
        "{}: not enough space: {needed} MB are needed and {free} MB are free; remove something, or choose another directory or a smaller size",
        path.display()
    )]
    Space {
        /// The directory.
        path: PathBuf,
        /// Needed, in 10^6 bytes.
        needed: u64,
        /// Free, in 10^6 bytes.
        free: u64,
    },
    /// A file came back with fewer bytes than were written.
    #[error("{object}: {returned} bytes came back of {expected} that were written")]
    Truncated {
        /// The file.
        object: String,
        /// Bytes that came back.
        returned: u64,
        /// Bytes that were written.
        expected: u64,
    },
    /// The user wants no more.
    #[error("interrupted; the files of the measurement were removed")]
    Interrupted,
}

impl Error {
    pub(crate) fn host(path: &Path, what: &'static str, source: rustix::io::Errno) -> Self {
        Self::Host { path: path.to_owned(), what, source }
    }
}

fn cure_of(errno: rustix::io::Errno) -> &'static str {
    use rustix::io::Errno;
    match errno {
        Errno::INVAL => {
            "; this filesystem may not support O_DIRECT: run without -o_direct or choose another directory"
        }
        Errno::NOENT => "; check the path",
        Errno::ACCESS | Errno::PERM => "; choose a directory that you may write to",
        Errno::NOSPC => "; free some space or choose a smaller size",
        Errno::ROFS => "; choose a directory on a writable filesystem",
        _ => "",
    }
}

/// What the library said, with the file's name in front, unless it says that itself.
pub(crate) fn named(file: &str, source: &diorite::Error) -> String {
    let text = source.to_string();
    let is_named = text.trim_start_matches('/').starts_with(file.trim_start_matches('/'));
    if is_named { text } else { format!("{file}: {text}") }
}

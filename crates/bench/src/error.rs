//! Errors of a measurement.

use std::path::{Path, PathBuf};

/// Why a measurement has no result. Messages are `OBJECT: what happened: why; what to do`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call of the host's filesystem failed.
    #[error("{}: cannot {what}: {source}{}", path.display(), cure_of(*source))]
    Host {
        /// The file or directory.
        path: PathBuf,
        /// The failed action.
        what: &'static str,
        /// The error of the system.
        source: rustix::io::Errno,
    },
    /// The library failed.
    #[error("{object}: {source}")]
    Diorite {
        /// The image, or the file in it.
        object: String,
        /// The error.
        source: Box<diorite::Error>,
    },
    /// The filesystem of the image could not be made.
    #[error("{}: cannot make the filesystem: {source}", path.display())]
    Mkfs {
        /// The image.
        path: PathBuf,
        /// The error.
        source: diorite::mkfs::MkfsError,
    },
    /// Memory for transfers could not be allocated.
    #[error("cannot allocate {bytes} bytes of buffers: {source}")]
    Memory {
        /// Requested bytes.
        bytes: usize,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The files do not fit.
    #[error(
        "{}: not enough space: {needed} MB are needed and {free} MB are free; choose another directory or a smaller size",
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
    /// A file has fewer bytes than were written.
    #[error("{object}: the file has {returned} bytes, and {expected} were written")]
    Truncated {
        /// The file.
        object: String,
        /// Bytes that were read.
        returned: u64,
        /// Bytes that were written.
        expected: u64,
    },
    /// The user cancelled.
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
        Errno::ACCESS | Errno::PERM => "; choose a directory that you can write to",
        Errno::NOSPC => "; free some space or choose a smaller size",
        Errno::ROFS => "; choose a directory on a writable filesystem",
        _ => "",
    }
}

/// The library's message after the file's name, unless the message begins with it.
pub fn named(file: &str, source: &diorite::Error) -> String {
    let text = source.to_string();
    let is_named = text.trim_start_matches('/').starts_with(file.trim_start_matches('/'));
    if is_named { text } else { format!("{file}: {text}") }
}

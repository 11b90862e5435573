//! Errors below a filesystem's metadata.

use diorite_block::IoError;

use crate::{Corrupt, Incompatible};

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of the medium, the format, or the volume's state.
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
    /// A transaction has more blocks than the log can ever take.
    #[error("a transaction is larger than the journal")]
    TooLarge,
    /// A write to the volume failed while the operation was under way; nothing more is written until it is opened again.
    #[error("the volume was shut down after an earlier write failed; open it again after checking it")]
    Aborted,
    /// The process was forked from the one that opened the volume.
    #[error("the volume is open in the process that this one was forked from, which alone can change it")]
    Forked,
}

impl From<diorite_ext_format::Error> for Error {
    fn from(error: diorite_ext_format::Error) -> Self {
        match error {
            diorite_ext_format::Error::Corrupt(corrupt) => Self::Corrupt(corrupt),
            diorite_ext_format::Error::Incompatible(incompatible) => Self::Incompatible(incompatible),
        }
    }
}

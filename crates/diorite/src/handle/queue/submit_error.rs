//! A transfer that a queue did not accept.

use std::{error, fmt};

use crate::{Error, File};

/// A transfer that was not accepted, with its memory. As [`Error`] (by `?`, or [`SubmitError::into_error`]) it loses the memory.
#[non_exhaustive]
pub enum SubmitError<M> {
    /// As many transfers as the queue is deep are in flight: reap one, then submit again.
    Full {
        /// The memory.
        memory: M,
    },
    /// The transfer cannot be done; nothing of it was.
    Failed {
        /// The memory.
        memory: M,
        /// Why.
        error: Error,
    },
}

impl<M> SubmitError<M> {
    /// Of a transfer on a file that was not taken.
    pub(super) fn of(file: &File, (memory, error): (M, Error)) -> Self {
        match error {
            Error::QueueFull => Self::Full { memory },
            error => Self::Failed { memory, error: file.name_error(error) },
        }
    }

    /// Whether the queue is full, so that the same transfer can be submitted once another was reaped.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }

    /// The memory.
    pub fn into_memory(self) -> M {
        match self {
            Self::Full { memory } | Self::Failed { memory, .. } => memory,
        }
    }

    /// What went wrong; [`Error::QueueFull`] if the queue is full.
    pub fn into_error(self) -> Error {
        match self {
            Self::Full { .. } => Error::QueueFull,
            Self::Failed { error, .. } => error,
        }
    }
}

impl<M> From<SubmitError<M>> for Error {
    fn from(error: SubmitError<M>) -> Self {
        error.into_error()
    }
}

impl<M> fmt::Debug for SubmitError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { .. } => f.debug_struct("Full").finish_non_exhaustive(),
            Self::Failed { error, .. } => {
                f.debug_struct("Failed").field("error", error).finish_non_exhaustive()
            }
        }
    }
}

impl<M> fmt::Display for SubmitError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { .. } => Error::QueueFull.fmt(f),
            Self::Failed { error, .. } => error.fmt(f),
        }
    }
}

impl<M> error::Error for SubmitError<M> {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Full { .. } => None,
            Self::Failed { error, .. } => error.source(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn both_errors_are_std_errors_and_give_the_memory_back() {
        let full = SubmitError::Full { memory: vec![1_u8] };
        let source: &dyn error::Error = &full;
        assert_eq!(
            source.to_string(),
            "as many transfers are in flight as the queue is deep; reap one first"
        );
        assert!(full.is_full());
        assert_eq!(full.into_memory(), [1]);
        let failed = SubmitError::Failed { memory: vec![2_u8], error: Error::NotOpenFor("reading") };
        assert!(!failed.is_full());
        assert_eq!(failed.to_string(), "the file is not open for reading");
        assert_eq!(failed.into_memory(), [2]);
        assert_eq!(Error::from(SubmitError::Full { memory: () }).kind(), ErrorKind::WouldBlock);
    }
}

//! A transfer that a queue did not accept.

use std::{error, fmt};

use crate::{Error, File};

/// A transfer that was not accepted, with its memory. As [`Error`] (by `?`) it loses the memory.
#[non_exhaustive]
pub struct SubmitError<M> {
    /// The memory.
    pub memory: M,
    /// Why; [`Error::QueueFull`] where the same transfer can be submitted once another was reaped. Nothing of the transfer was done.
    pub error: Error,
}

impl<M> SubmitError<M> {
    /// Of a transfer on a file that was not taken.
    pub(super) fn of(file: &File, (memory, error): (M, Error)) -> Self {
        match error {
            Error::QueueFull => Self { memory, error },
            error => Self { memory, error: file.name_error(error) },
        }
    }

    /// Whether the queue is full.
    pub fn is_full(&self) -> bool {
        matches!(self.error, Error::QueueFull)
    }
}

impl<M> From<SubmitError<M>> for Error {
    fn from(refused: SubmitError<M>) -> Self {
        refused.error
    }
}

impl<M> fmt::Debug for SubmitError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmitError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<M> fmt::Display for SubmitError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<M> error::Error for SubmitError<M> {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.error.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn it_is_an_error_of_std() {
        let full = SubmitError { memory: vec![1_u8], error: Error::QueueFull };
        let source: &dyn error::Error = &full;
        assert_eq!(source.to_string(), "the queue is full; reap a completion first");
        assert!(full.is_full());
        let failed = SubmitError { memory: vec![2_u8], error: Error::NotOpenFor("reading") };
        assert!(!failed.is_full());
        assert_eq!(failed.to_string(), "the file is not open for reading");
        assert_eq!(Error::from(full).kind(), ErrorKind::WouldBlock);
    }
}

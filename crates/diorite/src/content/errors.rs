//! Failed write-backs, kept until everyone who has the file open has heard of them once.
//!
//! Invariants:
//! 1. A handle that existed when a write-back failed gets exactly one error at its next sync, whichever handle syncs first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use diorite_block::sync::Mutex;

use crate::{Error, Result};

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct ErrorLatch {
    failures: AtomicU64,
    last: Mutex<Option<Arc<Error>>>,
}

/// What one handle has heard of.
#[derive(Debug, Default)]
pub(crate) struct ErrorsSeen(AtomicU64);

impl ErrorLatch {
    /// Keep an error.
    pub(crate) fn set(&self, error: Arc<Error>) {
        let mut last = self.last.lock();
        *last = Some(error);
        self.failures.fetch_add(1, Ordering::AcqRel);
    }

    /// For a handle that is opened now.
    pub(crate) fn seen(&self) -> ErrorsSeen {
        ErrorsSeen(AtomicU64::new(self.failures.load(Ordering::Acquire)))
    }

    /// The error that the handle has not heard of, if there is one.
    pub(crate) fn check(&self, seen: &ErrorsSeen) -> Result<()> {
        let failures = self.failures.load(Ordering::Acquire);
        if seen.0.swap(failures, Ordering::AcqRel) == failures {
            return Ok(());
        }
        match &*self.last.lock() {
            Some(error) => Err(Error::WriteBack(Arc::clone(error))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant 1.
    #[test]
    fn each_handle_hears_of_a_failure_once() {
        let latch = ErrorLatch::default();
        let (first, second) = (latch.seen(), latch.seen());
        latch.set(Arc::new(Error::BeyondEnd));
        let late = latch.seen();
        assert!(latch.check(&first).is_err() && latch.check(&first).is_ok());
        assert!(latch.check(&second).is_err() && latch.check(&second).is_ok());
        assert!(latch.check(&late).is_ok());
    }
}

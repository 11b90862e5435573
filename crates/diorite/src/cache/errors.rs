//! Failed writebacks: retries, and lost data, which is reported once to each handle (errseq).
//!
//! Invariants:
//! 1. A handle that existed when data was lost gets exactly one error at its next sync, whichever handle syncs first.
//!    So does a handle that is opened while the loss is unreported.
//! 2. If no handle of the file is left, the next sync of the filesystem reports the loss.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use diorite_block::sync::{Mutex, Rank, now};

use crate::{Error, Result};

/// Delay before the background retries a file. Each attempt may take seconds on a failing disk.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The last failed writeback of a file. Its pages stay dirty.
#[derive(Debug)]
pub(crate) struct Retry {
    /// When the background may retry, in nanoseconds; 0 without a failure.
    after_ns: AtomicU64,
    last: Mutex<Option<Arc<Error>>>,
}

impl Default for Retry {
    fn default() -> Self {
        Self { after_ns: AtomicU64::new(0), last: Mutex::ranked(Rank::ContentErrors, None) }
    }
}

impl Retry {
    /// A writeback has failed.
    pub(crate) fn failed(&self, error: Error) -> Arc<Error> {
        let error = Arc::new(error);
        *self.last.lock() = Some(Arc::clone(&error));
        self.after_ns.store((now() + RETRY_AFTER).as_nanos() as u64, Ordering::Release);
        error
    }

    /// Everything has been written back.
    pub(crate) fn succeeded(&self) {
        self.after_ns.store(0, Ordering::Release);
    }

    /// Whether the background does not try again yet.
    pub(crate) fn is_waiting(&self) -> bool {
        let after_ns = self.after_ns.load(Ordering::Acquire);
        after_ns > 0 && (now().as_nanos() as u64) < after_ns
    }

    /// The error, while the background waits before it retries.
    pub(crate) fn check(&self) -> Result<()> {
        match self.last.lock().clone().filter(|_| self.is_waiting()) {
            Some(error) => Err(Error::WriteBack(error)),
            None => Ok(()),
        }
    }
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct ErrorLatch {
    failures: AtomicU64,
    unreported: AtomicBool,
    last: Mutex<Option<Arc<Error>>>,
}

impl Default for ErrorLatch {
    fn default() -> Self {
        let last = Mutex::ranked(Rank::ContentErrors, None);
        Self { failures: AtomicU64::new(0), unreported: AtomicBool::new(false), last }
    }
}

/// The failures that were reported to one handle.
#[derive(Debug, Default)]
pub(crate) struct ErrorsSeen(AtomicU64);

impl ErrorLatch {
    /// Keep an error.
    pub(crate) fn set(&self, error: Arc<Error>) {
        let mut last = self.last.lock();
        *last = Some(error);
        self.unreported.store(true, Ordering::Release);
        self.failures.fetch_add(1, Ordering::AcqRel);
    }

    /// For a handle that is opened now.
    pub(crate) fn seen(&self) -> ErrorsSeen {
        let _last = self.last.lock();
        let unreported = u64::from(self.unreported.load(Ordering::Acquire));
        ErrorsSeen(AtomicU64::new(self.failures.load(Ordering::Acquire) - unreported))
    }

    /// The error that was not reported to this handle yet, if there is one.
    pub(crate) fn check(&self, seen: &ErrorsSeen) -> Result<()> {
        if seen.0.load(Ordering::Acquire) == self.failures.load(Ordering::Acquire) {
            return Ok(());
        }
        // A failure that is set now is not reported with the one before it.
        let last = self.last.lock();
        let failures = self.failures.load(Ordering::Acquire);
        if seen.0.swap(failures, Ordering::AcqRel) == failures {
            return Ok(());
        }
        self.unreported.store(false, Ordering::Release);
        match &*last {
            Some(error) => Err(Error::WriteBack(Arc::clone(error))),
            None => Ok(()),
        }
    }

    /// The error that was reported to no caller, if there is one. The caller reports it.
    pub(crate) fn take_unreported(&self) -> Option<Arc<Error>> {
        if !self.unreported.swap(false, Ordering::AcqRel) {
            return None;
        }
        self.last.lock().clone()
    }

    /// As [`ErrorLatch::take_unreported`], as a result.
    pub(crate) fn report_unreported(&self) -> Result<()> {
        self.take_unreported().map_or(Ok(()), |error| Err(Error::WriteBack(error)))
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
        let later = latch.seen();
        assert!(latch.check(&second).is_err() && latch.check(&second).is_ok());
        assert!(latch.check(&late).is_err(), "it was unreported when this one was opened");
        assert!(latch.check(&later).is_ok(), "it was reported before");
        assert!(latch.take_unreported().is_none());
    }

    /// Invariant 2.
    #[test]
    fn an_unreported_error_is_reported_once() {
        let latch = ErrorLatch::default();
        latch.set(Arc::new(Error::BeyondEnd));
        assert!(latch.report_unreported().is_err() && latch.report_unreported().is_ok());
        assert!(latch.check(&latch.seen()).is_ok(), "it was reported before");
    }
}

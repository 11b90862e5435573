//! Failed writebacks. The pages stay dirty and visible: each sync retries them and fails until they are on the device, and the
//! background retries after a delay.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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

//! A modification time that is not recorded yet.
//!
//! Locking: `recording` is held across the commit that records a time, so that one set by hand is not overwritten by an older one.

use diorite_block::sync::{Mutex, Rank};

use crate::{Result, Timestamp};

/// See the module's head.
#[derive(Debug)]
pub(crate) struct PendingTime {
    modified: Mutex<Option<Timestamp>>,
    recording: Mutex<()>,
}

impl Default for PendingTime {
    fn default() -> Self {
        Self {
            modified: Mutex::ranked(Rank::Modified, None),
            recording: Mutex::ranked(Rank::RecordingTimes, ()),
        }
    }
}

impl PendingTime {
    /// When the content changed last, if that is not recorded yet.
    pub(crate) fn get(&self) -> Option<Timestamp> {
        *self.modified.lock()
    }

    /// The content changed at `time`.
    pub(crate) fn set(&self, time: Timestamp) {
        *self.modified.lock() = Some(time);
    }

    /// Have `record` record the pending time, or set another one in its place. One that becomes pending meanwhile stays.
    pub(crate) fn record(&self, record: impl FnOnce(Option<Timestamp>) -> Result<()>) -> Result<()> {
        let _recording = self.recording.lock();
        let pending = self.get();
        record(pending)?;
        let mut modified = self.modified.lock();
        if *modified == pending {
            *modified = None;
        }
        Ok(())
    }
}

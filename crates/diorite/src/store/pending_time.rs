//! A modification time that is not recorded yet.
//!
//! Locking: `recording` is held across the commit that records a time, so that one set by hand is not overwritten by an older one.

use diorite_block::sync::{Mutex, Rank};

use crate::{Result, Timestamp};

/// The owner of the modification time of a file whose content changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentTimes {
    /// Each write.
    #[default]
    ByWrite,
    /// The caller, for content that it caches itself.
    ByCaller,
}

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

#[cfg(test)]
mod tests {
    use super::*;

    /// A write in the same tick as one whose time is recorded already is recorded as well.
    #[test]
    fn a_time_is_pending_again_after_it_was_recorded() {
        let (pending, [early, late]) =
            (PendingTime::default(), [5, 6].map(|seconds| Timestamp { seconds, nanoseconds: 7 }));
        for time in [early, early, late, Timestamp { seconds: -3, nanoseconds: 0 }] {
            pending.set(time);
            pending.set(time);
            assert_eq!(pending.get(), Some(time));
            let recorded = |pending| {
                assert_eq!(pending, Some(time));
                Ok(())
            };
            pending.record(recorded).expect("recorded");
            assert_eq!(pending.get(), None);
        }
        pending.set(early);
        pending.set(late);
        pending.set(early);
        assert_eq!(pending.get(), Some(early), "a clock that was set back");
        let failed = pending.record(|_| Err(crate::Error::QueueFull));
        assert!(failed.is_err() && pending.get() == Some(early), "not recorded, and pending still");
    }
}

//! A modification time that is not recorded yet.
//!
//! Many writes end within one tick of the clock that files are stamped by: those after the first find their time in `latest`, and take no lock.
//!
//! Invariant: `latest` is the time in `modified`, or 0; so a thread that sees its own time there has it pending.
//!
//! Locking: `latest` is stored with `modified` locked. `recording` is held across the commit that records a time, so that one set by hand is not overwritten by an older one.

use std::sync::atomic::{AtomicU64, Ordering};

use diorite_block::sync::{Mutex, Rank};

use crate::{Result, Timestamp};

/// See the module's head.
#[derive(Debug)]
pub(crate) struct PendingTime {
    modified: Mutex<Option<Timestamp>>,
    /// As one word.
    latest: AtomicU64,
    recording: Mutex<()>,
}

/// A time as one word, 0 for one that does not fit.
fn word_of(time: Timestamp) -> u64 {
    let fits = (1..1 << 34).contains(&time.seconds);
    if fits { (time.seconds as u64) << 30 | u64::from(time.nanoseconds) } else { 0 }
}

impl Default for PendingTime {
    fn default() -> Self {
        Self {
            modified: Mutex::ranked(Rank::Modified, None),
            latest: AtomicU64::new(0),
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
        let word = word_of(time);
        if word != 0 && self.latest.load(Ordering::Acquire) == word {
            return;
        }
        let mut modified = self.modified.lock();
        *modified = Some(time);
        self.latest.store(word, Ordering::Release);
    }

    /// Have `record` record the pending time, or set another one in its place. One that becomes pending meanwhile stays.
    pub(crate) fn record(&self, record: impl FnOnce(Option<Timestamp>) -> Result<()>) -> Result<()> {
        let _recording = self.recording.lock();
        let pending = self.get();
        record(pending)?;
        let mut modified = self.modified.lock();
        if *modified == pending {
            *modified = None;
            self.latest.store(0, Ordering::Release);
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

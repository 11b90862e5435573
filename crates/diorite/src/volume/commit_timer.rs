//! The timer of a volume: changes are committed at the age of the commit interval, also without further calls.
//!
//! Where it sits: beside the table of nodes. One thread, started when the volume is opened for writing, through
//! `diorite_block::sync`, so that a simulation runs it too. It waits in the volume, without waking while nothing has changed,
//! and ends with it.

use std::sync::Arc;

use diorite_block::sync::{JoinHandle, Mutex, Rank, spawn};
use diorite_ext::Volume;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct CommitTimer {
    volume: Arc<Volume>,
    thread: Mutex<Option<JoinHandle>>,
}

impl CommitTimer {
    /// Start the timer of a volume that can be written.
    pub(crate) fn start(volume: &Arc<Volume>) -> Self {
        let thread = if volume.read_only_reason().is_none() { Self::spawn(volume) } else { None };
        Self { volume: Arc::clone(volume), thread: Mutex::ranked(Rank::ServiceThread, thread) }
    }

    fn spawn(volume: &Arc<Volume>) -> Option<JoinHandle> {
        let volume = Arc::clone(volume);
        let body = move || {
            while volume.wait_until_old() {
                // The volume latches a failure, and the next sync reports it.
                let _ = volume.commit_old();
            }
        };
        // Without the thread, the next change commits old ones.
        spawn("diorite-commit", body).ok()
    }

    /// End the thread, and wait for it. In a forked child there is none.
    pub(crate) fn stop(&self) {
        if self.volume.check_process().is_ok() {
            self.volume.end_waiting();
        }
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
    }
}

impl Drop for CommitTimer {
    fn drop(&mut self) {
        self.stop();
    }
}

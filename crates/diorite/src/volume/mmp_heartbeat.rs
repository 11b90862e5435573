//! Renews the mark that tells other hosts that a volume is open here (feature `mmp`).
//!
//! Where it sits: beside the table of nodes. One thread, only on volumes that have the feature and are written; it calls
//! [`Volume::mmp_tick`] when that is due, and ends with the volume.

use std::sync::Arc;
use std::time::Duration;

use diorite_block::Process;
use diorite_block::sync::{Condvar, JoinHandle, Mutex, Rank, now, spawn};
use diorite_ext::Volume;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct MmpHeartbeat {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle>>,
    process: Process,
}

#[derive(Debug)]
struct Shared {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl MmpHeartbeat {
    /// Start the thread, if the volume has a mark.
    pub(crate) fn keep(volume: &Arc<Volume>) -> Self {
        let stopped = Mutex::ranked(Rank::MmpHeartbeatStopped, false);
        let shared = Arc::new(Shared { stopped, changed: Condvar::new() });
        let thread = match volume.mmp_tick(now()) {
            Ok(Some(due)) => {
                let (volume, shared) = (Arc::clone(volume), Arc::clone(&shared));
                // Without a thread every transaction renews the mark when it begins.
                spawn("diorite-mmp", move || shared.renew(&volume, due)).ok()
            }
            // The volume has latched an error, and the next operation reports it.
            Ok(None) | Err(_) => None,
        };
        Self { shared, thread: Mutex::ranked(Rank::ServiceThread, thread), process: Process::current() }
    }

    /// End the thread, and wait for it. In a forked child there is none, and it may have had the lock.
    pub(crate) fn stop(&self) {
        if self.process.is_current() {
            *self.shared.stopped.lock() = true;
            self.shared.changed.notify_all();
        }
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
    }
}

impl Drop for MmpHeartbeat {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn renew(&self, volume: &Volume, mut due: Duration) {
        loop {
            let mut stopped = self.stopped.lock();
            while !*stopped && now() < due {
                stopped = self.changed.wait_timeout(stopped, due.saturating_sub(now()));
            }
            let ended = *stopped;
            drop(stopped);
            match volume.mmp_tick(now()) {
                Ok(Some(next)) if !ended => due = next,
                _ => return,
            }
        }
    }
}

//! The threads of a volume: the commit timer, and the MMP heartbeat.
//!
//! Where it sits: beside the table of nodes. The threads start when the volume is opened for writing, through `diorite_block::sync`, so that a
//! simulation runs them too, and end with the volume.
//!
//! The commit timer commits changes when they are as old as the commit interval, also without further calls. It waits in the volume, without
//! waking while nothing has changed. The heartbeat renews the mark that tells other hosts that the volume is open here (feature `mmp`):
//! it calls [`Volume::mmp_tick`] when that is due.

use std::sync::Arc;
use std::time::Duration;

use diorite_block::Process;
use diorite_block::sync::{Condvar, JoinHandle, Mutex, Rank, now, spawn};
use diorite_ext::Volume;

/// A thread, and the call that ends it.
pub(crate) struct Service {
    thread: Mutex<Option<JoinHandle>>,
    end: Box<dyn Fn() + Send + Sync>,
    process: Process,
}

diorite_block::short_debug!(Service);

type Stop = (Mutex<bool>, Condvar);

impl Service {
    /// The timer of a volume that can be written.
    pub(crate) fn commit_timer(volume: &Arc<Volume>) -> Self {
        let (volume, of_thread) = (Arc::clone(volume), Arc::clone(volume));
        let body = move || {
            while of_thread.wait_until_old() {
                // The volume latches a failure, and the next sync reports it.
                let _ = of_thread.commit_old();
            }
        };
        let can_write = volume.read_only_reason().is_none();
        // Without the thread, the next change commits old ones.
        let thread = if can_write { spawn("diorite-commit", body).ok() } else { None };
        Self::new(thread, move || volume.end_waiting())
    }

    /// The heartbeat of a volume that has a mark.
    pub(crate) fn mmp_heartbeat(volume: &Arc<Volume>) -> Self {
        let stop: Arc<Stop> = Arc::new((Mutex::ranked(Rank::MmpHeartbeatStopped, false), Condvar::new()));
        let thread = match volume.mmp_tick(now()) {
            Ok(Some(due)) => {
                let (volume, stop) = (Arc::clone(volume), Arc::clone(&stop));
                // Without a thread every transaction renews the mark when it begins.
                spawn("diorite-mmp", move || renew(&volume, &stop, due)).ok()
            }
            // The volume has latched an error, and the next operation reports it.
            Ok(None) | Err(_) => None,
        };
        Self::new(thread, move || {
            *stop.0.lock() = true;
            stop.1.notify_all();
        })
    }

    fn new(thread: Option<JoinHandle>, end: impl Fn() + Send + Sync + 'static) -> Self {
        let thread = Mutex::ranked(Rank::ServiceThread, thread);
        Self { thread, end: Box::new(end), process: Process::current() }
    }

    /// End the thread, and wait for it. In a forked child there is none, and it may have had a lock.
    pub(crate) fn stop(&self) {
        if self.process.is_current() {
            (self.end)();
        }
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Renew the mark until the end.
fn renew(volume: &Volume, (stopped, changed): &Stop, mut due: Duration) {
    loop {
        let mut ended = stopped.lock();
        while !*ended && now() < due {
            ended = changed.wait_timeout(ended, due.saturating_sub(now()));
        }
        let is_last = *ended;
        drop(ended);
        match volume.mmp_tick(now()) {
            Ok(Some(next)) if !is_last => due = next,
            _ => return,
        }
    }
}

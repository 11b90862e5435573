//! The thread of a watched queue: it waits in the device while transfers of the queue are in flight, and reports completions.
//!
//! Other threads in a device wait for transfers of their own. The submitter of a watched queue waits elsewhere, on many things.
//! A forked child does not have the thread and starts its own.
//!
//! Locking: a leaf lock around the requests to the thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::core::Core;
use super::state::WaiterIndex;
use diorite_block::Notify;
use diorite_block::Process;
use diorite_block::sync::{self, Condvar, JoinHandle, Mutex};

/// See the module head.
pub(super) struct Watcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle>,
    process: Process,
}

struct Shared {
    core: Arc<Core>,
    waiter: WaiterIndex,
    /// Transfers of the queue that were not taken. Changed under the device lock.
    in_flight: AtomicU32,
    wanted: Mutex<Wanted>,
    changed: Condvar,
    notify: Notify,
}

#[derive(Default)]
struct Wanted {
    wait: bool,
    end: bool,
    /// Number of completions.
    ended: u64,
}

impl Watcher {
    /// Watch the transfers of a waiter, if a thread can be started.
    pub(super) fn start(core: &Arc<Core>, waiter: WaiterIndex, notify: Notify) -> Option<Self> {
        let (core, wanted, changed) = (Arc::clone(core), Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { core, waiter, in_flight: AtomicU32::new(0), wanted, changed, notify });
        let of_thread = Arc::clone(&shared);
        let thread = sync::spawn("diorite-watch", move || of_thread.run()).ok()?;
        Some(Self { shared, thread: Some(thread), process: Process::current() })
    }

    /// In a forked child, start a thread. The parent's thread may have held the lock.
    pub(super) fn leave_parent(&mut self) {
        if self.process.is_current() {
            return;
        }
        let Shared { core, waiter, in_flight, notify, .. } = &*self.shared;
        if let Some(new) = Self::start(core, *waiter, Arc::clone(notify)) {
            new.shared.in_flight.store(in_flight.load(Ordering::Acquire), Ordering::Release);
            std::mem::forget(std::mem::replace(self, new));
        }
    }

    /// A transfer is about to be submitted.
    pub(super) fn submitting(&self) {
        self.shared.in_flight.fetch_add(1, Ordering::AcqRel);
    }

    /// Transfers were submitted.
    pub(super) fn submitted(&self) {
        self.shared.wanted.lock().wait = true;
        self.shared.changed.notify_all();
    }

    /// So many were taken. The device is locked.
    pub(super) fn taken(&self, count: u32) {
        self.shared.in_flight.fetch_sub(count, Ordering::AcqRel);
    }

    /// Wait for a completion after `seen`, which an earlier call returned.
    pub(super) fn wait(&self, seen: u64) -> u64 {
        self.submitted();
        let mut wanted = self.shared.wanted.lock();
        while wanted.ended == seen {
            wanted = self.shared.changed.wait(wanted);
        }
        wanted.ended
    }

    /// Number of completions.
    pub(super) fn ended(&self) -> u64 {
        self.shared.wanted.lock().ended
    }
}

impl Shared {
    fn run(&self) {
        loop {
            {
                let mut wanted = self.wanted.lock();
                while !wanted.wait && !wanted.end {
                    wanted = self.changed.wait(wanted);
                }
                if wanted.end {
                    return;
                }
                wanted.wait = false;
            }
            self.core.wait_for_any(self.waiter, &self.in_flight);
            self.wanted.lock().ended += 1;
            self.changed.notify_all();
            (self.notify)();
        }
    }
}

impl Drop for Watcher {
    /// Nothing is in flight.
    fn drop(&mut self) {
        if self.process.is_current() {
            self.shared.wanted.lock().end = true;
            self.shared.changed.notify_all();
        }
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

//! The queue of one submitter on a scheduled device.
//!
//! Its transfers own their memory, so any thread in the device may start and collect them. Here they are numbered, counted and
//! returned.

use std::fmt;
use std::sync::Arc;

use super::core::Core;
use super::is_scheduled;
use super::state::WaiterIndex;
use super::watch::Watcher;
use diorite_block::sync;
use diorite_block::{Completed, IoError, IoQueue, Notify, QueuedIo, Sector, Watch};

/// See the module head.
pub(super) struct ScheduledQueue {
    core: Arc<Core>,
    waiter: WaiterIndex,
    depth: u32,
    in_flight: u32,
    watcher: Option<Watcher>,
}

impl ScheduledQueue {
    pub(super) fn new(core: Arc<Core>, depth: u32) -> Self {
        let waiter = core.lock().enter();
        Self { core, waiter, depth, in_flight: 0, watcher: None }
    }
}

impl IoQueue for ScheduledQueue {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn in_flight(&self) -> u32 {
        self.in_flight
    }

    fn submit(&mut self, io: QueuedIo) -> Result<(), QueuedIo> {
        if self.in_flight >= self.depth {
            return Err(io);
        }
        self.in_flight += 1;
        if let Some(watcher) = &mut self.watcher {
            watcher.leave_parent();
            watcher.submitting();
        }
        let bytes: usize = io.pieces.iter().map(|piece| piece.memory.len()).sum();
        let mut state = self.core.lock();
        let now = sync::now();
        if is_scheduled(io.op) && bytes > 0 {
            let sector = io.pieces.first().map_or(Sector(0), |piece| piece.sector);
            let what = (io.op, sector, bytes as u64);
            let part = state.insert(what, (io.flags, io.owner), (self.waiter, io.tag), now);
            state.provide(part, io);
        } else {
            let tag = io.tag;
            state.insert_unscheduled(io, self.waiter, tag);
        }
        self.core.turn(&mut state, now);
        let mut state = self.core.execute_granted(state);
        // The next thread that waits issues the lower queue.
        state.appoint_timekeeper();
        state.hand_over();
        drop(state);
        if let Some(watcher) = &self.watcher {
            watcher.submitted();
        }
        Ok(())
    }

    fn issue(&mut self) -> Result<(), IoError> {
        let mut state = self.core.lock();
        self.core.turn(&mut state, sync::now());
        let mut state = self.core.execute_granted(state);
        Core::depart(&mut state);
        Ok(())
    }

    fn reap(&mut self, wait_for: u32, done: &mut Vec<Completed>) -> Result<usize, IoError> {
        let wanted = wait_for.min(self.in_flight) as usize;
        if let Some(watcher) = &mut self.watcher {
            watcher.leave_parent();
            let before = done.len();
            loop {
                let seen = watcher.ended();
                self.core.take_ended(self.waiter, |ended| {
                    watcher.taken(ended.len() as u32);
                    done.append(ended);
                });
                if done.len() - before >= wanted {
                    break;
                }
                watcher.wait(seen);
            }
            let count = done.len() - before;
            self.in_flight -= count as u32;
            if self.in_flight > 0 {
                watcher.submitted();
            }
            return Ok(count);
        }
        let mut state = self.core.wait(self.waiter, wanted);
        let ended = &mut state.waiter(self.waiter).ended;
        let count = ended.len();
        done.append(ended);
        self.in_flight -= count as u32;
        Ok(count)
    }

    fn watch(&mut self, notify: Notify) -> Option<Watch> {
        assert_eq!(self.in_flight, 0, "watched before the first transfer");
        self.watcher = Some(Watcher::start(&self.core, self.waiter, notify)?);
        Some(Watch::Called)
    }
}

impl Drop for ScheduledQueue {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_flight > 0 && self.reap(self.in_flight, &mut done).is_ok() {}
        self.watcher = None;
        if self.in_flight == 0 {
            self.core.lock().release(self.waiter);
        }
    }
}

impl fmt::Debug for ScheduledQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScheduledQueue({} in flight on {:?})", self.in_flight, self.core.lower)
    }
}

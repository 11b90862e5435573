//! Turns and waits of a thread in a scheduled device.
//!
//! In a turn a thread takes completions, asks the scheduler for the next requests and starts them, for all owners. A thread that waits for
//! transfers of its own takes turns until they have ended. Between turns one such thread waits on the shared queue and the others sleep. A
//! thread that leaves wakes one of them if no thread is left on the shared queue.
//!
//! Completions that arrive while no thread is in the device wait for the next thread that enters.
//!
//! Locking: one lock (`state`) for the scheduler, the parts and the shared queue. It is never held while a thread waits for a
//! transfer; locks of the lower device are taken under it for a submission.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::state::{PartIndex, State, WaiterIndex};
use diorite_block::sync::{self, Mutex, MutexGuard, Rank};
use diorite_block::{BlockDevice, Completed};

/// Shortest sleep until a deadline: a clock that ends it early must not make a thread spin.
const SHORTEST_SLEEP: Duration = Duration::from_micros(50);

/// The state that the device and its queues share.
pub(super) struct Core {
    pub(super) lower: Arc<dyn BlockDevice>,
    state: Mutex<State>,
}

impl Core {
    pub(super) fn new(lower: Arc<dyn BlockDevice>, state: State) -> Self {
        Self { lower, state: Mutex::ranked(Rank::ScheduledDevice, state) }
    }

    /// Enter the device. A forked child first cancels its parent's transfers.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.leave_parent();
        state
    }

    /// Take completions and start granted requests, for all owners.
    pub(super) fn turn(&self, state: &mut State, now: Duration) {
        state.collect(now);
        state.dispatch(now);
        state.start_granted(&self.lower, now);
    }

    /// Before a thread leaves: issue what it started, and wake a sleeping thread that takes over its tasks.
    pub(super) fn depart(state: &mut State) {
        state.issue();
        state.appoint_timekeeper();
        state.hand_over();
    }

    /// Without a shared queue, execute what is granted now, for any owner. Waiting threads execute later grants.
    pub(super) fn execute_granted<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let mut left = state.granted_count() + 1;
        self.execute_until(state, |_| {
            left -= 1;
            left == 0
        })
    }

    /// Without a shared queue, execute granted transfers, for any owner, until none is left or the condition holds.
    fn execute_until<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        mut is_over: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'a, State> {
        while !is_over(&mut state)
            && let Some(mut io) = state.next_to_execute(&self.lower)
        {
            drop(state);
            let result = io.for_each_bio(|bio| self.lower.execute(std::slice::from_mut(bio)));
            state = self.state.lock();
            let now = sync::now();
            state.transfer_ended(io, result, now);
            self.turn(&mut state, now);
        }
        state
    }

    /// Take turns until so many transfers of a waiter have ended.
    pub(super) fn wait(&self, waiter: WaiterIndex, wanted: usize) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        self.turn(&mut state, sync::now());
        if wanted == 0 {
            state = self.execute_granted(state);
        }
        state = self.wait_until(state, waiter, |state| state.has_ended(waiter, wanted));
        Self::depart(&mut state);
        state
    }

    /// Take turns until the condition holds, and sleep in between.
    fn wait_until<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        waiter: WaiterIndex,
        mut is_over: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'a, State> {
        loop {
            state = self.execute_until(state, &mut is_over);
            if is_over(&mut state) {
                break;
            }
            state = self.sleep(state, waiter);
            self.turn(&mut state, sync::now());
        }
        state.stop_keeping_time(waiter);
        state
    }

    /// Take turns, and take completions of a waiter for which another thread waits ([`Core::wait_for_any`]).
    pub(super) fn take_ended(&self, waiter: WaiterIndex, take: impl FnOnce(&mut Vec<Completed>)) {
        let mut state = self.lock();
        self.turn(&mut state, sync::now());
        state = self.execute_granted(state);
        Self::depart(&mut state);
        take(&mut state.waiter(waiter).ended);
    }

    /// Take turns until a transfer of a waiter has ended, or none is in flight.
    pub(super) fn wait_for_any(&self, waiter: WaiterIndex, in_flight: &AtomicU32) {
        let mut state = self.lock();
        self.turn(&mut state, sync::now());
        let is_over =
            |state: &mut State| in_flight.load(Ordering::Acquire) == 0 || state.has_ended(waiter, 1);
        state = self.wait_until(state, waiter, is_over);
        Self::depart(&mut state);
    }

    /// Wait for all of a call's transfers, and take them.
    pub(super) fn wait_and_release(&self, waiter: WaiterIndex, count: usize) -> Vec<Completed> {
        let mut state = self.wait(waiter, count);
        let ended = std::mem::take(&mut state.waiter(waiter).ended);
        state.release(waiter);
        ended
    }

    /// Wait on the shared queue, or sleep, until a completion or the scheduler's deadline.
    fn sleep<'a>(&'a self, mut state: MutexGuard<'a, State>, waiter: WaiterIndex) -> MutexGuard<'a, State> {
        let deadline = state.keep_time(waiter);
        let earliest = || sync::now() + SHORTEST_SLEEP;
        if let Some(wait) = state.begin_watch() {
            drop(state);
            wait.wait(deadline.map(|at| at.max(earliest())));
            state = self.state.lock();
            state.end_watch();
            return state;
        }
        // A thread that waits on the shared queue does not see later submissions.
        state.issue();
        let wake = state.fall_asleep(waiter);
        state = match deadline {
            Some(at) => wake.wait_timeout(state, at.saturating_sub(sync::now()).max(SHORTEST_SLEEP)),
            None => wake.wait(state),
        };
        state.wake_up(waiter);
        state
    }

    /// Returns a guard that accounts the end of parts that their owner executes directly.
    pub(super) fn ending(&self, waiter: WaiterIndex, parts: Vec<PartIndex>) -> Ending<'_> {
        Ending { core: self, waiter, parts }
    }
}

/// See [`Core::ending`]. It also releases the depth of the parts if the lower device panics.
pub(super) struct Ending<'a> {
    core: &'a Core,
    waiter: WaiterIndex,
    parts: Vec<PartIndex>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut state = self.core.state.lock();
        let now = sync::now();
        for part in self.parts.drain(..) {
            state.part_ended(part, now);
        }
        state.release(self.waiter);
        self.core.turn(&mut state, now);
        Core::depart(&mut state);
    }
}

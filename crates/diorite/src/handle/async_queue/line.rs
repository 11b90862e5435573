//! Transfers that wait until the queue submits them.
//!
//! Where it sits: between a [`Transfer`](super::Transfer), which puts itself in line when it is polled first, and the [`DirectQueue`] below.
//! The thread that holds the queue's lock submits for all, so a future that is no longer polled does not delay others.
//!
//! States: for space -> in flight, or for its range -> in flight; ended if it cannot be submitted.
//!
//! Invariants (when the lock is released, unless the device failed):
//! 1. A transfer waits for space only while `depth` transfers are in flight.
//! 2. A transfer that waits for its range has a ticket for it. When the range may have become free,
//!    `range_freed` is set first, and then the queue is made ready, so that the next reap tries again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use diorite_block::sync::{Condvar, Mutex};
use diorite_block::{IoOwner, Notify};

use super::{After, Slot, State};
use crate::handle::queue::{Acquire, RangeTicket, Submission, SubmitError, TransferKind, TransferMemory};
use crate::store::range_lock::defer_wakers;
use crate::{DirectQueue, Error, File};

/// A transfer that was not submitted.
pub(super) struct Waiting<M> {
    pub(super) kind: TransferKind,
    pub(super) file: File,
    pub(super) offset: u64,
    /// None once it was submitted.
    pub(super) memory: Option<M>,
    pub(super) len: usize,
    /// Its number in line.
    pub(super) number: u64,
    pub(super) range: Option<RangeTicket>,
    /// The thread of the first poll is charged, not the thread that submits.
    pub(super) owner: IoOwner,
    /// Of the future, if it waits for the end.
    pub(super) waker: Option<Waker>,
}

impl<M: TransferMemory + 'static> Waiting<M> {
    /// Submit it. If its range is not free, the error is that of a full queue. Wakers of released ranges are called
    /// later.
    fn submit_to(
        &mut self,
        queue: &mut DirectQueue<M>,
        tag: u64,
        of_range: &Waker,
        wakers: &mut Vec<Waker>,
    ) -> Result<(), SubmitError<M>> {
        let memory = self.memory.take().expect("kept until it is submitted");
        let _charged = self.owner.enter();
        defer_wakers(wakers, || {
            let mut acquire = Acquire::Poll { ticket: &mut self.range, waker: of_range };
            let (kind, file, offset, len) = (self.kind, &self.file, self.offset, self.len);
            let submitted = queue.submit(Submission { kind, file, offset, memory, len, tag }, &mut acquire);
            if !submitted.as_ref().is_err_and(SubmitError::is_full) {
                self.range = None;
            }
            submitted
        })
    }
}

impl<M: TransferMemory + 'static> State<M> {
    /// Add a transfer after all others.
    pub(super) fn put_in_line(&mut self, mut waiting: Box<Waiting<M>>) -> usize {
        self.next_in_line += 1;
        (waiting.number, waiting.owner) = (self.next_in_line, IoOwner::current());
        let number = waiting.number;
        let slot = self.slots.insert(Slot::Waiting(waiting));
        self.for_space.insert(number, slot);
        slot
    }

    /// Remove a transfer that is no longer needed.
    pub(super) fn leave_line(&mut self, waiting: &Waiting<M>) {
        self.for_space.remove(&waiting.number);
        self.for_range.remove(&waiting.number);
    }

    /// Submit waiting transfers, in their order, as far as there is space and ranges are free. Returns whether any
    /// was submitted or failed.
    pub(super) fn submit_waiting(&mut self, after: &mut After<M>) -> bool {
        self.note_freed(after);
        let mut has_any = false;
        if self.signal.range_freed.swap(false, Ordering::SeqCst) {
            let mut waiting = std::mem::take(&mut self.for_range);
            while self.queue.has_space()
                && let Some((number, slot)) = waiting.pop_first()
            {
                has_any |= self.submit(number, slot, after);
            }
            if !waiting.is_empty() {
                // The others are tried when there is space.
                self.signal.range_freed.store(true, Ordering::SeqCst);
                self.for_range.append(&mut waiting);
            }
        }
        while self.queue.has_space()
            && let Some((number, slot)) = self.for_space.pop_first()
        {
            has_any |= self.submit(number, slot, after);
        }
        has_any
    }

    /// Ranges that this queue has released do not make its descriptor readable: note them now.
    fn note_freed(&mut self, after: &mut After<M>) {
        let before = after.wakers.len();
        after.wakers.retain(|waker| !waker.will_wake(&self.of_range));
        if after.wakers.len() < before {
            self.signal.range_freed.store(true, Ordering::SeqCst);
        }
    }

    /// Submit one transfer. Returns whether it was submitted or has failed.
    fn submit(&mut self, number: u64, slot: usize, after: &mut After<M>) -> bool {
        let taken = std::mem::replace(&mut self.slots[slot], Slot::InFlight(None));
        let Slot::Waiting(mut waiting) = taken else { unreachable!("what is in line waits") };
        match waiting.submit_to(&mut self.queue, slot as u64, &self.of_range, &mut after.wakers) {
            Ok(()) => self.slots[slot] = Slot::InFlight(waiting.waker.take()),
            Err(SubmitError { memory, error: Error::QueueFull }) => {
                waiting.memory = Some(memory);
                self.for_range.insert(number, slot);
                self.slots[slot] = Slot::Waiting(waiting);
                return false;
            }
            Err(SubmitError { memory, error }) => {
                after.wakers.extend(waiting.waker.take());
                self.slots[slot] = Slot::Ended(Err(error), memory);
                after.over.push(waiting);
            }
        }
        true
    }
}

/// Makes a thread reap: by the queue's descriptor, or in a simulation a thread in
/// [`AsyncQueue::run`](super::AsyncQueue::run). As a waker it reports that a range may be free.
pub(super) struct Signal {
    /// None in a simulation.
    notify: Option<Notify>,
    pub(super) range_freed: AtomicBool,
    /// In a simulation, for threads that wait. A leaf lock.
    changed: (Mutex<()>, Condvar),
}

impl Signal {
    pub(super) fn new(notify: Option<Notify>) -> Arc<Self> {
        let changed = (Mutex::new(()), Condvar::new());
        Arc::new(Self { notify, range_freed: AtomicBool::new(false), changed })
    }

    /// Make a thread reap.
    pub(super) fn set(&self) {
        if let Some(notify) = &self.notify {
            notify();
        } else {
            let (lock, changed) = &self.changed;
            drop(lock.lock());
            changed.notify_all();
        }
    }

    /// In a simulation, wait until the future of this thread was woken, or a range may be free.
    pub(super) fn wait(&self, is_woken: &AtomicBool) {
        let (lock, changed) = &self.changed;
        let mut guard = lock.lock();
        while !is_woken.load(Ordering::Acquire) && !self.range_freed.load(Ordering::SeqCst) {
            guard = changed.wait(guard);
        }
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.range_freed.store(true, Ordering::SeqCst);
        self.set();
    }
}

//! Transfers that wait in line until the queue submits them.
//!
//! Where it sits: between a [`Transfer`](super::Transfer), which puts itself in line when it is polled first, and the [`DirectQueue`] below.
//! Whatever thread holds the queue's lock submits for all: a future that no task polls any more holds up no other.
//!
//! States: for space -> in flight, or for its range -> in flight; ended where it cannot be submitted.
//!
//! Invariants (when the lock is given back, unless the device failed):
//! 1. A transfer waits for space only while `depth` transfers are in flight.
//! 2. A transfer that waits for its range was refused it, and has a place among those that wait for it. When the range may have become free,
//!    `range_freed` is set first, and then the queue is made ready, so that the next reap tries again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use diorite_block::sync::{Condvar, Mutex};
use diorite_block::{IoOwner, Notify};

use super::{After, Place, State};
use crate::content::range_lock::defer_wakers;
use crate::handle::queue::{Acquire, RangeTicket, SubmitError, TransferMemory};
use crate::{DirectQueue, File};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Read,
    Write,
    /// Bytes in one logical block, in memory for all of it.
    WriteInBlock,
}

/// A transfer that was not submitted.
pub(super) struct Waiting<M> {
    pub(super) op: Op,
    pub(super) file: File,
    pub(super) offset: u64,
    /// None once it was submitted.
    pub(super) memory: Option<M>,
    pub(super) len: usize,
    /// Its number in line.
    pub(super) number: u64,
    pub(super) range: Option<RangeTicket>,
    /// The thread that polled it first is charged, not the one that submits it.
    pub(super) owner: IoOwner,
    /// Of the future, if it waits for the end.
    pub(super) waker: Option<Waker>,
}

impl<M: TransferMemory + 'static> Waiting<M> {
    /// Submit it; the memory comes back as that of a full queue where its range is not free. Ranges that are given back wake later.
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
            let submitted = match self.op {
                Op::Read => queue.read_with(&self.file, self.offset, memory, self.len, tag, &mut acquire),
                Op::Write => queue.write_with(&self.file, self.offset, memory, self.len, tag, &mut acquire),
                Op::WriteInBlock => {
                    queue.write_in_block(&self.file, self.offset, memory, self.len, tag, &mut acquire)
                }
            };
            if !submitted.as_ref().is_err_and(SubmitError::is_full) {
                self.range = None;
            }
            submitted
        })
    }
}

impl<M: TransferMemory + 'static> State<M> {
    /// The transfer takes its place, in line after all others.
    pub(super) fn put_in_line(&mut self, mut waiting: Box<Waiting<M>>) -> usize {
        self.next_in_line += 1;
        (waiting.number, waiting.owner) = (self.next_in_line, IoOwner::current());
        let number = waiting.number;
        let place = self.take_place(Place::Waiting(waiting));
        self.for_space.insert(number, place);
        place
    }

    /// The transfer is not wanted any more, and its place is free.
    pub(super) fn leave_line(&mut self, waiting: &Waiting<M>) {
        self.for_space.remove(&waiting.number);
        self.for_range.remove(&waiting.number);
    }

    /// Submit what waits, in the order in which it came, as far as there is space and ranges are free. Whether any left the line.
    pub(super) fn submit_waiting(&mut self, after: &mut After<M>) -> bool {
        self.note_freed(after);
        let mut has_any = false;
        if self.signal.range_freed.swap(false, Ordering::SeqCst) {
            let mut waiting = std::mem::take(&mut self.for_range);
            while self.queue.has_space()
                && let Some((number, place)) = waiting.pop_first()
            {
                has_any |= self.submit(number, place, after);
            }
            if !waiting.is_empty() {
                // These have their turn when there is space.
                self.signal.range_freed.store(true, Ordering::SeqCst);
                self.for_range.append(&mut waiting);
            }
        }
        while self.queue.has_space()
            && let Some((number, place)) = self.for_space.pop_first()
        {
            has_any |= self.submit(number, place, after);
        }
        has_any
    }

    /// Ranges that this queue itself gave back make nothing ready: they are looked at now.
    fn note_freed(&mut self, after: &mut After<M>) {
        let before = after.wakers.len();
        after.wakers.retain(|waker| !waker.will_wake(&self.of_range));
        if after.wakers.len() < before {
            self.signal.range_freed.store(true, Ordering::SeqCst);
        }
    }

    /// Submit one transfer. Whether it left the line.
    fn submit(&mut self, number: u64, place: usize, after: &mut After<M>) -> bool {
        let taken = std::mem::replace(&mut self.places[place], Place::InFlight(None));
        let Place::Waiting(mut waiting) = taken else { unreachable!("what is in line waits") };
        match waiting.submit_to(&mut self.queue, place as u64, &self.of_range, &mut after.wakers) {
            Ok(()) => self.places[place] = Place::InFlight(waiting.waker.take()),
            Err(SubmitError::Full { memory }) => {
                waiting.memory = Some(memory);
                self.for_range.insert(number, place);
                self.places[place] = Place::Waiting(waiting);
                return false;
            }
            Err(SubmitError::Failed { memory, error }) => {
                after.wakers.extend(waiting.waker.take());
                self.places[place] = Place::Ended(Err(error), memory);
                after.over.push(waiting);
            }
        }
        true
    }
}

/// What has a thread reap: the queue's descriptor, or in a simulation a thread in [`AsyncQueue::run`](super::AsyncQueue::run). As a waker it says that
/// a range may be free.
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

    /// Have a thread reap.
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

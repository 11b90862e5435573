//! One transfer as a future.
//!
//! States: new -> the queue has it (in line, in flight, ended: [`Slot`]) -> over.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use diorite_block::IoOwner;

use super::line::Waiting;
use super::{After, AsyncQueue, Slot, over};
use crate::handle::queue::{TransferKind, TransferMemory};
use crate::{File, Result};

/// A direct transfer: gives its result and its memory. See [`AsyncQueue`].
#[must_use = "a transfer does nothing until it is polled"]
pub struct Transfer<M: TransferMemory + 'static> {
    queue: AsyncQueue<M>,
    state: State<M>,
}

enum State<M> {
    New(Box<Waiting<M>>),
    /// In this slot of the queue.
    Queued(usize),
    Over,
}

impl<M: TransferMemory + 'static> Transfer<M> {
    pub(in crate::handle) fn new(
        queue: AsyncQueue<M>,
        kind: TransferKind,
        file: File,
        offset: u64,
        memory: M,
        len: usize,
    ) -> Self {
        let (memory, owner) = (Some(memory), IoOwner::default());
        let new = Waiting { kind, file, offset, memory, len, number: 0, range: None, owner, waker: None };
        Self { queue, state: State::New(Box::new(new)) }
    }

    /// Whether it was submitted, so that dropping the future does not undo it. A waiting transfer may be submitted at
    /// any time, by any thread that reaps or polls.
    pub fn is_submitted(&self) -> bool {
        match self.state {
            State::New(_) => false,
            State::Queued(slot) => !matches!(self.queue.lock().slots[slot], Slot::Waiting(_)),
            State::Over => true,
        }
    }

    /// Give a new transfer to the queue: submitted if it can be now, else in line.
    pub(in crate::handle) fn submit(&mut self) {
        let State::New(new) = std::mem::replace(&mut self.state, State::Over) else {
            unreachable!("it is given to the queue once")
        };
        let mut after = After::default();
        let mut state = self.queue.lock();
        self.state = State::Queued(state.put_in_line(new));
        state.submit_waiting(&mut after);
        // The device has it now. Transfers that ended at once need no reactor, nor those that the queue has finished
        // for their blocks.
        let reaped = state.reap(0, &mut after);
        drop(state);
        if reaped.is_err() {
            self.queue.shared.signal.set();
        }
        after.unlocked();
    }

    /// The end of a transfer that the queue has.
    fn take_end(&mut self, slot: usize, waker: &Waker) -> Poll<(Result<usize>, M)> {
        let mut state = self.queue.lock();
        let kept = match &mut state.slots[slot] {
            Slot::Waiting(waiting) => &mut waiting.waker,
            Slot::InFlight(kept) => kept,
            _ => match state.slots.remove(slot) {
                Slot::Ended(result, memory) => {
                    drop(state);
                    self.state = State::Over;
                    return Poll::Ready((result, memory));
                }
                _ => unreachable!("the slot is the future's until it takes the end"),
            },
        };
        if !kept.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
            *kept = Some(waker.clone());
        }
        Poll::Pending
    }
}

impl<M: TransferMemory + Unpin + 'static> Future for Transfer<M> {
    type Output = (Result<usize>, M);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::New(_) = self.state {
            self.submit();
        }
        match self.state {
            State::Queued(slot) => self.take_end(slot, context.waker()),
            State::New(_) | State::Over => panic!("{}", over()),
        }
    }
}

impl<M: TransferMemory + 'static> Drop for Transfer<M> {
    fn drop(&mut self) {
        let State::Queued(slot) = self.state else { return };
        let mut after = After::default();
        let mut state = self.queue.lock();
        if matches!(state.slots[slot], Slot::InFlight(_)) {
            state.slots[slot] = Slot::Abandoned;
        } else {
            match state.slots.remove(slot) {
                Slot::Waiting(waiting) => {
                    state.leave_line(&waiting);
                    after.over.push(waiting);
                }
                Slot::Ended(_, memory) => after.memory.push(memory),
                _ => unreachable!("the slot is the future's until it takes the end"),
            }
        }
        drop(state);
        after.unlocked();
    }
}

impl<M: TransferMemory + 'static> fmt::Debug for Transfer<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::New(new) => format!("{:?} of {} bytes at {}", new.kind, new.len, new.offset),
            State::Queued(_) => "in line or in flight".to_owned(),
            State::Over => "over".to_owned(),
        };
        f.debug_tuple("Transfer").field(&state).finish()
    }
}

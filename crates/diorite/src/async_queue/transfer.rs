//! One transfer as a future.
//!
//! States: not submitted (it may wait in line for space in the queue, or for its range of the file) -> in flight -> ended.
//!
//! Invariants:
//! 1. A future that waits for space is in the line, or was woken from it. One that was woken and goes without submitting wakes the next.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::{After, AsyncQueue, Place, over};
use crate::queue::{Acquire, RangeTicket, SubmitError, TransferMemory};
use crate::range_lock::defer_wakers;
use crate::{File, Result};

/// A direct transfer: gives its result and its memory. See [`AsyncQueue`].
#[must_use = "a transfer does nothing until it is polled"]
pub struct Transfer<M: TransferMemory + 'static> {
    queue: AsyncQueue<M>,
    state: State<M>,
}

enum State<M> {
    New(Box<New<M>>),
    InFlight(usize),
    /// Not taken, and not asked for its end yet.
    Refused(Option<(Result<usize>, M)>),
    Over,
}

/// A transfer that was not submitted.
struct New<M> {
    op: Op,
    file: File,
    offset: u64,
    memory: Option<M>,
    len: usize,
    range: Option<RangeTicket>,
    /// Its number in the line for space.
    in_line: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Read,
    Write,
}

impl<M: TransferMemory + 'static> Transfer<M> {
    pub(super) fn new(queue: AsyncQueue<M>, op: Op, file: File, offset: u64, memory: M, len: usize) -> Self {
        let new = New { op, file, offset, memory: Some(memory), len, range: None, in_line: None };
        Self { queue, state: State::New(Box::new(new)) }
    }

    /// Whether it was submitted, so that dropping the future does not undo it.
    pub fn is_submitted(&self) -> bool {
        !matches!(self.state, State::New(_))
    }

    /// Submit it, if it can be now; its end is kept until the future is polled.
    pub(super) fn poll_submission(&mut self, context: &mut Context<'_>) {
        if let Poll::Ready((result, memory)) = self.submit(context.waker()) {
            self.state = State::Refused(Some((result, memory)));
        }
    }

    /// Submit a new transfer; pending while it waits for space or for its range.
    fn submit(&mut self, waker: &Waker) -> Poll<(Result<usize>, M)> {
        let (State::New(new), shared) = (&mut self.state, &self.queue.shared) else { return Poll::Pending };
        let mut after = After::default();
        let mut guard = self.queue.lock();
        let state = &mut *guard;
        let first = state.for_space.first_key_value().map(|(&number, _)| number);
        let is_turn = match (first, new.in_line) {
            (Some(first), Some(mine)) => mine <= first || !state.for_space.contains_key(&mine),
            (Some(_), None) => false,
            (None, _) => true,
        };
        if !is_turn || state.queue.in_flight() >= shared.depth {
            let number = *new.in_line.get_or_insert_with(|| {
                state.next_in_line += 1;
                state.next_in_line
            });
            state.for_space.insert(number, waker.clone());
            // What has ended makes space, and no descriptor says so twice.
            state.wake_for_space(shared.depth, &mut after);
            drop(guard);
            after.unlocked();
            return Poll::Pending;
        }
        if let Some(number) = new.in_line.take() {
            state.for_space.remove(&number);
        }
        let place = state.take_place();
        let memory = new.memory.take().expect("kept until it is submitted");
        let mut acquire = Acquire::Poll { ticket: &mut new.range, waker };
        let (queue, tag) = (&mut state.queue, place as u64);
        let submitted = defer_wakers(&mut after.wakers, || match new.op {
            Op::Read => queue.read_with(&new.file, new.offset, memory, new.len, tag, &mut acquire),
            Op::Write => queue.write_with(&new.file, new.offset, memory, new.len, tag, &mut acquire),
        });
        let ended = match submitted {
            Ok(()) => {
                state.places[place] = Place::InFlight(None);
                self.state = State::InFlight(place);
                None
            }
            Err(SubmitError::Full { memory }) => {
                state.free_place(place);
                new.memory = Some(memory);
                None
            }
            Err(SubmitError::Failed { memory, error }) => {
                state.free_place(place);
                Some((Err(error), memory))
            }
        };
        // The device has it now. What ended at once, and what the queue finished of others to have their blocks, needs no reactor.
        if state.reap(0, shared.depth, &mut after).is_err() {
            self.queue.set_ready();
        }
        drop(guard);
        after.unlocked();
        if let Some(ended) = ended {
            self.state = State::Over;
            return Poll::Ready(ended);
        }
        Poll::Pending
    }

    /// The end of a transfer in flight.
    fn take_end(&mut self, place: usize, waker: &Waker) -> Poll<(Result<usize>, M)> {
        let mut state = self.queue.lock();
        match &mut state.places[place] {
            Place::InFlight(kept) => {
                if !kept.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
                    *kept = Some(waker.clone());
                }
                Poll::Pending
            }
            _ => match state.free_place(place) {
                Place::Ended(result, memory) => {
                    drop(state);
                    self.state = State::Over;
                    Poll::Ready((result, memory))
                }
                _ => unreachable!("the place is the future's until it takes the end"),
            },
        }
    }
}

impl<M: TransferMemory + Unpin + 'static> Future for Transfer<M> {
    type Output = (Result<usize>, M);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::New(_) = self.state
            && let Poll::Ready(ended) = self.submit(context.waker())
        {
            return Poll::Ready(ended);
        }
        match self.state {
            State::New(_) => Poll::Pending,
            State::InFlight(place) => self.take_end(place, context.waker()),
            State::Refused(ref mut refused) => {
                let refused = refused.take().expect("given once");
                self.state = State::Over;
                Poll::Ready(refused)
            }
            State::Over => panic!("{}", over()),
        }
    }
}

impl<M: TransferMemory + 'static> Drop for Transfer<M> {
    fn drop(&mut self) {
        let mut after = After::default();
        match std::mem::replace(&mut self.state, State::Over) {
            State::New(mut new) => {
                let Some(number) = new.in_line.take() else { return };
                let mut state = self.queue.lock();
                state.for_space.remove(&number);
                // Invariant 1.
                state.wake_for_space(self.queue.shared.depth, &mut after);
                drop(state);
                // Its memory and its ticket for a range.
                drop(new);
            }
            State::InFlight(place) => {
                let mut state = self.queue.lock();
                if matches!(state.places[place], Place::InFlight(_)) {
                    state.places[place] = Place::Abandoned;
                } else if let Place::Ended(_, memory) = state.free_place(place) {
                    after.memory.push(memory);
                }
            }
            State::Refused(_) | State::Over => {}
        }
        after.unlocked();
    }
}

impl<M: TransferMemory + 'static> fmt::Debug for Transfer<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::New(new) => format!("{:?} of {} bytes at {}", new.op, new.len, new.offset),
            State::InFlight(_) => "in flight".to_owned(),
            State::Refused(_) | State::Over => "over".to_owned(),
        };
        f.debug_tuple("Transfer").field(&state).finish()
    }
}

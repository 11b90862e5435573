//! How a transfer gets its range of the file.

use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::{DirectQueue, TransferMemory};
use crate::content::Content;
use crate::content::range_lock::{LockId, LockMode, Ticket};
use crate::{Error, File, Result};

/// What happens when the range is not free.
pub(crate) enum Acquire<'a> {
    /// What is in flight in the queue is finished, and then the thread waits.
    Wait,
    /// The transfer is not taken, as if the queue were full, and the waker is woken when it is its turn.
    Poll { ticket: &'a mut Option<RangeTicket>, waker: &'a Waker },
}

/// A transfer's place among those that wait for a range; given up when dropped.
#[derive(Debug)]
pub(crate) struct RangeTicket {
    content: Arc<Content>,
    ticket: Option<Ticket>,
}

impl Drop for RangeTicket {
    fn drop(&mut self) {
        if let Some(ticket) = &self.ticket {
            self.content.ranges.give_up(ticket);
        }
    }
}

impl<M: TransferMemory + 'static> DirectQueue<M> {
    /// Take a range.
    pub(super) fn lock(
        &mut self,
        file: &File,
        range: Range<u64>,
        mode: LockMode,
        acquire: &mut Acquire<'_>,
    ) -> Result<LockId> {
        match acquire {
            Acquire::Wait => self.wait_for_range(file.content(), &range, mode),
            Acquire::Poll { ticket, waker } => poll_range(file, range, mode, ticket, waker),
        }
    }

    /// If the range is not free, what is in flight here is finished first: it may be ours.
    fn wait_for_range(&mut self, content: &Content, range: &Range<u64>, mode: LockMode) -> Result<LockId> {
        loop {
            if let Some(id) = content.ranges.try_acquire(range.clone(), mode) {
                return Ok(id);
            }
            if self.pending.is_empty() {
                return Ok(content.ranges.acquire(range.clone(), mode));
            }
            self.finish_some()?;
        }
    }
}

fn poll_range(
    file: &File,
    range: Range<u64>,
    mode: LockMode,
    place: &mut Option<RangeTicket>,
    waker: &Waker,
) -> Result<LockId> {
    let content = file.content();
    // What was asked for before the file grew may be another range.
    let is_for =
        |place: &RangeTicket| place.ticket.as_ref().is_some_and(|ticket| ticket.is_for(&range, mode));
    if !place.as_ref().is_some_and(is_for) {
        *place = None;
        if let Some(id) = content.ranges.try_acquire(range.clone(), mode) {
            return Ok(id);
        }
        let ticket = content.ranges.take_ticket(range, mode);
        *place = Some(RangeTicket { content: Arc::clone(content), ticket: Some(ticket) });
    }
    let waiting = place.as_mut().expect("a place was taken");
    match content.ranges.poll_acquire(&mut waiting.ticket, waker) {
        Poll::Ready(id) => {
            *place = None;
            Ok(id)
        }
        Poll::Pending => Err(Error::QueueFull),
    }
}

//! The locks of a transfer's range.

use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::{DirectQueue, TransferMemory};
use crate::content::Content;
use crate::store::range_lock::{LockId, LockMode, Ticket};
use crate::{Error, File, Result};

/// The kind of wait of a queue for a range.
pub(crate) enum Acquire<'a> {
    /// Finish the transfers in flight in the queue, then block.
    Wait,
    /// Reject the transfer, as if the queue were full. The waker is woken when the range may be free.
    Poll { ticket: &'a mut Option<RangeTicket>, waker: &'a Waker },
}

/// A transfer's ticket for a range, given up when dropped.
#[derive(Debug)]
pub(crate) struct RangeTicket {
    content: Arc<Content>,
    ticket: Option<Ticket>,
}

impl Drop for RangeTicket {
    fn drop(&mut self) {
        if let Some(ticket) = &self.ticket {
            self.content.store.ranges.give_up(ticket);
        }
    }
}

impl<M: TransferMemory + 'static> DirectQueue<M> {
    /// Lock a range.
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

    /// If the range is not free, finish the transfers in flight first: one of them may hold it.
    fn wait_for_range(&mut self, content: &Content, range: &Range<u64>, mode: LockMode) -> Result<LockId> {
        loop {
            if let Some(id) = content.store.ranges.try_acquire(range.clone(), mode) {
                return Ok(id);
            }
            if self.pending.is_empty() {
                return Ok(content.store.ranges.acquire(range.clone(), mode));
            }
            self.finish_some()?;
        }
    }
}

fn poll_range(
    file: &File,
    range: Range<u64>,
    mode: LockMode,
    waiting: &mut Option<RangeTicket>,
    waker: &Waker,
) -> Result<LockId> {
    let content = file.content();
    // The file may have grown since, so that the ticket is for another range.
    let is_for =
        |waiting: &RangeTicket| waiting.ticket.as_ref().is_some_and(|ticket| ticket.is_for(&range, mode));
    if !waiting.as_ref().is_some_and(is_for) {
        *waiting = None;
        if let Some(id) = content.store.ranges.try_acquire(range.clone(), mode) {
            return Ok(id);
        }
        let ticket = content.store.ranges.take_ticket(range, mode);
        *waiting = Some(RangeTicket { content: Arc::clone(content), ticket: Some(ticket) });
    }
    let entered = waiting.as_mut().expect("a ticket was taken");
    match content.store.ranges.poll_acquire(&mut entered.ticket, waker) {
        Poll::Ready(id) => {
            *waiting = None;
            Ok(id)
        }
        Poll::Pending => Err(Error::QueueFull),
    }
}

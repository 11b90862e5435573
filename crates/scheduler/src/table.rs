//! The requests that a scheduler holds: pending and in flight, in one slab, with their statistics.
//!
//! A [`Key`] names a slot; queues keep keys. A slot is freed at completion and used again.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::time::Duration;

use super::statistics::{Record, Statistics};
use super::{Request, RequestId};
use diorite_block::NumberHasher;
use diorite_block::TaskId;

/// Identifies a slot of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pending,
    InFlight,
}

/// A request and its state in the scheduler.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) request: Request,
    /// Deadline of its dispatch.
    pub(super) expires: Duration,
    /// The scheduler's queue that it is in.
    pub(super) queue: u32,
    state: Option<State>,
    pub(super) inserted: Duration,
    dispatched: Duration,
    record: Record,
}

/// A request that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) request: Request,
    pub(super) queue: u32,
    pub(super) service: Duration,
    /// When it was inserted.
    pub(super) inserted: Duration,
}

/// All requests of one scheduler.
#[derive(Debug, Default)]
pub(super) struct RequestTable {
    slots: Vec<Slot>,
    free: Vec<Key>,
    flying: HashMap<u64, Key, BuildHasherDefault<NumberHasher>>,
    pending: usize,
    pub(super) statistics: Statistics,
}

impl RequestTable {
    pub(super) fn insert(&mut self, request: Request, queue: u32, expires: Duration, now: Duration) -> Key {
        let record = self.statistics.record_of(request.owner.task);
        let state = Some(State::Pending);
        let slot = Slot { request, expires, queue, state, inserted: now, dispatched: now, record };
        self.pending += 1;
        if let Some(key) = self.free.pop() {
            self.slots[key.0 as usize] = slot;
            return key;
        }
        self.slots.push(slot);
        Key(self.slots.len() as u32 - 1)
    }

    pub(super) fn slot(&self, key: Key) -> &Slot {
        &self.slots[key.0 as usize]
    }

    pub(super) fn request(&self, key: Key) -> &Request {
        &self.slots[key.0 as usize].request
    }

    pub(super) fn slot_mut(&mut self, key: Key) -> &mut Slot {
        &mut self.slots[key.0 as usize]
    }

    /// Whether the slot still holds this request, not dispatched.
    pub(super) fn is_pending(&self, key: Key, id: RequestId) -> bool {
        let slot = &self.slots[key.0 as usize];
        slot.state == Some(State::Pending) && slot.request.id == id
    }

    pub(super) fn dispatch(&mut self, key: Key, now: Duration) -> Request {
        let slot = &mut self.slots[key.0 as usize];
        assert_eq!(slot.state, Some(State::Pending), "dispatched twice");
        slot.state = Some(State::InFlight);
        slot.dispatched = now;
        let (request, wait) = (slot.request, now.saturating_sub(slot.inserted));
        self.statistics.dispatched(slot.record, request.op, request.bytes(), wait);
        self.pending -= 1;
        let former = self.flying.insert(request.id.0, key);
        assert!(former.is_none(), "request id {} is in flight twice", request.id.0);
        request
    }

    pub(super) fn complete(&mut self, id: RequestId, now: Duration) -> Ended {
        let key = self.flying.remove(&id.0).expect("completed what was dispatched");
        let slot = &mut self.slots[key.0 as usize];
        slot.state = None;
        let service = now.saturating_sub(slot.dispatched);
        let ended = Ended { request: slot.request, queue: slot.queue, service, inserted: slot.inserted };
        self.statistics.completed(slot.record, service);
        self.free.push(key);
        ended
    }

    pub(super) fn note_merge(&mut self, task: TaskId) {
        self.statistics.merged(task);
    }

    pub(super) fn pending_count(&self) -> usize {
        self.pending
    }

    pub(super) fn flying_count(&self) -> usize {
        self.flying.len()
    }
}

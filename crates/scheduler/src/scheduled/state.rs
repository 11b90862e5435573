//! The state of a scheduled device, under its lock: requests and their parts, the shared queue, waiting threads.
//!
//! States of a part: pending in the scheduler -> granted -> in the lower device -> ended (with its owner).
//!
//! Invariants:
//! 1. At most `depth` requests are granted and not completed.
//! 2. If the scheduler has a deadline and a thread waits outside of the shared queue, some thread wakes at that deadline or before.
//! 3. A forked child starts no part of its parent: the part ends there with `ECANCELED`. A part that a thread of the parent executes has
//!    ended for the scheduler, so nothing waits for it.
//! 4. Only one thread waits on the shared queue (`is_watched`). Meanwhile no other thread takes completions from it.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::time::Duration;

use crate::{IoScheduler, Request, RequestId};
use diorite_block::sync::{Condvar, now};
use diorite_block::{
    BioFlags, BlockDevice, Completed, IoError, IoOwner, NumberHasher, Op, Process, QueueWait, QueuedIo,
    Sector, SharedQueue,
};

/// Transfers in the shared queue per request of the device: merged requests have several.
const PARTS_OF_REQUEST: u32 = 4;

type Requests = HashMap<RequestId, Parts, BuildHasherDefault<NumberHasher>>;

/// See the module head.
pub(super) struct State {
    pub(super) scheduler: Box<dyn IoScheduler>,
    depth: u32,
    next_id: u64,
    in_flight: u32,
    requests: Requests,
    parts: Vec<Part>,
    free_parts: Vec<PartIndex>,
    /// Granted and not in the lower device.
    granted: VecDeque<PartIndex>,
    lower: Lower,
    is_watched: bool,
    collected: Vec<Completed>,
    waiters: Vec<Waiter>,
    free_waiters: Vec<WaiterIndex>,
    timekeeper: Option<(Duration, WaiterIndex)>,
    /// When the scheduler last granted nothing.
    declined_at: Duration,
    process: Process,
}

/// The use of the lower device.
enum Lower {
    Unopened,
    Queue(Box<dyn SharedQueue>),
    /// No shared queue: a thread executes each transfer and waits for it.
    Execute,
}

/// The parts of one request, several after a merge.
#[derive(Default)]
struct Parts {
    pending: Vec<PartIndex>,
    left: usize,
}

/// One transfer of one owner.
#[derive(Debug)]
struct Part {
    waiter: WaiterIndex,
    /// The owner's number of it.
    number: u64,
    request: Option<RequestId>,
    is_granted: bool,
    /// A thread executes it directly.
    is_executed: bool,
    /// The transfer, unless it is in the lower device. For a bio, present once its memory is lent.
    io: Option<QueuedIo>,
    process: Process,
}

/// A thread in `execute`, or a submitter's queue.
#[derive(Default)]
pub(super) struct Waiter {
    pub(super) ended: Vec<Completed>,
    /// It waits for so many completions.
    wanted: usize,
    is_sleeping: bool,
    wake: Arc<Condvar>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaiterIndex(usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartIndex(usize);

impl State {
    pub(super) fn new(scheduler: Box<dyn IoScheduler>, depth: u32) -> Self {
        Self {
            scheduler,
            depth,
            next_id: 0,
            in_flight: 0,
            requests: Requests::default(),
            parts: Vec::new(),
            free_parts: Vec::new(),
            granted: VecDeque::new(),
            lower: Lower::Unopened,
            is_watched: false,
            collected: Vec::new(),
            waiters: Vec::new(),
            free_waiters: Vec::new(),
            timekeeper: None,
            declined_at: Duration::ZERO,
            process: Process::current(),
        }
    }

    /// Most requests in the device at once.
    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    /// Requests in the device.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Requests not granted yet.
    pub(super) fn queued(&self) -> u32 {
        (self.requests.len() as u32).saturating_sub(self.in_flight)
    }

    // ---- parts ----

    fn new_part(&mut self, part: Part) -> PartIndex {
        if let Some(index) = self.free_parts.pop() {
            self.parts[index.0] = part;
            return index;
        }
        self.parts.push(part);
        PartIndex(self.parts.len() - 1)
    }

    /// Insert a request of `waiter`, which numbers it. Its transfer is provided later.
    pub(super) fn insert(
        &mut self,
        (op, sector, bytes): (Op, Sector, u64),
        (flags, owner): (BioFlags, IoOwner),
        (waiter, number): (WaiterIndex, u64),
        now: Duration,
    ) -> PartIndex {
        self.next_id += 1;
        let id = RequestId(self.next_id);
        let sectors = bytes.div_ceil(diorite_block::SECTOR_SIZE);
        let request = Request { id, op, sector, sectors, flags, owner };
        let merged = self.scheduler.merge(&request, now);
        if merged.is_none() {
            self.scheduler.insert(request, now);
        }
        let request = merged.unwrap_or(id);
        let part = self.new_part(Part {
            waiter,
            number,
            request: Some(request),
            is_granted: false,
            is_executed: false,
            io: None,
            process: self.process,
        });
        let parts = self.requests.entry(request).or_default();
        parts.pending.push(part);
        parts.left += 1;
        part
    }

    /// Take a transfer that is not scheduled.
    pub(super) fn insert_unscheduled(&mut self, io: QueuedIo, waiter: WaiterIndex, number: u64) {
        let part = self.new_part(Part {
            waiter,
            number,
            request: None,
            is_granted: true,
            is_executed: false,
            io: None,
            process: self.process,
        });
        self.provide(part, io);
    }

    /// Provide the transfer of a part. From now on any thread may start it.
    pub(super) fn provide(&mut self, part: PartIndex, mut io: QueuedIo) {
        io.tag = part.0 as u64;
        let this = &mut self.parts[part.0];
        this.io = Some(io);
        if this.is_granted {
            self.granted.push_back(part);
        }
    }

    /// The owner's number of a part.
    pub(super) fn number_of(&self, part: PartIndex) -> u64 {
        self.parts[part.0].number
    }

    /// Whether the owner of these parts executes them directly: all are granted, and no other transfer needs this thread.
    pub(super) fn execute_alone(&mut self, parts: &[PartIndex]) -> bool {
        let is_needed = match &self.lower {
            Lower::Queue(queue) => !self.is_watched && queue.in_flight() > 0,
            Lower::Unopened | Lower::Execute => !self.granted.is_empty(),
        };
        let is_alone = !is_needed && parts.iter().all(|part| self.parts[part.0].is_granted);
        for part in parts {
            self.parts[part.0].is_executed = is_alone;
        }
        is_alone
    }

    /// Account the end of a part.
    pub(super) fn part_ended(&mut self, part: PartIndex, now: Duration) {
        self.free_parts.push(part);
        let this = &mut self.parts[part.0];
        this.is_executed = false;
        let Some(id) = this.request else { return };
        let parts = self.requests.get_mut(&id).expect("a request lasts until its last part has ended");
        parts.left -= 1;
        if parts.left == 0 {
            self.requests.remove(&id);
            self.in_flight -= 1;
            self.scheduler.completed(id, now);
        }
    }

    /// A transfer has ended: return it to its owner.
    pub(super) fn transfer_ended(&mut self, mut io: QueuedIo, result: Result<(), IoError>, now: Duration) {
        let part = PartIndex(io.tag as usize);
        let Part { waiter, number, .. } = self.parts[part.0];
        io.tag = number;
        self.part_ended(part, now);
        let waiter = &mut self.waiters[waiter.0];
        waiter.ended.push(Completed { io, result });
        if waiter.is_sleeping && waiter.ended.len() >= waiter.wanted {
            waiter.wake.notify_one();
        }
    }

    /// In a forked child, cancel the parent's transfers.
    pub(super) fn leave_parent(&mut self) {
        if self.process.is_current() {
            return;
        }
        self.process = Process::current();
        (self.is_watched, self.timekeeper) = (false, None);
        self.waiters.iter_mut().for_each(|waiter| waiter.is_sleeping = false);
        let executed = |part: &PartIndex| self.parts[part.0].is_executed;
        let lost: Vec<_> = (0..self.parts.len()).map(PartIndex).filter(executed).collect();
        for part in lost {
            self.part_ended(part, now());
        }
    }

    /// The transfer of a granted part, unless it is a parent's.
    fn take_granted(
        &mut self,
        part: PartIndex,
        (lower, now): (&Arc<dyn BlockDevice>, Duration),
    ) -> Option<QueuedIo> {
        let Part { io, process, .. } = &mut self.parts[part.0];
        let io = io.take().expect("a granted part is started once");
        if process.is_current() {
            return Some(io);
        }
        let canceled = IoError::canceled(lower.name(), &io);
        self.transfer_ended(io, Err(canceled), now);
        self.dispatch(now);
        None
    }

    // ---- the lower device ----

    /// Grant what the scheduler dispatches now.
    pub(super) fn dispatch(&mut self, now: Duration) {
        while self.in_flight < self.depth {
            let Some(request) = self.scheduler.dispatch(now) else {
                self.declined_at = now;
                return;
            };
            self.in_flight += 1;
            let parts = self.requests.get_mut(&request.id).expect("dispatched what was inserted");
            for part in std::mem::take(&mut parts.pending) {
                let this = &mut self.parts[part.0];
                this.is_granted = true;
                if this.io.is_some() {
                    self.granted.push_back(part);
                }
            }
        }
    }

    /// Take completions from the shared queue, unless a thread waits on it.
    pub(super) fn collect(&mut self, now: Duration) {
        let Lower::Queue(queue) = &mut self.lower else { return };
        if self.is_watched || queue.in_flight() == 0 {
            return;
        }
        let mut collected = std::mem::take(&mut self.collected);
        queue.collect(&mut collected);
        for Completed { io, result } in collected.drain(..) {
            self.transfer_ended(io, result, now);
        }
        self.collected = collected;
    }

    /// Submit granted transfers to the shared queue.
    pub(super) fn start_granted(&mut self, lower: &Arc<dyn BlockDevice>, now: Duration) {
        if let (Lower::Unopened, false) = (&self.lower, self.granted.is_empty()) {
            let depth = self.depth.saturating_mul(PARTS_OF_REQUEST);
            self.lower = Arc::clone(lower).open_shared_queue(depth).map_or(Lower::Execute, Lower::Queue);
        }
        while let Lower::Queue(queue) = &self.lower
            && queue.in_flight() < queue.depth()
            && let Some(part) = self.granted.pop_front()
        {
            let Some(io) = self.take_granted(part, (lower, now)) else { continue };
            let Lower::Queue(queue) = &mut self.lower else { return };
            let refused = queue.submit(io).is_err();
            assert!(!refused, "a queue takes transfers up to its depth");
        }
    }

    /// Transfers that are granted and not yet started.
    pub(super) fn granted_count(&self) -> usize {
        self.granted.len()
    }

    /// The next transfer that a thread executes directly, if there is no shared queue.
    pub(super) fn next_to_execute(&mut self, lower: &Arc<dyn BlockDevice>) -> Option<QueuedIo> {
        let Lower::Execute = self.lower else { return None };
        loop {
            let part = self.granted.pop_front()?;
            if !self.granted.is_empty() {
                self.wake_a_sleeper();
            }
            if let Some(io) = self.take_granted(part, (lower, now())) {
                self.parts[part.0].is_executed = true;
                return Some(io);
            }
        }
    }

    /// Issue the transfers of the shared queue.
    pub(super) fn issue(&mut self) {
        if let Lower::Queue(queue) = &mut self.lower {
            // The wait issues the rest, and reports each transfer's end.
            let _ = queue.issue();
        }
    }

    /// Begin to wait on the shared queue, if no thread does and transfers are in flight.
    pub(super) fn begin_watch(&mut self) -> Option<QueueWait> {
        let Lower::Queue(queue) = &mut self.lower else { return None };
        if self.is_watched || queue.in_flight() == 0 {
            return None;
        }
        self.is_watched = true;
        Some(queue.begin_wait())
    }

    pub(super) fn end_watch(&mut self) {
        self.is_watched = false;
    }

    // ---- waiting threads ----

    pub(super) fn enter(&mut self) -> WaiterIndex {
        if let Some(index) = self.free_waiters.pop() {
            return index;
        }
        self.waiters.push(Waiter::default());
        WaiterIndex(self.waiters.len() - 1)
    }

    /// Free the index of a waiter without transfers.
    pub(super) fn release(&mut self, index: WaiterIndex) {
        assert!(self.waiter(index).ended.is_empty(), "left with transfers that it has not taken");
        self.free_waiters.push(index);
    }

    pub(super) fn waiter(&mut self, index: WaiterIndex) -> &mut Waiter {
        &mut self.waiters[index.0]
    }

    /// Whether so many transfers of a waiter have ended. If not, it is woken when they have.
    pub(super) fn has_ended(&mut self, index: WaiterIndex, wanted: usize) -> bool {
        let waiter = self.waiter(index);
        waiter.wanted = wanted;
        waiter.ended.len() >= wanted
    }

    /// A thread is about to sleep. Returns its condition.
    pub(super) fn fall_asleep(&mut self, index: WaiterIndex) -> Arc<Condvar> {
        let waiter = self.waiter(index);
        waiter.is_sleeping = true;
        Arc::clone(&waiter.wake)
    }

    pub(super) fn wake_up(&mut self, index: WaiterIndex) {
        self.waiter(index).is_sleeping = false;
    }

    fn wake_a_sleeper(&self) {
        if let Some(waiter) = self.waiters.iter().find(|waiter| waiter.is_sleeping) {
            waiter.wake.notify_one();
        }
    }

    /// A thread leaves: if no thread waits on the shared queue, wake a sleeping one.
    pub(super) fn hand_over(&mut self) {
        let is_needed = match &self.lower {
            Lower::Queue(queue) => !self.is_watched && queue.in_flight() > 0,
            Lower::Unopened | Lower::Execute => !self.granted.is_empty(),
        };
        if is_needed {
            self.wake_a_sleeper();
        }
    }

    /// When the scheduler may grant a request without another event. None while the device is full, and none at a time that was tried
    /// already: then it waits for a completion.
    fn next_deadline(&self) -> Option<Duration> {
        let deadline = if self.in_flight < self.depth { self.scheduler.next_deadline() } else { None };
        deadline.filter(|at| *at > self.declined_at)
    }

    /// The time at which this thread must wake up for the scheduler, unless another thread does.
    pub(super) fn keep_time(&mut self, index: WaiterIndex) -> Option<Duration> {
        let deadline = self.next_deadline().filter(|at| match self.timekeeper {
            Some((kept, keeper)) => keeper == index || *at < kept,
            None => true,
        });
        match deadline {
            Some(at) => self.timekeeper = Some((at, index)),
            None => self.stop_keeping_time(index),
        }
        deadline
    }

    pub(super) fn stop_keeping_time(&mut self, index: WaiterIndex) {
        if self.timekeeper.is_some_and(|(_, keeper)| keeper == index) {
            self.timekeeper = None;
        }
    }

    /// Invariant 2: if the deadline moves forward, wake a sleeping thread, which keeps it.
    pub(super) fn appoint_timekeeper(&mut self) {
        let Some(at) = self.next_deadline() else { return };
        if self.timekeeper.is_none_or(|(kept, _)| at < kept) {
            self.wake_a_sleeper();
        }
    }
}

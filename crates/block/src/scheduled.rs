//! A scheduler on any device, without a thread of its own.
//!
//! Where it sits: between submitters and a [`BlockDevice`]. A submitter inserts its bios as requests and holds a ticket for
//! each. Whoever inserts or completes something asks the scheduler what goes next and *grants* those tickets; a granted
//! bio is issued by the thread that owns it, on that thread's own way into the device. So no memory changes hands, and no
//! dispatcher stands between.
//!
//! Interface: [`ScheduledDevice::attach`] gives the device back untouched for scheduler `none`: direct issue costs nothing.
//! Flushes carry no address and go straight down. A merge means that two requests are granted together, each still issued
//! by its owner.
//!
//! Locking: one lock (`state`) for the scheduler and the tickets, never held across I/O. A waiting thread sleeps on its own
//! condition. Of all waiting threads one (the timekeeper) wakes up at the scheduler's next deadline.
//!
//! Invariants:
//! 1. At most `depth` requests are granted and not completed.
//! 2. If the scheduler has a deadline and a thread waits, some thread wakes up at that deadline or before.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::scheduler::{IoScheduler, Request, RequestId, SchedulerKind, Statistics};
use crate::sync::{self, Condvar, Mutex, MutexGuard};
use crate::{
    Bio, BioFlags, BioMemory, BlockDevice, Completed, Geometry, IoCounters, IoError, IoOwner, IoQueue, Op,
    QueuedIo, Sector, TaskId,
};

/// Requests in a device at once, when nothing else is said.
const DEFAULT_DEPTH: u32 = 32;
/// Shortest sleep for a deadline, so that one in the past cannot make a thread spin.
const SHORTEST_SLEEP: Duration = Duration::from_micros(50);

/// A device whose requests are ordered by a scheduler.
pub struct ScheduledDevice {
    lower: Arc<dyn BlockDevice>,
    core: Arc<Core>,
}

/// What the device and its queues share.
struct Core {
    state: Mutex<State>,
    depth: u32,
}

struct State {
    scheduler: Box<dyn IoScheduler>,
    next_id: u64,
    in_flight: u32,
    /// Who owns the parts of each request; several after a merge.
    tickets: HashMap<RequestId, Tickets>,
    waiters: Vec<Waiter>,
    free_waiters: Vec<WaiterIndex>,
    timekeeper: Option<(Duration, WaiterIndex)>,
}

/// The owners of one request's parts, and how many parts have not ended.
struct Tickets {
    parts: Vec<(WaiterIndex, usize)>,
    left: usize,
}

/// A thread (or queue) with requests here.
struct Waiter {
    /// Parts that may be issued now: request, and the owner's number for the part.
    granted: Vec<(RequestId, usize)>,
    sleeping: bool,
    wake: Arc<Condvar>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WaiterIndex(usize);

impl ScheduledDevice {
    /// Put a scheduler on a device; with `none` the device itself is returned.
    pub fn attach(lower: Arc<dyn BlockDevice>, kind: SchedulerKind) -> Arc<dyn BlockDevice> {
        match Self::of_kind(&lower, kind) {
            Some(scheduled) => scheduled,
            None => lower,
        }
    }

    /// The device with a scheduler of this kind, to 32 requests at once; nothing for `none`.
    pub fn of_kind(lower: &Arc<dyn BlockDevice>, kind: SchedulerKind) -> Option<Arc<Self>> {
        kind.build().map(|scheduler| Self::new(Arc::clone(lower), scheduler, DEFAULT_DEPTH))
    }

    /// Put `scheduler` on a device that takes `depth` requests at once.
    pub fn new(lower: Arc<dyn BlockDevice>, scheduler: Box<dyn IoScheduler>, depth: u32) -> Arc<Self> {
        let state = State {
            scheduler,
            next_id: 0,
            in_flight: 0,
            tickets: HashMap::new(),
            waiters: Vec::new(),
            free_waiters: Vec::new(),
            timekeeper: None,
        };
        Arc::new(Self { lower, core: Arc::new(Core { state: Mutex::new(state), depth: depth.max(1) }) })
    }

    /// What each owner has got so far.
    pub fn statistics(&self) -> Statistics {
        self.core.state.lock().scheduler.statistics().clone()
    }

    /// The scheduler's state, in lines for a person.
    pub fn describe(&self) -> String {
        let state = self.core.state.lock();
        format!(
            "{}: depth {} of {}\n{}",
            self.lower.name(),
            state.in_flight,
            self.core.depth,
            state.scheduler.describe(sync::now())
        )
    }

    /// The name of the device below.
    pub fn device_name(&self) -> String {
        self.lower.name()
    }

    /// The scheduler's name.
    pub fn scheduler_name(&self) -> &'static str {
        self.core.state.lock().scheduler.name()
    }

    /// Share of the disk that an owner gets against owners of the same priority; 100 by default.
    pub fn set_weight(&self, task: TaskId, weight_percent: u32) {
        self.core.state.lock().scheduler.set_weight(task, weight_percent);
    }

    /// Issue the granted bios of a list from this thread.
    fn issue(&self, bios: &mut [Bio<'_>], granted: &[(RequestId, usize)]) -> Result<(), IoError> {
        if let [(_, index)] = granted {
            return self.lower.execute(std::slice::from_mut(&mut bios[*index]));
        }
        let taken = |(_, index): &(RequestId, usize)| std::mem::replace(&mut bios[*index], placeholder());
        let mut batch: Vec<_> = granted.iter().map(taken).collect();
        let result = self.lower.execute(&mut batch);
        for ((_, index), bio) in granted.iter().zip(batch) {
            bios[*index] = bio;
        }
        result
    }
}

/// Stands for a bio that is being issued.
fn placeholder<'a>() -> Bio<'a> {
    let memory = BioMemory::None(0);
    Bio { sector: Sector(0), memory, op: Op::Flush, flags: BioFlags::NONE, owner: IoOwner::default() }
}

impl BlockDevice for ScheduledDevice {
    fn geometry(&self) -> &Geometry {
        self.lower.geometry()
    }

    fn counters(&self) -> &IoCounters {
        self.lower.counters()
    }

    fn name(&self) -> String {
        self.lower.name()
    }

    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        let mut result = Ok(());
        let mut left = 0;
        let waiter = {
            let mut state = self.core.state.lock();
            let waiter = state.enter();
            for (index, bio) in bios.iter().enumerate().filter(|(_, bio)| bio.op != Op::Flush) {
                let sectors = bio.len().div_ceil(crate::SECTOR_SIZE);
                let (op, sector, flags, owner) = (bio.op, bio.sector, bio.flags, bio.owner);
                let request = Request { id: RequestId(0), op, sector, sectors, flags, owner };
                state.insert(request, waiter, index, sync::now());
                left += 1;
            }
            self.core.kick(&mut state, sync::now());
            waiter
        };
        for bio in bios.iter_mut().filter(|bio| bio.op == Op::Flush) {
            result = result.and(self.lower.execute(std::slice::from_mut(bio)));
        }
        while left > 0 {
            let granted = self.core.wait_for_grant(waiter);
            result = result.and(self.issue(bios, &granted));
            left -= granted.len();
            let mut state = self.core.state.lock();
            let now = sync::now();
            for (id, _) in granted {
                state.part_completed(id, now);
            }
            self.core.kick(&mut state, now);
        }
        let mut state = self.core.state.lock();
        state.leave(waiter);
        result
    }

    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        let lower = Arc::clone(&self.lower).open_queue(depth)?;
        let waiter = self.core.state.lock().enter();
        Ok(Box::new(ScheduledQueue {
            lower,
            core: Arc::clone(&self.core),
            waiter,
            held: Vec::new(),
            in_flight: 0,
        }))
    }
}

impl fmt::Debug for ScheduledDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScheduledDevice({:?} on {:?})", self.scheduler_name(), self.lower)
    }
}

impl Core {
    /// Grant what the scheduler wants in the device now.
    fn kick(&self, state: &mut State, now: Duration) {
        while state.in_flight < self.depth
            && let Some(request) = state.scheduler.dispatch(now)
        {
            state.in_flight += 1;
            state.grant(request.id);
        }
        state.appoint_timekeeper();
    }

    /// Sleep until parts of this waiter may be issued.
    fn wait_for_grant(&self, waiter: WaiterIndex) -> Vec<(RequestId, usize)> {
        let mut state = self.state.lock();
        loop {
            if !state.waiter(waiter).granted.is_empty() {
                let granted = std::mem::take(&mut state.waiter(waiter).granted);
                if state.timekeeper.is_some_and(|(_, keeper)| keeper == waiter) {
                    state.timekeeper = None;
                    state.appoint_timekeeper();
                }
                return granted;
            }
            state = self.sleep(state, waiter);
        }
    }

    /// Sleep until woken, or until the scheduler's deadline if nobody else keeps that time.
    fn sleep<'a>(&'a self, mut state: MutexGuard<'a, State>, waiter: WaiterIndex) -> MutexGuard<'a, State> {
        let deadline = state.scheduler.next_deadline().filter(|at| match state.timekeeper {
            Some((kept, keeper)) => keeper == waiter || *at < kept,
            None => true,
        });
        let wake = Arc::clone(&state.waiter(waiter).wake);
        state.waiter(waiter).sleeping = true;
        let Some(at) = deadline else {
            if state.timekeeper.is_some_and(|(_, keeper)| keeper == waiter) {
                state.timekeeper = None;
            }
            state = wake.wait(state);
            state.waiter(waiter).sleeping = false;
            return state;
        };
        state.timekeeper = Some((at, waiter));
        let timeout = at.saturating_sub(sync::now()).max(SHORTEST_SLEEP);
        state = wake.wait_timeout(state, timeout);
        state.waiter(waiter).sleeping = false;
        let now = sync::now();
        if now >= at {
            if state.timekeeper.is_some_and(|(_, keeper)| keeper == waiter) {
                state.timekeeper = None;
            }
            self.kick(&mut state, now);
        }
        state
    }
}

impl State {
    fn enter(&mut self) -> WaiterIndex {
        if let Some(index) = self.free_waiters.pop() {
            return index;
        }
        self.waiters.push(Waiter { granted: Vec::new(), sleeping: false, wake: Arc::default() });
        WaiterIndex(self.waiters.len() - 1)
    }

    fn leave(&mut self, index: WaiterIndex) {
        assert!(self.waiter(index).granted.is_empty(), "left with granted requests");
        self.free_waiters.push(index);
    }

    fn waiter(&mut self, index: WaiterIndex) -> &mut Waiter {
        &mut self.waiters[index.0]
    }

    fn insert(&mut self, mut request: Request, waiter: WaiterIndex, part: usize, now: Duration) {
        self.next_id += 1;
        request.id = RequestId(self.next_id);
        if let Some(into) = self.scheduler.merge(&request, now) {
            let tickets = self.tickets.get_mut(&into).expect("merged into a pending request");
            tickets.parts.push((waiter, part));
            tickets.left += 1;
            return;
        }
        self.tickets.insert(request.id, Tickets { parts: vec![(waiter, part)], left: 1 });
        self.scheduler.insert(request, now);
    }

    fn grant(&mut self, id: RequestId) {
        let tickets = self.tickets.get_mut(&id).expect("dispatched what was inserted");
        for (waiter, part) in std::mem::take(&mut tickets.parts) {
            let waiter = &mut self.waiters[waiter.0];
            waiter.granted.push((id, part));
            if waiter.sleeping {
                waiter.wake.notify_one();
            }
        }
    }

    fn part_completed(&mut self, id: RequestId, now: Duration) {
        let tickets = self.tickets.get_mut(&id).expect("completed what was granted");
        tickets.left -= 1;
        if tickets.left == 0 {
            self.tickets.remove(&id);
            self.in_flight -= 1;
            self.scheduler.completed(id, now);
        }
    }

    /// Invariant 2: if the deadline is earlier than what is kept, wake a sleeper, who will keep it.
    fn appoint_timekeeper(&mut self) {
        let Some(at) = self.scheduler.next_deadline() else { return };
        let woken = match self.timekeeper {
            Some((kept, _)) if kept <= at => return,
            Some((_, keeper)) => Some(&self.waiters[keeper.0]),
            None => self.waiters.iter().find(|waiter| waiter.sleeping && waiter.granted.is_empty()),
        };
        if let Some(waiter) = woken {
            waiter.wake.notify_one();
        }
    }
}

/// A queue whose transfers wait for the scheduler before they enter the lower queue.
struct ScheduledQueue {
    lower: Box<dyn IoQueue>,
    core: Arc<Core>,
    waiter: WaiterIndex,
    /// Transfers by part number: waiting for a grant, or (without the transfer) in the lower queue.
    held: Vec<Option<Held>>,
    in_flight: u32,
}

struct Held {
    io: Option<QueuedIo>,
    tag: u64,
    request: Option<RequestId>,
}

impl ScheduledQueue {
    fn slot(&mut self) -> usize {
        let free = self.held.iter().position(Option::is_none);
        free.unwrap_or_else(|| {
            self.held.push(None);
            self.held.len() - 1
        })
    }

    /// Hand granted transfers down.
    fn forward(&mut self, granted: Vec<(RequestId, usize)>) {
        for (id, part) in granted {
            let held = self.held[part].as_mut().expect("granted what is held");
            held.request = Some(id);
            let mut io = held.io.take().expect("granted once");
            io.tag = part as u64;
            let refused = self.lower.submit(io).is_err();
            assert!(!refused, "the lower queue is as deep as this one");
        }
    }

    fn take_grants(&mut self) -> Vec<(RequestId, usize)> {
        std::mem::take(&mut self.core.state.lock().waiter(self.waiter).granted)
    }

    /// Account what the lower queue has finished, and give the submitters their tags back.
    fn finish(&mut self, ended: Vec<Completed>, done: &mut Vec<Completed>) {
        let mut state = self.core.state.lock();
        let now = sync::now();
        for mut completed in ended {
            let held = self.held[completed.io.tag as usize].take().expect("completed what was submitted");
            completed.io.tag = held.tag;
            if let Some(id) = held.request {
                state.part_completed(id, now);
            }
            self.in_flight -= 1;
            done.push(completed);
        }
        self.core.kick(&mut state, now);
    }
}

impl IoQueue for ScheduledQueue {
    fn depth(&self) -> u32 {
        self.lower.depth()
    }

    fn in_flight(&self) -> u32 {
        self.in_flight
    }

    fn submit(&mut self, io: QueuedIo) -> Result<(), QueuedIo> {
        if self.in_flight >= self.depth() {
            return Err(io);
        }
        let part = self.slot();
        let (op, flags, owner, tag) = (io.op, io.flags, io.owner, io.tag);
        let bytes: usize = io.pieces.iter().map(|piece| piece.memory.len()).sum();
        let sector = io.pieces.first().map_or(Sector(0), |piece| piece.sector);
        self.in_flight += 1;
        if op == Op::Flush || bytes == 0 {
            self.held[part] = Some(Held { io: None, tag, request: None });
            let refused = self.lower.submit(QueuedIo { tag: part as u64, ..io }).is_err();
            assert!(!refused, "the lower queue is as deep as this one");
            return Ok(());
        }
        self.held[part] = Some(Held { io: Some(io), tag, request: None });
        let sectors = (bytes as u64).div_ceil(crate::SECTOR_SIZE);
        let request = Request { id: RequestId(0), op, sector, sectors, flags, owner };
        let mut state = self.core.state.lock();
        state.insert(request, self.waiter, part, sync::now());
        self.core.kick(&mut state, sync::now());
        Ok(())
    }

    fn issue(&mut self) -> Result<(), IoError> {
        let granted = self.take_grants();
        self.forward(granted);
        self.lower.issue()
    }

    fn reap(&mut self, wait_for: u32, done: &mut Vec<Completed>) -> Result<usize, IoError> {
        let (wanted, before) = (wait_for.min(self.in_flight) as usize, done.len());
        loop {
            self.issue()?;
            let got = done.len() - before;
            let wait = u32::from(got < wanted);
            if self.lower.in_flight() == 0 && wait > 0 {
                let granted = self.core.wait_for_grant(self.waiter);
                self.forward(granted);
                continue;
            }
            let mut ended = Vec::new();
            self.lower.reap(wait, &mut ended)?;
            let none = ended.is_empty();
            self.finish(ended, done);
            if done.len() - before >= wanted && (none || wait == 0) {
                self.issue()?;
                return Ok(done.len() - before);
            }
        }
    }
}

impl Drop for ScheduledQueue {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_flight > 0 && self.reap(self.in_flight, &mut done).is_ok() {}
        if self.in_flight == 0 {
            self.core.state.lock().leave(self.waiter);
        }
    }
}

impl fmt::Debug for ScheduledQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScheduledQueue({} in flight on {:?})", self.in_flight, self.lower)
    }
}

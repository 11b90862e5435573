//! A scheduler on a device, without a thread of its own.
//!
//! Where it sits: between submitters and a [`BlockDevice`]. A submitter inserts its bios as requests. Any thread that is in the
//! device, to submit or to wait, dispatches the granted requests of all owners into one shared queue
//! ([`diorite_block::SharedQueue`]), and takes the completions of all. A thread that waits elsewhere cannot stop the device.
//!
//! - Memory belongs to the request, or is lent by a caller that blocks until its bios have ended ([`diorite_block::LentMemory`]).
//! - A caller whose bios are all granted at once executes them directly, without a hand-off.
//! - A device without a shared queue is used through `execute`, by the dispatching thread.
//!
//! Interface: [`ScheduledDevice::attach`] with scheduler `none` returns the device itself: direct issue costs nothing.
//! Operations without memory (flush, discard, write of zeros) are not scheduled. Merged requests are dispatched together, and each bio
//! is still a transfer of its own.
//!
//! `state` has requests, their parts and the waiting threads; `core` has turns and waits; `queue` is the queue of one submitter; `watch` is
//! the thread of a watched queue.

mod core;
mod queue;
mod state;
mod watch;

use std::fmt;
use std::sync::Arc;

use self::core::Core;
use self::queue::ScheduledQueue;
use self::state::State;
use crate::{IoScheduler, SchedulerKind, Statistics};
use diorite_block::sync;
use diorite_block::with_loans;
use diorite_block::{
    Bio, BioMemory, BlockDevice, Geometry, IoCounters, IoError, IoQueue, Op, Piece, QueuedIo, QueuedMemory,
    TaskId,
};

/// Default number of requests in a device at once.
const DEFAULT_DEPTH: u32 = 32;

/// Requests of a scheduled device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLoad {
    /// They wait for the scheduler.
    pub queued: u32,
    /// They are in the device.
    pub in_flight: u32,
    /// Most requests in the device at once.
    pub depth: u32,
}

/// A device whose requests a scheduler orders.
pub struct ScheduledDevice {
    core: Arc<Core>,
    /// As the lower device, without atomic writes: requests are merged.
    geometry: Geometry,
}

impl ScheduledDevice {
    /// Put a scheduler on a device. `none` returns the device itself.
    pub fn attach(lower: Arc<dyn BlockDevice>, kind: SchedulerKind) -> Arc<dyn BlockDevice> {
        match Self::of_kind(&lower, kind) {
            Some(scheduled) => scheduled,
            None => lower,
        }
    }

    /// The device with a scheduler of this kind and a depth of 32; nothing for `none`.
    pub fn of_kind(lower: &Arc<dyn BlockDevice>, kind: SchedulerKind) -> Option<Arc<Self>> {
        kind.build_for(lower.geometry().rotational)
            .map(|scheduler| Self::new(Arc::clone(lower), scheduler, DEFAULT_DEPTH))
    }

    /// Put `scheduler` on a device that takes `depth` requests at once.
    pub fn new(lower: Arc<dyn BlockDevice>, scheduler: Box<dyn IoScheduler>, depth: u32) -> Arc<Self> {
        let geometry = Geometry { atomic_write_bytes: 0, ..lower.geometry().clone() };
        let core = Arc::new(Core::new(lower, State::new(scheduler, depth.max(1))));
        Arc::new(Self { core, geometry })
    }

    /// Service of each owner so far.
    pub fn statistics(&self) -> Statistics {
        self.core.lock().scheduler.statistics().clone()
    }

    /// The scheduler's state as text.
    pub fn describe(&self) -> String {
        let state = self.core.lock();
        format!(
            "{}: depth {} of {}\n{}",
            self.core.lower.name(),
            state.in_flight(),
            state.depth(),
            state.scheduler.describe(sync::now())
        )
    }

    /// The numbers of requests.
    pub fn load(&self) -> QueueLoad {
        let state = self.core.lock();
        QueueLoad { queued: state.queued(), in_flight: state.in_flight(), depth: state.depth() }
    }

    /// The name of the lower device.
    pub fn device_name(&self) -> String {
        self.core.lower.name()
    }

    /// The scheduler's name.
    pub fn scheduler_name(&self) -> &'static str {
        self.core.lock().scheduler.name()
    }

    /// An owner sends nothing more for now: the disk does not idle for it.
    pub fn owner_ended(&self, task: TaskId) {
        let mut state = self.core.lock();
        let now = sync::now();
        state.scheduler.owner_ended(task, now);
        self.core.turn(&mut state, now);
        Core::depart(&mut state);
    }
}

/// Whether an operation is scheduled. Operations without memory are not.
fn is_scheduled(op: Op) -> bool {
    matches!(op, Op::Read | Op::Write)
}

impl BlockDevice for ScheduledDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn counters(&self) -> &IoCounters {
        self.core.lower.counters()
    }

    fn name(&self) -> String {
        self.core.lower.name()
    }

    fn release(&self) {
        self.core.lower.release();
    }

    fn table_sector_bytes(&self) -> u32 {
        self.core.lower.table_sector_bytes()
    }

    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        let core = &*self.core;
        let count = bios.iter().filter(|bio| is_scheduled(bio.op)).count();
        if count == 0 {
            return core.lower.execute(bios);
        }
        let mut state = core.lock();
        let waiter = state.enter();
        let now = sync::now();
        let mut parts = Vec::with_capacity(count);
        for (index, bio) in bios.iter().enumerate().filter(|(_, bio)| is_scheduled(bio.op)) {
            let bytes = bio.len();
            parts.push(state.insert(
                (bio.op, bio.sector, bytes),
                (bio.flags, bio.owner),
                (waiter, index as u64),
                now,
            ));
        }
        core.turn(&mut state, now);
        if count == bios.len() && state.execute_alone(&parts) {
            drop(state);
            let _ending = core.ending(waiter, parts);
            return core.lower.execute(bios);
        }
        with_loans(|loans| {
            for &part in &parts {
                let bio = &mut bios[state.number_of(part) as usize];
                let (op, flags, owner, len) = (bio.op, bio.flags, bio.owner, bio.len());
                let pieces = vec![Piece { sector: bio.sector, memory: 0..len as usize }];
                let memory = std::mem::replace(&mut bio.memory, BioMemory::None(len));
                let memory = QueuedMemory::Lent(loans.lend(memory));
                state.provide(part, QueuedIo { op, pieces, memory, flags, owner, tag: 0 });
            }
            core.turn(&mut state, now);
            drop(state);
            let mut result = Ok(());
            for bio in bios.iter_mut().filter(|bio| !is_scheduled(bio.op)) {
                result = result.and(core.lower.execute(std::slice::from_mut(bio)));
            }
            for ended in core.wait_and_release(waiter, count) {
                if let QueuedMemory::Lent(memory) = ended.io.memory {
                    bios[ended.io.tag as usize].memory = loans.settle(memory);
                }
                result = result.and(ended.result);
            }
            result
        })
    }

    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        Ok(Box::new(ScheduledQueue::new(Arc::clone(&self.core), depth.max(1))))
    }
}

impl fmt::Debug for ScheduledDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScheduledDevice({:?} on {:?})", self.scheduler_name(), self.core.lower)
    }
}

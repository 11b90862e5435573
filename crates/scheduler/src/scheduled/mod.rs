//! A scheduler on any device, without a thread of its own.
//!
//! Where it sits: between submitters and a [`BlockDevice`]. A submitter inserts its bios as requests. Any thread that is in the
//! device, to submit or to wait, dispatches what the scheduler lets go, for every owner, into the one queue that the threads share
//! ([`diorite_block::SharedQueue`]), and takes the completions of all. So no thread that waits elsewhere can stop the device.
//!
//! - Memory belongs to the request, or is lent by a caller that is blocked until its bios have ended ([`diorite_block::LentMemory`]).
//! - A caller whose bios are all granted at once executes them by itself, as if there were no scheduler: no hand-off.
//! - A device without a shared queue is used through `execute`, by whichever thread dispatches.
//!
//! Interface: [`ScheduledDevice::attach`] gives the device back untouched for scheduler `none`: direct issue costs nothing.
//! Operations without memory (flush, discard, write of zeros) go straight down. Merged requests are dispatched together, each bio
//! still a transfer of its own.
//!
//! Where to look: `state` has requests, their parts and the waiting threads; `core` the turns of a thread and its waits; `queue` the
//! queue of one submitter, `watch` the thread of one that is watched.

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

/// Requests in a device at once, when nothing else is said.
const DEFAULT_DEPTH: u32 = 32;

/// Requests of a scheduled device at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLoad {
    /// They wait for the scheduler to let them go.
    pub queued: u32,
    /// They are in the device.
    pub in_flight: u32,
    /// Most in the device at once.
    pub depth: u32,
}

/// A device whose requests are ordered by a scheduler.
pub struct ScheduledDevice {
    core: Arc<Core>,
    /// That of the device below, but no atomic writes: requests are merged.
    geometry: Geometry,
}

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
        kind.build_for(lower.geometry().rotational)
            .map(|scheduler| Self::new(Arc::clone(lower), scheduler, DEFAULT_DEPTH))
    }

    /// Put `scheduler` on a device that takes `depth` requests at once.
    pub fn new(lower: Arc<dyn BlockDevice>, scheduler: Box<dyn IoScheduler>, depth: u32) -> Arc<Self> {
        let geometry = Geometry { atomic_write_bytes: 0, ..lower.geometry().clone() };
        let core = Arc::new(Core::new(lower, State::new(scheduler, depth.max(1))));
        Arc::new(Self { core, geometry })
    }

    /// What each owner received so far.
    pub fn statistics(&self) -> Statistics {
        self.core.lock().scheduler.statistics().clone()
    }

    /// The scheduler's state, in lines for a person.
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

    /// How many requests there are.
    pub fn load(&self) -> QueueLoad {
        let state = self.core.lock();
        QueueLoad { queued: state.queued(), in_flight: state.in_flight(), depth: state.depth() }
    }

    /// The name of the device below.
    pub fn device_name(&self) -> String {
        self.core.lower.name()
    }

    /// The scheduler's name.
    pub fn scheduler_name(&self) -> &'static str {
        self.core.lock().scheduler.name()
    }

    /// An owner will send nothing more for now: nothing is kept ready for it.
    pub fn owner_ended(&self, task: TaskId) {
        let mut state = self.core.lock();
        let now = sync::now();
        state.scheduler.owner_ended(task, now);
        self.core.turn(&mut state, now);
        Core::depart(&mut state);
    }

    /// Share of the disk that an owner gets against owners of the same priority; 100 by default.
    pub fn set_weight(&self, task: TaskId, weight_percent: u32) {
        self.core.lock().scheduler.set_weight(task, weight_percent);
    }
}

/// Whether the scheduler decides when it goes; what has no memory goes straight down.
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

//! A flow: one owner's requests of one kind, and its habits.

use std::time::Duration;

use crate::fifo::Sorted;
use crate::{Request, class_and_level};
use diorite_block::{BioFlags, IoPriority, Op, TaskId};

/// A request at most this far from the end of the last one is sequential: no further than a drive reads ahead.
const NEAR_SECTORS: u64 = 2048;
/// Samples after which a mean is trusted.
const TRUSTED: u32 = 3;

/// The kind of a flow. Each has a queue of its own, since costs are learned per kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum FlowKind {
    #[default]
    Read,
    /// Synchronous writes that the drive may cache.
    Write,
    /// Writes that must be on the medium when they complete.
    Durable,
    /// Background writeback of all owners of a priority.
    Background,
}

/// Names a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct FlowName {
    pub(super) task: TaskId,
    pub(super) kind: FlowKind,
}

impl FlowName {
    pub(super) fn of(request: &Request) -> Self {
        let task = request.owner.task;
        let is_durable = request.flags.contains(BioFlags::FUA) || request.flags.contains(BioFlags::PREFLUSH);
        match (request.op, request.is_sync()) {
            (Op::Read, _) => Self { task, kind: FlowKind::Read },
            (_, true) if is_durable => Self { task, kind: FlowKind::Durable },
            (_, true) => Self { task, kind: FlowKind::Write },
            (_, false) => {
                let (class, level) = class_and_level(request.owner.priority);
                Self { task: TaskId(u64::from(class) * 8 + u64::from(level)), kind: FlowKind::Background }
            }
        }
    }
}

/// A decaying mean.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mean {
    samples: u32,
    value: f64,
}

impl Mean {
    pub(super) fn add(&mut self, sample: f64) {
        self.value = if self.samples == 0 { sample } else { self.value + (sample - self.value) / 8.0 };
        self.samples = self.samples.saturating_add(1);
    }

    pub(super) fn get(self) -> Option<f64> {
        (self.samples > 0).then_some(self.value)
    }

    pub(super) fn trusted(self) -> Option<f64> {
        (self.samples >= TRUSTED).then_some(self.value)
    }
}

/// One flow.
#[derive(Debug, Default)]
pub(super) struct Flow {
    pub(super) name: FlowName,
    pub(super) class: u8,
    /// Share, 100 for the middle priority.
    pub(super) weight: u32,
    pub(super) requests: Sorted,
    pub(super) in_flight: u32,
    /// Device time received, in nanoseconds at weight 100.
    pub(super) time: u64,
    /// Its set, and the time it is ordered by. Only while requests are pending.
    pub(super) filed: Option<(super::Set, u64)>,
    /// Share of sequential requests.
    pub(super) near: Mean,
    /// Seconds from its last completion to the next request.
    pub(super) think: Mean,
    /// Device seconds per request.
    pub(super) cost: Mean,
    pub(super) last_end: u64,
    /// End of the last request that was dispatched.
    pub(super) position: u64,
    pub(super) last_completion: Duration,
    /// No late request interrupts the stream before this time.
    pub(super) next_late: Duration,
    /// Number of its last slice.
    pub(super) last_slice: u64,
    /// Number of streams' slices when it last had one or began to wait.
    pub(super) waits_since: u64,
    /// Its last request carried `NO_IDLE`, or its owner has ended.
    pub(super) is_last: bool,
}

impl Flow {
    pub(super) fn new(name: FlowName) -> Self {
        Self { name, last_end: u64::MAX, ..Self::default() }
    }

    /// The shares are CFQ's: 180 at level 0, 100 at level 4, 40 at level 7.
    pub(super) fn set_priority(&mut self, priority: IoPriority) {
        let (class, level) = class_and_level(priority);
        self.class = class;
        self.weight = 20 * (9 - u32::from(level));
    }

    /// Account a new request.
    pub(super) fn arrived(&mut self, request: &Request, now: Duration) {
        let (start, end) = (request.sector.0, request.end().0);
        if self.last_end != u64::MAX {
            let is_near = start.abs_diff(self.last_end) <= NEAR_SECTORS;
            self.near.add(f64::from(u8::from(is_near)));
            if self.requests.is_empty() && self.in_flight == 0 {
                self.think.add(now.saturating_sub(self.last_completion).as_secs_f64());
            } else {
                self.think.add(0.0);
            }
        }
        self.last_end = end;
        self.is_last = request.flags.contains(BioFlags::NO_IDLE);
    }

    /// Whether it has sent more than one request.
    pub(super) fn is_known(&self) -> bool {
        self.think.get().is_some()
    }

    /// Whether its requests are sequential.
    pub(super) fn is_sequential(&self) -> bool {
        self.near.get().is_some_and(|near| near > 0.5)
    }

    /// Whether it has few requests at a time.
    pub(super) fn is_shallow(&self) -> bool {
        self.requests.len() as u32 + self.in_flight <= super::SHALLOW
    }

    /// Share of its requests that do not continue where the last one ended.
    pub(super) fn scattered_share(&self) -> f64 {
        1.0 - self.near.get().unwrap_or(1.0)
    }

    /// Whether it uses little of the device: it thinks much longer than it is served.
    pub(super) fn is_sparse(&self, cost: f64) -> bool {
        self.think.get().is_none_or(|think| think > SPARSE * self.cost.get().unwrap_or(cost))
    }

    pub(super) fn charge(&mut self, seconds: f64) {
        self.time += (seconds * 1e11 / f64::from(self.weight)) as u64;
    }
}

/// Think time in service times from which a flow is sparse: it asks for less than a ninth of the device.
const SPARSE: f64 = 8.0;

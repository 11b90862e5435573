//! I/O schedulers (elevators): they choose the next request for the device.
//!
//! Where it sits: between submitters and a device. [`ScheduledDevice`] puts a scheduler on any device. A scheduler is
//! a pure state machine. Its inputs are arrivals, completions and the time. It has no lock, thread or clock.
//!
//! Interface:
//! - For each request: [`IoScheduler::merge`] may absorb it into a pending one; otherwise [`IoScheduler::insert`].
//! - After each insert, completion and passed deadline: [`IoScheduler::dispatch`] until it returns `None`. Requests may still be pending
//!   then: the scheduler may idle on purpose.
//! - [`IoScheduler::next_deadline`] is the time at which `dispatch` must be called again without another event.
//! - Time never goes backwards. A request id is unique among the requests that have not completed.

#![warn(clippy::missing_errors_doc)]

mod cfq;
mod deadline;
mod fifo;
mod inject;
mod scheduled;
mod statistics;
mod table;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use cfq::{Cfq, CfqRules};
pub use deadline::Deadline;
pub use inject::Inject;
pub use scheduled::{QueueLoad, ScheduledDevice};
pub use statistics::{Histogram, MAX_OWNERS, OwnerStatistics, Statistics};

use diorite_block::{BioFlags, IoOwner, IoPriority, Op, Sector, TaskId};

/// Identifies a request that has not completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// One or more merged bios without their memory, as a scheduler sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Chosen by the caller.
    pub id: RequestId,
    /// The operation.
    pub op: Op,
    /// First sector.
    pub sector: Sector,
    /// Length in sectors.
    pub sectors: u64,
    /// As on the bio.
    pub flags: BioFlags,
    /// The owner that is charged.
    pub owner: IoOwner,
}

impl Request {
    /// First sector after the range.
    pub const fn end(&self) -> Sector {
        Sector(self.sector.0.saturating_add(self.sectors))
    }

    /// Length in bytes.
    pub const fn bytes(&self) -> u64 {
        self.sectors.saturating_mul(diorite_block::SECTOR_SIZE)
    }

    /// Whether a thread waits for it: any read, and writes that carry `SYNC`.
    pub const fn is_sync(&self) -> bool {
        matches!(self.op, Op::Read) || self.flags.contains(BioFlags::SYNC)
    }

    /// Whether `other` can merge with this request: same operation and same durability.
    pub(crate) fn can_merge_with(&self, other: &Self) -> bool {
        const SEPARATE: BioFlags = BioFlags::PREFLUSH;
        self.op == other.op
            && matches!(self.op, Op::Read | Op::Write)
            && self.flags.contains(BioFlags::FUA) == other.flags.contains(BioFlags::FUA)
            && !self.flags.contains(SEPARATE)
            && !other.flags.contains(SEPARATE)
    }
}

/// Realtime (0), best effort, idle; and the level in it, 0 to 7.
fn class_and_level(priority: IoPriority) -> (u8, u8) {
    match priority {
        IoPriority::RealTime(level) => (0, level.min(7)),
        IoPriority::BestEffort(level) => (1, level.min(7)),
        IoPriority::Idle => (2, 7),
    }
}

/// Orders requests. See the module head for the rules of use.
pub trait IoScheduler: Send + fmt::Debug {
    /// `none`, `deadline`, ...
    fn name(&self) -> &'static str;

    /// Merge `request` into a pending neighbour, and return that one. Its range then covers both.
    fn merge(&mut self, request: &Request, now: Duration) -> Option<RequestId>;

    /// Take a request.
    fn insert(&mut self, request: Request, now: Duration);

    /// The request to issue now, if any, with the range that merges gave it.
    fn dispatch(&mut self, now: Duration) -> Option<Request>;

    /// A dispatched request has completed.
    fn completed(&mut self, id: RequestId, now: Duration);

    /// When to call `dispatch` again at the latest.
    fn next_deadline(&self) -> Option<Duration>;

    /// An owner sends nothing more for now: the disk does not idle for it. It may return.
    fn owner_ended(&mut self, task: TaskId, now: Duration) {
        let _ = (task, now);
    }

    /// Service of each owner so far.
    fn statistics(&self) -> &Statistics;

    /// Requests inserted and not dispatched.
    fn pending_count(&self) -> usize;

    /// The present state as text.
    fn describe(&self, now: Duration) -> String;
}

/// A scheduler by name, as `--scheduler` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SchedulerKind {
    /// No scheduler at all: direct issue.
    #[default]
    None,
    /// As Linux' mq-deadline.
    Deadline,
    /// Completely fair queueing, by one of three rule sets.
    Cfq(CfqRules),
    /// Slices for streams, shared turns for scattered readers, injection of cached writes.
    Inject,
}

impl SchedulerKind {
    /// The default of a volume: `inject` if seeks cost time, else `none`.
    pub const fn default_for(rotational: bool) -> Self {
        if rotational { Self::Inject } else { Self::None }
    }

    /// The scheduler for a rotational device; nothing for `none`.
    pub fn build(self) -> Option<Box<dyn IoScheduler>> {
        self.build_for(true)
    }

    /// The scheduler for a device; nothing for `none`.
    pub fn build_for(self, rotational: bool) -> Option<Box<dyn IoScheduler>> {
        match self {
            Self::None => None,
            Self::Deadline => Some(Box::new(Deadline::default())),
            Self::Cfq(rules) => Some(Box::new(Cfq::new(rules, rotational))),
            Self::Inject => Some(Box::new(Inject::new(rotational))),
        }
    }
}

impl fmt::Display for SchedulerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Deadline => f.write_str("deadline"),
            Self::Cfq(rules) => write!(f, "cfq:{rules}"),
            Self::Inject => f.write_str("inject"),
        }
    }
}

/// An unknown scheduler name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown scheduler '{0}': use none, deadline, cfq, cfq:2.6.32, cfq:noidle-regression, cfq:fixed or inject"
)]
pub struct UnknownScheduler(pub String);

impl FromStr for SchedulerKind {
    type Err = UnknownScheduler;

    fn from_str(text: &str) -> Result<Self, UnknownScheduler> {
        match text {
            "none" => Ok(Self::None),
            "deadline" => Ok(Self::Deadline),
            "cfq" => Ok(Self::Cfq(CfqRules::Fixed)),
            "inject" => Ok(Self::Inject),
            _ => match text.strip_prefix("cfq:").map(CfqRules::from_str) {
                Some(Ok(rules)) => Ok(Self::Cfq(rules)),
                _ => Err(UnknownScheduler(text.to_owned())),
            },
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// A request of 8 sectors by `task` at the default priority.
    pub(crate) fn request(id: u64, op: Op, sector: u64, task: u64) -> Request {
        let owner = IoOwner { task: TaskId(task), priority: IoPriority::default() };
        Request { id: RequestId(id), op, sector: Sector(sector), sectors: 8, flags: BioFlags::SYNC, owner }
    }

    pub(crate) fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn names_are_parsed_as_printed() {
        for name in ["none", "deadline", "cfq:2.6.32", "cfq:noidle-regression", "cfq:fixed", "inject"] {
            assert_eq!(name.parse::<SchedulerKind>().unwrap().to_string(), name);
        }
        assert!("bfq".parse::<SchedulerKind>().is_err());
    }

    /// Every scheduler dispatches each request exactly once, and none is stuck if deadlines are kept.
    #[test]
    fn every_request_is_dispatched_once() {
        let names = ["deadline", "cfq:2.6.32", "cfq:noidle-regression", "cfq:fixed", "inject"];
        for name in names {
            for seed in 0..30u64 {
                exercise(name, seed);
            }
        }
    }

    fn exercise(name: &str, seed: u64) {
        let mut scheduler = name.parse::<SchedulerKind>().unwrap().build().unwrap();
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let (mut now, mut flying, mut merged, mut seen) = (Duration::ZERO, Vec::new(), 0, 0);
        let total = 600;
        for id in 0..total {
            now += Duration::from_micros(random(3000));
            let op = if random(2) == 0 { Op::Read } else { Op::Write };
            let mut new = request(id, op, random(64) * 8, random(5));
            new.flags = if random(3) == 0 { BioFlags::NONE } else { BioFlags::SYNC };
            new.owner.priority = [
                IoPriority::BestEffort(4),
                IoPriority::BestEffort(0),
                IoPriority::Idle,
                IoPriority::RealTime(3),
            ][random(4) as usize];
            if scheduler.merge(&new, now).is_some() {
                merged += 1;
            } else {
                scheduler.insert(new, now);
            }
            while flying.len() < 4
                && let Some(request) = scheduler.dispatch(now)
            {
                flying.push(request.id);
            }
            if !flying.is_empty() && random(2) == 0 {
                let done = flying.swap_remove(random(flying.len() as u64) as usize);
                seen += 1;
                scheduler.completed(done, now);
            }
        }
        let mut stuck = 0;
        while scheduler.pending_count() > 0 || !flying.is_empty() {
            while flying.len() < 4
                && let Some(request) = scheduler.dispatch(now)
            {
                flying.push(request.id);
                stuck = 0;
            }
            if let Some(done) = flying.pop() {
                now += Duration::from_micros(500);
                seen += 1;
                scheduler.completed(done, now);
            } else {
                let deadline = scheduler.next_deadline();
                stuck += 1;
                assert!(stuck < 100, "{name} seed {seed} is stuck:\n{}", scheduler.describe(now));
                now = deadline.unwrap_or(now).max(now);
            }
        }
        assert_eq!(seen + merged, total, "{name} seed {seed}");
        assert!(scheduler.dispatch(now + Duration::from_secs(1)).is_none());
        let totals = scheduler.statistics().owners().map(|(_, owner)| owner.completed).sum::<u64>();
        assert_eq!(totals, seen, "{name} seed {seed}");
    }
}

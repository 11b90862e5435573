//! `inject`: the default where a seek costs time. One sequential flow at a time has the disk for a slice; requests that need no seek are
//! injected beside it.
//!
//! The model follows BFQ's papers and CFQ. The shared resource is device time. Each owner has one flow per kind of use: reads, cacheable
//! writes, durable writes, background writes. A flow is charged the device time that it receives, divided by its weight. The flow that has
//! received least goes next. A flow that returns from a pause starts level with the flow in service.
//! - **Streams** are flows whose requests are sequential. A stream has the disk alone for a slice. Between its requests the disk stays idle for
//!   it as long as that is cheaper than a seek. A stream that has waited for a whole round of slices goes next.
//! - **Scattered** flows share turns: all of them dispatch, and the drive's queue sorts them. While they wait, each stream's slice earns them
//!   credit by their weight; their turn lasts as long as the credit. The disk stays idle for them as for a stream: otherwise a reader with one
//!   request at a time would lose the disk after each request. A request that has waited for `TARGET_LATENCY_MIXED` is served between two
//!   slices. A deep flow always has such a request, so after a turn that spent the credit only new flows go before a stream.
//!   Beside a flow with few requests, a deep flow is limited to `SCATTERED_DEPTH`, and waits while such a request is overdue in the drive.
//! - **Cached writes** need no seek at once. They are injected beside the flow in service while their owner has not received more than it. A
//!   write is charged the time of its command, or of its bytes if that is longer, and, if it is not sequential, the time in which the drive
//!   later writes it out. Beside a stream they take at most two fifths of the drive's command time.
//! - **Sparse** flows use little of the device. Their requests interrupt a stream's slice, one at a time. Together they take at most as much
//!   of a slice as the stream. A new flow counts as sparse, but only a few new flows are in the device at once.
//!
//! If a seek costs nothing (flash, also when only measured), all requests go at once in the order of arrival. The device's seek time, rate
//! and cache are measured (`device`), and so are the habits of owners (`flow`).
//!
//! Invariants ([`Inject::check_invariants`]):
//! 1. A flow with pending requests is filed in one set, under the time that it has received; no other is in a set.
//! 2. `arm_in_flight` and `free_in_flight` count what is in the device.

mod device;
mod flow;
mod select;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt::Write;
use std::hash::BuildHasherDefault;
use std::time::Duration;

use self::device::Device;
use self::flow::{Flow, FlowKind, FlowName};
use super::table::RequestTable;
use super::{IoScheduler, Request, RequestId, Statistics};
use diorite_block::{NumberHasher, TaskId};

/// Flows that are kept without requests.
const FLOWS_KEPT: usize = 1024;
/// An idle flow is forgotten after this time if there are many.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10);

/// A flow with at most so many requests is shallow.
const SHALLOW: u32 = 2;

/// Streams are ordered by received time in steps of about a short slice, in nanoseconds.
const TURN: u64 = 1 << 24;

// Goals, not properties of the device.

/// Time within which each flow should get a slice, unless slices would be too short.
const TARGET_LATENCY: Duration = Duration::from_millis(400);
/// The same while scattered flows compete: each of their requests waits for the streams.
const TARGET_LATENCY_MIXED: Duration = Duration::from_millis(100);
/// Longest slice.
const SLICE_MAX: Duration = Duration::from_millis(150);
/// Shortest slice, in seeks: at most `1 / (1 + SLICE_SEEKS)` of the time is lost to seeks.
const SLICE_SEEKS: f64 = 6.0;
/// Most requests of a stream in the device while other flows wait.
const STREAM_DEPTH: u32 = 4;
/// Most injected writes in the device during a slice.
const INJECTED_DEPTH: u32 = 4;
/// The same of background writes, which are large.
const BACKGROUND_DEPTH: u32 = 2;
/// Most requests of one scattered flow in the device beside a flow that has few at a time.
const SCATTERED_DEPTH: u32 = 4;
/// After this time a write is injected whatever its owner has received.
const INJECTED_WAIT: Duration = Duration::from_millis(50);
/// A request that has waited this long is the first of its flow.
const EXPIRE: Duration = Duration::from_millis(300);
/// Largest merged request, in sectors.
const MAX_SECTORS: u64 = 1024;

/// Index of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FlowIndex(u32);

/// The set in which a flow with pending requests waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    /// Needs no seek now.
    Free,
    Streams,
    Scattered,
    /// Scattered, and uses little of the device.
    Sparse,
}

/// Priority class, device time received, flow: the order of service.
type Filed = BTreeSet<(u8, u64, FlowIndex)>;

/// The flows that the disk serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Stream(FlowIndex),
    /// All scattered flows.
    Pool,
}

/// The current slice.
#[derive(Clone, Copy, Debug)]
struct Slice {
    holder: Holder,
    /// End of the slice; known once its first request has completed.
    ends: Option<Duration>,
    length: Duration,
    /// A request of its holder was dispatched.
    is_begun: bool,
    /// The stream has been charged for the time up to here.
    charged_until: Duration,
    /// Seconds that the holder and sparse flows have used.
    used: f64,
    taken: f64,
    /// The disk idles until then for a flow that has nothing pending and will soon send its next request.
    kept_until: Option<Duration>,
}

/// The scheduler.
#[derive(Default)]
pub struct Inject {
    table: RequestTable,
    flows: Vec<Flow>,
    unused: Vec<FlowIndex>,
    by_name: HashMap<FlowName, FlowIndex, BuildHasherDefault<NumberHasher>>,
    sets: [Filed; 4],
    device: Device,
    slice: Option<Slice>,
    /// The scattered flows had the last slice.
    pool_was_last: bool,
    /// Seconds that the scattered flows together are owed, by their weight, for what streams received while they waited.
    pool_credit: f64,
    /// Device time received by the flow in service. A returning flow starts from it.
    virtual_time: u64,
    /// When it was set for a scattered flow.
    virtual_time_since: Duration,
    /// When a request of a scattered flow last ended in their turn.
    last_scattered: Duration,
    /// The scattered flow that last sent a request while it had few others, and when.
    last_shallow: Option<(FlowIndex, Duration)>,
    /// Requests of shallow flows in the device, and since when.
    shallow_in_flight: VecDeque<(FlowIndex, Duration)>,
    arm_in_flight: u32,
    free_in_flight: u32,
    /// Of these, background writes.
    background_in_flight: u32,
    /// Requests of sparse flows in a stream's slice.
    sparse_in_flight: u32,
    /// First requests of flows.
    newcomers_in_flight: u32,
    /// Earliest time of the next paced injection.
    next_paced: Duration,
    waits_for_pace: bool,
    /// Before this time no write is injected only because it has waited too long.
    next_overdue: Duration,
    injections: u64,
    slices: u64,
}

diorite_block::short_debug!(Inject);

impl Inject {
    /// An empty scheduler for a device that reports itself as rotational or not.
    pub fn new(rotational: bool) -> Self {
        Self { device: Device::new(rotational), ..Self::default() }
    }

    /// Requests injected so far.
    #[cfg(test)]
    fn injection_count(&self) -> u64 {
        self.injections
    }

    /// Measured cost of a seek.
    pub fn seek_cost(&self) -> Duration {
        Duration::from_secs_f64(self.device.seek())
    }

    fn flow(&self, index: FlowIndex) -> &Flow {
        &self.flows[index.0 as usize]
    }

    fn flow_mut(&mut self, index: FlowIndex) -> &mut Flow {
        &mut self.flows[index.0 as usize]
    }

    fn set(&self, set: Set) -> &Filed {
        &self.sets[set as usize]
    }

    fn flow_of(&mut self, request: &Request, now: Duration) -> FlowIndex {
        let name = FlowName::of(request);
        if let Some(index) = self.by_name.get(&name).copied() {
            let flow = self.flow_mut(index);
            if flow.filed.is_none() {
                flow.set_priority(request.owner.priority);
            }
            return index;
        }
        self.forget_unused(now);
        let mut flow = Flow::new(name);
        flow.set_priority(request.owner.priority);
        let index = match self.unused.pop() {
            Some(index) => index,
            None => FlowIndex(self.flows.len() as u32),
        };
        if index.0 as usize == self.flows.len() {
            self.flows.push(flow);
        } else {
            self.flows[index.0 as usize] = flow;
        }
        self.by_name.insert(name, index);
        index
    }

    /// Forget idle flows once there are many.
    fn forget_unused(&mut self, now: Duration) {
        if self.by_name.len() < FLOWS_KEPT || !self.by_name.len().is_multiple_of(64) {
            return;
        }
        let (flows, slice) = (&self.flows, self.slice);
        let is_unused = |index: FlowIndex| {
            let flow = &flows[index.0 as usize];
            flow.filed.is_none()
                && flow.in_flight == 0
                && slice.is_none_or(|slice| slice.holder != Holder::Stream(index))
                && now.saturating_sub(flow.last_completion) > FORGOTTEN_AFTER
        };
        let unused = &mut self.unused;
        self.by_name.retain(|_, index| {
            let keep = !is_unused(*index);
            if !keep {
                unused.push(*index);
            }
            keep
        });
    }

    /// The set of a flow, by its habits and the device.
    fn set_of(&self, flow: &Flow) -> Set {
        if !self.device.has_seeks() {
            return Set::Free;
        }
        let is_free = match flow.name.kind {
            FlowKind::Write | FlowKind::Background => self.device.caches_writes(),
            FlowKind::Read | FlowKind::Durable => false,
        };
        let comes_back = flow.think.get().is_none_or(|think| think < self.device.seek());
        match (is_free, flow.is_sequential() && comes_back && flow.name.kind != FlowKind::Durable) {
            (true, _) => Set::Free,
            (false, true) => Set::Streams,
            (false, false) if flow.is_sparse(self.device.seek()) => Set::Sparse,
            (false, false) => Set::Scattered,
        }
    }

    /// Move a flow into its present set, or out of all sets if it has no requests.
    fn file(&mut self, index: FlowIndex) {
        let flow = &self.flows[index.0 as usize];
        let place = flow.requests.oldest().map(|oldest| match self.set_of(flow) {
            // In the order of arrival.
            Set::Free if !self.device.has_seeks() => {
                (Set::Free, self.table.slot(oldest).inserted.as_nanos() as u64)
            }
            Set::Streams => (Set::Streams, flow.time / TURN * TURN),
            // Flows known to be sparse go before unknown ones.
            Set::Sparse if !flow.is_known() => (Set::Sparse, flow.time + TURN),
            set => (set, flow.time),
        });
        if place == flow.filed {
            return;
        }
        let class = flow.class;
        if let Some((set, time)) = flow.filed {
            let was_there = self.sets[set as usize].remove(&(class, time, index));
            assert!(was_there, "a flow is in the set that it records");
        }
        if let Some((set, time)) = place {
            self.sets[set as usize].insert((class, time, index));
        }
        self.flow_mut(index).filed = place;
    }

    /// Panics if a rule of the module head is broken.
    #[cfg(test)]
    fn check_invariants(&self) {
        let mut filed = 0;
        for (number, flow) in self.flows.iter().enumerate() {
            let index = FlowIndex(number as u32);
            assert_eq!(flow.requests.is_empty(), flow.filed.is_none(), "invariant 1: {:?}", flow.name);
            if let Some((set, time)) = flow.filed {
                filed += 1;
                assert!(self.set(set).contains(&(flow.class, time, index)), "invariant 1: {:?}", flow.name);
            }
        }
        assert_eq!(filed, self.sets.iter().map(BTreeSet::len).sum::<usize>(), "invariant 1");
        assert_eq!(
            (self.arm_in_flight + self.free_in_flight) as usize,
            self.table.flying_count(),
            "invariant 2"
        );
    }
}

impl IoScheduler for Inject {
    fn name(&self) -> &'static str {
        "inject"
    }

    fn merge(&mut self, request: &Request, _now: Duration) -> Option<RequestId> {
        let index = *self.by_name.get(&FlowName::of(request))?;
        let flow = &mut self.flows[index.0 as usize];
        let key = flow.requests.merge(&mut self.table, request, MAX_SECTORS)?;
        self.table.note_merge(request.owner.task);
        Some(self.table.request(key).id)
    }

    fn insert(&mut self, request: Request, now: Duration) {
        let index = self.flow_of(&request, now);
        let key = self.table.insert(request, index.0, now + EXPIRE, now);
        let (level, slices) = (self.virtual_time, self.slices);
        let flow = &mut self.flows[index.0 as usize];
        if flow.requests.is_empty() && flow.in_flight == 0 {
            flow.time = flow.time.max(level);
            flow.waits_since = slices;
        }
        flow.arrived(&request, now);
        flow.requests.insert(&self.table, key);
        self.file(index);
        let flow = &self.flows[index.0 as usize];
        if flow.is_shallow() && matches!(flow.filed, Some((Set::Scattered | Set::Sparse, _))) {
            self.last_shallow = Some((index, now));
        }
        if let Some(slice) = self.slice.as_mut()
            && slice.holder == Holder::Stream(index)
        {
            slice.kept_until = None;
        }
    }

    fn dispatch(&mut self, now: Duration) -> Option<Request> {
        if self.table.pending_count() == 0 {
            return None;
        }
        if self.slice.is_some_and(|slice| slice.holder == Holder::Pool) {
            // Scattered flows alone could fill the device.
            return self.next_free(now).or_else(|| self.next_for_arm(now));
        }
        self.next_for_arm(now).or_else(|| self.next_free(now))
    }

    fn completed(&mut self, id: RequestId, now: Duration) {
        let ended = self.table.complete(id, now);
        let index = FlowIndex(ended.queue & !MARKS);
        let flow = self.flow_mut(index);
        flow.in_flight -= 1;
        flow.last_completion = now;
        if ended.queue & FREE != 0 {
            self.free_ended(index, &ended, now);
        } else {
            self.arm_ended(index, &ended, now);
        }
    }

    fn next_deadline(&self) -> Option<Duration> {
        if self.table.pending_count() == 0 {
            return None;
        }
        // While a sparse flow's request is in the device, only its completion changes the slice.
        let kept = self.slice.filter(|_| self.sparse_in_flight == 0).and_then(|slice| slice.kept_until);
        [kept, self.next_injection()].into_iter().flatten().min()
    }

    fn owner_ended(&mut self, task: TaskId, _now: Duration) {
        for kind in [FlowKind::Read, FlowKind::Write, FlowKind::Durable] {
            let Some(index) = self.by_name.get(&FlowName { task, kind }).copied() else { continue };
            self.flow_mut(index).is_last = true;
            if self.slice.is_some_and(|slice| slice.holder == Holder::Stream(index))
                && self.flow(index).requests.is_empty()
            {
                self.slice = None;
            }
        }
    }

    fn statistics(&self) -> &Statistics {
        &self.table.statistics
    }

    fn pending_count(&self) -> usize {
        self.table.pending_count()
    }

    fn describe(&self, now: Duration) -> String {
        let mut text = format!(
            "inject: {} pending, {} in flight; a seek costs {:.1?}; {} injected, {} slices\n",
            self.pending_count(),
            self.table.flying_count(),
            self.seek_cost(),
            self.injections,
            self.slices,
        );
        match self.slice {
            None => text.push_str("  no slice\n"),
            Some(Slice { holder: Holder::Pool, .. }) => text.push_str("  slice of scattered flows\n"),
            Some(Slice { holder: Holder::Stream(index), ends, .. }) => {
                let left = ends.map_or(Duration::ZERO, |ends| ends.saturating_sub(now));
                let _ = writeln!(text, "  slice of {:?}, {left:.1?} left", self.flow(index).name);
            }
        }
        for (set, name) in [
            (Set::Free, "free"),
            (Set::Streams, "stream"),
            (Set::Scattered, "scattered"),
            (Set::Sparse, "sparse"),
        ] {
            for (_, _, index) in self.set(set) {
                let flow = self.flow(*index);
                let _ = writeln!(
                    text,
                    "  {name}: {:?}, {} pending, {} in flight, received {:.1?}",
                    flow.name,
                    flow.requests.len(),
                    flow.in_flight,
                    Duration::from_nanos(flow.time)
                );
            }
        }
        text + &self.table.statistics.describe()
    }
}

/// Marks in the queue number of a request: injected; sparse, in another flow's slice; the first of its flow.
const FREE: u32 = 1 << 31;
const SPARSE: u32 = 1 << 30;
const NEWCOMER: u32 = 1 << 29;
const MARKS: u32 = FREE | SPARSE | NEWCOMER;

#[cfg(test)]
mod tests;

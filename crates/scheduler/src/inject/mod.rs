//! `inject`: our default where distance costs time. A stream keeps the arm for a slice; what does not need the arm goes beside it.
//!
//! The model, after BFQ's papers and CFQ's lessons: what is shared is the time of the device. Each owner has a flow for each way in which
//! it uses it (reads, cacheable writes, durable writes, background writes). A flow has received so much device time, by its weight;
//! the one that has received least goes next, and one that comes back from a pause is put level with it.
//! - **Streams** (flows whose requests follow each other) have the arm for a slice, alone. It is kept for them between requests as long as
//!   waiting is cheaper than a seek. One that has waited for a round of slices is next, whatever it has received; so are the scattered flows.
//! - **Scattered** flows share a slice: all of them dispatch at once, and the drive's queue finds the shortest way.
//! - **Writes that the drive caches** need no arm. They are injected at once, beside whatever has it, while their owner has not received
//!   more than the flow that is served. What one costs is what its bytes take of the medium later, and what it is found to cost the
//!   stream ([`InjectionCost`]): a drive that minds makes them dear, and so rare. Together they take at most half of the time in which the
//!   drive takes commands, however many owners there are.
//! - **Sparse** flows, which use little of the device, are injected into a stream's slice: the stream pauses for one request. All of
//!   them together take no more of a slice than the stream. A new flow is taken for sparse; but where many are new at once, few of them
//!   are in the device, so that one that is sparse does not wait for all.
//!
//! Where a seek costs nothing (flash; found by measuring, too), all requests go at once, in the order of arrival. All times are those of
//! the device: seek, rate and cache are learned (`device`), habits of owners as well (`flow`).
//!
//! Invariants ([`Inject::check_invariants`]):
//! 1. A flow with pending requests is filed in one set, under the time that it has received; no other is in a set.
//! 2. `arm_in_flight` and `free_in_flight` count what is in the device.

mod cost;
mod device;
mod flow;
mod select;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt::Write;
use std::hash::BuildHasherDefault;
use std::time::Duration;

use self::cost::InjectionCost;
use self::device::Device;
use self::flow::{Flow, FlowName, Way};
use super::table::RequestTable;
use super::{IoScheduler, Request, RequestId, Statistics};
use diorite_block::{NumberHasher, TaskId};

/// Flows that are kept when they have nothing to do.
const FLOWS_KEPT: usize = 1024;
/// A flow that has done nothing for so long is forgotten when there are many.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10);

/// A flow with at most so many requests is shallow.
const SHALLOW: u32 = 2;

/// Received time of streams is filed in steps of about a short slice, in nanoseconds.
const TURN: u64 = 1 << 24;

/// What can be tuned: what people want, not what the device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectTunables {
    /// All flows that need the arm should have had a slice within this time, if slices need not be too short for it.
    pub target_latency: Duration,
    /// The same while scattered flows are among them: each of their requests waits for the streams.
    pub target_latency_mixed: Duration,
    /// Longest slice: what others wait at most for one stream.
    pub slice_max: Duration,
    /// A slice is at least this many seeks long: so that at most `1 / (1 + slice_seeks)` of the time is lost to seeks.
    pub slice_seeks: u32,
    /// Most requests of a stream in the device while others want the arm: one that is served, others so that there is a next one.
    pub stream_depth: u32,
    /// Most injected writes in the device while the arm serves others.
    pub injected_depth: u32,
    /// The same of background writes, which are large.
    pub background_depth: u32,
    /// Most requests of one scattered flow in the device beside a flow that has few at a time.
    pub scattered_depth: u32,
    /// An injected write waits no longer, whatever its owner has received.
    pub injected_wait: Duration,
    /// How long nothing is injected to see the stream's rate without.
    pub quiet_window: Duration,
    /// How often there is a quiet window.
    pub quiet_every: Duration,
    /// A request that has waited this long goes first in its flow.
    pub expire: Duration,
    /// Largest request that merging may make, in sectors.
    pub max_sectors: u64,
    /// Whether the device says that distance costs time.
    pub rotational: bool,
}

impl Default for InjectTunables {
    fn default() -> Self {
        Self {
            target_latency: Duration::from_millis(400),
            target_latency_mixed: Duration::from_millis(100),
            slice_max: Duration::from_millis(200),
            slice_seeks: 6,
            stream_depth: 4,
            injected_depth: 4,
            background_depth: 2,
            scattered_depth: 4,
            injected_wait: Duration::from_millis(50),
            quiet_window: Duration::from_millis(8),
            quiet_every: Duration::from_millis(500),
            expire: Duration::from_millis(300),
            max_sectors: 1024,
            rotational: true,
        }
    }
}

/// Names a flow's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FlowIndex(u32);

/// Where a flow with pending requests waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    /// Needs no arm.
    Free,
    Streams,
    Scattered,
    /// Scattered, and it uses little of the device.
    Sparse,
}

/// Priority class, device time received, flow: in the order in which they go.
type Filed = BTreeSet<(u8, u64, FlowIndex)>;

/// Who has the arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Stream(FlowIndex),
    /// All scattered flows.
    Pool,
}

/// The arm's use at this moment.
#[derive(Clone, Copy, Debug)]
struct Slice {
    holder: Holder,
    /// Until when, once its first request has ended.
    ends: Option<Duration>,
    length: Duration,
    /// A request of its holder was dispatched.
    is_begun: bool,
    /// The stream has been charged for the time up to here.
    charged_until: Duration,
    /// What it has had, and what sparse flows took of it.
    used: f64,
    taken: f64,
    /// The arm is kept for a flow that has nothing pending and will soon send its next request.
    kept_until: Option<Duration>,
}

/// The scheduler.
#[derive(Debug)]
pub struct Inject {
    tunables: InjectTunables,
    table: RequestTable,
    flows: Vec<Flow>,
    unused: Vec<FlowIndex>,
    by_name: HashMap<FlowName, FlowIndex, BuildHasherDefault<NumberHasher>>,
    weights: HashMap<TaskId, u32, BuildHasherDefault<NumberHasher>>,
    sets: [Filed; 4],
    device: Device,
    slice: Option<Slice>,
    /// Seconds that the scattered flows together are owed, by their weight, for what streams received while they waited.
    pool_credit: f64,
    /// Device time received by the flow that went last: those that come back are not behind it.
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
    cost: InjectionCost,
    /// Seconds of a stream that one injected write takes beyond its bytes, as measured.
    injected_cost: f64,
    /// When the device has had enough time without injected writes again for another one.
    next_paced: Duration,
    waits_for_pace: bool,
    /// Before this time no write is injected only because it has waited too long.
    next_overdue: Duration,
    quiet_until: Option<Duration>,
    next_quiet: Duration,
    injections: u64,
    slices: u64,
}

impl Inject {
    /// An empty scheduler.
    pub fn new(tunables: InjectTunables) -> Self {
        Self {
            device: Device::new(tunables.rotational),
            tunables,
            table: RequestTable::default(),
            flows: Vec::new(),
            unused: Vec::new(),
            by_name: HashMap::default(),
            weights: HashMap::default(),
            sets: Default::default(),
            slice: None,
            pool_credit: 0.0,
            virtual_time: 0,
            virtual_time_since: Duration::ZERO,
            last_scattered: Duration::ZERO,
            last_shallow: None,
            shallow_in_flight: VecDeque::new(),
            arm_in_flight: 0,
            free_in_flight: 0,
            background_in_flight: 0,
            sparse_in_flight: 0,
            newcomers_in_flight: 0,
            cost: InjectionCost::default(),
            injected_cost: 0.0,
            next_paced: Duration::ZERO,
            waits_for_pace: false,
            next_overdue: Duration::ZERO,
            quiet_until: None,
            next_quiet: Duration::ZERO,
            injections: 0,
            slices: 0,
        }
    }

    /// Requests that went beside a stream so far.
    pub fn injection_count(&self) -> u64 {
        self.injections
    }

    /// Slices of streams so far.
    pub fn slice_count(&self) -> u64 {
        self.slices
    }

    /// What an injected write takes of a stream, as far as it was measured.
    pub fn injected_cost(&self) -> Duration {
        Duration::from_secs_f64(self.injected_cost)
    }

    /// What a seek costs, as measured.
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
        let percent = self.weights.get(&request.owner.task).copied().unwrap_or(100);
        if let Some(index) = self.by_name.get(&name).copied() {
            let flow = self.flow_mut(index);
            if flow.filed.is_none() {
                flow.set_priority(request.owner.priority, percent);
            }
            return index;
        }
        self.forget_unused(now);
        let mut flow = Flow::new(name, request.owner.priority);
        flow.set_priority(request.owner.priority, percent);
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

    /// Forget flows without work, once there are many.
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

    /// Which set a flow belongs in, by what is known of it and of the device.
    fn set_of(&self, flow: &Flow) -> Set {
        if !self.device.has_seeks() {
            return Set::Free;
        }
        let is_free = match flow.name.way {
            Way::Write | Way::Background => {
                self.device.caches_writes() && self.injected_cost <= self.device.seek()
            }
            Way::Read | Way::Durable => false,
        };
        let comes_back = flow.think.get().is_none_or(|think| think < self.device.seek());
        match (is_free, flow.is_sequential() && comes_back && flow.name.way != Way::Durable) {
            (true, _) => Set::Free,
            (false, true) => Set::Streams,
            (false, false) if flow.is_sparse(self.device.seek()) => Set::Sparse,
            (false, false) => Set::Scattered,
        }
    }

    /// Put a flow where it belongs by now, or nowhere.
    fn file(&mut self, index: FlowIndex) {
        let flow = &self.flows[index.0 as usize];
        let place = flow.requests.oldest().map(|oldest| match self.set_of(flow) {
            // In the order of arrival.
            Set::Free if !self.device.has_seeks() => {
                (Set::Free, self.table.slot(oldest).inserted.as_nanos() as u64)
            }
            Set::Streams => (Set::Streams, flow.time / TURN * TURN),
            // Those that are known to be sparse go before those of which nothing is known yet.
            Set::Sparse if !flow.is_known() => (Set::Sparse, flow.time + TURN),
            set => (set, flow.time),
        });
        if place == flow.filed {
            return;
        }
        let class = flow.class;
        if let Some((set, time)) = flow.filed {
            let was_there = self.sets[set as usize].remove(&(class, time, index));
            assert!(was_there, "a flow is where it says");
        }
        if let Some((set, time)) = place {
            self.sets[set as usize].insert((class, time, index));
        }
        self.flow_mut(index).filed = place;
    }

    /// Panics if a rule of the module head is broken; for tests and simulation.
    pub fn check_invariants(&self) {
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
        let key = flow.requests.merge(&mut self.table, request, self.tunables.max_sectors)?;
        self.table.note_merge(request.owner.task);
        Some(self.table.request(key).id)
    }

    fn insert(&mut self, request: Request, now: Duration) {
        let index = self.flow_of(&request, now);
        let key = self.table.insert(request, index.0, now + self.tunables.expire, now);
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
        // While a sparse flow's request is in the device, only its end moves the arm.
        let kept = self.slice.filter(|_| self.sparse_in_flight == 0).and_then(|slice| slice.kept_until);
        [kept, self.next_injection()].into_iter().flatten().min()
    }

    fn owner_ended(&mut self, task: TaskId, _now: Duration) {
        for way in [Way::Read, Way::Write, Way::Durable] {
            let Some(index) = self.by_name.get(&FlowName { task, way }).copied() else { continue };
            self.flow_mut(index).is_last = true;
            if self.slice.is_some_and(|slice| slice.holder == Holder::Stream(index))
                && self.flow(index).requests.is_empty()
            {
                self.slice = None;
            }
        }
    }

    fn set_weight(&mut self, task: TaskId, weight_percent: u32) {
        self.weights.insert(task, weight_percent.clamp(10, 1000));
    }

    fn statistics(&self) -> &Statistics {
        &self.table.statistics
    }

    fn pending_count(&self) -> usize {
        self.table.pending_count()
    }

    fn describe(&self, now: Duration) -> String {
        let mut text = format!(
            "inject: {} pending, {} in flight; a seek costs {:.1?}, an injected write {:.1?}; {} injected, {} slices\n",
            self.pending_count(),
            self.table.flying_count(),
            self.seek_cost(),
            self.injected_cost(),
            self.injections,
            self.slices,
        );
        match self.slice {
            None => text.push_str("  no flow has the arm\n"),
            Some(Slice { holder: Holder::Pool, .. }) => text.push_str("  scattered flows have the arm\n"),
            Some(Slice { holder: Holder::Stream(index), ends, .. }) => {
                let left = ends.map_or(Duration::ZERO, |ends| ends.saturating_sub(now));
                let _ = writeln!(text, "  {:?} has the arm, {left:.1?} left", self.flow(index).name);
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

/// Marks in the queue number of a request: it needs no arm; it went into another flow's slice; it was its flow's first one.
const FREE: u32 = 1 << 31;
const SPARSE: u32 = 1 << 30;
const NEWCOMER: u32 = 1 << 29;
const MARKS: u32 = FREE | SPARSE | NEWCOMER;

#[cfg(test)]
mod tests;

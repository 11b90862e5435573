//! Simulated disks: real content in sparse memory, and a model that computes the end of each command.
//!
//! Where it sits: a [`SimDisk`] is a [`BlockDevice`]. In a simulated process its commands take the virtual time that the
//! model computes. Outside a simulation (for mkfs, for example) they take no time. The models are pure state machines;
//! the disk feeds them and schedules their next event.
//!
//! Interface: each new simulation finds the disk with its content, its arm parked and its cache empty.

mod flash;
mod link;
mod parameters;
mod platter;
mod queue;
mod rotational;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use diorite_block::sync::Runtime;
use diorite_block::{Bio, BioFlags, BlockDevice, Geometry, IoCounters, IoError, IoQueue, Op, SharedQueue};

use crate::image::SparseImage;
use crate::world::{Context, Event};

pub use link::SharedLink;
pub use parameters::{DISK_NAMES, DiskParameters, FlashParameters, ParameterError, RotationalParameters};

/// One command to a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The operation.
    pub op: Op,
    /// First byte.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// Whether a write must be on the medium before it completes.
    pub fua: bool,
    /// Whether the cache must be on the medium before it begins.
    pub preflush: bool,
}

impl Command {
    fn of(bio: &Bio<'_>) -> Self {
        let (fua, preflush) = (bio.flags.contains(BioFlags::FUA), bio.flags.contains(BioFlags::PREFLUSH));
        Self { op: bio.op, start: bio.sector.to_bytes(), len: bio.len(), fua, preflush }
    }

    pub(crate) const fn end(&self) -> u64 {
        self.start + self.len
    }
}

/// How a drive executes commands over time. Times are nanoseconds since the world began and never go backwards.
pub trait Model: Send + fmt::Debug {
    /// Take a command; `id` is not in use.
    fn submit(&mut self, id: u64, command: Command, now: u64);

    /// The time of the next internal event.
    fn next_event(&self) -> Option<u64>;

    /// Advance to `now`, and append the commands that have ended.
    fn advance(&mut self, now: u64, done: &mut Vec<u64>);
}

/// Counters of a drive in the current world, as the kernel keeps them for a real drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Commands that have ended: reads, writes.
    pub ios: [u64; 2],
    /// Sum of their times from submission to end.
    pub took: [Duration; 2],
    /// The same sum for flushes.
    pub flushes_took: Duration,
    /// Time in which there was at least one command.
    pub busy: Duration,
    /// Start of the present busy time.
    busy_since: Option<Duration>,
}

impl Activity {
    fn submitted(&mut self, now: Duration) {
        self.busy_since.get_or_insert(now);
    }

    fn ended(&mut self, op: Op, submitted: Duration, now: Duration, is_idle: bool) {
        let took = now.saturating_sub(submitted);
        match op {
            Op::Flush => self.flushes_took += took,
            op => {
                self.ios[usize::from(op.is_write())] += 1;
                self.took[usize::from(op.is_write())] += took;
            }
        }
        if is_idle && let Some(since) = self.busy_since.take() {
            self.busy += now.saturating_sub(since);
        }
    }
}

/// A disk that exists only in memory and in virtual time.
pub struct SimDisk {
    name: String,
    geometry: Geometry,
    counters: IoCounters,
    parameters: DiskParameters,
    link: Option<Arc<SharedLink>>,
    content: Mutex<SparseImage>,
    drive: Mutex<Drive>,
    this: Weak<SimDisk>,
}

/// The drive in the present world.
#[derive(Debug)]
struct Drive {
    world: u64,
    model: Box<dyn Model>,
    next_id: u64,
    /// The commands in the drive: the waiting call, the operation and the time of submission.
    calls: HashMap<u64, (Arc<Call>, Op, Duration)>,
    /// Times of the events that the world will fire for this disk.
    scheduled: BTreeSet<u64>,
    activity: Activity,
}

/// A thread waits for several commands.
#[derive(Debug, Default)]
struct Call {
    left: Mutex<u32>,
}

impl Call {
    fn key(&self) -> usize {
        (&raw const *self).addr()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl SimDisk {
    /// A named disk (`sata-2009`, with or without `sim:` before it); see [`DISK_NAMES`].
    pub fn named(name: &str) -> Result<Arc<Self>, ParameterError> {
        let name = name.strip_prefix("sim:").unwrap_or(name);
        Ok(Self::new(name, DiskParameters::named(name)?))
    }

    /// A disk with these parameters, which must have passed [`DiskParameters::check`].
    pub fn new(name: &str, parameters: DiskParameters) -> Arc<Self> {
        Self::build(name, parameters, None)
    }

    /// `count` equal disks that share one link to the host.
    pub fn array(name: &str, parameters: &DiskParameters, count: usize) -> Vec<Arc<Self>> {
        let link = Arc::new(SharedLink::new(parameters.bus_bytes_per_s()));
        let disk =
            |index| Self::build(&format!("{name}/{index}"), parameters.clone(), Some(Arc::clone(&link)));
        (0..count).map(disk).collect()
    }

    fn build(name: &str, parameters: DiskParameters, link: Option<Arc<SharedLink>>) -> Arc<Self> {
        let geometry = parameters.geometry();
        let content = Mutex::new(SparseImage::new(geometry.capacity_bytes));
        let drive = Mutex::new(Drive {
            world: 0,
            model: parameters.model(0, link.clone()),
            next_id: 0,
            calls: HashMap::new(),
            scheduled: BTreeSet::new(),
            activity: Activity::default(),
        });
        Arc::new_cyclic(|this| Self {
            name: format!("sim:{name}"),
            geometry,
            counters: IoCounters::default(),
            parameters,
            link,
            content,
            drive,
            this: Weak::clone(this),
        })
    }

    /// The content now; shares memory with the disk.
    pub fn image(&self) -> SparseImage {
        lock(&self.content).clone()
    }

    /// Replace the content of the disk: bytes past its end are dropped, and missing bytes read as zeros.
    pub fn set_image(&self, image: SparseImage) {
        *lock(&self.content) = image.resized(self.geometry.capacity_bytes);
    }

    /// Counters of the drive in the latest world until `now`.
    pub fn activity(&self, now: Duration) -> Activity {
        let activity = lock(&self.drive).activity;
        let still = activity.busy_since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        Activity { busy: activity.busy + still, ..activity }
    }

    fn check(&self, bio: &Bio<'_>) -> Result<(), IoError> {
        self.geometry.check(bio).map_err(|kind| (self as &dyn BlockDevice).error(bio, kind))
    }

    /// The drive in this world; new if the world is new.
    fn drive(&self, context: &Context) -> MutexGuard<'_, Drive> {
        let mut drive = lock(&self.drive);
        if drive.world != context.world() {
            drive.world = context.world();
            drive.model = self.parameters.model(context.seed(), self.link.clone());
            if let Some(link) = &self.link {
                link.enter_world(context.world());
            }
            drive.calls.clear();
            drive.scheduled.clear();
            drive.activity = Activity::default();
        }
        drive
    }

    /// Submit commands to the drive. The call counts their ends.
    fn submit(&self, context: &Context, commands: &[Command]) -> Arc<Call> {
        context.settle();
        let now = context.now();
        let call = Arc::new(Call { left: Mutex::new(commands.len() as u32) });
        let mut drive = self.drive(context);
        for command in commands {
            let id = drive.next_id;
            drive.next_id += 1;
            drive.calls.insert(id, (Arc::clone(&call), command.op, now));
            drive.activity.submitted(now);
            drive.model.submit(id, *command, nanoseconds(now));
        }
        drop(drive);
        self.pump(context);
        call
    }

    /// Advance the model, wake waiting processes, and schedule the next event.
    fn pump(&self, context: &Context) {
        let now = context.now();
        let mut drive = self.drive(context);
        let mut done = Vec::new();
        drive.model.advance(nanoseconds(now), &mut done);
        let mut woken = Vec::new();
        for id in done {
            let (call, op, submitted) = drive.calls.remove(&id).expect("ended what was submitted");
            let is_idle = drive.calls.is_empty();
            drive.activity.ended(op, submitted, now, is_idle);
            let mut left = lock(&call.left);
            *left -= 1;
            if *left == 0 {
                drop(left);
                woken.push(call);
            }
        }
        let next = drive.model.next_event();
        let schedule = next.filter(|at| drive.scheduled.first().is_none_or(|scheduled| *at < *scheduled));
        drive.scheduled.extend(schedule);
        drop(drive);
        if let (Some(at), Some(this)) = (schedule, self.this.upgrade()) {
            context.schedule(Duration::from_nanos(at), this);
        }
        if !woken.is_empty() {
            context.wake(self.any_key(), true);
        }
        for call in woken {
            context.wake(call.key(), true);
        }
    }

    /// The key of queues, which wait for the end of any call of this disk.
    fn any_key(&self) -> usize {
        (&raw const *self).addr()
    }

    /// Wait for one call.
    fn wait(context: &Context, call: &Call) {
        while *lock(&call.left) > 0 {
            context.wait(call.key(), None);
        }
    }

    fn apply(&self, bio: &mut Bio<'_>) {
        lock(&self.content).apply(bio);
    }
}

impl Event for SimDisk {
    fn fire(&self, context: &Context) {
        let now = nanoseconds(context.now());
        self.drive(context).scheduled.retain(|at| *at > now);
        self.pump(context);
    }
}

impl BlockDevice for SimDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn counters(&self) -> &IoCounters {
        &self.counters
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        bios.iter().try_for_each(|bio| self.check(bio))?;
        let mut commands = Vec::with_capacity(bios.len());
        for bio in bios.iter_mut() {
            self.counters.count(bio.op, bio.len());
            commands.push(Command::of(bio));
            if bio.op != Op::Read {
                self.apply(bio);
            }
        }
        if let Some(context) = Context::current() {
            let call = self.submit(&context, &commands);
            Self::wait(&context, &call);
        }
        bios.iter_mut().filter(|bio| bio.op == Op::Read).for_each(|bio| self.apply(bio));
        Ok(())
    }

    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        Ok(Box::new(queue::SimQueue::new(self, depth)))
    }

    fn open_shared_queue(self: Arc<Self>, depth: u32) -> Option<Box<dyn SharedQueue>> {
        Some(Box::new(queue::SimQueue::new(self, depth)))
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDisk({})", self.name)
    }
}

/// Byte ranges that do not overlap, each start with its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeSet {
    ranges: BTreeMap<u64, u64>,
    bytes: u64,
}

impl RangeSet {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Add a range, joining what it touches.
    pub(crate) fn add(&mut self, mut start: u64, mut end: u64) {
        while let Some((from, to)) = self.ranges.range(..=end).next_back().map(|(from, to)| (*from, *to))
            && to >= start
        {
            self.ranges.remove(&from);
            self.bytes -= to - from;
            (start, end) = (start.min(from), end.max(to));
        }
        self.ranges.insert(start, end);
        self.bytes += end - start;
    }

    /// Whether a range is wholly inside.
    pub(crate) fn covers(&self, start: u64, end: u64) -> bool {
        self.ranges.range(..=start).next_back().is_some_and(|(_, to)| *to >= end)
    }

    /// Take up to `count` ranges out, upwards from `position` and round.
    pub(crate) fn take_from(&mut self, position: u64, count: usize) -> Vec<(u64, u64)> {
        let after = self.ranges.range(position..).map(|(start, end)| (*start, *end));
        let before = self.ranges.range(..position).map(|(start, end)| (*start, *end));
        let taken: Vec<_> = after.chain(before).take(count).collect();
        for (start, end) in &taken {
            self.ranges.remove(start);
            self.bytes -= end - start;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_and_come_out_in_order() {
        let mut set = RangeSet::default();
        for (start, end) in [(100, 200), (300, 400), (200, 250), (240, 300), (900, 1000)] {
            set.add(start, end);
        }
        assert_eq!(set.bytes(), 400);
        assert!(set.covers(100, 400) && !set.covers(100, 401) && !set.covers(50, 120));
        assert_eq!(set.take_from(500, 9), [(900, 1000), (100, 400)]);
        assert!(set.is_empty() && set.bytes() == 0);
    }
}

//! `inject`: our default where distance costs time. Readers keep their slices; a cheap synchronous writer is let in beside
//! them, paced, for as long as the drive does not mind.
//!
//! A drive with a write-back cache takes a small write in a fraction of a millisecond while its arm goes on streaming for
//! a reader. Giving such a writer a time slice of its own costs the readers a third of the disk and the writer most of
//! its time. So its requests are injected: dispatched at once, next to those of the reader whose slice it is. Two tests
//! keep that honest, because some drives do mind:
//! - The writer's own service time: beyond `cheap_service` (a write-through drive) it is not injected.
//! - What it costs the reader: its time for a byte is compared with that in short quiet windows without injection. If more than `max_loss_percent` is lost, injection stops for a while, longer each
//!   time.
//!
//! Whatever is not injected goes to a [`Cfq`] with the `fixed` rules and stock slices; with injection off this scheduler
//! is that CFQ. Source of the idea and the frontier that the defaults sit on: BFQ's injection, and the model in
//! `bench/` that `diorite repro fairness` runs.
//!
//! Invariants:
//! 1. A request is either in the CFQ or in `waiting` or among `injected`, never in two.
//! 2. `waiting` is empty whenever no reader is there: a writer alone is never paced.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write;
use std::hash::BuildHasherDefault;
use std::time::Duration;

use super::cfq::{Cfq, CfqTunables};
use super::inject_cost::InjectionCost;
use super::table::Key;
use super::{IoScheduler, Request, RequestId, Statistics};
use crate::NumberHasher;
use crate::{BioFlags, IoPriority, Op, TaskId};

/// The queue number of injected requests in the common table.
const INJECTED: u32 = u32::MAX;
/// Service times are clipped here before they enter the mean, so that one unlucky write does not decide.
const SERVICE_CLIP: Duration = Duration::from_millis(8);
/// Requests of a new owner that are let in before its service time is known.
const TRIALS: u32 = 3;
/// After this much measured time a loss is believed within twice the limit, after ten times as much nearly at it.
const FULL_EVIDENCE: Duration = Duration::from_millis(150);
/// Owners whose habits are remembered.
const HABITS_KEPT: usize = 4096;

/// What can be tuned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectTunables {
    /// The CFQ beneath.
    pub cfq: CfqTunables,
    /// A writer is cheap while its mean service time is below this.
    pub cheap_service: Duration,
    /// Largest request that is injected, in bytes.
    pub max_bytes: u64,
    /// All injected writers together get at most this many bytes a second while a reader is there.
    pub pace_bytes_per_s: u64,
    /// A reader's slice while writers are let in beside it: longer than alone, because no other queue needs a slice.
    pub reader_slice: Duration,
    /// Most injected requests in the device at once.
    pub depth: u32,
    /// Loss of the reader's rate that is accepted.
    pub max_loss_percent: u64,
    /// How long nothing is injected to see the reader's rate without.
    pub quiet_window: Duration,
    /// How often there is a quiet window once the cost is known.
    pub quiet_every: Duration,
    /// First time that injection stays off when it was found to cost too much; doubles up to `max_backoff`.
    pub min_backoff: Duration,
    /// See `min_backoff`.
    pub max_backoff: Duration,
    /// A reader counts as present for this long after its last request.
    pub reader_linger: Duration,
}

impl Default for InjectTunables {
    fn default() -> Self {
        Self {
            cfq: CfqTunables::default(),
            cheap_service: Duration::from_millis(2),
            max_bytes: 64 * 1024,
            pace_bytes_per_s: 3300 * 1024,
            reader_slice: Duration::from_millis(115),
            depth: 2,
            max_loss_percent: 15,
            quiet_window: Duration::from_millis(8),
            quiet_every: Duration::from_millis(250),
            min_backoff: Duration::from_secs(10),
            max_backoff: Duration::from_secs(80),
            reader_linger: Duration::from_millis(10),
        }
    }
}

/// Whether writers are let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectionState {
    /// They are.
    On,
    /// The drive minded; they are not, until then.
    Off {
        /// When it is tried again.
        until: Duration,
    },
}

/// A writer's smoothed service time.
#[derive(Clone, Copy, Debug, Default)]
struct Habit {
    samples: u32,
    service: Duration,
}

/// The scheduler.
#[derive(Debug)]
pub struct Inject {
    tunables: InjectTunables,
    cfq: Cfq,
    state: InjectionState,
    backoff: Duration,
    habits: HashMap<TaskId, Habit, BuildHasherDefault<NumberHasher>>,
    waiting: VecDeque<Key>,
    injected: u32,
    next_injection: Duration,
    readers_outstanding: u32,
    last_read: Option<Duration>,
    cost: InjectionCost,
    quiet_until: Duration,
    next_quiet: Duration,
    injections: u64,
    switched_off: u64,
}

impl Inject {
    /// An empty scheduler with injection on.
    pub fn new(tunables: InjectTunables) -> Self {
        let cfq = Cfq::new(tunables.cfq.clone());
        Self {
            backoff: tunables.min_backoff,
            tunables,
            cfq,
            state: InjectionState::On,
            habits: HashMap::default(),
            waiting: VecDeque::new(),
            injected: 0,
            next_injection: Duration::ZERO,
            readers_outstanding: 0,
            last_read: None,
            cost: InjectionCost::default(),
            quiet_until: Duration::ZERO,
            next_quiet: Duration::ZERO,
            injections: 0,
            switched_off: 0,
        }
    }

    /// Whether writers are let in now.
    pub fn state(&self) -> InjectionState {
        self.state
    }

    /// Requests injected so far.
    pub fn injection_count(&self) -> u64 {
        self.injections
    }

    /// How often injection was found to cost too much.
    pub fn switched_off_count(&self) -> u64 {
        self.switched_off
    }

    /// Share of the readers' time that injection takes, 0 to 1, as last measured.
    pub fn reader_loss(&self) -> Option<f64> {
        self.cost.loss()
    }

    fn is_candidate(&self, request: &Request) -> bool {
        request.op == Op::Write
            && request.flags.contains(BioFlags::SYNC)
            && request.bytes() <= self.tunables.max_bytes
            && matches!(request.owner.priority, IoPriority::BestEffort(_))
    }

    fn is_cheap(&self, task: TaskId) -> bool {
        let habit = self.habits.get(&task).copied().unwrap_or_default();
        habit.samples < TRIALS && habit.service <= self.tunables.cheap_service * 2
            || habit.samples >= TRIALS && habit.service < self.tunables.cheap_service
    }

    fn reader_is_present(&self, now: Duration) -> bool {
        self.readers_outstanding > 0
            || self.last_read.is_some_and(|last| now.saturating_sub(last) < self.tunables.reader_linger)
    }

    fn may_inject(&mut self, request: &Request, now: Duration) -> bool {
        if let InjectionState::Off { until } = self.state {
            if now < until {
                return false;
            }
            self.state = InjectionState::On;
            self.cost.restart();
            self.next_quiet = now;
        }
        self.is_candidate(request) && self.reader_is_present(now) && self.is_cheap(request.owner.task)
    }

    fn learn_service(&mut self, task: TaskId, service: Duration) {
        if self.habits.len() >= HABITS_KEPT && !self.habits.contains_key(&task) {
            self.habits.clear();
        }
        let service = service.min(SERVICE_CLIP);
        let habit = self.habits.entry(task).or_default();
        habit.service = if habit.samples == 0 { service } else { (habit.service * 7 + service) / 8 };
        habit.samples = habit.samples.saturating_add(1);
    }

    /// Everything that waits to be injected goes the common way.
    fn give_up_waiting(&mut self, now: Duration) {
        let usual = &self.tunables.cfq;
        self.cfq.set_slices(usual.slice_sync, usual.target_latency);
        while let Some(key) = self.waiting.pop_front() {
            let (request, arrived) = self.cfq.table_mut().withdraw(key);
            self.cfq.insert_arrived(request, arrived, now);
        }
    }

    /// A read has completed: has injection turned out to cost too much?
    fn judge(&mut self, request: &Request, now: Duration) {
        let finished = self.cost.read_completed(request.owner.task, request.bytes(), now);
        if !finished || self.state != InjectionState::On {
            return;
        }
        // Little evidence must be strong: with a reader's large windows the first sums are a few intervals only.
        let doubt = 1.0 + FULL_EVIDENCE.as_secs_f64() / self.cost.measured_s().max(1e-3);
        let limit = self.tunables.max_loss_percent.min(100) as f64 / 100.0 * doubt;
        if self.cost.loss().is_some_and(|loss| loss > limit) {
            self.state = InjectionState::Off { until: now + self.backoff };
            self.backoff = (self.backoff * 2).min(self.tunables.max_backoff);
            self.switched_off += 1;
            self.give_up_waiting(now);
        }
    }

    /// Begin a quiet window when one is due.
    fn keep_quiet(&mut self, now: Duration) -> bool {
        if now < self.quiet_until {
            return true;
        }
        if now >= self.next_quiet && self.readers_outstanding > 0 {
            self.quiet_until = now + self.tunables.quiet_window;
            self.cost.quiet_window(now, self.quiet_until);
            let pause = if self.cost.loss().is_some() {
                self.tunables.quiet_every
            } else {
                self.tunables.quiet_window * 5
            };
            self.next_quiet = self.quiet_until + pause;
            return true;
        }
        false
    }

    fn inject_one(&mut self, now: Duration) -> Option<Request> {
        if self.waiting.is_empty() {
            return None;
        }
        if self.state != InjectionState::On || !self.reader_is_present(now) {
            self.give_up_waiting(now);
            return self.cfq.dispatch(now);
        }
        if self.injected >= self.tunables.depth || now < self.next_injection || self.keep_quiet(now) {
            return None;
        }
        let key = self.waiting.pop_front()?;
        let request = self.cfq.table_mut().dispatch(key, now);
        let gap = request.bytes().saturating_mul(1_000_000_000) / self.tunables.pace_bytes_per_s.max(1);
        // What was missed by a few milliseconds is made up for; not more.
        let from = self.next_injection.max(now.saturating_sub(self.tunables.quiet_window * 2));
        self.next_injection = from + Duration::from_nanos(gap);
        self.cfq.set_slices(self.tunables.reader_slice, self.tunables.reader_slice * 3);
        self.injected += 1;
        self.injections += 1;
        Some(request)
    }
}

impl IoScheduler for Inject {
    fn name(&self) -> &'static str {
        "inject"
    }

    fn merge(&mut self, request: &Request, now: Duration) -> Option<RequestId> {
        self.cfq.merge(request, now)
    }

    fn insert(&mut self, request: Request, now: Duration) {
        if self.may_inject(&request, now) {
            let key = self.cfq.table_mut().insert(request, INJECTED, now, now);
            self.waiting.push_back(key);
            self.cfq.end_slice_of(request.owner.task, now);
            return;
        }
        if request.op == Op::Read {
            self.readers_outstanding += 1;
            self.last_read = Some(now);
        }
        self.cfq.insert(request, now);
    }

    fn dispatch(&mut self, now: Duration) -> Option<Request> {
        self.cfq.dispatch(now).or_else(|| self.inject_one(now))
    }

    fn completed(&mut self, id: RequestId, now: Duration) {
        let ended = self.cfq.table_mut().complete(id, now);
        let request = ended.request;
        if self.is_candidate(&request) {
            self.learn_service(request.owner.task, ended.service);
        }
        if ended.queue == INJECTED {
            self.injected -= 1;
            if !self.is_cheap(request.owner.task) {
                self.give_up_waiting(now);
            }
            return;
        }
        self.cfq.ended(&ended, now);
        if request.op == Op::Read {
            self.readers_outstanding -= 1;
            self.last_read = Some(now);
            self.judge(&request, now);
        }
    }

    fn next_deadline(&self) -> Option<Duration> {
        let injection = (!self.waiting.is_empty() && self.injected < self.tunables.depth).then(|| {
            let gone = self.last_read.map(|last| last + self.tunables.reader_linger);
            let gone = gone.filter(|_| self.readers_outstanding == 0);
            let next = self.next_injection.max(self.quiet_until);
            gone.map_or(next, |gone| gone.min(next))
        });
        [self.cfq.next_deadline(), injection].into_iter().flatten().min()
    }

    fn set_weight(&mut self, task: TaskId, weight_percent: u32) {
        self.cfq.set_weight(task, weight_percent);
    }

    fn statistics(&self) -> &Statistics {
        self.cfq.statistics()
    }

    fn pending_count(&self) -> usize {
        self.cfq.pending_count()
    }

    fn describe(&self, now: Duration) -> String {
        let mut text = match self.state {
            InjectionState::On => "inject: on".to_owned(),
            InjectionState::Off { until } => format!("inject: off for {:?}", until.saturating_sub(now)),
        };
        let loss =
            self.cost.loss().map_or("not yet known".to_owned(), |loss| format!("{:.1} %", loss * 100.0));
        let _ = writeln!(
            text,
            ", {} injected so far, {} waiting, {} in flight, switched off {} times; readers get {:.1} MB/s, what it costs \
             them: {loss}",
            self.injections,
            self.waiting.len(),
            self.injected,
            self.switched_off,
            self.cost.rate() / 1e6,
        );
        text + &self.cfq.describe(now)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ms, request};
    use super::*;

    fn us(microseconds: u64) -> Duration {
        Duration::from_micros(microseconds)
    }

    /// A drive that serves a read in 1 ms (slowed by `read_penalty` for each write meanwhile) and a write in `write`.
    fn run(write: Duration, read_penalty: Duration, length: Duration) -> (Inject, u64, u64) {
        let mut scheduler = Inject::new(InjectTunables::default());
        let (mut now, mut id, mut counts) = (ms(0), 10, (0, 0));
        let mut arrivals =
            vec![(ms(0), request(1, Op::Read, 0, 1)), (ms(0), request(2, Op::Write, 1 << 30, 2))];
        let mut flying: Vec<(Duration, Request)> = Vec::new();
        while now < length {
            if let Some(at) = arrivals.iter().position(|(at, _)| *at <= now) {
                let (_, next) = arrivals.swap_remove(at);
                scheduler.insert(next, now);
                continue;
            }
            if let Some(request) = scheduler.dispatch(now) {
                let service = if request.op == Op::Read { ms(1) } else { write };
                if request.op == Op::Write {
                    for (end, _) in flying.iter_mut().filter(|(_, other)| other.op == Op::Read) {
                        *end += read_penalty;
                    }
                }
                flying.push((now + service, request));
                continue;
            }
            if let Some(at) = flying.iter().position(|(end, _)| *end <= now) {
                let (_, done) = flying.swap_remove(at);
                scheduler.completed(done.id, now);
                id += 1;
                let next = Request { id: RequestId(id), sector: done.end(), ..done };
                if done.op == Op::Read {
                    counts.0 += 1;
                } else {
                    counts.1 += 1;
                }
                arrivals.push((now + us(30), next));
                continue;
            }
            let times = arrivals.iter().map(|(at, _)| *at).chain(flying.iter().map(|(end, _)| *end));
            now = times.chain(scheduler.next_deadline()).filter(|at| *at > now).min().expect("never stuck");
        }
        (scheduler, counts.0, counts.1)
    }

    #[test]
    fn cheap_writer_is_let_in_beside_the_reader() {
        let (scheduler, reads, writes) = run(us(350), us(0), ms(4000));
        assert_eq!(scheduler.state(), InjectionState::On, "{}", scheduler.describe(ms(4000)));
        assert!(reads > 3800, "the reader keeps the disk: {reads} of 3883");
        assert!(writes > 3000, "the writer gets its pace of 900 a second: {writes}");
    }

    #[test]
    fn drive_that_minds_is_noticed_and_left_alone() {
        let (scheduler, _, _) = run(us(350), us(700), ms(4000));
        assert!(matches!(scheduler.state(), InjectionState::Off { .. }), "{}", scheduler.describe(ms(4000)));
        assert_eq!(scheduler.switched_off_count(), 1);
    }

    #[test]
    fn slow_writes_are_not_injected() {
        let (scheduler, _, writes) = run(ms(8), us(0), ms(4000));
        assert!(scheduler.injection_count() <= u64::from(TRIALS) + 1, "{}", scheduler.describe(ms(4000)));
        assert!(writes > 150, "it gets slices instead: {writes}");
    }

    /// Invariant 2.
    #[test]
    fn writer_alone_is_not_paced() {
        let mut scheduler = Inject::new(InjectTunables::default());
        let mut now = ms(0);
        for id in 0..1000 {
            scheduler.insert(request(id, Op::Write, id * 8, 1), now);
            let request = scheduler.dispatch(now).expect("at once");
            now += us(100);
            scheduler.completed(request.id, now);
        }
        assert_eq!(scheduler.injection_count(), 0);
    }
}

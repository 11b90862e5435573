//! Virtual time and simulated processes: the whole, unchanged stack runs in them, one thread at a time.
//!
//! Where it sits: it implements [`diorite_block::sync::Runtime`], so every lock, condition, sleep and thread of the stack
//! comes here when its thread belongs to a simulation. Simulated disks schedule their completions here.
//!
//! How it works: each process is a thread of the operating system that runs only while it holds the baton. To wait (for a
//! lock, a device, a time) is to pass the baton on to a process that can run; when there is none, virtual time jumps to the
//! next event. So the order of everything is decided here alone, and one seed gives one run (DESIGN 4.11).
//!
//! CPU work ([`diorite_block::sync::work`]) is first owed and then paid: the debt is settled, by letting its time pass, when
//! the process next waits, wakes somebody or submits I/O, or when the debt grows beyond `DEBT_LIMIT`.
//!
//! Interface: the simulation ends when all processes started by [`Simulation::spawn`] have ended. Threads that the stack
//! started and left running are then parked for ever; so are all others after a deadlock or a panic.
//!
//! Locking: the state has a plain lock, held only to choose who runs; never while a process or an event handler runs.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use diorite_block::IoOwner;
use diorite_block::sync::{self, Join, Runtime, Work};

use crate::cost::CpuCosts;

/// Largest CPU debt in nanoseconds.
const DEBT_LIMIT: u64 = 100_000;

/// Which of several processes that can run goes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The one that has waited longest.
    #[default]
    Fifo,
    /// A random one, by the seed: to look for races.
    Shuffled,
}

/// How a world is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldOptions {
    /// Decides everything that is random.
    pub seed: u64,
    /// Processors; a process that works occupies one.
    pub cpus: u32,
    /// What work costs.
    pub costs: CpuCosts,
    /// Who goes next.
    pub order: Order,
}

impl Default for WorldOptions {
    fn default() -> Self {
        Self { seed: 1, cpus: 4, costs: CpuCosts::default(), order: Order::default() }
    }
}

/// Something that happens at a time: a device's completion.
pub trait Event: Send + Sync {
    /// It is time. Runs on whichever thread holds the baton; must not wait.
    fn fire(&self, context: &Context);
}

/// How a simulation ended when it did not end well.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("deadlock at {at:?} of virtual time: everybody waits and nothing will happen\n{waiting}")]
pub struct Deadlock {
    /// When.
    pub at: Duration,
    /// Who waits for what, in lines.
    pub waiting: String,
}

/// What a simulation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Virtual time at the end.
    pub virtual_time: Duration,
    /// Hash of every decision and event with its time: equal for equal runs.
    pub trace_hash: u64,
    /// How often the baton was passed on, and events fired.
    pub steps: u64,
    /// Each process, in the order of creation.
    pub processes: Vec<ProcessReport>,
}

/// What one process used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessReport {
    /// As given.
    pub name: String,
    /// CPU time charged to it.
    pub cpu_time: Duration,
    /// When it ended, if it did.
    pub ended_at: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ProcessId(usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    Runnable,
    /// For a key, until a time if there is one; not to run before `not_before`, when its CPU work is done.
    Waiting {
        key: usize,
        since: Duration,
        until: Option<Duration>,
        not_before: Duration,
    },
    Ended,
}

struct Process {
    name: String,
    activity: Activity,
    woken: bool,
    /// The timer that will make it runnable.
    timer: Option<(Duration, u64)>,
    foreground: bool,
    cpu_time: Duration,
    ended_at: Option<Duration>,
    baton: Arc<Baton>,
}

/// The right to run, for one thread.
#[derive(Default)]
struct Baton {
    here: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl Baton {
    fn give(&self) {
        self.here.store(true, Ordering::Release);
        if let Some(thread) = &*lock(&self.thread) {
            thread.unpark();
        }
    }

    fn take(&self) {
        while !self.here.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}

enum Timer {
    Process(ProcessId),
    Event(Arc<dyn Event>),
}

enum Outcome {
    Done,
    Deadlock(Deadlock),
    Panic(Box<dyn std::any::Any + Send>),
}

struct State {
    now: Duration,
    processes: Vec<Process>,
    runnable: VecDeque<ProcessId>,
    waiters: HashMap<usize, VecDeque<ProcessId>>,
    timers: BTreeMap<(Duration, u64), Timer>,
    timer_number: u64,
    foreground: usize,
    cpu_free_at: Vec<Duration>,
    random: fastrand::Rng,
    trace_hash: u64,
    steps: u64,
    outcome: Option<Outcome>,
}

struct Core {
    state: Mutex<State>,
    ended: Condvar,
    options: WorldOptions,
    number: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A simulated world that has not run yet.
pub struct Simulation {
    core: Arc<Core>,
}

impl Simulation {
    /// A world by seed, otherwise with the defaults.
    pub fn new(seed: u64) -> Self {
        Self::with_options(WorldOptions { seed, ..WorldOptions::default() })
    }

    /// A world.
    pub fn with_options(options: WorldOptions) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let state = State {
            now: Duration::ZERO,
            processes: Vec::new(),
            runnable: VecDeque::new(),
            waiters: HashMap::new(),
            timers: BTreeMap::new(),
            timer_number: 0,
            foreground: 0,
            cpu_free_at: vec![Duration::ZERO; options.cpus.max(1) as usize],
            random: fastrand::Rng::with_seed(options.seed),
            trace_hash: 0xcbf2_9ce4_8422_2325,
            steps: 0,
            outcome: None,
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self { core: Arc::new(Core { state: Mutex::new(state), ended: Condvar::new(), options, number }) }
    }

    /// Add a process that runs `body` from time zero on, its I/O charged to `owner`.
    pub fn spawn(&self, name: &str, owner: IoOwner, body: impl FnOnce() + Send + 'static) {
        self.core.start(name.to_owned(), Some(owner), Box::new(body));
    }

    /// Run until every process has ended. A panic in a process is passed on.
    pub fn run(self) -> Result<Report, Deadlock> {
        let mut state = lock(&self.core.state);
        if state.foreground == 0 {
            return Ok(state.report());
        }
        if let Some(next) = self.core.choose(&mut state) {
            state.processes[next.0].baton.give();
        }
        while state.outcome.is_none() {
            state = self.core.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let report = state.report();
        match state.outcome.take() {
            Some(Outcome::Deadlock(deadlock)) => Err(deadlock),
            Some(Outcome::Panic(payload)) => {
                drop(state);
                resume_unwind(payload)
            }
            Some(Outcome::Done) | None => Ok(report),
        }
    }

    /// Run one process in a world of its own and give its result back.
    pub fn run_one<T: Send + 'static>(
        options: WorldOptions,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, Report), Deadlock> {
        let simulation = Self::with_options(options);
        let slot = Arc::new(Mutex::new(None));
        let result = Arc::clone(&slot);
        simulation.spawn("main", IoOwner::default(), move || *lock(&result) = Some(body()));
        let report = simulation.run()?;
        let value = lock(&slot).take().expect("the process has ended");
        Ok((value, report))
    }
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Simulation({:?})", self.core.options)
    }
}

impl State {
    fn note(&mut self, number: u64) {
        for part in [self.now.as_nanos() as u64, number] {
            self.trace_hash = (self.trace_hash ^ part).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
        }
        self.steps += 1;
    }

    fn add_timer(&mut self, at: Duration, timer: Timer) -> (Duration, u64) {
        self.timer_number += 1;
        let key = (at.max(self.now), self.timer_number);
        self.timers.insert(key, timer);
        key
    }

    /// Occupy a processor for some time; the time at which the work is done.
    fn charge(&mut self, process: ProcessId, debt: Duration) -> Duration {
        if debt.is_zero() {
            return self.now;
        }
        self.processes[process.0].cpu_time += debt;
        let now = self.now;
        let cpu = self.cpu_free_at.iter_mut().min().expect("at least one processor");
        *cpu = (*cpu).max(now) + debt;
        *cpu
    }

    fn make_runnable(&mut self, process: ProcessId, woken: bool) {
        let this = &mut self.processes[process.0];
        this.activity = Activity::Runnable;
        this.woken = woken;
        if let Some(timer) = this.timer.take() {
            self.timers.remove(&timer);
        }
        self.runnable.push_back(process);
    }

    /// A waiting process was woken: it runs now, or when its CPU work is done.
    fn wake_process(&mut self, process: ProcessId) {
        let Activity::Waiting { key, since, not_before, .. } = self.processes[process.0].activity else {
            return;
        };
        if not_before <= self.now {
            self.make_runnable(process, true);
            return;
        }
        if let Some(timer) = self.processes[process.0].timer.take() {
            self.timers.remove(&timer);
        }
        let timer = self.add_timer(not_before, Timer::Process(process));
        let this = &mut self.processes[process.0];
        this.timer = Some(timer);
        this.woken = true;
        this.activity = Activity::Waiting { key, since, until: Some(not_before), not_before };
    }

    fn wake(&mut self, key: usize, all: bool) {
        let Some(waiters) = self.waiters.get_mut(&key) else { return };
        let woken: Vec<_> =
            if all { waiters.drain(..).collect() } else { waiters.pop_front().into_iter().collect() };
        if waiters.is_empty() {
            self.waiters.remove(&key);
        }
        for process in woken {
            self.wake_process(process);
        }
    }

    fn report(&self) -> Report {
        let process = |process: &Process| ProcessReport {
            name: process.name.clone(),
            cpu_time: process.cpu_time,
            ended_at: process.ended_at,
        };
        Report {
            virtual_time: self.now,
            trace_hash: self.trace_hash,
            steps: self.steps,
            processes: self.processes.iter().map(process).collect(),
        }
    }

    fn deadlock(&self) -> Deadlock {
        let mut waiting = String::new();
        for (number, process) in self.processes.iter().enumerate() {
            if let Activity::Waiting { key, since, .. } = process.activity {
                let with: Vec<_> = self
                    .waiters
                    .get(&key)
                    .into_iter()
                    .flatten()
                    .filter(|other| other.0 != number)
                    .map(|other| self.processes[other.0].name.as_str())
                    .collect();
                let _ =
                    writeln!(waiting, "  {} waits for {key:#x} since {since:?}, with {with:?}", process.name);
            }
        }
        Deadlock { at: self.now, waiting }
    }
}

impl Core {
    fn start(
        self: &Arc<Self>,
        name: String,
        owner: Option<IoOwner>,
        body: Box<dyn FnOnce() + Send>,
    ) -> Arc<Ending> {
        let baton = Arc::new(Baton::default());
        let ending = Arc::new(Ending::default());
        let mut state = lock(&self.state);
        let process = ProcessId(state.processes.len());
        let foreground = owner.is_some();
        state.processes.push(Process {
            name: name.clone(),
            activity: Activity::Runnable,
            woken: false,
            timer: None,
            foreground,
            cpu_time: Duration::ZERO,
            ended_at: None,
            baton: Arc::clone(&baton),
        });
        state.foreground += usize::from(foreground);
        state.runnable.push_back(process);
        drop(state);
        let (core, end) = (Arc::clone(self), Arc::clone(&ending));
        let mine = Arc::clone(&baton);
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || core.life(process, &mine, owner, body, &end))
            .expect("the operating system gives a thread");
        *lock(&baton.thread) = Some(thread.thread().clone());
        thread.thread().unpark();
        ending
    }

    /// The life of a process's thread.
    fn life(
        self: Arc<Self>,
        process: ProcessId,
        baton: &Baton,
        owner: Option<IoOwner>,
        body: Box<dyn FnOnce() + Send>,
        ending: &Ending,
    ) {
        baton.take();
        let context = Context { core: Arc::clone(&self), process, debt: Arc::new(AtomicU64::new(0)) };
        let in_runtime = sync::enter(Arc::new(context.clone()));
        CONTEXT.set(Some(context.clone()));
        // Threads of the stack itself share task 0: numbers of real threads would differ from run to run.
        let charged = owner.unwrap_or_default().enter();
        let result = catch_unwind(AssertUnwindSafe(body));
        context.settle();
        drop((charged, in_runtime));
        let mut state = lock(&self.state);
        state.processes[process.0].activity = Activity::Ended;
        state.processes[process.0].ended_at = Some(state.now);
        state.foreground -= usize::from(state.processes[process.0].foreground);
        ending.ended.store(true, Ordering::Release);
        state.wake(ending.key(), true);
        if let Err(payload) = result {
            self.end(&mut state, Outcome::Panic(payload));
        } else if state.foreground == 0 {
            self.end(&mut state, Outcome::Done);
        } else {
            drop(state);
            self.pass_on(None);
        }
    }

    fn end(&self, state: &mut State, outcome: Outcome) {
        state.outcome.get_or_insert(outcome);
        self.ended.notify_all();
    }

    fn choose(&self, state: &mut State) -> Option<ProcessId> {
        let next = match (self.options.order, state.runnable.len()) {
            (Order::Shuffled, count @ 2..) => {
                let index = state.random.usize(..count);
                state.runnable.remove(index)
            }
            _ => state.runnable.pop_front(),
        }?;
        state.note(next.0 as u64);
        Some(next)
    }

    /// Let somebody else run, or time pass. `me` returns when it may run again; an ending process passes `None`.
    fn pass_on(self: &Arc<Self>, me: Option<ProcessId>) {
        let mut state = lock(&self.state);
        loop {
            if let Some(next) = self.choose(&mut state) {
                if Some(next) == me {
                    return;
                }
                state.processes[next.0].baton.give();
                let mine = me.map(|me| Arc::clone(&state.processes[me.0].baton));
                drop(state);
                if let Some(baton) = mine {
                    baton.take();
                }
                return;
            }
            let Some(((at, number), timer)) = state.timers.pop_first() else {
                let deadlock = state.deadlock();
                self.end(&mut state, Outcome::Deadlock(deadlock));
                drop(state);
                park_for_ever(me);
                return;
            };
            state.now = state.now.max(at);
            match timer {
                Timer::Process(process) => {
                    state.processes[process.0].timer = None;
                    if let Activity::Waiting { key, .. } = state.processes[process.0].activity
                        && let Some(waiters) = state.waiters.get_mut(&key)
                    {
                        waiters.retain(|waiter| *waiter != process);
                        if waiters.is_empty() {
                            state.waiters.remove(&key);
                        }
                    }
                    let woken = state.processes[process.0].woken;
                    state.make_runnable(process, woken);
                }
                Timer::Event(event) => {
                    state.note(number | 1 << 63);
                    drop(state);
                    let process = me.unwrap_or(ProcessId(0));
                    let debt = Arc::new(AtomicU64::new(0));
                    event.fire(&Context { core: Arc::clone(self), process, debt });
                    state = lock(&self.state);
                }
            }
        }
    }
}

/// After a deadlock nobody can go on. A thread that is itself ending may leave.
fn park_for_ever(me: Option<ProcessId>) {
    while me.is_some() {
        std::thread::park();
    }
}

/// The end of a simulated thread.
#[derive(Debug, Default)]
struct Ending {
    ended: AtomicBool,
}

impl Ending {
    fn key(&self) -> usize {
        (&raw const *self).addr()
    }
}

impl Join for Ending {
    fn join(&self) {
        while !self.ended.load(Ordering::Acquire) {
            let Some(context) = Context::current() else { return };
            context.wait(self.key(), None);
        }
    }
}

thread_local! {
    static CONTEXT: RefCell<Option<Context>> = const { RefCell::new(None) };
}

/// The simulation as a process or an event handler sees it.
#[derive(Clone)]
pub struct Context {
    core: Arc<Core>,
    process: ProcessId,
    /// CPU work done and not yet paid for, in nanoseconds.
    debt: Arc<AtomicU64>,
}

impl Context {
    /// The simulation that this thread belongs to, if any.
    pub fn current() -> Option<Self> {
        CONTEXT.with_borrow(Clone::clone)
    }

    /// A number that no other simulation of this program has.
    pub fn world(&self) -> u64 {
        self.core.number
    }

    /// The seed of this world.
    pub fn seed(&self) -> u64 {
        self.core.options.seed
    }

    /// Let something happen at a time.
    pub fn schedule(&self, at: Duration, event: Arc<dyn Event>) {
        lock(&self.core.state).add_timer(at, Timer::Event(event));
    }

    /// Enter a number into the trace hash.
    pub fn note(&self, number: u64) {
        lock(&self.core.state).note(number);
    }

    /// Pay the CPU debt by letting its time pass.
    pub fn settle(&self) {
        let debt = Duration::from_nanos(self.debt.swap(0, Ordering::Relaxed));
        if debt.is_zero() {
            return;
        }
        let done = lock(&self.core.state).charge(self.process, debt);
        let key = (&raw const done).addr();
        while self.now() < done {
            self.wait(key, Some(done));
        }
    }

    /// CPU time charged to the running process so far.
    pub fn cpu_time(&self) -> Duration {
        let owed = Duration::from_nanos(self.debt.load(Ordering::Relaxed));
        lock(&self.core.state).processes[self.process.0].cpu_time + owed
    }

    /// CPU time charged to all processes so far.
    pub fn cpu_time_of_all(&self) -> Duration {
        let owed = Duration::from_nanos(self.debt.load(Ordering::Relaxed));
        lock(&self.core.state).processes.iter().map(|process| process.cpu_time).sum::<Duration>() + owed
    }

    /// Let `time` of CPU work pass.
    pub fn compute(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let debt = self.debt.fetch_add(ns, Ordering::Relaxed).saturating_add(ns);
        // Whoever can run meanwhile does so at its own time, not after all of this work.
        if debt > DEBT_LIMIT || !lock(&self.core.state).runnable.is_empty() {
            self.settle();
        }
    }
}

impl Runtime for Context {
    fn wait(&self, key: usize, deadline: Option<Duration>) -> bool {
        let debt = Duration::from_nanos(self.debt.swap(0, Ordering::Relaxed));
        let mut state = lock(&self.core.state);
        if state.outcome.is_some() {
            drop(state);
            park_for_ever(Some(self.process));
            return false;
        }
        let (since, not_before) = (state.now, state.charge(self.process, debt));
        let until = deadline.map(|deadline| deadline.max(not_before));
        state.waiters.entry(key).or_default().push_back(self.process);
        let timer = until.map(|until| state.add_timer(until, Timer::Process(self.process)));
        let this = &mut state.processes[self.process.0];
        this.activity = Activity::Waiting { key, since, until, not_before };
        this.woken = false;
        this.timer = timer;
        drop(state);
        self.core.pass_on(Some(self.process));
        lock(&self.core.state).processes[self.process.0].woken
    }

    fn wake(&self, key: usize, all: bool) {
        if !lock(&self.core.state).waiters.contains_key(&key) {
            return;
        }
        self.settle();
        lock(&self.core.state).wake(key, all);
    }

    fn now(&self) -> Duration {
        lock(&self.core.state).now + Duration::from_nanos(self.debt.load(Ordering::Relaxed))
    }

    fn work(&self, work: Work) {
        self.compute(self.core.options.costs.of(work));
    }

    fn spawn(&self, name: String, body: Box<dyn FnOnce() + Send>) -> Arc<dyn Join> {
        self.settle();
        self.core.start(name, None, body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_block::sync as stack;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn virtual_hours_pass_at_once_and_in_order() {
        let started = std::time::Instant::now();
        let simulation = Simulation::new(1);
        let order = Arc::new(Mutex::new(Vec::new()));
        for (name, hours) in [("late", 5u64), ("early", 1), ("middle", 3)] {
            let order = Arc::clone(&order);
            simulation.spawn(name, IoOwner::default(), move || {
                stack::sleep(Duration::from_secs(hours * 3600));
                lock(&order).push((name, stack::now()));
            });
        }
        let report = simulation.run().unwrap();
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        assert_eq!(*lock(&order), [("early", hours(1)), ("middle", hours(3)), ("late", hours(5))]);
        assert_eq!(report.virtual_time, hours(5));
        assert!(started.elapsed() < Duration::from_secs(5));
    }

    /// A busy world: locks, conditions, threads, sleeps and CPU work, all of it decided by the seed.
    fn busy_world(seed: u64) -> (Report, Vec<u64>) {
        let order = Order::Shuffled;
        let simulation = Simulation::with_options(WorldOptions { seed, order, ..WorldOptions::default() });
        let shared =
            Arc::new((stack::Mutex::new(Vec::new()), stack::Condvar::new(), stack::RwLock::new(0u64)));
        for number in 0..5u64 {
            let shared = Arc::clone(&shared);
            simulation.spawn(&format!("process {number}"), IoOwner::default(), move || {
                let inner = Arc::clone(&shared);
                let child = stack::spawn("child", move || {
                    for _ in 0..20 {
                        let mut list = inner.0.lock();
                        while list.len() % 5 != number as usize {
                            list = inner.1.wait(list);
                        }
                        list.push(number);
                        stack::work(Work::Copy(number * 100_000));
                        drop(list);
                        inner.1.notify_all();
                    }
                });
                for round in 0..50 {
                    *shared.2.write() += 1;
                    stack::sleep(Duration::from_micros(round * 7 % 13));
                    assert!(*shared.2.read() > 0);
                }
                child.unwrap().join();
            });
        }
        let report = simulation.run().unwrap();
        let list = shared.0.lock().clone();
        (report, list)
    }

    /// DESIGN 4.11.
    #[test]
    fn one_seed_gives_one_run() {
        let runs: Vec<_> = (0..3).map(|_| busy_world(7)).collect();
        assert_eq!(runs[0], runs[1]);
        assert_eq!(runs[0], runs[2]);
        assert_ne!(runs[0].0.trace_hash, busy_world(8).0.trace_hash, "another seed gives another order");
        assert_eq!(runs[0].1, (0..100).map(|turn| turn % 5).collect::<Vec<_>>());
    }

    #[test]
    fn deadlock_is_reported_with_names() {
        let simulation = Simulation::new(1);
        let locks = Arc::new((stack::Mutex::new(()), stack::Mutex::new(())));
        let other = Arc::clone(&locks);
        simulation.spawn("first", IoOwner::default(), move || {
            let _one = locks.0.lock();
            stack::sleep(ms(1));
            drop(locks.1.lock());
        });
        simulation.spawn("second", IoOwner::default(), move || {
            let _two = other.1.lock();
            stack::sleep(ms(1));
            drop(other.0.lock());
        });
        let deadlock = simulation.run().unwrap_err();
        assert_eq!(deadlock.at, ms(1));
        assert!(
            deadlock.to_string().contains("first waits") && deadlock.to_string().contains("second waits")
        );
    }

    #[test]
    #[should_panic(expected = "told so")]
    fn panic_of_a_process_reaches_the_test() {
        let simulation = Simulation::new(1);
        simulation.spawn("bystander", IoOwner::default(), || stack::sleep(ms(1000)));
        simulation.spawn("faulty", IoOwner::default(), || panic!("told so"));
        let _ = simulation.run();
    }

    #[test]
    fn work_takes_time_and_processors_are_shared() {
        let costs = CpuCosts { copy_ps_per_byte: 1000, ..CpuCosts::FREE };
        let run = |cpus| {
            let simulation = Simulation::with_options(WorldOptions {
                cpus,
                costs: costs.clone(),
                ..WorldOptions::default()
            });
            for name in ["a", "b"] {
                simulation.spawn(name, IoOwner::default(), || {
                    for _ in 0..100 {
                        stack::work(Work::Copy(1_000_000));
                    }
                });
            }
            simulation.run().unwrap()
        };
        assert_eq!(run(2).virtual_time, ms(100));
        assert_eq!(run(1).virtual_time, ms(200));
        assert_eq!(run(1).processes[0].cpu_time, ms(100));
    }

    #[test]
    fn timed_wait_ends_without_a_wake() {
        let body = || {
            let (lock, condition) = (stack::Mutex::new(()), stack::Condvar::new());
            let guard = lock.lock();
            drop(condition.wait_timeout(guard, ms(30)));
            stack::now()
        };
        assert_eq!(Simulation::run_one(WorldOptions::default(), body).unwrap().0, ms(30));
    }
}

//! The scheduling of processes: start, wait, wake, end, and the passing of time while all wait.
//!
//! Where it sits: under [`super::Simulation`]; it implements [`Runtime`] for the threads of the stack.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use diorite_block::IoOwner;
use diorite_block::sync::{self, Join, Runtime, Work};

use super::baton::{Baton, lock};
use super::options::{Order, WorldOptions};
use super::state::{Activity, Outcome, Process, ProcessId, State, Timer};

/// Largest CPU debt in nanoseconds.
const DEBT_LIMIT: u64 = 100_000;

/// An event at a time, such as a device's completion.
pub trait Event: Send + Sync {
    /// Handle the event. Runs on the thread with the baton, and must not wait.
    fn fire(&self, context: &Context);
}

/// The state that all processes of a simulation share.
pub(super) struct Core {
    pub(super) state: Mutex<State<Arc<dyn Event>>>,
    pub(super) ended: Condvar,
    pub(super) options: WorldOptions,
    pub(super) number: u64,
}

impl Core {
    /// Start a process. The simulation lasts until all processes with an owner have ended.
    pub(super) fn start(
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
        // Threads of the stack share task 0, because numbers of real threads differ from run to run.
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

    fn end(&self, state: &mut State<Arc<dyn Event>>, outcome: Outcome) {
        state.outcome.get_or_insert(outcome);
        self.ended.notify_all();
    }

    /// The next process to run, if any can.
    pub(super) fn choose(&self, state: &mut State<Arc<dyn Event>>) -> Option<ProcessId> {
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

    /// Let another process run, or let time pass. Returns when `me` may run again. An ending process passes `None`.
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

/// After a deadlock no process can go on. A thread that is itself ending may leave.
fn park_for_ever(me: Option<ProcessId>) {
    while me.is_some() {
        std::thread::park();
    }
}

/// The end of a simulated thread.
#[derive(Debug, Default)]
pub(super) struct Ending {
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

/// The simulation, for a process or an event handler.
#[derive(Clone)]
pub struct Context {
    core: Arc<Core>,
    process: ProcessId,
    /// CPU work whose time has not passed yet, in nanoseconds.
    debt: Arc<AtomicU64>,
}

impl Context {
    /// The simulation that this thread belongs to, if any.
    pub fn current() -> Option<Self> {
        CONTEXT.with_borrow(Clone::clone)
    }

    /// A number that is unique in this program.
    pub fn world(&self) -> u64 {
        self.core.number
    }

    /// The seed of this world.
    pub fn seed(&self) -> u64 {
        self.core.options.seed
    }

    /// Schedule an event.
    pub fn schedule(&self, at: Duration, event: Arc<dyn Event>) {
        lock(&self.core.state).add_timer(at, Timer::Event(event));
    }

    /// Enter a number into the trace hash.
    pub fn note(&self, number: u64) {
        lock(&self.core.state).note(number);
    }

    /// Let the time of the CPU debt pass.
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
        // Another process may run meanwhile, at its own time.
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
        // Other processes see the next action, so it must not happen before its time.
        if matches!(work, Work::Submit(_)) {
            self.settle();
        }
    }

    fn spawn(&self, name: String, body: Box<dyn FnOnce() + Send>) -> Arc<dyn Join> {
        self.settle();
        self.core.start(name, None, body)
    }
}

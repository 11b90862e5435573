//! Virtual time and simulated processes: the whole, unchanged stack runs in them, one thread at a time.
//!
//! Where it sits: it implements [`diorite_block::sync::Runtime`], so every lock, condition, sleep and thread of the stack
//! comes here when its thread belongs to a simulation. Simulated disks schedule their completions here.
//!
//! Each process is a thread of the operating system that runs only while it holds the baton. A process that waits (for a lock, a device, a
//! time) passes the baton to a process that can run. If there is none, virtual time jumps to the next event. So this module alone
//! decides the order, and one seed gives one run (ARCHITECTURE invariant 11).
//!
//! CPU work ([`diorite_block::sync::work`]) adds to a debt of the process. The time of the debt passes when the process next waits, wakes
//! another process or submits I/O, or when the debt exceeds `DEBT_LIMIT`.
//!
//! Interface: the simulation ends when all processes started by [`Simulation::spawn`] have ended. Remaining threads of the stack are then
//! parked for ever. After a deadlock or a panic, all threads are.
//!
//! Locking: the state has a plain lock, held only to choose the next process, and never while a process or an event handler runs.

mod baton;

mod options;
mod report;
mod runtime;
mod state;
#[cfg(test)]
mod tests;

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use diorite_block::IoOwner;

pub use options::{Order, WorldOptions};
pub use report::{Deadlock, ProcessReport, Report};
pub use runtime::{Context, Event};

use baton::lock;
use runtime::Core;
use state::{Outcome, State};

/// A simulated world that has not run yet.
pub struct Simulation {
    core: Arc<Core>,
}

impl Simulation {
    /// A world with this seed and default options.
    pub fn new(seed: u64) -> Self {
        Self::with_options(WorldOptions { seed, ..WorldOptions::default() })
    }

    /// A world.
    pub fn with_options(options: WorldOptions) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let state = State::new(options.cpus, options.seed);
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

    /// Run one process in a world of its own. Returns its result.
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

//! The programs that use a mount: the process of each thread, and the totals of each process.
//!
//! The kernel names the thread that makes a request. Its process and command are read from `/proc`, and again after a while, for a program
//! may execute another one, and numbers are used again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use diorite_block::sync::{Mutex, Rank, RwLock};

use super::{Class, Client, TaskStatus};

/// Processes with totals of their own.
pub(super) const PROGRAMS_MAX: usize = 1024;
/// Processes, idle for longest, that are counted as one when there are too many.
const FOLDED: usize = PROGRAMS_MAX / 4;
/// The time for which the process of a thread is not read again.
const BELIEVED: Duration = Duration::from_secs(1);
/// Threads that are remembered.
const THREADS_MAX: usize = 4096;

/// A process.
#[derive(Debug)]
pub(crate) struct Program {
    pid: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    status: TaskStatus,
    last_use: Instant,
}

impl Program {
    fn new(pid: u32) -> Self {
        let status = TaskStatus { pid, ..TaskStatus::default() };
        let state = State { status, last_use: Instant::now() };
        Self { pid, state: Mutex::ranked(Rank::ProgramCommand, state) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn record(&self, class: Class, bytes: u64, took: Duration) {
        self.state.lock().status.kinds_mut()[class as usize].record(bytes, took);
    }

    fn status(&self) -> TaskStatus {
        self.state.lock().status.clone()
    }
}

#[derive(Debug)]
struct Thread {
    program: Arc<Program>,
    read_at: Instant,
}

/// The host of the processes that requests name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Processes {
    /// `/proc` has the process of a thread.
    OfThisHost,
    /// Unknown.
    OfOthers,
}

#[derive(Debug)]
pub(super) struct Programs {
    processes: Processes,
    threads: RwLock<HashMap<u32, Thread>>,
    table: Mutex<Table>,
    unknown: Arc<Program>,
}

#[derive(Debug, Default)]
struct Table {
    programs: HashMap<u32, Arc<Program>>,
    /// Totals of the programs that were removed.
    ended: TaskStatus,
}

impl Programs {
    pub(super) fn new(processes: Processes) -> Self {
        Self {
            processes,
            threads: RwLock::ranked(Rank::ProgramThreads, HashMap::new()),
            table: Mutex::ranked(Rank::Programs, Table::default()),
            unknown: Arc::new(Program::new(0)),
        }
    }

    /// The program of a thread; 0: it is not known.
    pub(super) fn of_thread(&self, thread: u32) -> Arc<Program> {
        if thread == 0 {
            return Arc::clone(&self.unknown);
        }
        let now = Instant::now();
        if let Some(known) = self.threads.read().get(&thread)
            && now.duration_since(known.read_at) < BELIEVED
        {
            return Arc::clone(&known.program);
        }
        let known = if self.processes == Processes::OfThisHost { read_process(thread) } else { None };
        let (pid, command) = known.unwrap_or_else(|| (thread, String::new()));
        let program = self.of_process(pid, &command, now);
        let mut threads = self.threads.write();
        if threads.len() >= THREADS_MAX {
            threads.retain(|_, thread| now.duration_since(thread.read_at) < BELIEVED);
        }
        if threads.len() < THREADS_MAX {
            threads.insert(thread, Thread { program: Arc::clone(&program), read_at: now });
        }
        program
    }

    /// The program that stands for a client.
    pub(super) fn of_client(&self, client: &Client) -> Arc<Program> {
        self.of_process(client.number, &client.name, Instant::now())
    }

    fn of_process(&self, pid: u32, command: &str, now: Instant) -> Arc<Program> {
        let mut table = self.table.lock();
        if table.programs.len() >= PROGRAMS_MAX && !table.programs.contains_key(&pid) {
            self.fold(&mut table);
        }
        let new = || Arc::new(Program::new(pid));
        let program = Arc::clone(table.programs.entry(pid).or_insert_with(new));
        drop(table);
        let mut state = program.state.lock();
        state.last_use = now;
        if !command.is_empty() {
            command.clone_into(&mut state.status.command);
        }
        drop(state);
        program
    }

    /// Count the processes that were idle for longest together.
    fn fold(&self, table: &mut Table) {
        let programs = table.programs.values();
        let mut by_use: Vec<_> =
            programs.map(|program| (program.state.lock().last_use, program.pid)).collect();
        by_use.sort_unstable();
        let idle: HashSet<u32> = by_use.into_iter().take(FOLDED).map(|(_, pid)| pid).collect();
        self.threads.write().retain(|_, thread| !idle.contains(&thread.program.pid));
        for program in idle.iter().filter_map(|pid| table.programs.remove(pid)) {
            table.ended.add(&program.status());
        }
    }

    /// The totals of each.
    pub(super) fn snapshot(&self) -> Vec<TaskStatus> {
        let table = self.table.lock();
        let mut rest = self.unknown.status();
        rest.add(&table.ended);
        let mut all: Vec<TaskStatus> = table.programs.values().map(|program| program.status()).collect();
        drop(table);
        if rest != TaskStatus::default() {
            all.push(rest);
        }
        all.sort_by_key(|task| task.pid);
        all
    }
}

/// Process and command of a thread, if it is alive.
#[allow(clippy::disallowed_methods, reason = "a file of the kernel")]
fn read_process(thread: u32) -> Option<(u32, String)> {
    let status = std::fs::read(format!("/proc/{thread}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let process: u32 = field("Tgid:")?.parse().ok()?;
    if process == thread {
        return Some((process, field("Name:")?.to_owned()));
    }
    // A thread may have a name of its own.
    let command = std::fs::read(format!("/proc/{process}/comm")).ok()?;
    Some((process, String::from_utf8_lossy(&command).trim().to_owned()))
}

//! Requests in flight, and totals of every program that uses a mount.
//!
//! A request is charged to the process that made it, all threads of a process together. Writeback of the kernel's cache is charged to the process
//! that opened the file.
//!
//! Locking: each table has a lock, held for a look or a change of the table alone.

mod programs;
mod totals;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use diorite_block::sync::{Mutex, Rank};
use serde::{Deserialize, Serialize};

use programs::Programs;
pub(crate) use programs::{Processes, Program};
pub use totals::{Latencies, Totals};

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Read,
    Write,
    Sync,
    /// Names and attributes.
    Metadata,
}

/// The requests of one process since the volume was mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStatus {
    /// Process, or number of a client's connection; 0: unknown processes, and processes that ended long ago.
    pub pid: u32,
    /// Its command, or the client's address.
    pub command: String,
    /// Reads.
    pub read: Totals,
    /// Writes.
    pub write: Totals,
    /// `fsync` and its like.
    pub sync: Totals,
    /// Names and attributes.
    pub metadata: Totals,
}

impl TaskStatus {
    /// By [`Class`].
    fn kinds_mut(&mut self) -> [&mut Totals; 4] {
        [&mut self.read, &mut self.write, &mut self.sync, &mut self.metadata]
    }

    fn kinds(&self) -> [&Totals; 4] {
        [&self.read, &self.write, &self.sync, &self.metadata]
    }

    /// Add the totals of another process.
    pub fn add(&mut self, other: &Self) {
        self.kinds_mut().into_iter().zip(other.kinds()).for_each(|(mine, theirs)| mine.add(theirs));
    }

    /// The same process with the difference of its totals and earlier ones.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = self.clone();
        difference
            .kinds_mut()
            .into_iter()
            .zip(earlier.kinds())
            .for_each(|(mine, theirs)| *mine = mine.since(theirs));
        difference
    }

    /// The totals of all kinds together.
    pub fn all(&self) -> Totals {
        let mut all = Totals::default();
        self.kinds().into_iter().for_each(|kind| all.add(kind));
        all
    }
}

/// A request in flight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    /// The operation.
    pub operation: String,
    /// The process that is charged; 0: not known.
    pub pid: u32,
    /// Microseconds since it was taken.
    pub age_us: u64,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Accounting {
    programs: Programs,
    next: AtomicU64,
    pending: Mutex<HashMap<u64, Begun>>,
}

/// A client of a server over a network.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// Takes the place of a process's number.
    pub(crate) number: u32,
    /// Takes the place of its command.
    pub(crate) name: String,
}

/// A request that was taken; [`Accounting::finish`] takes it back.
#[derive(Clone, Debug)]
pub(crate) struct Begun {
    number: u64,
    operation: &'static str,
    program: Arc<Program>,
    at: Instant,
}

impl fmt::Display for Begun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of process {}, {:?}", self.operation, self.pid(), self.age())
    }
}

impl Begun {
    /// The process that is charged; 0 if it is not known.
    pub(crate) fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// When it was taken.
    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    fn age(&self) -> Duration {
        self.at.elapsed()
    }
}

impl Accounting {
    pub(crate) fn new(processes: Processes) -> Self {
        Self {
            programs: Programs::new(processes),
            next: AtomicU64::new(0),
            pending: Mutex::ranked(Rank::PendingRequests, HashMap::new()),
        }
    }

    /// A request of a thread (0: not known) was taken.
    pub(crate) fn begin(&self, operation: &'static str, thread: u32) -> Begun {
        self.begun(operation, self.programs.of_thread(thread))
    }

    fn begun(&self, operation: &'static str, program: Arc<Program>) -> Begun {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let begun = Begun { number, operation, program, at: Instant::now() };
        self.pending.lock().insert(number, begun.clone());
        begun
    }

    /// A request of a client that is no process of this host was taken.
    pub(crate) fn begin_of(&self, operation: &'static str, client: &Client) -> Begun {
        self.begun(operation, self.programs.of_client(client))
    }

    /// The request was answered; `bytes` of data were moved for it.
    pub(crate) fn finish(&self, begun: &Begun, class: Class, bytes: u64) {
        self.pending.lock().remove(&begun.number);
        begun.program.record(class, bytes, begun.age());
    }

    /// The requests in flight, the oldest first.
    pub(crate) fn in_flight(&self) -> Vec<InFlight> {
        let of = |begun: &Begun| InFlight {
            operation: begun.operation.to_owned(),
            pid: begun.pid(),
            age_us: begun.age().as_micros() as u64,
        };
        let mut all: Vec<InFlight> = self.pending.lock().values().map(of).collect();
        all.sort_by_key(|request| std::cmp::Reverse(request.age_us));
        all
    }

    /// The totals of each process.
    pub(crate) fn tasks(&self) -> Vec<TaskStatus> {
        self.programs.snapshot()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request is in flight until it is answered, and its process has it afterwards: this one, by whichever thread.
    #[test]
    fn requests_are_charged_to_the_process_of_their_thread() {
        let accounting = Accounting::new(Processes::OfThisHost);
        let process = std::process::id();
        let other_thread = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get() as u32);
        let alive = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let begun = accounting.begin("read", alive);
        assert_eq!(accounting.in_flight().first().map(|request| request.pid), Some(process));
        accounting.finish(&begun, Class::Read, 4096);
        accounting.finish(&accounting.begin("write", process), Class::Write, 10);
        accounting.finish(&accounting.begin("write", 0), Class::Write, 5);
        // A thread that has ended is not known.
        let gone = other_thread.join().expect("it ends");
        accounting.finish(&accounting.begin("sync", gone), Class::Sync, 0);
        assert!(accounting.in_flight().is_empty());
        let tasks = accounting.tasks();
        let of = |pid| tasks.iter().find(|task| task.pid == pid).expect("it is known");
        assert_eq!((of(process).read.operations, of(process).read.bytes), (1, 4096));
        assert_eq!(of(process).write.bytes, 10);
        assert!(!of(process).command.is_empty());
        assert_eq!(of(0).write.bytes, 5);
    }

    /// However many processes come and go, those kept are bounded, and nothing that was counted is lost.
    #[test]
    fn processes_that_ended_are_counted_together() {
        let accounting = Accounting::new(Processes::OfThisHost);
        let processes = 3 * programs::PROGRAMS_MAX as u32;
        // Numbers that no process has.
        for pid in 0..processes {
            accounting.finish(&accounting.begin("write", u32::MAX - pid), Class::Write, 1);
        }
        let tasks = accounting.tasks();
        assert!(tasks.len() <= programs::PROGRAMS_MAX + 1);
        assert_eq!(tasks.iter().map(|task| task.write.bytes).sum::<u64>(), u64::from(processes));
    }
}

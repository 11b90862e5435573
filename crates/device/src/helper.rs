//! A second thread for a queue whose transfers are made by calls.
//!
//! Where it sits: beside a queue on a ring, where the host's file has no asynchronous I/O and a call is nothing but a copy ([`crate::calls`]).
//! The queue's own thread makes them one after the other, with one CPU. Where another one is idle, a deep queue does more if a thread of its own makes
//! a part of them: every other read, and all writes, since writers of a file exclude one another in the kernel and would wait for each other.
//! Where none is idle it does less. So both are measured ([`crate::choice`]).
//!
//! States of a transfer: collected for a batch -> given -> back, with a result. The queue keeps its memory in place until it is back; dropping a
//! [`Helper`] waits for all that it was given.
//!
//! In a forked child the thread does not exist, and nothing of it is touched.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use diorite_block::{BlockDevice, IoError, IoErrorKind, Op, Sector};

use crate::choice::Choice;
use crate::fork::forks;
use crate::route::{PartOf, Target};

/// Queues for fewer transfers than this have no second thread.
const DEPTH_MIN: u32 = 8;
/// It takes CPU time for the exchange, and must save a tenth.
const LIMIT: u32 = 900;
/// Transfers whose time says so: until the thread runs, and on another CPU, hundreds are made.
const MEASURED: u32 = 4096;
/// A batch is given when it has a quarter of the queue's transfers, at most so many, or so many bytes.
const PART: u32 = 4;
const BATCH_MAX: u32 = 16;
const BATCH_BYTES: u64 = 64 << 10;
/// Lists that are kept for later batches.
const SPARE_MAX: usize = 16;
/// To sleep and to be woken takes longer than most waits: threads stay awake so long, and let the other one have the memory between looks.
const AWAKE: Duration = Duration::from_micros(50);
const LOOKS_APART: u32 = 10;

/// A transfer, and how it went.
#[derive(Debug)]
pub(crate) struct Job {
    /// The queue's number for it.
    pub(crate) index: u32,
    pub(crate) op: Op,
    pub(crate) parts: Vec<PartOf>,
    pub(crate) result: Result<(), IoError>,
}

impl Job {
    pub(crate) fn new(index: u32, op: Op, parts: Vec<PartOf>) -> Self {
        Self { index, op, parts, result: Ok(()) }
    }

    /// Make the transfer, by calls of this thread.
    pub(crate) fn run(&mut self, targets: &[Target]) {
        self.result = make(targets, self.op, &mut self.parts);
    }
}

/// Count the parts of a transfer, and make them.
pub(crate) fn make(targets: &[Target], op: Op, parts: &mut [PartOf]) -> Result<(), IoError> {
    count(targets, op, parts);
    run(targets, op, parts)
}

/// Count the parts of a transfer that is about to be made.
fn count(targets: &[Target], op: Op, parts: &[PartOf]) {
    for PartOf { transfer, target, .. } in parts {
        targets[*target].file_device().counters().count(op, transfer.len());
    }
}

/// Make the parts of a transfer by calls of this thread. The first error counts.
fn run(targets: &[Target], op: Op, parts: &mut [PartOf]) -> Result<(), IoError> {
    let mut result = Ok(());
    for PartOf { transfer, target, start } in parts {
        let device = targets[*target].file_device();
        let ended = transfer.run_by_calls(device).map_err(|kind| {
            let (sector, len) = (Sector::containing(*start), transfer.len());
            IoError { device: device.name(), op, sector, len, kind }
        });
        result = result.and(ended);
    }
    result
}

/// Transfers that are given, and come back, together.
type Batch = Vec<Job>;

#[derive(Debug)]
struct Thread {
    given: Sender<Batch>,
    back: Receiver<Batch>,
    handle: JoinHandle<()>,
    /// Of the process that it is in.
    fork: u64,
}

impl Thread {
    fn start(targets: Vec<Target>) -> Option<Self> {
        let ((given, jobs), (ended, back)) = (channel(), channel());
        let work = move || work(&targets, &jobs, &ended);
        let handle = std::thread::Builder::new().name("diorite-queue".into()).spawn(work).ok()?;
        Some(Self { given, back, handle, fork: forks() })
    }
}

/// Wait for a batch.
fn receive(batches: &Receiver<Batch>) -> Result<Batch, RecvError> {
    let mut began = None;
    loop {
        match batches.try_recv() {
            Ok(batch) => return Ok(batch),
            Err(TryRecvError::Disconnected) => return Err(RecvError),
            Err(TryRecvError::Empty) if began.get_or_insert_with(Instant::now).elapsed() < AWAKE => {
                (0..LOOKS_APART).for_each(|_| std::hint::spin_loop());
            }
            Err(TryRecvError::Empty) => return batches.recv(),
        }
    }
}

/// Make transfers until no more can come.
fn work(targets: &[Target], jobs: &Receiver<Batch>, ended: &Sender<Batch>) {
    while let Ok(mut batch) = receive(jobs) {
        // Brings the whole list to this processor at once: later, each would be waited for by itself.
        for Job { op, parts, .. } in &batch {
            count(targets, *op, parts);
        }
        for job in &mut batch {
            run_guarded(targets, job);
        }
        if ended.send(batch).is_err() {
            return;
        }
    }
}

/// A transfer that panics has failed; the others go on.
fn run_guarded(targets: &[Target], job: &mut Job) {
    let run = || run(targets, job.op, &mut job.parts);
    job.result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        let (device, op) = (targets[0].file_device().name(), job.op);
        Err(IoError { device, op, sector: Sector(0), len: 0, kind: IoErrorKind::Gone })
    });
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Helper {
    /// Alone, or with the thread.
    choice: Choice,
    /// Whether there may be one.
    is_on: bool,
    thread: Option<Thread>,
    batch_len: usize,
    /// What is collected for the next one.
    batch: Batch,
    batch_bytes: u64,
    /// Empty, for later ones.
    spare: Vec<Batch>,
    /// Transfers that the thread has.
    given: usize,
    /// Whether the last read was made by the queue's own thread.
    was_own: bool,
}

impl Helper {
    /// Of a queue for so many transfers.
    pub(crate) fn new(depth: u32) -> Self {
        Self {
            choice: Choice::new(LIMIT, MEASURED),
            is_on: depth >= DEPTH_MIN,
            thread: None,
            batch_len: (depth / PART).clamp(1, BATCH_MAX) as usize,
            batch: Vec::new(),
            batch_bytes: 0,
            spare: Vec::new(),
            given: 0,
            was_own: false,
        }
    }

    /// Of a queue that never has a second thread.
    pub(crate) fn never() -> Self {
        Self::new(0)
    }

    /// Whether the next transfer is for the thread.
    pub(crate) fn takes_next(&mut self, op: Op, targets: &[Target]) -> bool {
        if !self.is_on {
            return false;
        }
        self.choice.note(Instant::now);
        self.choice.count(1);
        if !self.choice.is_second() || !self.has_thread(targets) {
            return false;
        }
        self.was_own = op == Op::Read && !self.was_own;
        !self.was_own
    }

    /// Whether there is a thread; it is started if there is a CPU for it.
    fn has_thread(&mut self, targets: &[Target]) -> bool {
        if self.thread.is_none() {
            let has_cpu = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
            self.thread = if has_cpu { Thread::start(targets.to_vec()) } else { None };
            self.is_on = self.thread.is_some();
        }
        self.is_on
    }

    /// Collect a transfer that [`Helper::takes_next`] was true of.
    pub(crate) fn give(&mut self, job: Job) {
        self.batch_bytes += job.parts.iter().map(|part| part.transfer.len()).sum::<u64>();
        self.batch.push(job);
        if self.batch.len() >= self.batch_len || self.batch_bytes >= BATCH_BYTES {
            self.send();
        }
    }

    /// Give what was collected to the thread.
    pub(crate) fn send(&mut self) {
        if let (Some(thread), false) = (&self.thread, self.batch.is_empty()) {
            self.batch_bytes = 0;
            self.given += self.batch.len();
            let batch = mem::replace(&mut self.batch, self.spare.pop().unwrap_or_default());
            let sent = thread.given.send(batch);
            assert!(sent.is_ok(), "the thread ends after this");
        }
    }

    /// The queue waits for what it has submitted. What was collected is given to the thread if that is at work; the rest, which it gets, the
    /// queue makes itself.
    pub(crate) fn take_collected(&mut self) -> Batch {
        if self.given > 0 {
            self.send();
        }
        self.batch_bytes = 0;
        mem::replace(&mut self.batch, self.spare.pop().unwrap_or_default())
    }

    /// What has ended; waits for something if there is nothing yet.
    pub(crate) fn take_back(&mut self, has_to_wait: bool) -> Option<Batch> {
        let thread = self.thread.as_ref().filter(|_| self.given > 0)?;
        let jobs = if has_to_wait {
            receive(&thread.back).expect("the thread ends after this")
        } else {
            thread.back.try_recv().ok()?
        };
        self.given -= jobs.len();
        Some(jobs)
    }

    /// The list of a batch that was taken is not needed any more.
    pub(crate) fn keep(&mut self, list: Batch) {
        if list.capacity() > 0 && self.spare.len() < SPARE_MAX {
            self.spare.push(list);
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let Some(Thread { given, back, handle, fork }) = self.thread.take() else { return };
        if fork != forks() {
            // A lock of the channels may be held for ever here.
            mem::forget((given, back, handle));
            return;
        }
        drop(given);
        let _ = handle.join();
    }
}

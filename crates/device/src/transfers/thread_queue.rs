//! A queue whose transfers run in the pool of threads.
//!
//! Where it sits: below [`diorite_block::IoQueue`] and [`diorite_block::SharedQueue`], for devices without a ring.
//!
//! Invariants:
//! 1. A transfer and its memory belong to the thread that runs it until they are in the list of completions.
//! 2. Dropping a queue waits for everything in flight.
//! 3. A forked child has none of the threads. The parent's transfers fail in the child with `ECANCELED`.
//!
//! Locking: a plain leaf lock around the list, held for a change of it; the simulation never comes here.
//!
//! Safety policy: a transfer in flight is a box that the queue keeps as a pointer. Only the thread that runs it may use it (invariant 1). The
//! queue takes it back after the completion, or if that thread does not exist.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use diorite_block::{
    Bio, BioFlags, BlockDevice, Completed, IoError, IoErrorKind, IoQueue, Notify, Op, QueueWait, QueuedIo,
    Sector, SharedQueue, WaitOnQueue, Watch, sync,
};

use super::workers;
use crate::fork::forks;

/// See the module's head.
#[derive(Debug)]
pub struct ThreadQueue {
    device: Arc<dyn BlockDevice>,
    depth: u32,
    /// The number of the next transfer.
    next: u64,
    /// Transfers submitted and not collected, by number.
    in_flight: HashMap<u64, InFlight>,
    ended: Arc<Ended>,
    /// The process that uses it, by its number of forks.
    fork: u64,
}

/// A transfer in its box.
#[derive(Clone, Copy, Debug)]
struct InFlight(*mut QueuedIo);

// SAFETY: a `QueuedIo` may be sent to another thread, and so may be the right to use it.
unsafe impl Send for InFlight {}

/// The number and result of a transfer.
type Outcome = (u64, Result<(), IoError>);

/// Completions that are not collected.
#[derive(Default)]
struct Ended {
    list: Mutex<Vec<Outcome>>,
    came: Condvar,
    notify: OnceLock<Notify>,
}

diorite_block::short_debug!(Ended, list);

impl Ended {
    fn lock(&self) -> MutexGuard<'_, Vec<Outcome>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, result: Outcome) {
        self.lock().push(result);
        self.came.notify_all();
        if let Some(notify) = self.notify.get() {
            notify();
        }
    }

    /// Wait for this number of completions.
    fn wait_for(&self, count: usize) -> MutexGuard<'_, Vec<Outcome>> {
        let mut list = self.lock();
        while list.len() < count {
            list = self.came.wait(list).unwrap_or_else(PoisonError::into_inner);
        }
        list
    }
}

impl WaitOnQueue for Ended {
    fn wait(&self, _unissued: u32, deadline: Option<Duration>) {
        let Some(at) = deadline else { return drop(self.wait_for(1)) };
        let list = self.lock();
        if list.is_empty() {
            let timeout = at.saturating_sub(sync::now());
            drop(self.came.wait_timeout(list, timeout).unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// Run a transfer to its end in this thread.
fn run(device: &dyn BlockDevice, io: &mut QueuedIo) -> Result<(), IoError> {
    if io.op == Op::Flush || (io.op == Op::Write && io.flags.contains(BioFlags::PREFLUSH)) {
        device.execute(&mut [Bio::flush()])?;
    }
    let keep = if io.flags.contains(BioFlags::FUA) { BioFlags::SYNC | BioFlags::FUA } else { BioFlags::SYNC };
    match io.op {
        Op::Flush => return Ok(()),
        Op::Read | Op::Write => {}
        Op::Discard | Op::WriteZeroes => {
            let (device, op, sector, kind) = (device.name(), io.op, Sector(0), IoErrorKind::Unsupported);
            return Err(IoError { device, op, sector, len: 0, kind });
        }
    }
    io.check(device)?;
    io.for_each_bio(|bio| {
        bio.flags = keep;
        device.execute(std::slice::from_mut(bio))
    })
}

impl ThreadQueue {
    /// A queue on `device`.
    pub fn open(device: Arc<dyn BlockDevice>, depth: u32) -> Self {
        let (in_flight, ended) = (HashMap::new(), Arc::default());
        Self { device, depth: depth.max(1), next: 0, in_flight, ended, fork: forks() }
    }

    /// Invariant 3. A lock of the parent may never be released in the child.
    fn leave_parent(&mut self) {
        if self.fork == forks() {
            return;
        }
        self.fork = forks();
        let ended = Ended::default();
        if let Some(notify) = self.ended.notify.get() {
            let _ = ended.notify.set(Arc::clone(notify));
        }
        self.ended = Arc::new(ended);
        for (number, InFlight(io)) in &self.in_flight {
            // SAFETY: the thread that used it does not exist in this process.
            let error = IoError::canceled(self.device.name(), unsafe { &**io });
            self.ended.add((*number, Err(error)));
        }
    }

    /// Take the completions.
    fn take_back(&mut self, ended: Vec<Outcome>, done: &mut Vec<Completed>) -> usize {
        let count = ended.len();
        for (number, result) in ended {
            let InFlight(io) = self.in_flight.remove(&number).expect("it ends once");
            // SAFETY: made from a box by `submit`, and its thread is done with it.
            let io = unsafe { *Box::from_raw(io) };
            done.push(Completed { io, result });
        }
        count
    }
}

impl IoQueue for ThreadQueue {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn in_flight(&self) -> u32 {
        self.in_flight.len() as u32
    }

    fn submit(&mut self, io: QueuedIo) -> Result<(), QueuedIo> {
        self.leave_parent();
        if self.in_flight() >= self.depth {
            return Err(io);
        }
        let (number, in_flight) = (self.next, InFlight(Box::into_raw(Box::new(io))));
        self.next += 1;
        self.in_flight.insert(number, in_flight);
        let (device, ended) = (Arc::clone(&self.device), Arc::clone(&self.ended));
        workers::start(Box::new(move || {
            // Capture all of it, which may be sent.
            let InFlight(io) = { in_flight };
            // SAFETY: this job alone uses it until it is in the list of completions.
            let io = unsafe { &mut *io };
            let result = catch_unwind(AssertUnwindSafe(|| run(&*device, io))).unwrap_or_else(|_| {
                let (device, op) = (device.name(), io.op);
                Err(IoError { device, op, sector: Sector(0), len: 0, kind: IoErrorKind::Gone })
            });
            // The queue may drop the device as soon as the last transfer is in the list.
            drop(device);
            ended.add((number, result));
        }));
        Ok(())
    }

    fn issue(&mut self) -> Result<(), IoError> {
        Ok(())
    }

    fn reap(&mut self, wait_for: u32, done: &mut Vec<Completed>) -> Result<usize, IoError> {
        self.leave_parent();
        let ended = std::mem::take(&mut *self.ended.wait_for(wait_for.min(self.in_flight()) as usize));
        Ok(self.take_back(ended, done))
    }

    fn watch(&mut self, notify: Notify) -> Option<Watch> {
        self.ended.notify.set(notify).ok()?;
        Some(Watch::Called)
    }
}

impl SharedQueue for ThreadQueue {
    fn collect(&mut self, done: &mut Vec<Completed>) {
        self.leave_parent();
        let ended = std::mem::take(&mut *self.ended.lock());
        self.take_back(ended, done);
    }

    fn begin_wait(&mut self) -> QueueWait {
        self.leave_parent();
        let ended: Arc<dyn WaitOnQueue> = Arc::<Ended>::clone(&self.ended);
        QueueWait::new(ended, 0)
    }
}

impl Drop for ThreadQueue {
    fn drop(&mut self) {
        self.leave_parent();
        let ended = std::mem::take(&mut *self.ended.wait_for(self.in_flight.len()));
        self.take_back(ended, &mut Vec::new());
    }
}

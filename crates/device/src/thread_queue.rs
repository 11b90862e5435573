//! Many transfers in flight where there is no ring: each runs in the pool of threads.
//!
//! Where it sits: below [`diorite_block::IoQueue`] and [`diorite_block::SharedQueue`] for the thread back end, and for devices made
//! of such.
//!
//! Invariants:
//! 1. A transfer and its memory belong to the thread that runs it until they come back in the list of what has ended.
//! 2. Dropping a queue waits for everything in flight.
//!
//! Locking: a plain leaf lock around the list, held for a change of it; the simulation never comes here.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use diorite_block::{
    Bio, BioFlags, BlockDevice, Completed, IoError, IoErrorKind, IoQueue, Notify, Op, Piece, QueueWait,
    QueuedIo, QueuedMemory, Sector, SharedQueue, WaitOnQueue, Watch, sync,
};

use crate::workers;

/// A queue on `device`.
pub(crate) fn open(device: Arc<dyn BlockDevice>, depth: u32) -> ThreadQueue {
    ThreadQueue { device, depth: depth.max(1), in_flight: 0, ended: Arc::default() }
}

#[derive(Debug)]
pub(crate) struct ThreadQueue {
    device: Arc<dyn BlockDevice>,
    depth: u32,
    in_flight: u32,
    ended: Arc<Ended>,
}

/// What has ended and was not collected.
#[derive(Default)]
struct Ended {
    list: Mutex<Vec<Completed>>,
    came: Condvar,
    notify: OnceLock<Notify>,
}

impl fmt::Debug for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ended").field("list", &self.list).finish_non_exhaustive()
    }
}

impl Ended {
    fn lock(&self) -> MutexGuard<'_, Vec<Completed>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, completed: Completed) {
        self.lock().push(completed);
        self.came.notify_all();
        if let Some(notify) = self.notify.get() {
            notify();
        }
    }

    /// Wait until so many have ended.
    fn wait_for(&self, count: usize) -> MutexGuard<'_, Vec<Completed>> {
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
    let error = |sector, len, kind| Err(IoError { device: device.name(), op: io.op, sector, len, kind });
    if io.op == Op::Flush || (io.op == Op::Write && io.flags.contains(BioFlags::PREFLUSH)) {
        device.execute(&mut [Bio::flush()])?;
    }
    let keep = if io.flags.contains(BioFlags::FUA) { BioFlags::SYNC | BioFlags::FUA } else { BioFlags::SYNC };
    match io.op {
        Op::Flush => return Ok(()),
        Op::Read | Op::Write => {}
        Op::Discard | Op::WriteZeroes => return error(Sector(0), 0, IoErrorKind::Unsupported),
    }
    if let QueuedMemory::Owned(memory) = &io.memory {
        let len = memory.as_slice().len();
        let outside = |piece: &&Piece| piece.memory.start > piece.memory.end || piece.memory.end > len;
        if let Some(piece) = io.pieces.iter().find(outside) {
            let kind = IoErrorKind::Device(std::io::Error::from_raw_os_error(libc::EFAULT));
            return error(piece.sector, piece.memory.len() as u64, kind);
        }
    }
    io.for_each_bio(|bio| {
        bio.flags = keep;
        device.execute(std::slice::from_mut(bio))
    })
}

impl IoQueue for ThreadQueue {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn in_flight(&self) -> u32 {
        self.in_flight
    }

    fn submit(&mut self, mut io: QueuedIo) -> Result<(), QueuedIo> {
        if self.in_flight >= self.depth {
            return Err(io);
        }
        self.in_flight += 1;
        let (device, ended) = (Arc::clone(&self.device), Arc::clone(&self.ended));
        workers::start(Box::new(move || {
            let result = catch_unwind(AssertUnwindSafe(|| run(&*device, &mut io))).unwrap_or_else(|_| {
                let (device, op) = (device.name(), io.op);
                Err(IoError { device, op, sector: Sector(0), len: 0, kind: IoErrorKind::Gone })
            });
            // The queue may let go of the device as soon as the last transfer is in the list.
            drop(device);
            ended.add(Completed { io, result });
        }));
        Ok(())
    }

    fn issue(&mut self) -> Result<(), IoError> {
        Ok(())
    }

    fn reap(&mut self, wait_for: u32, done: &mut Vec<Completed>) -> Result<usize, IoError> {
        let count = {
            let mut list = self.ended.wait_for(wait_for.min(self.in_flight) as usize);
            let count = list.len();
            done.append(&mut list);
            count
        };
        self.in_flight -= count as u32;
        Ok(count)
    }

    fn watch(&mut self, notify: Notify) -> Option<Watch> {
        self.ended.notify.set(notify).ok()?;
        Some(Watch::Called)
    }
}

impl SharedQueue for ThreadQueue {
    fn collect(&mut self, done: &mut Vec<Completed>) {
        let mut list = self.ended.lock();
        self.in_flight -= list.len() as u32;
        done.append(&mut list);
    }

    fn begin_wait(&mut self) -> QueueWait {
        let ended: Arc<dyn WaitOnQueue> = Arc::<Ended>::clone(&self.ended);
        QueueWait::new(ended, 0)
    }
}

impl Drop for ThreadQueue {
    fn drop(&mut self) {
        drop(self.ended.wait_for(self.in_flight as usize));
    }
}

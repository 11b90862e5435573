//! A queue that executes its transfers together when they are reaped.
//!
//! Where it sits: for writeback and other background work that needs little processor time. A batch is one
//! [`BlockDevice::execute`]: on a device with rings one system call and one wake-up for all of its transfers. [`BlockDevice::open_queue`]
//! gives a queue that keeps a device busy.
//!
//! In a forked child the queue starts empty: the parent's transfers fail here with `ECANCELED`.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use crate::{Bio, BioMemory, BlockDevice, Completed, IoError, IoQueue, Op, Process, QueuedIo, QueuedMemory};

/// See the module's head.
pub struct BatchQueue {
    device: Arc<dyn BlockDevice>,
    depth: u32,
    waiting: Vec<QueuedIo>,
    /// Of a parent, and canceled here: the first so many of `waiting`.
    canceled: usize,
    process: Process,
}

crate::short_debug!(BatchQueue, depth);

impl BatchQueue {
    /// A queue on `device`, for batches of at most `depth` transfers.
    pub fn new(device: Arc<dyn BlockDevice>, depth: u32) -> Self {
        Self { device, depth: depth.max(1), waiting: Vec::new(), canceled: 0, process: Process::current() }
    }

    /// Execute what one bio can move, all of it at once; whether that ended well.
    fn run_together(&mut self) -> bool {
        let mut bios: Vec<_> = self.waiting.iter_mut().filter_map(only_bio).collect();
        bios.is_empty() || self.device.execute(&mut bios).is_ok()
    }

    /// Execute a transfer by itself.
    fn run_alone(&self, io: &mut QueuedIo) -> Result<(), IoError> {
        match io.op {
            Op::Flush => self.device.flush(),
            _ => io.for_each_bio(|bio| self.device.execute(std::slice::from_mut(bio))),
        }
    }

    /// In a forked child, what waits is the parent's.
    fn leave_parent(&mut self) {
        if !self.process.is_current() {
            (self.canceled, self.process) = (self.waiting.len(), Process::current());
        }
    }

    fn cancel(&self, io: QueuedIo) -> Completed {
        let error = IoError::canceled(self.device.name(), &io);
        Completed { io, result: Err(error) }
    }
}

/// As with every queue, submitted transfers are executed.
impl Drop for BatchQueue {
    fn drop(&mut self) {
        // What goes wrong has no caller any more.
        let _ = self.reap(self.in_flight(), &mut Vec::new());
    }
}

/// A transfer as a bio, if it is one.
fn only_bio(io: &mut QueuedIo) -> Option<Bio<'_>> {
    let (op, flags, owner) = (io.op, io.flags, io.owner);
    let ([piece], QueuedMemory::Owned(memory)) = (&io.pieces[..], &mut io.memory) else { return None };
    let (sector, range) = (piece.sector, piece.memory.clone());
    let memory = match op {
        Op::Read => BioMemory::Read(vec![IoSliceMut::new(memory.as_mut_slice().get_mut(range)?)]),
        Op::Write => BioMemory::Write(vec![IoSlice::new(memory.as_slice().get(range)?)]),
        _ => return None,
    };
    Some(Bio { sector, memory, op, flags, owner })
}

impl IoQueue for BatchQueue {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn in_flight(&self) -> u32 {
        self.waiting.len() as u32
    }

    fn submit(&mut self, io: QueuedIo) -> Result<(), QueuedIo> {
        if self.in_flight() >= self.depth {
            return Err(io);
        }
        self.leave_parent();
        self.waiting.push(io);
        Ok(())
    }

    /// Nothing is issued before it is waited for.
    fn issue(&mut self) -> Result<(), IoError> {
        Ok(())
    }

    fn reap(&mut self, wait_for: u32, done: &mut Vec<Completed>) -> Result<usize, IoError> {
        if wait_for == 0 {
            return Ok(0);
        }
        self.leave_parent();
        let mut waiting = std::mem::take(&mut self.waiting);
        let count = waiting.len();
        let canceled = waiting.drain(..std::mem::take(&mut self.canceled));
        done.extend(canceled.map(|io| self.cancel(io)));
        self.waiting = waiting;
        let together = self.run_together();
        for mut io in std::mem::take(&mut self.waiting) {
            // Of a batch that failed only the first error is known: each of its transfers is tried again.
            let is_done = together && only_bio(&mut io).is_some();
            let result = if is_done { Ok(()) } else { self.run_alone(&mut io) };
            done.push(Completed { io, result });
        }
        Ok(count)
    }
}

//! A queue that executes its transfers together when they are reaped.
//!
//! Where it sits: used by writeback and other background work that must take little CPU time. A batch is one
//! [`BlockDevice::execute`]: on a device with rings, one system call and one wake-up for all of its transfers. [`BlockDevice::open_queue`]
//! opens a queue that keeps a device busy.
//!
//! In a forked child, the parent's transfers fail with `ECANCELED`.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use crate::immediate_queue::execute;
use crate::{Bio, BioMemory, BlockDevice, Completed, IoError, IoQueue, Op, Process, QueuedIo, QueuedMemory};

/// See the module head.
pub struct BatchQueue {
    device: Arc<dyn BlockDevice>,
    depth: u32,
    waiting: Vec<QueuedIo>,
    /// Number of the first transfers in `waiting` that are a parent's and canceled.
    canceled: usize,
    process: Process,
}

crate::short_debug!(BatchQueue, depth);

impl BatchQueue {
    /// A queue on `device`, for batches of at most `depth` transfers.
    pub fn new(device: Arc<dyn BlockDevice>, depth: u32) -> Self {
        Self { device, depth: depth.max(1), waiting: Vec::new(), canceled: 0, process: Process::current() }
    }

    /// Execute all transfers of one bio each with one call. Returns whether it succeeded.
    fn run_together(&mut self) -> bool {
        let mut bios: Vec<_> = self.waiting.iter_mut().filter_map(only_bio).collect();
        bios.is_empty() || self.device.execute(&mut bios).is_ok()
    }

    /// In a forked child, the waiting transfers are the parent's.
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

/// A dropped queue executes its submitted transfers.
impl Drop for BatchQueue {
    fn drop(&mut self) {
        // No caller is left for errors.
        let _ = self.reap(self.in_flight(), &mut Vec::new());
    }
}

/// A transfer of one range as a bio.
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

    /// The next wait issues all transfers.
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
            // A failed batch reports one error only, so each transfer is executed again.
            let is_done = together && only_bio(&mut io).is_some();
            let result = if is_done { Ok(()) } else { execute(&*self.device, &mut io) };
            done.push(Completed { io, result });
        }
        Ok(count)
    }
}

//! Many transfers in flight where there is no ring: each runs in the pool of threads.
//!
//! Where it sits: behind [`diorite_block::IoQueue`] for the thread back end, and for devices made of such.
//!
//! Invariants:
//! 1. A transfer and its memory belong to the thread that runs it until they come back through the channel.
//! 2. Dropping a queue waits for everything in flight.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use diorite_block::{
    Bio, BioFlags, BlockDevice, Completed, IoError, IoErrorKind, IoQueue, Op, Piece, QueuedIo, Sector,
};

use crate::workers;

/// A queue on `device`.
pub(crate) fn open(device: Arc<dyn BlockDevice>, depth: u32) -> Box<dyn IoQueue> {
    let (sender, receiver) = channel();
    Box::new(ThreadQueue { device, depth: depth.max(1), in_flight: 0, sender, receiver })
}

#[derive(Debug)]
struct ThreadQueue {
    device: Arc<dyn BlockDevice>,
    depth: u32,
    in_flight: u32,
    sender: Sender<Completed>,
    receiver: Receiver<Completed>,
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
    let memory_len = io.memory.as_ref().map_or(0, |memory| memory.as_slice().len());
    let outside = |piece: &&Piece| piece.memory.start > piece.memory.end || piece.memory.end > memory_len;
    if let Some(piece) = io.pieces.iter().find(outside) {
        let kind = IoErrorKind::Device(std::io::Error::from_raw_os_error(libc::EFAULT));
        return error(piece.sector, piece.memory.len() as u64, kind);
    }
    let Some(memory) = io.memory.as_mut() else { return Ok(()) };
    for piece in &io.pieces {
        let range = piece.memory.clone();
        let mut bio = match io.op {
            Op::Read => Bio::read(piece.sector, &mut memory.as_mut_slice()[range]),
            _ => Bio::write(piece.sector, &memory.as_slice()[range], keep),
        };
        bio.owner = io.owner;
        device.execute(std::slice::from_mut(&mut bio))?;
    }
    Ok(())
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
        let (device, sender) = (Arc::clone(&self.device), self.sender.clone());
        workers::start(Box::new(move || {
            let result = catch_unwind(AssertUnwindSafe(|| run(&*device, &mut io))).unwrap_or_else(|_| {
                let (device, op) = (device.name(), io.op);
                Err(IoError { device, op, sector: Sector(0), len: 0, kind: IoErrorKind::Gone })
            });
            // The queue may let go of the device as soon as it hears of the last transfer.
            drop(device);
            // Whoever drops a queue waits for its transfers, so the other end is still there.
            let _ = sender.send(Completed { io, result });
        }));
        Ok(())
    }

    fn issue(&mut self) -> Result<(), IoError> {
        Ok(())
    }

    fn reap(&mut self, wait_for: u32, done: &mut Vec<Completed>) -> Result<usize, IoError> {
        let (before, wanted) = (done.len(), wait_for.min(self.in_flight) as usize);
        while done.len() - before < wanted
            && let Ok(completed) = self.receiver.recv()
        {
            done.push(completed);
        }
        done.extend(self.receiver.try_iter());
        let count = done.len() - before;
        self.in_flight -= count as u32;
        Ok(count)
    }
}

impl Drop for ThreadQueue {
    fn drop(&mut self) {
        for _ in 0..self.in_flight {
            if self.receiver.recv().is_err() {
                break;
            }
        }
    }
}

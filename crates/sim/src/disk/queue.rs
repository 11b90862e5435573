//! Many transfers in flight on a simulated disk from one thread.

use std::fmt;
use std::sync::Arc;

use diorite_block::{Bio, BlockDevice, Completed, IoError, IoQueue, Op, QueuedIo};

use super::{Call, SimDisk, lock};
use crate::world::Context;

/// A transfer that was begun: its call, if it takes time; or why it was refused.
type Begun = Result<Option<Arc<Call>>, IoError>;

/// A queue on a simulated disk.
pub(super) struct SimQueue {
    disk: Arc<SimDisk>,
    depth: u32,
    flying: Vec<(QueuedIo, Begun)>,
}

impl SimQueue {
    pub(super) fn new(disk: Arc<SimDisk>, depth: u32) -> Self {
        Self { disk, depth: depth.max(1), flying: Vec::new() }
    }

    /// Run `each` on a bio for each piece.
    fn for_pieces(
        io: &mut QueuedIo,
        mut each: impl FnMut(&mut Bio<'_>) -> Result<(), IoError>,
    ) -> Result<(), IoError> {
        let (op, flags, owner) = (io.op, io.flags, io.owner);
        let Some(memory) = io.memory.as_mut().filter(|_| op != Op::Flush) else {
            let mut flush = Bio::flush();
            flush.owner = owner;
            return each(&mut flush);
        };
        for piece in &io.pieces {
            let range = piece.memory.clone();
            let mut bio = match op {
                Op::Read => Bio::read(piece.sector, &mut memory.as_mut_slice()[range]),
                _ => Bio::write(piece.sector, &memory.as_slice()[range], flags),
            };
            (bio.flags, bio.owner) = (flags, owner);
            each(&mut bio)?;
        }
        Ok(())
    }

    fn begin(&self, io: &mut QueuedIo) -> Begun {
        let mut commands = Vec::with_capacity(io.pieces.len());
        Self::for_pieces(io, |bio| {
            self.disk.check(bio)?;
            self.disk.counters().count(bio.op, bio.len());
            commands.push((super::Command::of(bio), bio.owner.task.0));
            if bio.op != Op::Read {
                self.disk.apply(bio);
            }
            Ok(())
        })?;
        Ok(Context::current().map(|context| self.disk.submit(&context, &commands)))
    }

    fn finish(&self, mut io: QueuedIo, result: Begun) -> Completed {
        let result = result.and_then(|_| {
            Self::for_pieces(&mut io, |bio| {
                if bio.op == Op::Read {
                    self.disk.apply(bio);
                }
                Ok(())
            })
        });
        Completed { io, result }
    }
}

fn has_ended(result: &Begun) -> bool {
    match result {
        Ok(Some(call)) => *lock(&call.left) == 0,
        Ok(None) | Err(_) => true,
    }
}

impl IoQueue for SimQueue {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn in_flight(&self) -> u32 {
        self.flying.len() as u32
    }

    fn submit(&mut self, mut io: QueuedIo) -> Result<(), QueuedIo> {
        if self.in_flight() >= self.depth {
            return Err(io);
        }
        let call = self.begin(&mut io);
        self.flying.push((io, call));
        Ok(())
    }

    fn issue(&mut self) -> Result<(), IoError> {
        Ok(())
    }

    fn reap(&mut self, wait_for: u32, done: &mut Vec<Completed>) -> Result<usize, IoError> {
        let wanted = wait_for.min(self.in_flight()) as usize;
        let context = Context::current();
        loop {
            let ready = self.flying.iter().filter(|(_, result)| has_ended(result)).count();
            if ready >= wanted {
                break;
            }
            let next = self.flying.iter().find_map(|(_, result)| match result {
                Ok(Some(call)) if *lock(&call.left) > 0 => Some(Arc::clone(call)),
                _ => None,
            });
            if let (Some(context), Some(call)) = (&context, next) {
                // Commands may end in another order: look again at each of the disk's events.
                self.disk.wait_for_any(context, &call);
            }
        }
        let before = done.len();
        let (ended, flying): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.flying).into_iter().partition(|(_, result)| has_ended(result));
        self.flying = flying;
        for (io, result) in ended {
            let completed = self.finish(io, result);
            done.push(completed);
        }
        Ok(done.len() - before)
    }
}

impl Drop for SimQueue {
    fn drop(&mut self) {
        let mut done = Vec::new();
        let _ = self.reap(self.in_flight(), &mut done);
    }
}

impl fmt::Debug for SimQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimQueue({} in flight on {:?})", self.flying.len(), self.disk)
    }
}

//! Many transfers in flight on a simulated disk, from one thread or several.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use diorite_block::sync::Runtime;
use diorite_block::{
    BlockDevice, Completed, IoError, IoQueue, Op, QueueWait, QueuedIo, SharedQueue, WaitOnQueue,
};

use super::{Call, SimDisk, lock};
use crate::world::Context;

/// A submitted transfer: its call, if it takes time, or its error.
type Begun = Result<Option<Arc<Call>>, IoError>;

/// A queue on a simulated disk.
#[derive(Debug)]
pub(super) struct SimQueue {
    disk: Arc<SimDisk>,
    depth: u32,
    flying: Arc<Flying>,
}

/// Submitted transfers that were not collected. The lock is a leaf, and is not held during a wait.
struct Flying {
    disk: Arc<SimDisk>,
    list: Mutex<Vec<(QueuedIo, Begun)>>,
}

impl Flying {
    fn ended_count(&self) -> usize {
        lock(&self.list).iter().filter(|(_, begun)| has_ended(begun)).count()
    }
}

impl fmt::Debug for Flying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in flight", lock(&self.list).len())
    }
}

impl WaitOnQueue for Flying {
    fn wait(&self, _unissued: u32, deadline: Option<Duration>) {
        // No completion can come between check and wait, because only this process runs.
        if self.ended_count() == 0
            && let Some(context) = Context::current()
        {
            context.wait(self.disk.any_key(), deadline);
        }
    }
}

impl SimQueue {
    pub(super) fn new(disk: Arc<SimDisk>, depth: u32) -> Self {
        let flying = Arc::new(Flying { disk: Arc::clone(&disk), list: Mutex::default() });
        Self { disk, depth: depth.max(1), flying }
    }

    fn begin(&self, io: &mut QueuedIo) -> Begun {
        let mut commands = Vec::with_capacity(io.pieces.len());
        io.for_each_bio(|bio| {
            self.disk.check(bio)?;
            self.disk.counters().count(bio.op, bio.len());
            commands.push(super::Command::of(bio));
            if bio.op != Op::Read {
                self.disk.apply(bio);
            }
            Ok(())
        })?;
        Ok(Context::current().map(|context| self.disk.submit(&context, &commands)))
    }

    fn finish(&self, mut io: QueuedIo, begun: Begun) -> Completed {
        let result = begun.and_then(|_| match io.op {
            Op::Read => io.for_each_bio(|bio| {
                self.disk.apply(bio);
                Ok(())
            }),
            _ => Ok(()),
        });
        Completed { io, result }
    }
}

fn has_ended(begun: &Begun) -> bool {
    match begun {
        Ok(Some(call)) => *lock(&call.left) == 0,
        Ok(None) | Err(_) => true,
    }
}

impl IoQueue for SimQueue {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn in_flight(&self) -> u32 {
        lock(&self.flying.list).len() as u32
    }

    fn submit(&mut self, mut io: QueuedIo) -> Result<(), QueuedIo> {
        if self.in_flight() >= self.depth {
            return Err(io);
        }
        let begun = self.begin(&mut io);
        lock(&self.flying.list).push((io, begun));
        Ok(())
    }

    fn issue(&mut self) -> Result<(), IoError> {
        Ok(())
    }

    fn reap(&mut self, wait_for: u32, done: &mut Vec<Completed>) -> Result<usize, IoError> {
        let wanted = wait_for.min(self.in_flight()) as usize;
        while self.flying.ended_count() < wanted {
            // Commands may end in another order, so each event of the disk is a reason to check again.
            if let Some(context) = Context::current() {
                context.wait(self.disk.any_key(), None);
            }
        }
        let before = done.len();
        self.collect(done);
        Ok(done.len() - before)
    }
}

impl SharedQueue for SimQueue {
    fn collect(&mut self, done: &mut Vec<Completed>) {
        let list = std::mem::take(&mut *lock(&self.flying.list));
        let (ended, flying): (Vec<_>, Vec<_>) = list.into_iter().partition(|(_, begun)| has_ended(begun));
        *lock(&self.flying.list) = flying;
        done.extend(ended.into_iter().map(|(io, begun)| self.finish(io, begun)));
    }

    fn begin_wait(&mut self) -> QueueWait {
        QueueWait::new(Arc::clone(&self.flying) as Arc<dyn WaitOnQueue>, 0)
    }
}

impl Drop for SimQueue {
    fn drop(&mut self) {
        let mut done = Vec::new();
        let _ = self.reap(self.in_flight(), &mut done);
    }
}

//! The two loops of a worker: one transfer after the other, or many in flight.

use diorite::{DirectQueue, Error, Finished, RegisteredBuf, RegisteredBuffers};
use diorite_block::sync::now;

use super::account::Transfer;
use super::steps::{Run, Step, seed_of};
use crate::data::verify::randomize;
use crate::error::JobError;
use crate::target::handle::Handle;

type Queue = DirectQueue<RegisteredBuf>;

impl Run<'_> {
    /// One transfer after the other.
    pub(super) fn synchronous(&mut self) -> Result<(), JobError> {
        let mut memory = self.pool(1)?.take();
        randomize(&mut memory, seed_of(self.worker));
        loop {
            let mut transfer = match self.next(now()) {
                Step::Over => return Ok(()),
                Step::Wait(until) => {
                    self.shared.sleep_until(self.worker.number, until);
                    continue;
                }
                Step::Go(transfer) => transfer,
            };
            let Transfer { direction, file, offset, len, .. } = transfer;
            self.prepare(&mut transfer, &mut memory[..len]);
            let handle = &self.files[file].handle;
            let done = match direction {
                0 => handle.read_at(&mut memory[..len], offset),
                _ => handle.write_at(&memory[..len], offset),
            };
            self.ended(&transfer, done, &memory)?;
            if self.must_settle() {
                self.settle()?;
            }
        }
    }

    /// Many transfers in flight. The memory of a completed transfer is used for the next one at once.
    pub(super) fn queued(&mut self) -> Result<(), JobError> {
        let depth = self.worker.job.depth;
        let pool = self.pool(depth)?;
        let mut queue: Queue = DirectQueue::new(depth);
        let mut in_flight: Vec<Option<Transfer>> = vec![None; depth as usize];
        let mut idle = Vec::new();
        for tag in 0..u64::from(depth) {
            let mut memory = pool.take();
            randomize(&mut memory, seed_of(self.worker).wrapping_add(tag));
            idle.push((memory, tag));
        }
        let mut over = false;
        // As in fio, each random write is submitted at once. The queue submits random reads in batches, which takes less CPU time,
        // and may merge sequential transfers.
        let pattern = self.worker.job.pattern;
        let issues_each = pattern.is_random() && pattern.writes();
        loop {
            while !over && queue.in_flight() < depth && !self.must_settle() {
                match self.next(now()) {
                    Step::Over => over = true,
                    // Completions are processed while the job waits.
                    Step::Wait(_) if queue.in_flight() > 0 => break,
                    Step::Wait(until) => self.shared.sleep_until(self.worker.number, until),
                    Step::Go(transfer) => {
                        let Some((memory, tag)) = idle.pop() else { break };
                        let submitted = self.submit(&mut queue, (memory, tag), transfer)?;
                        if submitted.is_none() {
                            idle.push((pool.take(), tag));
                        }
                        in_flight[tag as usize] = submitted;
                        if issues_each {
                            queue.issue().map_err(self.worker.blame_first())?;
                        }
                    }
                }
            }
            let Some(finished) = queue.next_finished().map_err(self.worker.blame_first())? else {
                if self.must_settle() {
                    self.settle()?;
                } else if over {
                    return Ok(());
                }
                continue;
            };
            let Finished { tag, memory, result } = finished;
            if let Some(transfer) = in_flight[tag as usize].take() {
                self.ended(&transfer, result, &memory)?;
            }
            idle.push((memory, tag));
        }
    }

    /// Submit a transfer with this memory.
    fn submit(
        &mut self,
        queue: &mut Queue,
        (mut memory, tag): (RegisteredBuf, u64),
        mut transfer: Transfer,
    ) -> Result<Option<Transfer>, JobError> {
        let Transfer { direction, file, offset, len, .. } = transfer;
        self.prepare(&mut transfer, &mut memory[..len]);
        let Handle::Stack(open) = &self.files[file].handle else {
            let source = Error::Unsupported("a queue on a file of the kernel's page cache");
            return Err(self.worker.blame_first()(source));
        };
        let submitted = match direction {
            0 => queue.read(open, offset, memory, len, tag),
            _ => queue.write(open, offset, memory, len, tag),
        };
        if let Err(refused) = submitted {
            return self.failed(&transfer, refused.error).map(|()| None);
        }
        transfer.submitted = Some(now());
        Ok(Some(transfer))
    }

    /// Registered memory for `count` transfers.
    fn pool(&self, count: u32) -> Result<RegisteredBuffers, JobError> {
        let largest = self.worker.job.largest_block() as usize;
        RegisteredBuffers::new(largest, count).map_err(|source| {
            self.worker.blame_first()(Error::Os { what: "cannot get memory for transfers", source })
        })
    }
}

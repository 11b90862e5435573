//! The two ways in which a worker moves data: one transfer after the other, or many in flight.

use diorite::{DirectQueue, Error, Finished, RegisteredBuf, RegisteredBuffers};
use diorite_block::IoOwner;
use diorite_block::sync::now;

use super::JobError;
use super::account::Transfer;
use super::handle::Handle;
use super::worker::{Run, Step};

type Queue = DirectQueue<RegisteredBuf>;

impl Run<'_> {
    /// One transfer after the other.
    pub(super) fn synchronous(&mut self) -> Result<(), JobError> {
        let mut memory = self.pool(1)?.take();
        self.contents.begin(&mut memory);
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
            let own = (transfer.priority != self.worker.job.priority).then(|| self.enter(&transfer));
            let handle = &self.files[file].handle;
            let done = match direction {
                0 => handle.read_at(&mut memory[..len], offset),
                1 => handle.write_at(&memory[..len], offset),
                _ => handle.punch_hole(offset, len as u64).map(|()| len),
            };
            drop(own);
            self.account.record_submission(transfer.start, 1);
            self.account.record_completions(transfer.start, 1);
            self.ended(&transfer, done, &memory)?;
            if self.must_settle() {
                self.settle()?;
            }
        }
    }

    /// Many in flight. Each transfer's memory goes to the next one at once, so that the device is never without work for long.
    pub(super) fn queued(&mut self) -> Result<(), JobError> {
        let depth = self.worker.job.depth;
        let pool = self.pool(depth)?;
        let mut queue: Queue = DirectQueue::new(depth);
        let mut in_flight: Vec<Option<Transfer>> = vec![None; depth as usize];
        let mut idle = Vec::new();
        for tag in 0..u64::from(depth) {
            let mut memory = pool.take();
            self.contents.begin(&mut memory);
            idle.push((memory, tag));
        }
        let mut over = false;
        // The device is given each random write at once, as fio does. Random reads cost less time of the processor in the batches of the
        // queue, and what is in sequence may reach the device as one.
        let pattern = self.worker.job.pattern;
        let issues_each = pattern.is_random() && pattern.writes();
        loop {
            while !over && queue.in_flight() < self.depth() && !self.must_settle() {
                match self.next(now()) {
                    Step::Over => over = true,
                    // What ends meanwhile is looked at when it ends.
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
            let waits = queue.ended() == 0;
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
                if waits {
                    self.account.record_completions(transfer.start, 1 + queue.ended());
                }
                self.ended(&transfer, result, &memory)?;
            }
            idle.push((memory, tag));
        }
    }

    /// How many may be in flight.
    fn depth(&self) -> u32 {
        self.search.as_ref().map_or(self.worker.job.depth, super::steady::DepthSearch::depth)
    }

    /// Start a transfer with this memory.
    fn submit(
        &mut self,
        queue: &mut Queue,
        (mut memory, tag): (RegisteredBuf, u64),
        mut transfer: Transfer,
    ) -> Result<Option<Transfer>, JobError> {
        let Transfer { direction, file, offset, len, .. } = transfer;
        self.prepare(&mut transfer, &mut memory[..len]);
        let own = (transfer.priority != self.worker.job.priority).then(|| self.enter(&transfer));
        let Handle::Stack(open) = &self.files[file].handle else {
            let source = Error::Unsupported("a queue on a file of the kernel's page cache");
            return Err(self.worker.blame_first()(source));
        };
        let submitted = match direction {
            0 => queue.read(open, offset, memory, len, tag),
            _ => queue.write(open, offset, memory, len, tag),
        };
        drop(own);
        if let Err(refused) = submitted {
            return self.failed(&transfer, refused.into_error()).map(|()| None);
        }
        transfer.submitted = Some(now());
        self.account.record_submission(transfer.start, queue.in_flight());
        Ok(Some(transfer))
    }

    fn enter(&self, transfer: &Transfer) -> impl Drop + use<> {
        IoOwner { task: self.worker.task(), priority: transfer.priority }.enter()
    }

    /// Registered memory for so many transfers.
    fn pool(&self, count: u32) -> Result<RegisteredBuffers, JobError> {
        let largest = self.worker.job.largest_block() as usize;
        RegisteredBuffers::new(largest, count).map_err(|source| {
            self.worker.blame_first()(Error::Os { what: "cannot get memory for transfers", source })
        })
    }
}

//! One clone of one job: moves its data, and measures.

use std::path::PathBuf;
use std::time::Duration;

use diorite::{AlignedBuf, BufferPool, DirectQueue, File, Finished, PoolBuf};
use diorite_block::sync::{now, sleep};
use diorite_block::{IoOwner, Op, TaskId};

use super::offsets::{Offsets, Permutation, Random};
use super::place::FileUse;
use super::result::JobResult;
use super::usage::Usage;
use super::{Engine, Job, JobError, Place, Verify, verify};
use crate::watch::Cancel;

/// Length of a bandwidth sample.
const SAMPLE: Duration = Duration::from_millis(500);

/// What one thread is to do.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) job: Job,
    pub(crate) path: PathBuf,
    pub(crate) group: u32,
    /// Which of the job's clones.
    pub(crate) clone: u32,
    /// Counted over all jobs of the file.
    pub(crate) number: u64,
    /// Waits for those before it.
    pub(crate) starts_wave: bool,
}

impl Worker {
    /// What its I/O is charged to.
    pub(crate) fn task(&self) -> TaskId {
        TaskId(self.number + 1)
    }

    /// The job in messages.
    pub(crate) fn title(&self) -> String {
        format!("{}: [{}]", self.job.origin, self.job.name)
    }

    /// Turns a library error into one that names job and file.
    pub(crate) fn blame(&self) -> impl Fn(diorite::Error) -> JobError + '_ {
        |source| JobError::File {
            job: format!("{}: [{}]", self.job.file_origin, self.job.name),
            file: self.path.display().to_string(),
            source: Box::new(source),
        }
    }
}

/// Run one worker on the calling thread.
pub(crate) fn run_worker(worker: &Worker, place: &dyn Place, cancel: &Cancel) -> Result<JobResult, JobError> {
    let job = &worker.job;
    let _owner = IoOwner { task: worker.task(), priority: job.priority }.enter();
    sleep(job.start_delay);
    let purpose = FileUse { write: job.pattern.writes(), direct: job.direct };
    let file = place.open(&worker.path, purpose).map_err(worker.blame())?;
    if job.invalidate {
        file.drop_cached(0, u64::MAX).map_err(worker.blame())?;
    }
    let used = Usage::of_this_thread();
    let start = now();
    let mut run = Run::new(worker, file, cancel);
    // One transfer at a time needs no queue: the call that waits for it can submit it, too.
    let queued = job.engine == Engine::Queue && job.direct && job.depth > 1;
    if queued {
        run.queued()?;
    } else {
        run.synchronous()?;
    }
    run.finish()?;
    if job.verify == Verify::Crc32c && job.pattern.writes() && !cancel.is_cancelled() {
        run.verify_all()?;
    }
    let mut result = run.result;
    result.usage = Usage::of_this_thread().since(&used);
    result.elapsed = now().saturating_sub(start);
    Ok(result)
}

/// When a transfer was begun, and when its submission was over, where that is not the end.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    start: Duration,
    submitted: Option<Duration>,
}

/// A worker at work.
struct Run<'a> {
    worker: &'a Worker,
    file: File,
    cancel: &'a Cancel,
    result: JobResult,
    random: Random,
    read_offsets: Offsets,
    write_offsets: Offsets,
    /// Counting starts here, after the ramp.
    counted_from: Duration,
    deadline: Option<Duration>,
    /// Bytes that are still to be moved; `None` while only time ends the job.
    left: Option<u64>,
    moved: [u64; 2],
    writes_since_sync: u32,
    /// What was written is being read back, in blocks as they were written.
    is_verifying: bool,
    /// Blocks that were written, for the check afterwards.
    written: std::collections::BTreeSet<u64>,
    sample_bytes: [u64; 2],
    sample_ios: [u64; 2],
    sample_start: Duration,
}

/// A transfer that is due.
#[derive(Clone, Copy, Debug)]
struct Next {
    op: Op,
    offset: u64,
    len: usize,
    /// By the clock that the deadline was checked with: reading it once more would cost as much as the check.
    start: Duration,
}

impl<'a> Run<'a> {
    fn new(worker: &'a Worker, file: File, cancel: &'a Cancel) -> Self {
        let job = &worker.job;
        let blocks = (job.size_bytes / job.read_block_bytes.max(job.write_block_bytes)).max(1);
        let seed = job.seed.wrapping_add(worker.number);
        let offsets = || match (job.pattern.is_random(), job.random_may_repeat) {
            (false, _) => Offsets::Sequential { blocks, next: 0 },
            (true, false) => Offsets::Shuffled { permutation: Permutation::new(blocks, seed), next: 0 },
            (true, true) => Offsets::Random { blocks, random: Random::new(seed) },
        };
        let counted_from = now() + job.ramp_time;
        let result = JobResult {
            name: job.name.clone(),
            group: worker.group,
            jobs: 1,
            heading: heading_of(job),
            options: job.options.clone(),
            depth: if job.engine == Engine::Queue && job.direct { job.depth } else { 1 },
            join: job.group_reporting,
            ..JobResult::default()
        };
        Self {
            worker,
            file,
            cancel,
            result,
            random: Random::new(seed ^ 0x5eed),
            read_offsets: offsets(),
            write_offsets: offsets(),
            counted_from,
            deadline: job.runtime.map(|runtime| counted_from + runtime),
            left: (!job.time_based).then(|| job.size_bytes.saturating_mul(u64::from(job.loops))),
            moved: [0; 2],
            writes_since_sync: 0,
            is_verifying: false,
            written: std::collections::BTreeSet::new(),
            sample_bytes: [0; 2],
            sample_ios: [0; 2],
            sample_start: counted_from,
        }
    }

    /// The next transfer, or `None` when the job is over.
    fn next(&mut self) -> Option<Next> {
        let job = &self.worker.job;
        let at = now();
        if self.cancel.is_cancelled() || self.deadline.is_some_and(|deadline| at >= deadline) {
            return None;
        }
        let op = match (job.pattern.reads(), job.pattern.writes()) {
            (true, true) if self.random.below(100) < u64::from(job.read_percent) => Op::Read,
            (_, true) => Op::Write,
            (_, false) => Op::Read,
        };
        let (block, len) = if op == Op::Read {
            (self.read_offsets.next(), job.read_block_bytes)
        } else {
            (self.write_offsets.next(), job.write_block_bytes)
        };
        if let Some(left) = &mut self.left {
            if *left < len {
                return None;
            }
            *left -= len;
        }
        let slot = job.read_block_bytes.max(job.write_block_bytes);
        let start = self.pace(op, len, at);
        Some(Next { op, offset: job.offset_bytes + block * slot, len: len as usize, start })
    }

    /// Wait until the rate allows another transfer; when it may start, `at` being now.
    fn pace(&mut self, op: Op, len: u64, at: Duration) -> Duration {
        let job = &self.worker.job;
        let moved = self.moved[usize::from(op == Op::Write)];
        let by_bytes = job.rate_bytes.map(|rate| moved as f64 / rate as f64);
        let by_count = job.rate_iops.map(|rate| (moved / len.max(1)) as f64 / rate as f64);
        self.moved[usize::from(op == Op::Write)] += len;
        if by_bytes.is_none() && by_count.is_none() {
            return at;
        }
        let due = by_bytes.unwrap_or(0.0).max(by_count.unwrap_or(0.0));
        let due = self.counted_from.saturating_sub(job.ramp_time) + Duration::from_secs_f64(due);
        sleep(due.saturating_sub(at));
        now()
    }

    fn synchronous(&mut self) -> Result<(), JobError> {
        let mut memory = self.pool(1)?.take();
        verify::fill(&mut memory, 0, self.worker.number);
        while let Some(next) = self.next() {
            let Next { op, offset, len, .. } = next;
            let start = self.prepare(&next, &mut memory[..len]);
            let done = match op {
                Op::Read => self.file.read_at(&mut memory[..len], offset),
                _ => self.file.write_at(&memory[..len], offset),
            };
            let moved = done.map_err(self.worker.blame())?;
            self.result.levels.record_level(1);
            self.result.submitted.record_batch(1);
            self.result.completed.record_batch(1);
            self.account(op, Times { start, submitted: None }, moved);
            self.check(op, offset, &memory[..moved])?;
            self.after(op)?;
        }
        Ok(())
    }

    fn queued(&mut self) -> Result<(), JobError> {
        let depth = self.worker.job.depth;
        let pool = self.pool(depth)?;
        let mut queue: DirectQueue<PoolBuf> = DirectQueue::new(depth);
        let mut in_flight = vec![(Op::Read, 0u64, Times::default()); depth as usize];
        let mut over = false;
        for tag in 0..u64::from(depth) {
            let mut memory = pool.take();
            verify::fill(&mut memory, tag, self.worker.number);
            over = over || !self.submit(&mut queue, memory, tag, &mut in_flight)?;
        }
        // Each transfer's memory goes to the next one at once, so that the device is never without work for long.
        loop {
            let waits = queue.ended() == 0;
            let Some(finished) = queue.next_finished().map_err(self.worker.blame())? else { break };
            if waits {
                self.result.completed.record_batch(1 + queue.ended());
            }
            let Finished { tag, memory, result } = finished;
            let moved = result.map_err(self.worker.blame())?;
            let (op, offset, times) = in_flight[tag as usize];
            self.account(op, times, moved);
            self.check(op, offset, &memory[..moved])?;
            self.after(op)?;
            over = over || !self.submit(&mut queue, memory, tag, &mut in_flight)?;
        }
        Ok(())
    }

    /// Registered memory for so many transfers.
    fn pool(&self, count: u32) -> Result<BufferPool, JobError> {
        let job = &self.worker.job;
        let largest = job.read_block_bytes.max(job.write_block_bytes) as usize;
        BufferPool::new(largest, count).map_err(|source| {
            self.worker.blame()(diorite::Error::Os { what: "cannot get memory for transfers", source })
        })
    }

    /// Start the next transfer with this memory; whether there was one.
    fn submit(
        &mut self,
        queue: &mut DirectQueue<PoolBuf>,
        mut memory: PoolBuf,
        tag: u64,
        in_flight: &mut [(Op, u64, Times)],
    ) -> Result<bool, JobError> {
        let Some(next) = self.next() else { return Ok(false) };
        let Next { op, offset, len, .. } = next;
        let start = self.prepare(&next, &mut memory[..len]);
        let submitted = match op {
            Op::Read => queue.read(&self.file, offset, memory, len, tag),
            _ => queue.write(&self.file, offset, memory, len, tag),
        };
        submitted.map_err(|refused| self.worker.blame()(refused.into_error()))?;
        in_flight[tag as usize] = (op, offset, Times { start, submitted: Some(now()) });
        self.result.levels.record_level(queue.in_flight());
        self.result.submitted.record_batch(1);
        Ok(true)
    }

    /// Give a block that is written its content; when the transfer starts.
    fn prepare(&mut self, next: &Next, memory: &mut [u8]) -> Duration {
        if next.op == Op::Write && self.worker.job.verify == Verify::Crc32c {
            verify::fill(memory, next.offset, self.worker.job.seed);
            self.written.insert(next.offset);
            return now();
        }
        next.start
    }

    /// Check a block that was read by a job that only reads.
    fn check(&self, op: Op, offset: u64, memory: &[u8]) -> Result<(), JobError> {
        let job = &self.worker.job;
        if op == Op::Read && job.verify == Verify::Crc32c && !job.pattern.writes() {
            return check_block(self.worker, memory, offset);
        }
        Ok(())
    }

    fn account(&mut self, op: Op, times: Times, bytes: usize) {
        let end = now();
        if times.start < self.counted_from {
            return;
        }
        let side = usize::from(op == Op::Write);
        let job = &self.worker.job;
        let wanted =
            if op == Op::Read && !self.is_verifying { job.read_block_bytes } else { job.write_block_bytes };
        let direction = if op == Op::Read { &mut self.result.read } else { &mut self.result.write };
        direction.bytes += bytes as u64;
        direction.ios += 1;
        direction.short += u64::from((bytes as u64) < wanted);
        direction.runtime = end.saturating_sub(self.counted_from);
        let passed = |from: Duration, to: Duration| to.saturating_sub(from).as_nanos() as u64;
        if let Some(submitted) = times.submitted {
            direction.submission.record(passed(times.start, submitted));
        }
        let completed = passed(times.submitted.unwrap_or(times.start), end);
        direction.latency_ns.saturating_record(completed);
        direction.completion.record(completed);
        direction.total.record(passed(times.start, end));
        self.sample_bytes[side] += bytes as u64;
        self.sample_ios[side] += 1;
        let sampled = end.saturating_sub(self.sample_start);
        if sampled >= SAMPLE {
            let seconds = sampled.as_secs_f64() * 1024.0;
            self.result.read.samples_kib_s.push(self.sample_bytes[0] as f64 / seconds);
            self.result.write.samples_kib_s.push(self.sample_bytes[1] as f64 / seconds);
            let seconds = sampled.as_secs_f64();
            self.result.read.samples_iops.push(self.sample_ios[0] as f64 / seconds);
            self.result.write.samples_iops.push(self.sample_ios[1] as f64 / seconds);
            (self.sample_bytes, self.sample_ios) = ([0; 2], [0; 2]);
            self.sample_start = end;
        }
    }

    /// Syncs and pauses that follow a transfer.
    fn after(&mut self, op: Op) -> Result<(), JobError> {
        let job = &self.worker.job;
        if op == Op::Write {
            self.writes_since_sync += 1;
            let is_due = |every: Option<u32>| every.is_some_and(|every| self.writes_since_sync >= every);
            if is_due(job.fsync_every) {
                self.sync(File::sync_all)?;
            } else if is_due(job.fdatasync_every) {
                self.sync(File::sync_data)?;
            }
        }
        sleep(job.think_time);
        Ok(())
    }

    fn sync(&mut self, sync: impl FnOnce(&File) -> diorite::Result<()>) -> Result<(), JobError> {
        let start = now();
        sync(&self.file).map_err(self.worker.blame())?;
        self.result.sync_ns.ios += 1;
        let took = now().saturating_sub(start).as_nanos() as u64;
        self.result.sync_ns.latency_ns.saturating_record(took);
        self.result.sync_ns.completion.record(took);
        self.writes_since_sync = 0;
        Ok(())
    }

    /// Read back and check what was written. As in fio these are reads of the job.
    fn verify_all(&mut self) -> Result<(), JobError> {
        let len = self.worker.job.write_block_bytes as usize;
        let mut memory: AlignedBuf = self.file.buffer(len).map_err(self.worker.blame())?;
        // A job that only writes has no reads before: their time begins here.
        if !self.worker.job.pattern.reads() {
            self.counted_from = now();
        }
        self.is_verifying = true;
        for offset in std::mem::take(&mut self.written) {
            let start = now();
            let moved = self.file.read_at(&mut memory[..len], offset).map_err(self.worker.blame())?;
            self.account(Op::Read, Times { start, submitted: None }, moved);
            check_block(self.worker, &memory[..moved], offset)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), JobError> {
        if self.worker.job.end_fsync {
            self.sync(File::sync_all)?;
        }
        Ok(())
    }
}

fn check_block(worker: &Worker, memory: &[u8], offset: u64) -> Result<(), JobError> {
    verify::check(memory, offset).map_err(|what| JobError::Verify {
        job: worker.title(),
        file: worker.path.display().to_string(),
        offset,
        what,
    })
}

/// What fio says of a job before it starts.
fn heading_of(job: &Job) -> String {
    format!(
        "rw={}, bs=(R) {}B-{}B, (W) {}B-{}B, ioengine={}, iodepth={}, direct={}",
        job.pattern.name(),
        job.read_block_bytes,
        job.read_block_bytes,
        job.write_block_bytes,
        job.write_block_bytes,
        job.engine_name,
        job.depth,
        u8::from(job.direct)
    )
}

//! The steps of a worker: which transfer is next, and what follows when one has ended.

use std::time::Duration;

use diorite_block::sync::now;
use rustix::io::Errno;

use super::account::{Account, Transfer};
use super::pace::Pace;
use super::ranges::FileRange;
use super::shared::Shared;
use super::worker::Worker;
use crate::data::offsets::Offsets;
use crate::data::random::Random;
use crate::data::verify::{Mismatch, Stamp};
use crate::data::written::{Block, Written};
use crate::error::JobError;
use crate::language::spec::Size;
use crate::target::handle::Handle;

/// Seed of a worker's random choices.
pub(super) fn seed_of(worker: &Worker) -> u64 {
    worker.job.seed.map_or_else(
        // In a simulation every run is the same.
        || (now().as_nanos() as u64 ^ entropy()).wrapping_add(worker.number),
        |seed| seed.wrapping_add(worker.number),
    )
}

fn entropy() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    if diorite_sim::Context::current().is_some() { 0 } else { RandomState::new().build_hasher().finish() }
}

/// A file of the job.
pub(super) struct OpenFile {
    pub(super) handle: Handle,
    pub(super) range: FileRange,
    /// Of reads and writes.
    pub(super) offsets: [Offsets; 2],
}

/// The next step of a worker.
pub(super) enum Step {
    /// Start this transfer.
    Go(Transfer),
    /// Wait until then.
    Wait(Duration),
    /// The job is over.
    Over,
}

/// A running worker.
pub(super) struct Run<'a> {
    pub(super) worker: &'a Worker,
    pub(super) files: Vec<OpenFile>,
    pub(super) shared: &'a Shared,
    pub(super) account: Account<'a>,
    pub(super) written: Written,
    /// Stamp of the last write.
    stamp: Stamp,
    random: Random,
    pace: Pace,
    deadline: Option<Duration>,
    /// Bytes of a pass over the files.
    bytes: u64,
    /// As in fio, reads and writes of a mix share one random map: each block is read or written.
    shares_map: bool,
    /// Passes until the end.
    passes_due: u32,
    /// Bytes to move; `None` if only time ends the job.
    left: Option<u64>,
    ios_left: Option<u64>,
    /// The file of the next transfer.
    file: usize,
    /// Writes begun since the last sync, which the next sync waits for.
    writes_since_sync: u32,
    /// The disk is full.
    is_full: bool,
}

impl<'a> Run<'a> {
    pub(super) fn new(worker: &'a Worker, files: Vec<OpenFile>, shared: &'a Shared) -> Self {
        let job = &worker.job;
        let seed = seed_of(worker);
        let all: u64 = files.iter().map(|file| file.range.len).fold(0, u64::saturating_add);
        let stated = match job.size {
            // Files with `filesize` are moved once, or in part.
            Some(size) if job.file_bytes.is_some() => size.of(all).min(all),
            Some(Size::Bytes(bytes)) => bytes,
            _ => all,
        };
        let bytes = job.io_bytes.map_or(stated, |share| share.of(stated));
        let start = now();
        Self {
            worker,
            files,
            shared,
            account: Account::new(worker, start),
            written: Written::default(),
            // Blocks of an earlier run have other numbers, so they are detected.
            stamp: Stamp { seed: job.seed.unwrap_or(0), number: entropy() },
            random: Random::new(seed ^ 0x5eed),
            pace: Pace::new(start),
            deadline: job.runtime.map(|runtime| start + job.ramp_time + runtime),
            bytes,
            shares_map: job.has_random_map() && job.blocks[0] == job.blocks[1],
            passes_due: 0,
            left: None,
            ios_left: None,
            file: 0,
            writes_since_sync: 0,
            is_full: false,
        }
    }

    /// Whether the job is over, independent of the bytes left.
    pub(super) fn is_over(&self, at: Duration) -> bool {
        let is_late = self.deadline.is_some_and(|deadline| at >= deadline);
        is_late || self.is_full || self.shared.is_stopped(self.worker.number)
    }

    /// Begin with the next `passes` over the files.
    pub(super) fn begin_passes(&mut self, passes: u32) {
        let job = &self.worker.job;
        self.left = (!job.time_based).then(|| self.bytes.saturating_mul(u64::from(passes)));
        self.ios_left = job.ios.map(|ios| ios.saturating_mul(u64::from(passes)));
        self.passes_due += passes;
    }

    /// Sync and drop cached pages, so that verification reads the disk. As in fio this sync is not counted.
    pub(super) fn empty_caches(&self) -> Result<(), JobError> {
        let is_cached = self.written.len() > 0 && !self.worker.job.direct && !self.shared.is_cancelled();
        for file in self.files.iter().filter(|_| is_cached) {
            let emptied = file.handle.sync_all().and_then(|()| file.handle.drop_cached());
            emptied.map_err(self.worker.blame(&file.range.path))?;
        }
        Ok(())
    }

    /// The next step at this time.
    pub(super) fn next(&mut self, at: Duration) -> Step {
        let job = &self.worker.job;
        if self.is_over(at) || self.ios_left == Some(0) {
            return Step::Over;
        }
        let direction = match (job.pattern.reads(), job.pattern.writes()) {
            (true, true) => {
                let drawn = usize::from(self.random.below(100) >= u64::from(job.read_percent));
                // Each direction has its own rate. If only one is due, it goes.
                let (due, other) = (self.pace.due(drawn), self.pace.due(1 - drawn));
                if due > at && other < due { 1 - drawn } else { drawn }
            }
            (_, writes) => usize::from(writes),
        };
        let sizes = &job.blocks[direction];
        let least = sizes.least();
        let wanted =
            if sizes.is_one() { least } else { sizes.pick(self.random.fraction(), job.blocks_unaligned) };
        if self.left.is_some_and(|left| left < least) || self.has_ended_by_pass() {
            return Step::Over;
        }
        let due = self.pace.due(direction);
        if due > at {
            return Step::Wait(due.min(self.deadline.unwrap_or(due)));
        }
        let wanted =
            self.left.map_or(wanted, |left| if left < wanted { left - left % least } else { wanted });
        let file = self.file;
        self.file = (file + 1) % self.files.len();
        let map = self.map_of(direction);
        let (offset, len) = self.files[file].offsets[map].next(wanted);
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(len);
        }
        if let Some(left) = &mut self.ios_left {
            *left -= 1;
        }
        self.pace.started(job, direction, len);
        self.writes_since_sync += u32::from(direction == 1);
        let offset = self.files[file].range.offset + offset;
        Step::Go(Transfer { direction, file, offset, len: len as usize, start: at, submitted: None })
    }

    /// Which offsets a direction uses.
    fn map_of(&self, direction: usize) -> usize {
        if self.shares_map && direction == 1 { 0 } else { direction }
    }

    /// Whether all passes have ended. With unaligned sizes, or steps, a pass moves fewer bytes than its range has.
    fn has_ended_by_pass(&self) -> bool {
        let job = &self.worker.job;
        let moves_less = job.blocks_unaligned && job.has_random_map() || job.step > 0;
        let counts = moves_less && job.io_bytes.is_none() && !job.time_based;
        let direction = usize::from(job.pattern.writes());
        let map = self.map_of(direction);
        counts && self.files.iter().all(|file| file.offsets[map].has_ended(self.passes_due))
    }

    /// Fill the block of a write. The transfer starts after that.
    pub(super) fn prepare(&mut self, transfer: &mut Transfer, memory: &mut [u8]) {
        let job = &self.worker.job;
        match transfer.direction {
            1 if job.verify.is_on() => {
                self.stamp.number = self.stamp.number.wrapping_add(1);
                job.verify.fill(memory, transfer.offset, self.stamp);
                if job.verify.after {
                    // In the order in which writes to one block take effect.
                    let Transfer { file, offset, len, .. } = *transfer;
                    self.written.insert(Block { file, offset, len, number: self.stamp.number });
                }
                transfer.start = now();
            }
            _ => {}
        }
    }

    /// A transfer has ended: count it, and verify a read.
    pub(super) fn ended(
        &mut self,
        transfer: &Transfer,
        result: diorite::Result<usize>,
        memory: &[u8],
    ) -> Result<(), JobError> {
        let job = &self.worker.job;
        let moved = match result {
            Ok(moved) => moved,
            Err(error) => return self.failed(transfer, error),
        };
        let end = now();
        self.pace.finished(job, end);
        self.account.record(transfer, moved, end);
        match transfer.direction {
            0 if job.verify.is_on() && !job.pattern.writes() && job.verify.after => {
                let Transfer { file, offset, len, .. } = *transfer;
                self.check_block((file, offset, len), &memory[..moved], None)
            }
            // The content after a short write is not verified.
            1 if moved < transfer.len => {
                self.written.remove(transfer.file, transfer.offset, transfer.len);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A transfer has failed: count the error, or end the job with it.
    pub(super) fn failed(&mut self, transfer: &Transfer, error: diorite::Error) -> Result<(), JobError> {
        // As in fio a quota ends a job that fills, too.
        const FULL: [i32; 2] = [Errno::NOSPC.raw_os_error(), Errno::DQUOT.raw_os_error()];
        let job = &self.worker.job;
        self.pace.finished(job, now());
        let number = error.errno();
        if transfer.direction == 1 {
            self.written.remove(transfer.file, transfer.offset, transfer.len);
        }
        if transfer.direction == 1 && job.fills_device && FULL.contains(&number) {
            self.is_full = true;
            return Ok(());
        }
        if [job.tolerance.reads, job.tolerance.writes][transfer.direction] {
            self.account.failed(number);
            return Ok(());
        }
        Err(self.worker.blame(&self.files[transfer.file].range.path)(error))
    }

    /// Whether a sync or a verification is due, for which nothing may be in flight.
    pub(super) fn must_settle(&self) -> bool {
        let job = &self.worker.job;
        let is_due = |every: Option<u32>| every.is_some_and(|every| self.writes_since_sync >= every);
        is_due(job.fsync_every) || is_due(job.fdatasync_every) || self.must_verify()
    }

    /// Whether `verify_backlog` blocks were written.
    fn must_verify(&self) -> bool {
        let verify = &self.worker.job.verify;
        verify.after && verify.backlog.is_some_and(|backlog| self.written.len() >= backlog as usize)
    }

    /// Sync and verify what is due. Nothing is in flight.
    pub(super) fn settle(&mut self) -> Result<(), JobError> {
        let job = &self.worker.job;
        if job.fsync_every.is_some_and(|every| self.writes_since_sync >= every) {
            self.sync(Handle::sync_all)?;
        } else if job.fdatasync_every.is_some_and(|every| self.writes_since_sync >= every) {
            self.sync(Handle::sync_data)?;
        }
        if self.must_verify() { self.verify_written() } else { Ok(()) }
    }

    pub(super) fn sync(&mut self, sync: impl Fn(&Handle) -> diorite::Result<()>) -> Result<(), JobError> {
        for file in &self.files {
            let start = now();
            sync(&file.handle).map_err(self.worker.blame(&file.range.path))?;
            self.account.synced(start, now());
        }
        self.writes_since_sync = 0;
        Ok(())
    }

    /// Read back and check written blocks. As in fio these reads are reads of the job.
    pub(super) fn verify_written(&mut self) -> Result<(), JobError> {
        if self.written.len() == 0 {
            return Ok(());
        }
        let most = self.worker.job.blocks[1].most();
        let mut memory = diorite::AlignedBuf::zeroed(most as usize, 4096);
        self.account.begin_verification(now());
        let checked =
            self.written.take().into_iter().try_for_each(|block| self.verify_block(block, &mut memory));
        let end = now();
        self.account.end_verification(end);
        checked
    }

    /// Read back and check one block.
    fn verify_block(&mut self, block: Block, memory: &mut [u8]) -> Result<(), JobError> {
        if self.shared.is_cancelled() {
            return Ok(());
        }
        let Block { file, offset, len, number } = block;
        let start = now();
        let open = &self.files[file];
        let moved = open.handle.read_at(&mut memory[..len], offset);
        let moved = moved.map_err(self.worker.blame(&open.range.path))?;
        let transfer = Transfer { direction: 0, file, offset, len, start, submitted: None };
        self.account.record(&transfer, moved, now());
        // With several writers the last write may be of another job.
        let is_shared = self.shared.is_written_by_several(&open.range.path);
        self.check_block((file, offset, len), &memory[..moved], (!is_shared).then_some(number))
    }

    /// Check the bytes that were read of a block of `len` bytes.
    fn check_block(
        &mut self,
        (file, offset, len): (usize, u64, usize),
        memory: &[u8],
        number: Option<u64>,
    ) -> Result<(), JobError> {
        let job = &self.worker.job;
        let checked = if memory.len() < len {
            Err(Mismatch {
                offset: offset + memory.len() as u64,
                what: "the file ends here, before the end of a block",
            })
        } else {
            job.verify.check(memory, offset, number)
        };
        let Err(wrong) = checked else { return Ok(()) };
        let path = &self.files[file].range.path;
        if job.tolerance.verify {
            // EILSEQ, as in fio.
            self.account.failed(84);
            return Ok(());
        }
        let (job, file) = (self.worker.title(), path.display().to_string());
        Err(JobError::Verify { job, file, offset: wrong.offset, what: wrong.what })
    }
}

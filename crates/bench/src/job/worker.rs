//! One clone of one job: moves its data, and measures.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use diorite_block::sync::now;
use diorite_block::{IoOwner, TaskId};
use rustix::io::Errno;

use super::account::{Account, Transfer};
use super::content::Contents;
use super::files::{FileRange, ranges};
use super::handle::Handle;
use super::offsets::{Offsets, Random};
use super::pace::Pace;
use super::place::FileUse;
use super::result::JobResult;
use super::shared::Shared;
use super::spec::{FileOrder, Size};
use super::steady::DepthSearch;
use super::usage::Usage;
use super::verify::{Stamp, Wrong};
use super::written::{Block, Written};
use super::{Engine, Job, JobError, Place};

/// What one thread is to do.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) job: Job,
    pub(crate) paths: Vec<PathBuf>,
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
    pub(super) fn blame<'a>(&'a self, path: &'a std::path::Path) -> impl Fn(diorite::Error) -> JobError + 'a {
        |source| JobError::File {
            job: format!("{}: [{}]", self.job.file_origin, self.job.name),
            file: path.display().to_string(),
            source: Box::new(source),
        }
    }

    /// As [`Self::blame`], the first of its files.
    pub(super) fn blame_first(&self) -> impl Fn(diorite::Error) -> JobError + '_ {
        self.blame(self.paths.first().map_or(std::path::Path::new(""), PathBuf::as_path))
    }
}

/// Run one worker on the calling thread: what it did, and why it ended before its end.
pub(super) fn run_worker(
    worker: &Worker,
    place: &dyn Place,
    shared: &Arc<Shared>,
) -> (JobResult, Option<JobError>) {
    let job = &worker.job;
    if let Some(name) = &job.wait_for {
        shared.wait_for(worker, name);
    }
    let _owner = IoOwner { task: worker.task(), priority: job.priority }.enter();
    shared.sleep_until(worker.number, now().saturating_add(job.start_delay));
    let (files, failed) = match open_files(worker, place, shared) {
        Ok(files) => (files, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let used = Usage::of_this_thread();
    let start = now();
    let mut run = Run::new(worker, files, shared);
    let failed = failed.or_else(|| run.work().err());
    let ended = now();
    if let Some(search) = &run.search {
        (run.account.result.depth, run.account.result.latency_target) = (search.found(), job.latency_target);
    }
    if let Some(scheduler) = place.scheduler() {
        scheduler.owner_ended(worker.task());
    }
    let mut result = run.account.finish(ended, worker.number + 1);
    result.usage = Usage::of_this_thread().since(&used);
    result.elapsed = ended.saturating_sub(start);
    result.longest = result.elapsed;
    let failed = failed.or_else(|| remove_files(worker, place).err());
    if let Some(error) = &failed {
        result.first_error.get_or_insert(error.errno());
    }
    (result, failed)
}

/// Remove the files of a job, if it is to.
fn remove_files(worker: &Worker, place: &dyn Place) -> Result<(), JobError> {
    for path in worker.paths.iter().filter(|_| worker.job.unlink) {
        match place.remove(path) {
            // Another clone of the job was faster.
            Err(error) if error.kind() == diorite::ErrorKind::NotFound => {}
            removed => removed.map_err(worker.blame(path))?,
        }
    }
    Ok(())
}

fn open_files(worker: &Worker, place: &dyn Place, shared: &Shared) -> Result<Vec<OpenFile>, JobError> {
    let job = &worker.job;
    let seed = seed_of(worker);
    let open = |(index, range): (usize, FileRange)| {
        // Jobs that share a file share how it is open.
        let write = job.pattern.changes() || job.direct && shared.is_written(&range.path);
        let purpose = FileUse { write, create: !job.must_exist, direct: job.direct };
        let handle = place.open_handle(&range.path, purpose).map_err(worker.blame(&range.path))?;
        if job.invalidate {
            handle.drop_cached().map_err(worker.blame(&range.path))?;
        }
        let seed = seed.wrapping_add((index as u64) << 32);
        // Reads of a mix do not follow its writes from place to place.
        let apart = u64::from(job.pattern.reads() && job.pattern.writes()) << 48;
        let seed_of = |direction: usize| seed.wrapping_add(apart * direction as u64);
        let offsets =
            std::array::from_fn(|direction| Offsets::new(job, direction, range.len, seed_of(direction)));
        Ok(OpenFile { handle, range, offsets, moved: 0 })
    };
    ranges(worker, place)?.into_iter().enumerate().map(open).collect()
}

/// What a worker's random choices begin with.
fn seed_of(worker: &Worker) -> u64 {
    worker.job.seed.map_or_else(
        // In a simulation another run is the same run.
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
    /// Of reads, writes and holes.
    offsets: [Offsets; 3],
    moved: u64,
}

/// What a worker does next.
pub(super) enum Step {
    /// This, now.
    Go(Transfer),
    /// Nothing until then.
    Wait(Duration),
    /// Nothing more.
    Over,
}

/// A worker at work.
pub(super) struct Run<'a> {
    pub(super) worker: &'a Worker,
    pub(super) files: Vec<OpenFile>,
    pub(super) shared: &'a Shared,
    pub(super) account: Account<'a>,
    pub(super) contents: Contents,
    pub(super) written: Written,
    /// What the last write was made of.
    stamp: Stamp,
    pub(super) search: Option<DepthSearch>,
    random: Random,
    pace: Pace,
    deadline: Option<Duration>,
    /// Bytes that are still to be moved; `None` while only time ends the job.
    left: Option<u64>,
    ios_left: Option<u64>,
    /// Which file is next, and for how many transfers.
    file: usize,
    turns: u32,
    /// Begun since the last sync. The next one waits for them.
    writes_since_sync: u32,
    /// Ended by what it found: no space, a steady rate, a depth.
    is_over: bool,
}

impl<'a> Run<'a> {
    fn new(worker: &'a Worker, files: Vec<OpenFile>, shared: &'a Shared) -> Self {
        let job = &worker.job;
        let seed = seed_of(worker);
        let all: u64 = files.iter().map(|file| file.range.len).fold(0, u64::saturating_add);
        let stated = match job.size {
            // Files of their own size are read and written once.
            Some(Size::Bytes(bytes)) if job.file_bytes.is_some() => bytes.min(all),
            Some(Size::Bytes(bytes)) => bytes,
            _ => all,
        };
        let bytes = job.io_bytes.unwrap_or(stated);
        let start = now();
        let blocks = bytes / job.blocks[1].least();
        Self {
            worker,
            files,
            shared,
            account: Account::new(worker, start),
            contents: Contents::new(&job.filling, blocks, seed ^ 0xf1, &shared.contents),
            written: Written::default(),
            // Blocks of an earlier run have other numbers as well.
            stamp: Stamp { seed: job.seed.unwrap_or(0), number: entropy() },
            search: job.latency_target.map(|target| DepthSearch::new(target, job.depth, start)),
            random: Random::new(seed ^ 0x5eed),
            pace: Pace::new(job, start, seed ^ 0x9ace),
            deadline: job.runtime.map(|runtime| start + job.ramp_time + runtime),
            left: (!job.time_based).then(|| bytes.saturating_mul(u64::from(job.loops))),
            ios_left: job.ios.map(|ios| ios.saturating_mul(u64::from(job.loops))),
            file: 0,
            turns: 0,
            writes_since_sync: 0,
            is_over: false,
        }
    }

    /// All that the job does with its files.
    fn work(&mut self) -> Result<(), JobError> {
        let job = &self.worker.job;
        // One transfer at a time needs no queue: the call that waits for it can submit it, too.
        if job.engine == Engine::Queue && job.direct && job.depth > 1 && !job.pattern.trims() {
            self.queued()?;
        } else {
            self.synchronous()?;
        }
        if job.end_fsync {
            self.sync(Handle::sync_all)?;
        }
        if !job.verify.after {
            return Ok(());
        }
        self.empty_caches()?;
        self.verify_written()
    }

    /// What is read back from now on comes from the disk, not from the cache that was written to. As in fio it is no sync of the job.
    fn empty_caches(&self) -> Result<(), JobError> {
        let is_cached = self.written.len() > 0 && !self.worker.job.direct && !self.shared.is_cancelled();
        for file in self.files.iter().filter(|_| is_cached) {
            let emptied = file.handle.sync_all().and_then(|()| file.handle.drop_cached());
            emptied.map_err(self.worker.blame(&file.range.path))?;
        }
        Ok(())
    }

    /// What is next, at this time.
    pub(super) fn next(&mut self, at: Duration) -> Step {
        let job = &self.worker.job;
        let is_late = self.deadline.is_some_and(|deadline| at >= deadline);
        if is_late || self.is_over || self.ios_left == Some(0) || self.shared.is_stopped(self.worker.number) {
            return Step::Over;
        }
        let direction = match (job.pattern.reads(), job.pattern.writes()) {
            (true, true) => {
                let drawn = usize::from(self.random.below(100) >= u64::from(job.read_percent));
                // Each direction has its own rate: what is due goes.
                let (due, other) = (self.pace.due(drawn), self.pace.due(1 - drawn));
                if due > at && other < due { 1 - drawn } else { drawn }
            }
            (false, true) => 1,
            (true, false) => 0,
            (false, false) => 2,
        };
        let sizes = &job.blocks[direction];
        let wanted = if sizes.is_one() { sizes.least() } else { sizes.pick(self.random.fraction()) };
        if self.left.is_some_and(|left| left < wanted.min(sizes.least())) {
            return Step::Over;
        }
        let due = self.pace.due(direction);
        if due > at {
            return Step::Wait(due.min(self.deadline.unwrap_or(due)));
        }
        if let Some(flow) = &job.flow
            && self.shared.is_ahead(self.worker.number, flow)
        {
            return Step::Wait(at + flow.sleep.max(Duration::from_micros(50)));
        }
        let wanted = self.left.map_or(wanted, |left| if left < wanted { sizes.least() } else { wanted });
        let file = self.turn();
        let (offset, len) = self.files[file].offsets[direction].next(wanted);
        self.files[file].moved += len;
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(len);
        }
        if let Some(left) = &mut self.ios_left {
            *left -= 1;
        }
        self.pace.started(job, direction, len);
        self.writes_since_sync += u32::from(direction == 1);
        let offset = self.files[file].range.offset + offset;
        let priority = job.command_priority.filter(|own| {
            direction < 2
                && own.percent[direction] > 0
                && self.random.below(100) < u64::from(own.percent[direction])
        });
        let priority = priority.map_or(job.priority, |own| own.priority);
        Step::Go(Transfer {
            direction,
            file,
            offset,
            len: len as usize,
            start: at,
            submitted: None,
            priority,
        })
    }

    /// The file whose turn it is.
    fn turn(&mut self) -> usize {
        let count = self.files.len();
        if count == 1 {
            return 0;
        }
        let is_done = match self.worker.job.file_order {
            FileOrder::RoundRobin(turns) | FileOrder::Random(turns) => self.turns >= turns,
            FileOrder::Sequential => self.files[self.file].moved >= self.files[self.file].range.len,
        };
        if is_done {
            self.turns = 0;
            self.files[self.file].moved = 0;
            self.file = match self.worker.job.file_order {
                FileOrder::Random(_) => self.random.below(count as u64) as usize,
                _ => (self.file + 1) % count,
            };
        }
        self.turns += 1;
        self.file
    }

    /// Give a block that is written its content; when the transfer starts.
    pub(super) fn prepare(&mut self, transfer: &mut Transfer, memory: &mut [u8]) {
        let job = &self.worker.job;
        match transfer.direction {
            1 if job.verify.is_on() => {
                self.stamp.number = self.stamp.number.wrapping_add(1);
                job.verify.fill(memory, transfer.offset, self.stamp);
                if job.verify.after {
                    // In the order in which writes of one block take effect.
                    let Transfer { file, offset, len, .. } = *transfer;
                    self.written.insert(Block { file, offset, len, number: self.stamp.number });
                }
                transfer.start = now();
            }
            1 if job.filling.is_per_write() => {
                self.contents.refill(memory);
                transfer.start = now();
            }
            _ => {}
        }
    }

    /// A transfer has ended: count it, check what was read, and see what follows.
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
        let is_steady = self.account.record(transfer, moved, end);
        let latency = end.saturating_sub(transfer.submitted.unwrap_or(transfer.start));
        self.is_over |= is_steady || self.search.as_mut().is_some_and(|search| search.took(latency, end));
        if let Err(slow) = self.pace.ended(job, transfer.direction, moved as u64, end) {
            let super::pace::TooSlow { target, measured, unit } = slow;
            return Err(JobError::TooSlow { job: self.worker.title(), target, measured, unit });
        }
        match transfer.direction {
            0 if job.verify.is_on() && !job.pattern.writes() && job.verify.after => {
                let Transfer { file, offset, len, .. } = *transfer;
                self.check_block((file, offset, len), &memory[..moved], None)
            }
            // What a block holds that was written in part is not known; nor where there is a hole.
            1 if moved == transfer.len => Ok(()),
            1 | 2 => {
                self.written.remove(transfer.file, transfer.offset, transfer.len);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A transfer has failed. Whether that ends the job.
    pub(super) fn failed(&mut self, transfer: &Transfer, error: diorite::Error) -> Result<(), JobError> {
        // Of the volume, or of the host.
        const FULL: [i32; 2] = [Errno::NOSPC.raw_os_error(), Errno::DQUOT.raw_os_error()];
        let job = &self.worker.job;
        self.pace.finished(job, now());
        let number = error.errno();
        if transfer.direction > 0 {
            self.written.remove(transfer.file, transfer.offset, transfer.len);
        }
        if transfer.direction == 1 && job.fills_device && FULL.contains(&number) {
            self.is_over = true;
            return Ok(());
        }
        let side = usize::from(transfer.direction > 0);
        if job.tolerance.ignored[side].contains(&number) {
            return Ok(());
        }
        if [job.tolerance.reads, job.tolerance.writes][side] {
            self.account.failed(number);
            return Ok(());
        }
        Err(self.worker.blame(&self.files[transfer.file].range.path)(error))
    }

    /// Whether something must be done for which nothing may be in flight.
    pub(super) fn must_settle(&self) -> bool {
        let job = &self.worker.job;
        let is_due = |every: Option<u32>| every.is_some_and(|every| self.writes_since_sync >= every);
        is_due(job.fsync_every) || is_due(job.fdatasync_every) || self.must_verify()
    }

    /// Whether so much was written that it is to be read back.
    fn must_verify(&self) -> bool {
        let verify = &self.worker.job.verify;
        verify.after && verify.backlog.is_some_and(|backlog| self.written.len() >= backlog as usize)
    }

    /// Syncs and checks that are due. Nothing is in flight.
    pub(super) fn settle(&mut self) -> Result<(), JobError> {
        let job = &self.worker.job;
        if job.fsync_every.is_some_and(|every| self.writes_since_sync >= every) {
            self.sync(Handle::sync_all)?;
        } else if job.fdatasync_every.is_some_and(|every| self.writes_since_sync >= every) {
            self.sync(Handle::sync_data)?;
        }
        if self.must_verify() { self.verify_written() } else { Ok(()) }
    }

    fn sync(&mut self, sync: impl Fn(&Handle) -> diorite::Result<()>) -> Result<(), JobError> {
        for file in &self.files {
            let start = now();
            sync(&file.handle).map_err(self.worker.blame(&file.range.path))?;
            self.account.synced(start, now());
        }
        self.writes_since_sync = 0;
        Ok(())
    }

    /// Read back and check what was written. As in fio these are reads of the job.
    fn verify_written(&mut self) -> Result<(), JobError> {
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
        self.pace.resume(end);
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
        let priority = self.worker.job.priority;
        let transfer = Transfer { direction: 0, file, offset, len, start, submitted: None, priority };
        self.account.record(&transfer, moved, now());
        // Another job may have written it since.
        let is_shared = self.shared.is_written_by_several(&open.range.path);
        self.check_block((file, offset, len), &memory[..moved], (!is_shared).then_some(number))
    }

    /// Check what was read where a block of `len` bytes should be.
    fn check_block(
        &mut self,
        (file, offset, len): (usize, u64, usize),
        memory: &[u8],
        number: Option<u64>,
    ) -> Result<(), JobError> {
        let job = &self.worker.job;
        let checked = if memory.len() < len {
            Err(Wrong {
                offset: offset + memory.len() as u64,
                what: "the file ends here, within or before a block",
            })
        } else {
            job.verify.check(memory, offset, number)
        };
        let Err(wrong) = checked else { return Ok(()) };
        let path = &self.files[file].range.path;
        if job.verify.dump {
            let stamp = Stamp { seed: self.stamp.seed, number: number.unwrap_or(self.stamp.number) };
            super::written::dump(path, offset, memory, &job.verify, stamp);
        }
        if job.tolerance.verify {
            // EILSEQ, as in fio.
            self.account.failed(84);
            return Ok(());
        }
        let (job, file) = (self.worker.title(), path.display().to_string());
        Err(JobError::Verify { job, file, offset: wrong.offset, what: wrong.what })
    }
}

//! The workload before the power cut: calls of every kind from one or several threads, each reported to the oracle.
//!
//! Each thread has files of its own, which it may cut, rename and remove, and all have one file in common, of which each
//! thread writes its own part. Handles are kept for long, and several of different kinds are open on one file.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use diorite::{AlignedBuf, DirectQueue, File, Filesystem, FilesystemOptions, OpenOptions};
use diorite_block::BlockDevice;
use diorite_sim::crash::RecordingDevice;
use diorite_sim::faults::Fault;

use super::oracle::{Change, FileLog};
use crate::access::{Access, Outcome, tell};
use crate::formats::Format;
use crate::random::{Random, stamp_bytes, stamped};

/// Bytes of each thread's part of the file that all write.
const PART: u64 = 96 << 10;
/// Largest size of a thread's own files.
pub(super) const LARGEST: u64 = 160 << 10;
/// Prefix of errors of [`Shared::sync_everything`].
const SYNC_EVERYTHING: &str = "Filesystem::sync";
/// Files of each thread.
const FILES: usize = 3;

/// The operations to try.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// The volume.
    pub format: Format,
    /// Threads that work at once.
    pub threads: usize,
    /// Calls of each.
    pub calls: usize,
    /// Fault that is injected once the volume is in use; transfers are counted from then on.
    pub fault: Option<Fault>,
}

/// An error that a caller got, with the moments of the call's begin and end.
#[derive(Clone, Debug)]
pub struct ReportedError {
    /// When the call began.
    pub begin: usize,
    /// When it returned.
    pub end: usize,
    /// The file that the call was about; `None` for calls about the whole volume.
    pub file: Option<usize>,
    /// Its output.
    pub what: String,
}

/// All files by number.
#[derive(Debug, Default)]
pub struct Oracle {
    /// The files.
    pub files: Vec<FileLog>,
    /// Errors that callers got.
    pub errors: Vec<ReportedError>,
    next_name: u64,
    next_stamp: u64,
}

impl Oracle {
    fn stamp(&mut self) -> u64 {
        self.next_stamp += 1;
        self.next_stamp
    }

    pub(super) fn fresh_name(&mut self, random: &mut Random) -> String {
        self.next_name += 1;
        format!("{}/f{}", random.pick(&["", "/a", "/b"]), self.next_name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durable {
    No,
    Data,
    All,
}

#[derive(Debug)]
pub(super) struct Open {
    pub(super) file: File,
    way: Access,
    durable: Durable,
}

/// A file that a thread works on, and its handles.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) number: usize,
    pub(super) handles: Vec<Open>,
    /// Where it may write.
    part: std::ops::Range<u64>,
    /// Whether no other thread uses it.
    pub(super) own: bool,
    /// The last write: many bugs need the same range to be written again by another call.
    last: (u64, u64),
}

/// State that all threads share.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) disk: Arc<RecordingDevice>,
    pub(super) filesystem: Filesystem,
    oracle: Arc<Mutex<Oracle>>,
    journal: bool,
    /// Whether bytes can be moved within a file, whole or not at all.
    pub(super) moves: bool,
}

impl Shared {
    pub(super) fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A moment of its own: which of two calls came first is never in doubt.
    pub(super) fn now(&self) -> usize {
        self.disk.mark(0)
    }

    /// Make a call that changes a file, and tell the oracle of it.
    fn change(
        &self,
        number: usize,
        durable: Durable,
        change: Change,
        call: impl FnOnce() -> Outcome,
    ) -> Outcome {
        let operation = {
            let now = self.now();
            self.oracle().files[number].begin(now, durable != Durable::No, change)
        };
        call()?;
        let now = self.now();
        self.oracle().files[number].end(operation, now);
        Ok(())
    }

    /// Make a call that changes a name of a file, and tell the oracle of it. `begin` returns the place of the name.
    pub(super) fn change_name(
        &self,
        number: usize,
        begin: impl FnOnce(&mut FileLog, usize) -> usize,
        call: impl FnOnce() -> Outcome,
    ) -> Outcome {
        let now = self.now();
        let place = begin(&mut self.oracle().files[number], now);
        call()?;
        let now = self.now();
        self.oracle().files[number].names.end(place, now);
        Ok(())
    }

    fn synced(&self, begin: usize, number: usize, names: bool) {
        let now = self.now();
        self.oracle().files[number].synced(begin, now, names);
    }

    pub(super) fn path(&self, number: usize) -> Option<String> {
        self.oracle().files[number].names.current().map(str::to_owned)
    }

    fn options(&self, way: Access, durable: Durable) -> OpenOptions<Filesystem> {
        way.options(self.filesystem.open_options())
            .dsync(durable != Durable::No)
            .sync(durable == Durable::All)
    }

    fn open(&self, number: usize, own: bool, random: &mut Random) -> Outcome<Open> {
        let way = random.pick(&[Access::Cached, Access::Cached, Access::Direct, Access::Bounced]);
        let all = [Durable::Data, Durable::All, Durable::No, Durable::No, Durable::No];
        let durable = random.pick(if own { &all } else { &all[..3] });
        let path = self.path(number).ok_or("no name")?;
        let options = self.options(way, durable);
        let file = tell(options.open(&path), "open")?;
        Ok(Open { file, way, durable })
    }

    pub(super) fn create(&self, random: &mut Random) -> Outcome<usize> {
        let (number, path) = {
            let now = self.now();
            let mut oracle = self.oracle();
            let path = oracle.fresh_name(random);
            let mut log = FileLog::default();
            log.names.begin(now, Some(path.clone()));
            oracle.files.push(log);
            (oracle.files.len() - 1, path)
        };
        let options = self.filesystem.open_options().read(true).write(true).create_new(true);
        let file = tell(options.open(&path), "create")?;
        let inode = tell(file.metadata(), "stat")?.inode.0;
        let now = self.now();
        let log = &mut self.oracle().files[number];
        log.inode = Some(inode);
        log.names.end(0, now);
        Ok(number)
    }

    fn sync_everything(&self) -> Outcome {
        let begin = self.now();
        if let Err(error) = self.filesystem.sync() {
            self.oracle().files.iter_mut().for_each(FileLog::give_up);
            return tell(Err(error), SYNC_EVERYTHING);
        }
        let now = self.now();
        self.oracle().files.iter_mut().for_each(|log| log.synced(begin, now, true));
        Ok(())
    }
}

/// A thread of the workload.
pub(super) struct Worker {
    pub(super) shared: Shared,
    pub(super) random: Random,
    pub(super) slots: Vec<Slot>,
    pub(super) block: u64,
}

impl Worker {
    fn run(&mut self, calls: usize) -> Outcome {
        for call in 0..calls {
            let slot = self.random.index(self.slots.len());
            let (number, begin) = (self.slots[slot].number, self.shared.now());
            if let Err(what) = self.step(slot) {
                if !self.is_right(&what) {
                    return Err(format!("call {call} on file {number}: {what}"));
                }
                let file = (!what.starts_with(SYNC_EVERYTHING)).then_some(number);
                let heard = ReportedError { begin, end: self.shared.now(), file, what };
                self.shared.oracle().errors.push(heard);
                // A queue that was dropped and a name that may be either: go on with new handles.
                self.slots[slot].handles.clear();
            }
            if self.random.one_in(12) {
                // Background write-back and commits come in between.
                diorite_block::sync::sleep(Duration::from_millis(self.random.below(8000)));
            }
        }
        Ok(())
    }

    /// An error is right if a transfer had failed, and if it says so.
    fn is_right(&self, what: &str) -> bool {
        const IO_OR_READ_ONLY: [&str; 2] = ["(errno 5)", "(errno 30)"];
        // Of a create, rename or remove that failed, it is not said whether its name is there.
        const NAMES: [&str; 2] = ["(errno 2)", "(errno 17)"];
        let is_right = IO_OR_READ_ONLY.iter().chain(&NAMES).any(|errno| what.contains(errno));
        self.shared.disk.failed() > 0 && is_right
    }

    fn step(&mut self, slot: usize) -> Outcome {
        if self.shared.path(self.slots[slot].number).is_none() {
            return self.recreate(slot);
        }
        if self.slots[slot].handles.is_empty() {
            let open = self.shared.open(self.slots[slot].number, self.slots[slot].own, &mut self.random)?;
            self.slots[slot].handles.push(open);
        }
        match self.random.below(100) {
            0..34 => self.write(slot),
            34..36 => self.shift(slot),
            36..38 => self.link(slot),
            38..44 => self.write_by_queue(slot),
            44..52 => self.resize(slot),
            52..55 => self.zero(slot),
            55..57 => self.allocate(slot),
            57..68 | 89..92 => self.sync(slot),
            68..71 => self.shared.sync_everything(),
            71..79 => self.reopen(slot),
            79..82 => self.drop_cached(slot),
            82..86 => self.rename(slot),
            86..89 => self.remove(slot),
            _ => self.read(slot),
        }
    }

    pub(super) fn size(&self, slot: usize) -> u64 {
        self.slots[slot].handles[0].file.size()
    }

    pub(super) fn handle(&mut self, slot: usize) -> usize {
        let count = self.slots[slot].handles.len();
        self.random.index(count)
    }

    /// A range to write: small and large, at block edges, at the end, beyond it.
    fn range(&mut self, slot: usize, unit: u64) -> (u64, u64) {
        let (last, end) = (self.slots[slot].last, self.slots[slot].last.0 + self.slots[slot].last.1);
        if last.1 > 0 && last.0.is_multiple_of(unit) && end.is_multiple_of(unit) && self.random.one_in(4) {
            return last;
        }
        let (part, size) = (self.slots[slot].part.clone(), self.size(slot));
        let (block, random) = (self.block, &mut self.random);
        let len = match random.below(5) {
            0 => random.within(1..600),
            1 => random.within(1..5) * 512,
            2 => block,
            3 => random.within(1..6) * block,
            _ => random.within(1..20_000),
        };
        let offset = match random.below(6) {
            0 => size.max(part.start),
            1 => size.max(part.start) + random.below(3 * block),
            2 => random.within(part.clone()) / block * block,
            3 => size.saturating_sub(random.below(2 * block)).max(part.start),
            _ => random.within(part.clone()),
        };
        let offset = (offset.min(part.end - 1) / unit * unit).max(part.start);
        let len = len.next_multiple_of(unit).min(part.end - offset).min(64 << 10);
        self.slots[slot].last = (offset, len);
        (offset, len)
    }

    pub(super) fn write(&mut self, slot: usize) -> Outcome {
        let at = self.handle(slot);
        let unit = if self.slots[slot].handles[at].way == Access::Direct { 512 } else { 1 };
        let (offset, len) = self.range(slot, unit);
        if len == 0 {
            return Ok(());
        }
        let (number, open) = (self.slots[slot].number, &self.slots[slot].handles[at]);
        let stamp = self.shared.oracle().stamp();
        let data = stamped(stamp, offset, len as usize);
        let what = format!("write of {len} at {offset}, {:?}, {:?}", open.way, open.durable);
        self.shared.change(number, open.durable, Change::Write { offset, len, stamp }, || {
            tell(open.file.write_all_at(&data, offset), &what)
        })
    }

    /// Several writes in flight at once, each reaped before this returns.
    fn write_by_queue(&mut self, slot: usize) -> Outcome {
        let Some(at) = self.slots[slot].handles.iter().position(|open| open.way != Access::Cached) else {
            return self.write(slot);
        };
        let number = self.slots[slot].number;
        let mut queue: DirectQueue<AlignedBuf> = DirectQueue::new(4);
        let count = self.random.within(1..5);
        let mut operations = Vec::new();
        let mut done = Vec::new();
        for tag in 0..count {
            let (offset, len) = self.range(slot, 512);
            let open = &self.slots[slot].handles[at];
            let mut memory = AlignedBuf::zeroed(len as usize, 4096);
            let (stamp, now) = (self.shared.oracle().stamp(), self.shared.now());
            stamp_bytes(stamp, offset, &mut memory);
            let change = Change::Write { offset, len, stamp };
            let durable = open.durable != Durable::No;
            operations.push(self.shared.oracle().files[number].begin(now, durable, change));
            let submitted = queue.write(&open.file, offset, memory, len as usize, tag);
            tell(submitted.map_err(diorite::Error::from), "queue")?;
            if self.random.one_in(3) {
                tell(queue.issue(), "issue")?;
            }
            if self.random.one_in(3) {
                tell(queue.reap(1, &mut done), "reap")?;
                self.finish(number, &operations, &mut done)?;
            }
        }
        while queue.in_flight() > 0 {
            tell(queue.reap(1, &mut done), "reap")?;
            self.finish(number, &operations, &mut done)?;
        }
        Ok(())
    }

    fn finish(
        &self,
        number: usize,
        operations: &[usize],
        done: &mut Vec<diorite::Finished<AlignedBuf>>,
    ) -> Outcome {
        for finished in done.drain(..) {
            tell(finished.result, "queued write")?;
            let now = self.shared.now();
            self.shared.oracle().files[number].end(operations[finished.tag as usize], now);
        }
        Ok(())
    }

    fn resize(&mut self, slot: usize) -> Outcome {
        if !self.slots[slot].own {
            return self.write(slot);
        }
        let (size, block) = (self.size(slot), self.block);
        let to = match self.random.below(6) {
            0 => self.random.below(size + 1),
            1 => size / 2 / block * block,
            2 => self.random.below(block),
            3 => size + self.random.below(3 * block),
            4 => (size / block + 2) * block,
            _ => self.random.below(LARGEST),
        };
        let to = to.min(LARGEST);
        let change =
            if to < size { Change::Truncate(to) } else { Change::Grow { size: to, in_steps: false } };
        let at = self.handle(slot);
        let (number, open) = (self.slots[slot].number, &self.slots[slot].handles[at]);
        self.shared.change(number, Durable::No, change, || tell(open.file.set_len(to), "set_len"))
    }

    fn zero(&mut self, slot: usize) -> Outcome {
        let (offset, len) = self.range(slot, 1);
        let size = self.size(slot);
        let len = len.min(size.saturating_sub(offset));
        if len == 0 || !self.slots[slot].own {
            return Ok(());
        }
        let punch = self.random.one_in(2);
        let at = self.handle(slot);
        let (number, open) = (self.slots[slot].number, &self.slots[slot].handles[at]);
        self.shared.change(number, Durable::No, Change::Zero { offset, len }, || {
            if punch {
                tell(open.file.punch_hole(offset, len), "punch_hole")
            } else {
                tell(open.file.zero_range(offset, len), "zero_range")
            }
        })
    }

    fn allocate(&mut self, slot: usize) -> Outcome {
        let (offset, len) = self.range(slot, 1);
        if len == 0 || !self.slots[slot].own {
            return Ok(());
        }
        let at = self.handle(slot);
        let size = self.size(slot).max(offset + len);
        let (number, open) = (self.slots[slot].number, &self.slots[slot].handles[at]);
        self.shared.change(number, Durable::No, Change::Grow { size, in_steps: true }, || {
            tell(open.file.allocate(offset, len), "allocate")
        })
    }

    fn sync(&mut self, slot: usize) -> Outcome {
        let at = self.handle(slot);
        let (number, file) = (self.slots[slot].number, self.slots[slot].handles[at].file.clone());
        let all = self.random.one_in(2);
        self.sync_file(number, &file, all)
    }

    pub(super) fn sync_file(&self, number: usize, file: &File, all: bool) -> Outcome {
        let begin = self.shared.now();
        let done = if all { file.sync_all() } else { file.sync_data() };
        if done.is_err() {
            // Lost data is reported once: later syncs promise nothing about it.
            self.shared.oracle().files[number].give_up();
        }
        tell(done, if all { "sync_all" } else { "sync_data" })?;
        self.shared.synced(begin, number, all && self.shared.journal);
        Ok(())
    }

    fn reopen(&mut self, slot: usize) -> Outcome {
        if self.random.one_in(2) || self.slots[slot].handles.len() > 2 {
            self.slots[slot].handles.clear();
        }
        let open = self.shared.open(self.slots[slot].number, self.slots[slot].own, &mut self.random)?;
        self.slots[slot].handles.push(open);
        Ok(())
    }

    fn drop_cached(&mut self, slot: usize) -> Outcome {
        let at = self.handle(slot);
        tell(self.slots[slot].handles[at].file.drop_cached(0, u64::MAX), "drop_cached")
    }

    /// Read all of a private file of this thread: it has the content of the calls so far.
    fn read(&mut self, slot: usize) -> Outcome {
        if !self.slots[slot].own {
            return Ok(());
        }
        let at = self.handle(slot);
        let (number, open) = (self.slots[slot].number, &self.slots[slot].handles[at]);
        let expected = self.shared.oracle().files[number].content();
        let len = (expected.len() + 1).next_multiple_of(4096);
        let found = if self.random.one_in(3) {
            let mut found = Vec::new();
            tell(open.file.view(0, len, &mut |piece| found.extend_from_slice(piece)), "view")?;
            found
        } else {
            let mut memory = AlignedBuf::zeroed(len, 4096);
            let count = tell(open.file.read_at(&mut memory, 0), "read")?;
            memory[..count].to_vec()
        };
        if found == expected {
            return Ok(());
        }
        if self.shared.disk.failed() > 0 {
            let (now, block) = (self.shared.now(), self.block);
            let round = super::oracle::Rounding { block, repaired: true };
            let log = self.shared.oracle().files[number].clone();
            return log.judge(now, &found, round).map_err(|wrong| format!("read: {}", wrong.what));
        }
        let first = found.iter().zip(&expected).position(|(a, b)| a != b);
        Err(format!(
            "read by {:?}: {} bytes, {} expected; first difference {first:?}",
            open.way,
            found.len(),
            expected.len()
        ))
    }
}

/// The result of a run: the device with its record, and the promises that were made.
#[derive(Debug)]
pub struct Ran {
    /// The device.
    pub disk: Arc<RecordingDevice>,
    /// The promises.
    pub oracle: Oracle,
    /// Events when the volume was first durable.
    pub start: usize,
    /// A fault of a call before the cut.
    pub wrong: Option<String>,
}

/// Run a plan. Call it in a simulation to have one run for one seed, or outside for real threads.
pub(super) fn run(plan: &Plan, disk: &Arc<RecordingDevice>) -> Ran {
    let oracle: Arc<Mutex<Oracle>> = Arc::default();
    let mut random = Random::new(plan.seed);
    let mut start = 0;
    let done = run_in(plan, disk, &oracle, &mut random, &mut start);
    let oracle = std::mem::take(&mut *oracle.lock().unwrap_or_else(PoisonError::into_inner));
    Ran { disk: Arc::clone(disk), oracle, start, wrong: done.err() }
}

fn run_in(
    plan: &Plan,
    disk: &Arc<RecordingDevice>,
    oracle: &Arc<Mutex<Oracle>>,
    random: &mut Random,
    start: &mut usize,
) -> Outcome {
    let device: Arc<dyn BlockDevice> = disk.clone();
    let options = FilesystemOptions::new().cache_bytes(random.pick(&[256 << 10, 4 << 20]));
    let filesystem = tell(options.open_device(device), "open the volume")?;
    let shared = Shared {
        disk: Arc::clone(disk),
        filesystem: filesystem.clone(),
        oracle: Arc::clone(oracle),
        journal: plan.format.journal,
        moves: plan.format.journal && plan.format.moves_blocks(),
    };
    for directory in ["/a", "/b"] {
        tell(filesystem.create_dir(directory), "create_dir")?;
    }
    let common = shared.create(random)?;
    let mut workers = Vec::new();
    for thread in 0..plan.threads as u64 {
        let part = thread * PART..(thread + 1) * PART;
        let mut slots = vec![Slot { number: common, handles: Vec::new(), part, own: false, last: (0, 0) }];
        for _ in 0..FILES {
            let number = shared.create(random)?;
            slots.push(Slot { number, handles: Vec::new(), part: 0..LARGEST, own: true, last: (0, 0) });
        }
        let block = u64::from(plan.format.block_size);
        workers.push(Worker { shared: shared.clone(), random: random.fork(), slots, block });
    }
    shared.sync_everything()?;
    *start = shared.now();
    disk.set_faults(plan.fault);
    let results = Arc::new(Mutex::new(Vec::new()));
    let mut threads = Vec::new();
    let last = workers.pop();
    for mut worker in workers {
        let (results, calls) = (Arc::clone(&results), plan.calls);
        let body = move || {
            let done = worker.run(calls);
            results.lock().unwrap_or_else(PoisonError::into_inner).push(done);
        };
        threads.push(diorite_block::sync::spawn("worker", body).map_err(|error| error.to_string())?);
    }
    let done = last.map_or(Ok(()), |mut worker| worker.run(plan.calls));
    threads.into_iter().for_each(diorite_block::sync::JoinHandle::join);
    let results = std::mem::take(&mut *results.lock().unwrap_or_else(PoisonError::into_inner));
    if results.len() + 1 < plan.threads {
        return Err("a thread panicked".to_owned());
    }
    if plan.fault.is_none() {
        drop(shared);
        drop(filesystem);
    } else {
        // The latest that an error may be reported: by the last sync, or when the volume is closed.
        let begin = disk.mark(0);
        let synced = shared.sync_everything();
        let reason = filesystem.read_only_reason();
        drop(shared);
        let closed = filesystem.close().map_err(|error| format!("close: {error}"));
        let end = disk.mark(0);
        let said = [synced.err(), reason, closed.err()].into_iter().flatten();
        let heard = said.map(|what| ReportedError { begin, end, file: None, what });
        oracle.lock().unwrap_or_else(PoisonError::into_inner).errors.extend(heard);
    }
    // The volume's own threads end.
    diorite_block::sync::sleep(Duration::from_millis(if diorite_sim::Context::current().is_some() {
        100_000
    } else {
        0
    }));
    results.into_iter().fold(done, Result::and)
}

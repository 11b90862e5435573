//! Histories: several threads call everything on one file at once, and [`linear`](crate::linear) says whether an order explains it.
//!
//! A case is a number. It runs in a simulation in shuffled order, or on real threads.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use diorite::mkfs::{MkfsOptions, mkfs};
use diorite::{AlignedBuf, DirectQueue, File, Filesystem, FilesystemOptions};
use diorite_block::BlockDevice;
use diorite_sim::crash::RecordingDevice;

use crate::access::{Access, Outcome, fill, in_threads, simulate, tell};
use crate::disk::{disk, marked};
use crate::formats::Format;
use crate::linear::{Call, Entry, State, is_linearizable};
use crate::random::Random;

/// Bytes of a unit: less than a page, a multiple of the alignment of direct I/O.
const UNIT: usize = 1024;
/// Units of the file.
const UNITS: u64 = 20;

/// How cases are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The volumes; those with blocks of `UNIT` bytes may also be full.
    pub formats: Vec<Format>,
    /// Rounds, each with a history of its own, in a case.
    pub rounds: usize,
    /// Real threads in place of a simulation.
    pub real_threads: bool,
    /// All volumes are full, and not a third of them.
    pub full: bool,
    /// Files of the host in its directory for temporary files, in place of volumes; on real threads.
    pub host: bool,
}

impl Default for Options {
    fn default() -> Self {
        let names =
            ["ext2-1k", "ext3-1k", "ext4-1k", "ext4-4k", "ext4-64k", "ext4-4k-inline", "ext4-4k-bigalloc"];
        let formats = names.iter().filter_map(|name| Format::by_name(name)).collect();
        Self { formats, rounds: 12, real_threads: false, full: false, host: false }
    }
}

/// The objects that a thread uses in a round.
struct Caller {
    thread: usize,
    handles: Vec<File>,
    random: Random,
    clock: Arc<AtomicU64>,
    values: Arc<AtomicU64>,
    entries: Vec<Entry>,
    calls: usize,
}

/// Whether an error says that there is no space.
fn is_full(error: &diorite::Error) -> bool {
    error.kind() == diorite::ErrorKind::StorageFull
}

/// The content of the units.
fn units_of(bytes: &[u8]) -> Outcome<Vec<u32>> {
    if !bytes.len().is_multiple_of(UNIT) {
        return Err(format!("{} bytes are no whole units", bytes.len()));
    }
    let unit = |unit: &[u8]| {
        let words: Vec<u32> = unit
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
            .collect();
        match words.iter().find(|word| **word != words[0]) {
            Some(word) => Err(format!("one unit of bytes of two writes: {} and {word}", words[0])),
            None => Ok(words[0]),
        }
    };
    bytes.chunks_exact(UNIT).map(unit).collect()
}

/// An error as the outcome; a store into a range that has become a hole may fail with no space.
fn failed(what: &str, error: &diorite::Error) -> String {
    if is_full(error) { "SPACE".to_owned() } else { format!("{what}: {error}") }
}

fn bytes_of(value: u32, units: usize) -> AlignedBuf {
    let mut memory = AlignedBuf::zeroed(units * UNIT, 4096);
    memory.chunks_exact_mut(4).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
    memory
}

impl Caller {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn value(&self) -> u32 {
        self.values.fetch_add(1, Ordering::Relaxed) as u32
    }

    fn range(&mut self) -> (usize, usize) {
        let at = self.random.below(UNITS);
        let len = 1 + self.random.below((UNITS - at).min(9));
        (at as usize, len as usize)
    }

    fn note(&mut self, begin: u64, call: Call) {
        let (end, thread) = (self.tick(), self.thread);
        self.entries.push(Entry { begin, end, thread, call });
    }

    fn note_read(&mut self, begin: u64, at: usize, len: usize, bytes: &[u8]) -> Outcome {
        let found = units_of(bytes)?;
        self.note(begin, Call::Read { at, len, found });
        Ok(())
    }

    fn run(&mut self) -> Outcome {
        for _ in 0..self.calls {
            let handle = self.random.index(self.handles.len());
            let file = self.handles[handle].clone();
            match self.random.below(20) {
                0..6 => self.write(&file)?,
                6..11 => self.read(&file)?,
                11..13 => self.append(&file)?,
                13 => self.set_size(&file)?,
                14 => self.zero(&file)?,
                15 => self.size(&file),
                16 => self.look(&file)?,
                17 => self.settle(&file)?,
                _ => self.queue()?,
            }
        }
        Ok(())
    }

    fn write(&mut self, file: &File) -> Outcome {
        let ((at, len), value) = (self.range(), self.value());
        let memory = bytes_of(value, len);
        let begin = self.tick();
        let call = match file.write_at(&memory, (at * UNIT) as u64) {
            Ok(written) if written.is_multiple_of(UNIT) => Call::Write(at..at + written / UNIT, value),
            Ok(written) => return Err(format!("a write of {written} bytes is no whole units")),
            Err(error) if is_full(&error) => Call::Nothing,
            Err(error) => return Err(format!("write: {error}")),
        };
        self.note(begin, call);
        Ok(())
    }

    fn append(&mut self, file: &File) -> Outcome {
        let value = self.value();
        let len = 1 + self.random.index(3);
        let memory = bytes_of(value, len);
        let begin = self.tick();
        let call = match file.append(&memory) {
            Ok(at) if at.is_multiple_of(UNIT as u64) => Call::Append { at: at as usize / UNIT, len, value },
            Ok(at) => return Err(format!("an append went to byte {at}")),
            // Whether a part of it was written is not said.
            Err(error) if is_full(&error) => return Err("SPACE".to_owned()),
            Err(error) => return Err(format!("append: {error}")),
        };
        self.note(begin, call);
        Ok(())
    }

    fn read(&mut self, file: &File) -> Outcome {
        let (at, len) = self.range();
        let mut memory = AlignedBuf::zeroed(len * UNIT, 4096);
        let begin = self.tick();
        let got = file.read_at(&mut memory, (at * UNIT) as u64).map_err(|error| failed("read", &error))?;
        self.note_read(begin, at, len, &memory[..got])
    }

    fn set_size(&mut self, file: &File) -> Outcome {
        let size = self.random.below(UNITS + 1) as usize;
        let begin = self.tick();
        let call = match file.set_len((size * UNIT) as u64) {
            Ok(()) => Call::SetSize(size),
            Err(error) if is_full(&error) => Call::Nothing,
            Err(error) => return Err(format!("set_len: {error}")),
        };
        self.note(begin, call);
        Ok(())
    }

    fn zero(&mut self, file: &File) -> Outcome {
        let (at, len) = self.range();
        let (offset, bytes) = ((at * UNIT) as u64, (len * UNIT) as u64);
        let begin = self.tick();
        let done = match self.random.below(3) {
            0 => file.punch_hole(offset, bytes).map(|()| Call::Zero(at..at + len)),
            1 => file.zero_range(offset, bytes).map(|()| Call::Zero(at..at + len)),
            _ => file.allocate(offset, bytes).map(|()| Call::Allocate(at + len)),
        };
        let call = match done {
            Ok(call) => call,
            // A part of the range may be zeros by now.
            Err(error) if is_full(&error) => return Err("SPACE".to_owned()),
            Err(error) => return Err(format!("punch, zero or allocate: {error}")),
        };
        self.note(begin, call);
        Ok(())
    }

    fn size(&mut self, file: &File) {
        let begin = self.tick();
        let size = file.size() as usize;
        self.note(begin, Call::Size(size / UNIT));
    }

    /// A view: the pages as they are at one moment.
    fn look(&mut self, file: &File) -> Outcome {
        let (at, len) = self.range();
        let mut bytes = Vec::new();
        let begin = self.tick();
        file.view((at * UNIT) as u64, len * UNIT, &mut |piece| bytes.extend_from_slice(piece))
            .map_err(|error| failed("view", &error))?;
        self.note_read(begin, at, len, &bytes)
    }

    /// Calls that move data and change nothing.
    fn settle(&mut self, file: &File) -> Outcome {
        let done = match self.random.below(3) {
            0 => file.sync_data(),
            1 => file.sync_all(),
            _ => file.drop_cached(0, u64::MAX),
        };
        match done {
            Err(error) if !is_full(&error) => Err(format!("sync or drop: {error}")),
            _ => Ok(()),
        }
    }

    /// Several transfers in flight; each lasts from its submission until it is reaped.
    fn queue(&mut self) -> Outcome {
        let file = self.handles[1].clone();
        if file.alignment().offset as usize > UNIT {
            return Ok(());
        }
        let mut queue: DirectQueue<AlignedBuf> = DirectQueue::new(3);
        let mut begun: Vec<(u64, Call)> = Vec::new();
        let mut done = Vec::new();
        for tag in 0..=self.random.below(3) {
            let (at, len) = self.range();
            let is_write = self.random.one_in(2);
            let value = if is_write { self.value() } else { 0 };
            let memory = bytes_of(value, len);
            let begin = self.tick();
            let offset = (at * UNIT) as u64;
            let (call, submitted) = if is_write {
                (Call::Write(at..at + len, value), queue.write(&file, offset, memory, len * UNIT, tag))
            } else {
                let call = Call::Read { at, len, found: Vec::new() };
                (call, queue.read(&file, offset, memory, len * UNIT, tag))
            };
            begun.push((begin, call));
            match submitted {
                Ok(()) => {}
                Err(refused) => match refused.error {
                    error if is_full(&error) => begun[tag as usize].1 = Call::Nothing,
                    error => return Err(failed("queue", &error)),
                },
            }
        }
        while queue.in_flight() > 0 {
            queue.reap(1, &mut done).map_err(|error| format!("reap: {error}"))?;
            for finished in done.drain(..) {
                let (begin, call) = begun[finished.tag as usize].clone();
                let call = match (call, finished.result) {
                    (Call::Read { at, len, .. }, Ok(got)) => {
                        self.note_read(begin, at, len, &finished.memory[..got])?;
                        continue;
                    }
                    // On a full volume a write ends short, as one that is waited for does.
                    (Call::Write(range, value), Ok(written)) if written.is_multiple_of(UNIT) => {
                        Call::Write(range.start..range.start + written / UNIT, value)
                    }
                    (_, Ok(bytes)) => {
                        return Err(format!("a queued write of {bytes} bytes is no whole units"));
                    }
                    (_, Err(error)) if is_full(&error) => Call::Nothing,
                    (_, Err(error)) => return Err(format!("queued transfer: {error}")),
                };
                self.note(begin, call);
            }
        }
        Ok(())
    }
}

/// Run one case; an error describes the calls without an order.
pub fn run(options: &Options, case: u64) -> Outcome<u64> {
    let mut random = Random::new(case ^ 0x4157);
    if options.host {
        return rounds_on_host(options.rounds, random).map_err(|what| format!("case {case} (host): {what}"));
    }
    let format = random.pick(&options.formats);
    let full = random.one_in(3) || options.full;
    let threads = random.within(2..5) as usize;
    let label =
        format!("case {case} ({}, {threads} threads{})", format.name, if full { ", full" } else { "" });
    let disk = disk(marked(format.megabytes << 20), true, case);
    mkfs(&*disk, &MkfsOptions { reserved_percent: 0.0, ..format.options(case) })
        .map_err(|error| format!("{label}: {error}"))?;
    let (rounds, seed) = (options.rounds, random.number());
    let body = move || rounds_on(disk, rounds, threads, full, random);
    let done = if options.real_threads {
        body()
    } else {
        simulate(seed, body).map_err(|what| format!("{label}: {what}"))?
    };
    done.map_err(|what| format!("{label}: {what}"))
}

fn rounds_on(
    disk: Arc<RecordingDevice>,
    rounds: usize,
    threads: usize,
    full: bool,
    mut random: Random,
) -> Outcome<u64> {
    let device: Arc<dyn BlockDevice> = disk;
    let scheduler = random.pick(&["none", "none", "deadline", "cfq", "inject"]);
    let options = FilesystemOptions::new()
        .cache_bytes(random.pick(&[256 << 10, 1 << 20]))
        .scheduler(scheduler.parse().map_err(|_| "no such scheduler")?);
    let filesystem = options.open_device(device).map_err(|error| format!("open: {error}"))?;
    if full {
        fill(&filesystem, random.within(4..24))?;
    }
    let mut calls = 0;
    for round in 0..rounds {
        calls += round_on(&filesystem, round, threads, &mut random)
            .map_err(|what| format!("round {round}: {what}"))?;
    }
    filesystem.close().map_err(|error| format!("close: {error}"))?;
    if diorite_sim::Context::current().is_some() {
        diorite_block::sync::sleep(std::time::Duration::from_secs(100));
    }
    Ok(calls)
}

/// Rounds on files of the host, each with handles that are opened for it, by two names.
fn rounds_on_host(rounds: usize, mut random: Random) -> Outcome<u64> {
    let directory =
        tempfile::Builder::new().prefix("diorite-torture-").tempdir().map_err(|error| error.to_string())?;
    let (path, other) = (directory.path().join("file"), directory.path().join("other"));
    let mut calls = 0;
    for round in 0..rounds {
        let open = |access: Access, path: &Path| tell(access.host_options().open(path), "open");
        let first = open(Access::Cached, &path)?;
        let _ = std::fs::hard_link(&path, &other);
        let handles = [first, open(Access::Direct, &other)?, open(Access::Streamed, &other)?];
        let threads = random.within(2..5) as usize;
        calls +=
            round_with(&handles, threads, &mut random).map_err(|what| format!("round {round}: {what}"))?;
    }
    Ok(calls)
}

fn round_on(filesystem: &Filesystem, round: usize, threads: usize, random: &mut Random) -> Outcome<u64> {
    let path = format!("/file-{}", round % 3);
    let open =
        |access: Access| tell(access.options(filesystem.open_options()).create(true).open(&path), "open");
    let handles = [open(Access::Cached)?, open(Access::Direct)?, open(Access::Bounced)?];
    round_with(&handles, threads, random)
}

fn round_with(handles: &[File], threads: usize, random: &mut Random) -> Outcome<u64> {
    handles[0].set_len(0).map_err(|error| format!("set_len: {error}"))?;
    let (clock, values) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(1)));
    let callers = (0..threads).map(|thread| {
        let mut caller = Caller {
            thread,
            handles: handles.to_vec(),
            random: random.fork(),
            clock: Arc::clone(&clock),
            values: Arc::clone(&values),
            entries: Vec::new(),
            calls: 3 + random.index(3),
        };
        let body = move || {
            let done = caller.run();
            (caller.entries, done)
        };
        ("caller", body)
    });
    let mut history = Vec::new();
    for (entries, done) in in_threads(callers)? {
        match done {
            Err(what) if what == "SPACE" => return Ok(0),
            done => done?,
        }
        history.extend(entries);
    }
    let mut last = AlignedBuf::zeroed(UNITS as usize * 2 * UNIT, 4096);
    let got = handles[random.index(handles.len())]
        .read_at(&mut last, 0)
        .map_err(|error| format!("last read: {error}"))?;
    let now = clock.fetch_add(1, Ordering::SeqCst);
    let call = Call::Read { at: 0, len: UNITS as usize * 2, found: units_of(&last[..got])? };
    history.push(Entry { begin: now, end: now + 1, thread: threads, call });
    check_order(&history)?;
    Ok(history.len() as u64)
}

fn check_order(history: &[Entry]) -> Outcome {
    let mut history: Vec<Entry> = history.to_vec();
    // A call that changed nothing and has seen nothing fits everywhere.
    history.retain(|entry| entry.call != Call::Nothing);
    if is_linearizable(&State::new(), &history) {
        return Ok(());
    }
    history.sort_by_key(|entry| entry.begin);
    let lines: Vec<String> = history
        .iter()
        .map(|entry| format!("  {}: {}..{} {:?}", entry.thread, entry.begin, entry.end, entry.call))
        .collect();
    Err(format!("no order explains\n{}", lines.join("\n")))
}

//! The disk test of 2002: one thread reads or writes several devices round-robin.
//!
//! In 2002, one synchronous direct read at a time kept one of eight disks busy. `depth` keeps that many transfers in flight on
//! each device, still from one thread, and so keeps all disks busy.

mod simulate;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use diorite::{AlignedBuf, DirectIo, DirectQueue, File, Finished, RawFile};
use diorite_block::sync::{Work, now, work};
use diorite_block::{BioFlags, BlockDevice, IoError};

use crate::measure::{Latencies, Snapshot, Spent};
use crate::rows::{CpuScope, Engine, Mode, Row};
use crate::watch::{Cancel, Observer};

pub use crate::rows::Mode as DiskMode;
pub use simulate::{run_simulated, simulated_devices, simulated_names};

/// Read or write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the devices.
    #[default]
    Read,
    /// To the devices, which are overwritten.
    Write,
}

/// Options of the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskPerf {
    /// Transfers per device.
    pub blocks: u64,
    /// Bytes of a transfer.
    pub block_bytes: usize,
    /// Transfers in flight per device; more than one needs `Direct`.
    pub depth: u32,
    /// The path of the data: `Buffered`, `Direct` (a file), `Raw` (the device), or `Nocopy`, whose difference to `Buffered` is the cost of
    /// the copy.
    pub mode: Mode,
    /// Read or write.
    pub direction: Direction,
    /// Page cache for `Buffered` and `Nocopy`, in bytes, for each device.
    pub cache_bytes: usize,
}

impl Default for DiskPerf {
    fn default() -> Self {
        Self {
            blocks: 2048,
            block_bytes: 1 << 20,
            depth: 1,
            mode: Mode::Buffered,
            direction: Direction::Read,
            cache_bytes: 64 << 20,
        }
    }
}

/// Why the test failed.
#[derive(Debug, thiserror::Error)]
pub enum DiskPerfError {
    /// A target could not be used as a file.
    #[error("{}", crate::error::named(target, source))]
    File {
        /// The device.
        target: String,
        /// The error of the library.
        source: Box<diorite::Error>,
    },
    /// A transfer of a device failed.
    #[error(transparent)]
    Device(#[from] IoError),
    /// A target is too small.
    #[error(
        "{target}: too small: it has {capacity} bytes and the test needs {needed}; choose fewer or smaller blocks (blocks=, bs=)"
    )]
    TooSmall {
        /// The device.
        target: String,
        /// Its size.
        capacity: u64,
        /// Bytes of the test.
        needed: u64,
    },
    /// A simulated disk cannot be made.
    #[error(transparent)]
    Simulated(#[from] crate::simulated::SimulatedDiskError),
    /// The simulated processes wait for each other: a bug of the stack.
    #[error(transparent)]
    Deadlock(#[from] diorite_sim::Deadlock),
    /// Options that contradict each other.
    #[error("{0}")]
    Options(&'static str),
    /// No memory for the transfers.
    #[error("cannot allocate {bytes} bytes of buffers: {source}")]
    Memory {
        /// Requested bytes.
        bytes: usize,
        /// The error of the system.
        source: std::io::Error,
    },
}

/// The result.
#[derive(Clone, Debug)]
pub struct DiskPerfOutcome {
    /// The options.
    pub options: DiskPerf,
    /// Bytes moved.
    pub bytes: u64,
    /// Time and CPU time.
    pub spent: Spent,
    /// Time of each transfer.
    pub latencies: Latencies,
    /// Bios of the devices.
    pub bios: u64,
    /// Bytes copied by the CPU.
    pub bytes_copied: u64,
}

impl DiskPerfOutcome {
    /// As a row of a report.
    pub fn row(&self, engine: Engine) -> Row {
        let test = match self.options.direction {
            Direction::Read => "diskperf_read",
            Direction::Write => "diskperf_write",
        };
        let seconds = self.spent.seconds;
        let row = Row::new(engine, self.options.mode, test, self.bytes, seconds);
        let mut row = row.with_rates(self.spent.cpu_s_process);
        row.ops_per_s = Some(self.latencies.count() as f64 / seconds.max(1e-9));
        row.cpu_scope = Some(CpuScope::Process);
        row.cpu_s_machine = Some(self.spent.cpu_s_machine());
        row.latency_us = self.latencies.summary();
        row.bios = Some(self.bios);
        row.bytes_copied = Some(self.bytes_copied);
        row
    }
}

impl fmt::Display for DiskPerfOutcome {
    /// The last line of 2002. Both of its units are 2^20 bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mbytes = self.bytes as f64 / f64::from(1 << 20);
        let mean = self.latencies.summary().map_or(0.0, |latency| latency.mean);
        let verb = match self.options.direction {
            Direction::Read => "reading",
            Direction::Write => "writing",
        };
        let seconds = self.spent.seconds;
        write!(
            f,
            "Completed {verb} {mbytes:.0} mbytes in {seconds:.6} seconds ({:.2} Mbytes/sec), {mean:.0}usec mean",
            mbytes / seconds.max(1e-9)
        )
    }
}

/// A target, which is used from its first byte.
#[derive(Clone, Debug)]
pub enum DiskTarget {
    /// A device as a whole.
    Device(Arc<dyn BlockDevice>),
    /// A file of a volume, open in the mode of the test.
    File {
        /// Its name in messages.
        name: String,
        /// The file.
        file: File,
        /// The device of its volume.
        device: Arc<dyn BlockDevice>,
    },
}

impl DiskTarget {
    fn device(&self) -> &Arc<dyn BlockDevice> {
        match self {
            Self::Device(device) | Self::File { device, .. } => device,
        }
    }
}

/// Run the test on devices.
///
/// # Errors
/// As [`run_on`].
pub fn run(
    targets: &[Arc<dyn BlockDevice>],
    options: DiskPerf,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<DiskPerfOutcome, DiskPerfError> {
    let targets: Vec<_> = targets.iter().cloned().map(DiskTarget::Device).collect();
    run_on(&targets, options, observer, cancel)
}

/// Run the test on devices, files of volumes, or both.
///
/// # Errors
/// The options contradict each other, a target is too small, or a transfer fails.
pub fn run_on(
    targets: &[DiskTarget],
    options: DiskPerf,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<DiskPerfOutcome, DiskPerfError> {
    check(targets, &options)?;
    let mut devices: Vec<&Arc<dyn BlockDevice>> = Vec::new();
    for target in targets {
        // The device of several files is counted once.
        if !devices.iter().any(|device| Arc::ptr_eq(device, target.device())) {
            devices.push(target.device());
        }
    }
    let counts = || devices.iter().map(|device| device.counters().snapshot()).collect::<Vec<_>>();
    let before = counts();
    let each = options.blocks.saturating_mul(options.block_bytes as u64);
    observer.begin("moving data", each.saturating_mul(targets.len() as u64));
    let mut test = Test { options, observer, cancel, latencies: Latencies::default(), bytes: 0, copied: 0 };
    // Preparation is not measured.
    let files = if options.mode == Mode::Raw { Vec::new() } else { open_all(targets, &options)? };
    let buffers = if options.depth > 1 { targets.len() * options.depth as usize } else { 1 };
    let memories = (0..buffers).map(|_| test.memory()).collect::<Result<Vec<_>, _>>()?;
    let start = Snapshot::now();
    match (options.mode, options.depth) {
        (Mode::Raw, _) => test.raw(targets, memories)?,
        (Mode::Direct, 2..) => test.pipelined(&files, memories)?,
        _ => test.synchronous(&files, memories)?,
    }
    let spent = start.spent();
    observer.end();
    let bios =
        counts().iter().zip(&before).map(|(now, then)| now.since(*then)).map(|c| c.reads + c.writes).sum();
    Ok(DiskPerfOutcome {
        options,
        bytes: test.bytes,
        spent,
        latencies: test.latencies,
        bios,
        bytes_copied: test.copied,
    })
}

fn check(targets: &[DiskTarget], options: &DiskPerf) -> Result<(), DiskPerfError> {
    let say = |what| Err(DiskPerfError::Options(what));
    if targets.is_empty() {
        return say("no target; name devices or images to read");
    }
    if options.blocks == 0 || options.block_bytes == 0 || options.depth == 0 {
        return say("blocks, bs and depth are at least 1");
    }
    if options.depth > 1 && options.mode != Mode::Direct {
        return say("depth needs direct: the other modes move one block at a time");
    }
    if options.direction == Direction::Write && options.mode == Mode::Nocopy {
        return say("nocopy reads only");
    }
    let needed = options.blocks.saturating_mul(options.block_bytes as u64);
    for target in targets {
        let (name, capacity) = match target {
            DiskTarget::Device(device) => (device.name(), device.geometry().capacity_bytes),
            DiskTarget::File { .. } if options.mode == Mode::Raw => {
                return say(
                    "raw needs devices; a file of a volume is read direct, nocopy or through the cache",
                );
            }
            // Writes extend the file.
            DiskTarget::File { .. } if options.direction == Direction::Write => continue,
            DiskTarget::File { name, file, .. } => (name.clone(), file.size()),
        };
        if capacity < needed {
            return Err(DiskPerfError::TooSmall { target: name, capacity, needed });
        }
    }
    Ok(())
}

/// A target as a file.
struct Target {
    name: String,
    file: File,
}

impl Target {
    fn blame(&self) -> impl Fn(diorite::Error) -> DiskPerfError + '_ {
        |source| DiskPerfError::File { target: self.name.clone(), source: Box::new(source) }
    }
}

fn open_all(targets: &[DiskTarget], options: &DiskPerf) -> Result<Vec<Target>, DiskPerfError> {
    let direct = if options.mode == Mode::Direct { DirectIo::Required } else { DirectIo::Off };
    let open = RawFile::options().read(true).write(options.direction == Direction::Write).direct(direct);
    targets
        .iter()
        .map(|target| {
            let device = match target {
                DiskTarget::Device(device) => device,
                DiskTarget::File { name, file, .. } => {
                    return Ok(Target { name: name.clone(), file: file.clone() });
                }
            };
            let name = device.name();
            match open.open_device(device.clone(), options.cache_bytes) {
                Ok(file) => Ok(Target { name, file }),
                Err(source) => Err(DiskPerfError::File { target: name, source: Box::new(source) }),
            }
        })
        .collect()
}

struct Test<'a> {
    options: DiskPerf,
    observer: &'a dyn Observer,
    cancel: &'a Cancel,
    latencies: Latencies,
    bytes: u64,
    copied: u64,
}

impl Test<'_> {
    fn count(&mut self, start: Duration, bytes: usize) {
        self.latencies.record(now().saturating_sub(start));
        self.bytes += bytes as u64;
        self.observer.advance(bytes as u64);
    }

    fn memory(&self) -> Result<AlignedBuf, DiskPerfError> {
        let bytes = self.options.block_bytes;
        AlignedBuf::registered(bytes, 4096).map_err(|source| DiskPerfError::Memory { bytes, source })
    }

    /// One transfer at a time, through files.
    fn synchronous(
        &mut self,
        targets: &[Target],
        mut memories: Vec<AlignedBuf>,
    ) -> Result<(), DiskPerfError> {
        let memory = &mut memories[0];
        let before: u64 = targets.iter().map(|target| target.file.stats().bytes_copied).sum();
        'moving: for block in 0..self.options.blocks {
            let offset = block * self.options.block_bytes as u64;
            for target in targets {
                if self.cancel.is_cancelled() {
                    break 'moving;
                }
                let start = now();
                let done = match (self.options.direction, self.options.mode) {
                    (Direction::Write, _) => target.file.write_at(memory, offset),
                    (Direction::Read, Mode::Nocopy) => {
                        target.file.view(offset, self.options.block_bytes, &mut |_| ())
                    }
                    (Direction::Read, _) => target.file.read_at(memory, offset),
                };
                let bytes = done.map_err(target.blame())?;
                self.count(start, bytes);
            }
        }
        if self.options.direction == Direction::Write {
            for target in targets {
                target.file.sync_data().map_err(target.blame())?;
            }
        }
        let after: u64 = targets.iter().map(|target| target.file.stats().bytes_copied).sum();
        self.copied = after - before;
        Ok(())
    }

    /// One transfer at a time, straight to the devices.
    fn raw(&mut self, targets: &[DiskTarget], mut memories: Vec<AlignedBuf>) -> Result<(), DiskPerfError> {
        let memory = &mut memories[0];
        'moving: for block in 0..self.options.blocks {
            let offset = block * self.options.block_bytes as u64;
            for device in targets.iter().map(DiskTarget::device) {
                if self.cancel.is_cancelled() {
                    break 'moving;
                }
                let start = now();
                // A file charges this cost for its bios; raw transfers have no file.
                let largest = u64::from(device.geometry().max_transfer_bytes).max(1);
                work(Work::Submit((memory.len() as u64).div_ceil(largest)));
                match self.options.direction {
                    Direction::Read => device.read_bytes(offset, memory)?,
                    Direction::Write => device.write_bytes(offset, memory, BioFlags::SYNC)?,
                }
                self.count(start, memory.len());
            }
        }
        if self.options.direction == Direction::Write {
            targets.iter().try_for_each(|target| target.device().flush())?;
        }
        Ok(())
    }

    /// `depth` transfers in flight on each device, from this thread.
    fn pipelined(&mut self, targets: &[Target], memories: Vec<AlignedBuf>) -> Result<(), DiskPerfError> {
        let slots = memories.len();
        let mut queue: DirectQueue<AlignedBuf> = DirectQueue::new(slots as u32);
        let mut free: VecDeque<(usize, AlignedBuf)> = memories.into_iter().enumerate().collect();
        let mut started = vec![Duration::ZERO; slots];
        let mut next_block = vec![0u64; targets.len()];
        let mut done: Vec<Finished<AlignedBuf>> = Vec::with_capacity(slots);
        loop {
            while !self.cancel.is_cancelled()
                && let Some((slot, memory)) = free.pop_front()
            {
                // Each slot belongs to one device, so each device keeps its depth.
                let index = slot % targets.len();
                if next_block[index] >= self.options.blocks {
                    continue;
                }
                let target = &targets[index];
                let (offset, len) = (next_block[index] * memory.len() as u64, memory.len());
                next_block[index] += 1;
                started[slot] = now();
                let submitted = match self.options.direction {
                    Direction::Read => queue.read(&target.file, offset, memory, len, slot as u64),
                    Direction::Write => queue.write(&target.file, offset, memory, len, slot as u64),
                };
                if let Err(refused) = submitted {
                    return Err(target.blame()(refused.error));
                }
            }
            if queue.in_flight() == 0 {
                break;
            }
            queue.reap(1, &mut done).map_err(targets[0].blame())?;
            for Finished { tag, memory, result } in done.drain(..) {
                let slot = tag as usize;
                let bytes = result.map_err(targets[slot % targets.len()].blame())?;
                self.count(started[slot], bytes);
                free.push_back((slot, memory));
            }
        }
        if self.options.direction == Direction::Write {
            for target in targets {
                target.file.sync_data().map_err(target.blame())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use diorite_sim::image::ImageDevice;

    use super::*;
    use crate::watch::Silent;

    /// Cancels with the first bytes.
    struct Impatient(Cancel);

    impl Observer for Impatient {
        fn begin(&self, _: &str, _: u64) {}
        fn advance(&self, _: u64) {
            self.0.cancel();
        }
        fn end(&self) {}
    }

    /// The time of allocating memory was part of the rate.
    #[test]
    fn the_time_is_that_of_the_transfers() {
        let targets: [Arc<dyn BlockDevice>; 1] = [ImageDevice::zeroed(4 << 20)];
        let options = DiskPerf {
            blocks: 1,
            block_bytes: 4 << 20,
            depth: 64,
            mode: Mode::Direct,
            ..DiskPerf::default()
        };
        let timed = || {
            let done = run(&targets, options, &Silent, &Cancel::default()).unwrap();
            let transfers = done.latencies.summary().unwrap().mean / 1e6;
            done.spent.seconds / transfers
        };
        // The minimum of several runs: another program may run between the clocks.
        let ratio = (0..5).map(|_| timed()).fold(f64::INFINITY, f64::min);
        assert!(ratio < 3.0, "{ratio} times as long as its transfers");
    }

    /// `bytes_copied` was 0, and writes stayed in the cache, so the rate was not the device's.
    #[test]
    fn a_test_that_is_interrupted_has_the_figures_of_what_it_did() {
        for direction in [Direction::Read, Direction::Write] {
            let device = ImageDevice::zeroed(1 << 20);
            let targets: [Arc<dyn BlockDevice>; 1] = [device.clone()];
            let options = DiskPerf { blocks: 8, block_bytes: 64 << 10, direction, ..DiskPerf::default() };
            let cancel = Cancel::default();
            let done = run(&targets, options, &Impatient(cancel.clone()), &cancel).unwrap();
            assert_eq!((done.bytes, done.bytes_copied), (64 << 10, 64 << 10), "{direction:?}");
            assert!(direction == Direction::Read || device.counters().snapshot().write_bytes >= 64 << 10);
        }
    }
}

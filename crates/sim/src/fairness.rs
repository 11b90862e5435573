//! The job of seed 001 at the level of the block layer: two buffered sequential readers and one direct writer.
//!
//! The host model is the specification's (A11): a reader has exactly one read-ahead window of 128 KiB outstanding and sends
//! the next 25 microseconds after a completion; the writer sends its next 4 KiB 30 microseconds after a completion (the rest of the
//! specification's 80 is in the drive's time for a write). The
//! same job through the whole stack is in the bench crate; this one isolates scheduler and drive.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use diorite_block::sync;
use diorite_block::{Bio, BioFlags, BlockDevice, IoOwner, IoPriority, Sector, TaskId};
use diorite_scheduler::ScheduledDevice;
use diorite_scheduler::{Histogram, SchedulerKind};

use crate::disk::SimDisk;
use crate::world::{Deadlock, Report, Simulation};

const WINDOW: u64 = 128 * 1024;
const BLOCK: u64 = 4096;
const READER_THINKS: Duration = Duration::from_micros(25);
const WRITER_THINKS: Duration = Duration::from_micros(30);
/// Where the files lie, in bytes: the writer's, then the readers'.
const FILES: [u64; 3] = [0, 5_000_000_000, 8_000_000_000];

/// The result of the job.
#[derive(Clone, Debug)]
pub struct Fairness {
    /// As fio printed it: 1024 bytes.
    pub writer_kb_per_s: f64,
    /// Both readers together, 10^6 bytes.
    pub readers_mb_per_s: f64,
    /// How long writes took.
    pub write_latency: Histogram,
    /// How long the reads of a window took.
    pub read_latency: Histogram,
    /// The simulation's own report.
    pub report: Report,
    /// The scheduler's state at the end, for a person.
    pub scheduler: String,
}

#[derive(Default)]
struct Tally {
    bytes: u64,
    latency: Histogram,
}

/// One process: transfers until `end`, thinking after each.
fn transfer_until(device: &dyn BlockDevice, writes: bool, start: u64, end: Duration) -> Tally {
    let (length, think) = if writes { (BLOCK, WRITER_THINKS) } else { (WINDOW, READER_THINKS) };
    let mut memory = vec![0u8; length as usize];
    let (mut tally, mut at) = (Tally::default(), start);
    loop {
        let begun = sync::now();
        let sector = Sector::containing(at);
        let mut bio =
            if writes { Bio::write(sector, &memory, BioFlags::SYNC) } else { Bio::read(sector, &mut memory) };
        device.execute(std::slice::from_mut(&mut bio)).expect("a simulated disk without faults");
        let done = sync::now();
        tally.latency.record(done.saturating_sub(begun));
        if done >= end {
            return tally;
        }
        tally.bytes += length;
        at += length;
        sync::sleep(think);
    }
}

/// Run the job for so much virtual time.
pub fn run(
    disk: &Arc<SimDisk>,
    kind: SchedulerKind,
    length: Duration,
    seed: u64,
) -> Result<Fairness, Deadlock> {
    let scheduled = kind.build().map(|scheduler| ScheduledDevice::new(Arc::clone(disk) as _, scheduler, 31));
    let device: Arc<dyn BlockDevice> = match &scheduled {
        Some(scheduled) => Arc::clone(scheduled) as _,
        None => Arc::clone(disk) as _,
    };
    let simulation = Simulation::new(seed);
    let tallies: Vec<_> = (0..FILES.len()).map(|_| Arc::new(Mutex::new(Tally::default()))).collect();
    for (number, (start, tally)) in FILES.into_iter().zip(&tallies).enumerate() {
        let owner = IoOwner { task: TaskId(number as u64 + 1), priority: IoPriority::default() };
        let (device, tally, name) =
            (Arc::clone(&device), Arc::clone(tally), ["writer", "reader 1", "reader 2"][number]);
        simulation.spawn(name, owner, move || {
            let result = transfer_until(&*device, number == 0, start, length);
            *tally.lock().unwrap_or_else(PoisonError::into_inner) = result;
        });
    }
    let report = simulation.run()?;
    let mut tallies = tallies
        .iter()
        .map(|tally| std::mem::take(&mut *tally.lock().unwrap_or_else(PoisonError::into_inner)));
    let (writer, readers): (Tally, Vec<Tally>) = (tallies.next().unwrap_or_default(), tallies.collect());
    let seconds = length.as_secs_f64();
    let mut read_latency = Histogram::default();
    for reader in &readers {
        read_latency.add(&reader.latency);
    }
    Ok(Fairness {
        writer_kb_per_s: writer.bytes as f64 / 1024.0 / seconds,
        readers_mb_per_s: readers.iter().map(|reader| reader.bytes).sum::<u64>() as f64 / 1e6 / seconds,
        write_latency: writer.latency,
        read_latency,
        report,
        scheduler: scheduled.map_or(String::new(), |scheduled| scheduled.describe()),
    })
}

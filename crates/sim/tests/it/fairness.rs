//! Seed 001 at block level: two buffered sequential readers and one direct writer. The three rule sets reproduce the published rows on the
//! fitted drive. `inject` is better where the drive allows it, and not worse elsewhere.
//!
//! The host model: a reader has exactly one readahead window of 128 KiB outstanding, and sends the next 25 microseconds after a
//! completion. The writer sends its next 4 KiB 30 microseconds after a completion. The same job through the whole stack is in `diorite-repro`.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diorite_block::{Bio, BioFlags, BlockDevice, IoOwner, IoPriority, Sector, TaskId, sync};
use diorite_scheduler::{ScheduledDevice, SchedulerKind};
use diorite_sim::{Report, SimDisk, Simulation};

const LENGTH: Duration = Duration::from_secs(10);
const WINDOW: usize = 128 * 1024;
const BLOCK: usize = 4096;
/// Where the files lie, in bytes: the writer's, then the readers'.
const FILES: [u64; 3] = [0, 5_000_000_000, 8_000_000_000];

/// The result of the job.
struct Fairness {
    /// As fio printed it: 1024 bytes.
    writer_kb_per_s: f64,
    /// Both readers together, 10^6 bytes.
    readers_mb_per_s: f64,
    longest_write: Duration,
    longest_read: Duration,
    report: Report,
}

/// One process: transfers until the end, thinking after each. Returns its bytes and its longest transfer.
fn transfer(device: &dyn BlockDevice, writes: bool, mut at: u64) -> (u64, Duration) {
    let (length, think_us) = if writes { (BLOCK, 30) } else { (WINDOW, 25) };
    let mut memory = vec![0u8; length];
    let (mut bytes, mut longest) = (0, Duration::ZERO);
    loop {
        let (begun, sector) = (sync::now(), Sector::containing(at));
        let mut bio =
            if writes { Bio::write(sector, &memory, BioFlags::SYNC) } else { Bio::read(sector, &mut memory) };
        device.execute(std::slice::from_mut(&mut bio)).expect("a simulated disk without faults");
        let done = sync::now();
        longest = longest.max(done.saturating_sub(begun));
        if done >= LENGTH {
            return (bytes, longest);
        }
        bytes += length as u64;
        at += length as u64;
        sync::sleep(Duration::from_micros(think_us));
    }
}

fn run(disk: &str, scheduler: &str, seed: u64) -> Fairness {
    let disk = SimDisk::named(disk).expect("a known disk");
    let kind: SchedulerKind = scheduler.parse().expect("a known scheduler");
    let device: Arc<dyn BlockDevice> = match kind.build() {
        Some(scheduler) => ScheduledDevice::new(disk, scheduler, 31),
        None => disk,
    };
    let simulation = Simulation::new(seed);
    let results = Arc::new(Mutex::new([(0, Duration::ZERO); 3]));
    for (number, start) in FILES.into_iter().enumerate() {
        let owner = IoOwner { task: TaskId(number as u64 + 1), priority: IoPriority::default() };
        let (device, results) = (Arc::clone(&device), Arc::clone(&results));
        simulation.spawn("job", owner, move || {
            let result = transfer(&*device, number == 0, start);
            results.lock().expect("no thread panicked")[number] = result;
        });
    }
    let report = simulation.run().expect("no deadlock");
    let [writer, one, other] = *results.lock().expect("no thread panicked");
    let seconds = LENGTH.as_secs_f64();
    Fairness {
        writer_kb_per_s: writer.0 as f64 / 1024.0 / seconds,
        readers_mb_per_s: (one.0 + other.0) as f64 / 1e6 / seconds,
        longest_write: writer.1,
        longest_read: one.1.max(other.1),
        report,
    }
}

fn assert_within(percent: f64, got: f64, published: f64, what: &str) {
    let error = (got / published - 1.0) * 100.0;
    assert!(error.abs() <= percent, "{what}: {got:.0}, published {published}, {error:+.1} %");
}

#[test]
fn published_rows_come_out_within_15_percent() {
    // published/fairness-2009.toml
    let rows =
        [("cfq:2.6.32", 2968.0, 101.0), ("cfq:noidle-regression", 19.0, 137.0), ("cfq:fixed", 2728.0, 103.0)];
    for (scheduler, writer, readers) in rows {
        for seed in [1, 2] {
            let row = run("sata-2009", scheduler, seed);
            assert_within(15.0, row.writer_kb_per_s, writer, &format!("{scheduler}: writer"));
            assert_within(15.0, row.readers_mb_per_s, readers, &format!("{scheduler}: readers"));
        }
    }
}

#[test]
fn inject_serves_the_writer_and_the_readers_at_once() {
    let cfq = run("sata-2009", "cfq:fixed", 1);
    for seed in [1, 2, 3] {
        let row = run("sata-2009", "inject", seed);
        assert!(row.writer_kb_per_s >= 3000.0, "{:.0} KB/s", row.writer_kb_per_s);
        assert!(row.readers_mb_per_s >= 130.0, "{:.1} MB/s", row.readers_mb_per_s);
        assert!(row.longest_write < Duration::from_millis(100), "{:?}", row.longest_write);
        let longest = cfq.longest_read * 21 / 20;
        assert!(row.longest_read < longest, "a turn of the other reader: {:?}", row.longest_read);
    }
}

/// The writer is charged for the cost of its writes to the readers: shares are close to those with slices of its own.
#[test]
fn inject_is_no_worse_than_cfq_on_drives_that_mind() {
    for disk in ["sata-2009-stall", "sata-2009-nocache"] {
        for seed in [1, 2] {
            let (cfq, inject) = (run(disk, "cfq:fixed", seed), run(disk, "inject", seed));
            let (writer, readers) = (
                inject.writer_kb_per_s / cfq.writer_kb_per_s,
                inject.readers_mb_per_s / cfq.readers_mb_per_s,
            );
            assert!(writer > 0.97 && readers > 0.8, "{disk}: writer {writer:.3}, readers {readers:.3}");
            assert!(writer + readers > 1.99, "{disk}: writer {writer:.3}, readers {readers:.3}");
        }
    }
}

/// ARCHITECTURE invariant 11, and the promise that ten virtual seconds take less than five real ones.
#[test]
fn one_seed_gives_one_run_and_quickly() {
    let started = Instant::now();
    let first = run("sata-2009", "cfq:fixed", 5);
    let took = started.elapsed();
    let limit = if cfg!(debug_assertions) { 20 } else { 5 };
    assert!(took < Duration::from_secs(limit), "{took:?}");
    let second = run("sata-2009", "cfq:fixed", 5);
    assert_eq!(first.report, second.report);
    assert_ne!(first.report.trace_hash, run("sata-2009", "cfq:fixed", 6).report.trace_hash);
}

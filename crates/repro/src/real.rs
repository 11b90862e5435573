//! The fairness job on a real device: two greedy readers and one synchronous direct writer, without a scheduler, with CFQ and with
//! `inject`.
//!
//! Interface: the first third of the device is overwritten. Times are real.

use std::sync::Arc;
use std::time::Duration;

use diorite::{AlignedBuf, BlockDevice, IoOwner, IoPriority, TaskId};
use diorite_block::sync::{self, Mutex};
use diorite_block::{Bio, BioFlags, IoError, Sector};
use diorite_scheduler::ScheduledDevice;
use diorite_scheduler::{CfqRules, Histogram, SchedulerKind};

use crate::error::ReproError;
use crate::matrix::colour_of;
use crate::outcome::{Line, Outcome, latency_us};
use diorite_bench::{Engine, Mode, Row, Verdict};

/// Bytes of a transfer of the writer, and of a reader's read-ahead window.
const WRITE: u64 = 4096;
const READ: u64 = 128 * 1024;
/// Most requests in flight.
const DEPTH: u32 = 32;

struct Tally {
    bytes: u64,
    latency: Histogram,
}

/// Run the job for `length` through each scheduler in turn.
pub fn fairness_on(device: &Arc<dyn BlockDevice>, length: Duration) -> Result<Outcome, ReproError> {
    let mut outcome = Outcome {
        title: "Fairness on a real device",
        text: "The same job in real time on one device: a synchronous direct writer of 4 KiB beside two greedy readers of 128 KiB, \
               without a scheduler, with fixed CFQ, and with inject.",
        ..Outcome::default()
    };
    for kind in [SchedulerKind::None, SchedulerKind::Cfq(CfqRules::Fixed), SchedulerKind::Inject] {
        let scheduled: Arc<dyn BlockDevice> = match kind.build() {
            Some(scheduler) => ScheduledDevice::new(Arc::clone(device), scheduler, DEPTH),
            None => Arc::clone(device),
        };
        let [writer, first, second] = three_jobs(&scheduled, length)?;
        outcome.add_real(&kind.to_string(), &writer, [&first, &second], length.as_secs_f64());
    }
    let writers: Vec<f64> =
        outcome.lines.iter().filter(|line| line.column == "writer").map(|line| line.measured).collect();
    if let [none, _, inject] = writers[..] {
        outcome.headline = format!(
            "The writer gets {inject:.0} KB/s through inject and {none:.0} KB/s without a scheduler."
        );
    }
    outcome.judge_real();
    outcome.notes.push(
        "The jobs' requests go to the device with direct I/O, without a cache. A layer below it may have a cache, such as a loop device \
         without --direct-io=on. An image with unwritten parts is an error."
            .to_owned(),
    );
    outcome.notes.push(format!(
        "{}, {} s for each scheduler, real time.",
        device.name(),
        length.as_secs_f64()
    ));
    Ok(outcome)
}

impl Outcome {
    /// Compare inject with fixed CFQ and with none.
    fn judge_real(&mut self) {
        let measured = |row: &str, column: &str| {
            let mut lines = self.lines.iter().filter(|line| line.row == row && line.column == column);
            lines.next().map_or(0.0, |line| line.measured)
        };
        let ratio = |column, other| measured("inject", column) / measured(other, column).max(1e-9);
        let verdicts = [
            Verdict::at_least(
                "fairness: on this device: inject/cfq writer",
                0.9,
                ratio("writer", "cfq:fixed"),
            ),
            Verdict::at_least(
                "fairness: on this device: inject/cfq readers",
                0.9,
                ratio("readers", "cfq:fixed"),
            ),
            Verdict::at_least("fairness: on this device: inject/none readers", 0.9, ratio("readers", "none")),
            // As in the simulation. A ratio would compare two single writes.
            Verdict::at_most(
                "fairness: on this device: inject: worst write, ms",
                100.0,
                measured("inject", "worst write"),
            ),
        ];
        self.verdicts.extend(verdicts);
    }

    fn add_real(&mut self, name: &str, writer: &Tally, readers: [&Tally; 2], seconds: f64) {
        let mut reads = Histogram::default();
        for reader in readers {
            reads.add(&reader.latency);
        }
        let read: u64 = readers.iter().map(|reader| reader.bytes).sum();
        let mut line = |column, unit, measured| {
            self.lines.push(Line::new(name, column, unit, None, measured));
        };
        line("writer", "KB/s", writer.bytes as f64 / 1024.0 / seconds);
        line("readers", "MB/s", read as f64 / 1e6 / seconds);
        line("worst write", "ms", writer.latency.max().as_secs_f64() * 1e3);
        line("worst read", "ms", reads.max().as_secs_f64() * 1e3);
        for (who, bytes, latency) in [("writer", writer.bytes, &writer.latency), ("readers", read, &reads)] {
            let mut row =
                Row::new(Engine::Raw, Mode::Raw, format!("real fairness {who}, {name}"), bytes, seconds);
            row.mb_per_s = Some(bytes as f64 / 1e6 / seconds);
            row.latency_us = Some(latency_us(latency));
            self.rows.push(row);
            self.add_latency(&format!("Latency: {who}"), name, colour_of(name), latency);
        }
    }
}

fn three_jobs(device: &Arc<dyn BlockDevice>, length: Duration) -> Result<[Tally; 3], ReproError> {
    let third = device.geometry().capacity_bytes / 3 / READ * READ;
    let end = sync::now() + length;
    let jobs: Vec<_> = (0..3u64)
        .map(|number| {
            let slot = Arc::new(Mutex::new(None));
            let (device, result) = (Arc::clone(device), Arc::clone(&slot));
            let owner = IoOwner { task: TaskId(number + 1), priority: IoPriority::default() };
            let body = move || {
                let _charged = owner.enter();
                *result.lock() = Some(transfer_until(&*device, number == 0, number * third, third, end));
            };
            (sync::spawn("fairness", body), slot)
        })
        .collect();
    let mut tallies = Vec::new();
    for (thread, slot) in jobs {
        thread.map_err(|source| ReproError::Thread { source })?.join();
        tallies.push(slot.lock().take());
    }
    let mut next = || match tallies.remove(0) {
        Some(result) => result,
        None => Ok(Tally { bytes: 0, latency: Histogram::default() }),
    };
    Ok([next()?, next()?, next()?])
}

/// Sequential transfers in `len` bytes from `start`, in a loop.
fn transfer_until(
    device: &dyn BlockDevice,
    writes: bool,
    start: u64,
    len: u64,
    end: Duration,
) -> Result<Tally, ReproError> {
    let step = if writes { WRITE } else { READ };
    let mut memory =
        AlignedBuf::try_zeroed(step as usize, 4096).map_err(|source| ReproError::Thread { source })?;
    let (mut tally, mut at) = (Tally { bytes: 0, latency: Histogram::default() }, 0);
    loop {
        let begun = sync::now();
        transfer(device, writes, start + at, &mut memory)?;
        let done = sync::now();
        tally.latency.record(done.saturating_sub(begun));
        if done >= end {
            return Ok(tally);
        }
        tally.bytes += step;
        at = (at + step) % len.max(step);
    }
}

fn transfer(device: &dyn BlockDevice, writes: bool, at: u64, memory: &mut [u8]) -> Result<(), IoError> {
    let sector = Sector::containing(at);
    let mut bio = if writes { Bio::write(sector, memory, BioFlags::SYNC) } else { Bio::read(sector, memory) };
    device.execute(std::slice::from_mut(&mut bio))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_schedulers_are_measured_on_real_time() {
        let device: Arc<dyn BlockDevice> = diorite_device::MemoryDevice::new(24 << 20);
        let outcome = fairness_on(&device, Duration::from_millis(200)).expect("runs");
        let moved =
            outcome.lines.iter().filter(|line| line.column == "writer" && line.measured > 0.0).count();
        assert_eq!(moved, 3, "{:#?}", outcome.lines);
        assert_eq!(outcome.verdicts.len(), 4);
        assert!(outcome.verdicts.iter().all(|verdict| verdict.measured > 0.0), "{:#?}", outcome.verdicts);
    }
}

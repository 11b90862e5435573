//! Seed 001: one direct writer beside two buffered sequential readers, for ten seconds, on one disk.
//!
//! The three published rows come from three rule sets of CFQ. Then `inject`, ours, on the same disk, and both on two drives
//! that are less friendly. The job is fio's: 4 KiB blocks, the synchronous engine; the host is the specification's.

use std::sync::Arc;
use std::time::Duration;

use diorite::mkfs::Flavor;
use diorite::{BlockDevice, DirectIo, File, IoOwner, IoPriority, TaskId};
use diorite_block::ScheduledDevice;
use diorite_block::scheduler::{Histogram, SchedulerKind};
use diorite_block::sync::{self, Mutex};
use diorite_sim::disk::Trace;
use diorite_sim::{CpuCosts, SimDisk, Simulation, WorldOptions};
use serde::Deserialize;

use super::ground::{Ground, Opened, open};
use super::{Line, Options, Outcome, ReproError, latency_us};
use crate::matrix::colour_of;
use crate::report::{Colour, FigureWidth, Lane, Timeline};
use crate::{Engine, Mode, Row, Verdict};

const BLOCK: usize = 4096;
/// The files, laid out before the clock starts; longer than what a job gets through in ten seconds.
const FILES: [(&str, u64); 3] =
    [("/seqwrite", 128 << 20), ("/seqread.0", 1500 << 20), ("/seqread.1", 1500 << 20)];
const VOLUME_BYTES: u64 = 12 << 30;
/// Linux' read-ahead then.
const OPENED: Opened = Opened { cache_bytes: 64 << 20, read_ahead_bytes: 128 << 10 };
/// What fio and the kernel do between two writes, beyond what the library charges itself.
const WRITER_THINKS: Duration = Duration::from_micros(65);
/// Requests in the drive at once.
const DEPTH: u32 = 31;
/// Part of the run that the time line shows, in seconds.
const SHOWN: (f64, f64) = (1.0, 2.0);

#[derive(Deserialize)]
struct Published {
    before: PublishedRow,
    regression: PublishedRow,
    fixed: PublishedRow,
}

#[derive(Clone, Copy, Deserialize)]
struct PublishedRow {
    writer_kb_per_s: f64,
    readers_mb_per_s: f64,
}

fn published() -> Published {
    toml::from_str(include_str!("../../published/fairness-2009.toml"))
        .expect("embedded file, parsed in a test")
}

/// One run of the job.
struct Run {
    writer_kb_per_s: f64,
    readers_mb_per_s: f64,
    writes: Histogram,
    reads: Histogram,
    bytes: (u64, u64),
    trace: Vec<Trace>,
    trace_hash: u64,
}

#[derive(Default)]
struct Tally {
    bytes: u64,
    latency: Histogram,
}

/// The table, `inject`'s row beside it, and both on the less friendly drives.
pub fn fairness(options: &Options) -> Result<Outcome, ReproError> {
    let published = published();
    let mut outcome = Outcome {
        title: "Fairness: one direct writer beside two readers (2009)",
        text: "A synchronous direct writer shares a disk with two greedy buffered readers for ten seconds. A change on the way \
               to Linux 2.6.33 took the writer's right to be waited for, and it fell to less than a hundredth; the fix gave it \
               back. The three rule sets of CFQ run here on the same simulated disk, then inject, Diorite's own, which lets cheap writes in beside the \
               readers and stops where a drive does not like it.",
        ..Outcome::default()
    };
    let rows = [
        ("cfq:2.6.32", Some(published.before)),
        ("cfq:noidle-regression", Some(published.regression)),
        ("cfq:fixed", Some(published.fixed)),
        ("inject", None),
    ];
    let ground = Ground::new("sata-2009", Flavor::Ext4, VOLUME_BYTES, &FILES)?;
    let run = |disk: &str, scheduler: &str, options: &Options| run(&ground, disk, scheduler, options);
    let mut friendly = Vec::new();
    for (scheduler, row) in rows {
        let run = run("sata-2009", scheduler, options)?;
        outcome.add_fairness(scheduler, "sata-2009", &run, row);
        friendly.push(run);
    }
    let again = run("sata-2009", "inject", options)?;
    outcome.verdicts.push(Verdict::at_least(
        "fairness: the same seed gives the same run",
        1.0,
        f64::from(u8::from(again.trace_hash == friendly[3].trace_hash)),
    ));
    outcome.judge_inject(&friendly[3]);
    outcome.headline = format!(
        "inject: writer {:.0} KB/s and readers {:.0} MB/s at once; CFQ as fixed: {:.0} KB/s and {:.0} MB/s.",
        friendly[3].writer_kb_per_s,
        friendly[3].readers_mb_per_s,
        friendly[2].writer_kb_per_s,
        friendly[2].readers_mb_per_s
    );
    for disk in ["sata-2009-stall", "sata-2009-nocache"] {
        let [cfq, inject] = [run(disk, "cfq:fixed", options)?, run(disk, "inject", options)?];
        outcome.add_fairness("cfq:fixed", disk, &cfq, None);
        outcome.add_fairness("inject", disk, &inject, None);
        // What a write costs the readers is charged to the writer: shares move a little one way or the other.
        let ratio = |ours: f64, theirs: f64| ours / theirs.max(1e-9);
        let writer = ratio(inject.writer_kb_per_s, cfq.writer_kb_per_s);
        let readers = ratio(inject.readers_mb_per_s, cfq.readers_mb_per_s);
        outcome.verdicts.push(Verdict::at_least(
            format!("fairness: inject/cfq on {disk}, mean of writer and readers"),
            0.97,
            f64::midpoint(writer, readers),
        ));
    }
    outcome.notes.push(
        "sata-2009 goes on streaming for a reader while it takes writes into its cache. The published rows do not tell \
         whether the disk of 2009 did; sata-2009-stall is the same disk that does not."
            .to_owned(),
    );
    Ok(outcome)
}

impl Outcome {
    fn add_fairness(&mut self, scheduler: &str, disk: &str, run: &Run, published: Option<PublishedRow>) {
        let name = &format!("{scheduler} on {disk}");
        let line =
            |column, unit, published, measured| Line { row: name.clone(), column, unit, published, measured };
        let (writer, readers) =
            (published.map(|row| row.writer_kb_per_s), published.map(|row| row.readers_mb_per_s));
        let ms = |histogram: &Histogram| histogram.max().as_secs_f64() * 1e3;
        self.lines.push(line("writer", "KB/s", writer, run.writer_kb_per_s));
        self.lines.push(line("readers", "MB/s", readers, run.readers_mb_per_s));
        self.lines.push(line("worst write", "ms", None, ms(&run.writes)));
        self.lines.push(line("worst read", "ms", None, ms(&run.reads)));
        if let Some(row) = published {
            let off = |measured: f64, target: f64| ((measured / target - 1.0) * 100.0).abs();
            let percent = |what| format!("fairness: {name}: {what}, percent off the published row");
            self.verdicts.push(Verdict::at_most(
                percent("writer"),
                15.0,
                off(run.writer_kb_per_s, row.writer_kb_per_s),
            ));
            self.verdicts.push(Verdict::at_most(
                percent("readers"),
                15.0,
                off(run.readers_mb_per_s, row.readers_mb_per_s),
            ));
        }
        let sides = [
            (Mode::Direct, "writer", run.bytes.0, &run.writes),
            (Mode::Buffered, "readers", run.bytes.1, &run.reads),
        ];
        for (mode, who, bytes, latency) in sides {
            let seconds = run.bytes.0 as f64 / 1024.0 / run.writer_kb_per_s.max(1e-9);
            let mut row = Row::new(Engine::Sim, mode, format!("fairness {who}, {name}"), bytes, seconds);
            row.mb_per_s = Some(bytes as f64 / 1e6 / seconds.max(1e-9));
            row.ops_per_s = Some(latency.count() as f64 / seconds.max(1e-9));
            row.latency_us = Some(latency_us(latency));
            self.rows.push(row);
            let caption =
                format!("Latency of the {who}' operations on {disk}").replace("writer'", "writer's");
            self.add_latency(&caption, scheduler, colour_of(scheduler), latency);
        }
        let width = if disk == "sata-2009" { FigureWidth::Full } else { FigureWidth::Half };
        self.timelines.push((name.clone(), width, timeline(&run.trace)));
    }

    fn judge_inject(&mut self, inject: &Run) {
        let ms = |histogram: &Histogram| histogram.max().as_secs_f64() * 1e3;
        self.verdicts.extend([
            Verdict::at_least("fairness: inject: writer, KB/s", 3000.0, inject.writer_kb_per_s),
            Verdict::at_least("fairness: inject: readers, MB/s", 130.0, inject.readers_mb_per_s),
            Verdict::at_most("fairness: inject: worst write, ms", 100.0, ms(&inject.writes)),
        ]);
    }
}

/// Who had the disk: a lane for each job, and the position of what was read or written.
fn timeline(trace: &[Trace]) -> Timeline {
    let seconds = |duration: Duration| duration.as_secs_f64();
    let shown = |entry: &&Trace| seconds(entry.completed) >= SHOWN.0 && seconds(entry.submitted) <= SHOWN.1;
    let position = |entry: &Trace| (seconds(entry.completed), entry.command.start as f64 / 1e9);
    let lane = |task: u64, label: &str| Lane {
        label: label.to_owned(),
        colour: Colour::Series(task as u8 - 1),
        places: trace.iter().filter(shown).filter(|entry| entry.task == task).map(position).collect(),
        spans: join_spans(
            trace
                .iter()
                .filter(shown)
                .filter(|entry| entry.task == task)
                .map(|e| (seconds(e.submitted), seconds(e.completed))),
        ),
    };
    Timeline { window_s: SHOWN, lanes: vec![lane(1, "writer"), lane(2, "reader 1"), lane(3, "reader 2")] }
}

/// Spans with less than a millisecond between them become one.
fn join_spans(spans: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut sorted: Vec<_> = spans.collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut joined: Vec<(f64, f64)> = Vec::new();
    for (start, end) in sorted {
        match joined.last_mut() {
            Some(last) if start - last.1 < 1e-3 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}

/// Run the job once in a world of its own.
fn run(ground: &Ground, disk: &str, scheduler: &str, options: &Options) -> Result<Run, ReproError> {
    let drive = ground.disk(Some(disk))?;
    let kind: SchedulerKind = scheduler.parse().expect("a scheduler of this table");
    let world = WorldOptions { seed: options.seed, costs: CpuCosts::OF_2009, ..WorldOptions::default() };
    let length = options.fairness_length;
    drive.start_trace();
    let in_world = Arc::clone(&drive);
    let (result, report) = Simulation::run_one(world, move || job(in_world, kind, length))?;
    let [writer, first, second] = result?;
    let mut reads = first.latency;
    reads.add(&second.latency);
    let (written, read, seconds) = (writer.bytes, first.bytes + second.bytes, length.as_secs_f64());
    Ok(Run {
        writer_kb_per_s: written as f64 / 1024.0 / seconds,
        readers_mb_per_s: read as f64 / 1e6 / seconds,
        writes: writer.latency,
        reads,
        bytes: (written, read),
        trace: drive.take_trace(),
        trace_hash: report.trace_hash,
    })
}

/// The first process: opens the files, starts the three jobs and waits for them.
fn job(drive: Arc<SimDisk>, kind: SchedulerKind, length: Duration) -> Result<[Tally; 3], ReproError> {
    let device: Arc<dyn BlockDevice> = match kind.build() {
        Some(scheduler) => ScheduledDevice::new(drive, scheduler, DEPTH),
        None => drive,
    };
    let filesystem = open(device, OPENED)?;
    let fail = ReproError::diorite("opening the files");
    let mut files = Vec::new();
    for (number, (path, _)) in FILES.into_iter().enumerate() {
        let direct = if number == 0 { DirectIo::Required } else { DirectIo::Off };
        let options = filesystem.open_options().read(true).write(number == 0).direct(direct);
        files.push(options.open(path).map_err(&fail)?);
    }
    let end = sync::now() + length;
    let tallies: Vec<_> = files.iter().map(|_| Arc::new(Mutex::new(Ok(Tally::default())))).collect();
    let threads: Vec<_> = files
        .into_iter()
        .zip(&tallies)
        .enumerate()
        .map(|(number, (file, tally))| {
            let (name, tally) = (["writer", "reader 1", "reader 2"][number], Arc::clone(tally));
            let owner = IoOwner { task: TaskId(number as u64 + 1), priority: IoPriority::default() };
            let body = move || {
                let _charged = owner.enter();
                let result = if number == 0 { write_until(&file, end) } else { read_until(&file, end) };
                *tally.lock() = result;
            };
            sync::spawn(name, body).expect("a simulation gives threads")
        })
        .collect();
    threads.into_iter().for_each(sync::JoinHandle::join);
    drop(filesystem);
    let mut results =
        tallies.into_iter().map(|tally| std::mem::replace(&mut *tally.lock(), Ok(Tally::default())));
    let mut next = || results.next().expect("three jobs");
    Ok([next()?, next()?, next()?])
}

fn write_until(file: &File, end: Duration) -> Result<Tally, ReproError> {
    let fail = ReproError::diorite("the direct writer");
    let (memory, mut tally) = (file.buffer(BLOCK).map_err(&fail)?, Tally::default());
    loop {
        let begun = sync::now();
        file.write_all_at(&memory, tally.bytes).map_err(&fail)?;
        let done = sync::now();
        tally.latency.record(done.saturating_sub(begun));
        if done >= end {
            return Ok(tally);
        }
        tally.bytes += BLOCK as u64;
        sync::sleep(WRITER_THINKS);
    }
}

fn read_until(file: &File, end: Duration) -> Result<Tally, ReproError> {
    let fail = ReproError::diorite("a buffered reader");
    let (mut memory, mut tally) = (vec![0u8; BLOCK], Tally::default());
    loop {
        let begun = sync::now();
        file.read_exact_at(&mut memory, tally.bytes).map_err(&fail)?;
        let done = sync::now();
        tally.latency.record(done.saturating_sub(begun));
        if done >= end {
            return Ok(tally);
        }
        tally.bytes += BLOCK as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_table_is_readable() {
        assert!((published().regression.writer_kb_per_s - 19.0).abs() < 0.1);
    }

    #[test]
    fn spans_join_over_short_gaps() {
        let spans = [(0.0, 0.1), (0.1005, 0.2), (0.5, 0.6)];
        assert_eq!(join_spans(spans.into_iter()), [(0.0, 0.2), (0.5, 0.6)]);
    }
}

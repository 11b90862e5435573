//! Seed 001: one direct writer beside two buffered sequential readers, for ten seconds, on one disk.
//!
//! Each row is the posted job file, run as `diorite job fairness-2009.fio --on sim:DISK --fs ext4 --scheduler NAME`, with Diorite's
//! page cache and read-ahead, or with `--read-ahead 128K` as Linux in 2009. The simulated disk has the files of an earlier
//! run; with `--set overwrite=0` the job makes the writer's file. The three published rows are three rule sets of CFQ.
//! Further rows are Diorite's `inject` on the same disk, and both on two drives without friendly caches.

use std::time::Duration;

use diorite::mkfs::Flavor;
use diorite_scheduler::SchedulerKind;
use hdrhistogram::Histogram;
use serde::Deserialize;

use crate::error::ReproError;
use crate::outcome::{Line, Options, Outcome};
use crate::published::Fitted;
use diorite_bench::Silent;
use diorite_bench::{Engine, LatencyUs, Mode, Row, Verdict};
use diorite_job::{DirectionResult, JobOutcome, LaidOut, Simulated, SimulatedError, parse};

/// The posted job file.
const JOB: &str = include_str!("../published/fairness-2009.fio");
/// Linux' read-ahead in 2009.
const READ_AHEAD_OF_2009: usize = 128 << 10;
/// Length of the published run.
const PUBLISHED_LENGTH: Duration = Duration::from_secs(10);
/// Parameters that were fitted to a published figure, or chosen with knowledge of it.
const FITTED: [Fitted; 4] = [
    (
        "cfq:2.6.32 on sata-2009",
        "writer",
        "what a cached write costs the drive and the host (write_command_us)",
    ),
    ("cfq:2.6.32 on sata-2009", "readers", "how far the drive reads ahead (read_ahead_kib)"),
    ("cfq:noidle-regression on sata-2009", "readers", "the rate of the outer zone (outer_mb_per_s)"),
    ("cfq:noidle-regression on sata-2009", "writer", "that the writer's file exists before the job"),
];

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
    toml::from_str(include_str!("../published/fairness-2009.toml")).expect("embedded file, parsed in a test")
}

/// One run of the job.
struct Run(JobOutcome);

impl Run {
    fn writer(&self) -> &DirectionResult {
        &self.0.results[0].write
    }

    fn readers(&self) -> impl Iterator<Item = &DirectionResult> {
        self.0.results[1..].iter().map(|result| &result.read)
    }

    fn writer_kb_per_s(&self) -> f64 {
        self.writer().bandwidth() / 1024.0
    }

    fn readers_mb_per_s(&self) -> f64 {
        self.readers().map(DirectionResult::bandwidth).sum::<f64>() / 1e6
    }

    fn reads(&self) -> Histogram<u64> {
        let mut all = self.writer().latency_ns.clone();
        all.reset();
        self.readers().for_each(|reader| all.add(&reader.latency_ns).expect("all have the same bounds"));
        all
    }

    /// Whether each operation of both runs took the same time.
    fn is_same(&self, other: &Self) -> bool {
        self.writer().latency_ns == other.writer().latency_ns && self.reads() == other.reads()
    }
}

/// The job's files, laid out once; each run begins with a copy.
struct Bench<'a> {
    laid_out: LaidOut,
    options: &'a Options,
}

/// The writer's file before the job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriterFile {
    /// It exists in full size, the default of a simulated disk.
    Written,
    /// The job makes it.
    New,
}

impl<'a> Bench<'a> {
    fn new(writer_file: WriterFile, options: &'a Options) -> Result<Self, ReproError> {
        let mut jobs = parse("fairness-2009.fio", JOB).expect("embedded file, parsed in a test");
        for job in &mut jobs.jobs {
            job.runtime = Some(options.fairness_length);
            job.overwrite = (writer_file == WriterFile::New).then_some(false);
        }
        let on = Self::on("sata-2009", SchedulerKind::None, None, options);
        Ok(Self { laid_out: LaidOut::new(&jobs, &on, &Silent)?, options })
    }

    fn on(disk: &str, scheduler: SchedulerKind, read_ahead: Option<usize>, options: &Options) -> Simulated {
        Simulated {
            disk: disk.to_owned(),
            flavor: Flavor::Ext4,
            scheduler: Some(scheduler),
            read_ahead_bytes: read_ahead,
            seed: options.seed,
        }
    }

    fn run(&self, disk: &str, scheduler: &str, read_ahead: Option<usize>) -> Result<Run, ReproError> {
        let kind = scheduler.parse().expect("a scheduler of this table");
        let outcome = self.laid_out.run(&Self::on(disk, kind, read_ahead, self.options), &Silent)?;
        Ok(Run(outcome.complete().map_err(SimulatedError::from)?))
    }
}

/// The table, with rows of `inject`, of Diorite's read-ahead, and of other drives.
pub fn fairness(options: &Options) -> Result<Outcome, ReproError> {
    let published = published();
    let mut outcome = Outcome {
        title: "Fairness: one direct writer beside two readers (2009)",
        text: "A synchronous direct writer shares a disk with two greedy buffered readers for ten seconds. A change before \
               Linux 2.6.33 removed idling for the writer, and its throughput fell to less than a hundredth; a later change restored \
               it. The three rule sets of CFQ run here on the same simulated disk. Diorite's inject adds cheap writes between the \
               reads, and stops on a drive where they are expensive.",
        ..Outcome::default()
    };
    let rows = [
        ("cfq:2.6.32", Some(published.before)),
        ("cfq:noidle-regression", Some(published.regression)),
        ("cfq:fixed", Some(published.fixed)),
        ("inject", None),
    ];
    let bench = Bench::new(WriterFile::Written, options)?;
    let then = Some(READ_AHEAD_OF_2009);
    let mut friendly = Vec::new();
    for (scheduler, row) in rows {
        let run = bench.run("sata-2009", scheduler, then)?;
        outcome.add_fairness(&format!("{scheduler} on sata-2009"), &run, row);
        friendly.push(run);
    }
    let again = bench.run("sata-2009", "inject", then)?;
    outcome.verdicts.push(Verdict::at_least(
        "fairness: the same seed gives the same run",
        1.0,
        f64::from(u8::from(again.is_same(&friendly[3]))),
    ));
    outcome.judge_inject(&friendly[3]);
    outcome.headline = format!(
        "inject: writer {:.0} KB/s and readers {:.0} MB/s at once; CFQ as fixed: {:.0} KB/s and {:.0} MB/s.",
        friendly[3].writer_kb_per_s(),
        friendly[3].readers_mb_per_s(),
        friendly[2].writer_kb_per_s(),
        friendly[2].readers_mb_per_s()
    );
    let scheduler = "cfq:noidle-regression";
    let run = Bench::new(WriterFile::New, options)?.run("sata-2009", scheduler, then)?;
    let name = format!("{scheduler} on sata-2009, the writer's file new");
    outcome.add_fairness(&name, &run, None);
    outcome.compare_with_todays_read_ahead(&bench)?;
    outcome.compare_on_other_drives(&bench)?;
    let done = options.fairness_length.as_secs_f64() / PUBLISHED_LENGTH.as_secs_f64();
    let options = Options { amount_percent: (done * 100.0) as u64, ..options.clone() };
    outcome.judge_published("fairness", &FITTED, &options);
    outcome.notes.push(
        "Each row is `diorite job fairness-2009.fio --on sim:DISK --fs ext4 --scheduler NAME`, with --read-ahead 128K, \
         which Linux had in 2009, unless the row says otherwise. The disk is Diorite's sata-2009. The CPU costs are those of a machine of \
         today, so the host's work between two writes in 2009 is part of the disk's time for a write."
            .to_owned(),
    );
    outcome.notes.push(
        "A simulated disk has the files of an earlier run of the job. The post does not say whether they existed; three kernels ran \
         the job in one directory. If the job makes the writer's file (--set overwrite=0: \"the writer's file new\"), every write \
         allocates. The commit of the journal after five seconds is a fourth queue for CFQ, whose average of busy queues then stays at \
         four: slices have 75 ms instead of 100. With the regressing rules the writer gets one write in a cycle of both readers' \
         slices, so it gets 28 % more than published."
            .to_owned(),
    );
    outcome.notes.push(
        "sata-2009 continues to stream for a reader while its cache takes writes. The published rows do not show whether the disk \
         of 2009 did; sata-2009-stall is the same disk without it."
            .to_owned(),
    );
    Ok(outcome)
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

impl Outcome {
    /// `none` and `inject` with the default read-ahead.
    fn compare_with_todays_read_ahead(&mut self, bench: &Bench<'_>) -> Result<(), ReproError> {
        let [none, inject] = [bench.run("sata-2009", "none", None)?, bench.run("sata-2009", "inject", None)?];
        for (scheduler, run) in [("none", &none), ("inject", &inject)] {
            let name = format!("{scheduler} on sata-2009, Diorite's read-ahead");
            self.add_fairness(&name, run, None);
        }
        self.verdicts.extend([
            Verdict::at_least(
                "fairness: inject with Diorite's read-ahead: writer, KB/s",
                3000.0,
                inject.writer_kb_per_s(),
            ),
            Verdict::at_least(
                "fairness: inject/none with Diorite's read-ahead: readers",
                1.0,
                inject.readers_mb_per_s() / none.readers_mb_per_s().max(1e-9),
            ),
        ]);
        Ok(())
    }

    fn compare_on_other_drives(&mut self, bench: &Bench<'_>) -> Result<(), ReproError> {
        let then = Some(READ_AHEAD_OF_2009);
        for disk in ["sata-2009-stall", "sata-2009-nocache"] {
            let [cfq, inject] = [bench.run(disk, "cfq:fixed", then)?, bench.run(disk, "inject", then)?];
            for (scheduler, run) in [("cfq:fixed", &cfq), ("inject", &inject)] {
                self.add_fairness(&format!("{scheduler} on {disk}"), run, None);
            }
            // `inject` charges the cost of a write for the readers to the writer, which moves the shares a little.
            let writer = inject.writer_kb_per_s() / cfq.writer_kb_per_s().max(1e-9);
            let readers = inject.readers_mb_per_s() / cfq.readers_mb_per_s().max(1e-9);
            self.verdicts.push(Verdict::at_least(
                format!("fairness: inject/cfq on {disk}, mean of writer and readers"),
                0.97,
                f64::midpoint(writer, readers),
            ));
        }
        Ok(())
    }

    fn add_fairness(&mut self, name: &str, run: &Run, published: Option<PublishedRow>) {
        let reads = run.reads();
        let writes = &run.writer().latency_ns;
        let line = |column, unit, published, measured| Line {
            row: name.to_owned(),
            column,
            unit,
            published,
            measured,
        };
        let (writer, readers) =
            (published.map(|row| row.writer_kb_per_s), published.map(|row| row.readers_mb_per_s));
        self.lines.push(line("writer", "KB/s", writer, run.writer_kb_per_s()));
        self.lines.push(line("readers", "MB/s", readers, run.readers_mb_per_s()));
        self.lines.push(line("worst write", "ms", None, ms(writes.max())));
        self.lines.push(line("worst read", "ms", None, ms(reads.max())));
        let seconds = run.writer().runtime.as_secs_f64();
        let read_bytes = run.readers().map(|reader| reader.bytes).sum();
        let sides = [
            (Mode::Direct, "writer", run.writer().bytes, writes),
            (Mode::Buffered, "readers", read_bytes, &reads),
        ];
        for (mode, who, bytes, latency) in sides {
            let mut row = Row::new(Engine::Sim, mode, format!("fairness {who}, {name}"), bytes, seconds);
            row.mb_per_s = Some(bytes as f64 / 1e6 / seconds.max(1e-9));
            row.ops_per_s = Some(latency.len() as f64 / seconds.max(1e-9));
            row.latency_us = Some(LatencyUs::of(latency));
            self.rows.push(row);
        }
    }

    fn judge_inject(&mut self, inject: &Run) {
        self.verdicts.extend([
            Verdict::at_least("fairness: inject: writer, KB/s", 3000.0, inject.writer_kb_per_s()),
            Verdict::at_least("fairness: inject: readers, MB/s", 130.0, inject.readers_mb_per_s()),
            Verdict::at_most(
                "fairness: inject: worst write, ms",
                100.0,
                ms(inject.writer().latency_ns.max()),
            ),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_table_and_job_are_readable() {
        assert!((published().regression.writer_kb_per_s - 19.0).abs() < 0.1);
        assert_eq!(parse("fairness-2009.fio", JOB).expect("a job file").jobs.len(), 2);
    }
}

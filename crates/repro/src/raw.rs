//! Seed 004: eight disks on one link, read round-robin by one thread.
//!
//! The published rows: synchronous direct reads keep one disk busy at a time. Buffered reads keep all disks busy, and pay for the
//! copy. Without the copy they are 1.5 times as fast. A further row has several direct reads in flight on each disk, from the
//! same thread.

use diorite::SchedulerKind;
use diorite_sim::{CpuCosts, WorldOptions};
use serde::Deserialize;

use crate::error::ReproError;
use crate::outcome::{Line, Options, Outcome};
use crate::published::Fitted;
use diorite_bench::diskperf::{self, DiskPerf};
use diorite_bench::{Engine, Mode, Verdict};

/// 1 MiB reads of each disk in the published runs.
const BLOCKS: u64 = 2048;
const MIB: f64 = 1_048_576.0;

/// Published figures that the CPU costs of 2002 were fitted to. The disks follow the data sheet of a drive of that time.
const FITTED: [Fitted; 2] = [
    ("buffered", "rate", "2.23 ns for a copied byte"),
    ("nocopy", "rate", "20 \u{b5}s for a page of the cache"),
];

#[derive(Deserialize)]
struct Published {
    direct: PublishedRow,
    raw: PublishedRow,
    base: PublishedRow,
    nocopy: PublishedRow,
}

#[derive(Clone, Copy, Deserialize)]
struct PublishedRow {
    mb_per_s: f64,
    mean_us: f64,
}

fn published() -> Published {
    toml::from_str(include_str!("../published/raw-2002.toml")).expect("embedded file, parsed in a test")
}

/// The table, and the pipelined direct read beside it.
pub fn raw(options: &Options) -> Result<Outcome, ReproError> {
    let published = published();
    let mut outcome = Outcome {
        title: "Raw devices: eight disks, one reader (2002)",
        text: "One thread reads eight disks in turn. Synchronous direct reads keep one disk busy at a time. The page cache reads \
               ahead on all disks, and pays for a copy; without the copy it was 1.5 times as fast. In a further row the same thread keeps \
               several direct reads in flight on each disk. The disks are a simulated array on one 2 Gbit/s link.",
        ..Outcome::default()
    };
    let blocks = (BLOCKS * options.amount_percent / 100).max(16);
    let large = DiskPerf { blocks, block_bytes: 1 << 20, depth: 1, ..DiskPerf::default() };
    let small = DiskPerf { blocks: blocks * 128, block_bytes: 8192, cache_bytes: 16 << 20, ..large };
    let runs = [
        ("direct and raw", DiskPerf { mode: Mode::Direct, ..large }, Some(published.direct)),
        ("buffered", DiskPerf { mode: Mode::Buffered, ..small }, Some(published.base)),
        ("nocopy", DiskPerf { mode: Mode::Nocopy, ..small }, Some(published.nocopy)),
        ("direct, 4 in flight on each disk", DiskPerf { mode: Mode::Direct, depth: 4, ..large }, None),
    ];
    let mut rates = Vec::new();
    for (name, test, row) in runs {
        rates.push(outcome.measure(name, test, row, options.seed)?);
    }
    let [direct, buffered, nocopy, pipelined] = rates[..] else { unreachable!("four runs") };
    let ratio = |a: f64, b: f64| a / b.max(1e-9);
    outcome.verdicts.extend([
        Verdict::at_most(
            "raw: synchronous direct / buffered",
            ratio(published.direct.mb_per_s, published.base.mb_per_s) * 1.15,
            ratio(direct, buffered),
        ),
        Verdict::at_least(
            "raw: without the copy / buffered",
            ratio(published.nocopy.mb_per_s, published.base.mb_per_s) * 0.85,
            ratio(nocopy, buffered),
        ),
        Verdict::at_least("raw: our pipelined direct read / without the copy", 1.0, ratio(pipelined, nocopy)),
    ]);
    outcome.headline = format!(
        "Direct reads: {direct:.0} Mbytes/s one at a time, {pipelined:.0} with four in flight on each disk; without the copy {nocopy:.0}."
    );
    outcome.judge_published("raw", &FITTED, options);
    outcome.notes.push(format!(
        "Direct reads of the block device and reads of a raw device are one row, because both are one bio to the same disk here. In \
         2002 raw devices were slower ({:.2} Mbytes/s and {:.0} \u{b5}s against {:.2} and {:.0}); the model has no reason for it.",
        published.raw.mb_per_s, published.raw.mean_us, published.direct.mb_per_s, published.direct.mean_us
    ));
    Ok(outcome)
}

impl Outcome {
    /// Run one row in a new world; its rate in the unit of the publication.
    fn measure(
        &mut self,
        name: &str,
        test: DiskPerf,
        published: Option<PublishedRow>,
        seed: u64,
    ) -> Result<f64, ReproError> {
        let disks = diskperf::simulated_devices(&["fc-array".to_owned()])?;
        let world = WorldOptions { seed, cpus: 2, costs: CpuCosts::OF_2002, ..WorldOptions::default() };
        let (done, _) = diskperf::run_simulated(disks, test, Some(SchedulerKind::None), world)?;
        let mut row = done.row(Engine::Sim);
        row.test = format!("raw {name}");
        let rate = done.bytes as f64 / MIB / done.spent.seconds.max(1e-9);
        let mean = row.latency_us.map_or(0.0, |latency| latency.mean);
        let line = |column, unit, published, measured| Line::new(name, column, unit, published, measured);
        self.lines.push(line("rate", "Mbytes/s", published.map(|row| row.mb_per_s), rate));
        // For synchronous reads this is the reciprocal of the rate, which has a verdict already.
        self.lines.push(line("mean time of a read", "us", None, mean));
        self.lines.push(line("CPU", "%", None, row.cpu_percent.unwrap_or(0.0)));
        self.rows.push(row);
        Ok(rate)
    }
}

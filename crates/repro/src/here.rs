//! The published tables on this machine, in real time, beside their simulations.
//!
//! Seed 003's bonnie on files in a directory; seed 004's readers on memory, where the copy is the only cost.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use diorite::BlockDevice;
use diorite_device::MemoryDevice;

use crate::error::ReproError;
use crate::outcome::{Line, Outcome};
use diorite_bench::bonnie::{Effort, FileSize, compare_all};
use diorite_bench::diskperf::{self, DiskMode, DiskPerf};
use diorite_bench::{Cancel, Observer, Silent};
use diorite_bench::{Engine, Mode, Row, Verdict};

/// Effort of bonnie. The machine's CPU time has centiseconds: for smaller files direct I/O would use too few of them.
const EFFORT: Effort = Effort {
    size: FileSize::Affordable { least: 256, most: 384 },
    rounds_min: 3,
    budget: Duration::from_secs(30),
    per_byte: false,
};
/// Memory-backed devices, and 1 MiB transfers of each.
const MEMORIES: usize = 8;
const MEMORY_BLOCKS: u64 = 32;
/// Rounds over all ways; the medians are reported.
const ROUNDS: usize = 5;

/// Add the bonnie table of this machine. Files are made in `directory` and removed.
pub fn odirect_here(
    outcome: &mut Outcome,
    directory: &Path,
    cancel: &Cancel,
    observer: &dyn Observer,
) -> Result<(), ReproError> {
    let comparison = compare_all(directory, &EFFORT, String::new(), cancel, observer)?;
    let tests = ["block_write", "rewrite", "block_read"];
    for row in comparison.report.rows {
        // A row that is too short has no rate.
        if tests.contains(&&*row.test) && row.mode != Mode::BufferedWarm && row.mb_per_s.is_some() {
            outcome.add_here(row);
        }
    }
    outcome.verdicts.extend(
        comparison.report.verdicts.into_iter().map(|verdict| Verdict {
            name: format!("odirect: on this machine: {}", verdict.name),
            ..verdict
        }),
    );
    outcome.notes.push(
        "The figures of this machine are CPU time of the whole machine and real time, in the current directory. They include other \
         programs. `diorite bonnie` shows more."
            .to_owned(),
    );
    outcome.notes.extend(comparison.report.notes);
    Ok(())
}

impl Outcome {
    fn add_here(&mut self, mut row: Row) {
        let who = if row.engine == Engine::Host { "host" } else { "Diorite" };
        let way = match row.mode {
            Mode::Direct => "direct",
            Mode::DirectInFlight => "direct, 8 in flight",
            _ => "buffered",
        };
        let name = format!("{who} {way}, {}", row.test);
        let mut line = |column, unit, measured| {
            self.lines.push(Line::new(&name, column, unit, None, measured));
        };
        line("rate on this machine", "MB/s", row.mb_per_s.unwrap_or(0.0));
        line("CPU on this machine", "s per GB", row.cpu_s_per_gb.unwrap_or(0.0));
        row.test = format!("odirect here: {}", row.test);
        self.rows.push(row);
    }
}

/// Add the readers of 2002 on memory-backed devices of this machine: the cost of a read without a disk.
pub(super) fn raw_in_memory(outcome: &mut Outcome) -> Result<(), ReproError> {
    let devices: Vec<Arc<dyn BlockDevice>> =
        (0..MEMORIES).map(|_| MemoryDevice::new(MEMORY_BLOCKS << 20) as _).collect();
    let large = DiskPerf { blocks: MEMORY_BLOCKS, block_bytes: 1 << 20, depth: 1, ..DiskPerf::default() };
    let small = DiskPerf { blocks: MEMORY_BLOCKS * 128, block_bytes: 8192, cache_bytes: 8 << 20, ..large };
    let ways = [
        ("direct and raw", DiskPerf { mode: DiskMode::Direct, ..large }),
        ("buffered", DiskPerf { mode: DiskMode::Buffered, ..small }),
        ("nocopy", DiskPerf { mode: DiskMode::Nocopy, ..small }),
        ("direct, 4 in flight", DiskPerf { mode: DiskMode::Direct, depth: 4, ..large }),
    ];
    let mut rows: Vec<Vec<Row>> = vec![Vec::new(); ways.len()];
    for _ in 0..ROUNDS {
        for (rows, (_, test)) in rows.iter_mut().zip(&ways) {
            rows.push(diskperf::run(&devices, *test, &Silent, &Cancel::default())?.row(Engine::Diorite));
        }
    }
    let mut rates = Vec::new();
    for ((name, _), mut rows) in ways.into_iter().zip(rows) {
        rows.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let mut median = rows.swap_remove(ROUNDS / 2);
        let rate = median.bytes as f64 / 1e6 / median.seconds.max(1e-9);
        outcome.lines.push(Line {
            row: name.to_owned(),
            column: "rate in memory of this machine",
            unit: "MB/s",
            published: None,
            measured: rate,
        });
        rates.push(rate);
        median.test = format!("raw in memory, {name}");
        outcome.rows.push(median);
    }
    outcome.verdicts.extend([
        Verdict::at_least("raw: in memory: without the copy / buffered", 1.0, rates[2] / rates[1].max(1e-9)),
        Verdict::at_least(
            "raw: in memory: our pipelined direct read / without the copy",
            1.0,
            rates[3] / rates[2].max(1e-9),
        ),
    ]);
    outcome.notes.push(
        "Memory of this machine is eight devices: a read is one copy by the device, and a second copy through the page cache. \
         Figures are real time, medians of five rounds."
            .to_owned(),
    );
    Ok(())
}

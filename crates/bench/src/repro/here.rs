//! The published tables on this machine, in real time, beside their simulations.
//!
//! Seed 003's bonnie on files in a directory; seed 004's readers on memory, where the copy is all that there is.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use diorite::BlockDevice;
use diorite_device::MemoryDevice;

use super::{Line, Outcome, ReproError};
use crate::bonnie::{Effort, FileSize, compare_all};
use crate::diskperf::{self, DiskMode, DiskPerf};
use crate::watch::{Cancel, Observer, Silent};
use crate::{Engine, Mode, Row, Verdict};

/// Of bonnie. Machine-wide CPU time is known to centiseconds: smaller files would cost direct I/O too little of it.
const EFFORT: Effort = Effort {
    size: FileSize::Affordable { least: 256, most: 384 },
    rounds_min: 3,
    budget: Duration::from_secs(30),
    per_byte: false,
};
/// Memory-backed devices, and 1 MiB transfers of each.
const MEMORIES: usize = 8;
const MEMORY_BLOCKS: u64 = 32;
/// Rounds over all ways; medians count.
const ROUNDS: usize = 5;

/// Add the bonnie table of this machine: files are made in `directory` and removed.
pub fn odirect_here(
    outcome: &mut Outcome,
    directory: &Path,
    cancel: &Cancel,
    observer: &dyn Observer,
) -> Result<(), ReproError> {
    let comparison = compare_all(directory, &EFFORT, String::new(), cancel, observer)?;
    let tests = ["block_write", "rewrite", "block_read"];
    for row in comparison.report.rows {
        // What was too short to be measured has no rate.
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
        "The figures of this machine are whole-machine CPU and real time in the current directory; `diorite bonnie` shows \
         more of them. Whatever else the machine does is in them."
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

/// Add the readers of 2002 on memory-backed devices of this machine: what a read costs besides the disk.
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
        "Memory of this machine as eight devices: a read is one copy by the device, and through the page cache a second one. \
         Real time, medians of five rounds over all ways."
            .to_owned(),
    );
    Ok(())
}

//! Seed 002: direct writes after a file's indirect block, one bio a page against full bios.
//!
//! The loop of the report: make a 48 KB file, write 4096 KB directly at offset 48 KB, on an ext3-style volume. The kernel of 2013
//! submitted a bio for each page there, because the flag of a boundary stayed on the mapping. Diorite submits full bios. The
//! old behaviour exists only here, as a device that splits each bio and charges for each part.
//!
//! The other work of 2013 (pinned pages, allocation, a journal, a shell) is the same in both rows. It comes from the
//! published row with the patch. The row without the patch is then predicted from the number of bios and the cost of one.

use std::sync::Arc;
use std::time::Duration;

use diorite::mkfs::Flavor;
use diorite::{BlockDevice, DirectIo, Filesystem};
use diorite_block::sync::{self, Work, work};
use diorite_block::{Bio, Geometry, IoCounters, IoError, IoQueue, Op};
use diorite_sim::{Context, CpuCosts, Simulation, WorldOptions};
use serde::Deserialize;

use crate::error::ReproError;
use crate::ground::{Ground, Opened, open};
use crate::outcome::{Line, Options, Outcome};
use crate::published::Fitted;
use diorite_bench::{Engine, Mode, Row, Verdict};

const HEAD: u64 = 48 << 10;
const BODY: u64 = 4 << 20;
const PAGE: u64 = 4096;
/// Rounds of the published loop.
const ROUNDS: u64 = 1000;
const VOLUME_BYTES: u64 = 1 << 30;
const OPENED: Opened = Opened { cache_bytes: 4 << 20, read_ahead_bytes: 0 };

/// The other work of a pass comes from the row with full bios.
const FITTED: [Fitted; 1] = [("full bios", "CPU", "CPU time of a pass besides its bios")];

#[derive(Deserialize)]
struct Published {
    default: PublishedRow,
    patched: PublishedRow,
}

#[derive(Clone, Copy, Deserialize)]
struct PublishedRow {
    seconds: f64,
    cpu_percent: f64,
}

impl PublishedRow {
    /// CPU time of one pass.
    fn cpu_of_pass(self) -> Duration {
        Duration::from_secs_f64(self.seconds * self.cpu_percent / 100.0 / ROUNDS as f64)
    }
}

fn published() -> Published {
    toml::from_str(include_str!("../published/boundary-2013.toml")).expect("embedded file, parsed in a test")
}

/// One run of the loop.
struct Run {
    rounds: u64,
    seconds: f64,
    cpu_s: f64,
    bios: u64,
}

/// The table.
pub fn boundary(options: &Options) -> Result<Outcome, ReproError> {
    let published = published();
    let rounds = (ROUNDS * options.amount_percent / 100).max(10);
    let ground = Ground::new("sata-2009", Flavor::Ext3, VOLUME_BYTES, &[])?;
    let besides = published.patched.cpu_of_pass();
    let run = |splitting| run(&ground, rounds, options.seed, besides, splitting);
    let (paged, full) = (run(Splitting::EachPage)?, run(Splitting::Never)?);
    let mut outcome = Outcome {
        title: "Bios after an indirect block (2013)",
        text: "A loop writes 48 KB, then 4096 KB directly after the file's indirect block. A flag that stayed on the mapping \
               made the kernel of 2013 submit a bio for each page. Diorite submits full bios; the old behaviour exists only \
               in this simulation.",
        ..Outcome::default()
    };
    outcome.add_boundary("a bio for each page", &paged, published.default);
    outcome.add_boundary("full bios", &full, published.patched);
    let geometry = ground.disk(None)?;
    let largest = u64::from(geometry.geometry().max_transfer_bytes);
    let cpu_ratio = paged.cpu_s / full.cpu_s.max(1e-9);
    outcome.headline = format!(
        "{:.1} bios a pass instead of {:.0}; a bio for each page costs {:.0} % more CPU (published: 28 %).",
        full.bios as f64 / full.rounds as f64,
        paged.bios as f64 / paged.rounds as f64,
        (cpu_ratio - 1.0) * 100.0
    );
    outcome.verdicts.extend([
        Verdict::at_most(
            "boundary: bios of a pass, against a contiguous run's ceil(bytes / largest transfer)",
            1.1,
            full.bios as f64 / full.rounds as f64 / BODY.div_ceil(largest) as f64,
        ),
        Verdict::at_most(
            "boundary: time with full bios / with a bio for each page",
            1.0,
            full.seconds / paged.seconds,
        ),
    ]);
    outcome.judge_published("boundary", &FITTED, options);
    outcome.notes.push(
        format!(
            "CPU time of other work ({:.1} ms in each pass) comes from the published row with full bios, and is added to both rows. \
             A bio costs 7 \u{b5}s, half of its cost on the model's server of 2009. So the CPU time of the row with full bios is given, \
             and the CPU time with a bio for each page is predicted. The disk of the report is unknown; here it is sata-2009.",
            besides.as_secs_f64() * 1e3
        ),
    );
    Ok(outcome)
}

impl Outcome {
    fn add_boundary(&mut self, name: &str, run: &Run, published: PublishedRow) {
        let rounds = run.rounds as f64;
        let line = |column, unit, published, measured| Line::new(name, column, unit, published, measured);
        let cpu_percent = 100.0 * run.cpu_s / run.seconds.max(1e-9);
        self.lines.extend([
            line("time of 1000 passes", "s", Some(published.seconds), run.seconds / rounds * ROUNDS as f64),
            // Time and CPU share are already there.
            line("CPU of a pass", "ms", None, run.cpu_s / rounds * 1e3),
            line("CPU", "%", Some(published.cpu_percent), cpu_percent),
            line("bios of a pass", "bios", None, run.bios as f64 / rounds),
        ]);
        let bytes = run.rounds * BODY;
        let row = Row::new(Engine::Sim, Mode::Direct, format!("boundary {name}"), bytes, run.seconds);
        self.rows.push(Row { bios: Some(run.bios), ..row.with_rates(run.cpu_s) });
    }
}

fn run(
    ground: &Ground,
    rounds: u64,
    seed: u64,
    besides: Duration,
    splitting: Splitting,
) -> Result<Run, ReproError> {
    let disk = ground.disk(None)?;
    let world = WorldOptions { seed, costs: CpuCosts::OF_2013, ..WorldOptions::default() };
    let (result, _) = Simulation::run_one(world, move || {
        let device = Arc::new(SplittingDevice { lower: disk, splitting, counters: IoCounters::default() });
        let filesystem = open(device, OPENED)?;
        let (begun, cpu) = (sync::now(), cpu_s());
        let mut bios = 0;
        for round in 0..rounds {
            if let Some(context) = Context::current() {
                context.compute(besides);
            }
            bios += pass(&filesystem, round)?;
        }
        let seconds = sync::now().saturating_sub(begun).as_secs_f64();
        Ok::<_, ReproError>(Run { rounds, seconds, cpu_s: cpu_s() - cpu, bios })
    })?;
    result
}

fn cpu_s() -> f64 {
    Context::current().map_or(0.0, |context| context.cpu_time_of_all().as_secs_f64())
}

/// One pass; the number of device writes after the indirect block.
fn pass(filesystem: &Filesystem, round: u64) -> Result<u64, ReproError> {
    let fail = ReproError::diorite("the loop of direct writes");
    let path = format!("/file.{}", round % 8);
    let options =
        filesystem.open_options().write(true).create(true).truncate(true).direct(DirectIo::Required);
    let file = options.open(&path).map_err(&fail)?;
    let memory = file.buffer(BODY as usize).map_err(&fail)?;
    file.write_all_at(&memory[..HEAD as usize], 0).map_err(&fail)?;
    let before = filesystem.device().counters().snapshot();
    file.write_all_at(&memory, HEAD).map_err(&fail)?;
    Ok(filesystem.device().counters().snapshot().since(before).writes)
}

/// Whether bios are split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Splitting {
    Never,
    EachPage,
}

/// A device that submits each page of a write as a bio, and charges for it.
#[derive(Debug)]
struct SplittingDevice {
    lower: Arc<dyn BlockDevice>,
    splitting: Splitting,
    counters: IoCounters,
}

impl SplittingDevice {
    /// Each page was built and submitted as a bio, and the request queue merged them. A request goes to the drive when it is
    /// complete, while the next one is built.
    fn execute_split(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        let pages_of = |bio: &Bio<'_>| bio.len().div_ceil(PAGE).max(1);
        for bio in bios.iter() {
            (0..pages_of(bio)).for_each(|_| self.counters.count(Op::Write, PAGE.min(bio.len())));
        }
        let extra: Vec<u64> = bios.iter().map(|bio| pages_of(bio) - 1).collect();
        let (first, others) = (extra.first().copied().unwrap_or(0), extra.iter().skip(1).sum());
        work(Work::Submit(first));
        let assembly = sync::spawn("assembly", move || work(Work::Submit(others)));
        let result = self.lower.execute(bios);
        assembly.expect("a simulation gives threads").join();
        result
    }
}

impl BlockDevice for SplittingDevice {
    fn geometry(&self) -> &Geometry {
        self.lower.geometry()
    }

    fn counters(&self) -> &IoCounters {
        &self.counters
    }

    fn name(&self) -> String {
        self.lower.name()
    }

    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        let splits = self.splitting == Splitting::EachPage && bios.iter().all(|bio| bio.op == Op::Write);
        if splits {
            return self.execute_split(bios);
        }
        for bio in bios.iter() {
            self.counters.count(bio.op, bio.len());
        }
        self.lower.execute(bios)
    }

    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        Ok(<dyn BlockDevice>::immediate_queue(self, depth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_table_is_readable() {
        let table = published();
        assert!((1.27..1.29).contains(&(table.default.cpu_percent / table.patched.cpu_percent)));
    }
}

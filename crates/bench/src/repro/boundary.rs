//! Seed 002: direct writes behind a file's indirect block, one bio a page against full bios.
//!
//! The loop of the report: make a 48 KB file, write 4096 KB directly at offset 48 KB, on an ext3-style volume. The kernel of 2013
//! submitted a bio for every page there, because a flag stood on the mapping; ours submits full bios. The old way is kept
//! only here, as a device that takes each bio apart again and pays for each part.

use std::fmt;
use std::sync::Arc;

use diorite::mkfs::Flavor;
use diorite::{BlockDevice, DirectIo, Filesystem};
use diorite_block::sync::{self, Work, work};
use diorite_block::{Bio, BioMemory, Geometry, IoCounters, IoError, IoQueue, Op};
use diorite_sim::{Context, CpuCosts, Simulation, WorldOptions};
use serde::Deserialize;

use super::ground::{Ground, Opened, open};
use super::{Line, Options, Outcome, ReproError};
use crate::{Engine, Mode, Row, Verdict};

const HEAD: u64 = 48 << 10;
const BODY: u64 = 4 << 20;
const PAGE: u64 = 4096;
/// Rounds of the published loop.
const ROUNDS: u64 = 1000;
const VOLUME_BYTES: u64 = 1 << 30;
const OPENED: Opened = Opened { cache_bytes: 4 << 20, read_ahead_bytes: 0 };

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

fn published() -> Published {
    toml::from_str(include_str!("../../published/boundary-2013.toml"))
        .expect("embedded file, parsed in a test")
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
    let paged = run(&ground, rounds, options.seed, Splitting::EachPage)?;
    let full = run(&ground, rounds, options.seed, Splitting::Never)?;
    let mut outcome = Outcome { title: "Bios behind an indirect block (2013)", ..Outcome::default() };
    outcome.add_boundary("a bio for each page", &paged, published.default);
    outcome.add_boundary("full bios", &full, published.patched);
    let geometry = ground.disk(None)?;
    let largest = u64::from(geometry.geometry().max_transfer_bytes);
    outcome.verdicts.extend([
        Verdict::at_most(
            "boundary: bios of a pass, against a contiguous run's ceil(bytes / largest transfer)",
            1.1,
            full.bios as f64 / full.rounds as f64 / BODY.div_ceil(largest) as f64,
        ),
        Verdict::at_least(
            "boundary: CPU with a bio for each page / with full bios",
            published.default.cpu_percent / published.patched.cpu_percent,
            paged.cpu_s / full.cpu_s.max(1e-9),
        ),
        Verdict::at_most(
            "boundary: time with full bios / with a bio for each page",
            1.0,
            full.seconds / paged.seconds,
        ),
    ]);
    outcome.notes.push(
        "CPU here is only what the stack charges for submitting bios. The machine of 2013 also made files and ran the rest of a \
         kernel meanwhile, so its ratio is smaller for the same cause."
            .to_owned(),
    );
    Ok(outcome)
}

impl Outcome {
    fn add_boundary(&mut self, name: &str, run: &Run, published: PublishedRow) {
        let rounds = run.rounds as f64;
        let line = |column, unit, published, measured| Line {
            row: name.to_owned(),
            column,
            unit,
            published,
            measured,
        };
        let cpu_percent = 100.0 * run.cpu_s / run.seconds.max(1e-9);
        self.lines.extend([
            line("time of 1000 passes", "s", Some(published.seconds), run.seconds / rounds * ROUNDS as f64),
            line("CPU", "%", Some(published.cpu_percent), cpu_percent),
            line("bios of a pass", "", None, run.bios as f64 / rounds),
        ]);
        let bytes = run.rounds * BODY;
        let mut row = Row::new(Engine::Sim, Mode::Direct, format!("boundary {name}"), bytes, run.seconds);
        row.mb_per_s = Some(bytes as f64 / 1e6 / run.seconds.max(1e-9));
        (row.cpu_percent, row.cpu_s_process) = (Some(cpu_percent), Some(run.cpu_s));
        row.cpu_s_per_gb = Some(run.cpu_s / (bytes as f64 / 1e9));
        row.bios = Some(run.bios);
        self.rows.push(row);
    }
}

fn run(ground: &Ground, rounds: u64, seed: u64, splitting: Splitting) -> Result<Run, ReproError> {
    let disk = ground.disk(None)?;
    let world = WorldOptions { seed, costs: CpuCosts::OF_2009, ..WorldOptions::default() };
    let (result, _) = Simulation::run_one(world, move || {
        let device = Arc::new(SplittingDevice { lower: disk, splitting, counters: IoCounters::default() });
        let filesystem = open(device, OPENED)?;
        let (begun, cpu) = (sync::now(), cpu_s());
        let mut bios = 0;
        for round in 0..rounds {
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

/// One pass; how many writes the device saw for the part behind the indirect block.
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

/// Whether bios are taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Splitting {
    Never,
    EachPage,
}

/// A device that submits each page of a write as a bio of its own, and charges for it.
struct SplittingDevice {
    lower: Arc<dyn BlockDevice>,
    splitting: Splitting,
    counters: IoCounters,
}

impl SplittingDevice {
    fn split(&self, bio: &mut Bio<'_>) -> Result<(), IoError> {
        let bytes = match &bio.memory {
            BioMemory::Write(segments) => segments.iter().map(|segment| segment.len() as u64).sum(),
            BioMemory::Read(_) | BioMemory::None(_) => 0,
        };
        let pages = bytes.div_ceil(PAGE).max(1);
        for _ in 0..pages {
            self.counters.count(Op::Write, PAGE.min(bytes));
        }
        // Each was built and submitted; then the request queue merged them again.
        work(Work::Submit(pages - 1));
        self.lower.execute(std::slice::from_mut(bio))
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
            return bios.iter_mut().try_for_each(|bio| self.split(bio));
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

impl fmt::Debug for SplittingDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SplittingDevice({:?} on {:?})", self.splitting, self.lower)
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

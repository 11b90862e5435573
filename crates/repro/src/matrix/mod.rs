//! Each scheduler on each workload on three disks, in virtual time: the measure of changes to schedulers.
//!
//! Where it sits: workloads are job files, run as `diorite job FILE --on sim:DISK --scheduler NAME`: the whole stack with its default
//! settings. A cell is one workload on one disk under one scheduler from one seed. Its figures are total throughput, and the
//! p99 latency of the worst served owner.
//!
//! A scheduler is on the front of a workload if no other scheduler is better in both figures by more than [`MARGIN`].

mod outcome;
mod workloads;

use std::time::Duration;

use diorite::mkfs::Flavor;
use diorite::{BlockDevice, SchedulerKind};
use diorite_scheduler::CfqRules;
use hdrhistogram::Histogram;
use serde::Serialize;

use diorite_bench::{Cancel, Observer, Silent, open_simulated};
use diorite_job::{
    DirectionResult, JobFile, JobOutcome, JobResult, LaidOut, Simulated, SimulatedError, parse,
};

pub use outcome::{Comparison, MARGIN, Summary};
pub use workloads::{Workload, workloads};

/// The disks of the matrix: the disk of the report of 2009, a later one with a deep queue, an SSD.
pub const DISKS: [&str; 3] = ["sata-2009", "sata-2020", "ssd"];

/// Cells to run, and their length.
#[derive(Clone, Debug)]
pub struct MatrixOptions {
    /// Simulated disks by name.
    pub disks: Vec<String>,
    /// Schedulers.
    pub schedulers: Vec<SchedulerKind>,
    /// Workloads whose name contains one of these; empty means all.
    pub workloads: Vec<String>,
    /// Seeds of the runs of each cell; figures are medians.
    pub seeds: Vec<u64>,
    /// Virtual length of a cell on a rotating disk; an SSD gets a tenth.
    pub length: Duration,
}

impl Default for MatrixOptions {
    fn default() -> Self {
        Self {
            disks: DISKS.map(str::to_owned).to_vec(),
            schedulers: vec![
                SchedulerKind::None,
                SchedulerKind::Deadline,
                SchedulerKind::Cfq(CfqRules::Fixed),
                SchedulerKind::Inject,
            ],
            workloads: Vec::new(),
            seeds: vec![1],
            length: Duration::from_secs(10),
        }
    }
}

impl MatrixOptions {
    /// The chosen workloads.
    pub fn chosen(&self) -> impl Iterator<Item = &'static Workload> {
        let is_chosen = |name: &str| {
            self.workloads.iter().any(|part| {
                let is_a_name = workloads().iter().any(|workload| workload.name == *part);
                if is_a_name { name == part } else { name.contains(&**part) }
            })
        };
        workloads().iter().filter(move |workload| self.workloads.is_empty() || is_chosen(&workload.name))
    }
}

/// Service of one owner of a cell.
#[derive(Clone, Debug, Serialize)]
pub struct OwnerFigures {
    /// The job.
    pub name: String,
    /// 10^6 bytes a second.
    pub mb_per_s: f64,
    /// Operations, with syncs.
    pub operations: u64,
    /// Latency of an operation, in milliseconds.
    pub p50_ms: f64,
    /// See `p50_ms`.
    pub p99_ms: f64,
    /// See `p50_ms`.
    pub p99_9_ms: f64,
    /// See `p50_ms`.
    pub max_ms: f64,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// Name of the workload.
    pub workload: &'static str,
    /// Name of the disk.
    pub disk: String,
    /// Name of the scheduler.
    pub scheduler: String,
    /// Seed.
    pub seed: u64,
    /// Each owner, in the order of the job file.
    pub owners: Vec<OwnerFigures>,
    /// All owners together.
    pub mb_per_s: f64,
    /// Jain's index of the owners' throughput: 1 if all are equal.
    pub jain: f64,
    /// Highest p99 latency of an owner.
    pub worst_p99_ms: f64,
    /// Maximum latency of any owner.
    pub worst_max_ms: f64,
    /// The scheduler's state at the end, as text.
    #[serde(skip)]
    pub state: String,
}

/// All cells.
#[derive(Clone, Debug, Default)]
pub struct Matrix {
    /// In the order of disks, workloads, schedulers, seeds.
    pub cells: Vec<Cell>,
}

/// Run the cells of `options`. Cells of one disk and workload share a laid-out volume.
///
/// # Errors
/// A disk is unknown, or the stack failed.
pub fn run(
    options: &MatrixOptions,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<Matrix, SimulatedError> {
    let cells =
        options.disks.len() * options.chosen().count() * options.schedulers.len() * options.seeds.len();
    observer.begin("running the matrix", cells as u64);
    let mut matrix = Matrix::default();
    for disk in &options.disks {
        for workload in options.chosen() {
            run_row(options, disk, workload, &mut matrix, &mut || {
                observer.advance(1);
                cancel.is_cancelled()
            })?;
        }
    }
    observer.end();
    Ok(matrix)
}

/// All schedulers and seeds of one workload on one disk, until `after_each` returns true.
fn run_row(
    options: &MatrixOptions,
    disk: &str,
    workload: &'static Workload,
    matrix: &mut Matrix,
    after_each: &mut dyn FnMut() -> bool,
) -> Result<(), SimulatedError> {
    let length = length_on(disk, options.length)?;
    let jobs = jobs_of(workload, length);
    let mut on = on_disk(disk);
    let laid_out = LaidOut::new(&jobs, &on, &Silent)?;
    for scheduler in &options.schedulers {
        for seed in &options.seeds {
            (on.scheduler, on.seed) = (Some(*scheduler), *seed);
            let outcome = laid_out.run(&on, &Silent)?.complete()?;
            matrix.cells.push(Cell::of(&workload.name, &on, &outcome));
            if after_each() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Disks without an arm do as much in a tenth of the time.
fn length_on(disk: &str, length: Duration) -> Result<Duration, SimulatedError> {
    let is_rotational = open_simulated(disk)?.geometry().rotational;
    Ok(if is_rotational { length } else { length / 10 })
}

/// The jobs of a workload, each of this length.
pub fn jobs_of(workload: &Workload, length: Duration) -> JobFile {
    let mut jobs = parse(&workload.name, &workload.jobs).expect("the workloads are parsed in a test");
    for job in &mut jobs.jobs {
        (job.runtime, job.time_based) = (Some(length), true);
        // New files, so that allocation and the journal take part.
        job.overwrite = Some(false);
    }
    jobs
}

fn on_disk(disk: &str) -> Simulated {
    Simulated {
        disk: disk.to_owned(),
        flavor: Flavor::Ext4,
        scheduler: None,
        read_ahead_bytes: None,
        seed: 1,
    }
}

impl Cell {
    /// The figures of one run of a workload.
    pub fn of(workload: &'static str, on: &Simulated, outcome: &JobOutcome) -> Self {
        let owners: Vec<_> = outcome.results.iter().map(OwnerFigures::of).collect();
        let worst = |of: fn(&OwnerFigures) -> f64| owners.iter().map(of).fold(0.0, f64::max);
        Self {
            workload,
            disk: on.disk.clone(),
            scheduler: on.scheduler.map_or_else(String::new, |kind| kind.to_string()),
            seed: on.seed,
            mb_per_s: owners.iter().map(|owner| owner.mb_per_s).sum(),
            jain: jain(owners.iter().map(|owner| owner.mb_per_s)),
            worst_p99_ms: worst(|owner| owner.p99_ms),
            worst_max_ms: worst(|owner| owner.max_ms),
            state: outcome.scheduler.as_ref().map_or_else(String::new, |scheduler| scheduler.state.clone()),
            owners,
        }
    }
}

impl OwnerFigures {
    fn of(result: &JobResult) -> Self {
        let mut latency = Histogram::<u64>::new(3).expect("a valid precision");
        let add = |latency: &mut Histogram<u64>, direction: &DirectionResult| {
            latency.add(&direction.latency_ns).expect("a histogram that grows");
        };
        for direction in [&result.read, &result.write, &result.sync_ns] {
            add(&mut latency, direction);
        }
        let bytes = (result.read.bytes + result.write.bytes) as f64;
        let ms = |ns: u64| ns as f64 / 1e6;
        let at = |quantile| ms(latency.value_at_quantile(quantile));
        Self {
            name: result.name.clone(),
            mb_per_s: bytes / 1e6 / result.elapsed.as_secs_f64().max(1e-9),
            operations: latency.len(),
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            p99_9_ms: at(0.999),
            max_ms: ms(latency.max()),
        }
    }
}

/// Jain's fairness index: (sum of x)^2 / (n * sum of x^2).
fn jain(shares: impl Iterator<Item = f64>) -> f64 {
    let (count, sum, squares) =
        shares.fold((0.0, 0.0, 0.0), |(count, sum, squares), x| (count + 1.0, sum + x, squares + x * x));
    if squares > 0.0 { sum * sum / (count * squares) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_a_job_file() {
        let generated = workloads().iter().filter(|workload| workload.name.starts_with("generated"));
        assert!(workloads().len() >= 40 && generated.count() * 3 >= workloads().len());
        for workload in workloads() {
            parse(&workload.name, &workload.jobs).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    #[test]
    fn jains_index_is_one_for_equals_and_a_fraction_for_one_of_many() {
        assert!((jain([3.0; 5].into_iter()) - 1.0).abs() < 1e-9);
        assert!((jain([1.0, 0.0, 0.0, 0.0].into_iter()) - 0.25).abs() < 1e-9);
    }
}

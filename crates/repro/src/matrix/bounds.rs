//! The bounds of every owner of a workload.
//!
//! - No owner gets less than a quarter of its fair share of the device: `1/n` of what it does alone on the same disk. A writer is compared with
//!   itself on a disk without a write cache: the cache only defers the write to the medium.
//! - The p99 latency of a lone small reader (the only owner that reads at random, one small block at a time) stays below 200 ms where seeks
//!   cost time.

use std::fmt;
use std::time::Duration;

use diorite::{BlockDevice, SchedulerKind};

use super::{Cell, OwnerFigures, Workload, jobs_of, length_on, on_disk};
use diorite_bench::{Silent, open_simulated};
use diorite_job::{Job, JobFile, LaidOut, SimulatedError};

/// Least part of its fair share that an owner gets.
pub const SHARE_MIN: f64 = 0.25;
/// Longest p99 latency of a lone small reader on a rotating disk, in milliseconds.
pub const P99_MAX_MS: f64 = 200.0;
/// Largest read that is small.
const SMALL_BYTES: u64 = 16 << 10;

/// The service of one owner.
#[derive(Clone, Debug)]
pub struct Bound {
    /// The job.
    pub owner: String,
    /// Operations divided by its fair share.
    pub share: f64,
    /// p99 latency in milliseconds, if the owner is a lone small reader on a rotating disk.
    pub lone_p99_ms: Option<f64>,
}

impl Bound {
    /// Whether both bounds hold.
    pub fn holds(&self) -> bool {
        self.share >= SHARE_MIN && self.lone_p99_ms.is_none_or(|p99| p99 < P99_MAX_MS)
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:.2} of its fair share", self.owner, self.share)?;
        self.lone_p99_ms.map_or(Ok(()), |p99| write!(f, ", p99 {p99:.0} ms"))
    }
}

/// Run a workload, and each of its jobs alone.
///
/// # Errors
/// A disk that is not known, or a failure of the stack.
pub fn bounds(
    workload: &Workload,
    disk: &str,
    scheduler: SchedulerKind,
    length: Duration,
) -> Result<Vec<Bound>, SimulatedError> {
    let length = length_on(disk, length)?;
    let is_rotational = open_simulated(disk)?.geometry().rotational;
    let all = jobs_of(workload, length);
    let small: Vec<_> = all.jobs.iter().filter(|job| is_small_reader(job)).collect();
    let is_lone = small.len() == 1 && small[0].clones == 1;
    let run = |disk: &str, jobs: &JobFile| -> Result<Vec<OwnerFigures>, SimulatedError> {
        let on = super::Simulated { scheduler: Some(scheduler), ..on_disk(disk) };
        let outcome = LaidOut::new(jobs, &on, &Silent)?.run(&on, &Silent)?.complete()?;
        Ok(Cell::of("", &on, &outcome).owners)
    };
    let mut together = run(disk, &all)?.into_iter();
    let count = all.jobs.iter().map(|job| job.clones).sum::<u32>();
    let mut bounds = Vec::new();
    for job in &all.jobs {
        let mut alone = all.clone();
        alone.jobs = vec![Job { clones: 1, ..job.clone() }];
        let alone_on = if job.pattern.writes() && disk == "sata-2009" { "sata-2009-nocache" } else { disk };
        let alone = run(alone_on, &alone)?[0].operations.max(1) as f64;
        for owner in together.by_ref().take(job.clones as usize) {
            let share = owner.operations as f64 * f64::from(count) / alone;
            let lone_p99_ms = (is_rotational && is_lone && is_small_reader(job)).then_some(owner.p99_ms);
            bounds.push(Bound { owner: owner.name, share, lone_p99_ms });
        }
    }
    Ok(bounds)
}

fn is_small_reader(job: &Job) -> bool {
    let is_read = job.pattern.reads() && !job.pattern.writes() && job.pattern.is_random();
    is_read && job.depth == 1 && job.blocks[0].most() <= SMALL_BYTES
}

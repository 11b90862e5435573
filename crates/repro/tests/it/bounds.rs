//! The bounds of every owner of a workload on a rotating disk.
//!
//! - No owner gets less than a quarter of its fair share of the device: `1/n` of its rate alone on the same disk. A writer is compared with
//!   itself on a disk without a write cache: the cache only defers the write to the medium.
//! - The p99 latency of a lone small reader (the only owner that reads at random, one small block at a time) stays below 200 ms.

use std::fmt;
use std::time::Duration;

use diorite::SchedulerKind;
use diorite::mkfs::Flavor;
use diorite_bench::Silent;
use diorite_job::{Job, JobFile, LaidOut, Simulated};
use diorite_repro::matrix::{Cell, OwnerFigures, Workload, jobs_of};

/// Least part of its fair share that an owner gets.
const SHARE_MIN: f64 = 0.25;
/// Longest p99 latency of a lone small reader, in milliseconds.
const P99_MAX_MS: f64 = 200.0;
/// Largest read that is small.
const SMALL_BYTES: u64 = 16 << 10;

/// The service of one owner.
pub(crate) struct Bound {
    owner: String,
    /// Operations divided by its fair share.
    share: f64,
    /// p99 latency in milliseconds, if the owner is a lone small reader.
    lone_p99_ms: Option<f64>,
}

impl Bound {
    /// Whether both bounds hold.
    pub(crate) fn holds(&self) -> bool {
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
pub(crate) fn bounds(workload: &Workload, scheduler: SchedulerKind, length: Duration) -> Vec<Bound> {
    let all = jobs_of(workload, length);
    let small: Vec<_> = all.jobs.iter().filter(|job| is_small_reader(job)).collect();
    let is_lone = small.len() == 1 && small[0].clones == 1;
    let mut together = run(scheduler, "sata-2009", &all).into_iter();
    let count = all.jobs.iter().map(|job| job.clones).sum::<u32>();
    let mut bounds = Vec::new();
    for job in &all.jobs {
        let mut alone = all.clone();
        alone.jobs = vec![Job { clones: 1, ..job.clone() }];
        let alone_on = if job.pattern.writes() { "sata-2009-nocache" } else { "sata-2009" };
        let alone = run(scheduler, alone_on, &alone)[0].operations.max(1) as f64;
        for owner in together.by_ref().take(job.clones as usize) {
            let share = owner.operations as f64 * f64::from(count) / alone;
            let lone_p99_ms = (is_lone && is_small_reader(job)).then_some(owner.p99_ms);
            bounds.push(Bound { owner: owner.name, share, lone_p99_ms });
        }
    }
    bounds
}

fn run(scheduler: SchedulerKind, disk: &str, jobs: &JobFile) -> Vec<OwnerFigures> {
    let on = Simulated {
        disk: disk.to_owned(),
        flavor: Flavor::Ext4,
        scheduler: Some(scheduler),
        read_ahead_bytes: None,
        seed: 1,
    };
    let laid_out = LaidOut::new(jobs, &on, &Silent).expect("a known disk");
    let outcome = laid_out.run(&on, &Silent).and_then(|outcome| Ok(outcome.complete()?)).expect("runs");
    Cell::of("", &on, &outcome).owners
}

fn is_small_reader(job: &Job) -> bool {
    let is_read = job.pattern.reads() && !job.pattern.writes() && job.pattern.is_random();
    is_read && job.depth == 1 && job.blocks[0].most() <= SMALL_BYTES
}

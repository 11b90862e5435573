//! Jobs on a simulated disk: the same runner and the same stack, in virtual time.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use diorite::mkfs::{Flavor, MkfsError, MkfsOptions, mkfs};
use diorite::{BlockDevice, Filesystem, SchedulerKind};
use diorite_bench::{Cancel, Observer, Silent, SimulatedDiskError, open_simulated, world_time};
use diorite_block::sync;
use diorite_sim::image::SparseImage;
use diorite_sim::{Deadlock, Simulation, WorldOptions};

use crate::error::JobError;
use crate::figures::disks::DiskUse;
use crate::figures::result::JobOutcome;
use crate::language::spec::JobFile;
use crate::run::layout::lay_out_all;
use crate::run::run;
use crate::run::worker::workers_of;
use crate::target::{FileUse, Target, VolumeTarget};

/// Why jobs could not run on a simulated disk.
#[derive(Debug, thiserror::Error)]
pub enum SimulatedError {
    /// The disk cannot be made.
    #[error(transparent)]
    Disk(#[from] SimulatedDiskError),
    /// The filesystem cannot be made: the files of the jobs do not fit on the disk.
    #[error("{disk}: no filesystem for the jobs: {source}")]
    Mkfs {
        /// The disk.
        disk: String,
        /// The reason.
        source: MkfsError,
    },
    /// The volume could not be opened or closed.
    #[error("{disk}: {source}")]
    Volume {
        /// The disk.
        disk: String,
        /// The error of the library.
        source: Box<diorite::Error>,
    },
    /// A job failed.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The simulated processes wait for each other: a bug of the stack.
    #[error(transparent)]
    Deadlock(#[from] Deadlock),
}

/// The simulated disk and volume of jobs.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// One of `diorite_sim::DISK_NAMES`, or a TOML file with the parameters of a disk.
    pub disk: String,
    /// The filesystem on it.
    pub flavor: Flavor,
    /// I/O scheduler; the default depends on the disk.
    pub scheduler: Option<SchedulerKind>,
    /// Largest read-ahead window; the default is the library's.
    pub read_ahead_bytes: Option<usize>,
    /// Seed of all random choices.
    pub seed: u64,
}

/// Run the jobs on a simulated disk, on a volume just large enough. The layout of files takes no virtual time.
///
/// # Errors
/// The disk or the volume cannot be made, or a job fails.
pub fn run_simulated(
    file: &JobFile,
    on: &Simulated,
    observer: &dyn Observer,
) -> Result<JobOutcome, SimulatedError> {
    LaidOut::new(file, on, observer)?.run(on, observer)
}

/// A disk with a volume and the files of jobs, before the jobs run. Every run begins with a copy.
#[derive(Clone, Debug)]
pub struct LaidOut {
    jobs: JobFile,
    image: SparseImage,
}

impl LaidOut {
    /// Make the volume and lay out the files. Scheduler and read-ahead of `on` have no effect here.
    ///
    /// # Errors
    /// As [`run_simulated`].
    pub fn new(file: &JobFile, on: &Simulated, observer: &dyn Observer) -> Result<Self, SimulatedError> {
        let name = &*on.disk;
        let disk = open_simulated(name)?;
        let size_bytes = Some(volume_bytes(file).min(disk.geometry().capacity_bytes));
        let options = MkfsOptions { flavor: on.flavor, size_bytes, ..MkfsOptions::default() };
        let options = options.reproducible(on.seed, world_time::BEGINNING);
        mkfs(&*disk, &options).map_err(|source| SimulatedError::Mkfs { disk: name.to_owned(), source })?;
        observer.begin("laying out", 0);
        let world = WorldOptions { seed: on.seed, ..WorldOptions::default() };
        let (jobs, device) = (file.clone(), Arc::clone(&disk));
        // In a world too: the order of the stack's threads decides which blocks are allocated.
        let result = Simulation::run_one(world, move || {
            let filesystem = Filesystem::options().clock(world_time::clock()).open_device(device as _)?;
            let target = VolumeTarget::new(filesystem.clone(), "/").simulated();
            let laid_out = lay_out_all(&mut workers_of(&jobs), &target, &Silent, &Cancel::default());
            drop(target);
            Ok((laid_out, filesystem.close()))
        });
        observer.end();
        let (laid_out, closed) = result?.0.map_err(on.blame())?;
        laid_out?;
        closed.map_err(on.blame())?;
        Ok(Self { jobs: file.clone(), image: disk.image() })
    }

    /// Run the jobs in a new world, on the disk of the layout or another kind of disk.
    ///
    /// # Errors
    /// As [`run_simulated`].
    pub fn run(&self, on: &Simulated, observer: &dyn Observer) -> Result<JobOutcome, SimulatedError> {
        let disk = open_simulated(&on.disk)?;
        disk.set_image(self.image.clone());
        let world = WorldOptions { seed: on.seed, ..WorldOptions::default() };
        let kind = on.scheduler.unwrap_or_else(|| SchedulerKind::default_for(disk.geometry().rotational));
        let (mut jobs, read_ahead_bytes) = (self.jobs.clone(), on.read_ahead_bytes);
        for job in &mut jobs.jobs {
            job.seed = job.seed.map(|seed| seed.wrapping_add(on.seed << 32));
        }
        observer.begin("simulating", 0);
        let result = Simulation::run_one(world, move || {
            let mut options = Filesystem::options().scheduler(kind).clock(world_time::clock());
            if let Some(bytes) = read_ahead_bytes {
                options = options.read_ahead_bytes(bytes);
            }
            let filesystem = options.open_device(Arc::clone(&disk) as _)?;
            let target = VolumeTarget::new(filesystem.clone(), "/").simulated();
            settle(&jobs, &filesystem, &target)?;
            let target: Arc<dyn Target> = Arc::new(target);
            let begun = sync::now();
            let before = disk.activity(begun);
            let outcome = run(&jobs, &target, &Silent, &Cancel::default());
            let ended = sync::now();
            let after = disk.activity(ended);
            drop(target);
            let closed = filesystem.close();
            let used = DiskUse::of_drive(&disk.name(), [&before, &after], ended.saturating_sub(begun));
            Ok((outcome, closed, used))
        });
        observer.end();
        let (outcome, closed, used) = result?.0.map_err(on.blame())?;
        let outcome = JobOutcome { disks: vec![used], read_ahead_bytes, ..outcome? };
        closed.map_err(on.blame())?;
        Ok(outcome)
    }
}

/// Bring a volume that was just opened into the state after the layout, because jobs normally run on the mount of the layout:
/// marked as in use, with a begun journal, and with the mappings of the files and the bitmaps of their groups in memory.
fn settle(jobs: &JobFile, filesystem: &Filesystem, target: &VolumeTarget) -> diorite::Result<()> {
    let paths: Vec<_> = workers_of(jobs).into_iter().flat_map(|worker| worker.paths).collect();
    let purpose = FileUse { write: false, create: false, direct: false };
    for path in paths.iter().filter(|path| target.size_of(path).is_some()) {
        target.open(path, purpose)?.extents()?;
    }
    let beside = |path: &PathBuf| path.with_file_name("laid-out");
    let beside: BTreeSet<_> =
        paths.iter().map(beside).filter(|path| target.size_of(path).is_none()).collect();
    for path in &beside {
        let purpose = FileUse { write: true, create: true, direct: false };
        target.open(path, purpose)?.write_all_at(&[0; 4096], 0)?;
    }
    filesystem.sync()?;
    beside.iter().try_for_each(|path| target.remove(path))?;
    filesystem.sync()
}

impl Simulated {
    fn blame(&self) -> impl Fn(diorite::Error) -> SimulatedError + '_ {
        |source| SimulatedError::Volume { disk: self.disk.clone(), source: Box::new(source) }
    }
}

/// Space for all files of all jobs, their metadata, and a margin.
fn volume_bytes(file: &JobFile) -> u64 {
    let files = file.jobs.iter().map(|job| job.stated_bytes().saturating_mul(u64::from(job.clones)));
    let sum = files.fold(0, u64::saturating_add);
    sum.saturating_add(sum / 8).saturating_add(256 << 20) & !0xfff
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::language::parse::parse;

    /// ARCHITECTURE invariant 11: the same seed gives the same bytes; and a simulated disk is as fast as its model says.
    #[test]
    fn a_job_on_a_simulated_disk_repeats() {
        let text = "[reader]\nrw=read\nsize=64m\nbs=1m\ndirect=1\n[writer]\nrw=write\nsize=16m\nbs=64k\n";
        let file = parse("x.fio", text).unwrap();
        let on = Simulated {
            disk: "sim:sata-2009".into(),
            flavor: Flavor::Ext4,
            scheduler: None,
            read_ahead_bytes: None,
            seed: 7,
        };
        let run = || run_simulated(&file, &on, &Silent).unwrap();
        let (first, second) = (run(), run());
        assert_eq!(first.json(), second.json());
        assert_eq!(first.text(), second.text());
        assert_eq!(first.results[0].read.bytes, 64 << 20);
        let rate = first.results[0].read.bandwidth() / 1e6;
        assert!((10.0..160.0).contains(&rate), "{rate} MB/s on a disk of 145 MB/s");
    }

    /// The I/O of opening the volume was counted as the job's.
    #[test]
    fn a_disk_counts_what_the_jobs_did() {
        let on = Simulated {
            disk: "sim:ssd".into(),
            flavor: Flavor::Ext4,
            scheduler: None,
            read_ahead_bytes: None,
            seed: 1,
        };
        let file = parse("x.fio", "[j]\nrw=read\nsize=256k\nbs=64k\ndirect=1\n").unwrap();
        let outcome = run_simulated(&file, &on, &Silent).unwrap();
        assert_eq!(outcome.disks[0].ios, [4, 0], "{:?}", outcome.disks[0]);
    }

    /// A queue whose thread read metadata held grants that no other thread could use: cfq, deadline and inject deadlocked.
    #[test]
    fn a_reader_and_a_deep_queue_end_under_every_scheduler() {
        let text = "[reader]\nrw=read\nsize=32m\nbs=128k\n[writer]\nrw=randwrite\nioengine=libaio\niodepth=64\ndirect=1\n\
                    size=8m\nbs=4k\n";
        let file = parse("x.fio", text).unwrap();
        for scheduler in ["deadline", "cfq:2.6.32", "cfq:noidle-regression", "cfq:fixed", "inject"] {
            for seed in 1..=3 {
                let on = Simulated {
                    disk: "sim:sata-2009".into(),
                    flavor: Flavor::Ext4,
                    scheduler: Some(scheduler.parse().unwrap()),
                    read_ahead_bytes: None,
                    seed,
                };
                let outcome =
                    run_simulated(&file, &on, &Silent).unwrap_or_else(|error| panic!("{scheduler}: {error}"));
                assert_eq!(outcome.results[1].write.bytes, 8 << 20, "{scheduler}");
                let slowest = Duration::from_nanos(outcome.results[1].write.latency_ns.max());
                println!("{scheduler}, seed {seed}: slowest write {slowest:?}");
                assert!(slowest < Duration::from_secs(3), "{scheduler}: a write took {slowest:?}");
            }
        }
    }
}

//! Runs the jobs of a file: lays out their files, starts a thread for each clone, and collects the results.

mod account;
mod execute;
pub(crate) mod layout;
mod pace;
mod ranges;
mod shared;
mod steps;
mod transfers;
pub(crate) mod worker;

use std::sync::Arc;

use diorite::front_end::TaskId;
use diorite_bench::{Cancel, Observer, SchedulerReport, world_time};
use diorite_block::sync::{Mutex, spawn};

use self::execute::run_worker;
use self::layout::lay_out_all;
use self::shared::Shared;
use self::worker::{Worker, workers_of};
use crate::error::JobError;
use crate::figures::result::{JobOutcome, JobResult};
use crate::language::spec::JobFile;
use crate::target::Target;

/// Run all jobs of `file` on `target`. Jobs run at once; a job with `stonewall` waits for the jobs before it.
///
/// # Errors
/// A file could not be laid out or a thread not started, and no job ran. Later errors are in [`JobOutcome::failures`], beside
/// the results until then.
pub fn run(
    file: &JobFile,
    target: &Arc<dyn Target>,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<JobOutcome, JobError> {
    let mut workers = workers_of(file);
    lay_out_all(&mut workers, &**target, observer, cancel)?;
    let shared = Shared::new(&workers, &**target, cancel);
    let (mut singles, mut failures) = (Vec::new(), Vec::new());
    let mut rest = workers.as_slice();
    while !rest.is_empty() {
        let end = rest.iter().skip(1).position(|worker| worker.starts_wave).map_or(rest.len(), |at| at + 1);
        let (wave, later) = rest.split_at(end);
        let longest = wave.iter().filter_map(|worker| worker.job.runtime).max().unwrap_or_default();
        let plural = if wave.len() == 1 { "" } else { "s" };
        let time =
            if longest.is_zero() { String::new() } else { format!(", up to {} s", longest.as_secs_f64()) };
        observer.begin(&format!("running {} job{plural}{time}", wave.len()), 0);
        for (single, failed) in run_wave(wave, target, &shared)? {
            singles.push(single);
            failures.extend(failed);
        }
        observer.end();
        rest = later;
    }
    let name_of = |task: TaskId| {
        if task == TaskId::default() {
            return Some("(the volume)".to_owned());
        }
        let worker = workers.iter().find(|worker| worker.task() == task)?;
        let has_clones = worker.job.clones > 1;
        Some(if has_clones {
            format!("{}.{}", worker.job.name, worker.clone)
        } else {
            worker.job.name.clone()
        })
    };
    let scheduler = target.scheduler().map(|device| SchedulerReport::of(&device, name_of));
    let global_options = file.global_options.clone();
    let ended = world_time::date();
    Ok(JobOutcome { scheduler, global_options, failures, ended, ..JobOutcome::collect(singles) })
}

/// Run workers at once; their results in order.
fn run_wave(
    wave: &[Worker],
    target: &Arc<dyn Target>,
    shared: &Arc<Shared>,
) -> Result<Vec<(JobResult, Option<JobError>)>, JobError> {
    let results = Arc::new(Mutex::new(Vec::new()));
    results.lock().resize_with(wave.len(), || None);
    let mut threads = Vec::new();
    for (index, worker) in wave.iter().enumerate() {
        let run = {
            let (worker, target, shared, results) =
                (worker.clone(), target.clone(), Arc::clone(shared), results.clone());
            move || {
                let result = run_worker(&worker, &*target, &shared);
                shared.has_ended(worker.number);
                results.lock()[index] = Some(result);
            }
        };
        threads.push(spawn(&worker.job.name, run).map_err(|source| {
            // Other workers may wait for this one.
            shared.has_ended(worker.number);
            JobError::Thread { job: worker.title(), source }
        }));
    }
    let mut failed = None;
    for thread in threads {
        match thread {
            Ok(thread) => thread.join(),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    let results = std::mem::take(&mut *results.lock());
    Ok(results.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use diorite::mkfs::Flavor;
    use diorite::{BlockDevice, SchedulerKind};
    use diorite_bench::Silent;
    use diorite_block::{Bio, Geometry, IoCounters, IoError, IoQueue, Op};
    use diorite_sim::crash;
    use diorite_sim::faults::{Effect, Fault};
    use diorite_sim::image::{ImageDevice, SparseImage};

    use super::*;
    use crate::language::parse::parse;
    use crate::simulate::{Simulated, run_simulated};
    use crate::target::{HostTarget, RawTarget};

    /// Records the offset of each transfer.
    #[derive(Debug)]
    struct RecordingDevice(Arc<ImageDevice>, std::sync::Mutex<Vec<(Op, u64)>>);

    impl RecordingDevice {
        fn new(lower: Arc<ImageDevice>) -> Arc<Self> {
            Arc::new(Self(lower, std::sync::Mutex::default()))
        }

        fn offsets(&self, op: Op) -> Vec<u64> {
            let seen = self.1.lock().unwrap();
            seen.iter().filter(|(of, _)| *of == op).map(|(_, offset)| *offset).collect()
        }
    }

    impl BlockDevice for RecordingDevice {
        fn geometry(&self) -> &Geometry {
            self.0.geometry()
        }

        fn counters(&self) -> &IoCounters {
            self.0.counters()
        }

        fn name(&self) -> String {
            self.0.name()
        }

        fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
            self.1.lock().unwrap().extend(bios.iter().map(|bio| (bio.op, bio.sector.0)));
            self.0.execute(bios)
        }

        fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
            Ok(<dyn BlockDevice>::immediate_queue(self, depth))
        }
    }

    fn faulty_device() -> Arc<crash::RecordingDevice> {
        crash::RecordingDevice::on_image(SparseImage::new(1 << 20))
    }

    /// Run the jobs of a file, which must end.
    fn outcome_of(text: &str, target: Arc<dyn Target>) -> JobOutcome {
        let file = parse("x.fio", text).unwrap();
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let outcome = run(&file, &target, &Silent, &Cancel::default()).unwrap();
            // It is not taken where it came too late.
            let _ = sender.send(outcome);
        });
        receiver.recv_timeout(Duration::from_secs(20)).expect("the jobs end")
    }

    fn on_device(text: &str, device: Arc<dyn BlockDevice>) -> JobOutcome {
        outcome_of(text, Arc::new(RawTarget::new(device, SchedulerKind::None)))
    }

    fn failure(outcome: JobOutcome) -> String {
        outcome.complete().expect_err("it is found").to_string()
    }

    /// All writes of a block had the same content, so an earlier write passed for the last one.
    #[test]
    fn a_lost_overwrite_is_found() {
        for engine in ["psync", "libaio\niodepth=4"] {
            for check in ["crc32c", "meta", "crc32c\nverify_interval=512"] {
                let device = faulty_device();
                device.add(Fault::on(Op::Write, Effect::Lost).at(64..65).after(1));
                let text = format!(
                    "[j]\nrw=write\nbs=4k\nsize=64k\nloops=2\ndirect=1\nioengine={engine}\nverify={check}\n"
                );
                let failed = failure(on_device(&text, device.clone()));
                assert!(failed.contains("byte 32768: it holds the content of an earlier write"), "{failed}");
                assert_eq!(device.failed(), 1);
                device.set_faults([]);
                on_device(&text, device).complete().expect("all is as it was written");
            }
        }
    }

    /// Verification read the cache, which had the written data.
    #[test]
    fn a_write_that_is_lost_after_the_cache_is_found() {
        for options in ["", "end_fsync=1\n", "fsync=4\n"] {
            let device = faulty_device();
            device.add(Fault::on(Op::Write, Effect::Lost).at(64..65));
            let text = format!("[j]\nrw=write\nbs=4k\nsize=64k\nverify=crc32c\n{options}");
            let failed = failure(on_device(&text, device.clone()));
            assert!(failed.contains("verify failed at byte"), "{options}: {failed}");
            device.set_faults([]);
            on_device(&text, device).complete().expect("all is as it was written");
        }
    }

    /// Each writer was taken for the only one, and a block of the other one for an old block.
    #[test]
    fn two_names_of_one_file_have_two_writers() {
        let text = |[first, second]: [&str; 2]| {
            format!(
                "[global]\nrw=write\nbs=4k\nsize=64k\ndirect=1\nverify=crc32c\n[a]\nthinktime=20ms\n{first}\n\
                 [b]\nstartdelay=100ms\n{second}\n"
            )
        };
        on_device(&text(["", ""]), ImageDevice::zeroed(1 << 20))
            .complete()
            .expect("what either wrote is right");
        let directory = tempfile::tempdir().unwrap();
        let target = Arc::new(HostTarget::below(directory.path()));
        let outcome = outcome_of(&text(["filename=f", "filename=/f"]), target);
        outcome.complete().expect("what either wrote is right");
    }

    /// Missing data passed verification.
    #[test]
    fn a_file_that_ends_early_is_not_what_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let target = || Arc::new(HostTarget::below(directory.path()));
        let job = |options: &str| format!("[j]\nfilename=f\nbs=4k\nverify=crc32c\n{options}\n");
        outcome_of(&job("rw=write\nsize=16k"), target()).complete().expect("it is written");
        outcome_of(&job("rw=read\nsize=16k"), target()).complete().expect("it is as it was written");
        let file = std::fs::File::options().write(true).open(directory.path().join("f")).unwrap();
        for (size, offset) in [(8192, 8192), (6000, 6000), (4100, 4100), (0, 0)] {
            file.set_len(size).unwrap();
            for direct in ["direct=0", "direct=1"] {
                let failed = failure(outcome_of(&job(&format!("rw=read\nsize=16k\n{direct}")), target()));
                assert!(failed.contains(&format!("byte {offset}: the file ends here")), "{size}: {failed}");
            }
        }
    }

    /// The layout overwrote the last megabyte of a shorter file.
    #[test]
    fn a_job_that_reads_leaves_what_a_shorter_file_has() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let data: Vec<u8> = (0..1_700_001_u32).map(|index| (index % 251) as u8).collect();
        #[expect(clippy::disallowed_methods, reason = "a file of the host")]
        std::fs::write(&path, &data).unwrap();
        let text = "[j]\nrw=read\nfilename=data\nsize=3m\nbs=64k\n";
        let outcome = outcome_of(text, Arc::new(HostTarget::below(directory.path())));
        assert_eq!(outcome.results[0].read.bytes, 3 << 20);
        #[expect(clippy::disallowed_methods, reason = "a file of the host")]
        let now = std::fs::read(&path).unwrap();
        assert!(
            now.len() == 3 << 20 && now[..data.len()] == data,
            "its {} bytes are as they were",
            data.len()
        );
    }

    /// The job waited forever for a verification, with nothing in flight.
    #[test]
    fn a_backlog_that_is_not_verified_keeps_no_job() {
        let text = "[j]\nrw=write\nbs=4k\nsize=256k\ndirect=1\nioengine=libaio\niodepth=4\nverify=crc32c\n\
                    verify_backlog=8\ndo_verify=0\n";
        let outcome = on_device(text, ImageDevice::zeroed(1 << 20)).complete().expect("it is written");
        assert_eq!((outcome.results[0].write.bytes, outcome.results[0].read.bytes), (256 << 10, 0));
    }

    /// Neither a cancellation nor `exitall` ended a waiting job.
    #[test]
    fn a_job_that_waits_for_its_time_can_be_stopped() {
        let ends = |text: String, cancels: bool| {
            let (file, cancel, (sender, receiver)) =
                (parse("x.fio", &text).unwrap(), Cancel::default(), channel());
            let asked = cancel.clone();
            std::thread::spawn(move || {
                let device = ImageDevice::zeroed(1 << 20);
                let target: Arc<dyn Target> = Arc::new(RawTarget::new(device, SchedulerKind::None));
                let done = run(&file, &target, &Silent, &cancel).map(|outcome| outcome.failures.len());
                // It is not taken where it came too late.
                let _ = sender.send(done);
            });
            std::thread::sleep(Duration::from_millis(200));
            if cancels {
                asked.cancel();
            }
            let done = receiver.recv_timeout(Duration::from_secs(10));
            assert_eq!(done.expect("it ends").expect("it ran"), 0, "{text}");
        };
        let waits =
            ["startdelay=1h", "rate=1", "thinktime=1h", "rate=1\ndirect=1\nioengine=libaio\niodepth=4"];
        for wait in waits {
            let text = format!("[waits]\nrw=read\nsize=64k\nbs=4k\n{wait}\n");
            ends(text.clone(), true);
            ends(format!("{text}[ends]\nrw=read\nsize=64k\nexitall\n"), false);
        }
    }

    /// A deep queue was refilled at once after each pause.
    #[test]
    fn a_pause_follows_each_block_of_a_deep_queue() {
        for (blocks, pauses) in [(1, 15), (3, 5)] {
            let text = format!(
                "[j]\nrw=randread\nbs=4k\nsize=64k\ndirect=1\nioengine=libaio\niodepth=8\nthinktime=20ms\n\
                 thinktime_blocks={blocks}\n"
            );
            let outcome = on_device(&text, ImageDevice::zeroed(1 << 20)).complete().expect("it is read");
            let (result, least) = (&outcome.results[0], Duration::from_millis(20) * pauses);
            assert_eq!(result.read.ios, 16);
            assert!(result.elapsed >= least, "{blocks}: {:?} of {least:?}", result.elapsed);
        }
    }

    /// The result of the only job on a simulated disk.
    fn on_slow_disk(text: &str) -> JobResult {
        let on = Simulated {
            disk: "sim:sata-2009".into(),
            flavor: Flavor::Ext4,
            scheduler: None,
            read_ahead_bytes: None,
            seed: 1,
        };
        run_simulated(&parse("x.fio", text).unwrap(), &on, &Silent).unwrap().results.remove(0)
    }

    /// Syncs of the ramp were counted.
    #[test]
    fn a_ramp_has_no_syncs() {
        let text = "[j]\nrw=write\nsize=4m\nbs=4k\nfsync=1\ntime_based\nramp_time=2\nruntime=2\n";
        let result = on_slow_disk(text);
        let (writes, syncs) = (result.write.ios, result.sync_ns.ios);
        assert!(writes > 20 && syncs.abs_diff(writes) <= 1, "{writes} writes, {syncs} syncs");
    }

    /// As in fio a quota limits a job like the end of the disk.
    #[test]
    fn a_quota_ends_a_job_that_fills() {
        const EDQUOT: i32 = 122;
        for engine in ["psync", "libaio\niodepth=4"] {
            let device = faulty_device();
            device.add(Fault::on(Op::Write, Effect::Error(EDQUOT)).at(64..65));
            let text =
                format!("[j]\nrw=write\nbs=4k\nsize=64k\nfill_device=1\ndirect=1\nioengine={engine}\n");
            let outcome = on_device(&text, device).complete().expect("it is full");
            assert!((32 << 10..64 << 10).contains(&outcome.results[0].write.bytes), "{engine}");
        }
    }

    /// The second job wrote to the removed file of the first.
    #[test]
    fn a_job_finds_no_file_that_another_one_removed() {
        let directory = tempfile::tempdir().unwrap();
        let text =
            "[global]\nrw=write\nbs=4k\nsize=64k\nfilename=f\ndirect=1\n[a]\nunlink=1\n[b]\nstonewall\n";
        outcome_of(text, Arc::new(HostTarget::below(directory.path()))).complete().expect("both are done");
        let there = std::fs::metadata(directory.path().join("f")).map(|found| found.len());
        assert_eq!(there.ok(), Some(64 << 10));
    }

    /// Jobs of one name waited for each other or for themselves.
    #[test]
    fn a_job_waits_for_those_before_it_alone() {
        let cases = [
            "[a]\n[b]\nwait_for=a\n[c]\nname=a\nwait_for=b\n",
            "[a]\n[b]\nwait_for=a\n[c]\nname=a\nstonewall\n",
            "[a]\n[b]\nname=a\nwait_for=a\nnumjobs=2\n",
        ];
        for jobs in cases {
            let text = format!("[global]\nrw=read\nsize=64k\n{jobs}");
            let outcome = on_device(&text, ImageDevice::zeroed(1 << 20)).complete().expect("all are done");
            assert_eq!(outcome.groups.iter().map(|group| group.read.bytes >> 16).sum::<u64>() as usize, {
                let count = |word: &str| text.matches(word).count();
                count("[") - 1 + count("numjobs=2")
            });
        }
    }

    /// Reads came from the offsets of the job's writes, in the same order: from the cache, whatever its size.
    #[test]
    fn random_reads_of_a_mix_do_not_follow_its_writes() {
        for options in ["", "norandommap\n"] {
            let text = format!("[j]\nrw=randrw\nbs=4k\nsize=4m\ndirect=1\n{options}");
            let device = RecordingDevice::new(ImageDevice::zeroed(4 << 20));
            on_device(&text, device.clone()).complete().expect("it is done");
            let offsets = |op| device.offsets(op);
            let (reads, writes) = (offsets(Op::Read), offsets(Op::Write));
            let same = reads.iter().zip(&writes).filter(|(read, write)| read == write).count();
            assert!(reads.len() > 400 && writes.len() > 400, "{} {}", reads.len(), writes.len());
            assert!(same < 100, "{options}: {same} of {} reads are at the offset of a write", reads.len());
            let mut all: Vec<_> = reads.into_iter().chain(writes).collect();
            all.sort_unstable();
            all.dedup();
            assert_eq!(
                all.len() == 1024,
                options.is_empty(),
                "{options}: one random map for both directions"
            );
        }
    }

    /// The time of writes included their verification, and the time of reads the writes between them.
    #[test]
    fn each_direction_has_its_own_time() {
        let result = |options: &str| {
            let text = format!("[j]\nrw=write\nsize=64m\nbs=1m\ndirect=1\nfilename=f\n{options}");
            on_slow_disk(&text)
        };
        let verified = result("verify=crc32c\nverify_backlog=8\n");
        let times = (verified.read.runtime, verified.write.runtime, verified.elapsed);
        assert!(times.0 + times.1 <= times.2, "{times:?}");
        assert!(times.0 > times.2 / 5 && times.1 > times.2 / 5, "{times:?}");
    }
}

//! Runs the jobs of a file: lays their files out, starts a thread for each clone, and collects the results.

use std::sync::Arc;

use diorite::TaskId;
use diorite_block::sync::{Mutex, spawn};

use super::disks::DiskProbe;
use super::files::paths_of;
use super::layout::lay_out_all;
use super::result::{JobOutcome, JobResult};
use super::shared::Shared;
use super::worker::{Worker, run_worker};
use super::{JobError, JobFile, Place};
use crate::watch::{Cancel, Observer};
use crate::{SchedulerReport, world_time};

/// Run all jobs of `file` on `place`. Jobs run at once, except that one with `stonewall` waits for those before it.
///
/// # Errors
/// Nothing ran: files could not be laid out, or threads not be started. What fails later is in [`JobOutcome::failures`], beside what was
/// done until then.
pub fn run(
    file: &JobFile,
    place: &Arc<dyn Place>,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<JobOutcome, JobError> {
    let workers = workers_of(file);
    lay_out_all(&workers, &**place, observer, cancel)?;
    let shared = Shared::new(&workers, &**place, cancel);
    let paths = workers.iter().flat_map(|worker| &worker.paths);
    let host_files: Vec<_> = paths.flat_map(|path| place.host_files(path)).collect();
    let disks = DiskProbe::start(&host_files);
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
        for (single, failed) in run_wave(wave, place, &shared)? {
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
    let scheduler = place.scheduler().map(|device| SchedulerReport::of(&device, name_of));
    let (disks, global_options) = (disks.finish(), file.global_options.clone());
    let ended = world_time::date();
    Ok(JobOutcome { scheduler, disks, global_options, failures, ended, ..JobOutcome::collect(singles) })
}

/// One worker for each clone of each job, with its file.
pub(super) fn workers_of(file: &JobFile) -> Vec<Worker> {
    let mut workers: Vec<Worker> = Vec::new();
    let mut group = 0;
    for (index, job) in file.jobs.iter().enumerate() {
        let apart = index > 0 && (job.stonewall || job.new_group);
        group += u32::from(apart);
        for clone in 0..job.clones {
            let number = workers.len() as u64;
            workers.push(Worker {
                job: job.clone(),
                paths: paths_of(job, &job.section, clone),
                group,
                clone,
                number,
                starts_wave: job.stonewall && clone == 0,
            });
        }
    }
    workers
}

/// Run workers at once and give their results in order, when all have ended.
fn run_wave(
    wave: &[Worker],
    place: &Arc<dyn Place>,
    shared: &Arc<Shared>,
) -> Result<Vec<(JobResult, Option<JobError>)>, JobError> {
    let results = Arc::new(Mutex::new(Vec::new()));
    results.lock().resize_with(wave.len(), || None);
    let mut threads = Vec::new();
    for (index, worker) in wave.iter().enumerate() {
        let run = {
            let (worker, place, shared, results) =
                (worker.clone(), place.clone(), Arc::clone(shared), results.clone());
            move || {
                let result = run_worker(&worker, &*place, &shared);
                shared.has_ended(worker.number);
                results.lock()[index] = Some(result);
            }
        };
        threads.push(spawn(&worker.job.name, run).map_err(|source| {
            // Others may wait for it.
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
    use diorite_block::Op;
    use diorite_device::MemoryDevice;
    use diorite_sim::faults::{Effect, Fault, FaultyDevice};

    use super::super::{HostPlace, RawPlace, Simulated, parse, run_simulated};
    use super::*;
    use crate::watch::Silent;

    /// Run the jobs of a file, which must end.
    fn outcome_of(text: &str, place: Arc<dyn Place>) -> JobOutcome {
        let file = parse("x.fio", text).unwrap();
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let outcome = run(&file, &place, &Silent, &Cancel::default()).unwrap();
            // It is not taken where it came too late.
            let _ = sender.send(outcome);
        });
        receiver.recv_timeout(Duration::from_secs(20)).expect("the jobs end")
    }

    fn on_device(text: &str, device: Arc<dyn BlockDevice>) -> JobOutcome {
        outcome_of(text, Arc::new(RawPlace::new(device, SchedulerKind::None, Vec::new())))
    }

    fn failure(outcome: JobOutcome) -> String {
        outcome.complete().expect_err("it is found").to_string()
    }

    /// Each write of a block had the same content, so what was there before passed for the last one.
    #[test]
    fn a_lost_overwrite_is_found() {
        for engine in ["psync", "libaio\niodepth=4"] {
            for check in ["crc32c", "meta", "sha1\nverify_interval=512"] {
                let device = FaultyDevice::new(MemoryDevice::new(1 << 20));
                device.add(Fault::on(Op::Write, Effect::Lost).at(64..65).after(1));
                let text = format!(
                    "[j]\nrw=write\nbs=4k\nsize=64k\nloops=2\ndirect=1\nioengine={engine}\nverify={check}\n"
                );
                let failed = failure(on_device(&text, device.clone()));
                assert!(failed.contains("byte 32768: it holds what was there before"), "{failed}");
                assert_eq!(device.hit_count(), 1);
                device.clear();
                on_device(&text, device).complete().expect("all is as it was written");
            }
        }
    }

    /// It was read back from the cache that it had been written to.
    #[test]
    fn a_write_that_is_lost_after_the_cache_is_found() {
        for options in ["", "end_fsync=1\n", "fsync=4\n"] {
            let device = FaultyDevice::new(MemoryDevice::new(1 << 20));
            device.add(Fault::on(Op::Write, Effect::Lost).at(64..65));
            let text = format!("[j]\nrw=write\nbs=4k\nsize=64k\nverify=crc32c\n{options}");
            let failed = failure(on_device(&text, device.clone()));
            assert!(failed.contains("verify failed at byte"), "{options}: {failed}");
            device.clear();
            on_device(&text, device).complete().expect("all is as it was written");
        }
    }

    /// Each was taken for the only writer, and what the other one had written for an old block.
    #[test]
    fn two_names_of_one_file_have_two_writers() {
        let text = |[first, second]: [&str; 2]| {
            format!(
                "[global]\nrw=write\nbs=4k\nsize=64k\ndirect=1\nverify=crc32c\n[a]\nthinktime=20ms\n{first}\n\
                 [b]\nstartdelay=100ms\n{second}\n"
            )
        };
        on_device(&text(["", ""]), MemoryDevice::new(1 << 20))
            .complete()
            .expect("what either wrote is right");
        let directory = tempfile::tempdir().unwrap();
        let place = Arc::new(HostPlace::below(directory.path()));
        let outcome = outcome_of(&text(["filename=f", "filename=/f"]), place);
        outcome.complete().expect("what either wrote is right");
    }

    /// What is not there passed for what was written.
    #[test]
    fn a_file_that_ends_early_is_not_what_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let place = || Arc::new(HostPlace::below(directory.path()));
        let job = |options: &str| format!("[j]\nfilename=f\nbs=4k\nverify=crc32c\n{options}\n");
        outcome_of(&job("rw=write\nsize=16k"), place()).complete().expect("it is written");
        outcome_of(&job("rw=read\nsize=16k"), place()).complete().expect("it is as it was written");
        let file = std::fs::File::options().write(true).open(directory.path().join("f")).unwrap();
        for (size, offset) in [(8192, 8192), (6000, 6000), (4100, 4100), (0, 0)] {
            file.set_len(size).unwrap();
            for direct in ["direct=0", "direct=1"] {
                let failed = failure(outcome_of(&job(&format!("rw=read\nsize=16k\n{direct}")), place()));
                assert!(failed.contains(&format!("byte {offset}: the file ends here")), "{size}: {failed}");
            }
        }
    }

    /// Blocks at the end of a zone may be too short for a header: they have none, and nothing to be checked.
    #[test]
    fn blocks_that_are_too_short_for_a_header_are_not_checked() {
        let directory = tempfile::tempdir().unwrap();
        let text = "[j]\nrw=write\nbs=4k\nsize=40k\nzonemode=strided\nzonesize=8200\nzonerange=8200\nverify=crc32c\n";
        let done = outcome_of(text, Arc::new(HostPlace::below(directory.path())));
        done.complete().expect("it is as it was written");
    }

    /// The last megabyte that it had was overwritten by what it was to have more of.
    #[test]
    fn a_job_that_reads_leaves_what_a_shorter_file_has() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let data: Vec<u8> = (0..1_700_001_u32).map(|index| (index % 251) as u8).collect();
        #[expect(clippy::disallowed_methods, reason = "a file of the host")]
        std::fs::write(&path, &data).unwrap();
        let text = "[j]\nrw=read\nfilename=data\nsize=3m\nbs=64k\n";
        let outcome = outcome_of(text, Arc::new(HostPlace::below(directory.path())));
        assert_eq!(outcome.results[0].read.bytes, 3 << 20);
        #[expect(clippy::disallowed_methods, reason = "a file of the host")]
        let now = std::fs::read(&path).unwrap();
        assert!(
            now.len() == 3 << 20 && now[..data.len()] == data,
            "its {} bytes are as they were",
            data.len()
        );
    }

    /// It waited for a verification that was not to be, with nothing in flight, for ever.
    #[test]
    fn a_backlog_that_is_not_verified_keeps_no_job() {
        let text = "[j]\nrw=write\nbs=4k\nsize=256k\ndirect=1\nioengine=libaio\niodepth=4\nverify=crc32c\n\
                    verify_backlog=8\ndo_verify=0\n";
        let outcome = on_device(text, MemoryDevice::new(1 << 20)).complete().expect("it is written");
        assert_eq!((outcome.results[0].write.bytes, outcome.results[0].read.bytes), (256 << 10, 0));
    }

    /// Neither the user's wish nor `exitall` ended a job that waited for its time.
    #[test]
    fn a_job_that_waits_for_its_time_can_be_stopped() {
        let ends = |text: String, cancels: bool| {
            let (file, cancel, (sender, receiver)) =
                (parse("x.fio", &text).unwrap(), Cancel::default(), channel());
            let asked = cancel.clone();
            std::thread::spawn(move || {
                let device = MemoryDevice::new(1 << 20);
                let place: Arc<dyn Place> = Arc::new(RawPlace::new(device, SchedulerKind::None, Vec::new()));
                let done = run(&file, &place, &Silent, &cancel).map(|outcome| outcome.failures.len());
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

    /// A deep queue was filled again at once after each pause.
    #[test]
    fn a_pause_follows_each_block_of_a_deep_queue() {
        for (blocks, pauses) in [(1, 15), (3, 5)] {
            let text = format!(
                "[j]\nrw=randread\nbs=4k\nsize=64k\ndirect=1\nioengine=libaio\niodepth=8\nthinktime=20ms\n\
                 thinktime_blocks={blocks}\n"
            );
            let outcome = on_device(&text, MemoryDevice::new(1 << 20)).complete().expect("it is read");
            let (result, least) = (&outcome.results[0], Duration::from_millis(20) * pauses);
            assert_eq!(result.read.ios, 16);
            assert!(result.elapsed >= least, "{blocks}: {:?} of {least:?}", result.elapsed);
        }
    }

    /// What the only job does on a simulated disk.
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

    /// Syncs and depths of the time that is not to be counted were counted.
    #[test]
    fn a_ramp_has_no_syncs_and_no_depths() {
        let text = "[j]\nrw=write\nsize=4m\nbs=4k\nfsync=1\ntime_based\nramp_time=2\nruntime=2\n";
        let result = on_slow_disk(text);
        let (writes, syncs) = (result.write.ios, result.sync_ns.ios);
        assert!(writes > 20 && syncs.abs_diff(writes) <= 1, "{writes} writes, {syncs} syncs");
        let submitted = result.levels.total();
        assert!(submitted.abs_diff(writes) <= 1, "{submitted} submitted, {writes} writes");
    }

    /// As in fio a quota is a limit as the end of the disk is one.
    #[test]
    fn a_quota_ends_a_job_that_fills() {
        const EDQUOT: i32 = 122;
        for engine in ["psync", "libaio\niodepth=4"] {
            let device = FaultyDevice::new(MemoryDevice::new(1 << 20));
            device.add(Fault::on(Op::Write, Effect::Error(EDQUOT)).at(64..65));
            let text =
                format!("[j]\nrw=write\nbs=4k\nsize=64k\nfill_device=1\ndirect=1\nioengine={engine}\n");
            let outcome = on_device(&text, device).complete().expect("it is full");
            assert!((32 << 10..64 << 10).contains(&outcome.results[0].write.bytes), "{engine}");
        }
    }

    /// The second one wrote to the file that the first one had removed.
    #[test]
    fn a_job_finds_no_file_that_another_one_removed() {
        let directory = tempfile::tempdir().unwrap();
        let text =
            "[global]\nrw=write\nbs=4k\nsize=64k\nfilename=f\ndirect=1\n[a]\nunlink=1\n[b]\nstonewall\n";
        outcome_of(text, Arc::new(HostPlace::below(directory.path()))).complete().expect("both are done");
        let there = std::fs::metadata(directory.path().join("f")).map(|found| found.len());
        assert_eq!(there.ok(), Some(64 << 10));
    }

    /// Jobs of one name, some of which wait for others, waited for each other or for themselves.
    #[test]
    fn a_job_waits_for_those_before_it_alone() {
        let cases = [
            "[a]\n[b]\nwait_for=a\n[c]\nname=a\nwait_for=b\n",
            "[a]\n[b]\nwait_for=a\n[c]\nname=a\nstonewall\n",
            "[a]\n[b]\nname=a\nwait_for=a\nnumjobs=2\n",
        ];
        for jobs in cases {
            let text = format!("[global]\nrw=read\nsize=64k\n{jobs}");
            let outcome = on_device(&text, MemoryDevice::new(1 << 20)).complete().expect("all are done");
            assert_eq!(outcome.groups.iter().map(|group| group.read.bytes >> 16).sum::<u64>() as usize, {
                let count = |word: &str| text.matches(word).count();
                count("[") - 1 + count("numjobs=2")
            });
        }
    }

    /// Reads came from where the writes of the same job went, in the same order: from the cache, whatever its size.
    #[test]
    fn random_reads_of_a_mix_do_not_follow_its_writes() {
        for options in ["", "norandommap\n", "random_distribution=zipf:0.5\n"] {
            let text =
                format!("[j]\nrw=randrw\nbs=4k\nsize=4m\ndirect=1\nwrite_lat_log\nlog_offset=1\n{options}");
            let outcome = on_device(&text, MemoryDevice::new(4 << 20)).complete().expect("it is done");
            let (_, log) = &outcome.results[0].logs[0];
            let line = |line: &str| {
                let fields: Vec<u64> = line.split(", ").filter_map(|field| field.parse().ok()).collect();
                (fields[2], fields[4])
            };
            let places = |direction| {
                let lines = log.lines().map(line).filter(move |(of, _)| *of == direction);
                lines.map(|(_, offset)| offset).collect::<Vec<_>>()
            };
            let (reads, writes) = (places(0), places(1));
            let same = reads.iter().zip(&writes).filter(|(read, write)| read == write).count();
            assert!(reads.len() > 400 && writes.len() > 400, "{} {}", reads.len(), writes.len());
            assert!(same < 100, "{options}: {same} of {} reads are at the place of a write", reads.len());
        }
    }

    /// Writes had the time in which they were read back, and reads that of the writes between them.
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
        for direction in [&verified.read, &verified.write] {
            let mean = direction.samples_kib_s.iter().sum::<f64>() / direction.samples_kib_s.len() as f64;
            let bandwidth = direction.bandwidth() / 1024.0;
            assert!((mean / bandwidth - 1.0).abs() < 0.3, "{mean} {bandwidth}");
        }
        let after = result("verify=crc32c\n");
        assert!(
            after.write.samples_kib_s.iter().chain(&after.read.samples_kib_s).all(|sample| *sample > 0.0)
        );
    }
}

//! A volume without calls commits its changes at the commit interval, and writes back its dirty pages.

use crate::common;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use common::memory_volume;
use diorite::{Access, BlockDevice, Filesystem, FilesystemOptions, Timestamp};
use diorite_block::sync::{now, sleep};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions, mkfs};
use diorite_sim::disk::SimDisk;
use diorite_sim::{Simulation, WorldOptions};

const INTERVAL: Duration = Duration::from_millis(50);

/// The volume as it would be after a crash at this moment: replayed in memory.
fn after_a_crash(device: &Arc<dyn BlockDevice>) -> Filesystem {
    FilesystemOptions::new().access(Access::ReadOnly).open_device(Arc::clone(device)).expect("open")
}

#[test]
fn an_idle_volume_commits_by_itself() {
    for flavor in [Flavor::Ext2, Flavor::Ext4] {
        let device = memory_volume(32, &MkfsOptions { flavor, ..MkfsOptions::default() });
        let options = FilesystemOptions::new().commit_interval(INTERVAL).dirty_age(INTERVAL);
        let filesystem = options.open_device(device.clone()).expect("open");
        for round in 0..2 {
            let path = format!("/file-{round}");
            let file = filesystem.create_file(&path).expect("create");
            file.write_all_at(&[7; 5000], 0).expect("write");
            let start = Instant::now();
            loop {
                std::thread::sleep(INTERVAL);
                let crashed = after_a_crash(&device);
                // ext2 writes its blocks one after the other: in the middle of that anything can be seen.
                if crashed.metadata(&path).is_ok_and(|attributes| attributes.size == 5000) {
                    let mut found = [0; 5000];
                    let file = crashed.open_file(&path).expect("open");
                    file.read_exact_at(&mut found, 0).expect("read");
                    assert_eq!(found, [7; 5000]);
                    break;
                }
                assert!(start.elapsed() < Duration::from_secs(30), "{flavor:?}: not committed");
            }
        }
        let volume: Weak<_> = Arc::downgrade(filesystem.volume());
        filesystem.close().expect("close");
        assert!(volume.upgrade().is_none(), "the timer's thread has ended and let go of the volume");
    }
}

/// With an interval that never ends nothing is written, and dropping the volume does not wait for it.
#[test]
fn a_long_interval_delays_no_close() {
    let disk = SimDisk::named("sim:ssd").expect("disk");
    let size = Some(64 << 20);
    mkfs(&*disk, &MkfsOptions { size_bytes: size, ..MkfsOptions::new(Flavor::Ext4) }).expect("mkfs");
    let device: Arc<dyn BlockDevice> = disk;
    let body = move || {
        let options = FilesystemOptions::new().commit_interval(Duration::from_secs(100_000));
        let filesystem = options.open_device(device.clone()).expect("open");
        filesystem.create_dir("/directory").expect("create");
        sleep(Duration::from_secs(1000));
        assert!(after_a_crash(&device).metadata("/directory").is_err());
        drop(filesystem);
        assert!(after_a_crash(&device).metadata("/directory").is_ok());
        assert!(now() < Duration::from_secs(1100));
    };
    Simulation::run_one(WorldOptions::default(), body).expect("no deadlock");
}

/// In virtual time: the same seed gives the same run, and the commit comes when it is due.
#[test]
fn the_timer_is_simulated_too() {
    let run = || {
        let disk = SimDisk::named("sim:sata-2009").expect("disk");
        let size = Some(64 << 20);
        let options = MkfsOptions { flavor: Flavor::Ext4, size_bytes: size, ..MkfsOptions::default() };
        let time = Timestamp { seconds: 1_000_000_000, nanoseconds: 0 };
        mkfs(&*disk, &options.reproducible(1, time)).expect("mkfs");
        let device: Arc<dyn BlockDevice> = disk;
        let (seen, report) = Simulation::run_one(WorldOptions::default(), move || {
            let filesystem = FilesystemOptions::new().open_device(Arc::clone(&device)).expect("open");
            filesystem.create_dir("/directory").expect("create");
            let mut writes = Vec::new();
            for _ in 0..8 {
                sleep(Duration::from_secs(1));
                writes.push(device.counters().snapshot().writes);
            }
            filesystem.close().expect("close");
            writes
        })
        .expect("no deadlock");
        (seen, report.virtual_time, report.trace_hash)
    };
    let (writes, end, hash) = run();
    assert_eq!(writes[0], writes[3], "nothing happens before the interval is over: {writes:?}");
    assert!(writes[6] > writes[3], "and then it is committed: {writes:?}");
    assert_eq!(writes[6], writes[7], "once: {writes:?}");
    assert_eq!((writes, end, hash), run());
}

/// Without a journal a handle may write what is old itself, just before the timer. The timer then took it for new while it still
/// waited for it: it span without end, in a simulation for ever.
#[test]
fn a_busy_volume_without_a_journal_is_committed_too() {
    let disk = SimDisk::named("sim:ssd").expect("disk");
    let options = MkfsOptions { flavor: Flavor::Ext2, size_bytes: Some(64 << 20), ..MkfsOptions::default() };
    mkfs(&*disk, &options).expect("mkfs");
    let device: Arc<dyn BlockDevice> = disk;
    let (flushes, _) = Simulation::run_one(WorldOptions::default(), move || {
        let filesystem = FilesystemOptions::new().open_device(Arc::clone(&device)).expect("open");
        filesystem.create_dir("/directory").expect("create");
        let before = device.counters().snapshot().flushes;
        for mode in 0..1200 {
            filesystem.set_permissions("/directory", mode % 512).expect("change");
            sleep(Duration::from_millis(10));
        }
        let flushes = device.counters().snapshot().flushes - before;
        filesystem.close().expect("close");
        flushes
    })
    .expect("no deadlock");
    assert!((2..=3).contains(&flushes), "twelve seconds, five between commits: {flushes}");
}

/// The thread that made the first change after the commit interval waited for the disk, twice: 135 ms beside readers. Now the timer's
/// thread does, no later; with an interval that never ends none does.
#[test]
fn a_change_does_not_wait_for_the_commit_of_old_ones() {
    let run = |interval: Duration| {
        let disk = SimDisk::named("sim:sata-2009").expect("disk");
        let options = MkfsOptions { size_bytes: Some(64 << 20), ..MkfsOptions::new(Flavor::Ext4) };
        mkfs(&*disk, &options).expect("mkfs");
        let device: Arc<dyn BlockDevice> = disk;
        let body = move || {
            let options = FilesystemOptions::new().commit_interval(interval);
            let filesystem = options.open_device(Arc::clone(&device)).expect("open");
            filesystem.create_dir("/directory").expect("create");
            let (mut longest, mut commits) = (Duration::ZERO, Vec::new());
            let mut writes = device.counters().snapshot().writes;
            let begin = now();
            for mode in 0..1200 {
                let began = now();
                filesystem.set_permissions("/directory", mode % 512).expect("change");
                longest = longest.max(now().saturating_sub(began));
                sleep(Duration::from_millis(10));
                let (counted, at) =
                    (device.counters().snapshot().writes, now().saturating_sub(begin).as_millis());
                // A commit is several writes.
                let is_first = commits.last().is_none_or(|last| at > last + 1000);
                if std::mem::replace(&mut writes, counted) < counted && is_first {
                    commits.push(at);
                }
            }
            filesystem.close().expect("close");
            (longest, commits)
        };
        Simulation::run_one(WorldOptions::default(), body).expect("no deadlock").0
    };
    let (longest, commits) = run(Duration::from_secs(5));
    assert!(longest < Duration::from_millis(1), "{longest:?}");
    assert_eq!(commits.len(), 2, "{commits:?}");
    assert!((5000..5100).contains(&commits[0]) && (10_000..10_200).contains(&commits[1]), "{commits:?}");
    let (longest, commits) = run(Duration::MAX);
    assert!(longest < Duration::from_millis(1) && commits.is_empty(), "{longest:?}, {commits:?}");
}

//! Guarantees of every kind of write: durable data survives, truncated data does not return, errors keep their kind.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use common::{Observed, Watched, aligned_pattern, memory_volume, pattern};
use diorite::{
    Access, BlockDevice, DirectIo, DirectQueue, ErrorKind, File, Filesystem, FilesystemOptions, OpenOptions,
    Unaligned,
};
use diorite_block::{Bio, BioFlags, Geometry, IoCounters, IoError, IoQueue, Op};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};
use diorite_sim::crash::{Fate, RecordingDevice, Tearing};
use diorite_sim::image::ImageDevice;

const FLAVORS: [Flavor; 3] = [Flavor::Ext2, Flavor::Ext3, Flavor::Ext4];

/// A device whose metadata writes and flushes wait while it is closed.
#[derive(Debug)]
struct Gate {
    lower: Arc<RecordingDevice>,
    closed: Mutex<bool>,
    /// Threads that wait.
    waiting: Mutex<u32>,
    changed: Condvar,
}

impl Gate {
    fn set_closed(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.changed.notify_all();
    }

    fn wait_for_a_waiter(&self) {
        let begin = std::time::Instant::now();
        while *self.waiting.lock().unwrap() == 0 {
            if begin.elapsed() > Duration::from_secs(30) {
                // Otherwise the test could wait forever for a thread that waits here.
                self.set_closed(false);
                panic!("the writer waited for no commit");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl BlockDevice for Gate {
    fn geometry(&self) -> &Geometry {
        self.lower.geometry()
    }

    fn counters(&self) -> &IoCounters {
        self.lower.counters()
    }

    fn name(&self) -> String {
        "gate".to_owned()
    }

    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        let is_held = |bio: &Bio<'_>| {
            bio.op == Op::Flush || (bio.op == Op::Write && bio.flags.contains(BioFlags::META))
        };
        if bios.iter().any(is_held) {
            let mut closed = self.closed.lock().unwrap();
            *self.waiting.lock().unwrap() += 1;
            while *closed {
                closed = self.changed.wait(closed).unwrap();
            }
            *self.waiting.lock().unwrap() -= 1;
        }
        self.lower.execute(bios)
    }

    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        Ok(<dyn BlockDevice>::immediate_queue(self, depth))
    }
}

fn recorded(options: &MkfsOptions, megabytes: u64) -> Arc<RecordingDevice> {
    RecordingDevice::new(&*memory_volume(megabytes, options), true).unwrap()
}

fn with_flavor(flavor: Flavor, block_size: u32) -> MkfsOptions {
    MkfsOptions { flavor, block_size: Some(block_size), ..MkfsOptions::default() }
}

fn open(device: Arc<dyn BlockDevice>) -> Filesystem {
    // Nothing is written back or committed but by what a test does.
    let never = Duration::from_secs(100_000);
    FilesystemOptions::new().commit_interval(never).dirty_age(never).open_device(device).unwrap()
}

fn options(filesystem: &Filesystem) -> OpenOptions<Filesystem> {
    filesystem.open_options().read(true).write(true).create(true)
}

/// The volume after a crash at this moment that takes everything it may.
fn after_the_worst_crash(recorder: &RecordingDevice) -> Filesystem {
    let recording = recorder.recording();
    let point = recording.crash_points().last().unwrap();
    let lost = vec![Fate::Lost; point.unflushed_count()];
    let device: Arc<dyn BlockDevice> = ImageDevice::new(point.image(&lost));
    FilesystemOptions::new().access(Access::ReadOnly).open_device(device).unwrap()
}

fn assert_survived(recorder: &RecordingDevice, data: &[u8], story: &str) {
    let crashed = after_the_worst_crash(recorder);
    let file = crashed.open_file("/file").unwrap();
    let mut found = vec![0; data.len()];
    let got = file.read_at(&mut found, 0).unwrap();
    assert_eq!(got, data.len(), "{story}: the size");
    assert!(found == data, "{story}: the content");
}

/// A direct write that nothing synced, then an O_DSYNC overwrite through a new handle: it made only its data durable, and
/// the mapping that leads to it was lost.
#[test]
fn a_synchronous_overwrite_of_another_handles_blocks_survives() {
    for flavor in FLAVORS {
        let recorder = recorded(&with_flavor(flavor, 4096), 32);
        let filesystem = open(recorder.clone());
        drop(filesystem.create_file("/file").unwrap());
        filesystem.sync().unwrap();
        let file = options(&filesystem).direct(DirectIo::Required).open("/file").unwrap();
        file.write_all_at(&aligned_pattern(65536, 1), 0).unwrap();
        drop(file);
        let file = options(&filesystem).direct(DirectIo::Required).dsync(true).open("/file").unwrap();
        let data = aligned_pattern(65536, 2);
        file.write_all_at(&data, 0).unwrap();
        assert_survived(&recorder, &data, &format!("{flavor:?}"));
    }
}

/// While one O_DSYNC writer waits for its commit, a second overwrites the same block: it returned without waiting for that commit.
#[test]
fn a_second_synchronous_writer_waits_for_the_commit_of_the_first() {
    for flavor in [Flavor::Ext3, Flavor::Ext4] {
        let recorder = recorded(&with_flavor(flavor, 4096), 32);
        let gate = Arc::new(Gate {
            lower: recorder.clone(),
            closed: Mutex::new(false),
            waiting: Mutex::new(0),
            changed: Condvar::new(),
        });
        let filesystem = open(gate.clone());
        let file = options(&filesystem).direct(DirectIo::Required).dsync(true).open("/file").unwrap();
        filesystem.sync().unwrap();
        gate.set_closed(true);
        let data = aligned_pattern(4096, 2);
        let thread = Observed::default();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| file.write_all_at(&aligned_pattern(4096, 1), 0).unwrap());
            gate.wait_for_a_waiter();
            let second = scope.spawn(|| {
                thread.begin();
                file.write_all_at(&data, 0).unwrap();
            });
            thread.wait_until_blocked(|| second.is_finished());
            let early = second.is_finished().then(|| recorder.recording());
            gate.set_closed(false);
            first.join().unwrap();
            second.join().unwrap();
            assert!(early.is_none(), "{flavor:?}: it returned before the commit that maps its block");
        });
        assert_survived(&recorder, &data, &format!("{flavor:?}"));
    }
}

/// How a file grows again after it was truncated.
const GROWTHS: [&str; 7] = ["set_len", "direct", "dsync", "bounced", "queue", "allocate", "write-back"];

fn grow(filesystem: &Filesystem, file: &File, how: &str, at: u64) {
    let direct = options(filesystem).direct(DirectIo::Required);
    let data = aligned_pattern(4096, 9);
    match how {
        "set_len" => file.set_len(at + 4096).unwrap(),
        "direct" => direct.open("/file").unwrap().write_all_at(&data, at).unwrap(),
        "dsync" => direct.dsync(true).open("/file").unwrap().write_all_at(&data, at).unwrap(),
        "bounced" => {
            direct
                .unaligned(Unaligned::Bounce)
                .open("/file")
                .unwrap()
                .write_all_at(&data[..999], at + 1)
                .unwrap();
        }
        "queue" => {
            let mut queue = DirectQueue::new(1);
            queue.write(file, at, data, 4096, 0).unwrap();
            queue.next_finished().unwrap().unwrap().result.unwrap();
        }
        "allocate" => file.allocate(at, 4096).unwrap(),
        _ => {
            file.write_all_at(&data, at).unwrap();
            // Writes back that page, and not the one in which the file ended.
            let reader =
                filesystem.open_options().read(true).direct(DirectIo::Required).open("/file").unwrap();
            reader.read_at(&mut aligned_pattern(4096, 0), at).unwrap();
        }
    }
}

/// A file is truncated, the journal is committed by another file's sync, the file grows: after a crash the truncated bytes were back.
#[test]
fn truncated_bytes_do_not_come_back() {
    for (flavor, block) in
        [(Flavor::Ext4, 1024), (Flavor::Ext4, 4096), (Flavor::Ext3, 4096), (Flavor::Ext4, 16384)]
    {
        for how in GROWTHS {
            for (is_cached, synced) in [(true, false), (false, false), (true, true)] {
                let recorder = recorded(&with_flavor(flavor, block), 32);
                let filesystem = open(recorder.clone());
                let file = options(&filesystem).open("/file").unwrap();
                let other = filesystem.create_file("/other").unwrap();
                file.write_all_at(&vec![0xAA; block as usize], 0).unwrap();
                filesystem.sync().unwrap();
                if !is_cached {
                    filesystem.drop_caches().unwrap();
                }
                file.set_len(100).unwrap();
                if synced {
                    file.sync_all().unwrap();
                }
                other.write_all_at(b"1", 0).unwrap();
                other.sync_all().unwrap();
                grow(&filesystem, &file, how, 32768);
                other.write_all_at(b"2", 0).unwrap();
                other.sync_all().unwrap();
                let recording = recorder.recording();
                let point = recording.crash_points().last().unwrap();
                for fates in point.fates(12, Tearing::Never, 1) {
                    let device: Arc<dyn BlockDevice> = ImageDevice::new(point.image(&fates));
                    let crashed =
                        FilesystemOptions::new().access(Access::ReadOnly).open_device(device).unwrap();
                    let file = crashed.open_file("/file").unwrap();
                    let mut memory = vec![0; 32768];
                    let got = file.read_at(&mut memory, 0).unwrap();
                    let story = format!("{flavor:?} {block} {how} cached {is_cached} synced {synced}");
                    assert!(memory[..100].iter().all(|byte| *byte == 0xAA), "{story}: what stayed is lost");
                    let back = memory[100..got].iter().filter(|byte| **byte != 0).count();
                    assert_eq!(back, 0, "{story}: truncated bytes are readable");
                }
            }
        }
    }
}

/// With blocks larger than a page, the rest of the block stayed on the device also after a full sync.
#[test]
fn the_rest_of_a_truncated_block_is_zero_on_the_device() {
    for block in [4096, 16384] {
        let device = memory_volume(32, &with_flavor(Flavor::Ext4, block));
        let filesystem = open(device.clone());
        let file = options(&filesystem).open("/file").unwrap();
        file.write_all_at(&vec![0xAA; block as usize], 0).unwrap();
        filesystem.sync().unwrap();
        let at = file.extents().unwrap()[0].sector.unwrap().to_bytes();
        file.set_len(100).unwrap();
        filesystem.sync().unwrap();
        let mut memory = aligned_pattern(block as usize, 1);
        device.read_bytes(at, &mut memory).unwrap();
        assert!(memory[..100].iter().all(|byte| *byte == 0xAA));
        assert!(memory[100..].iter().all(|byte| *byte == 0), "{block}");
    }
}

/// An error in the middle of a cached write came as "no space".
#[test]
fn write_all_keeps_the_error() {
    let device = Watched::new(memory_volume(32, &MkfsOptions::default()), |_| {});
    let filesystem = open(device.clone());
    let file = options(&filesystem).open("/file").unwrap();
    let data = pattern((3 << 20) - 100, 1);
    file.write_all_at(&vec![1; 3 << 20], 0).unwrap();
    filesystem.sync().unwrap();
    filesystem.drop_caches().unwrap();
    device.reads_fail.store(true, SeqCst);
    // Its last page is covered in part, and must be read.
    let error = file.write_all_at(&data, 0).unwrap_err();
    device.reads_fail.store(false, SeqCst);
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
}

/// Claims count a cluster for each block: an append of 4.4 MiB to a volume with 23 MiB free ended with "no space" and a part of it.
#[test]
fn an_append_on_clusters_is_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let made = std::process::Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-O", "bigalloc", "-b", "4096", "-C", "65536", "-m", "0"])
        .arg(&path)
        .arg("32M")
        .status();
    if !made.is_ok_and(|status| status.success()) {
        println!("SKIPPED: mke2fs");
        return;
    }
    let filesystem = FilesystemOptions::new().cache_bytes(16 << 20).open(&path).unwrap();
    let free = filesystem.statfs();
    assert!(free.blocks_free * free.block_size > 20 << 20);
    let file = options(&filesystem).open("/file").unwrap();
    let data = pattern((22 << 20) / 5, 3);
    for round in 0..3 {
        assert_eq!(file.append(&data).unwrap(), round * data.len() as u64);
    }
    let mut memory = vec![0; data.len()];
    for round in 0..3 {
        file.read_exact_at(&mut memory, round * data.len() as u64).unwrap();
        assert!(memory == data);
    }
    drop(file);
    filesystem.close().unwrap();
    common::assert_clean(&path);
}

/// The thread that alone took blocks waited for a range that the owner of a queue would release, who waited for that right.
#[test]
fn a_full_volume_with_an_unreaped_queue_hangs_no_thread() {
    let options = MkfsOptions { reserved_percent: 0.0, ..with_flavor(Flavor::Ext2, 1024) };
    let filesystem =
        FilesystemOptions::new().cache_bytes(4 << 20).open_device(memory_volume(8, &options)).unwrap();
    let direct = || filesystem.open_options().read(true).write(true).create(true).direct(DirectIo::Required);
    let (file, other) = (direct().open("/file").unwrap(), direct().open("/other").unwrap());
    // Of each four blocks of a page the first is there.
    for page in 0..8 {
        file.write_all_at(&aligned_pattern(1024, page), page * 4096).unwrap();
    }
    let filler = direct().open("/filler").unwrap();
    let mut at = 0;
    for len in [65536, 1024] {
        while filler.write_at(&aligned_pattern(len, 1), at).is_ok_and(|written| {
            at += written as u64;
            written > 0
        }) {}
    }
    let (done, ended) = std::sync::mpsc::channel();
    let taker = {
        let (file, done) = (file.clone(), done.clone());
        move || {
            for round in 0..400_u64 {
                let error =
                    file.write_at(&aligned_pattern(1024, round), round % 8 * 4096 + 1024).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::StorageFull);
            }
            done.send(()).unwrap();
        }
    };
    let owner = move || {
        for round in 0..400_u64 {
            let mut queue = DirectQueue::new(8);
            for page in 0..8 {
                queue.write(&file, page * 4096, aligned_pattern(1024, round), 1024, 0).unwrap();
            }
            let error = other.write_at(&aligned_pattern(1024, round), round * 4096).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StorageFull);
            while let Some(finished) = queue.next_finished().unwrap() {
                finished.result.unwrap();
            }
        }
        done.send(()).unwrap();
    };
    let threads = [std::thread::spawn(taker), std::thread::spawn(owner)];
    for _ in &threads {
        ended.recv_timeout(Duration::from_secs(120)).expect("both end");
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

/// A queue took no part in the search for the last blocks: with cached data that waits, a transfer failed that had space.
#[test]
fn a_queue_takes_the_last_blocks() {
    for flavor in FLAVORS {
        let options = MkfsOptions { reserved_percent: 0.0, ..with_flavor(flavor, 1024) };
        let filesystem =
            FilesystemOptions::new().cache_bytes(8 << 20).open_device(memory_volume(12, &options)).unwrap();
        let direct = filesystem.open_options().read(true).write(true).create(true).direct(DirectIo::Required);
        let file = direct.open("/file").unwrap();
        // Its claims are for the worst case.
        let cached = filesystem.create_file("/cached").unwrap();
        for block in 0..200 {
            cached.write_all_at(&pattern(1024, block), block * 50_000).unwrap();
        }
        let mut queue = DirectQueue::new(4);
        let (mut at, mut is_full) = (0, false);
        while !is_full || queue.in_flight() > 0 {
            if !is_full && queue.in_flight() < 4 {
                let data = aligned_pattern(16384, at);
                match queue.write(&file, at, data, 16384, at) {
                    Ok(()) => at += 16384,
                    Err(refused) => {
                        assert_eq!(refused.error.kind(), ErrorKind::StorageFull);
                        is_full = true;
                    }
                }
            } else if let Some(finished) = queue.next_finished().unwrap() {
                is_full |= finished.result.unwrap() < 16384;
            }
        }
        filesystem.sync().unwrap();
        let left = filesystem.statfs().blocks_free;
        assert!(left <= 4, "{flavor:?}: {left} blocks are left");
    }
}

/// A buffered write far out, an allocation before it, a crash: the allocated blocks were after the end of the file as it was recorded.
#[test]
fn an_allocation_records_the_size_that_its_blocks_need() {
    let recorder = recorded(&with_flavor(Flavor::Ext3, 4096), 32);
    let filesystem = open(recorder.clone());
    let file = options(&filesystem).open("/file").unwrap();
    let other = filesystem.create_file("/other").unwrap();
    filesystem.sync().unwrap();
    file.write_all_at(&[1; 100], 60 << 10).unwrap();
    file.allocate(0, 40 << 10).unwrap();
    other.write_all_at(b"1", 0).unwrap();
    other.sync_all().unwrap();
    let crashed = after_the_worst_crash(&recorder);
    assert!(crashed.metadata("/file").unwrap().size >= 40 << 10);
}

//! Times: `stat` shows the inode's times, which change with the file and not with writeback.

use crate::common;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use common::open_memory;
use diorite::front_end::Clock;
use diorite::{
    ErrorKind, Filesystem, FilesystemOptions, RenameMode, SetAttributes, SetTime, Timestamp, XattrMode,
};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

const APPEND_ONLY: u32 = 0x20;
const IMMUTABLE: u32 = 0x10;

/// A clock that a test sets.
#[derive(Debug)]
struct Hand(AtomicI64);

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp { seconds: self.0.load(Ordering::Relaxed), nanoseconds: 500 }
    }
}

fn open(options: &MkfsOptions) -> (Filesystem, Arc<Hand>) {
    let clock = Arc::new(Hand(AtomicI64::new(1000)));
    let with = FilesystemOptions::new().clock(clock.clone());
    (open_memory(16, options, &with), clock)
}

fn flavors() -> [MkfsOptions; 3] {
    [Flavor::Ext2, Flavor::Ext3, Flavor::Ext4].map(|flavor| MkfsOptions { flavor, ..MkfsOptions::default() })
}

/// A write's time waits to be recorded. A link, a rename or an attribute after it changed the inode later, and `stat` went back to the
/// time of the write; write-back then set the change time to its own time, with no change made (git and tar compare it).
#[test]
fn the_change_time_neither_goes_back_nor_jumps() {
    for options in flavors() {
        let (filesystem, clock) = open(&options);
        let root = filesystem.root().expect("root");
        for (round, change) in ["link", "rename", "xattr", "none"].into_iter().enumerate() {
            let file = filesystem.create_file("/file").expect("create");
            let at = |seconds| clock.0.store(2000 + 100 * round as i64 + seconds, Ordering::Relaxed);
            let seconds = || {
                let attributes = file.metadata().expect("stat");
                (attributes.modified.seconds % 100, attributes.changed.seconds % 100)
            };
            at(1);
            file.write_all_at(b"data", 0).expect("write");
            at(5);
            let node = filesystem.resolve("/file").expect("resolve");
            match change {
                "link" => root.link(&node, b"other").expect("link"),
                "rename" => root.rename(b"file", &root, b"moved", RenameMode::Replace).expect("rename"),
                "xattr" => node.set_xattr(b"user.a", b"1", XattrMode::Set).expect("xattr"),
                _ => {}
            }
            let expected = (1, if change == "none" { 1 } else { 5 });
            assert_eq!(seconds(), expected, "{:?} {change}", options.flavor);
            at(9);
            file.sync_data().expect("write-back");
            assert_eq!(seconds(), expected, "{:?} {change}: after write-back", options.flavor);
            file.sync_all().expect("sync");
            assert_eq!(seconds(), expected, "{:?} {change}: after a sync", options.flavor);
            let _ = (filesystem.remove_file("/moved"), filesystem.remove_file("/other"));
        }
    }
}

/// Allocation is a modification, as in the kernel; on ext2 and ext3 it changed no times.
#[test]
fn allocation_changes_both_times() {
    for options in flavors() {
        let (filesystem, clock) = open(&options);
        let file = filesystem.create_file("/file").expect("create");
        for (seconds, end) in [(2000, 10_000), (3000, 5_000)] {
            clock.0.store(seconds, Ordering::Relaxed);
            file.allocate(0, end).expect("allocate");
            for synced in [false, true] {
                let attributes = file.metadata().expect("stat");
                let shown = (attributes.modified.seconds, attributes.changed.seconds);
                assert_eq!(shown, (seconds, seconds), "{:?} synced: {synced}", options.flavor);
                file.sync_all().expect("sync");
            }
        }
    }
}

/// A time that the inode cannot hold is shown as it will be read back, at once: also one that waits to be recorded.
#[test]
fn times_are_shown_as_the_inode_holds_them() {
    for inode_size in [128, 256] {
        let options = MkfsOptions { inode_size: Some(inode_size), ..MkfsOptions::default() };
        let (filesystem, clock) = open(&options);
        let file = filesystem.create_file("/file").expect("create");
        let is_small = inode_size == 128;
        clock.0.store(1 << 33, Ordering::Relaxed);
        file.write_all_at(b"data", 0).expect("write");
        let time = Timestamp { seconds: 1 << 40, nanoseconds: 3 };
        let changes = SetAttributes { accessed: Some(SetTime::To(time)), ..SetAttributes::default() };
        let shown = || {
            let attributes = filesystem.metadata("/file").expect("stat");
            (attributes.accessed, attributes.modified, attributes.changed)
        };
        let before = shown();
        let last = if is_small { i64::from(i32::MAX) } else { 15_032_385_535 };
        let now = if is_small {
            Timestamp { seconds: last, nanoseconds: 0 }
        } else {
            Timestamp { seconds: 1 << 33, nanoseconds: 500 }
        };
        assert_eq!((before.1, before.2), (now, now), "pending, {inode_size}");
        filesystem.resolve("/file").expect("resolve").set_attributes(&changes).expect("set");
        let set = shown();
        let expected = Timestamp { seconds: last, nanoseconds: 0 };
        assert_eq!(set, (expected, now, now), "set, {inode_size}");
        drop(file);
        let device = filesystem.device().clone();
        filesystem.close().expect("close");
        let again = Filesystem::options().open_device(device).expect("open").metadata("/file").expect("stat");
        assert_eq!((again.accessed, again.modified, again.changed), set, "read back, {inode_size}");
    }
}

/// `touch` of an append-only file sets both times to now, which who may append may do; other times and attributes are refused.
#[test]
fn an_append_only_file_can_be_touched() {
    let (filesystem, clock) = open(&MkfsOptions::default());
    filesystem.create_file("/log").expect("create");
    let node = filesystem.resolve("/log").expect("resolve");
    let flags = node.attributes().expect("stat").flags | APPEND_ONLY;
    node.set_attributes(&SetAttributes { flags: Some(flags), ..SetAttributes::default() })
        .expect("chattr +a");
    let log = filesystem.open_options().append(true).open("/log").expect("open");
    log.append(b"line").expect("append");
    clock.0.store(2000, Ordering::Relaxed);
    filesystem.set_times("/log", Some(SetTime::Now), Some(SetTime::Now)).expect("touch");
    assert_eq!(filesystem.metadata("/log").expect("stat").modified.seconds, 2000);
    let other = Some(SetTime::To(Timestamp { seconds: 1, nanoseconds: 0 }));
    assert_eq!(
        filesystem.set_times("/log", other, other).expect_err("refused").kind(),
        ErrorKind::PermissionDenied
    );
    assert_eq!(
        filesystem.set_permissions("/log", 0o600).expect_err("refused").kind(),
        ErrorKind::PermissionDenied
    );
    let now = SetAttributes {
        accessed: Some(SetTime::Now),
        modified: Some(SetTime::Now),
        uid: Some(7),
        ..Default::default()
    };
    assert_eq!(node.set_attributes(&now).expect_err("refused").kind(), ErrorKind::PermissionDenied);
}

/// A mount's kernel says what time it is now, and what time it was when it cached what was appended: neither is a time set by hand.
#[test]
fn observed_times_are_recorded_whatever_the_flags() {
    let (filesystem, _) = open(&MkfsOptions::default());
    filesystem.create_file("/log").expect("create");
    let node = filesystem.resolve("/log").expect("resolve");
    let before = node.attributes().expect("stat").flags;
    let observed = |seconds| Some(SetTime::Observed(Timestamp { seconds, nanoseconds: 0 }));
    let (at, none) = (|seconds| observed(seconds), SetAttributes::default());
    for (flag, may_touch) in [(APPEND_ONLY, true), (IMMUTABLE, false)] {
        node.set_attributes(&SetAttributes { flags: Some(before | flag), ..none }).expect("chattr");
        let touch =
            SetAttributes { accessed: Some(SetTime::Now), modified: at(1500), changed: at(1500), ..none };
        let touched = node.set_attributes(&touch);
        assert_eq!(touched.is_ok(), may_touch);
        node.set_attributes(&SetAttributes { modified: at(1600), changed: at(1601), ..none })
            .expect("written");
        let attributes = node.attributes().expect("stat");
        assert_eq!((attributes.modified.seconds, attributes.changed.seconds), (1600, 1601));
        let alone = SetAttributes { modified: Some(SetTime::Now), ..none };
        assert_eq!(node.set_attributes(&alone).expect_err("refused").kind(), ErrorKind::PermissionDenied);
    }
}

/// A time set by hand after a write stays, whatever write-back is under way.
#[test]
fn a_time_set_by_hand_is_not_overwritten_by_write_back() {
    let (filesystem, _) = open(&MkfsOptions::default());
    let file = filesystem.create_file("/file").expect("create");
    let by_hand = Timestamp { seconds: 77, nanoseconds: 0 };
    for _ in 0..200 {
        file.write_all_at(&[1; 8192], 0).expect("write");
        std::thread::scope(|scope| {
            scope.spawn(|| file.sync_data().expect("write-back"));
            filesystem.set_times("/file", None, Some(SetTime::To(by_hand))).expect("set");
        });
        assert_eq!(file.metadata().expect("stat").modified, by_hand);
    }
}

/// Write-back records the modification time of a cached overwrite without a sync. It stayed in memory until the volume was synced or closed: after a
/// crash the file had new content and the old time.
#[test]
fn write_back_without_a_sync_records_the_time() {
    for options in flavors() {
        let clock = Arc::new(Hand(AtomicI64::new(1000)));
        let device = common::memory_volume(16, &options);
        let age = Duration::from_millis(20);
        let with = FilesystemOptions::new().clock(clock.clone()).dirty_age(age).commit_interval(age);
        let filesystem = with.open_device(device.clone()).expect("open");
        filesystem.write("/file", [1; 8192]).expect("write");
        filesystem.sync().expect("sync");
        clock.0.store(2000, Ordering::Relaxed);
        let file = filesystem.open_options().write(true).open("/file").expect("open");
        file.write_all_at(&[2; 4096], 4096).expect("write");
        let limit = Instant::now() + Duration::from_secs(20);
        // The content that another host would see after a power cut at this moment.
        let seen = || {
            let volume =
                FilesystemOptions::new().access(diorite::Access::ReadOnly).open_device(device.clone());
            volume.expect("open").metadata("/file").expect("stat").modified.seconds
        };
        while seen() != 2000 {
            assert!(Instant::now() < limit, "the time is {}", seen());
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(file);
        filesystem.close().expect("close");
    }
}

/// While the last use of a file recorded its time, another one began, overwrote directly, and ended: its time was lost.
#[test]
fn a_use_that_ends_beside_the_last_one_keeps_its_time() {
    const TIME: Duration = Duration::from_secs(4);
    let (filesystem, clock) = &open(&MkfsOptions::default());
    let mut data = filesystem.create_file("/file").expect("create").buffer(4096).expect("memory");
    data.fill(1);
    let data = &data;
    let direct = || {
        let options = filesystem.open_options().write(true).direct(diorite::DirectIo::Required);
        options.open("/file").expect("open")
    };
    direct().write_all_at(data, 0).expect("write");
    let (start, together, is_over) = (Instant::now(), &Barrier::new(2), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            loop {
                together.wait();
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                clock.0.fetch_add(1, Ordering::SeqCst);
                direct().write_all_at(data, 0).expect("overwrite");
                together.wait();
            }
        });
        let mut lost = None;
        while start.elapsed() < TIME && lost.is_none() {
            let last = clock.0.load(Ordering::SeqCst) + 2;
            clock.0.store(last - 1, Ordering::SeqCst);
            let file = direct();
            file.write_all_at(data, 0).expect("overwrite");
            together.wait();
            drop(file);
            together.wait();
            let modified = filesystem.metadata("/file").expect("stat").modified.seconds;
            lost = (modified != last).then_some((modified, last));
        }
        is_over.store(true, Ordering::SeqCst);
        together.wait();
        other.join().expect("it writes");
        assert_eq!(lost, None, "the time that is shown, and that of the last write");
    });
}

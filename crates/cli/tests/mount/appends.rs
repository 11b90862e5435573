//! Direct appends of several requests; allocation; impossible file sizes.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use diorite::AlignedBuf;
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use super::Served;
use crate::common::tool;

/// Bytes of one append: several requests on every transport.
const APPEND: usize = 8 << 20;

/// The size came from the request that was carried out first, and a reader saw zeros before its data.
pub(crate) fn a_reader_sees_no_gap_in_an_append_that_is_under_way() {
    let Some(served) = Served::new("ext4", "256M", "direct") else { return };
    let path = served.path("file");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut memory = vec![0; 1 << 20];
            let mut at = 0;
            while !is_over.load(Ordering::Acquire) {
                let Ok(file) = fs::File::open(&path) else { continue };
                // The first read ends at the current end of the file, the next one continues there.
                while let Ok(len @ 1..) = file.read_at(&mut memory, at) {
                    if let Some(zero) = memory[..len].iter().position(|byte| *byte == 0) {
                        return Err(format!("a zero at {} before {}", at + zero as u64, at + len as u64));
                    }
                    at += len as u64;
                }
            }
            Ok(at)
        });
        // The writes are asynchronous: the kernel sends the requests of other writes one after the other.
        let job = "--name=append --ioengine=libaio --direct=1 --rw=write --bs=8M --size=192M --iodepth=1 --buffer_pattern=0xa5 \
                   --fallocate=none --create_on_open=1";
        let name = format!("--filename={}", path.display());
        let output = tool("fio", job.split_whitespace().chain([&name[..]]));
        is_over.store(true, Ordering::Release);
        let seen = reader.join().expect("the reader");
        let Some(output) = output else { return };
        assert!(output.status.success(), "{output:?}");
        assert!(seen.expect("no gap") > 0, "it has read nothing");
    });
    served.must_end_clean();
}

/// The journal had the size of a later request without the blocks of an earlier one. After a kill the file had a hole before its last data.
pub(crate) fn a_kill_in_an_append_leaves_no_hole() {
    for round in 0..6 {
        let Some(served) = Served::new("ext4", "256M", "") else { return };
        let (path, other) = (served.path("file"), served.path("other"));
        let (is_over, appended) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                let file = OpenOptions::new()
                    .create(true)
                    .append(true)
                    .custom_flags(OFlags::DIRECT.bits() as i32)
                    .open(&path)
                    .expect("create");
                let mut data = AlignedBuf::zeroed(APPEND, 4096);
                data.fill(0xa5);
                while !is_over.load(Ordering::Acquire) && (&file).write(&data).is_ok() {
                    if appended.fetch_add(1, Ordering::AcqRel) > 24 {
                        file.set_len(0).ok();
                        appended.store(1, Ordering::Release);
                    }
                }
            });
            // Each sync commits the parts of the append that are recorded.
            scope.spawn(|| {
                let file = fs::File::create(&other).expect("create");
                let mut at = 0;
                while !is_over.load(Ordering::Acquire)
                    && file.write_all_at(b"synced", at).and_then(|()| file.sync_all()).is_ok()
                {
                    at += 6;
                }
            });
            Served::wait_until(|| appended.load(Ordering::Acquire) > 0);
            thread::sleep(Duration::from_millis(50 + 37 * round));
            served.kill();
            is_over.store(true, Ordering::Release);
        });
        let served = served.mount_again("");
        // Without a commit before the kill, the data is lost.
        let data = fs::read(served.path("file")).unwrap_or_default();
        let zero = data.iter().position(|byte| *byte == 0);
        assert_eq!(zero, None, "round {round}: a hole in {} bytes", data.len());
        served.must_end_clean();
    }
}

/// When the volume had no space for an append, the parts after the failed one left their data after a hole until the kernel truncated the
/// file.
pub(crate) fn an_append_without_space_leaves_no_hole() {
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    let mut data = AlignedBuf::zeroed(APPEND, 4096);
    data.fill(0xa5);
    let at = served.at();
    let append = |name: &str| {
        let mut options = OpenOptions::new();
        options.create(true).append(true).custom_flags(OFlags::DIRECT.bits() as i32);
        let (path, mut written) = (at.join(name), 0);
        let mut file = options.open(&path).expect("create");
        let error = loop {
            match file.write(&data) {
                Ok(len) => written += len,
                Err(error) => break error,
            }
        };
        assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
        let found = fs::read(&path).expect("read");
        assert_eq!((found.len(), found.iter().position(|byte| *byte == 0)), (written, None));
        fs::remove_file(&path).expect("remove");
    };
    for _ in 0..3 {
        // Each append can need the blocks of another one.
        thread::scope(|scope| {
            for name in ["a", "b", "c"] {
                let append = &append;
                scope.spawn(move || append(name));
            }
        });
    }
    served.must_end_clean();
}

/// A write without space for all of its data wrote a part, and the program got an error instead of a count. As in the kernel's ext4, a
/// write without `O_DIRECT` must count the part, by the next sync at the latest. A write with `O_DIRECT` succeeds or fails as a whole.
#[test]
fn on_a_full_disk_the_part_that_is_written_is_counted() {
    for (kind, len) in [("ext4", 1_000_000), ("ext4", 3 << 20), ("ext2", 1_000_000)] {
        let Some(served) = Served::new(kind, "32M", "direct") else { return };
        let data = vec![0xa5; len];
        let mut file = fs::File::create(served.path("file")).expect("create");
        let (mut written, mut parts) = (0, 0);
        let error = loop {
            match file.write(&data) {
                Ok(count) => {
                    written += count as u64;
                    parts += u32::from(count < len);
                }
                Err(error) => break error,
            }
        };
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC));
        assert_eq!((file.metadata().expect("stat").len(), parts), (written, 1), "{kind}, {len}");
        let free = rustix::fs::statvfs(served.at()).expect("statvfs");
        assert!(free.f_bfree * free.f_frsize < 64 << 10, "there is space for more");
        drop(file);
        let mut options = OpenOptions::new();
        options.append(true).custom_flags(OFlags::DIRECT.bits() as i32);
        let mut direct = options.open(served.path("file")).expect("open");
        let error = direct.write(&AlignedBuf::zeroed(1 << 20, 4096)).expect_err("there is no space");
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC));
        drop(direct);
        let found = fs::read(served.path("file")).expect("read");
        assert!(found.len() as u64 >= written && found.iter().all(|byte| *byte == 0xa5), "what was counted");
        served.must_end_clean();
    }
}

/// On a volume without unwritten blocks, an allocation that failed wrote zeros to all free blocks. The file had their size after the next
/// mount.
pub(crate) fn an_allocation_that_fails_leaves_the_size_and_gives_back_blocks() {
    // The largest allocation has several steps, and the first ones have enough space.
    for (kind, size, len) in [("ext2", "64M", 200), ("ext4", "64M", 200), ("ext4", "512M", 600)] {
        let Some(served) = Served::new(kind, size, "") else { return };
        let file = fs::File::create(served.path("file")).expect("create");
        file.write_all_at(&[7; 10_000], 0).and_then(|()| file.sync_all()).expect("write");
        let free = || rustix::fs::statvfs(served.at()).expect("statvfs").f_bfree;
        let before = free();
        for (flags, offset) in [
            (FallocateFlags::empty(), 0),
            (FallocateFlags::empty(), 1 << 20),
            (FallocateFlags::ZERO_RANGE, 0),
        ] {
            assert_eq!(rustix::fs::fallocate(&file, flags, offset, len << 20), Err(Errno::NOSPC));
            assert_eq!(file.metadata().expect("stat").len(), 10_000);
            // The blocks are free except the last block of the file.
            assert!(
                before - free() < 8,
                "{kind}: {flags:?} {offset}: {before} blocks were free, and now {}",
                free()
            );
        }
        drop(file);
        let served = served.again("");
        assert_eq!(fs::read(served.path("file")).expect("read"), [7; 10_000], "{kind}");
        served.must_end_clean();
    }
}

/// The kernel still showed the size of data that it could not write.
pub(crate) fn a_size_that_a_file_cannot_have_is_gone_after_the_close() {
    if !super::kernel_is_at_least(6, 18) {
        return eprintln!("SKIPPED: the kernel cannot be made to drop an inode (Linux 6.18)");
    }
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    let path = served.path("file");
    let file = fs::File::create(&path).expect("create");
    file.write_all_at(b"content", 0).and_then(|()| file.sync_all()).expect("write");
    file.write_all_at(b"lost", 1 << 44).expect("it is in the kernel's cache");
    let error = file.sync_all().expect_err("it cannot be written");
    assert_eq!(error.raw_os_error(), Some(Errno::FBIG.raw_os_error()));
    drop(file);
    // The kernel drops no inode that a `stat` is using, so the test must not look all the time.
    Served::wait_until(|| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::metadata(&path).expect("stat").len() == 7
    });
    assert_eq!(fs::read(&path).expect("read"), b"content");
    served.must_end_clean();
}

/// An older time that was not recorded yet replaced the time of the allocation.
pub(crate) fn an_allocation_has_its_time_without_the_kernels_cache() {
    let Some(served) = Served::new("ext4", "64M", "direct") else { return };
    let file = fs::File::create(served.path("file")).expect("create");
    file.write_all_at(&[7; 10_000], 0).expect("write");
    let keep = FallocateFlags::KEEP_SIZE;
    for (flags, offset, len) in [
        (keep, 0, 4096),
        (keep, 0, 1 << 20),
        (keep, 0, 1 << 20),
        (keep | FallocateFlags::PUNCH_HOLE, 0, 4096),
        (keep | FallocateFlags::PUNCH_HOLE, 1 << 20, 4096),
        (keep | FallocateFlags::ZERO_RANGE, 4096, 4096),
        (keep | FallocateFlags::ZERO_RANGE, 1 << 20, 1 << 20),
        (FallocateFlags::empty(), 0, 4096),
        (FallocateFlags::empty(), 0, 20_000),
    ] {
        let times = || {
            let stat = file.metadata().expect("stat");
            ((stat.mtime(), stat.mtime_nsec()), (stat.ctime(), stat.ctime_nsec()))
        };
        let before = times();
        thread::sleep(Duration::from_millis(20));
        rustix::fs::fallocate(&file, flags, offset, len).expect("fallocate");
        let after = times();
        assert!(after.0 > before.0 && after.1 > before.1, "{flags:?} {offset} {len}: {before:?} {after:?}");
    }
    drop(file);
    served.must_end_clean();
}

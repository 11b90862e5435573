//! Flags (`chattr`), full disks, permission bits and times, for which the kernel's cache can be stale.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use super::Served;
use super::exercise::Aligned;
use crate::common::{pattern, text};

const OLD_TIMES: &str = "the kernel shows the times that it has until it drops the inode";

/// An append to an append-only file changes its time. The kernel writes the time back later, when no caller may set it.
pub(crate) fn an_append_only_file_has_the_time_of_its_last_append() {
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    let path = served.path("log");
    let file = OpenOptions::new().create_new(true).append(true).open(&path).expect("create");
    let flags = rustix::fs::ioctl_getflags(&file).expect("flags");
    rustix::fs::ioctl_setflags(&file, flags | rustix::fs::IFlags::APPEND).expect("chattr +a");
    (&file).write_all(b"line").expect("append");
    file.sync_all().expect("sync");
    drop(file);
    let times = |path| {
        let stat = fs::metadata(path).expect("stat");
        (stat.len(), stat.mtime(), stat.mtime_nsec(), stat.ctime_nsec())
    };
    let before = times(&path);
    let served = served.again("");
    assert_eq!(times(&served.path("log")), before);
    served.must_end_clean();
}

fn set_flag(file: &fs::File, flag: rustix::fs::IFlags) {
    let flags = rustix::fs::ioctl_getflags(file).expect("flags");
    rustix::fs::ioctl_setflags(file, flags | flag).expect("chattr");
}

/// The kernel caches the times of files and ignores direct writes. The file had the times of the last cached write before `chattr +a`.
pub(crate) fn appends_to_an_append_only_file_change_its_times() {
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    let path = served.path("log");
    let times = || {
        let stat = fs::metadata(&path).expect("stat");
        ((stat.mtime(), stat.mtime_nsec()), (stat.ctime(), stat.ctime_nsec()))
    };
    fs::write(&path, "first,").expect("write");
    set_flag(&fs::File::open(&path).expect("open"), rustix::fs::IFlags::APPEND);
    let shows_times = super::has_kernel(6, 18, OLD_TIMES);
    for _ in 0..20 {
        let before = times();
        // Longer than a tick of the clock for timestamps.
        std::thread::sleep(Duration::from_millis(20));
        let mut log = OpenOptions::new().append(true).open(&path).expect("open");
        log.write_all(b"another,").expect("append");
        drop(log);
        if shows_times {
            // The kernel drops its data on a file that is not in use.
            Served::wait_until(|| {
                std::thread::sleep(Duration::from_millis(5));
                times().0 > before.0 && times().1 > before.1
            });
        }
    }
    let last = times();
    std::thread::sleep(Duration::from_millis(20));
    OpenOptions::new().append(true).open(&path).expect("open").write_all(b"last").expect("append");
    let served = served.again("");
    let stat = fs::metadata(served.path("log")).expect("stat");
    assert!((stat.mtime(), stat.mtime_nsec()) > last.0 && (stat.ctime(), stat.ctime_nsec()) > last.1);
    served.must_end_clean();
}

/// A part of an append was written, and the kernel had a smaller size of the file. It refused later appends as overwrites.
pub(crate) fn an_append_only_file_is_written_again_after_the_disk_was_full() {
    let Some(served) = Served::new("ext4", "32M", "") else { return };
    let path = served.path("log");
    let mut log = OpenOptions::new().create_new(true).append(true).open(&path).expect("create");
    set_flag(&log, rustix::fs::IFlags::APPEND);
    drop(std::mem::replace(&mut log, OpenOptions::new().append(true).open(&path).expect("open")));
    let filler = fs::File::create(served.path("filler")).expect("create");
    let free = rustix::fs::statvfs(served.at()).expect("statvfs");
    // The free space is half of one transfer.
    let len = free.f_bfree * free.f_frsize - (512 << 10);
    rustix::fs::fallocate(&filler, FallocateFlags::empty(), 0, len).expect("there is space");
    let data = pattern(1 << 20, 1);
    let (mut written, full) = (0, Errno::NOSPC.raw_os_error());
    let error = loop {
        match log.write(&data[written..]) {
            Ok(len) => written += len,
            Err(error) => break error,
        }
    };
    assert_eq!(error.raw_os_error(), Some(full));
    drop(filler);
    fs::remove_file(served.path("filler")).expect("remove");
    let start = Instant::now();
    while let Err(error) = log.write_all(b"after") {
        // The blocks of a removed file are free after a moment.
        assert_eq!(error.raw_os_error(), Some(full), "there is space again");
        assert!(start.elapsed() < Duration::from_secs(60));
    }
    drop(log);
    let served = served.again("");
    assert_eq!(fs::read(served.path("log")).expect("read"), [&data[..written], b"after"].concat());
    served.must_end_clean();
}

/// When a full disk ended the copy of a range, the result was smaller than the copied part, and the file was longer than expected. (The
/// kernel takes a failed direct write back.)
pub(crate) fn what_a_full_disk_takes_is_the_size() {
    let Some(served) = Served::new("ext4", "32M", "") else { return };
    let mut memory = Aligned::new(4 << 20);
    memory.bytes().copy_from_slice(&pattern(4 << 20, 1));
    let data: &[u8] = memory.bytes();
    fs::write(served.path("source"), data).expect("write");
    // Dirty pages of the kernel would take the space that is counted.
    fs::File::open(served.path("source")).expect("open").sync_all().expect("sync");
    let fill = |left: u64| {
        let filler = fs::File::create(served.path("filler")).expect("create");
        let free = rustix::fs::statvfs(served.at()).expect("statvfs");
        let len = free.f_bfree * free.f_frsize - left;
        rustix::fs::fallocate(&filler, FallocateFlags::empty(), 0, len).expect("there is space");
    };
    let free_before = rustix::fs::statvfs(served.at()).expect("statvfs").f_bfree;
    fill(1664 << 10);
    let direct =
        rustix::fs::open(served.path("direct"), OFlags::CREATE | OFlags::RDWR | OFlags::DIRECT, Mode::RUSR);
    let written = match rustix::io::pwrite(direct.expect("create"), data, 0) {
        Ok(written) => written as u64,
        Err(error) => {
            assert_eq!(error, Errno::NOSPC);
            0
        }
    };
    fs::remove_file(served.path("filler")).expect("remove");
    rustix::fs::syncfs(fs::File::open(served.at()).expect("open")).expect("syncfs");
    // The blocks of a removed file are free after a moment.
    Served::wait_until(|| rustix::fs::statvfs(served.at()).expect("statvfs").f_bfree > free_before / 2);
    fill(1664 << 10);
    let (source, copy) = (
        fs::File::open(served.path("source")).expect("open"),
        fs::File::create(served.path("copy")).expect("create"),
    );
    let copied = rustix::fs::copy_file_range(&source, None, &copy, None, data.len()).expect("a part") as u64;
    assert!(copied > 0 && copied < data.len() as u64, "{copied} bytes were copied");
    drop((source, copy));
    for (name, size) in [("direct", written), ("copy", copied)] {
        assert_eq!(fs::metadata(served.path(name)).expect("stat").len(), size, "{name}");
    }
    let served = served.again("");
    for (name, size) in [("direct", written), ("copy", copied)] {
        assert!(fs::read(served.path(name)).expect("read") == data[..size as usize], "{name}");
    }
    served.must_end_clean();
}

/// `chattr +S` and `chattr +D`: writes to such a file, and changes of names in such a directory, are durable.
pub(crate) fn changes_are_durable_where_flags_of_the_inode_say_so() {
    use rustix::fs::IFlags;
    let Some(served) = Served::new("ext4", "64M", "commit=300") else { return };
    fs::write(served.path("file"), "before").expect("write");
    for name in ["names", "names/removed", "names/moved", "all"] {
        fs::create_dir(served.path(name)).expect("mkdir");
    }
    let flags = [
        ("file", IFlags::from_bits_retain(8)),
        ("names", IFlags::DIRSYNC),
        ("all", IFlags::from_bits_retain(8)),
    ];
    for (name, flag) in flags {
        set_flag(&fs::File::open(served.path(name)).expect("open"), flag);
    }
    fs::File::open(served.at()).and_then(|root| root.sync_all()).expect("sync");
    let file = OpenOptions::new().write(true).open(served.path("file")).expect("open");
    file.write_all_at(&pattern(5000, 1), 0).expect("write");
    drop(file);
    let served = served.kill_and_again();
    assert_eq!(fs::read(served.path("file")).expect("read"), pattern(5000, 1), "chattr +S");
    fs::File::create(served.path("names/made")).expect("create");
    fs::rename(served.path("names/moved"), served.path("names/here")).expect("rename");
    fs::remove_dir(served.path("names/removed")).expect("rmdir");
    let served = served.kill_and_again();
    let names = |directory: &str| {
        let entries = fs::read_dir(served.path(directory)).expect("list");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("entry").file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names("names"), ["here", "made"], "chattr +D");
    // As in ext4, new files in the directory have the flag.
    fs::write(served.path("all/made"), pattern(5000, 2)).expect("write");
    let served = served.kill_and_again();
    assert_eq!(fs::read(served.path("all/made")).expect("read"), pattern(5000, 2), "made in chattr +S");
    rustix::fs::setxattr(served.path("file"), "user.name", b"value", rustix::fs::XattrFlags::empty())
        .expect("setxattr");
    let served = served.kill_and_again();
    let mut value = [0; 8];
    assert_eq!(rustix::fs::getxattr(served.path("file"), "user.name", &mut value), Ok(5), "chattr +S");
    served.must_end_clean();
}

/// Inodes of 128 bytes have whole seconds. `stat` showed fractions until the inode was read again.
pub(crate) fn times_have_the_parts_of_seconds_that_inodes_have() {
    let Some(served) = Served::new("ext4 --inode-size 128", "64M", "") else { return };
    let path = served.path("file");
    let time = |path| fs::metadata(path).map(|stat| (stat.mtime(), stat.mtime_nsec())).expect("stat");
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(20));
        fs::write(&path, "content").expect("write");
        assert_eq!(time(&path).1, 0);
    }
    let before = time(&path);
    let served = served.again("");
    assert_eq!(time(&served.path("file")), before);
    served.must_end_clean();
}

/// The kernel caches times. It showed old times after `chattr`, after `truncate` to the same size, and for times that no inode can hold.
pub(crate) fn times_that_the_kernel_does_not_know_are_shown() {
    const FIRST: i64 = -1 << 31;
    if !super::has_kernel(6, 18, OLD_TIMES) {
        return;
    }
    for (kind, last) in [("ext4", FIRST + (1 << 34) - 1), ("ext4 --inode-size 128", i64::from(i32::MAX))] {
        let Some(served) = Served::new(kind, "64M", "") else { return };
        let path = served.path("file");
        fs::write(&path, "content").expect("write");
        let times = |path| {
            let stat = fs::metadata(path).expect("stat");
            ((stat.mtime(), stat.mtime_nsec()), (stat.ctime(), stat.ctime_nsec()))
        };
        let open = || OpenOptions::new().write(true).open(&path).expect("open");
        // One tick of the clock of inodes with whole seconds.
        let pause = || std::thread::sleep(Duration::from_millis(1010));
        let wait_until = |condition: &dyn Fn() -> bool| {
            Served::wait_until(|| {
                std::thread::sleep(Duration::from_millis(5));
                condition()
            });
        };
        let before = times(&path);
        pause();
        set_flag(&open(), rustix::fs::IFlags::NODUMP);
        wait_until(&|| times(&path).1 > before.1);
        assert_eq!(times(&path).0, before.0, "chattr changes no content");
        let before = times(&path);
        pause();
        open().set_len(7).expect("truncate");
        wait_until(&|| times(&path).0 > before.0 && times(&path).1 > before.1);
        for (set, stored) in [(FIRST - 1, FIRST), (FIRST, FIRST), (last, last), (last + 1, last)] {
            let time = rustix::fs::Timespec { tv_sec: set, tv_nsec: 999_999_999 };
            let times_set = rustix::fs::Timestamps { last_access: time, last_modification: time };
            rustix::fs::futimens(open(), &times_set).expect("set");
            wait_until(&|| times(&path).0 == (stored, 0));
        }
        let before = times(&path);
        let served = served.again("");
        assert_eq!(times(&served.path("file")), before);
        served.must_end_clean();
    }
}

/// `-o nodiratime` had no effect.
pub(crate) fn reads_of_directories_record_no_time_where_that_is_not_wanted() {
    let Some(mut served) = Served::new("ext4", "64M", "strictatime,nodiratime") else { return };
    fs::create_dir(served.path("directory")).expect("mkdir");
    fs::write(served.path("directory/file"), "content").expect("write");
    for (options, of_directory) in [("strictatime,diratime", false), ("", true)] {
        let accessed = |name: &str| {
            let stat = fs::metadata(served.path(name)).expect("stat");
            (stat.atime(), stat.atime_nsec())
        };
        let before = ["directory", "directory/file"].map(accessed);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(fs::read_dir(served.path("directory")).expect("list").count(), 1);
        fs::read(served.path("directory/file")).expect("read");
        // The kernel caches attributes until the next mount.
        served = served.again(options);
        let accessed = |name: &str| {
            let stat = fs::metadata(served.path(name)).expect("stat");
            (stat.atime(), stat.atime_nsec())
        };
        assert!(accessed("directory/file") > before[1]);
        assert_eq!(accessed("directory") > before[0], of_directory);
    }
    served.must_end_clean();
}

/// The kernel does not know this flag: writes through an appending handle overwrote data. A handle that was open for writing before still
/// writes, and its cached data can come through the other handle.
pub(crate) fn an_append_only_file_keeps_what_it_has() {
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    let path = served.path("log");
    let before = OpenOptions::new().create_new(true).read(true).append(true).open(&path).expect("create");
    (&before).write_all(b"line one,").expect("append");
    set_flag(&before, rustix::fs::IFlags::APPEND);
    let mut expected = b"line one,".to_vec();
    let after = OpenOptions::new().read(true).append(true).open(&path).expect("open");
    for n in 0..20 {
        for (file, word) in [(&before, format!("before {n},")), (&after, format!("after {n},"))] {
            (&*file).write_all(word.as_bytes()).expect("append");
            expected.extend_from_slice(word.as_bytes());
        }
    }
    rustix::fs::fcntl_setfl(&after, OFlags::empty()).expect("F_SETFL");
    let refused = after.write_all_at(b"XXXX", 0).expect_err("overwritten");
    assert_eq!(refused.raw_os_error(), Some(Errno::PERM.raw_os_error()));
    for mode in [FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, FallocateFlags::ZERO_RANGE] {
        for file in [&before, &after] {
            assert_eq!(rustix::fs::fallocate(file, mode, 0, 4), Err(Errno::PERM), "{mode:?}");
        }
    }
    before.sync_all().expect("sync");
    after.sync_all().expect("sync");
    drop((before, after));
    assert_eq!(text(&fs::read(&path).expect("read")), text(&expected));
    let served = served.again("");
    assert_eq!(text(&fs::read(served.path("log")).expect("read")), text(&expected));
    served.must_end_clean();
}

/// Cached data of the kernel and the daemon was refused at writeback. The content was zeros.
pub(crate) fn what_was_written_before_a_file_became_immutable_is_kept() {
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    for len in [9, 100_000] {
        let (path, data) = (served.path(&format!("closed-{len}")), pattern(len, 4));
        fs::write(&path, &data).expect("write");
        set_flag(&fs::File::open(&path).expect("open"), rustix::fs::IFlags::IMMUTABLE);
        let path = served.path(&format!("open-{len}"));
        let file = OpenOptions::new().create_new(true).write(true).open(&path).expect("create");
        (&file).write_all(&data).expect("write");
        set_flag(&file, rustix::fs::IFlags::IMMUTABLE);
        file.sync_all().expect("sync");
        assert_eq!(file.set_len(1).map_err(|error| error.raw_os_error()), Err(Some(1)), "EPERM");
        let opened = OpenOptions::new().write(true).open(&path).map(drop);
        assert_eq!(opened.map_err(|error| error.raw_os_error()), Err(Some(1)), "EPERM");
    }
    let served = served.again("");
    for len in [9, 100_000] {
        for name in ["closed", "open"] {
            let content = fs::read(served.path(&format!("{name}-{len}"))).expect("read");
            assert!(content == pattern(len, 4), "{name}-{len}");
        }
    }
    served.must_end_clean();
}

/// A truncated file and a punched hole had their old content after a crash.
pub(crate) fn what_is_taken_away_stays_away_on_a_synchronous_mount() {
    let Some(served) = Served::new("ext4", "64M", "sync,commit=300") else { return };
    let data = pattern(100_000, 1);
    for name in ["emptied", "punched"] {
        fs::write(served.path(name), &data).expect("write");
    }
    drop(fs::File::create(served.path("emptied")).expect("open"));
    let punched = OpenOptions::new().write(true).open(served.path("punched")).expect("open");
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&punched, mode, 0, 40_960).expect("a hole");
    drop(punched);
    let served = served.kill_and_again();
    assert_eq!(fs::metadata(served.path("emptied")).expect("stat").len(), 0);
    let read = fs::read(served.path("punched")).expect("read");
    assert!(read[..40_960].iter().all(|byte| *byte == 0) && read[40_960..] == data[40_960..]);
    served.must_end_clean();
}

/// The kernel caches permission bits. After a call that cleared set-user-ID and failed, or emptied the file, the next content was executed
/// with the rights of the owner.
pub(crate) fn set_user_id_that_a_call_takes_is_gone_at_once() {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    for options in ["allow_other", "allow_other,direct", "allow_other,sync"] {
        let Some(served) = Served::new("ext4", "64M", options) else { return };
        served.open_to_all();
        let path = served.path("program");
        fs::write(&path, "the program").expect("write");
        // The mode of the kernel's cache: no other attribute is requested.
        let mode = || statx(CWD, &path, AtFlags::empty(), StatxFlags::MODE).expect("statx").stx_mode & 0o7777;
        let write_too_far = || {
            let file = OpenOptions::new().write(true).open(&path).expect("open");
            let refused = file.write_all_at(b"x", 1 << 60).map_err(|error| error.raw_os_error());
            assert_eq!(refused, Err(Some(Errno::FBIG.raw_os_error())));
        };
        let empty = || drop(fs::File::create(&path).expect("open"));
        let calls: [(&str, &(dyn Fn() + Sync)); 2] = [("write", &write_too_far), ("open", &empty)];
        for (name, call) in calls {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).expect("chmod");
            assert_eq!(mode(), 0o6777);
            std::thread::scope(|scope| {
                let as_nobody = || {
                    rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(65_534)).expect("setuid");
                    call();
                };
                scope.spawn(as_nobody).join().expect("the call");
            });
            assert_eq!(mode(), 0o777, "{name}, mounted with {options}");
        }
        served.must_end_clean();
    }
}

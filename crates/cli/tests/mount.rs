//! A mounted volume: what programs do on it, beside the kernel's own ext4 and by themselves.
//!
//! The tests need root and `/dev/fuse`. They are a program of their own: a program that another thread starts has, for a moment, the open files of all, and
//! a mount with open files cannot be unmounted.
#![allow(clippy::disallowed_methods, reason = "files of a mount")]

#[path = "it/common/mod.rs"]
mod common;
#[path = "mount/mod.rs"]
mod mount;

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Mounted, pattern, text};
use mount::appends::{
    a_kill_in_an_append_leaves_no_hole, a_reader_sees_no_gap_in_an_append_that_is_under_way,
    a_size_that_a_file_cannot_have_is_gone_after_the_close,
    an_allocation_has_its_time_without_the_kernels_cache,
    an_allocation_that_fails_leaves_the_size_and_gives_back_blocks, an_append_without_space_leaves_no_hole,
};
use mount::blocks::blocks_of_preallocated_files_are_those_of_the_kernels_ext4;
use mount::flags::{
    an_append_only_file_has_the_time_of_its_last_append,
    an_append_only_file_is_written_again_after_the_disk_was_full, an_append_only_file_keeps_what_it_has,
    appends_to_an_append_only_file_change_its_times, changes_are_durable_where_flags_of_the_inode_say_so,
    reads_of_directories_record_no_time_where_that_is_not_wanted,
    set_user_id_that_a_call_takes_is_gone_at_once, times_have_the_parts_of_seconds_that_inodes_have,
    times_that_the_kernel_does_not_know_are_shown, what_a_full_disk_takes_is_the_size,
    what_is_taken_away_stays_away_on_a_synchronous_mount,
    what_was_written_before_a_file_became_immutable_is_kept,
};
use mount::habits::{
    handles_of_files_outlive_the_mount, locks_hold_between_programs, the_status_names_the_transport,
};
use mount::interrupts::{
    a_handled_signal_ends_a_copy_and_no_allocation, a_program_that_is_killed_in_a_long_request_ends,
};
use mount::kernel_cache::{
    a_read_sees_an_asynchronous_direct_write, a_read_sees_many_asynchronous_direct_writes,
    a_read_sees_what_a_loop_device_has_written,
};
use mount::killed::a_daemon_that_is_killed_while_it_unmounts_ends;
use mount::names::names_are_those_of_the_volume_after_a_late_failure;
use mount::namespaces::a_signal_after_a_lazy_unmount_ends_the_daemon;
use mount::{Served, Transport, User};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

const NOBODY: u32 = 65_534;
const NO_DIRECT_MAPPING: &str = "files of mounts with -o direct cannot be mapped";

/// Each of these over `/dev/fuse` and over `io_uring`.
macro_rules! over_both_transports {
    ($($name:ident,)*) => {
        mod over_dev_fuse {
            $(#[test] fn $name() { super::Served::over(super::Transport::DevFuse, super::$name); })*
        }
        mod over_io_uring {
            $(#[test] fn $name() { super::Served::over(super::Transport::IoUring, super::$name); })*
        }
    };
}

over_both_transports! {
    what_is_written_is_there_after_the_next_mount,
    open_files_outlive_their_names,
    a_full_volume_is_reported_to_the_write_or_the_sync,
    what_was_synced_survives_a_killed_daemon,
    synchronous_writes_that_no_sync_follows_survive_a_killed_daemon,
    data_that_is_not_written_back_is_no_hole,
    data_that_was_stored_through_a_mapping_is_no_hole,
    many_look_for_data_at_once,
    users_are_kept_apart,
    times_are_those_of_the_calls,
    the_one_who_mounted_executes_programs_alone,
    an_access_list_changes_permission_bits,
    an_append_only_file_has_the_time_of_its_last_append,
    an_append_only_file_keeps_what_it_has,
    appends_to_an_append_only_file_change_its_times,
    an_append_only_file_is_written_again_after_the_disk_was_full,
    what_a_full_disk_takes_is_the_size,
    changes_are_durable_where_flags_of_the_inode_say_so,
    times_have_the_parts_of_seconds_that_inodes_have,
    times_that_the_kernel_does_not_know_are_shown,
    reads_of_directories_record_no_time_where_that_is_not_wanted,
    what_was_written_before_a_file_became_immutable_is_kept,
    what_is_taken_away_stays_away_on_a_synchronous_mount,
    set_user_id_that_a_call_takes_is_gone_at_once,
    a_range_that_is_copied_takes_privileges,
    generations_are_shown,
    handles_of_files_outlive_the_mount,
    locks_hold_between_programs,
    the_status_names_the_transport,
    a_listing_that_begins_after_a_change_shows_it,
    what_cannot_be_mounted_is_an_error,
    a_signal_unmounts_and_open_files_go_on,
    further_signals_lose_nothing,
    a_signal_after_a_lazy_unmount_ends_the_daemon,
    a_read_sees_an_asynchronous_direct_write,
    a_read_sees_many_asynchronous_direct_writes,
    a_read_sees_what_a_loop_device_has_written,
    a_daemon_that_is_killed_while_it_unmounts_ends,
    a_program_that_is_killed_in_a_long_request_ends,
    a_handled_signal_ends_a_copy_and_no_allocation,
    names_are_those_of_the_volume_after_a_late_failure,
    all_ways_to_a_file_show_the_same_bytes,
    calls_end_as_on_the_kernels_ext4,
    calls_of_users_end_as_on_the_kernels_ext4,
    blocks_and_access_times_are_told_of_open_files,
    blocks_of_preallocated_files_are_those_of_the_kernels_ext4,
    a_reader_sees_no_gap_in_an_append_that_is_under_way,
    a_kill_in_an_append_leaves_no_hole,
    an_append_without_space_leaves_no_hole,
    an_allocation_that_fails_leaves_the_size_and_gives_back_blocks,
    a_size_that_a_file_cannot_have_is_gone_after_the_close,
    an_allocation_has_its_time_without_the_kernels_cache,
}

/// Content goes in and comes out, the volume is closed when `umount` returns, and nothing of it is left on the host.
fn what_is_written_is_there_after_the_next_mount() {
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    let data = pattern(5_000_000, 1);
    fs::write(served.path("file"), &data).expect("write");
    fs::create_dir(served.path("directory")).expect("mkdir");
    std::os::unix::fs::symlink("../file", served.path("directory/link")).expect("symlink");
    assert_eq!(fs::read(served.path("directory/link")).expect("read"), data);
    let served = served.again("");
    assert_eq!(fs::read(served.path("file")).expect("read"), data);
    let names: Vec<_> =
        fs::read_dir(served.at()).expect("list").map(|entry| entry.expect("entry").file_name()).collect();
    assert_eq!(names.len(), 3);
    served.must_end_clean();
}

/// A file that has lost its name is used until it is closed; one that never had one can be given one.
fn open_files_outlive_their_names() {
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    let path = served.path("file");
    let file = OpenOptions::new().create_new(true).read(true).write(true).open(&path).expect("create");
    file.write_all_at(b"before", 0).expect("write");
    fs::remove_file(&path).expect("remove");
    file.write_all_at(b"after!", 6).expect("write");
    file.sync_all().expect("sync");
    let mut read = [0; 12];
    file.read_exact_at(&mut read, 0).expect("read");
    assert_eq!((&read, file.metadata().expect("stat").nlink()), (b"beforeafter!", 0));

    let directory = served.path("directory");
    fs::create_dir(&directory).expect("mkdir");
    let held = rustix::fs::open(&directory, OFlags::DIRECTORY | OFlags::PATH, Mode::empty()).expect("open");
    fs::remove_dir(&directory).expect("rmdir");
    let made = rustix::fs::openat(&held, "x", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR);
    assert_eq!(made.err(), Some(Errno::NOENT));

    drop((file, held));
    if !mount::has_kernel(6, 2, "FUSE has no O_TMPFILE") {
        return served.must_end_clean();
    }
    let nameless =
        rustix::fs::open(served.at(), OFlags::TMPFILE | OFlags::RDWR, Mode::from(0o666)).expect("open");
    rustix::io::write(&nameless, b"given a name").expect("write");
    let by_descriptor = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&nameless));
    rustix::fs::linkat(CWD, by_descriptor, CWD, served.path("named"), AtFlags::SYMLINK_FOLLOW).expect("link");
    drop(nameless);
    let served = served.again("");
    assert_eq!(fs::read(served.path("named")).expect("read"), b"given a name");
    served.must_end_clean();
}

/// With a write-back cache in the kernel a full disk is met late: the write or the sync says so, never neither.
fn a_full_volume_is_reported_to_the_write_or_the_sync() {
    let Some(served) = Served::new("ext4", "32M", "") else { return };
    let mut file = fs::File::create(served.path("large")).expect("create");
    let written = file.write_all(&vec![7; 48 << 20]).and_then(|()| file.sync_all());
    assert_eq!(written.expect_err("there is no space").raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    let direct =
        rustix::fs::open(served.path("direct"), OFlags::CREATE | OFlags::RDWR | OFlags::DIRECT, Mode::RUSR);
    let zero_range = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::fs::fallocate(&file, zero_range, 0, 1 << 30), Err(Errno::NOSPC));
    drop((file, direct.expect("open")));
    fs::remove_file(served.path("large")).expect("remove");
    fs::write(served.path("small"), pattern(1 << 20, 2)).expect("there is space again");
    served.must_end_clean();
}

/// `fstrim` makes holes in the image where the volume is free; `diorite trim` does the same without a mount. Other users may not.
#[test]
fn free_space_is_trimmed() {
    let Some(served) = Served::new("ext4", "256M", "allow_other") else { return };
    let allocated =
        |served: &Served| fs::metadata(served.bench().path("a.img")).expect("stat").blocks() * 512;
    fs::write(served.path("large"), vec![7; 100 << 20]).expect("write");
    fs::write(served.path("kept"), pattern(1 << 20, 1)).expect("write");
    rustix::fs::syncfs(fs::File::open(served.at()).expect("open")).expect("syncfs");
    let free = |served: &Served| {
        let volume = rustix::fs::statvfs(served.at()).expect("statvfs");
        volume.f_bfree * volume.f_frsize
    };
    let wanted = free(&served) + (100 << 20);
    fs::remove_file(served.path("large")).expect("remove");
    // The kernel forgets the file by a request of its own, for which nothing waits.
    let start = Instant::now();
    while free(&served) < wanted {
        assert!(start.elapsed() < Duration::from_secs(60), "a removed file keeps its blocks");
        std::thread::sleep(Duration::from_millis(1));
    }
    rustix::fs::syncfs(fs::File::open(served.at()).expect("open")).expect("syncfs");
    let before = allocated(&served);
    served.open_to_all();
    let mut fstrim = Command::new("fstrim");
    fstrim.arg(served.at());
    let refused = Command::new("fstrim").arg(served.at()).uid(NOBODY).gid(NOBODY).output().expect("fstrim");
    assert!(text(&refused.stderr).contains("not permitted"), "{}", text(&refused.stderr));
    let output = fstrim.arg("-v").output().expect("fstrim");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(allocated(&served) + (90 << 20) < before, "{before} before, {} after", allocated(&served));
    let served = served.again("");
    assert_eq!(fs::read(served.path("kept")).expect("read"), pattern(1 << 20, 1));
    let bench = served.bench();
    bench.image("b.img", "ext4", "64M");
    let said = bench.run("trim b.img");
    assert!(said.contains("of free space discarded"), "{said}");
    bench.must_be_clean("b.img");
    served.must_end_clean();
}

/// The last blocks are for the superuser and for whom `tune2fs` names: by each caller's right, in one mount, cached and direct.
#[test]
fn reserved_blocks_are_for_those_who_may_use_them() {
    let Some(served) = Served::new("ext4", "64M", "allow_other") else { return };
    served.open_to_all();
    fs::set_permissions(served.at(), fs::Permissions::from_mode(0o777)).expect("chmod");
    let fill = |name: &str, user: u32, flags: &str| {
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/zero", &format!("of={name}"), "bs=64k", flags]).current_dir(served.at());
        let output = dd.uid(user).gid(user).output().expect("dd");
        assert!(text(&output.stderr).contains("No space left"), "{}", text(&output.stderr));
    };
    let available = || {
        let space = rustix::fs::statvfs(served.at()).expect("statfs");
        (space.f_bavail, space.f_bfree)
    };
    let reserved = available().1 - available().0;
    assert!(reserved > 500);
    for flags in ["oflag=direct", "conv=fsync"] {
        fill("nobodys", NOBODY, flags);
        let left = available().1;
        assert!(
            (reserved..reserved + 32).contains(&left),
            "{flags}: {left} blocks are left, {reserved} reserved"
        );
        fill("roots", 0, flags);
        assert!(available().1 < 32, "{flags}: {} blocks are left", available().1);
        fs::remove_file(served.path("roots")).expect("remove");
        fs::remove_file(served.path("nobodys")).expect("remove");
    }
    // Directories are made of blocks, too.
    fill("nobodys", NOBODY, "oflag=direct");
    let script = "i=0; while mkdir d$i 2>/dev/null && [ $i -lt 1000 ]; do i=$((i+1)); done; [ $i -lt 1000 ]";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).uid(NOBODY).gid(NOBODY).current_dir(served.at());
    assert!(shell.status().expect("a shell").success(), "directories of others take what is reserved");
    assert!(available().1 >= reserved);
    fs::create_dir(served.path("roots")).expect("mkdir by root");
    served.must_end_clean();
}

/// `sync`, `syncfs` and `fsync` wait for the daemon; a daemon that is killed afterwards has lost nothing, and the journal is replayed.
fn what_was_synced_survives_a_killed_daemon() {
    survives_a_killed_daemon(|options| Served::new("ext4", "64M", options));
    survives_a_killed_daemon(Served::striped);
    survives_a_killed_daemon(mount::on_nbd);
}

fn survives_a_killed_daemon(new: fn(&str) -> Option<Served>) {
    for how in ["sync", "syncfs", "fsync"] {
        if how != "fsync" && !mount::has_kernel(6, 18, &format!("{how} does not wait for fuseblk")) {
            continue;
        }
        let Some(served) = new("commit=300") else { return };
        let name = |index: u64| served.path(&format!("file{index}"));
        for index in 0..20 {
            fs::write(name(index), pattern(index as usize * 5000, index)).expect("write");
        }
        let root = fs::File::open(served.at()).expect("open");
        match how {
            "sync" => rustix::fs::sync(),
            "syncfs" => rustix::fs::syncfs(&root).expect("syncfs"),
            _ => {
                (0..20)
                    .for_each(|index| fs::File::open(name(index)).expect("open").sync_all().expect("fsync"));
                root.sync_all().expect("fsync");
            }
        }
        drop(root);
        fs::write(served.path("unsynced"), pattern(100_000, 3)).expect("write");
        let served = served.kill_and_again();
        for index in 0..20 {
            let path = served.path(&format!("file{index}"));
            assert_eq!(
                fs::read(path).expect("read"),
                pattern(index as usize * 5000, index),
                "{how}: file{index}"
            );
        }
        served.must_end_clean();
    }
}

/// The kernel syncs after no write to a file that it does not cache, whatever the file was opened with.
fn synchronous_writes_that_no_sync_follows_survive_a_killed_daemon() {
    const O_DSYNC: i32 = 0o10_000;
    const O_SYNC: i32 = 0o4_010_000;
    for flag in [O_DSYNC, O_SYNC] {
        let Some(served) = Served::new("ext4", "64M", "direct,commit=300") else { return };
        let path = served.path("file");
        let open = OpenOptions::new().create_new(true).write(true).custom_flags(flag).open(path);
        open.and_then(|file| file.write_all_at(&pattern(5000, 1), 0)).expect("write");
        let served = served.kill_and_again();
        assert_eq!(fs::read(served.path("file")).expect("read"), pattern(5000, 1), "{flag:o}, -o direct");
        served.must_end_clean();

        let Some(served) = Served::new("ext4", "64M", "commit=300") else { return };
        let path = served.path("log");
        fs::write(&path, b"").expect("create");
        let changed = Command::new("chattr").arg("+a").arg(&path).status().expect("chattr");
        assert!(changed.success());
        let mut log = OpenOptions::new().append(true).custom_flags(flag).open(&path).expect("open");
        log.write_all(&pattern(5000, 2)).expect("append");
        drop(log);
        let served = served.kill_and_again();
        assert_eq!(fs::read(served.path("log")).expect("read"), pattern(5000, 2), "{flag:o}, append-only");
        served.must_end_clean();
    }
}

/// Data that is in the kernel's cache alone is no hole: `cp` would have left it out.
fn data_that_is_not_written_back_is_no_hole() {
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    let file = OpenOptions::new()
        .create_new(true)
        .read(true)
        .write(true)
        .open(served.path("sparse"))
        .expect("create");
    file.set_len(4 << 20).expect("size");
    file.write_all_at(&[1; 8192], 1 << 20).expect("write");
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(0)), Ok(1 << 20));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(1 << 20)), Ok((1 << 20) + 8192));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(2 << 20)), Err(Errno::NXIO));
    drop(file);
    served.must_end_clean();
}

/// The same of what was stored through a mapping, where nothing else stays in the kernel's cache.
fn data_that_was_stored_through_a_mapping_is_no_hole() {
    for options in ["direct", "sync"] {
        if options == "direct" && !mount::has_kernel(6, 6, NO_DIRECT_MAPPING) {
            continue;
        }
        let Some(served) = Served::new("ext4", "64M", options) else { return };
        let path = served.path("sparse");
        let file = OpenOptions::new().create_new(true).read(true).write(true).open(&path).expect("create");
        file.set_len(4 << 20).expect("size");
        mount::exercise::store_mapped(&file, 1 << 20, || {
            assert_ne!(fs::metadata(&path).expect("stat").blocks(), 0, "{options}");
            assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(0)), Ok(1 << 20), "{options}");
        });
        drop(file);
        served.must_end_clean();
    }
}

/// The kernel keeps attributes, and does not count the blocks of what it caches: a file without any would be a hole to `tar -S`.
/// `stat -c %x` asks for the access time alone.
fn blocks_and_access_times_are_told_of_open_files() {
    use rustix::fs::{StatxFlags, statx};
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    let blocks = |name: &str| fs::metadata(served.path(name)).expect("stat").blocks();
    let accessed = |name: &str| {
        let time =
            statx(CWD, served.path(name), AtFlags::empty(), StatxFlags::ATIME).expect("statx").stx_atime;
        (time.tv_sec, time.tv_nsec)
    };
    fs::write(served.path("empty"), "").expect("write");
    Served::wait_until(|| blocks("empty") == 0);
    for name in ["new", "empty"] {
        let mut file = OpenOptions::new().create(true).append(true).open(served.path(name)).expect("open");
        file.write_all(&pattern(300_000, 1)).expect("write");
        assert!(blocks(name) > 0, "{name}: a hole, before it is written back");
        file.sync_all().expect("sync");
        Served::wait_until(|| blocks(name) * 512 >= 300_000);
    }
    let before = accessed("new");
    assert_eq!(fs::read(served.path("new")).expect("read").len(), 300_000);
    assert!(accessed("new") > before, "the first read after a change");
    let first = accessed("new");
    fs::read(served.path("new")).expect("read");
    assert_eq!(accessed("new"), first, "and no other");
    std::os::unix::fs::symlink("new", served.path("link")).expect("symlink");
    let served = served.again("strictatime");
    let accessed = || fs::symlink_metadata(served.path("link")).map(|stat| (stat.atime(), stat.atime_nsec()));
    let before = accessed().expect("stat");
    fs::read_link(served.path("link")).expect("readlink");
    assert!(accessed().expect("stat") > before);
    served.must_end_clean();
}

/// Who looks for data waits until the kernel has written back what it caches, by requests: however many wait, those are served.
fn many_look_for_data_at_once() {
    const PROGRAMS: usize = 80;
    let Some(served) = Served::new("ext4", "128M", "") else { return };
    let (at, together) = (&served.at(), &std::sync::Barrier::new(PROGRAMS));
    let look = |index: usize| {
        let file = OpenOptions::new().create_new(true).write(true).open(at.join(format!("file{index}")));
        let file = file.expect("create");
        for round in 0..3 {
            file.write_all_at(&vec![round; 1 << 20], 1 << 20).expect("write");
            together.wait();
            assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(1)), Ok(1 << 20));
        }
    };
    std::thread::scope(|scope| {
        for index in 0..PROGRAMS {
            scope.spawn(move || look(index));
        }
    });
    if !Served::is_over_io_uring() {
        // The daemon added threads for the waiting ones and kept them.
        Served::wait_until(|| {
            fs::read_dir(at).expect("list");
            served.threads() <= 40
        });
    }
    served.must_end_clean();
}

/// Permission bits apply between users. A write by another user clears set-user-ID, which `stat` shows at once.
fn users_are_kept_apart() {
    let Some(served) = Served::new("ext4", "64M", "allow_other") else { return };
    served.open_to_all();
    let as_nobody = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).uid(NOBODY).gid(NOBODY).current_dir(served.at());
        let output = shell.output().expect("a shell");
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    fs::set_permissions(served.at(), fs::Permissions::from_mode(0o1777)).expect("chmod");
    fs::create_dir(served.path("private")).expect("mkdir");
    fs::set_permissions(served.path("private"), fs::Permissions::from_mode(0o700)).expect("chmod");
    fs::write(served.path("private/secret"), "s").expect("write");
    fs::write(served.path("secret"), "s").expect("write");
    fs::set_permissions(served.path("secret"), fs::Permissions::from_mode(0o600)).expect("chmod");
    for forbidden in [
        "cat secret",
        "cat private/secret",
        "ls private",
        "rm -f secret",
        "mv secret stolen",
        "ln secret link",
        "chmod 777 secret",
    ] {
        assert!(!as_nobody(forbidden).0, "{forbidden}");
    }
    assert!(as_nobody("umask 027 && echo own > own && mkdir own.d").0);
    let own = fs::metadata(served.path("own")).expect("stat");
    assert_eq!((own.uid(), own.mode() & 0o7777), (NOBODY, 0o640));
    fs::set_permissions(served.path("own"), fs::Permissions::from_mode(0o6755)).expect("chmod");
    assert!(as_nobody("echo more >> own").0);
    assert_eq!(fs::metadata(served.path("own")).expect("stat").mode() & 0o7777, 0o755);
    assert!(as_nobody("chattr +A own").0);
    assert!(!as_nobody("chattr +j own").0, "all its data would go through the log");
    served.must_end_clean();
}

/// An unprivileged user mounts an image with `fusermount3`. Only that user sees its files, and has all rights unless permissions are
/// checked.
#[test]
fn a_user_without_rights_mounts_an_image() {
    // All users can open `/dev/fuse` in this namespace, as with the system's rules.
    const SCRIPT: &str = r#"
        mount -t tmpfs none /mnt && mknod -m 666 /mnt/fuse c 10 229 && mount --bind /mnt/fuse /dev/fuse
        user() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
        chmod 755 . && chown 65534:65534 a.img at
        unmount() { user ./diorite umount at; until user ./diorite info a.img > info; do :; done; }
        user ./diorite mount a.img at
        user sh -ec 'cd at; cp /bin/ls a; cmp a /bin/ls; mkdir d; mv a d; chmod 600 d/a; ln -s d/a s; sync d/a; echo x > x; chown 0 x'
        ! ls at || exit 1
        ! user ./diorite mount a.img at || exit 2
        unmount
        user ./diorite mount -o default_permissions a.img at
        user sh -ec 'cd at; cmp d/a /bin/ls; ! chown 0 d/a || exit 3; ! chmod 777 x || exit 4; rm x'
        unmount
        user ./diorite cat a.img:/d/a | cmp - /bin/ls"#;
    if !common::is_root("another user's mount") {
        return;
    }
    let _alone = mount::alone();
    let bench = common::Bench::new();
    bench.image("a.img", "ext4", "32M");
    fs::create_dir(bench.path("at")).expect("mkdir");
    let owner =
        "debugfs -w -R 'sif <2> uid 65534' a.img 2> log; cp $DIORITE diorite; chmod 755 diorite; exec 2> log";
    let Some(output) = common::tool("setpriv", ["--version"]) else { return };
    assert!(output.status.success());
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "sh", "-exc", &format!("{owner}; {SCRIPT}")]);
    shell.env("DIORITE", env!("CARGO_BIN_EXE_diorite")).current_dir(bench.path("."));
    let status = shell.status().expect("unshare");
    assert!(status.success(), "{}", text(&bench.read("log")));
    bench.must_be_clean("a.img");
}

/// Without `allow_other` permissions are not checked, but a file that no user may execute is no program.
fn the_one_who_mounted_executes_programs_alone() {
    use rustix::fs::{Access, access};
    use rustix::io::Errno;
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    let file = served.path("file");
    fs::write(&file, "#!/bin/sh\n").expect("write");
    for (mode, program) in [(0o644, Err(Errno::ACCESS)), (0o001, Ok(())), (0, Err(Errno::ACCESS))] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("chmod");
        assert_eq!(access(&file, Access::READ_OK | Access::WRITE_OK), Ok(()));
        assert_eq!(access(&file, Access::EXEC_OK), program, "{mode:o}");
        assert_eq!(Command::new(&file).status().is_ok(), program.is_ok(), "{mode:o}");
    }
    assert_eq!(access(served.at(), Access::EXEC_OK), Ok(()));
    served.must_end_clean();
}

/// The group's bits are the mask of the access control list at once, with any kernel.
fn an_access_list_changes_permission_bits() {
    for options in ["", "default_permissions"] {
        let Some(served) = Served::new("ext4", "64M", options) else { return };
        let file = served.path("file");
        fs::write(&file, "x").expect("write");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("chmod");
        let list = ["-m".as_ref(), "u:1000:rwx".as_ref(), file.as_os_str()];
        let Some(set) = common::tool("setfacl", list) else { return };
        assert!(set.status.success(), "{}", text(&set.stderr));
        assert_eq!(fs::metadata(&file).expect("stat").mode() & 0o777, 0o670, "with `{options}`");
        served.must_end_clean();
    }
}

/// A file has the time of the call, not of the writeback. The next mount shows the same time.
fn times_are_those_of_the_calls() {
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    let path = served.path("file");
    fs::write(&path, pattern(20_000, 1)).expect("write");
    let old =
        fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000));
    OpenOptions::new().write(true).open(&path).expect("open").set_times(old).expect("times");
    fs::write(served.path("other"), pattern(200_000, 1)).expect("write");
    let times = |served: &Served| {
        let of = |name: &str| {
            let stat = fs::metadata(served.path(name)).expect("stat");
            (stat.mtime(), stat.mtime_nsec(), stat.ctime(), stat.ctime_nsec())
        };
        (of("file"), of("other"))
    };
    let before = times(&served);
    assert_eq!(before.0.0, 1_000_000);
    let served = served.again("");
    assert_eq!(times(&served), before);
    served.must_end_clean();
}

/// `copy_file_range` kept set-user-ID and set-group-ID on the program of another user.
fn a_range_that_is_copied_takes_privileges() {
    let Some(served) = Served::new("ext4", "64M", "allow_other") else { return };
    fs::write(served.path("source"), "other content").expect("write");
    fs::write(served.path("program"), "the program").expect("write");
    let permissions = |mode| fs::set_permissions(served.path("program"), fs::Permissions::from_mode(mode));
    permissions(0o6777).expect("chmod");
    let mode = || fs::metadata(served.path("program")).expect("stat").mode() & 0o7777;
    let source = fs::File::open(served.path("source")).expect("open");
    let program = OpenOptions::new().write(true).open(served.path("program")).expect("open");
    let copy = || rustix::fs::copy_file_range(&source, Some(&mut 0), &program, Some(&mut 0), 5);
    assert_eq!((copy(), mode()), (Ok(5), 0o6777), "the superuser's");
    std::thread::scope(|scope| {
        let as_nobody = || {
            rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(NOBODY)).expect("setuid");
            assert_eq!(copy(), Ok(5));
        };
        scope.spawn(as_nobody).join().expect("copied");
    });
    assert_eq!(mode(), 0o777);
    drop((source, program));
    served.must_end_clean();
}

/// The number of `FS_IOC_GETVERSION` implies 8 bytes, and programs have 4: `lsattr -v` ended with a smashed stack.
fn generations_are_shown() {
    const LABEL: &str =
        "open F, '<', $ARGV[0] or die; $b = \"\\0\" x 256; ioctl F, 0x81009431, $b or die $!; print $b";
    let Some(served) = Served::new("ext4 -L photos", "64M", "") else { return };
    let label = Command::new("perl").args(["-e", LABEL]).arg(served.at()).output().expect("perl");
    assert_eq!(text(&label.stdout).trim_end_matches('\0'), "photos", "{label:?}");
    fs::write(served.path("file"), "content").expect("write");
    let shown = Command::new("lsattr").arg("-v").arg(served.path("file")).output().expect("lsattr");
    let line = String::from_utf8_lossy(&shown.stdout).into_owned();
    let generation = line.split_whitespace().next().and_then(|word| word.parse::<u32>().ok());
    assert!(shown.status.success() && generation.is_some(), "{line:?} {shown:?}");
    let root = rustix::fs::Dir::read_from(fs::File::open(served.at()).expect("open")).expect("a listing");
    let dots =
        root.map(|entry| entry.expect("an entry")).filter(|entry| entry.file_name().to_bytes()[0] == b'.');
    let numbers: Vec<u64> = dots.map(|entry| entry.ino()).collect();
    assert_eq!(numbers, [fs::metadata(served.at()).expect("stat").ino(); 2], "`.` and `..` of the root");
    served.must_end_clean();
}

/// A listing that is read in pieces.
struct Listing {
    directory: fs::File,
    names: Vec<String>,
}

impl Listing {
    fn begin(path: &std::path::Path) -> Self {
        Self { directory: fs::File::open(path).expect("open"), names: Vec::new() }
    }

    /// Take the entries of one system call. Returns whether there were any.
    fn take(&mut self) -> bool {
        let mut memory = [const { std::mem::MaybeUninit::uninit() }; 4096];
        let (mut entries, before) = (rustix::fs::RawDir::new(&self.directory, &mut memory), self.names.len());
        while let Some(entry) = entries.next() {
            self.names.push(entry.expect("entry").file_name().to_str().expect("text").to_owned());
            if entries.is_buffer_empty() {
                break;
            }
        }
        self.names.len() > before
    }

    fn end(mut self) -> Vec<String> {
        while self.take() {}
        self.names.retain(|name| name != "." && name != "..");
        self.names.sort();
        self.names
    }
}

/// The kernel filled its cache with a listing from before a change, and used it for a later one: removed names, and no new ones. `..` of a
/// moved directory was stale, too.
fn a_listing_that_begins_after_a_change_shows_it() {
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    for (nth, count) in [50, 3000].into_iter().enumerate() {
        let path = served.path(&format!("directory-{nth}"));
        fs::create_dir(&path).expect("mkdir");
        (0..count)
            .for_each(|nth| drop(fs::File::create(path.join(format!("file-{nth:05}"))).expect("create")));
        let in_order = {
            let mut listing = Listing::begin(&path);
            while listing.take() {}
            listing.names
        };
        // The kernel's cache is out of date: the next listing begins a new one.
        fs::write(path.join("new"), "").expect("create");
        fs::remove_file(path.join("new")).expect("remove");

        let mut earlier = Listing::begin(&path);
        while earlier.names.len() < count * 9 / 10 && earlier.take() {}
        let removed: Vec<_> =
            in_order[count / 2..].iter().filter(|name| name.starts_with("file")).take(20).collect();
        for name in &removed {
            fs::remove_file(path.join(name)).expect("remove");
        }
        (0..200).for_each(|nth| drop(fs::File::create(path.join(format!("new-{nth}"))).expect("create")));
        let mut expected: Vec<_> = in_order.iter().filter(|name| !removed.contains(name)).cloned().collect();
        expected.retain(|name| name != "." && name != "..");
        expected.extend((0..200).map(|nth| format!("new-{nth}")));
        expected.sort();

        let mut later = Listing::begin(&path);
        later.take();
        earlier.end();
        assert!(later.end() == expected, "a listing in between, of {count} names");
        for turn in 0..3 {
            assert!(Listing::begin(&path).end() == expected, "listing {turn} after it, of {count} names");
        }
    }
    let [from, to] = ["from", "to"].map(|name| served.path(name));
    fs::create_dir_all(from.join("moved")).and_then(|()| fs::create_dir(&to)).expect("mkdir");
    let parent_of = |path: &std::path::Path| {
        let directory = fs::File::open(path).expect("open");
        let mut memory = [const { std::mem::MaybeUninit::uninit() }; 4096];
        let mut entries = rustix::fs::RawDir::new(&directory, &mut memory);
        loop {
            let entry = entries.next().expect("it has one").expect("entry");
            if entry.file_name() == c".." {
                break entry.ino();
            }
        }
    };
    for _ in 0..2 {
        assert_eq!(Listing::begin(&from.join("moved")).end().len(), 0);
    }
    fs::rename(from.join("moved"), to.join("moved")).expect("rename");
    assert_eq!(parent_of(&to.join("moved")), fs::metadata(&to).expect("stat").ino());
    served.must_end_clean();
}

/// The list of mounts has the source of `fsname` and the type of `mount -t`, which test suites compare.
#[test]
fn a_mount_has_the_name_that_is_asked_for() {
    let Some(served) = Served::new("ext4", "32M", "fsname=/dev/some disk") else { return };
    let mounts = fs::read_to_string("/proc/self/mounts").expect("procfs");
    let line = mounts
        .lines()
        .find(|line| line.contains(served.at().to_str().expect("text")))
        .expect("it is mounted");
    assert!(line.starts_with("/dev/some\\040disk "), "{line}");
    assert!(line.contains(" fuse.diorite "), "{line}");
    served.must_end_clean();
}

/// One program mounts a volume once. A mount that fails is an error of the command, and nothing is mounted.
fn what_cannot_be_mounted_is_an_error() {
    let Some(served) = Served::new("ext4", "32M", "") else { return };
    let bench = served.bench();
    let refused = |arguments: &[&str], status: i32, needle: &str| {
        let output = bench.diorite(arguments.iter().copied()).output().expect("the program starts");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(needle), "{arguments:?}: {said}");
    };
    fs::create_dir(bench.path("second")).expect("mkdir");
    bench.write("zeros.img", &vec![0; 1 << 20]);
    refused(&["mount", "a.img", "second"], 1, "locked by another process");
    let cure = format!(
        "it is mounted on {0}; use it there, or unmount it: diorite umount {0}",
        served.at().display()
    );
    refused(&["mount", "a.img", "second"], 1, &cure);
    refused(&["mkdir", "a.img:/x"], 1, &cure);
    refused(&["mount", "none.img", "second"], 1, "none.img");
    refused(&["mount", "zeros.img", "second"], 1, "not an ext2, ext3 or ext4 volume");
    refused(&["mount", "a.img", "nowhere"], 1, "there is no such directory");
    refused(&["mount", "-o", "bogus", "a.img", "second"], 2, "bogus");
    refused(&["umount", "second"], 1, "second: cannot unmount");
    served.must_end_clean();
}

/// SIGTERM unmounts; if a file is open, it can be used until it is closed.
fn a_signal_unmounts_and_open_files_go_on() {
    let Some(served) = Served::new("ext4", "32M", "") else { return };
    let file =
        OpenOptions::new().create_new(true).read(true).write(true).open(served.path("file")).expect("create");
    served.terminate();
    Served::wait_until(|| !served.is_mounted());
    file.write_all_at(b"still here", 0).expect("write");
    file.sync_all().expect("sync");
    drop(file);
    served.wait_until_ended();
    let served = served.mount_again("ro");
    assert_eq!(fs::read(served.path("file")).expect("read"), b"still here");
    let refused = fs::write(served.path("file"), "x").expect_err("read-only");
    assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
    served.must_end_clean();
}

/// The second signal ended the daemon at once, and cached data of the kernel was lost, also of open files.
fn further_signals_lose_nothing() {
    let Some(served) = Served::new("ext4", "32M", "") else { return };
    let file = OpenOptions::new().create_new(true).write(true).open(served.path("file")).expect("create");
    served.terminate();
    Served::wait_until(|| !served.is_mounted());
    file.write_all_at(&pattern(300_000, 1), 0).expect("write");
    for nth in 1..=3 {
        served.terminate();
        let answers = || text(&served.bench().read("log")).matches("SIGKILL ends it at once").count();
        Served::wait_until(|| answers() >= nth);
    }
    file.write_all_at(b"still here", 300_000).expect("write");
    file.sync_all().expect("the daemon is there");
    drop(file);
    served.wait_until_ended();
    let said = text(&served.bench().read("log"));
    assert!(said.contains("SIGKILL ends it at once"), "{said}");
    let served = served.mount_again("");
    let read = fs::read(served.path("file")).expect("read");
    assert!(read == [&pattern(300_000, 1)[..], b"still here"].concat());
    served.must_end_clean();
}

/// Random reads and writes, mapped and direct, changes of size and of holes, compared with a vector of bytes; then without the kernel's
/// cache.
fn all_ways_to_a_file_show_the_same_bytes() {
    for (options, seed) in [("", 1), ("", 2), ("direct", 3), ("sync", 4)] {
        if options == "direct" && !mount::has_kernel(6, 6, NO_DIRECT_MAPPING) {
            continue;
        }
        let Some(served) = Served::new("ext4", "64M", options) else { return };
        mount::exercise(&served.path("file"), seed, 250);
        served.must_end_clean();
    }
}

/// The same results and error numbers as the kernel's ext4, row by row, for users of a mount with these options.
fn end_as_on_the_kernels_ext4(options: &str, users: &[User]) {
    let Some(served) = Served::new("ext4 -i 8192", "1G", options) else { return };
    served.open_to_all();
    served.bench().image("kernel.img", "ext4 -i 8192", "1G");
    let Some(kernel) = Mounted::new(&served.bench().path("kernel.img"), "rw") else { return };
    let (theirs, ours) =
        (mount::posix_calls(kernel.at.path(), users), mount::posix_calls(&served.at(), users));
    let differences = mount::posix_differences(&theirs, &ours);
    let (count, all) = (differences.len(), theirs.len());
    assert!(differences.is_empty(), "{count} of {all} rows differ:\n{}", differences.join("\n"));
    drop(kernel);
    served.must_end_clean();
}

const SUPERUSER: User = User { name: "root", id: 0, groups: &[] };

/// The mounting user may do anything, as the superuser does in the kernel's ext4.
fn calls_end_as_on_the_kernels_ext4() {
    end_as_on_the_kernels_ext4("", &[SUPERUSER]);
}

fn calls_of_users_end_as_on_the_kernels_ext4() {
    let user = User { name: "user", id: 1000, groups: &[2000] };
    end_as_on_the_kernels_ext4("allow_other,default_permissions", &[SUPERUSER, user]);
}

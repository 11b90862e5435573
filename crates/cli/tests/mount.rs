//! Programs on a mounted volume, alone and compared with the kernel's ext4.
//!
//! The tests need root and `/dev/fuse`. They are a program of their own: a program that another thread starts has, for a moment, the open files of all, and
//! a mount with open files cannot be unmounted.
#![allow(clippy::disallowed_methods, reason = "files of a mount")]

#[path = "it/common/mod.rs"]
mod common;
#[path = "mount/mod.rs"]
mod mount;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::process::Command;

use common::{Mounted, pattern, text};
use mount::appends::{
    a_kill_in_an_append_leaves_no_hole, a_reader_sees_no_gap_in_an_append_that_is_under_way,
    a_size_that_a_file_cannot_have_is_gone_after_the_close,
    an_allocation_has_its_time_without_the_kernels_cache,
    an_allocation_that_fails_leaves_the_size_and_gives_back_blocks, an_append_without_space_leaves_no_hole,
};
use mount::blocks::blocks_of_preallocated_files_are_those_of_the_kernels_ext4;
use mount::durable::{
    synchronous_writes_that_no_sync_follows_survive_a_killed_daemon, what_was_synced_survives_a_killed_daemon,
};
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
use mount::listing::a_listing_that_begins_after_a_change_shows_it;
use mount::names::names_are_those_of_the_volume_after_a_late_failure;
use mount::namespaces::a_signal_after_a_lazy_unmount_ends_the_daemon;
use mount::seek::{
    blocks_and_access_times_are_told_of_open_files, data_that_is_not_written_back_is_no_hole,
    data_that_was_stored_through_a_mapping_is_no_hole, many_look_for_data_at_once,
};
use mount::space::a_full_volume_is_reported_to_the_write_or_the_sync;
use mount::users::{
    a_range_that_is_copied_takes_privileges, an_access_list_changes_permission_bits,
    the_one_who_mounted_executes_programs_alone, users_are_kept_apart,
};
use mount::{NO_DIRECT_MAPPING, Served, Transport, User};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

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

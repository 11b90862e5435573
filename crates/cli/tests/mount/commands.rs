//! The commands `diorite mount` and `diorite umount`: names of directories, several directories, the daemon, and reports.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::{Alone, Served, bench_with};
use crate::common::{Bench, text};

fn bench() -> Option<(Bench, Alone)> {
    bench_with(&["one", "two", "three"])
}

/// The daemon has a socket by the kernel's name of the mount, whatever name the user has for it.
#[test]
fn a_directory_has_one_name() {
    let Some((bench, _alone)) = bench() else { return };
    std::os::unix::fs::symlink("one", bench.path("link")).expect("symlink");
    for name in ["link", "two/../one", "one/."] {
        bench.run(&format!("mount a.img {name}"));
        let status: serde_json::Value =
            serde_json::from_str(&bench.run(&format!("status {name}"))).expect("JSON");
        assert_eq!(status["directory"], bench.path("one").to_str().expect("text"), "{name}");
        bench.run(&format!("umount {name}"));
        assert_eq!(fs::read_dir(bench.path("one")).expect("list").count(), 0, "{name}: unmounted");
    }
    assert!(bench.fail("mount a.img /", 1).contains("/: cannot mount: it is the root"));
    bench.must_be_clean("a.img");
}

/// `umount` waited for ever.
#[test]
fn umount_of_a_stopped_daemon_names_its_process() {
    let Some((bench, _alone)) = bench() else { return };
    bench.run("mount a.img one");
    let status: serde_json::Value = serde_json::from_str(&bench.run("status one")).expect("JSON");
    let daemon = status["daemon"].to_string();
    let signal = |signal: &str| Command::new("kill").args([signal, &daemon]).status().expect("kill");
    assert!(signal("-STOP").success());
    for command in ["umount one", "status one"] {
        let said = bench.fail(command, 1);
        assert!(said.contains("is stopped; continue it: kill -CONT ") && said.contains(&daemon), "{said}");
    }
    assert!(signal("-CONT").success());
    bench.run("umount one");
    bench.must_be_clean("a.img");
}

/// The lock was that of "another process".
#[test]
fn a_detached_mount_is_named_by_the_error_of_its_image() {
    let Some((bench, _alone)) = bench() else { return };
    bench.run("mount a.img one");
    let open = fs::File::create(bench.path("one/file")).expect("create");
    bench.run("umount -l one");
    let said = bench.fail("ls a.img", 1);
    assert!(said.contains("its mount is detached: programs have files of it open"), "{said}");
    drop(open);
}

#[test]
fn umount_goes_on_after_one_that_fails() {
    let Some((bench, _alone)) = bench() else { return };
    bench.image("b.img", "ext4", "32M");
    bench.run("mount a.img one");
    bench.run("mount b.img two");
    let said = bench.fail("umount one nowhere three two", 1);
    assert!(said.contains("nowhere: cannot unmount") && said.contains("three: cannot unmount"), "{said}");
    // Both daemons are gone.
    bench.must_be_clean("a.img");
    bench.must_be_clean("b.img");
}

/// `umount` waited ten minutes for the daemon, which still served another mount.
#[test]
fn umount_of_what_is_bound_elsewhere_says_so_and_ends() {
    let Some((bench, _alone)) = bench() else { return };
    bench.run("mount a.img one");
    rustix::mount::mount_bind(bench.path("one"), bench.path("two")).expect("root may");
    let output = bench.diorite(["umount", "one"]).output().expect("the program starts");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let two = bench.path("two").display().to_string();
    assert!(said.contains("one: unmounted; the volume is still in use on") && said.contains(&two), "{said}");
    fs::write(bench.path("two/file"), "content").expect("it is served");
    bench.run("umount two");
    bench.must_be_clean("a.img");
}

/// The message was only "Target is busy".
#[test]
fn umount_names_what_uses_the_mount() {
    let Some((bench, _alone)) = bench() else { return };
    bench.run("mount a.img one");
    let one = bench.path("one").canonicalize().expect("a path");
    fs::write(one.join("file"), "content").expect("write");
    fs::create_dir(one.join("below")).expect("mkdir");
    let shell = |line: &str, directory: &Path| {
        let mut command = Command::new("sh");
        let command = command.args(["-c", &format!("{line}; echo ready; read end")]).current_dir(directory);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        let mut ready = [0; 6];
        child.stdout.as_mut().expect("a pipe").read_exact(&mut ready).expect("it is there");
        child
    };
    let users =
        [shell("exec 9<file", &one), shell(&format!("exec 9<{}/file", one.display()), Path::new("/"))];
    mount("none", one.join("below"), "tmpfs", MountFlags::empty(), None).expect("root may");
    let said = bench.fail("umount one", 1);
    unmount(one.join("below"), UnmountFlags::empty()).expect("it is mounted");
    for mut user in users {
        assert!(said.contains(&format!("sh ({})", user.id())), "{said}");
        drop(user.stdin.take());
        user.wait().expect("it ends");
    }
    let below = format!("the mount on {}/below", one.display());
    let cure = format!("diorite umount -l {}", one.display());
    assert!(said.contains("cannot unmount: it is in use by") && said.contains(&below), "{said}");
    assert!(said.trim_end().ends_with(&cure) && said.lines().count() == 1, "{said}");
    bench.run("umount one");
    bench.must_be_clean("a.img");
}

/// The message said that the image does not exist.
#[test]
fn another_user_is_told_whose_a_volume_is() {
    let Some((bench, _alone)) = bench() else { return };
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(bench.directory.path(), mode).expect("chmod");
    // The build may be in a directory that other users cannot search, as CI's is.
    let program = bench.path("diorite");
    fs::copy(bench.diorite(["--version"]).get_program(), &program).expect("copy");
    let ask = |command: &str, of: &str| {
        let mut own = Command::new(&program);
        own.args([command, of]).current_dir(bench.path(".")).stdin(Stdio::null());
        if command == "top" {
            own.arg("--once");
        }
        let output = std::os::unix::process::CommandExt::uid(&mut own, 65_534).output().expect("it starts");
        assert_eq!(output.status.code(), Some(1), "{command} {of}");
        text(&output.stderr)
    };
    bench.run("mount a.img one");
    assert!(bench.run("status a.img").contains("/one"), "an image that is mounted");
    for (command, of) in [("status", "one"), ("top", "one"), ("status", "a.img"), ("top", "a.img")] {
        let said = ask(command, of);
        assert!(said.contains("one: belongs to user root (0): only that user"), "{command} {of}: {said}");
    }
    let said = ask("umount", "one");
    assert!(said.contains("one: cannot unmount: it belongs to user root (0)"), "{said}");
    bench.run("umount one");
    let mut server = bench.diorite(["serve", "nfs", "--listen", "127.0.0.1:0", "a.img"]);
    let mut server = server.stderr(Stdio::null()).spawn().expect("it starts");
    Served::wait_until(|| {
        bench.diorite(["status", "a.img"]).output().is_ok_and(|output| output.status.success())
    });
    let said = ["status", "top"].map(|command| ask(command, "a.img"));
    let locked = bench.fail("mkdir a.img:/x", 1);
    server.kill().and_then(|()| server.wait()).expect("it ends");
    assert!(said.iter().all(|said| said.contains("a.img: belongs to user root (0)")), "{said:?}");
    assert!(
        locked.contains("it is served, nfs 127.0.0.1:") && locked.contains("end that process"),
        "{locked}"
    );
}

/// `diorite umount` unmounted mounts of other programs, also filesystems of the host.
#[test]
fn umount_leaves_other_filesystems_alone() {
    let Some((bench, _alone)) = bench() else { return };
    mount("none", bench.path("one"), "tmpfs", MountFlags::empty(), None).expect("mount");
    let said = bench.fail("umount one", 1);
    let said_lazily = bench.fail("umount -l one", 1);
    unmount(bench.path("one"), UnmountFlags::empty()).expect("it was mounted all the time");
    assert!(said.contains("one: cannot unmount") && said.contains("of type tmpfs"), "{said}");
    assert_eq!(said, said_lazily);
}

/// The message said that the directory of a mount without a daemon is not a mount.
#[test]
fn a_mount_that_lost_its_daemon_is_named() {
    let Some((bench, _alone)) = bench() else { return };
    bench.run("mount a.img one");
    let status: serde_json::Value = serde_json::from_str(&bench.run("status one")).expect("JSON");
    let daemon = rustix::process::Pid::from_raw(status["daemon"].as_i64().expect("a number") as i32);
    let daemon = daemon.expect("a process");
    rustix::process::kill_process(daemon, rustix::process::Signal::KILL).expect("kill");
    // While the mount ends, calls can fail with other errors.
    let is_lost = |error| Errno::from_io_error(&error) == Some(Errno::NOTCONN);
    while !fs::metadata(bench.path("one")).is_err_and(is_lost) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let said = bench.fail("mount a.img one", 1);
    assert!(said.contains("one: cannot mount: the mount on it has lost its daemon"), "{said}");
    bench.run("umount one");
    bench.must_be_clean("a.img");
}

/// A daemon holds no lock of the mounting program.
#[test]
fn a_daemon_inherits_nothing() {
    let Some((bench, _alone)) = bench() else { return };
    let program = bench.diorite(["--version"]);
    let script = format!("( flock 9; exec {:?} mount a.img one ) 9>lock", program.get_program());
    let locked = Command::new("sh").args(["-c", &script]).current_dir(bench.path(".")).status();
    assert!(locked.expect("sh").success());
    let free = Command::new("flock").args(["-n", "lock", "true"]).current_dir(bench.path(".")).status();
    assert!(free.expect("flock").success(), "the daemon still has it");
    bench.run("umount one");
}

/// The host's filesystem of an image, full.
struct Full(std::path::PathBuf);

impl Full {
    fn new(directory: std::path::PathBuf) -> Self {
        mount("none", &directory, "tmpfs", MountFlags::empty(), Some(c"size=20m")).expect("root may");
        Self(directory)
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// A write that failed before the daemon ended is an error of `umount`. The volume is unmounted nevertheless.
#[test]
fn umount_reports_what_could_not_be_written() {
    let Some((bench, _alone)) = bench() else { return };
    let full = Full::new(bench.path("two"));
    bench.image("two/small.img", "ext4", "100M");
    bench.run("mount two/small.img one");
    let mut zeros = fs::File::open("/dev/zero").expect("open");
    let mut fill = fs::File::create(full.0.join("fill")).expect("create");
    std::io::copy(&mut zeros, &mut fill).expect_err("it is full");
    fs::create_dir(bench.path("one/directory")).expect("mkdir");
    fs::write(bench.path("one/directory/file"), vec![1; 500_000]).expect("into memory");
    let output = bench.diorite(["umount", "one"]).output().expect("the program starts");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("one: unmounted") && said.contains("may be lost"), "{said}");
    assert_eq!(fs::read_dir(bench.path("one")).expect("list").count(), 0, "unmounted");
}

/// The kernel ignores the result of its last request. The daemon did not report the error.
#[test]
fn a_daemon_that_cannot_close_the_volume_fails() {
    let Some((bench, _alone)) = bench() else { return };
    let full = Full::new(bench.path("two"));
    bench.image("two/small.img", "ext4", "100M");
    let log = fs::File::create(bench.path("log")).expect("create");
    let mut command = bench.diorite(["mount", "-f", "two/small.img", "one"]);
    let mut daemon = command.stderr(log).spawn().expect("the program starts");
    while !is_mounted(&bench.path("one")) && daemon.try_wait().expect("a child").is_none() {
        std::thread::yield_now();
    }
    let mut zeros = fs::File::open("/dev/zero").expect("open");
    let mut fill = fs::File::create(full.0.join("fill")).expect("create");
    std::io::copy(&mut zeros, &mut fill).expect_err("it is full");
    fs::create_dir(bench.path("one/directory")).expect("mkdir");
    unmount(bench.path("one"), UnmountFlags::empty()).expect("it is not in use");
    let status = daemon.wait().expect("an end");
    let said = text(&bench.read("log"));
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("cannot be closed") && said.contains("No space left on device"), "{said}");
}

/// The kernel's `umount` returned while the daemon still had the image locked. The next command failed.
#[test]
fn an_image_is_free_when_umount_returns() {
    let Some((bench, _alone)) = bench() else { return };
    for nth in 0..40 {
        bench.run("mount a.img one");
        if nth % 2 == 0 {
            fs::write(bench.path("one/file"), [nth]).expect("write");
        }
        unmount(bench.path("one"), UnmountFlags::empty()).expect("it is not in use");
        bench.run("mkdir a.img:/directory");
        bench.run("rm -r a.img:/directory");
    }
    bench.must_be_clean("a.img");
}

/// Requests wait until each queue of FUSE over `io_uring` has an entry. Without descriptors for all rings, calls on the mount did not end.
#[test]
fn a_mount_without_descriptors_for_its_rings_is_served_by_dev_fuse() {
    let Some((bench, _alone)) = bench() else { return };
    let program = bench.diorite(["--version"]).get_program().to_owned();
    let limited = |arguments: &str| {
        let mut shell = Command::new("sh");
        let script = format!("ulimit -n 24; exec {program:?} mount -f {arguments} a.img one 2>log");
        shell.args(["-c", &script]).current_dir(bench.path("."));
        shell
    };
    let mut daemon = limited("").spawn().expect("sh");
    while !is_mounted(&bench.path("one")) && daemon.try_wait().expect("a child").is_none() {
        std::thread::yield_now();
    }
    let at = bench.path("one/lost+found");
    let found = Command::new("timeout").args(["-s", "KILL", "10", "stat"]).arg(at).output().expect("timeout");
    if !found.status.success() {
        let _ = (daemon.kill(), unmount(bench.path("one"), UnmountFlags::DETACH));
    }
    assert!(found.status.success(), "it does not answer: {}", text(&bench.read("log")));
    bench.run("umount one");
    assert!(daemon.wait().expect("an end").success());
    if fs::read("/sys/module/fuse/parameters/enable_uring").is_ok_and(|value| value == b"Y\n") {
        assert!(text(&bench.read("log")).contains("not io_uring"), "{}", text(&bench.read("log")));
        let refused = limited("-o io_uring=on").status().expect("sh");
        let said = text(&bench.read("log"));
        assert!(!refused.success() && said.contains("Too many open files"), "{said}");
        assert!(!is_mounted(&bench.path("one")));
    }
    bench.must_be_clean("a.img");
}

fn is_mounted(at: &std::path::Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("procfs");
    mounts.lines().any(|line| line.split(' ').nth(4) == at.to_str())
}

/// A signal between the mount and the first answer ended the daemon only. The directory stayed a mount without a daemon.
#[test]
fn a_signal_at_any_moment_of_the_start_leaves_no_mount() {
    let Some((bench, _alone)) = bench() else { return };
    let at = bench.path("one");
    let is_mounted = || is_mounted(&at);
    for round in 0..20 {
        let mut daemon = bench.diorite(["mount", "-f", "a.img", "one"]).spawn().expect("the program starts");
        while !is_mounted() && daemon.try_wait().expect("a child").is_none() {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_micros(100 * round));
        let number = rustix::process::Pid::from_child(&daemon);
        rustix::process::kill_process(number, rustix::process::Signal::TERM).expect("it is there");
        assert!(daemon.wait().expect("an end").success(), "round {round}");
        assert!(!is_mounted(), "round {round}");
    }
    bench.must_be_clean("a.img");
}

/// A volume that was not closed cleanly was mounted without a warning.
#[test]
fn a_mount_says_that_a_volume_is_to_be_checked() {
    let Some((bench, _alone)) = bench() else { return };
    bench.image("b.img", "ext2", "16M");
    if bench.set_super_values("b.img", "state 0").is_none() {
        return;
    }
    for (option, is_said) in [("rw", true), ("ro", false)] {
        let arguments = ["mount", "--log", "log", "-o", option, "b.img", "one"];
        let output = bench.diorite(arguments).output().expect("the program starts");
        bench.run("umount one");
        for said in [text(&output.stderr), text(&bench.read("log"))] {
            let warning = "b.img: it was not closed cleanly";
            assert_eq!(said.contains(warning) && said.contains("; run e2fsck -f b.img\n"), is_said, "{said}");
        }
        fs::remove_file(bench.path("log")).expect("remove");
    }
}

/// A user who gave `-o partition=` was advised to add `?partition=N`.
#[test]
fn a_mount_names_the_partitions_as_its_options_do() {
    let Some((bench, _alone)) = bench() else { return };
    let mut disk = vec![0; 16 << 20];
    for (index, start) in [2048_u32, 16384].into_iter().enumerate() {
        let at = 446 + 16 * index;
        disk[at + 4] = 0x83;
        disk[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
        disk[at + 12..at + 16].copy_from_slice(&8192_u32.to_le_bytes());
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    bench.write("disk.img", &disk);
    let said = bench.fail("mount disk.img one", 1);
    assert!(said.contains("a disk with partitions") && said.contains("-o partition=N"), "{said}");
    bench.run("mkfs -t ext2 disk.img?partition=2");
    let said = bench.fail("mount -o partition=1 disk.img one", 1);
    assert!(said.contains("volumes are on 2 (Linux, 4 MiB) ext2; choose one with -o partition=N"), "{said}");
    bench.run("mount -o partition=2 disk.img one");
    bench.run("umount one");
}

//! Mounts that end with their namespace, and daemons whose mount was removed from the tree.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::mount::{UnmountFlags, unmount};

use super::{Served, bench_with};
use crate::common::text;

/// The daemon kept the namespace and so the mount. The image stayed locked.
#[test]
fn a_mount_ends_with_the_namespace_that_it_was_made_in() {
    let Some((bench, _alone)) = bench_with(&["one"]) else { return };
    let program = env!("CARGO_BIN_EXE_diorite");
    let script = format!(
        "{program} mount a.img one && echo content > one/file && {program} status one | head -c 1 && {program} top --once one"
    );
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
        .current_dir(bench.directory.path());
    let output = command.stdin(Stdio::null()).output().expect("util-linux");
    assert!(output.status.success(), "{}", text(&output.stderr));
    // The kernel closes the mount with its namespace. After the kill of a process the close takes a moment.
    Served::wait_until(|| {
        bench.diorite(["cat", "a.img:/file"]).output().is_ok_and(|read| read.stdout == b"content\n")
    });
    bench.must_be_clean("a.img");
}

/// The daemon's copy of the namespace kept other mounts in it: an unmount flushed nothing, and a device stayed busy.
#[test]
fn other_mounts_of_the_namespace_can_be_unmounted() {
    let Some((bench, _alone)) = bench_with(&["one", "two", "other", "holder"]) else { return };
    let program = env!("CARGO_BIN_EXE_diorite");
    let script = format!(
        "mount -t tmpfs none other && mount -t tmpfs none holder && cp a.img holder/b.img
         {program} mount a.img one && {program} mount holder/b.img two
         for path in one two; do
           daemon=$({program} status $path | grep -o '\"daemon\": *[0-9]*' | grep -o '[0-9]*')
           ! grep -q ' /.*/other ' /proc/$daemon/mountinfo || echo \"$path keeps other\"
         done
         umount other && ! umount holder && timeout 60 {program} umount one && echo content > two/file && {program} umount two && umount holder"
    );
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
        .current_dir(bench.directory.path());
    let output = command.stdin(Stdio::null()).output().expect("util-linux");
    let said = text(&output.stderr);
    assert!(output.status.success() && output.stdout.is_empty(), "{} {said}", text(&output.stdout));
    assert!(said.contains("busy"), "an image keeps its filesystem busy: {said}");
}

/// Commands in the namespace reach the daemon outside of it. SIGTERM unmounts in the namespace.
#[test]
fn a_signal_unmounts_in_the_namespace_of_the_mount() {
    let Some((bench, _alone)) = bench_with(&["one"]) else { return };
    let program = env!("CARGO_BIN_EXE_diorite");
    let script = format!(
        "{program} mount a.img one && echo content > one/file && kill $({program} status one | grep -o '\"daemon\": *[0-9]*' | grep -o '[0-9]*') && \
         while mountpoint -q one; do sleep 0.05; done; ls one"
    );
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
        .current_dir(bench.directory.path());
    let output = command.stdin(Stdio::null()).output().expect("util-linux");
    assert!(
        output.status.success() && output.stdout.is_empty(),
        "{} {}",
        text(&output.stdout),
        text(&output.stderr)
    );
    Served::wait_until(|| {
        bench.diorite(["cat", "a.img:/file"]).output().is_ok_and(|read| read.stdout == b"content\n")
    });
    bench.must_be_clean("a.img");
}

/// The daemon said that nothing was mounted, and did not end.
pub(crate) fn a_signal_after_a_lazy_unmount_ends_the_daemon() {
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    let mut file =
        OpenOptions::new().create_new(true).append(true).open(served.path("file")).expect("create");
    file.write_all(b"what is in the kernel's cache").expect("write");
    unmount(served.at(), UnmountFlags::DETACH).expect("root may");
    served.terminate();
    served.wait_until_ended();
    file.write_all(b"too late").and_then(|()| file.sync_all()).expect_err("there is no daemon");
    drop(file);
    let served = served.mount_again("");
    assert_eq!(fs::read(served.path("file")).expect("read"), b"what is in the kernel's cache");
    assert!(Path::new(&served.at()).exists());
    served.must_end_clean();
}

/// The kernel refused it: `EINVAL`.
#[test]
fn a_mount_can_be_idmapped() {
    const IDMAP: &str = r"
import ctypes, os, subprocess, sys
libc, (source, target) = ctypes.CDLL(None, use_errno=True), sys.argv[1:]
with subprocess.Popen(['unshare', '--user', 'sh', '-c', 'echo; exec sleep 60'], stdout=subprocess.PIPE) as process:
    process.stdout.readline()
    for name in ('uid_map', 'gid_map'):
        open(f'/proc/{process.pid}/{name}', 'w').write('0 1000 1')
    user = os.open(f'/proc/{process.pid}/ns/user', os.O_RDONLY)
    tree = libc.syscall(428, -100, source.encode(), 1 | 0o2000000)
    attributes = (ctypes.c_uint64 * 4)(0x100000, 0, 0, user)
    done = libc.syscall(442, tree, b'', 0x1000, attributes, ctypes.c_size_t(32))
    print('mount_setattr:', os.strerror(ctypes.get_errno()) if done else 'done', file=sys.stderr)
    moved = libc.syscall(429, tree, b'', -100, target.encode(), 4)
    process.kill()
sys.exit(done or moved)
";
    if !super::has_kernel(6, 12, "FUSE has no idmapped mounts") {
        return;
    }
    let Some(served) = Served::new("ext4", "64M", "allow_other,idmap") else { return };
    fs::write(served.path("file"), b"content").expect("write");
    let bench = served.bench();
    fs::create_dir(bench.path("mapped")).expect("mkdir");
    let output =
        Command::new("python3").args(["-c", IDMAP]).arg(served.at()).arg(bench.path("mapped")).output();
    let output = output.expect("python3 starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let owner = |path: &Path| std::os::unix::fs::MetadataExt::uid(&fs::metadata(path).expect("stat"));
    assert_eq!((owner(&served.path("file")), owner(&bench.path("mapped/file"))), (0, 1000));
    let mut create = Command::new("sh");
    create.args(["-c", "echo new > mapped/new && cat mapped/file"]).current_dir(bench.directory.path());
    std::os::unix::process::CommandExt::gid(&mut create, 1000);
    std::os::unix::process::CommandExt::uid(&mut create, 1000);
    served.open_to_all();
    assert!(create.status().expect("sh starts").success());
    assert_eq!(owner(&served.path("new")), 0, "the user of the mount is the superuser on the volume");
    unmount(bench.path("mapped"), UnmountFlags::empty()).expect("root may");
    // Operations that depend on the superuser know it.
    fs::write(served.path("file"), vec![1; 1 << 20]).expect("write");
    let trimmed = crate::common::tool("fstrim", [&served.at()]).expect("util-linux");
    assert!(trimmed.status.success(), "{}", text(&trimmed.stderr));
    served.must_end_clean();
}

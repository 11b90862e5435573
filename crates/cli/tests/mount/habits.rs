//! A mount in normal use: `mount(8)` and fstab, background, options for owners and places, file handles and locks of several programs.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Child, Command, Stdio};

use rustix::fs::{FlockOperation, fcntl_lock, flock};

use super::{Served, bench_with};
use crate::common::{Bench, text, tool};

/// Run a script in the directory of a bench. Returns its output.
fn succeed(bench: &Bench, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(bench.directory.path()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Links to the program are where `mount(8)` looks for helpers, in a mount namespace of this test.
#[test]
fn mount_and_fstab_start_the_program() {
    let Some((bench, _alone)) = bench_with(&["at"]) else { return };
    let program = bench.diorite(["--version"]).get_program().to_owned();
    fs::create_dir(bench.path("helpers")).expect("mkdir");
    std::os::unix::fs::symlink(program, bench.path("helpers/mount.fuse.diorite")).expect("symlink");
    let (image, at) = (bench.path("a.img"), bench.path("at"));
    let line = format!("{} {} fuse.diorite noatime,nofail 0 0\n", image.display(), at.display());
    bench.write("fstab", line.as_bytes());
    let script = r#"
        sbin=$(realpath /sbin)
        mount --bind helpers "$sbin"
        mount -t fuse.diorite -o ro "$PWD/a.img" at
        findmnt -no SOURCE,FSTYPE,OPTIONS at
        umount at
        mount -T fstab -a
        mount -T fstab -a
        findmnt -no SOURCE,FSTYPE,OPTIONS at
        echo content > at/file
        umount at
    "#;
    let said = succeed(&bench, "unshare", &["-m", "--propagation", "private", "sh", "-euc", script]);
    let mounts: Vec<_> = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    let [by_type, by_fstab] = mounts.as_slice() else { panic!("two mounts: {said}") };
    assert_eq!(by_type[..2], [image.to_str().expect("text"), "fuse.diorite"]);
    assert!(by_type[2].split(',').any(|option| option == "ro"), "{said}");
    assert_eq!(by_fstab[1], "fuseblk.diorite", "{said}");
    assert!(by_fstab[2].split(',').any(|option| option == "noatime"), "{said}");
    assert_eq!(bench.run("cat a.img:/file"), "content\n");
    bench.must_be_clean("a.img");
}

/// All files have this owner and lack these bits. The volume is not changed.
#[test]
fn owners_and_permissions_are_those_of_the_options() {
    let Some((bench, _alone)) = bench_with(&["at"]) else { return };
    bench.run("mount a.img at");
    fs::write(bench.path("at/file"), "content").expect("write");
    bench.run("umount at");
    let before = bench.json("stat a.img:/file");
    bench.run("mount -o uid=4242,gid=4343,umask=027 a.img at");
    for name in ["at/file", "at"] {
        let shown = fs::metadata(bench.path(name)).expect("stat");
        assert_eq!((shown.uid(), shown.gid(), shown.mode() & 0o027), (4242, 4343, 0), "{name}");
    }
    bench.run("umount at");
    assert_eq!(bench.json("stat a.img:/file"), before);
}

#[test]
fn a_volume_that_begins_later_is_mounted_by_its_offset() {
    let Some((bench, _alone)) = bench_with(&["at"]) else { return };
    let image = bench.read("a.img");
    bench.write("disk.img", &[vec![0xee; 1 << 20], image].concat());
    bench.run("mount -o offset=1M disk.img at");
    fs::write(bench.path("at/file"), "content").expect("write");
    bench.run("umount at");
    assert_eq!(bench.run("cat disk.img?offset=1M:/file"), "content");
    let disk = bench.read("disk.img");
    assert!(disk[..1 << 20].iter().all(|byte| *byte == 0xee), "what is before it");
    bench.write("a.img", &disk[1 << 20..]);
    bench.must_be_clean("a.img");
}

/// A server of the image at `socket`.
fn nbd_server(bench: &Bench) -> Child {
    let socket = bench.path("socket");
    let _ = fs::remove_file(&socket);
    let mut server = Command::new("qemu-nbd");
    server.args(["--persistent", "--shared=4", "--format=raw", "-k"]).arg(&socket).arg("a.img");
    server.current_dir(bench.directory.path()).stdin(Stdio::null()).stderr(Stdio::null());
    let server = server.spawn().expect("it was there");
    Served::wait_until(|| socket.exists());
    server
}

/// A daemon changes its directory. It looked for the socket of a restarted server in another directory.
#[test]
fn a_daemon_connects_again_by_a_relative_path() {
    let Some((bench, _alone)) = bench_with(&["at"]) else { return };
    if tool("qemu-nbd", ["--version"]).is_none() {
        return;
    }
    let mut server = nbd_server(&bench);
    bench.run("mount nbd+unix:///?socket=socket&reconnect=30 at");
    fs::write(bench.path("at/before"), "before").expect("write");
    server.kill().and_then(|()| server.wait()).expect("kill");
    let mut server = nbd_server(&bench);
    let file = fs::File::create(bench.path("at/after")).expect("create");
    file.sync_all().expect("it is connected again");
    drop(file);
    bench.run("umount at");
    server.kill().and_then(|()| server.wait()).expect("kill");
    assert_eq!(bench.run("ls a.img:/").lines().filter(|name| ["before", "after"].contains(name)).count(), 2);
    bench.must_be_clean("a.img");
}

/// `take(path)` stores a handle in a file, and `name()` returns the content of the file of that handle.
const LIBRARY: &str = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]
def take(path):
    handle, mount = Handle(128), ctypes.c_int()
    if libc.name_to_handle_at(-100, path.encode(), ctypes.byref(handle), ctypes.byref(mount), 0):
        raise OSError(ctypes.get_errno(), path)
    open(sys.argv[1], "wb").write(bytes(handle))
def name():
    at = os.open("at", os.O_RDONLY)
    handle = Handle.from_buffer_copy(open(sys.argv[1], "rb").read())
    file = libc.open_by_handle_at(at, ctypes.byref(handle), os.O_RDONLY)
    return os.read(file, 100).decode() if file >= 0 else os.strerror(ctypes.get_errno())
"#;

/// A handle is valid as long as its file exists, also on the next mount. The handle of a removed file is stale, even if its inode is used
/// again.
pub(crate) fn handles_of_files_outlive_the_mount() {
    let Some(served) = Served::new("ext4", "32M", "") else { return };
    let python = |served: &Served, call: &str| {
        succeed(served.bench(), "python3", &["-c", &format!("{LIBRARY}\n{call}"), "handle"])
    };
    fs::create_dir(served.path("directory")).expect("mkdir");
    fs::write(served.path("directory/file"), "content").expect("write");
    python(&served, "take('at/directory/file')");
    let inode = fs::metadata(served.path("directory/file")).expect("stat").ino();
    let served = served.again("");
    assert_eq!(python(&served, "print(name())"), "content\n");
    fs::rename(served.path("directory/file"), served.path("moved")).expect("rename");
    assert_eq!(python(&served, "print(name())"), "content\n");
    fs::remove_file(served.path("moved")).expect("remove");
    let is_reused = (0..1000).any(|number| {
        let path = served.path(&format!("directory/new-{number}"));
        fs::write(&path, "another").expect("write");
        fs::metadata(&path).expect("stat").ino() == inode
    });
    assert!(is_reused, "its inode is in use again");
    assert_eq!(python(&served, "print(name())"), "Stale file handle\n");
    served.must_end_clean();
}

/// Whether a lock is free.
const TRY: &str = r#"
import fcntl, sys
file = open("at/file", "r+")
try:
    getattr(fcntl, sys.argv[1])(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("taken")
except BlockingIOError:
    print("held")
"#;

/// Locks of both kinds exclude other programs until they are released or the program ends.
pub(crate) fn locks_hold_between_programs() {
    let Some(served) = Served::new("ext4", "32M", "") else { return };
    let try_lock = |kind: &str| succeed(served.bench(), "python3", &["-c", TRY, kind]);
    let file = fs::File::options().create_new(true).write(true).read(true).open(served.path("file"));
    let file = file.expect("create");
    assert_eq!((try_lock("lockf"), try_lock("flock")), ("taken\n".to_owned(), "taken\n".to_owned()));
    fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).expect("it is free");
    assert_eq!((try_lock("lockf"), try_lock("flock")), ("held\n".to_owned(), "taken\n".to_owned()));
    fcntl_lock(&file, FlockOperation::Unlock).expect("it is held");
    flock(&file, FlockOperation::NonBlockingLockExclusive).expect("it is free");
    assert_eq!((try_lock("lockf"), try_lock("flock")), ("taken\n".to_owned(), "held\n".to_owned()));
    drop(file);
    assert_eq!(try_lock("flock"), "taken\n");
    served.must_end_clean();
}

pub(crate) fn the_status_names_the_transport() {
    let Some(served) = Served::new("ext4", "32M", "") else { return };
    let status: serde_json::Value = serde_json::from_str(&served.bench().run("status at")).expect("JSON");
    assert_eq!(status["transport"], if Served::is_over_io_uring() { "io_uring" } else { "/dev/fuse" });
    served.must_end_clean();
}

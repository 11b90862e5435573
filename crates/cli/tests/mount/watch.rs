//! `status`, `top`, and the programs to which requests are charged.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;

use super::nbd::{Loss, Proxy, ROTATIONAL, SEND_FLUSH, SEND_FUA};
use super::{Alone, Served, alone};
use crate::common::{Bench, is_root, pattern, text, tool};

const NOBODY: u32 = 65_534;

fn status(served: &Served) -> Value {
    serde_json::from_str(&served.bench().run("status at")).expect("one JSON object")
}

fn task(status: &Value, matches: impl Fn(&Value) -> bool) -> &Value {
    let tasks = status["tasks"].as_array().expect("a list");
    tasks.iter().find(|task| matches(task)).unwrap_or_else(|| panic!("it is not in {status:#}"))
}

/// A direct write is charged to the calling program, for any of its threads. A buffered write is charged to the program that opened the
/// file.
#[test]
fn requests_are_charged_to_programs() {
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    let of = format!("of={}", served.path("direct").display());
    let dd = Command::new("dd").args(["if=/dev/zero", &of, "bs=64k", "count=16", "oflag=direct"]).status();
    assert!(dd.expect("dd").success());
    let path = served.path("buffered");
    let by_thread = std::thread::spawn(move || {
        let mut file = fs::File::create(path).expect("create");
        file.write_all(&pattern(300_000, 1)).expect("write");
        file.sync_all().expect("sync");
    });
    by_thread.join().expect("it writes");
    let now = status(&served);
    let dd = task(&now, |task| task["command"] == "dd");
    assert_eq!(
        (dd["write"]["operations"].as_u64(), dd["write"]["bytes"].as_u64()),
        (Some(16), Some(1 << 20))
    );
    let own = task(&now, |task| task["pid"] == std::process::id());
    // Whole pages are written back.
    assert!((300_000..310_000).contains(&own["write"]["bytes"].as_u64().expect("a number")), "{own:#}");
    assert!(
        own["sync"]["operations"].as_u64() >= Some(1) && own["metadata"]["operations"].as_u64() >= Some(1)
    );
    assert!(now["volume"]["read_only"].is_null() && now["journal"]["log_blocks"].as_u64() > Some(100));
    assert_eq!(now["directory"], served.at().to_str().expect("text"));
    served.must_end_clean();
}

/// A daemon that had no free descriptor for a moment did not answer any more.
#[test]
fn a_daemon_answers_again_after_it_had_no_descriptors() {
    let Some(served) = Served::new("ext4", "32M", "") else { return };
    // The daemon answers, so it has opened all descriptors of its start.
    fs::read_dir(served.at()).expect("it is served");
    let before = served.limit_descriptors(Some(3));
    let asks = served.bench().diorite(["status", "at"]).stdout(Stdio::piped()).spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(300));
    served.limit_descriptors(before);
    let output = asks.wait_with_output().expect("wait");
    assert!(output.status.success() && output.stdout.starts_with(b"{"), "{}", text(&output.stdout));
    assert_eq!(status(&served)["directory"], served.at().to_str().expect("text"));
    served.must_end_clean();
}

/// Another user gets no status from the program or the socket. A directory that is no mount is an error.
#[test]
fn other_users_learn_nothing() {
    let Some(served) = Served::new("ext4", "64M", "allow_other") else { return };
    served.open_to_all();
    assert!(served.bench().fail("status .", 1).contains("neither a mount of Diorite"));
    let numbers = rustix::fs::stat(served.at()).map(|stat| stat.st_dev).expect("stat");
    let numbers = format!("{}:{}", rustix::fs::major(numbers), rustix::fs::minor(numbers));
    let script = "socket(S, AF_UNIX, SOCK_STREAM, 0) or die; \
                  connect(S, pack_sockaddr_un(\"\\0diorite-mount/$ARGV[0]\")) or die \"$!\"; print <S>;";
    let ask = |uid| {
        let mut perl = Command::new("perl");
        perl.args(["-MSocket", "-e", script, &numbers]).current_dir("/").uid(uid);
        let output = perl.output().expect("perl");
        assert!(output.status.success(), "{}", text(&output.stderr));
        output.stdout
    };
    assert!(ask(0).starts_with(b"{") && ask(NOBODY).is_empty());
    // That user may lack the permission to execute the program in its directory.
    let program = served.bench().path("diorite");
    fs::copy(env!("CARGO_BIN_EXE_diorite"), &program).expect("copy");
    let said = Command::new(program).args(["status".as_ref(), served.at().as_os_str()]).uid(NOBODY).output();
    let said = said.expect("it starts");
    assert_eq!(said.status.code(), Some(1));
    assert!(text(&said.stderr).contains("belongs to user root (0)"), "{}", text(&said.stderr));
}

/// After a failed write of metadata the mount is read-only. The log, `status` and `top` say why.
#[test]
fn why_a_volume_became_read_only_is_told() {
    let Some(served) = on_breakable("commit=300") else { return };
    fs::write(served.path("before"), b"x").expect("write");
    fs::write(served.bench().path("broken"), "").expect("create");
    fs::create_dir(served.path("directory")).expect("mkdir");
    let root = fs::File::open(served.at()).expect("open");
    assert!(root.sync_all().is_err());
    let reason = status(&served)["volume"]["read_only"].as_str().expect("a reason").to_owned();
    assert!(reason.contains("failed"), "{reason}");
    assert!(served.bench().run("top --once -i 0.1 at").contains("READ-ONLY: "));
    drop(root);
    fs::remove_file(served.bench().path("broken")).expect("remove");
    let log = served.end_with_log();
    assert!(log.contains("read-only from now on"), "{log}");
}

/// The sync that met the failed write has the error. Later calls fail with `EROFS` as in ext4; the error was `EIO`.
#[test]
fn a_volume_that_failed_is_read_only_for_what_begins_later() {
    use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};

    use rustix::fs::{XattrFlags, setxattr};
    use rustix::io::Errno;

    let Some(served) = on_breakable("commit=300") else { return };
    let (file, new) = (served.path("file"), served.path("new"));
    fs::write(&file, b"x").expect("write");
    fs::create_dir(served.path("empty")).expect("mkdir");
    let root = fs::File::open(served.at()).expect("open");
    let open = fs::File::options().write(true).open(&file).expect("open");
    root.sync_all().expect("sync");
    fs::write(served.bench().path("broken"), "").expect("create");
    fs::create_dir(served.path("directory")).expect("mkdir");
    let is = |result: std::io::Result<()>| result.err().and_then(|error| Errno::from_io_error(&error));
    assert_eq!(is(root.sync_all()), Some(Errno::IO));
    fs::remove_file(served.bench().path("broken")).expect("remove");
    let changes = [
        ("mkdir", is(fs::create_dir(&new))),
        ("create", is(fs::File::create_new(&new).map(drop))),
        ("symlink", is(symlink("file", &new))),
        ("link", is(fs::hard_link(&file, &new))),
        ("rename", is(fs::rename(&file, &new))),
        ("unlink", is(fs::remove_file(&file))),
        ("rmdir", is(fs::remove_dir(served.path("empty")))),
        ("chmod", is(fs::set_permissions(&file, fs::Permissions::from_mode(0o600)))),
        ("chown", is(std::os::unix::fs::chown(&file, Some(1), None))),
        ("utimes", is(open.set_modified(std::time::UNIX_EPOCH))),
        ("truncate", is(open.set_len(0))),
        ("setxattr", setxattr(&file, "user.a", b"b", XattrFlags::empty()).err()),
        ("open", is(fs::File::options().write(true).open(&file).map(drop))),
        ("fallocate", rustix::fs::fallocate(&open, rustix::fs::FallocateFlags::empty(), 0, 4096).err()),
    ];
    for (what, error) in changes {
        assert_eq!(error, Some(Errno::ROFS), "{what}");
    }
    assert_eq!(is(root.sync_all()), Some(Errno::ROFS));
    open.write_all_at(b"y", 0).expect("the kernel takes it");
    assert_eq!(is(open.sync_all()), Some(Errno::ROFS));
    assert_eq!(fs::read(&file).expect("read").len(), 1);
    drop((root, open));
    // The message said that the volume was remounted `rw`, and that it was not remounted `ro`.
    let bench = served.bench();
    for options in ["remount,rw", "remount,noatime"] {
        let said = bench.fail(&format!("mount -o {options} at"), 1);
        assert!(said.contains("read-only until it is mounted again: an earlier write failed"), "{said}");
    }
    bench.run("mount -o remount,ro at");
    bench.fail("mount -o remount,rw at", 1);
    served.end_with_log();
}

/// With `inject`, a program of many threads does not take the device from a program of one thread: all threads of a program are one owner.
/// The device is a rotating disk with one transfer at a time. A fair half is half of the light program's throughput alone.
#[test]
fn a_greedy_program_leaves_a_light_one_its_share() {
    /// Limits of the light program as parts of a fair half: the least with the scheduler, the most without one.
    const BOUND: f64 = 0.5;
    /// A loaded machine slows a single thread down more than many threads, perhaps for a whole run.
    const TRIES: u32 = 3;
    if tool("fio", ["--version"]).is_none() {
        return;
    }
    let of_fair_half = |scheduler: &str| {
        let served = NbdServer::rotating()?.mount(&format!("scheduler={scheduler}"));
        for name in ["light", "greedy"] {
            fs::write(served.path(name), pattern(8 << 20, 1)).expect("write");
            fs::File::open(served.path(name)).expect("open").sync_all().expect("sync");
        }
        let alone = operations(&served, [reader(&served, "light", 1)]);
        let together = operations(&served, [reader(&served, "light", 1), reader(&served, "greedy", 16)]);
        let of = together[0] / (alone[0] / 2.0);
        eprintln!(
            "{scheduler}: the light one has {alone:?} alone, {together:?} beside the greedy one: {of:.2} of a fair half"
        );
        Some(of)
    };
    let Some(unscheduled) = of_fair_half("none") else { return };
    assert!(unscheduled < BOUND, "the greedy one leaves it {unscheduled:.2} of a fair half by itself");
    let fair = (0..TRIES).filter_map(|_| of_fair_half("inject")).find(|fair| *fair >= BOUND);
    assert!(fair.is_some(), "less than {BOUND} of a fair half in {TRIES} runs");
}

/// Wait for programs. Returns the bytes that each has read.
fn operations<const N: usize>(served: &Served, mut readers: [Child; N]) -> [f64; N] {
    for reader in &mut readers {
        assert!(reader.wait().expect("wait").success());
    }
    let now = status(served);
    readers.map(|reader| {
        let task = task(&now, |task| task["pid"] == reader.id());
        let owners = now["scheduler"]["owners"].as_array();
        let is_owner = |owners: &Vec<Value>| owners.iter().any(|owner| owner["owner"] == reader.id());
        assert!(owners.is_none_or(is_owner), "{owners:?}");
        task["read"]["operations"].as_f64().expect("a number")
    })
}

/// Direct reads of 4 KiB: sequential by one thread, random by several. Their high priority on the CPU makes the device the bottleneck.
fn reader(served: &Served, name: &str, threads: u32) -> Child {
    let mut fio = Command::new("fio");
    fio.arg(format!("--filename={}", served.path(name).display())).arg(format!("--numjobs={threads}"));
    fio.args(["--name=reader", "--thread", "--bs=4k", "--direct=1", "--ioengine=psync"]);
    fio.arg(if threads == 1 { "--rw=read" } else { "--rw=randread" }).arg("--nice=-19");
    fio.args(["--time_based", "--runtime=2", "--allow_file_create=0"]);
    fio.stdout(Stdio::null()).spawn().expect("fio")
}

/// fio writes, reads and compares while connections are lost at any byte of a request or a reply. It sees no error if the server has no
/// volatile cache.
#[test]
fn verified_transfers_go_on_over_lost_connections() {
    const LOST_AT_LEAST: usize = 5;
    if tool("fio", ["--version"]).is_none() {
        return;
    }
    let Some(server) = NbdServer::qemu() else { return };
    let proxy = server.proxy(|flags| flags & !(SEND_FLUSH | SEND_FUA));
    let served = server.mount("");
    let mut fio = Command::new("fio");
    fio.args([
        "--name=verified",
        "--size=8m",
        "--rw=randrw",
        "--bsrange=4k-64k",
        "--blockalign=4k",
        "--numjobs=2",
    ]);
    fio.args(["--ioengine=libaio", "--iodepth=8", "--direct=1", "--verify=crc32c", "--verify_fatal=1"]);
    fio.args(["--verify_backlog=32", "--randseed=7", "--fsync=16", "--time_based", "--runtime=4"]);
    let mut fio = fio.current_dir(served.at()).stdout(Stdio::null()).spawn().expect("fio");
    let mut random = 88_172_645_463_325_252_u64;
    while fio.try_wait().expect("wait").is_none() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let bytes = (random >> 8) % 300_000;
        let before = proxy.losses();
        proxy.lose_at(if random.is_multiple_of(2) { Loss::Requests(bytes) } else { Loss::Replies(bytes) });
        Served::wait_until(|| {
            std::thread::sleep(Duration::from_millis(2));
            proxy.losses() > before || fio.try_wait().expect("wait").is_some()
        });
        // A request that loses its connection repeatedly fails.
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(fio.wait().expect("wait").success(), "fio, with {} lost connections", proxy.losses());
    assert!(proxy.losses() >= LOST_AT_LEAST, "{} lost connections", proxy.losses());
    assert!(status(&served)["volume"]["read_only"].is_null());
    served.must_end_clean();
}

/// If a lost connection may have lost acknowledged writes, the sync fails, and the volume is read-only and says why. Synced data is kept.
#[test]
fn a_lost_connection_with_a_cache_of_the_server_is_an_error() {
    let Some(server) = NbdServer::qemu() else { return };
    let proxy = server.proxy(|flags| flags);
    let served = server.mount("commit=300");
    let synced = |name: &str| {
        fs::write(served.path(name), pattern(300_000, 1)).expect("write");
        fs::File::open(served.path(name)).expect("open").sync_all()
    };
    synced("before").expect("sync");
    proxy.lose();
    synced("between").expect("nothing was lost");
    let mut options = fs::File::options();
    options.create(true).append(true).custom_flags(OFlags::DIRECT.bits() as i32);
    let mut lost = options.open(served.path("lost")).expect("open");
    lost.write_all(&vec![7; 8192]).expect("it is acknowledged");
    proxy.lose();
    lost.sync_all().expect_err("it may be lost");
    drop(lost);
    let reason = status(&served)["volume"]["read_only"].as_str().expect("a reason").to_owned();
    assert!(reason.contains("failed"), "{reason}");
    assert_eq!(fs::read(served.path("before")).expect("read"), pattern(300_000, 1));
    let log = served.end_with_log();
    assert!(log.contains("not flushed"), "{log}");
}

/// On a terminal `top` shows pages, and restores the terminal at its end.
#[test]
fn top_is_live_on_a_terminal() {
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    fs::write(served.path("file"), b"x").expect("write");
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("unlock");
    let name = ptsname(&terminal, Vec::new()).expect("its name");
    let open = || rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("open");
    let before = rustix::termios::tcgetattr(open()).expect("its modes");
    let mut top = served.bench().diorite(["top", "-i", "0.05", "at"]);
    let (input, output): (OwnedFd, OwnedFd) = (open(), open());
    let mut child = top.stdin(input).stdout(output).spawn().expect("it starts");
    drop(top);
    let mut shown = String::new();
    let mut terminal = fs::File::from(terminal);
    // Two pages, then the key that ends it.
    while shown.matches("COMMAND").count() < 2 {
        let mut bytes = [0; 4096];
        let len = terminal.read(&mut bytes).expect("it is there");
        shown += &String::from_utf8_lossy(&bytes[..len]);
    }
    terminal.write_all(b"wq").expect("keys");
    assert!(child.wait().expect("wait").success());
    let after = rustix::termios::tcgetattr(open()).expect("its modes");
    assert_eq!(before.local_modes, after.local_modes);
    assert!(shown.contains("requests in flight") && shown.contains("MB/s"));
    assert_eq!(fs::metadata(served.at()).expect("stat").uid(), 0);
    served.must_end_clean();
}

/// `umount` returned while the daemon still wrote to the server, because no kernel waits for it.
#[test]
fn unmounted_is_written() {
    let Some(kit) = NbdServer::new(&["--filter=delay"], "delay-write=400ms") else { return };
    let served = kit.mount("");
    for number in 0..20 {
        fs::write(served.path(&format!("file-{number}")), vec![number; 100_000]).expect("write");
    }
    let bench = served.bench();
    bench.run("umount at");
    // Another reader of the image's file at once.
    let info = bench.run("info a.img");
    assert!(!info.contains("replayed"), "{info}");
    bench.must_be_clean("a.img");
    served.wait_until_ended();
}

/// A volume on a device with 0.1 s for each write.
pub(crate) fn on_slow_device(options: &str) -> Option<Served> {
    NbdServer::new(&["--filter=delay"], "wdelay=100ms").map(|server| server.mount(options))
}

/// A volume whose device fails each write while there is a file `broken`.
pub(crate) fn on_breakable(options: &str) -> Option<Served> {
    let parameters = "error-pwrite=EIO error-pwrite-rate=100% error-file=broken";
    NbdServer::new(&["--filter=error"], parameters).map(|server| server.mount(options))
}

/// A volume of 128 groups with unread bitmaps, on a device with 50 ms for each transfer.
pub(crate) fn on_large_slow_device() -> Option<Served> {
    let server = NbdServer::of("nbdkit", |bench| {
        let image = bench.path("a.img");
        let image = image.to_str().expect("text");
        let features = "^uninit_bg,^metadata_csum,^flex_bg,^resize_inode";
        let made = tool("mke2fs", ["-q", "-F", "-t", "ext4", "-O", features, "-N", "2048", image, "16G"]);
        assert!(made.expect("it is there").status.success());
        of_nbdkit(bench, &["--filter=delay"], "rdelay=50ms wdelay=50ms")
    });
    server.map(|server| server.mount(""))
}

/// The arguments of `nbdkit` that serves the image, with these options and parameters of filters.
fn of_nbdkit(bench: &Bench, options: &[&str], parameters: &str) -> Vec<String> {
    let parameters = parameters.split(' ').filter(|parameter| !parameter.is_empty()).map(|parameter| {
        // The server leaves its directory.
        parameter.replace("error-file=", &format!("error-file={}/", bench.directory.path().display()))
    });
    let always = ["-f", "-U", "socket"].iter().chain(options).chain(&["file", "a.img"]);
    always.map(|&word| word.to_owned()).chain(parameters).collect()
}

/// A volume on a server.
pub(crate) fn on_nbd(options: &str) -> Option<Served> {
    NbdServer::new(&[], "").map(|server| server.mount(options))
}

/// An image of 64 MiB and a server of it.
struct NbdServer {
    bench: Bench,
    server: Child,
    alone: Alone,
}

impl NbdServer {
    /// A server of `nbdkit`. `None` and a line of output if it is not available.
    fn new(options: &[&str], parameters: &str) -> Option<Self> {
        Self::of("nbdkit", |bench| of_nbdkit(bench, options, parameters))
    }

    /// A server of `qemu-nbd`, which survives lost connections; `nbdkit` may end by an assertion.
    fn qemu() -> Option<Self> {
        Self::of("qemu-nbd", |bench| {
            let socket = bench.path("socket").display().to_string();
            let words = ["--persistent", "--shared=16", "--format=raw", "-k", &socket, "a.img"];
            words.map(str::to_owned).to_vec()
        })
    }

    /// A rotational device with one transfer at a time, 3 ms each.
    fn rotating() -> Option<Self> {
        let server = Self::new(&["-t", "1", "--filter=delay"], "rdelay=3ms wdelay=3ms")?;
        server.proxy(|flags| flags | ROTATIONAL);
        Some(server)
    }

    /// The mount uses a proxy, where clients see these flags.
    fn proxy(&self, flags: fn(u16) -> u16) -> Proxy {
        Proxy::new(&self.bench.path("proxy"), &self.bench.path("socket"), flags)
    }

    fn of(program: &str, arguments: impl FnOnce(&Bench) -> Vec<String>) -> Option<Self> {
        let alone = alone();
        if !is_root("a mount by FUSE") || tool(program, ["--version"]).is_none() {
            return None;
        }
        let bench = Bench::new();
        bench.image("a.img", "ext4", "64M");
        let mut server = Command::new(program);
        server.args(arguments(&bench)).current_dir(bench.directory.path());
        server.stdin(Stdio::null()).stderr(Stdio::null());
        let server = server.spawn().expect("the server starts");
        Served::wait_until(|| bench.path("socket").exists());
        Some(Self { bench, server, alone })
    }

    fn mount(self, options: &str) -> Served {
        let proxy = self.bench.path("proxy");
        let socket = if proxy.exists() { proxy } else { self.bench.path("socket") };
        let target = format!("nbd+unix:///?socket={}&connections=1", socket.display());
        Served::of(self.bench, &target, options, Some(self.server), self.alone)
    }
}

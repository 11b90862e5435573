//! A volume that the program serves; unmounted when dropped.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};

use crate::common::{Bench, is_root, text, tool};

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// One test mounts at a time. A process that another test starts has the open files of all tests for a moment, and their mounts are busy.
static ALONE: Mutex<()> = Mutex::new(());

/// A test that mounts holds the lock from the start of its first process.
pub(crate) type Alone = MutexGuard<'static, ()>;

pub(crate) fn alone() -> Alone {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Root may enable it.
const ENABLE_IO_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// The former value of the parameter, and the lock of the programs that change it.
fn enable_io_uring() -> (Vec<u8>, std::fs::File) {
    let lock = std::fs::File::open(ENABLE_IO_URING).expect("it was there");
    lock.lock().expect("a lock");
    let was = std::fs::read(ENABLE_IO_URING).expect("it was there");
    std::fs::write(ENABLE_IO_URING, "Y").expect("root may");
    (was, lock)
}

/// The transport of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    DevFuse,
    IoUring,
}

thread_local! {
    /// The transport of the mounts of this test.
    static TRANSPORT: Cell<Transport> = const { Cell::new(Transport::DevFuse) };
}

pub(crate) struct Served {
    bench: Bench,
    daemon: std::cell::RefCell<Option<Child>>,
    target: String,
    /// The server of the image, if there is one.
    server: Option<Child>,
    _alone: Alone,
}

/// Whether FUSE is available. If not, a line says so.
pub(crate) fn can_mount() -> bool {
    let has_fuse = Path::new("/dev/fuse").exists();
    if !has_fuse {
        eprintln!("SKIPPED: there is no /dev/fuse");
    }
    has_fuse && is_root("a mount by FUSE")
}

/// An image `a.img` of 32 MiB and directories for mounts with daemons in the background. `None` and a line of output if FUSE is not
/// available.
pub(crate) fn bench_with(directories: &[&str]) -> Option<(Bench, Alone)> {
    if !can_mount() {
        return None;
    }
    let alone = alone();
    let bench = Bench::new();
    bench.image("a.img", "ext4", "32M");
    for name in directories {
        std::fs::create_dir(bench.path(name)).expect("mkdir");
    }
    Some((bench, alone))
}

impl Served {
    /// Run a test over a transport. If the transport is not available, a line says so.
    pub(crate) fn over(transport: Transport, test: fn()) {
        if transport == Transport::IoUring && !Path::new(ENABLE_IO_URING).exists() {
            eprintln!("SKIPPED: the kernel has no FUSE over io_uring (Linux 6.14)");
            return;
        }
        TRANSPORT.set(transport);
        test();
    }

    /// A new image, mounted with options. `None` and a line of output if FUSE is not available.
    pub(crate) fn new(kind: &str, size: &str, options: &str) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let alone = alone();
        let bench = Bench::new();
        bench.image("a.img", kind, size);
        Some(Self::of(bench, "a.img", options, None, alone))
    }

    /// As above, with two striped files of 32 MiB.
    pub(crate) fn striped(options: &str) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let alone = alone();
        let bench = Bench::new();
        for name in ["a.0", "a.1"] {
            std::fs::File::create(bench.path(name)).and_then(|file| file.set_len(32 << 20)).expect("a file");
        }
        let target = "stripe:a.0,a.1";
        bench.run(&format!("mkfs -t ext4 {target}"));
        Some(Self::of(bench, target, options, None, alone))
    }

    /// Mount the image. `server` ends with the bench.
    pub(crate) fn of(bench: Bench, target: &str, options: &str, server: Option<Child>, alone: Alone) -> Self {
        std::fs::create_dir(bench.path("at")).expect("mkdir");
        let served = Self { bench, daemon: None.into(), target: target.to_owned(), server, _alone: alone };
        served.mount(options);
        served
    }

    /// The daemon runs in the foreground, so that its process is known.
    fn mount(&self, options: &str) {
        let over_io_uring = TRANSPORT.get() == Transport::IoUring;
        let options = format!("{options},io_uring={}", if over_io_uring { "on" } else { "off" });
        let was_enabled = over_io_uring.then(enable_io_uring);
        let mut command = self.bench.diorite(["mount", "-f", "-o", &options, &self.target, "at"]);
        let log = std::fs::File::options().create(true).append(true).open(self.bench.path("log"));
        command.stderr(log.expect("the log"));
        let mut child = command.spawn().expect("the program starts");
        let start = Instant::now();
        while !self.is_mounted() {
            assert!(child.try_wait().expect("wait").is_none(), "the daemon ended");
            assert!(start.elapsed() < TIME_LIMIT, "it does not mount");
            std::thread::yield_now();
        }
        *self.daemon.borrow_mut() = Some(child);
        // The mount exists before the daemon and the kernel have agreed on options, and before the daemon answers `status`.
        std::fs::metadata(self.at()).expect("it is served");
        if let Some((was_enabled, _lock)) = was_enabled {
            std::fs::write(ENABLE_IO_URING, was_enabled).expect("as it was");
        }
    }

    pub(crate) fn bench(&self) -> &Bench {
        &self.bench
    }

    pub(crate) fn at(&self) -> PathBuf {
        self.bench.path("at")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.at().join(name)
    }

    pub(crate) fn is_mounted(&self) -> bool {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("procfs");
        mounts.lines().any(|line| line.split(' ').nth(4).is_some_and(|at| Path::new(at) == self.at()))
    }

    /// All users can search the directories above it.
    pub(crate) fn open_to_all(&self) {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(self.bench.directory.path(), mode).expect("chmod");
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.daemon(), signal).expect("kill");
    }

    fn daemon(&self) -> Pid {
        Pid::from_child(self.daemon.borrow().as_ref().expect("it is served"))
    }

    /// Threads of the daemon that serve requests.
    pub(crate) fn threads(&self) -> usize {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.daemon().as_raw_nonzero()));
        let names =
            tasks.expect("procfs").map(|task| std::fs::read(task.expect("a task").path().join("comm")));
        names.filter(|name| name.as_ref().is_ok_and(|name| name == b"fuse\n")).count()
    }

    /// Maximum memory of the daemon in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.daemon().as_raw_nonzero()));
        let status = status.expect("procfs");
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a line");
        line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()).expect("KiB") << 10
    }

    /// Limit the descriptors of the daemon to this number and its open ones. Returns the former limit.
    pub(crate) fn limit_descriptors(&self, most: Option<u64>) -> Option<u64> {
        // The daemon has inherited the other limit.
        let maximum = getrlimit(Resource::Nofile).maximum;
        prlimit(Some(self.daemon()), Resource::Nofile, Rlimit { current: most, maximum })
            .expect("root may")
            .current
    }

    pub(crate) fn is_over_io_uring() -> bool {
        TRANSPORT.get() == Transport::IoUring
    }

    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub(crate) fn wait_until(mut condition: impl FnMut() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < TIME_LIMIT);
            std::thread::yield_now();
        }
    }

    pub(crate) fn wait_until_ended(&self) {
        let mut daemon = self.daemon.borrow_mut();
        let status = daemon.as_mut().expect("it is served").wait().expect("wait");
        assert!(status.success(), "the daemon: {status}");
        *daemon = None;
    }

    fn unmount(&self) {
        self.bench.run("umount at");
        self.wait_until_ended();
    }

    /// Unmount, check, mount once more.
    pub(crate) fn again(self, options: &str) -> Self {
        self.unmount();
        self.bench.must_be_clean("a.img");
        self.mount_again(options)
    }

    /// Mount the image if it is not mounted.
    pub(crate) fn mount_again(self, options: &str) -> Self {
        self.mount(options);
        self
    }

    /// End the server, and use the image itself: `nbdkit` may end by an assertion when a client is killed in a transfer.
    pub(crate) fn on_the_image(mut self) -> Self {
        self.end_server();
        "a.img".clone_into(&mut self.target);
        self
    }

    fn end_server(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// Kill the daemon, which ends.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
        let mut daemon = self.daemon.borrow_mut().take().expect("it was served");
        Self::wait_until(|| daemon.try_wait().expect("wait").is_some());
        self.bench.run("umount -l at");
    }

    /// Kill the daemon, and keep the mount. Returns whether the daemon ends in time.
    pub(crate) fn kill_only(&self, limit: Duration) -> bool {
        self.signal(Signal::KILL);
        let start = Instant::now();
        let mut daemon = self.daemon.borrow_mut();
        let has_ended = |child: &mut Child| child.try_wait().expect("wait").is_some();
        while daemon.as_mut().is_some_and(|child| !has_ended(child)) && start.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
        if daemon.as_mut().is_some_and(has_ended) {
            *daemon = None;
        }
        daemon.is_none()
    }

    /// Kill the daemon, and mount once more, which replays the journal.
    pub(crate) fn kill_and_again(self) -> Self {
        self.kill();
        self.mount_again("")
    }

    /// Unmount a damaged volume, which `umount` reports. Returns the daemon's log.
    pub(crate) fn end_with_log(self) -> String {
        let said = self.bench.fail("umount at", 1);
        assert!(said.contains("at: unmounted, but"), "{said}");
        let _ = self.daemon.borrow_mut().take().expect("it is served").wait();
        text(&self.bench.read("log"))
    }

    /// Unmount; the volume is clean.
    pub(crate) fn must_end_clean(self) {
        self.unmount();
        let image = self.bench.path("a.img");
        if !image.exists() {
            self.bench.run(&format!("check {}", self.target));
            return;
        }
        self.bench.must_be_clean("a.img");
        let Some(output) = tool("dumpe2fs", ["-h".as_ref(), image.as_os_str()]) else { return };
        assert!(!text(&output.stdout).contains("needs_recovery"), "it was not closed");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(mut child) = self.daemon.borrow_mut().take() {
            if self.is_mounted() {
                let output = self.bench.diorite(["umount", "-l", "at"]).output();
                eprintln!("unmounted: {:?}", output.map(|output| text(&output.stderr)));
            }
            let _ = child.kill();
            let _ = child.wait();
            eprintln!("{}", text(&self.bench.read("log")));
        }
        self.end_server();
    }
}

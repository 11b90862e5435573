//! Mounts by this process.
//!
//! The tests need root and `/dev/fuse`.
#![allow(clippy::disallowed_methods, reason = "files of the host")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use diorite::Filesystem;
use diorite::mkfs::{Flavor, MkfsOptions};
use diorite_mount::{IoUring, Mount, MountOptions, mounted};
use rustix::fs::XattrFlags;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;

/// One at a time: the limit of descriptors is one of the process.
static ALONE: Mutex<()> = Mutex::new(());

/// A new volume and a directory to mount it on; `None`, and a visible line, where nothing can be mounted.
fn volume() -> Option<(TempDir, PathBuf, PathBuf, MutexGuard<'static, ()>)> {
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: a mount needs root and /dev/fuse");
        return None;
    }
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = tempfile::tempdir().expect("a temporary directory");
    let (image, at) = (place.path().join("a.img"), place.path().join("at"));
    std::fs::create_dir(&at).expect("mkdir");
    let made = Filesystem::create(&image, 64 << 20, &MkfsOptions::new(Flavor::Ext4)).expect("mkfs");
    made.close().expect("close");
    Some((place, image, at, alone))
}

fn mount(image: &Path, at: &Path, options: &MountOptions) -> Mount {
    Mount::new(image.to_str().expect("text"), at, options).expect("mount")
}

/// The kernel's view of a mount. The mount itself is not queried, because it may not answer.
fn mountinfo(at: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("procfs");
    let is_it = |line: &&str| line.split(' ').nth(4).is_some_and(|path| at == Path::new(path));
    mounts.lines().find(is_it).expect("it is mounted").to_owned()
}

/// The number of its connection.
fn connection(at: &Path) -> u32 {
    let line = mountinfo(at);
    let numbers = line.split(' ').nth(2).and_then(|numbers| numbers.split_once(':')).expect("two numbers");
    let number = |text: &str| text.parse::<u32>().expect("a number");
    number(numbers.0) << 20 | number(numbers.1)
}

/// End a connection by force.
fn abort(connection: u32) {
    let control = tempfile::tempdir().expect("a temporary directory");
    let none = None::<&std::ffi::CStr>;
    rustix::mount::mount("none", control.path(), "fusectl", MountFlags::empty(), none).expect("fusectl");
    let _ = std::fs::write(control.path().join(format!("{connection}/abort")), "1");
    let _ = rustix::mount::unmount(control.path(), UnmountFlags::DETACH);
}

/// The kernel unmounts with requests and waits for the answers, which no thread gave: the one that dropped it could not even be killed.
#[test]
fn a_mount_that_is_dropped_before_it_is_served_is_unmounted() {
    let plain = Some("name".to_owned());
    for (io_uring, source_name) in [(IoUring::Off, None), (IoUring::Off, plain), (IoUring::Auto, None)] {
        let Some((_place, image, at, _alone)) = volume() else { return };
        let options = MountOptions { io_uring, source_name, ..MountOptions::default() };
        let mount = mount(&image, &at, &options);
        let connection = connection(&at);
        let (sender, ended) = channel();
        std::thread::spawn(move || {
            drop(mount);
            sender.send(())
        });
        let ended = ended.recv_timeout(Duration::from_secs(20));
        if ended.is_err() {
            abort(connection);
        }
        assert!(ended.is_ok(), "{options:?}: it waits for itself");
        assert_eq!(mounted::on(&at), None, "{options:?}");
        Filesystem::open(&image).expect("it is closed").close().expect("close");
    }
}

/// The kernel asks for as much at a time as it was allowed when it mounted, at most; of more than a thread has memory for it got an error.
#[test]
fn the_kernel_reads_no_more_at_a_time_than_there_is_memory_for() {
    let Some((_place, image, at, _alone)) = volume() else { return };
    let options = MountOptions { io_uring: IoUring::Off, ..MountOptions::default() };
    let mount = mount(&image, &at, &options);
    let line = mountinfo(&at);
    assert!(line.contains(&format!(",max_read={}", 512 << 10)), "{line}");
    drop(mount);
}

/// Wait until all have ended, for some time.
fn have_ended(programs: &mut [Child]) -> bool {
    let start = Instant::now();
    while !programs.iter_mut().all(|program| program.try_wait().expect("wait").is_some()) {
        if start.elapsed() > Duration::from_secs(20) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// A thread that waits for write-back needs another one, which had a descriptor of its own: without one, neither the wait nor any other call of the
/// mount ended, also when there were descriptors again.
#[test]
fn what_waits_for_write_back_ends_without_descriptors_for_more_threads() {
    if !is_own_process!() {
        return;
    }
    const WRITE_AND_LOOK: &str = "select(undef, undef, undef, 0.01) until -d $ARGV[0]; \
        sysopen(F, $ARGV[1], 0102) or die; sysseek(F, 1 << 20, 0); syswrite(F, 'x' x 10000) or die; \
        (sysseek(F, 1, 3) or die) == 1 << 20 or die";
    let Some((place, image, at, _alone)) = volume() else { return };
    let options = MountOptions { io_uring: IoUring::Off, ..MountOptions::default() };
    let mount = mount(&image, &at, &options);
    let connection = connection(&at);
    // They begin when the limit stands, and have their own.
    let begin = place.path().join("begin");
    let start = |index: usize| {
        let mut perl = Command::new("perl");
        perl.args(["-e", WRITE_AND_LOOK]).arg(&begin).arg(at.join(format!("file{index}")));
        perl.spawn().expect("perl")
    };
    let mut programs: Vec<Child> = (0..30).map(start).collect();
    let served = std::thread::spawn(move || mount.serve().map_err(|error| error.to_string()));
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..before }).expect("setrlimit");
    std::fs::create_dir(&begin).expect("mkdir");
    let ended = have_ended(&mut programs);
    setrlimit(Resource::Nofile, before).expect("setrlimit");
    if !ended {
        abort(connection);
        let _ = have_ended(&mut programs);
    }
    diorite_mount::fuse::detach(&at, true).expect("unmount");
    assert_eq!(served.join().expect("it ends"), Ok(()));
    assert!(ended, "they wait for each other");
    let status = |mut program: Child| program.wait().expect("wait");
    assert!(programs.into_iter().all(|program| status(program).success()));
}

/// A program is written, given capabilities and closed, as by `cp -a` over an older one: what the kernel wrote back then took them.
#[test]
fn capabilities_that_a_file_is_given_before_it_is_written_back_stay() {
    const NAME: &str = "security.capability";
    // Revision 2, effective, `cap_net_raw`.
    let mut capabilities = [0; 20];
    (capabilities[0], capabilities[3], capabilities[5]) = (1, 2, 0x20);
    let Some((_place, image, at, _alone)) = volume() else { return };
    let options = MountOptions { io_uring: IoUring::Off, ..MountOptions::default() };
    let mount = mount(&image, &at, &options);
    let served = std::thread::spawn(move || mount.serve().map_err(|error| error.to_string()));
    let path = at.join("program");
    std::fs::write(&path, "older").expect("write");
    let mut program = std::fs::File::options().write(true).truncate(true).open(&path).expect("open");
    program.write_all(b"newer").expect("write");
    rustix::fs::fsetxattr(&program, NAME, &capabilities, XattrFlags::empty()).expect("setxattr");
    drop(program);
    let mut value = [0; 32];
    let given = rustix::fs::getxattr(&path, NAME, &mut value);
    std::fs::write(&path, "another").expect("write");
    let left = rustix::fs::getxattr(&path, NAME, &mut [0; 32]);
    diorite_mount::fuse::detach(&at, true).expect("unmount");
    assert_eq!(served.join().expect("it ends"), Ok(()));
    assert_eq!(given, Ok(20), "{value:?}");
    assert_eq!(left, Err(rustix::io::Errno::NODATA), "another program has them");
}

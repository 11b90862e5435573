//! Processes that share a pool, killed at chosen moments. (`cargo xtask torture pool` kills at random moments.)
//!
//! A child is this program again, as the test `child` with a task in its environment. It reports each step by a line, and waits to be killed.

use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use diorite::front_end::open_target;
use diorite::{BlockDevice, DirectIo, Extent, ExtentKind, Filesystem, FilesystemOptions, Sector};
use diorite_device::OpenOptions as DeviceOptions;
use diorite_device::Sharing;
use diorite_pool::{BufferPool, Error, FileId, PageFile};
use tempfile::TempDir;

const TASK: &str = "DIORITE_POOL_TASK";
const PAGE: usize = 4096;

struct Shared {
    _directory: TempDir,
    path: PathBuf,
    pool: BufferPool,
    file: FileId,
}

fn open(pool: &BufferPool, path: &Path) -> FileId {
    let file = match path.to_str().and_then(|path| path.split_once('#')) {
        Some((image, extents)) => {
            PageFile::shared_extents(image, &extents_from(extents), DirectIo::Preferred)
        }
        None => PageFile::shared(path, DirectIo::Preferred),
    };
    pool.open_file("pages", file.expect("the test is set up")).expect("the test is set up")
}

/// Extents as a word: sector and length of each.
fn word_of(extents: &[Extent]) -> String {
    let of = |extent: &Extent| format!("{}+{}", extent.sector.expect("data").0, extent.len);
    extents.iter().map(of).collect::<Vec<_>>().join(",")
}

fn extents_from(word: &str) -> Vec<Extent> {
    let mut offset = 0;
    let extent = |word: &str| {
        let (sector, len) = word.split_once('+').expect("sector and length");
        let (sector, len) = (Sector(sector.parse().expect("a number")), len.parse().expect("a number"));
        let extent = Extent { offset, len, sector: Some(sector), kind: ExtentKind::Data };
        offset += len;
        extent
    };
    word.split(',').map(extent).collect()
}

/// A volume in an image, open in this process, with a fragmented file of 64 pages.
fn volume(image: &Path) -> Filesystem {
    let options = DeviceOptions::read_write().sharing(Sharing::Cooperating);
    let device: std::sync::Arc<dyn BlockDevice> =
        open_target(image.to_str().expect("a name"), &options).expect("the image");
    FilesystemOptions::new().open_device(device).expect("the test is set up")
}

/// A pool over a file in an image: the blocks of the file are opened by each process, and any may die.
#[test]
fn processes_share_a_file_in_an_image() {
    let directory = TempDir::new().expect("the test is set up");
    let image = directory.path().join("disk.img");
    Filesystem::create(&image, 16 << 20, &diorite::mkfs::MkfsOptions::default())
        .and_then(Filesystem::close)
        .expect("the test is set up");
    let filesystem = volume(&image);
    let create = |path: &str| filesystem.create_file(path).expect("the test is set up");
    let (pages, other) = (create("/pages"), create("/other"));
    for at in (0..64).step_by(8).map(|page| page * PAGE as u64) {
        for file in [&pages, &other] {
            file.write_all_at(&vec![1; 8 * PAGE], at).expect("the test is set up");
            file.sync_all().expect("the test is set up");
        }
    }
    let extents = pages.extents().expect("the test is set up");
    assert!(extents.len() > 1, "it is fragmented");
    let hole = &extents[1..];
    assert!(PageFile::shared_extents(image.to_str().expect("a name"), hole, DirectIo::Preferred).is_err());
    pages.drop_cached(0, u64::MAX).expect("the test is set up");

    let path = PathBuf::from(format!("{}#{}", image.display(), word_of(&extents)));
    let pool =
        BufferPool::options().page_bytes(PAGE).pages(16).shared(true).create().expect("the test is set up");
    let file = open(&pool, &path);
    let shared = Shared { _directory: directory, path, pool, file };
    let pool = &shared.pool;
    for number in 0..64 {
        pool.fetch_exclusive(file.page(number)).unwrap()[..2].fill(number as u8 + 2);
    }
    kill(start(&shared, "whole-then-half"));
    kill(start(&shared, "half"));
    assert!(pool.fetch(file.page(3)).unwrap().iter().all(|byte| *byte == 8), "what was whole stays");
    pool.flush(file).unwrap();
    pool.check_invariants().unwrap();

    let (mut found, mut theirs) = (vec![0; 64 * PAGE], vec![0; 64 * PAGE]);
    pages.read_exact_at(&mut found, 0).unwrap();
    other.read_exact_at(&mut theirs, 0).unwrap();
    assert!(theirs.iter().all(|byte| *byte == 1), "the blocks of others are as they were");
    for (number, page) in found.chunks(PAGE).enumerate() {
        let start = if number == 3 { 8 } else { number as u8 + 2 };
        assert!(
            page[..2] == [start; 2] && page[2..].iter().all(|byte| *byte == if number == 3 { 8 } else { 1 })
        );
    }
    drop((pages, other));
    filesystem.close().unwrap();
}

fn shared() -> Shared {
    let directory = TempDir::new().expect("the test is set up");
    let path = directory.path().join("pages");
    let file =
        std::fs::OpenOptions::new().write(true).create_new(true).open(&path).expect("the test is set up");
    file.set_len(64 * PAGE as u64).expect("the test is set up");
    let pool =
        BufferPool::options().page_bytes(PAGE).pages(16).shared(true).create().expect("the test is set up");
    let file = open(&pool, &path);
    Shared { _directory: directory, path, pool, file }
}

/// Start a child, and wait until it has done its task.
fn start(shared: &Shared, task: &str) -> Child {
    let memory = format!("/proc/{}/fd/{}", std::process::id(), shared.pool.as_fd().as_raw_fd());
    let mut child = Command::new(std::env::current_exe().expect("the test is set up"))
        .args(["--exact", "processes::child", "--nocapture"])
        .env(TASK, format!("{task} {memory} {}", shared.path.display()))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test is set up");
    let lines = BufReader::new(child.stdout.take().expect("the test is set up")).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.ends_with("done")), "the child does its task");
    child
}

fn kill(mut child: Child) {
    child.kill().expect("the test is set up");
    child.wait().expect("the test is set up");
}

#[test]
fn child() {
    let Ok(task) = std::env::var(TASK) else { return };
    let words: Vec<_> = task.split(' ').collect();
    let [task, memory, path] = words[..] else { panic!("{task}") };
    let memory = std::fs::OpenOptions::new().read(true).write(true).open(memory).unwrap();
    let pool = BufferPool::attach(memory.as_fd().try_clone_to_owned().unwrap()).unwrap();
    let file = open(&pool, Path::new(path));
    let done = || -> ! {
        println!("\ndone");
        loop {
            std::thread::park();
        }
    };
    match task {
        "half" => {
            let mut page = pool.fetch_exclusive(file.page(3)).unwrap();
            page[..PAGE / 2].fill(9);
            done();
        }
        "whole-then-half" => {
            pool.fetch_exclusive(file.page(3)).unwrap().fill(8);
            let mut page = pool.fetch_exclusive(file.page(3)).unwrap();
            page[..PAGE / 2].fill(9);
            done();
        }
        "hold" => {
            let _guards = [pool.fetch(file.page(3)).unwrap(), pool.fetch(file.page(3)).unwrap()];
            let _pins: Vec<_> = (4..12).map(|number| pool.pin(file.page(number)).unwrap()).collect();
            done();
        }
        "new" => {
            let mut page = pool.create_page(file.page(3)).unwrap();
            page[..PAGE / 2].fill(9);
            done();
        }
        "attach" => done(),
        "execute" => {
            let mut page = pool.fetch_exclusive(file.page(3)).unwrap();
            page[..PAGE / 2].fill(9);
            let _ = std::os::unix::process::CommandExt::exec(
                Command::new("sh").args(["-c", "echo done; exec sleep 1000"]),
            );
            panic!("sh is there");
        }
        "without-descriptors" => {
            let mut page = pool.fetch_exclusive(file.page(3)).unwrap();
            page[..PAGE / 2].fill(9);
            let no_more = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
            rustix::process::setrlimit(rustix::process::Resource::Nofile, no_more).unwrap();
            assert_eq!(pool.recover(), 0, "this process and its parent live");
            assert_eq!((pool.stats().deaths, pool.stats().processes), (0, 2));
            done();
        }
        other => panic!("{other}"),
    }
}

/// A clean page that a dead process was changing is read again; a dirty one is what its last whole change left.
#[test]
fn a_half_changed_page_is_as_it_was() {
    for (task, dirty_before, wanted) in
        [("half", false, 1), ("half", true, 2), ("whole-then-half", false, 8), ("new", false, 1)]
    {
        let shared = shared();
        let Shared { pool, file, .. } = &shared;
        pool.create_page(file.page(3)).unwrap().fill(1);
        pool.flush(*file).unwrap();
        if dirty_before {
            pool.fetch_exclusive(file.page(3)).unwrap().fill(2);
        }
        let child = start(&shared, task);
        assert!(pool.peek(file.page(3), |page| page.bytes::<1>(0)).is_none(), "it is being changed");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let page = pool.fetch(file.page(3)).unwrap();
                assert!(page.iter().all(|byte| *byte == wanted), "{task}: {}, {}", page[0], page[PAGE - 1]);
            });
            kill(child);
            let start = Instant::now();
            waiting.join().unwrap();
            assert!(start.elapsed() < Duration::from_secs(10), "waited on the dead");
        });
        pool.recover();
        assert_eq!((pool.stats().deaths, pool.stats().processes), (1, 1));
        pool.check_invariants().unwrap();
        pool.flush(*file).unwrap();
        let mut page = vec![0; PAGE];
        let on_disk = diorite::HostFile::options().read(true).open(&shared.path).unwrap();
        on_disk.read_exact_at(&mut page, 3 * PAGE as u64).unwrap();
        assert!(page.iter().all(|byte| *byte == wanted), "{task} on the disk");
    }
}

/// A page that another process has pinned stays in its frame when the one that was changing it dies.
#[test]
fn a_pinned_page_survives_its_writer() {
    let shared = shared();
    let Shared { pool, file, .. } = &shared;
    pool.create_page(file.page(3)).unwrap().fill(1);
    pool.flush(*file).unwrap();
    let pin = pool.pin(file.page(3)).unwrap();
    kill(start(&shared, "half"));
    assert!(pin.read().iter().all(|byte| *byte == 1));
    pin.write().unwrap().fill(5);
    drop(pin);
    assert!(pool.fetch(file.page(3)).unwrap().iter().all(|byte| *byte == 5));
    assert_eq!(pool.stats().restored_pages, 1);
}

/// Shared guards and pins of a dead process are in no one's way.
#[test]
fn holds_of_the_dead_are_gone() {
    let shared = shared();
    let Shared { pool, file, .. } = &shared;
    let child = start(&shared, "hold");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| pool.fetch_exclusive(file.page(3)).unwrap().fill(7));
        kill(child);
        writer.join().unwrap();
    });
    let pins: Vec<_> = (20..36).map(|number| pool.pin(file.page(number)).unwrap()).collect();
    drop(pins);
    pool.check_invariants().unwrap();
}

/// A process without a free descriptor could not look whether others live, and took them and itself for dead: their pages were given to others.
#[test]
fn no_process_is_dead_because_it_cannot_be_looked_at() {
    let shared = shared();
    let Shared { pool, file, .. } = &shared;
    let child = start(&shared, "without-descriptors");
    assert!(pool.peek(file.page(3), |page| page.bytes::<1>(0)).is_none(), "the child has it");
    kill(child);
    assert!(pool.fetch(file.page(3)).is_ok());
    assert_eq!((pool.stats().deaths, pool.stats().processes), (1, 1));
}

/// A process that executes another program keeps its number and its start time, and has no page any more.
#[test]
fn a_process_that_executes_a_program_holds_nothing() {
    let shared = shared();
    let Shared { pool, file, .. } = &shared;
    let child = start(&shared, "execute");
    assert!(pool.fetch(file.page(3)).unwrap().iter().all(|byte| *byte == 0), "as it was");
    assert_eq!((pool.stats().deaths, pool.stats().processes), (1, 1));
    kill(child);
    pool.check_invariants().unwrap();
}

/// A process of another PID namespace sees no process of the pool, and took them all for dead.
#[test]
fn a_process_of_another_pid_namespace_is_refused() {
    let shared = shared();
    let _page = shared.pool.fetch_exclusive(shared.file.page(3)).unwrap();
    let memory = format!("/proc/{}/fd/{}", std::process::id(), shared.pool.as_fd().as_raw_fd());
    let program = std::env::current_exe().unwrap();
    let script = format!(
        "exec 7<>{memory}; exec unshare --pid --fork --mount-proc {} --exact processes::other_namespace --nocapture",
        program.display()
    );
    let output = Command::new("sh").args(["-c", &script]).env(TASK, "7").output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if text.contains("unshare failed") {
        println!("SKIPPED: PID namespaces need root");
        return;
    }
    assert!(text.contains("another PID namespace"), "{text}");
    assert_eq!((shared.pool.stats().deaths, shared.pool.stats().processes), (0, 1));
}

#[test]
fn other_namespace() {
    let Some(fd) = std::env::var(TASK).ok().and_then(|fd| fd.parse::<i32>().ok()) else { return };
    let memory =
        std::fs::OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{fd}")).unwrap();
    println!("{:?}", BufferPool::attach(memory.into()).map(drop));
}

/// A pool has 16 processes at a time; a dead one makes place for another.
#[test]
fn a_dead_process_makes_place() {
    let shared = shared();
    let mut children: Vec<_> = (0..15).map(|_| start(&shared, "attach")).collect();
    let fd = || shared.pool.as_fd().try_clone_to_owned().unwrap();
    assert!(matches!(BufferPool::attach(fd()), Err(Error::Full(_))));
    kill(children.remove(7));
    let second = BufferPool::attach(fd()).unwrap();
    let file = open(&second, &shared.path);
    second.create_page(file.page(1)).unwrap().fill(6);
    assert!(shared.pool.fetch(shared.file.page(1)).unwrap().iter().all(|byte| *byte == 6));
    children.into_iter().for_each(kill);
}

/// A file of one process cannot be in a pool of several, and no one else writes a file while they have it open.
#[test]
fn files_of_a_shared_pool_are_opened_to_be_shared() {
    let shared = shared();
    let other = shared.path.with_extension("other");
    let host = diorite::HostFile::options().read(true).write(true).create(true);
    let alone = host.open(&other).unwrap();
    assert!(matches!(shared.pool.open_file("other", alone), Err(Error::InvalidArgument(_))));
    host.open(&shared.path).expect_err("a writer that does not cooperate");
}

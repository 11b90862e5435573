//! Suites `mount` and `mount-tmpfs`: programs on mounts of one image by `diorite mount`, by the kernel and by fuse2fs.
//!
//! A run mounts the image and starts this program again (`cargo xtask bench-in DIRECTORY`), which runs the programs in the
//! mounted directory, one after the other, and prints their figures as a JSON object.

use std::path::Path;
use std::time::Instant;

use serde_json::{Map, Value, json};

use super::Options;
use super::measure::{build, run as run_command, words};
use super::rates::{
    Bound, RateSuite, Runner, TargetRatio, build_worker, can_mount, figures, fuse2fs, kernel, make_image,
};
use crate::command::{call, shell};
use crate::mount::transport::Transport;
use crate::target;

/// Size of fio's file: larger than the range that a job of 4 KiB transfers touches.
const SIZE: &str = "1G";
/// Size of the part that is read from memory.
const CACHED_SIZE: &str = "256M";
/// Seconds of each fio job.
const SECONDS: u32 = 2;
/// Files that are created, listed and removed.
const FILES: u32 = 50_000;
/// Files of fuse2fs, which is slow.
const FUSE_FILES: u32 = 5000;
/// Single-byte writes for each of the files.
const SINGLE_BYTES_PER_FILE: u32 = 8;
/// The targets for a daemon's memory and for a round trip over `io_uring`.
const DAEMON_MIB_MAX: u32 = 100;
const ROUND_TRIP_US_MAX: u32 = 12;
/// Files of the tree that is unpacked and removed.
const TREE_FILES: u32 = 8000;

/// Options of `mke2fs`.
const FORMAT: &str = "-t ext4 -N 200000 -E lazy_itable_init=0,lazy_journal_init=0";

/// Jobs of fio, by figure: transfers of 1 MiB are measured in bytes, others in transfers. fuse2fs has no direct I/O and uses the host's page cache,
/// so each job begins with an empty cache and a writer ends with a sync.
const JOBS: &[(&str, &str)] = &[
    ("read_1m", "--rw=read --bs=1M"),
    ("write_1m", "--rw=write --bs=1M --end_fsync=1"),
    ("read_1m_depth8", "--rw=read --bs=1M --ioengine=libaio --iodepth=8"),
    ("write_1m_depth8", "--rw=write --bs=1M --ioengine=libaio --iodepth=8 --end_fsync=1"),
    ("randread_4k", "--rw=randread --bs=4k"),
    ("randwrite_4k", "--rw=randwrite --bs=4k --end_fsync=1"),
    ("randread_4k_depth32", "--rw=randread --bs=4k --ioengine=libaio --iodepth=32"),
    ("randwrite_4k_depth32", "--rw=randwrite --bs=4k --ioengine=libaio --iodepth=32 --end_fsync=1"),
];

/// On the disk of the benchmarks' directory.
pub(super) fn on_disk(options: &Options) -> Result<(), String> {
    suite("mount", "on the disk", &options.directory, options)
}

/// On tmpfs, where the CPU limits the rates.
pub(super) fn on_tmpfs(options: &Options) -> Result<(), String> {
    let directory = options.directory.join("tmpfs");
    if !can_mount() {
        println!("SKIPPED: mount-tmpfs: it needs root");
        return Ok(());
    }
    let path = directory.to_string_lossy();
    shell(&format!("mkdir -p {path} && mount -t tmpfs -o size=4G tmpfs {path}"))?;
    let result = suite("mount-tmpfs", "on tmpfs", &directory, options);
    call(&["umount", &path])?;
    result
}

fn suite(name: &'static str, place: &str, directory: &Path, options: &Options) -> Result<(), String> {
    if !can_mount() {
        println!("SKIPPED: {name}: the kernel's mount needs root");
        return Ok(());
    }
    let worker = build_worker()?;
    build(&["--package", "diorite-cli"])?;
    let archive = make_archive(directory)?;
    let image = make_image(&directory.join("mount.img"), 1536, FORMAT)?;
    let mount = directory.join("mount").to_string_lossy().into_owned();
    let this = std::env::current_exe().map_err(|error| error.to_string())?.to_string_lossy().into_owned();
    let command = |files: u32, daemon: &str| {
        let files = files.to_string();
        words(&[&this, "bench-in", &mount, &worker, &archive, &files, daemon])
    };
    let on = |runner: Runner, files, daemon: &str| Runner { command: command(files, daemon), ..runner };
    let mut runners = Vec::new();
    for transport in Transport::enabled() {
        let (before, after) = ours(&image, &mount, transport.option())?;
        let runner = Runner { name: transport.runner(), before: vec![before], after, ..Runner::default() };
        runners.push(on(runner, FILES, "diorite mount"));
    }
    let names: Vec<&'static str> = runners.iter().map(|runner| runner.name).collect();
    runners.push(on(kernel(&worker, "", &image, &mount), FILES, ""));
    runners.push(on(fuse2fs(&worker, "", &image, &mount), FUSE_FILES, "fuse2fs "));
    let about = format!(
        "One ext4 image {place}, mounted by `diorite mount` (over `/dev/fuse`, and `diorite-uring` over io_uring), by the kernel (loop \
         device with direct I/O) and by fuse2fs, all with their defaults. fio for {SECONDS} s each, overwriting or reading a file of \
         {SIZE}: 1 MiB transfers in bytes a second, 4 KiB in transfers a second. fuse2fs has no direct I/O: its transfers go through the \
         host's page cache. For all mounts the cache is dropped before each job, and writers end with a measured fsync. cached_read_4k: \
         {CACHED_SIZE} from the kernel's page cache. names: {FILES} empty files (fuse2fs: {FUSE_FILES}, which favours it), one thread; stat \
         is the first one after a close, first_list counts the names for the first time, readdir counts them again, and list also keeps \
         them. appends: 4 KiB and fsync, 8 threads, each with its file. single_bytes: `dd bs=1`, \
         writes a second. untar and remove: {TREE_FILES} files of 0.2 KB to 1.5 MB, a second, with `syncfs`. round_trip_us: `statfs`. \
         daemon_peak_mib: VmHWM of the daemon at the end. `e2fsck -fn` after each run of `diorite mount`."
    );
    let targets = names.into_iter().flat_map(targets).collect();
    let suite = RateSuite { name, title: "Programs on a mount", about, runners, targets };
    let result = suite.run(options);
    let _ = (std::fs::remove_file(&image), std::fs::remove_file(&archive));
    result
}

/// The shell commands that start `diorite mount`, and those that end it and check the image.
pub(super) fn ours(image: &str, mount: &str, options: &str) -> Result<(String, Vec<String>), String> {
    let diorite =
        target::directory().join("release/diorite").canonicalize().map_err(|error| error.to_string())?;
    let before = format!("mkdir -p {mount} && {} mount -o {options} {image} {mount}", diorite.display());
    // The daemon ends after it has written everything to the image.
    let after = [
        format!("umount {mount} && while fuser -s {image}; do sleep 0.05; done"),
        format!("e2fsck -fn {image} >/dev/null 2>&1"),
    ];
    Ok((before, after.to_vec()))
}

fn targets(ours: &'static str) -> Vec<TargetRatio> {
    let against = |peer, figure, bound| TargetRatio::of(figure, ours, peer, Bound::AtLeast(bound));
    let kernel = [
        ("read_1m", 0.8),
        ("write_1m", 0.8),
        ("read_1m_depth8", 0.9),
        ("write_1m_depth8", 0.9),
        ("cached_read_4k", 0.95),
        ("single_bytes", 0.95),
    ];
    let fuse = [
        ("read_1m", 3.0),
        ("write_1m", 3.0),
        ("randread_4k", 2.0),
        ("randwrite_4k", 2.0),
        ("randread_4k_depth32", 2.0),
        ("randwrite_4k_depth32", 2.0),
        ("appends", 3.0),
        ("create", 3.0),
        ("stat", 10.0),
        ("readdir", 3.0),
        ("unlink", 4.0),
        ("untar", 4.0),
        ("remove", 4.0),
    ];
    // These figures are reported without a target.
    let listed = ["first_list", "list"];
    let stated = fuse.map(|(figure, _)| figure).into_iter().filter(|figure| !figure.ends_with("_1m"));
    let stated = stated.chain(listed).map(|figure| against("kernel", figure, 0.0));
    // A round trip over io_uring takes at most 12 us, and the daemon at most 100 MiB.
    let own = [("round_trip_us", "round_trip_us_max"), ("daemon_peak_mib", "daemon_mib_max")];
    let own = own.into_iter().filter(|(figure, _)| ours == "diorite-uring" || *figure != "round_trip_us");
    let own = own.map(|(figure, most)| TargetRatio {
        ours: ("", ours, figure),
        peer: ("", ours, most),
        bound: Bound::AtMost(1.0),
    });
    let kernel = kernel.map(|(figure, bound)| against("kernel", figure, bound));
    let fuse = fuse.map(|(figure, bound)| against("fuse2fs", figure, bound));
    let listed = listed.map(|figure| against("fuse2fs", figure, 0.0));
    kernel.into_iter().chain(fuse).chain(listed).chain(stated).chain(own).collect()
}

/// A tar file of a tree of files of mixed sizes, in the host's page cache.
fn make_archive(directory: &Path) -> Result<String, String> {
    let tree = directory.join("source");
    super::tree::make_mixed_tree(&tree, TREE_FILES)?;
    let archive = directory.join("source.tar").to_string_lossy().into_owned();
    let tree = tree.to_string_lossy();
    shell(&format!("tar -cf {archive} -C {tree} . && rm -r {tree} && cat {archive} >/dev/null"))?;
    Ok(archive)
}

/// `bench-in DIRECTORY WORKER ARCHIVE FILES DAEMON`: run the programs and print their figures.
pub(crate) fn run_in(arguments: &[String]) -> Result<(), String> {
    let [directory, worker, archive, files, daemon] = arguments else {
        return Err("bench-in is for `cargo xtask bench mount`".to_owned());
    };
    let files: u32 = files.parse().map_err(|_| "bench-in: a number of files is needed")?;
    let mut found = Map::new();
    run_jobs(&format!("{directory}/fio"), &mut found)?;
    for workload in ["round-trips".to_owned(), format!("names {files}"), format!("appends 8 {SECONDS}")] {
        let line = format!("{worker} {workload} --in {directory}");
        let words: Vec<&str> = line.split(' ').collect();
        let text = call(&words)?;
        let value: Value =
            serde_json::from_str(text.trim()).map_err(|error| format!("the worker's figures: {error}"))?;
        found.extend(value.as_object().cloned().unwrap_or_default());
    }
    let bytes = files * SINGLE_BYTES_PER_FILE;
    let singles = format!("dd if=/dev/zero of={directory}/singles bs=1 count={bytes} status=none");
    found.insert("single_bytes".to_owned(), json!(f64::from(bytes) / seconds(&singles)?));
    let untar =
        format!("mkdir {directory}/tree && tar -xf {archive} -C {directory}/tree && sync -f {directory}");
    found.insert("untar".to_owned(), json!(f64::from(TREE_FILES) / seconds(&untar)?));
    let remove = format!("rm -r {directory}/tree && sync -f {directory}");
    found.insert("remove".to_owned(), json!(f64::from(TREE_FILES) / seconds(&remove)?));
    if !daemon.is_empty() {
        let peak = format!(
            "grep VmHWM $(pgrep -f '{daemon}.*{directory}' | sed 's|.*|/proc/&/status|') | awk '{{ print $2 / 1024 }}' | sort -n | tail -1"
        );
        let peak = shell(&peak)?;
        let peak: f64 = peak.trim().parse().map_err(|_| format!("the memory of `{daemon}`: `{peak}`"))?;
        found.insert("daemon_peak_mib".to_owned(), json!(peak));
        found.insert("daemon_mib_max".to_owned(), json!(DAEMON_MIB_MAX));
        found.insert("round_trip_us_max".to_owned(), json!(ROUND_TRIP_US_MAX));
    }
    println!("{}", Value::Object(found));
    Ok(())
}

/// The jobs of fio, on a file of their own.
fn run_jobs(file: &str, found: &mut Map<String, Value>) -> Result<(), String> {
    let fio = |options: &str| {
        let line = format!("fio --name=job --filename={file} --output-format=json {options}");
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        run_command(&words)
    };
    fio(&format!("--size={SIZE} --rw=write --bs=1M --end_fsync=1"))?;
    for (figure, options) in JOBS {
        shell("sync && echo 3 > /proc/sys/vm/drop_caches")?;
        let run = fio(&format!("--size={SIZE} --time_based --runtime={SECONDS} --direct=1 {options}"))?;
        let reached = figures(&run)?;
        let value = if options.contains("--bs=1M") { reached["mb_per_s"] * 1e6 } else { reached["iops"] };
        found.insert((*figure).to_owned(), json!(value));
    }
    let cached = format!(
        "--size={CACHED_SIZE} --time_based --runtime={SECONDS} --rw=randread --bs=4k --pre_read=1 --invalidate=0"
    );
    found.insert("cached_read_4k".to_owned(), json!(figures(&fio(&cached)?)?["iops"]));
    call(&["rm", file]).map(drop)
}

/// The duration of a shell command.
fn seconds(line: &str) -> Result<f64, String> {
    let start = Instant::now();
    shell(line)?;
    Ok(start.elapsed().as_secs_f64())
}

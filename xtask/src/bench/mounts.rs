//! Suites `mount` and `mount-tmpfs`: programs on a mount by `diorite mount`, on the kernel's and on fuse2fs's, of the same image.
//!
//! A run mounts the image and starts this program again (`cargo xtask bench-in DIRECTORY`), which runs the programs in the
//! mounted directory, one after the other, and prints what they reached as a JSON object.

use std::path::Path;
use std::time::Instant;

use serde_json::{Map, Value, json};

use super::Options;
use super::contender::figures;
use super::measure::{call, run as run_command};
use super::rates::{
    Bound, RateSuite, Runner, TargetRatio, build_worker, can_mount, fuse2fs, kernel, make_image,
};

/// Bytes of the file that fio moves, as fio writes them.
const SIZE: &str = "256M";
/// Seconds of each fio job.
const SECONDS: u32 = 2;
/// Files that are created, looked at and removed.
const FILES: u32 = 50_000;
/// Files of fuse2fs, which takes its time.
const FUSE_FILES: u32 = 5000;
/// Bytes that are written one by one.
const SINGLE_BYTES: u32 = 400_000;
/// Files of the tree that is unpacked and removed.
const TREE_FILES: u32 = 8000;

/// Figure, options of fio, and whether it counts bytes a second rather than transfers.
const FIO: &[(&str, &str, bool)] = &[
    ("read_1m", "--rw=read --bs=1M --direct=1", true),
    ("write_1m", "--rw=write --bs=1M --direct=1", true),
    ("read_1m_depth8", "--rw=read --bs=1M --direct=1 --ioengine=libaio --iodepth=8", true),
    ("write_1m_depth8", "--rw=write --bs=1M --direct=1 --ioengine=libaio --iodepth=8", true),
    ("randread_4k", "--rw=randread --bs=4k --direct=1", false),
    ("randwrite_4k", "--rw=randwrite --bs=4k --direct=1", false),
    ("randread_4k_depth32", "--rw=randread --bs=4k --direct=1 --ioengine=libaio --iodepth=32", false),
    ("randwrite_4k_depth32", "--rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=32", false),
    // After the pass that wrote the file through the cache: from memory.
    ("cached_read_4k", "--rw=randread --bs=4k --pre_read=1 --invalidate=0", false),
];

/// On the disk of the benchmarks' directory.
pub(super) fn on_disk(options: &Options) -> Result<(), String> {
    let directory = options.directory.canonicalize().map_err(|error| error.to_string())?;
    suite("mount", "on the disk", &directory, options)
}

/// On tmpfs, where the CPU is what there is.
pub(super) fn on_tmpfs(options: &Options) -> Result<(), String> {
    let directory = options.directory.canonicalize().map_err(|error| error.to_string())?.join("tmpfs");
    if !can_mount() {
        println!("SKIPPED: mount-tmpfs: it needs root");
        return Ok(());
    }
    let path = directory.to_string_lossy();
    call(&["sh", "-c", &format!("mkdir -p {path} && mount -t tmpfs -o size=4G tmpfs {path}")])?;
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
    call(&["cargo", "build", "--release", "--quiet", "--package", "diorite-cli"])?;
    let diorite = Path::new("target/release/diorite").canonicalize().map_err(|error| error.to_string())?;
    let archive = make_archive(directory)?;
    let image = make_image(
        &directory.join("mount.img"),
        1536,
        "-t ext4 -N 200000 -E lazy_itable_init=0,lazy_journal_init=0",
    )?;
    let mount = directory.join("mount").to_string_lossy().into_owned();
    let this = std::env::current_exe().map_err(|error| error.to_string())?.to_string_lossy().into_owned();
    let command = |files: u32, daemon: &str| {
        let files = files.to_string();
        [this.as_str(), "bench-in", &mount, &worker, &archive, &files, daemon].map(str::to_owned).to_vec()
    };
    let on = |runner: Runner, files, daemon: &str| Runner { command: command(files, daemon), ..runner };
    let ours = Runner {
        name: "diorite",
        before: vec![format!("mkdir -p {mount} && {} mount {image} {mount}", diorite.display())],
        command: vec![],
        // The daemon goes when everything is on the image.
        after: vec![
            format!("umount {mount} && while fuser -s {image}; do sleep 0.05; done"),
            format!("e2fsck -fn {image} >/dev/null 2>&1"),
        ],
    };
    let runners = vec![
        on(ours, FILES, "diorite mount"),
        on(kernel(&worker, "", &image, &mount), FILES, ""),
        on(fuse2fs(&worker, "", &image, &mount), FUSE_FILES, "fuse2fs "),
    ];
    let about = format!(
        "One ext4 image {place}, mounted by `diorite mount`, by the kernel (loop device with direct I/O) and by fuse2fs, all with \
         their defaults. fio for {SECONDS} s each, overwriting or reading a file of {SIZE}: 1 MiB transfers in bytes a second, 4 KiB \
         in transfers a second. names: {FILES} empty files (fuse2fs: {FUSE_FILES}, which favours it), one thread. appends: 4 KiB and \
         fsync, 8 threads, each with its file. single_bytes: `dd bs=1`, writes a second. untar and remove: {TREE_FILES} files of \
         0.2 KB to 1.5 MB, a second, with `syncfs`. daemon_peak_mib: VmHWM of the daemon after all of these. `e2fsck -fn` after each run of ours."
    );
    let suite =
        RateSuite { name, title: "Programs on a mount", about, rounds: None, runners, targets: targets() };
    let result = suite.run(options);
    let _ = (std::fs::remove_file(&image), std::fs::remove_file(&archive));
    result
}

fn targets() -> Vec<TargetRatio> {
    let against = |peer, figure, bound| TargetRatio {
        ours: ("diorite", figure),
        peer: (peer, figure),
        bound: Bound::AtLeast(bound),
    };
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
    // What the kernel reaches beside that is stated, and has no bound.
    let stated = [
        "randread_4k",
        "randwrite_4k",
        "randread_4k_depth32",
        "randwrite_4k_depth32",
        "appends",
        "create",
        "stat",
        "readdir",
        "unlink",
        "untar",
        "remove",
    ];
    let kernel = kernel.map(|(figure, bound)| against("kernel", figure, bound));
    let fuse = fuse.map(|(figure, bound)| against("fuse2fs", figure, bound));
    let stated = stated.map(|figure| against("kernel", figure, 0.0));
    kernel.into_iter().chain(fuse).chain(stated).collect()
}

/// A tar file of a tree of files of mixed sizes, in the host's page cache.
fn make_archive(directory: &Path) -> Result<String, String> {
    let tree = directory.join("source");
    super::tree::make_mixed_tree(&tree, TREE_FILES)?;
    let archive = directory.join("source.tar").to_string_lossy().into_owned();
    let tree = tree.to_string_lossy();
    call(&[
        "sh",
        "-c",
        &format!("tar -cf {archive} -C {tree} . && rm -r {tree} && cat {archive} >/dev/null"),
    ])?;
    Ok(archive)
}

/// `bench-in DIRECTORY WORKER ARCHIVE FILES DAEMON`: run the programs and print their figures.
pub(crate) fn run_in(arguments: &[String]) -> Result<(), String> {
    let [directory, worker, archive, files, daemon] = arguments else {
        return Err("bench-in is for `cargo xtask bench mount`".to_owned());
    };
    let mut found = Map::new();
    let file = format!("{directory}/fio");
    let fio = |options: &str| {
        let line = format!("fio --name=job --filename={file} --size={SIZE} --output-format=json {options}");
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        run_command(&words)
    };
    fio("--rw=write --bs=1M --end_fsync=1")?;
    for (figure, options, counts_bytes) in FIO {
        let run = fio(&format!("--time_based --runtime={SECONDS} {options}"))?;
        let reached = figures(&run)?;
        let value = if *counts_bytes { reached.bandwidth } else { reached.iops };
        found.insert((*figure).to_owned(), json!(value));
    }
    call(&["rm", &file])?;
    for workload in [format!("names {files}"), format!("appends 8 {SECONDS}")] {
        let line = format!("{worker} {workload} --in {directory}");
        let words: Vec<&str> = line.split(' ').collect();
        let text = call(&words)?;
        let value: Value =
            serde_json::from_str(text.trim()).map_err(|error| format!("the worker's figures: {error}"))?;
        found.extend(value.as_object().cloned().unwrap_or_default());
    }
    let singles = format!("dd if=/dev/zero of={directory}/singles bs=1 count={SINGLE_BYTES} status=none");
    found.insert("single_bytes".to_owned(), json!(f64::from(SINGLE_BYTES) / seconds(&singles)?));
    let untar =
        format!("mkdir {directory}/tree && tar -xf {archive} -C {directory}/tree && sync -f {directory}");
    found.insert("untar".to_owned(), json!(f64::from(TREE_FILES) / seconds(&untar)?));
    let remove = format!("rm -r {directory}/tree && sync -f {directory}");
    found.insert("remove".to_owned(), json!(f64::from(TREE_FILES) / seconds(&remove)?));
    if !daemon.is_empty() {
        let peak = format!(
            "grep VmHWM $(pgrep -f '{daemon}.*{directory}' | sed 's|.*|/proc/&/status|') | awk '{{ print $2 / 1024 }}' | sort -n | tail -1"
        );
        let peak = call(&["sh", "-c", &peak])?;
        let peak: f64 = peak.trim().parse().map_err(|_| format!("the memory of `{daemon}`: `{peak}`"))?;
        found.insert("daemon_peak_mib".to_owned(), json!(peak));
    }
    println!("{}", Value::Object(found));
    Ok(())
}

/// How long a shell command takes.
fn seconds(line: &str) -> Result<f64, String> {
    let start = Instant::now();
    call(&["sh", "-c", line])?;
    Ok(start.elapsed().as_secs_f64())
}

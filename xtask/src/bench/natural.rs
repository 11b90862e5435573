//! Suites `natural` and `natural-tmpfs`: the loops that a user of the library writes, as a program outside the workspace
//! (`bench/peers/src/bin/natural.rs`), against fio on the same bytes of the image, and on the kernel's own mount of it.

use std::path::Path;

use super::Options;
use super::measure::{build, build_peers, words};
use super::rates::{
    Bound, RateSuite, Runner, TargetRatio, can_mount, loop_mount, make_image, pinned, read_directly,
    unmount_after_fio,
};
use crate::command::{call, shell};
use crate::target;

use Engine::{Psync, Ring};

const FILE_MIB: u32 = 1024;
const SECONDS: &str = "1.5";
/// The number of huge pages reserved for fio's memory while the suite runs.
const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";

/// The I/O engine of fio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    /// A system call for each transfer, memory on huge pages.
    Psync,
    /// `io_uring` with registered memory and files.
    Ring,
}

impl Engine {
    fn options(self) -> &'static str {
        match self {
            Self::Psync => "--ioengine=psync --iomem=shmhuge",
            Self::Ring => "--ioengine=io_uring --fixedbufs=1 --registerfiles=1 --iomem=mmap",
        }
    }
}

/// A workload: its name, fio's options, its threads, and for a disk and for tmpfs the engine of fio and the target ratio.
struct Row {
    name: &'static str,
    fio: &'static str,
    threads: u32,
    disk: (Engine, f64),
    tmpfs: (Engine, f64),
}

impl Row {
    /// Whether each thread has one transfer in flight.
    fn waits_for_each(&self) -> bool {
        !self.fio.contains("--iodepth")
    }
}

const fn row(
    name: &'static str,
    fio: &'static str,
    threads: u32,
    disk: (Engine, f64),
    tmpfs: (Engine, f64),
) -> Row {
    Row { name, fio, threads, disk, tmpfs }
}

const ROWS: &[Row] = &[
    row("read-1m", "--rw=read --bs=1m", 1, (Psync, 0.97), (Psync, 0.97)),
    row("write-1m", "--rw=write --bs=1m", 1, (Psync, 0.97), (Psync, 0.97)),
    row("randread-4k", "--rw=randread --bs=4k", 1, (Psync, 1.0), (Psync, 0.8)),
    row("randwrite-4k", "--rw=randwrite --bs=4k", 1, (Psync, 1.0), (Psync, 0.8)),
    row("randread-4k-qd32", "--rw=randread --bs=4k --iodepth=32", 1, (Ring, 0.97), (Ring, 0.9)),
    row("randwrite-4k-qd32", "--rw=randwrite --bs=4k --iodepth=32", 1, (Ring, 0.97), (Ring, 0.9)),
    row("randread-4k-8x", "--rw=randread --bs=4k", 8, (Ring, 0.97), (Psync, 0.9)),
    row("randwrite-4k-8x", "--rw=randwrite --bs=4k", 8, (Ring, 0.97), (Psync, 0.9)),
    row("randread-4k-2x", "--rw=randread --bs=4k", 2, (Ring, 0.97), (Psync, 0.9)),
];

/// The storage that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storage {
    Disk,
    Tmpfs,
}

pub(super) fn on_disk(options: &Options) -> Result<(), String> {
    run(Storage::Disk, &options.directory, options)
}

pub(super) fn on_tmpfs(options: &Options) -> Result<(), String> {
    run(Storage::Tmpfs, Path::new("/dev/shm"), options)
}

fn run(storage: Storage, directory: &Path, options: &Options) -> Result<(), String> {
    build_peers(Some("natural"))?;
    build(&["--package", "diorite-cli"])?;
    let image = directory.join("natural.img");
    let reserved = std::fs::read_to_string(HUGE_PAGES).unwrap_or_default();
    let _ = shell(&format!("echo 64 > {HUGE_PAGES}"));
    let result = Bytes::make(&image).and_then(|bytes| suite(storage, &image, &bytes).run(options));
    let _ = shell(&format!("echo {} > {HUGE_PAGES}", reserved.trim()));
    let _ = (std::fs::remove_file(&image), std::fs::remove_dir(image.with_extension("mount")));
    result
}

/// The range that all runners use: its offset in the file and on the image, and its length.
struct Bytes {
    in_file: u64,
    on_image: u64,
    len: u64,
}

impl Bytes {
    /// Make an ext4 image with one file. The range is the longest part of the file that is contiguous on the image.
    fn make(image: &Path) -> Result<Self, String> {
        // Data is contiguous across groups if no backup superblock lies between them.
        let features =
            "-t ext4 -b 4096 -G 64 -O sparse_super2 -E num_backup_sb=0,lazy_itable_init=0,nodiscard";
        make_image(image, FILE_MIB + FILE_MIB / 4, features)?;
        let (path, diorite) = (image.display(), target::file("release/diorite"));
        let copy = format!(
            "dd if=/dev/zero bs=1M count={FILE_MIB} status=none | {diorite} cp --direct - {path}:/file && \
             e2fsck -fn {path} && sync"
        );
        shell(&copy)?;
        let text = call(&[&diorite, "extents", "--json", &format!("{path}:/file")])?;
        let json: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))?;
        let mut runs: Vec<Self> = Vec::new();
        for extent in json["extents"].as_array().into_iter().flatten() {
            let number = |name: &str| extent[name].as_u64().unwrap_or(0);
            let next =
                Self { in_file: number("offset"), on_image: number("device_offset"), len: number("length") };
            match runs.last_mut() {
                Some(last)
                    if last.in_file + last.len == next.in_file
                        && last.on_image + last.len == next.on_image =>
                {
                    last.len += next.len;
                }
                _ => runs.push(next),
            }
        }
        runs.into_iter().max_by_key(|run| run.len).ok_or_else(|| format!("{path}:/file has no extents"))
    }
}

fn suite(storage: Storage, image: &Path, bytes: &Bytes) -> RateSuite {
    let (mut runners, mut targets) = (Vec::new(), Vec::new());
    let names: &[&str] = match storage {
        Storage::Disk if can_mount() => &["diorite", "fio", "kernel-ext4"],
        _ => &["diorite", "fio"],
    };
    for row in ROWS {
        let (engine, bound) = if storage == Storage::Disk { row.disk } else { row.tmpfs };
        runners.extend(names.iter().map(|name| runner(name, row, engine, image, bytes)));
        let of = |figure, peer, bound| TargetRatio::of(figure, "diorite", peer, bound).on(row.name);
        targets.push(of("mb_per_s", "fio", Bound::AtLeast(bound)));
        targets.push(of("cpu_s_per_gb", "kernel-ext4", Bound::AtMost(1.0)));
    }
    // The rate of two threads divided by that of one. It has no target.
    targets.extend(names.iter().map(|name| TargetRatio {
        ours: ("randread-4k-2x", name, "mb_per_s"),
        peer: ("randread-4k", name, "mb_per_s"),
        bound: Bound::AtLeast(0.0),
    }));
    RateSuite {
        name: if storage == Storage::Disk { "natural" } else { "natural-tmpfs" },
        title: "Direct I/O in a user's loops",
        about: format!(
            "All runners use the same {} MiB of the image, which is read directly before each run.\n",
            bytes.len >> 20
        ),
        runners,
        targets,
    }
}

fn runner(name: &'static str, row: &Row, engine: Engine, image: &Path, bytes: &Bytes) -> Runner {
    let (path, mount) = (image.display().to_string(), image.with_extension("mount").display().to_string());
    let is_mounted = name == "kernel-ext4";
    let command = if name == "diorite" {
        let (offset, len) = (bytes.in_file.to_string(), bytes.len.to_string());
        words(&[&target::file("peers/release/natural"), row.name, &path, "/file", &offset, &len, SECONDS])
    } else {
        let (file, offset) = if is_mounted {
            (format!("{mount}/file"), bytes.in_file)
        } else {
            (path.clone(), bytes.on_image)
        };
        let line = format!(
            "fio --name={} --filename={file} --offset={offset} --size={} --runtime={SECONDS} --direct=1 --time_based \
             --norandommap --invalidate=0 --output-format=json --numjobs={} --group_reporting {} {}",
            row.name,
            bytes.len,
            row.threads,
            row.fio,
            engine.options()
        );
        line.split_whitespace().map(str::to_owned).collect()
    };
    let mount_before = is_mounted.then(|| loop_mount(&path, &mount));
    Runner {
        workload: row.name,
        name,
        before: [read_directly(image)].into_iter().chain(mount_before).collect(),
        command: if row.waits_for_each() { pinned(command, row.threads) } else { command },
        after: is_mounted.then(|| unmount_after_fio(&mount)).into_iter().collect(),
    }
}

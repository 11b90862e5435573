//! Suites `natural` and `natural-tmpfs`: the loops that a user of the library writes, as a program outside the workspace
//! (`bench/peers/src/bin/natural.rs`), against fio on the same bytes of the image, and on the kernel's own mount of it.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::Options;
use super::contender::{Figures, figures};
use super::direct::pinned;
use super::measure::{Run, build, build_peers, call, run as run_command, shell, words};
use super::rates::{can_mount, loop_mount, make_image, unmount_after_fio};
use super::store::{self, Figure, Series, Target};
use crate::target;

use Engine::{Psync, Ring};

const FILE_MIB: u32 = 1024;
const SECONDS: &str = "1.5";
/// Huge pages that are reserved for fio's memory while the suite runs.
const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";

/// What fio moves data with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    /// One call a transfer, memory on huge pages.
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

/// A workload of both programs: its name, how fio is asked for it, the threads, and the peer and the least ratio on a disk and on tmpfs.
struct Row {
    name: &'static str,
    fio: &'static str,
    threads: u32,
    disk: (Engine, f64),
    tmpfs: (Engine, f64),
}

impl Row {
    /// Whether each thread has one transfer in flight; with more, it is a queue's business to deal with a CPU that is interrupted.
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
    row(
        "randread-4k-8x",
        "--rw=randread --bs=4k --numjobs=8 --group_reporting",
        8,
        (Ring, 0.97),
        (Psync, 0.9),
    ),
    row(
        "randwrite-4k-8x",
        "--rw=randwrite --bs=4k --numjobs=8 --group_reporting",
        8,
        (Ring, 0.97),
        (Psync, 0.9),
    ),
    row(
        "randread-4k-2x",
        "--rw=randread --bs=4k --numjobs=2 --group_reporting",
        2,
        (Ring, 0.97),
        (Psync, 0.9),
    ),
];

/// The target of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Disk,
    Tmpfs,
}

impl Place {
    fn suite(self) -> &'static str {
        match self {
            Self::Disk => "natural",
            Self::Tmpfs => "natural-tmpfs",
        }
    }

    fn peer(self, row: &Row) -> (Engine, f64) {
        match self {
            Self::Disk => row.disk,
            Self::Tmpfs => row.tmpfs,
        }
    }

    fn contenders(self) -> &'static [&'static str] {
        match self {
            Self::Disk if can_mount() => &["diorite", "fio", "kernel-ext4"],
            _ => &["diorite", "fio"],
        }
    }

    fn targets(self) -> Vec<Target> {
        let target = |row: &Row, peer, figure, bound| Target {
            workload: row.name,
            contender: "diorite",
            peer,
            figure,
            bound,
        };
        let speed = ROWS.iter().map(|row| target(row, "fio", Figure::Bandwidth, self.peer(row).1));
        let cpu = ROWS.iter().map(|row| target(row, "kernel-ext4", Figure::CpuPerGb, 1.0));
        if self == Self::Disk { speed.chain(cpu).collect() } else { speed.collect() }
    }
}

pub(super) fn on_disk(options: &Options) -> Result<(), String> {
    run(Place::Disk, &options.directory, options.rounds)
}

pub(super) fn on_tmpfs(options: &Options) -> Result<(), String> {
    run(Place::Tmpfs, Path::new("/dev/shm"), options.rounds)
}

fn run(place: Place, directory: &Path, rounds: u32) -> Result<(), String> {
    build_peers(Some("natural"))?;
    build(&["--package", "diorite-cli"])?;
    let image = directory.join("natural.img");
    let reserved = std::fs::read_to_string(HUGE_PAGES).unwrap_or_default();
    let _ = shell(&format!("echo 64 > {HUGE_PAGES}"));
    let result = Bytes::make(&image).and_then(|bytes| measure(place, &image, &bytes, rounds));
    let _ = shell(&format!("echo {} > {HUGE_PAGES}", reserved.trim()));
    let _ = (std::fs::remove_file(&image), std::fs::remove_dir(mount_point(&image)));
    result
}

/// The bytes that all work on: of the file, and of the image.
struct Bytes {
    in_file: u64,
    on_image: u64,
    len: u64,
}

impl Bytes {
    /// An ext4 image with one file; the longest part of the file that is contiguous on the image.
    fn make(image: &Path) -> Result<Self, String> {
        // Without backup superblocks in between, data is contiguous across groups.
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

/// The command of a contender.
fn command(contender: &str, place: Place, row: &Row, image: &Path, bytes: &Bytes) -> Vec<String> {
    let image_path = image.display().to_string();
    if contender == "diorite" {
        let (offset, span) = (bytes.in_file.to_string(), bytes.len.to_string());
        return words(&[
            &target::file("peers/release/natural"),
            row.name,
            &image_path,
            "/file",
            &offset,
            &span,
            SECONDS,
        ]);
    }
    let (file, offset) = if contender == "fio" {
        (image_path, bytes.on_image)
    } else {
        (format!("{}/file", mount_point(image).display()), bytes.in_file)
    };
    let line = format!(
        "fio --name={} --filename={file} --offset={offset} --size={} --runtime={SECONDS} --direct=1 --time_based \
         --norandommap --invalidate=0 --output-format=json {} {}",
        row.name,
        bytes.len,
        row.fio,
        place.peer(row).0.options()
    );
    line.split_whitespace().map(str::to_owned).collect()
}

fn mount_point(image: &Path) -> PathBuf {
    image.with_extension("mount")
}

/// Run one contender once.
fn run_once(contender: &str, row: &Row, command: &[String], image: &Path) -> Result<Run, String> {
    let command = if row.waits_for_each() { pinned(command.to_vec(), row.threads) } else { command.to_vec() };
    if contender != "kernel-ext4" {
        return run_command(&command);
    }
    let mount = mount_point(image);
    let mount = mount.to_string_lossy();
    shell(&loop_mount(&image.to_string_lossy(), &mount))?;
    let run = run_command(&command);
    shell(&unmount_after_fio(&mount))?;
    run
}

fn measure(place: Place, image: &Path, bytes: &Bytes, rounds: u32) -> Result<(), String> {
    let store = store::directory(place.suite())?;
    let contenders = place.contenders();
    let (mut series, mut commands): (Vec<Series>, _) = (Vec::new(), String::new());
    for row in ROWS {
        let mut of_row: Vec<Vec<Figures>> = vec![Vec::new(); contenders.len()];
        for round in 0..rounds as usize {
            // Whatever caches lie below this machine have seen all of the file, and lately.
            let file = format!("if={}", image.display());
            call(&["dd", &file, "of=/dev/null", "bs=1M", "iflag=direct", "status=none"])?;
            for turn in 0..contenders.len() {
                let index = (turn + round) % contenders.len();
                let (contender, command) =
                    (contenders[index], command(contenders[index], place, row, image, bytes));
                let run = run_once(contender, row, &command, image)?;
                store::write(&store.join(format!("{}-{contender}-{round}.json", row.name)), &run.stdout)?;
                let figures = figures(&run)?;
                println!(
                    "{} {contender} round {round}: {:.0} MB/s, {:.0} IOPS, {:.3} CPU s/GB, own {:.3}",
                    row.name,
                    figures.bandwidth / 1e6,
                    figures.iops,
                    figures.cpu_s_per_gb,
                    figures.own_cpu_s_per_gb,
                );
                of_row[index].push(figures);
                if round == 0 {
                    let _ = writeln!(commands, "- `{}`", command.join(" "));
                }
            }
        }
        series.extend(contenders.iter().zip(of_row).map(|(&contender, rounds)| Series {
            workload: row.name,
            contender,
            rounds,
        }));
    }
    let report = store::report(&series, &place.targets()) + &scaling(&series);
    let text = format!(
        "# Direct I/O in a user's loops\n\n{}\nAll work on the same {} MiB of the image. \
         `cargo xtask bench {}` does this again.\n\n{report}\nCommands:\n{commands}",
        store::versions(),
        bytes.len >> 20,
        place.suite(),
    );
    store::finish(&store, &text, &report)
}

/// How much faster two threads are than one, of each contender.
fn scaling(series: &[Series]) -> String {
    let mut text = String::from("\n| two threads / one (randread-4k) | measured |\n|---|---|\n");
    let of = |workload, contender| series.iter().find(|s| (s.workload, s.contender) == (workload, contender));
    let mut contenders: Vec<_> = series.iter().map(|entry| entry.contender).collect();
    contenders.dedup();
    contenders.sort_unstable();
    contenders.dedup();
    for contender in contenders {
        let (Some(one), Some(two)) = (of("randread-4k", contender), of("randread-4k-2x", contender)) else {
            continue;
        };
        let ratios = one.rounds.iter().zip(&two.rounds).map(|(one, two)| two.bandwidth / one.bandwidth);
        let _ = writeln!(text, "| {contender} | {:.2} |", super::measure::median(ratios));
    }
    text
}

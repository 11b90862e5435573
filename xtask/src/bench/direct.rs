//! Suite `direct`: direct I/O through ext2 against the same requests on the bare image and on the kernel's own ext2.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::Options;
use super::contender::{CommandFor, Contender, Figures, Workload, figures, workload};
use super::measure::{build, call, run as run_command, words};
use super::rates::{can_mount, loop_mount, unmount_after_fio};
use super::store::{self, Figure, Series, Target};
use crate::target;

const WORKLOADS: &[Workload] = &[
    workload("read-1m", "rw=read\nbs=1m\niodepth=1\n", 1),
    workload("write-1m", "rw=write\nbs=1m\niodepth=1\n", 1),
    workload("randread-4k-qd1", "rw=randread\nbs=4k\niodepth=1\nnorandommap=1\n", 1),
    workload("randread-4k-qd32", "rw=randread\nbs=4k\niodepth=32\nnorandommap=1\n", 1),
    workload(
        "randread-4k-8x",
        "rw=randread\nbs=4k\niodepth=1\nnorandommap=1\nnumjobs=8\ngroup_reporting=1\n",
        8,
    ),
    workload(
        "randwrite-4k-8x",
        "rw=randwrite\nbs=4k\niodepth=1\nnorandommap=1\nnumjobs=8\ngroup_reporting=1\n",
        8,
    ),
];

/// Size of the file in MiB; the image has a quarter more.
const FILE_MIB: u32 = 1024;

const RATIOS: &[(&str, &str, Figure, f64)] = &[
    ("read-1m", "raw", Figure::Bandwidth, 0.97),
    ("write-1m", "raw", Figure::Bandwidth, 0.97),
    ("randread-4k-qd1", "fio-image", Figure::Bandwidth, 0.95),
    ("randread-4k-qd32", "fio-image", Figure::Bandwidth, 0.95),
    ("randread-4k-8x", "fio-image", Figure::Bandwidth, 0.95),
    ("randwrite-4k-8x", "fio-image", Figure::Bandwidth, 0.95),
    ("read-1m", "fio-image", Figure::CpuPerGb, 1.1),
    ("write-1m", "fio-image", Figure::CpuPerGb, 1.1),
    ("read-1m", "kernel-ext2", Figure::Bandwidth, 1.0),
    ("write-1m", "kernel-ext2", Figure::Bandwidth, 1.0),
    ("randread-4k-qd1", "kernel-ext2", Figure::Bandwidth, 1.0),
    ("randread-4k-qd32", "kernel-ext2", Figure::Bandwidth, 1.0),
];

pub(super) fn run(options: &Options) -> Result<(), String> {
    build(&["--package", "diorite-cli"])?;
    let directory = &options.directory;
    let image = directory.join("direct.img");
    let result = make_image(&image).and_then(|()| measure(options, &image, directory));
    let _ = std::fs::remove_file(&image);
    result
}

/// An image whose blocks the host has really written.
fn make_image(image: &Path) -> Result<(), String> {
    let mib = FILE_MIB + FILE_MIB / 4;
    println!("--- making {}, {mib} MiB", image.display());
    let of = format!("of={}", image.display());
    call(&["dd", "if=/dev/zero", &of, "bs=1M", &format!("count={mib}"), "oflag=direct", "status=none"])?;
    call(&["sync"]).map(drop)
}

/// The command that puts an ext2 on the image, of the same blocks of the host each time, and in it one file that is laid out.
fn format_command(image: &Path, directory: &Path) -> Result<Vec<String>, String> {
    let layout = directory.join("layout.fio");
    let text =
        format!("[layout]\nrw=write\nbs=1m\nsize={FILE_MIB}m\ndirect=1\nend_fsync=1\nfilename=/file\n");
    store::write(&layout, &text)?;
    let (image, layout, diorite) = (image.display(), layout.display(), target::file("release/diorite"));
    let script = format!(
        "mke2fs -q -t ext2 -b 4096 -E nodiscard -F {image} && {diorite} job {layout} --on {image} && \
         e2fsck -fn {image}"
    );
    Ok(words(&["sh", "-c", &script]))
}

/// Where the file lies on the image, in bytes: users of the bare image go to the same places, since storage is slower where a
/// transfer crosses the bounds of its own units. An index block lies between the first data and the rest, which most of the file is.
fn data_offset(image: &Path) -> Result<u64, String> {
    let file = format!("{}:/file", image.display());
    let text = call(&[&target::file("release/diorite"), "extents", "--json", &file])?;
    let json: serde_json::Value = serde_json::from_str(&text).map_err(|error| format!("{file}: {error}"))?;
    let extents = json["extents"].as_array().map_or(&[][..], Vec::as_slice);
    let longest = extents.iter().max_by_key(|extent| extent["length"].as_u64());
    let number = |name: &str| longest.and_then(|extent| extent[name].as_u64());
    let offset = number("device_offset").zip(number("offset")).and_then(|(place, at)| place.checked_sub(at));
    offset.ok_or_else(|| format!("{file} has no extents"))
}

/// Who takes part, on the image, each after the command `before`; those on the bare image from `offset` on.
fn contenders(image: &Path, offset: u64, directory: &Path, before: Option<&[String]>) -> Vec<Contender> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (path, mount) = (text(image), text(&directory.join("mount")));
    let diorite = |on: String| -> CommandFor {
        Box::new(move |job| {
            let job = job.to_string_lossy();
            // What a job on the bare image destroys is made anew before the next run.
            words(&[&target::file("release/diorite"), "job", "--json", "--force", &job, "--on", &on])
        })
    };
    let fio =
        || -> CommandFor { Box::new(|job| words(&["fio", "--output-format=json", &job.to_string_lossy()])) };
    let fixed = "fixedbufs=1\nregisterfiles=1\niomem=mmap\n";
    let mut list = vec![
        Contender::new("diorite", diorite(path.clone()), "filename=/file\n".into()),
        Contender::new("raw", diorite(format!("raw:{path}")), format!("filename=/file\noffset={offset}\n")),
        Contender::new("fio-image", fio(), format!("filename={path}\noffset={offset}\n{fixed}")),
    ];
    if can_mount() {
        list.push(Contender {
            before: vec![words(&["sh", "-c", &loop_mount(&path, &mount)])],
            after: vec![words(&["sh", "-c", &unmount_after_fio(&mount)])],
            ..Contender::new("kernel-ext2", fio(), format!("filename={mount}/file\n{fixed}"))
        });
    } else {
        println!("SKIPPED: kernel-ext2: it needs root");
    }
    if let Some(before) = before {
        for contender in &mut list {
            contender.before.insert(0, before.to_vec());
        }
    }
    list
}

fn measure(options: &Options, image: &Path, directory: &Path) -> Result<(), String> {
    let store: PathBuf = store::directory("direct")?;
    let common =
        format!("size={FILE_MIB}m\ndirect=1\nioengine=io_uring\nruntime=1\ntime_based=1\ninvalidate=0\n");
    let (reads, writes): (Vec<_>, Vec<_>) = WORKLOADS.iter().partition(|workload| !workload.writes());
    let (mut series, mut commands) = (Vec::new(), String::new());
    let format = format_command(image, directory)?;
    call(&format)?;
    let offset = data_offset(image)?;
    // All contenders use the same blocks of the host. Writes to the bare image destroy its filesystem: before each run it is made
    // anew, so that what the disk had to do just before is the same for all, too.
    for (workloads, before) in [(reads, None), (writes, Some(&*format))] {
        let contenders = contenders(image, offset, directory, before);
        let (more, lines) =
            take_rounds(&store, &workloads, &contenders, &common, &[image.to_owned()], options.rounds)?;
        series.extend(more);
        commands += &lines;
    }
    let targets: Vec<_> = RATIOS
        .iter()
        .map(|&(workload, peer, figure, bound)| Target {
            workload,
            contender: "diorite",
            peer,
            figure,
            bound,
        })
        .collect();
    let report = store::report(&series, &targets);
    let text = format!("# Direct I/O through ext2\n\n{}\n{report}\nCommands:\n{commands}", store::versions());
    store::finish(&store, &text, &report)
}

/// Let the contenders take turns at each workload, `rounds` times; `files` are what they read. Raw output goes to `store`. The series, and the commands as
/// lines of a list.
pub(super) fn take_rounds(
    store: &Path,
    workloads: &[&Workload],
    contenders: &[Contender],
    common: &str,
    files: &[PathBuf],
    rounds: u32,
) -> Result<(Vec<Series>, String), String> {
    let mut series = Vec::new();
    let mut commands = String::new();
    for workload in workloads {
        let first = series.len();
        series.extend(contenders.iter().map(|c| Series {
            workload: workload.name,
            contender: c.name,
            rounds: vec![],
        }));
        for round in 0..rounds {
            // Whatever caches lie below this machine have seen all of the files, and lately: what is in them is twice as fast.
            for file in files {
                let file = format!("if={}", file.display());
                call(&["dd", &file, "of=/dev/null", "bs=1M", "iflag=direct", "status=none"])?;
            }
            for index in order(contenders.len(), round as usize) {
                let contender = &contenders[index];
                let job = store.join(format!("{}-{}.fio", workload.name, contender.name));
                let text = contender.job_file(workload) + common;
                store::write(&job, &text)?;
                let command = pinned((contender.command)(&job), workload.threads);
                let raw = store.join(format!("{}-{}-{round}.json", workload.name, contender.name));
                let figures = one_run(contender, &command, &raw)?;
                println!(
                    "{} {} round {round}: {:.0} MB/s, {:.3} CPU s/GB",
                    workload.name,
                    contender.name,
                    figures.bandwidth / 1e6,
                    figures.cpu_s_per_gb
                );
                series[first + index].rounds.push(figures);
                if round == 0 {
                    let _ = writeln!(commands, "- `{}`", command.join(" "));
                }
            }
        }
    }
    Ok((series, commands))
}

/// Who comes when in a round. What a run finds in the caches below this machine is what the run before it read, so that each comes
/// as often after each other one, as far as the rounds allow (a balanced Latin square).
fn order(contenders: usize, round: usize) -> Vec<usize> {
    let zigzag = |turn: usize| if turn % 2 == 1 { turn.div_ceil(2) } else { contenders - turn / 2 };
    let mut order: Vec<_> = (0..contenders).map(|turn| (zigzag(turn) + round) % contenders).collect();
    // An odd number of contenders is balanced by the same rounds backwards.
    if contenders % 2 == 1 && round / contenders % 2 == 1 {
        order.reverse();
    }
    order
}

/// A thread that waits for each transfer is faster on the CPU that takes the disk's interrupts than on another, by more than
/// what is to be measured: all contenders of such a workload get the last CPU.
pub(super) fn pinned(command: Vec<String>, threads: u32) -> Vec<String> {
    let last = std::thread::available_parallelism().map_or(0, |cpus| cpus.get() - 1);
    if threads > 1 || call(&["taskset", "--version"]).is_err() {
        return command;
    }
    [words(&["taskset", "-c", &last.to_string()]), command].concat()
}

fn one_run(contender: &Contender, command: &[String], raw: &Path) -> Result<Figures, String> {
    contender.prepare()?;
    let run = run_command(command);
    contender.clean_up()?;
    let run = run?;
    store::write(raw, &run.stdout)?;
    figures(&run)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn each_contender_comes_as_often_behind_each_other() {
        for contenders in 2..7 {
            let mut followers: HashMap<(usize, usize), u32> = HashMap::new();
            for round in 0..2 * contenders {
                let order = order(contenders, round);
                assert_eq!(order.iter().copied().collect::<std::collections::HashSet<_>>().len(), contenders);
                for pair in order.windows(2) {
                    *followers.entry((pair[0], pair[1])).or_default() += 1;
                }
            }
            assert_eq!(followers.len(), contenders * (contenders - 1));
            assert!(followers.values().all(|&times| times == 2), "{contenders}: {followers:?}");
        }
    }
}

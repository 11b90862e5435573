//! Suite `direct`: direct I/O through ext2 against the same requests on the bare image and on the kernel's own ext2.

use std::path::Path;

use super::Options;
use super::measure::{build, call, shell, words};
use super::rates::{
    Bound, RateSuite, Runner, TargetRatio, can_mount, loop_mount, pinned, read_directly, unmount_after_fio,
};
use super::store;
use crate::target;

use Bound::{AtLeast, AtMost};

/// Workloads: name, options of the job, threads.
const WORKLOADS: &[(&str, &str, u32)] = &[
    ("read-1m", "rw=read\nbs=1m\niodepth=1\n", 1),
    ("write-1m", "rw=write\nbs=1m\niodepth=1\n", 1),
    ("randread-4k-qd1", "rw=randread\nbs=4k\niodepth=1\nnorandommap=1\n", 1),
    ("randread-4k-qd32", "rw=randread\nbs=4k\niodepth=32\nnorandommap=1\n", 1),
    ("randread-4k-8x", "rw=randread\nbs=4k\niodepth=1\nnorandommap=1\nnumjobs=8\ngroup_reporting=1\n", 8),
    ("randwrite-4k-8x", "rw=randwrite\nbs=4k\niodepth=1\nnorandommap=1\nnumjobs=8\ngroup_reporting=1\n", 8),
];

/// Size of the file in MiB; the image has a quarter more.
const FILE_MIB: u32 = 1024;

const RATIOS: &[(&str, &str, &str, Bound)] = &[
    ("read-1m", "raw", "mb_per_s", AtLeast(0.97)),
    ("write-1m", "raw", "mb_per_s", AtLeast(0.97)),
    ("randread-4k-qd1", "fio-image", "mb_per_s", AtLeast(0.95)),
    ("randread-4k-qd32", "fio-image", "mb_per_s", AtLeast(0.95)),
    ("randread-4k-8x", "fio-image", "mb_per_s", AtLeast(0.95)),
    ("randwrite-4k-8x", "fio-image", "mb_per_s", AtLeast(0.95)),
    ("read-1m", "fio-image", "cpu_s_per_gb", AtMost(1.1)),
    ("write-1m", "fio-image", "cpu_s_per_gb", AtMost(1.1)),
    ("read-1m", "kernel-ext2", "mb_per_s", AtLeast(1.0)),
    ("write-1m", "kernel-ext2", "mb_per_s", AtLeast(1.0)),
    ("randread-4k-qd1", "kernel-ext2", "mb_per_s", AtLeast(1.0)),
    ("randread-4k-qd32", "kernel-ext2", "mb_per_s", AtLeast(1.0)),
];

pub(super) fn run(options: &Options) -> Result<(), String> {
    build(&["--package", "diorite-cli"])?;
    let image = options.directory.join("direct.img");
    let result = suite(&image, &options.directory).and_then(|suite| suite.run(options));
    let _ = std::fs::remove_file(&image);
    result
}

fn suite(image: &Path, directory: &Path) -> Result<RateSuite, String> {
    let mib = FILE_MIB + FILE_MIB / 4;
    println!("--- making {}, {mib} MiB", image.display());
    let of = format!("of={}", image.display());
    call(&["dd", "if=/dev/zero", &of, "bs=1M", &format!("count={mib}"), "oflag=direct", "status=none"])?;
    let format = format_command(image, directory)?;
    shell(&format!("sync && {format}"))?;
    let offset = data_offset(image)?;
    if !can_mount() {
        println!("SKIPPED: kernel-ext2: it needs root");
    }
    let mut runners = Vec::new();
    for &workload in WORKLOADS {
        runners.extend(runners_of(workload, image, offset, directory, &format)?);
    }
    let ratio =
        |&(workload, peer, figure, bound)| TargetRatio::of(figure, "diorite", peer, bound).on(workload);
    Ok(RateSuite {
        name: "direct",
        title: "Direct I/O through ext2",
        about: "`diorite`: a file on ext2. `raw`: the same requests on the bare image. `fio-image`: fio on the bare image. `kernel-ext2`: fio on the \
                kernel's mount. All use the same blocks of the host. Before each run the image is read directly; before a write test it is also \
                formatted, because writes to the bare image destroy the filesystem.\n"
            .to_owned(),
        rounds: None,
        runners,
        targets: RATIOS.iter().map(ratio).collect(),
    })
}

/// The shell command that makes an ext2 with one file on the image, each time on the same blocks.
fn format_command(image: &Path, directory: &Path) -> Result<String, String> {
    let layout = directory.join("layout.fio");
    let text =
        format!("[layout]\nrw=write\nbs=1m\nsize={FILE_MIB}m\ndirect=1\nend_fsync=1\nfilename=/file\n");
    store::write(&layout, &text)?;
    let (image, layout, diorite) = (image.display(), layout.display(), target::file("release/diorite"));
    Ok(format!(
        "mke2fs -q -t ext2 -b 4096 -E nodiscard -F {image} && {diorite} job {layout} --on {image} && \
         e2fsck -fn {image}"
    ))
}

/// The offset of the file on the image. Runners on the bare image use the same offsets, since storage is slower where a transfer
/// crosses the boundary of its own blocks. The longest extent counts: an index block lies between the first data and the rest.
fn data_offset(image: &Path) -> Result<u64, String> {
    let file = format!("{}:/file", image.display());
    let text = call(&[&target::file("release/diorite"), "extents", "--json", &file])?;
    let json: serde_json::Value = serde_json::from_str(&text).map_err(|error| format!("{file}: {error}"))?;
    let extents = json["extents"].as_array().map_or(&[][..], Vec::as_slice);
    let longest = extents.iter().max_by_key(|extent| extent["length"].as_u64());
    let number = |name: &str| longest.and_then(|extent| extent[name].as_u64());
    let offset =
        number("device_offset").zip(number("offset")).and_then(|(device, at)| device.checked_sub(at));
    offset.ok_or_else(|| format!("{file} has no extents"))
}

/// The runners of a workload, with their job files.
fn runners_of(
    (workload, options, threads): (&'static str, &str, u32),
    image: &Path,
    offset: u64,
    directory: &Path,
    format: &str,
) -> Result<Vec<Runner>, String> {
    let store = store::directory("direct")?;
    let (path, mount) = (image.display(), directory.join("mount").display().to_string());
    let fixed = "fixedbufs=1\nregisterfiles=1\niomem=mmap\n";
    let mut list = vec![
        ("diorite", Some(path.to_string()), "filename=/file\n".to_owned()),
        ("raw", Some(format!("raw:{path}")), format!("filename=/file\noffset={offset}\n")),
        ("fio-image", None, format!("filename={path}\noffset={offset}\n{fixed}")),
    ];
    if can_mount() {
        list.push(("kernel-ext2", None, format!("filename={mount}/file\n{fixed}")));
    }
    let mut runners = Vec::new();
    for (name, on, target) in list {
        let job = store.join(format!("{workload}-{name}.fio"));
        let common = "direct=1\nioengine=io_uring\nruntime=1\ntime_based=1\ninvalidate=0\n";
        store::write(&job, &format!("[{workload}]\n{options}{target}size={FILE_MIB}m\n{common}"))?;
        let job = job.to_string_lossy();
        let command = match &on {
            // Each run may overwrite the bare image.
            Some(on) => {
                words(&[&target::file("release/diorite"), "job", "--json", "--force", &job, "--on", on])
            }
            None => words(&["fio", "--output-format=json", &job]),
        };
        let is_mounted = name == "kernel-ext2";
        let format = options.contains("write").then(|| format.to_owned());
        let mount_before = is_mounted.then(|| loop_mount(&path.to_string(), &mount));
        let before = format.into_iter().chain([read_directly(image)]).chain(mount_before).collect();
        let after = is_mounted.then(|| unmount_after_fio(&mount)).into_iter().collect();
        runners.push(Runner { workload, name, before, command: pinned(command, threads), after });
    }
    Ok(runners)
}

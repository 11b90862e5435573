//! Suite `eight-limited`: one stream over eight devices against the sum of the devices' rates, and against one thread that reads
//! them into the kernel's page cache without a copy.
//!
//! The devices are loop devices on tmpfs. The kernel limits each of them to the same rate, as a disk does, so the stream reaches their
//! sum only if all of them are busy all the time.

use std::path::{Path, PathBuf};

use super::Options;
use super::measure::{build, build_peers, words};
use super::rates::{Bound, RateSuite, Runner, TargetRatio, can_mount};
use crate::command::{call, shell};
use crate::target;

const DEVICES: u64 = 8;
const DEVICE_MIB: u64 = 256;
const FILE_MIB: u64 = 1536;
const SECONDS: &str = "4";
/// The rate limit of a device.
const LIMIT_MB_PER_S: u64 = 100;

pub(super) fn run(options: &Options) -> Result<(), String> {
    if !can_mount() {
        println!("SKIPPED: eight-limited: loop devices need root");
        return Ok(());
    }
    build_peers(Some("natural"))?;
    build(&["--package", "diorite-cli"])?;
    let devices = Devices::attach(Path::new("/dev/shm"))?;
    let group = Group::make(&devices, LIMIT_MB_PER_S * 1_000_000)?;
    // With the chunk size of the reader each of its transfers is one transfer of a device.
    let stripe = format!("stripe:{}?chunk=1M", devices.paths.join(","));
    let diorite = target::file("release/diorite");
    let make = format!(
        "{diorite} mkfs --force -t ext4 {stripe} && \
         dd if=/dev/zero bs=1M count={FILE_MIB} status=none | {diorite} cp --direct - {stripe}:/file"
    );
    shell(&make)?;
    let enter = group.enter();
    let runner = |name, command: String| Runner {
        name,
        command: words(&["sh", "-c", &format!("{enter}exec {command}")]),
        ..Runner::default()
    };
    let reader = format!(
        "{} stream {stripe} /file 0 {} {SECONDS}",
        target::file("peers/release/natural"),
        FILE_MIB << 20
    );
    let jobs: Vec<_> = devices.paths.iter().map(|path| format!("--name={path} --filename={path}")).collect();
    let jobs = jobs.join(" ");
    let one = format!(
        "fio --output-format=json --rw=read --bs=512k --direct=1 --time_based --runtime={SECONDS} --size={}m --ioengine=io_uring --iodepth=32 \
         --fixedbufs=1 --name=one --filename={} --file_service_type=roundrobin",
        DEVICES * DEVICE_MIB,
        devices.paths.join(":")
    );
    let fio = format!(
        "fio --output-format=json --group_reporting --rw=read --bs=512k --direct=1 --time_based --runtime={SECONDS} --size={DEVICE_MIB}m \
         --ioengine=io_uring --iodepth=8 --fixedbufs=1 {jobs}"
    );
    // Fewer blocks than a device has, so that none is read twice and comes from the page cache.
    let blocks = LIMIT_MB_PER_S / 2;
    let nocopy =
        format!("{diorite} diskperf --json blocks={blocks} bs=1m nocopy {}", devices.paths.join(" "));
    let forget = devices.paths.iter().map(|path| format!("blockdev --flushbufs {path}")).collect();
    let target = |peer, bound| TargetRatio::of("mb_per_s", "reader", peer, Bound::AtLeast(bound));
    RateSuite {
        name: "eight-limited",
        title: "One stream over eight devices",
        about: format!(
            "{DEVICES} loop devices of {DEVICE_MIB} MiB on tmpfs, each limited by the block layer to {LIMIT_MB_PER_S} MB/s. `reader`: one \
             `DirectReader`, 16 chunks of 1 MiB, on a file of an ext4 volume over the stripe of all devices (chunks of 1 MiB). `devices`: fio \
             on all at once, a process for each device with eight transfers of 512 KiB in flight. `one`: fio as one process on all, 32 \
             transfers in flight. `nocopy`: one thread reads the devices in turn into the kernel's page cache, without a copy to its memory.\n"
        ),
        runners: vec![
            runner("reader", reader),
            runner("devices", fio),
            runner("one", one),
            Runner { before: forget, ..runner("nocopy", nocopy) },
        ],
        targets: vec![target("devices", 0.95), target("nocopy", 1.0)],
    }
    .run(options)
}

/// Loop devices. Dropping it detaches them and removes their files.
struct Devices {
    paths: Vec<String>,
    files: Vec<PathBuf>,
}

impl Devices {
    fn attach(directory: &Path) -> Result<Self, String> {
        let mut devices = Self { paths: Vec::new(), files: Vec::new() };
        for number in 0..DEVICES {
            let file = directory.join(format!("diorite-eight-{number}"));
            let path = file.display().to_string();
            devices.files.push(file);
            shell(&format!("dd if=/dev/zero of={path} bs=1M count={DEVICE_MIB} status=none"))?;
            devices.paths.push(call(&["losetup", "--find", "--show", &path])?.trim().to_owned());
        }
        Ok(devices)
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        for path in &self.paths {
            let _ = call(&["losetup", "--detach", path]);
        }
        for file in &self.files {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// A control group that limits the read rate of each device.
struct Group(PathBuf);

impl Group {
    fn make(devices: &Devices, bytes_per_s: u64) -> Result<Self, String> {
        // Version 1 of control groups has a hierarchy for each controller, version 2 has one for all.
        let (parent, file, prefix) = if Path::new("/sys/fs/cgroup/blkio").exists() {
            ("/sys/fs/cgroup/blkio", "blkio.throttle.read_bps_device", "")
        } else {
            ("/sys/fs/cgroup", "io.max", "rbps=")
        };
        let group = Self(Path::new(parent).join("diorite-eight"));
        let failed = |error: std::io::Error| format!("{}: {error}", group.0.display());
        std::fs::create_dir_all(&group.0).map_err(failed)?;
        for path in &devices.paths {
            let name = path.trim_start_matches("/dev/");
            let number = std::fs::read_to_string(format!("/sys/class/block/{name}/dev")).map_err(failed)?;
            #[expect(clippy::disallowed_methods, reason = "a setting of the kernel")]
            std::fs::write(group.0.join(file), format!("{} {prefix}{bytes_per_s}\n", number.trim()))
                .map_err(failed)?;
        }
        Ok(group)
    }

    /// The shell command by which a process joins the group.
    fn enter(&self) -> String {
        format!("echo $$ > {}/cgroup.procs && ", self.0.display())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

//! Suite `everyday`: commands on images against the usual tools on the kernel's loop mount, and `check` against `e2fsck -fn`.

use std::path::Path;

use super::Options;
use super::measure::build;
use super::rates::{Bound, RateSuite, Runner, TargetRatio, can_mount, loop_mount, make_image};
use super::tree::{make_mixed_tree, make_tree, measured};
use crate::command::shell;
use crate::target;

/// Files of the trees that are searched, checked, synchronised and archived.
const SEARCHED: u32 = 1_000_000;
const CHECKED: u32 = 108_000;
const SYNCHRONISED: u32 = 56_000;
const ARCHIVED: u32 = 50_000;
/// Directories below each other.
const LEVELS: u32 = 10_000;
/// Bytes of a file of the archive: 1 GiB in all.
const ARCHIVED_BYTES: u64 = (1 << 30) / ARCHIVED as u64 - 1024;
/// Without it, the host pays for what the last run left in its cache.
const DROP_CACHES: &str = "sync && echo 3 > /proc/sys/vm/drop_caches";

pub(super) fn run(options: &Options) -> Result<(), String> {
    if !can_mount() {
        println!("SKIPPED: everyday: it needs root for the kernel's mounts");
        return Ok(());
    }
    build(&["--package", "diorite-cli"])?;
    let directory = options.directory.join("everyday");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(directory.join("mount")).map_err(|error| error.to_string())?;
    let result = suite(&directory).and_then(|suite| suite.run(options));
    let _ = std::fs::remove_dir_all(&directory);
    result
}

/// An image of `mib` MiB, which `fill` has filled through the kernel's mount.
fn filled_image(
    directory: &Path,
    name: &str,
    mib: u32,
    inodes: u32,
    fill: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<String, String> {
    let format = format!("-t ext4 -N {inodes} -E lazy_itable_init=0,lazy_journal_init=0");
    let image = make_image(&directory.join(name), mib, &format)?;
    let mount = directory.join("mount");
    shell(&format!("mount -o loop {image} {}", mount.display()))?;
    let filled = fill(&mount);
    shell(&format!("umount {}", mount.display()))?;
    filled.map(|()| image)
}

fn make_deep(top: &Path) -> Result<(), String> {
    let script = format!("for (1..{LEVELS}) {{ mkdir 'd' or die; chdir 'd' or die }}");
    shell(&format!("cd {} && perl -e \"{script}\"", top.display())).map(drop)
}

/// The prepared images.
struct Images {
    million: String,
    deep: String,
    checked: String,
    synchronised: String,
}

fn make_images(directory: &Path) -> Result<Images, String> {
    let small = |file: u32| 100 + u64::from(file) * 37 % 3000;
    let images = Images {
        million: filled_image(directory, "million.img", 8192, SEARCHED + 20_000, |mount| {
            make_tree(mount, SEARCHED, |_| 0)
        })?,
        deep: filled_image(directory, "deep.img", 256, 2 * LEVELS, make_deep)?,
        checked: filled_image(directory, "checked.img", 2048, 130_000, |mount| {
            make_tree(mount, CHECKED, small)
        })?,
        synchronised: filled_image(directory, "mixed.img", 2048, 80_000, |mount| {
            make_mixed_tree(&directory.join("mixed"), SYNCHRONISED)?;
            shell(&format!("cp -a {}/mixed {}", directory.display(), mount.display())).map(drop)
        })?,
    };
    make_tree(&directory.join("archived"), ARCHIVED, |_| ARCHIVED_BYTES)?;
    let pack = "tar -C archived -cf archive.tar . && rm -r archived";
    shell(&format!("cd {} && {pack}", directory.display()))?;
    Ok(images)
}

fn plain(workload: &'static str, name: &'static str, before: &str, line: &str, files: u32) -> Runner {
    let before = vec![before.to_owned()];
    Runner { workload, name, before, command: measured(line, files), after: Vec::new() }
}

/// Commands on an image, and their peers on the kernel's mount of it.
fn commands(directory: &str, images: &Images) -> Vec<Runner> {
    let (diorite, mount) = (target::file("release/diorite"), format!("{directory}/mount"));
    let Images { million, deep, synchronised, .. } = images;
    let rows = [
        (
            "find",
            million,
            SEARCHED,
            format!("find {million}:/ -name '*7.txt'"),
            format!("find {mount} -name '*7.txt'"),
        ),
        ("du", million, SEARCHED, format!("du -s {million}:/"), format!("du -s {mount}")),
        ("deep", deep, LEVELS, format!("find {deep}:/ -name x"), format!("find {mount} -name x")),
        (
            "sync",
            synchronised,
            SYNCHRONISED,
            format!("sync -a --delete {directory}/mixed/ {synchronised}:/mixed/"),
            format!("rsync -a --delete {directory}/mixed/ {mount}/mixed/"),
        ),
    ];
    let pairs = rows.map(|(workload, image, files, ours, peers)| {
        let mut peer = plain(workload, "kernel", DROP_CACHES, &peers, files);
        peer.before.push(loop_mount(image, &mount));
        peer.after.push(format!("umount {mount}"));
        [plain(workload, "diorite", DROP_CACHES, &format!("{diorite} {ours}"), files), peer]
    });
    pairs.into_iter().flatten().collect()
}

/// An archive as an image and as files of the host, and checks of an image.
fn archive_and_checks(directory: &str, images: &Images) -> Vec<Runner> {
    let (diorite, checked) = (target::file("release/diorite"), &images.checked);
    let (archive, out, image) =
        (format!("{directory}/archive.tar"), format!("{directory}/out"), format!("{directory}/new.img"));
    let clean = format!("rm -rf {out} {image} && mkdir {out} && sync && cat {archive} >/dev/null");
    let ours = format!("{diorite} mkfs -q -d {archive} {image} 2G");
    let peers = format!("tar -C {out} -xf {archive} && sync -f {out}");
    let mut runners = vec![
        plain("archive", "diorite", &clean, &ours, ARCHIVED),
        plain("archive", "tar", &clean, &peers, ARCHIVED),
    ];
    let read = format!("cat {checked} >/dev/null");
    for (workload, before) in [("check cold", DROP_CACHES), ("check warm", read.as_str())] {
        runners.extend([
            plain(workload, "diorite", before, &format!("{diorite} check {checked}"), CHECKED),
            plain(workload, "e2fsck", before, &format!("e2fsck -fn {checked}"), CHECKED),
        ]);
    }
    runners
}

fn suite(directory: &Path) -> Result<RateSuite, String> {
    let images = make_images(directory)?;
    let directory = directory.to_string_lossy();
    let runners = [commands(&directory, &images), archive_and_checks(&directory, &images)].concat();
    let targets = [
        ("find", "kernel", "seconds", 1.2),
        ("du", "kernel", "seconds", 1.2),
        ("deep", "kernel", "seconds", 2.0),
        ("sync", "kernel", "seconds", 1.0),
        ("archive", "tar", "seconds", 1.2),
        ("check cold", "e2fsck", "seconds", 1.0),
        ("check cold", "e2fsck", "own_cpu_s", 1.0),
        ("check warm", "e2fsck", "seconds", 1.0),
        ("check warm", "e2fsck", "own_cpu_s", 1.0),
    ];
    let targets = targets.map(|(workload, peer, figure, most)| {
        TargetRatio::of(figure, "diorite", peer, Bound::AtMost(most)).on(workload)
    });
    let about = format!(
        "find, du: {SEARCHED} empty files. deep: {LEVELS} directories below each other. sync: {SYNCHRONISED} files of 758 MB that are \
         equal on both sides (peer: rsync). The kernel's mount is a loop device with direct I/O, mounted before the measurement, all caches empty. \
         archive: a tar file of 1 GiB with {ARCHIVED} files in the host's page cache, as a new image and, by `tar x` and `sync -f`, as files of the \
         host. check: {CHECKED} files, with the image outside of and in the host's page cache, which only e2fsck uses."
    );
    let title = "Everyday commands on images";
    Ok(RateSuite { name: "everyday", title, about, runners, targets: targets.into() })
}

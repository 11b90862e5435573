//! Suite `tree`: trees of files copied into an image by `diorite cp -a`, and by `cp -a` onto the kernel's loop mount of it.

use std::path::Path;

use super::Options;
use super::measure::{build, words};
use super::rates::{Bound, RateSuite, Runner, TargetRatio, can_mount, make_image};
use crate::command::call;
use crate::target;

/// Files of the two trees of small files, whose CPU time per file is compared.
const FEW: u32 = 10_000;
const MANY: u32 = 100_000;
/// Files of the tree that is also copied onto the kernel's mount, and the sum of their sizes.
const MIXED: u32 = 56_000;
const MIXED_BYTES: u64 = 758_000_000;
/// Files in a directory.
const IN_DIRECTORY: u32 = 200;

pub(super) fn run(options: &Options) -> Result<(), String> {
    build(&["--package", "diorite-cli"])?;
    let directory = options.directory.join("tree");
    let _ = std::fs::remove_dir_all(&directory);
    let small = |file: u32| 100 + u64::from(file) * 37 % 3000;
    make_tree(&directory.join("few"), FEW, small)?;
    make_tree(&directory.join("many"), MANY, small)?;
    make_mixed_tree(&directory.join("mixed"), MIXED)?;
    let image = make_image(&directory.join("tree.img"), 2048, "-t ext4 -N 200000")?;
    let result = suite(&directory, &image).run(options);
    let _ = std::fs::remove_dir_all(&directory);
    result
}

/// Make a tree of `files` files of mixed sizes.
pub(super) fn make_mixed_tree(top: &Path, files: u32) -> Result<(), String> {
    let scale = MIXED_BYTES as f64 / (0..MIXED).map(mixed_size).sum::<u64>() as f64;
    make_tree(top, files, |file| (mixed_size(file) as f64 * scale) as u64)
}

/// Most files are small, and most bytes in large ones.
fn mixed_size(file: u32) -> u64 {
    let noise = u64::from(file).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
    match noise % 1000 {
        0..7 => 60_000 + noise % 1_500_000,
        7..100 => 12_000 + noise % 48_000,
        _ => 200 + noise % 11_800,
    }
}

pub(super) fn make_tree(top: &Path, files: u32, size: impl Fn(u32) -> u64) -> Result<(), String> {
    println!("--- making {} with {files} files", top.display());
    for file in 0..files {
        let directory = file / IN_DIRECTORY;
        let parent = top.join(format!("{:02}/{directory:04}", directory / 20));
        if file % IN_DIRECTORY == 0 {
            std::fs::create_dir_all(&parent).map_err(|error| error.to_string())?;
        }
        let text = format!("file {file}\n").into_bytes();
        let bytes: Vec<u8> = text.into_iter().cycle().take(size(file) as usize).collect();
        let path = parent.join(format!("file-{file}.txt"));
        #[expect(clippy::disallowed_methods, reason = "the source of a copy")]
        std::fs::write(&path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    call(&["sync"]).map(drop)
}

/// A command line that runs another one and prints its time and CPU time; `files` is the divisor of the CPU time per file.
pub(super) fn measured(line: &str, files: u32) -> Vec<String> {
    let script = format!(
        r#"set -e
busy() {{ awk 'NR == 1 {{ print $2 + $3 + $4 + $7 + $8 }}' /proc/stat; }}
TIMEFORMAT='%R %U %S'
before=$(busy)
figures=$({{ time {{ {line}; }} >/dev/null 2>&3; }} 3>&2 2>&1)
after=$(busy)
echo $figures $before $after | awk '{{
    printf "{{\"seconds\": %f, \"own_cpu_s\": %f, \"machine_cpu_s\": %f, \"own_cpu_us_per_file\": %f}}\n",
        $1, $2 + $3, ($5 - $4) / 100, ($2 + $3) * 1e6 / {files} }}'"#
    );
    words(&["bash", "-c", &script])
}

fn suite(directory: &Path, image: &str) -> RateSuite {
    let directory = directory.to_string_lossy();
    let format = format!(
        "mke2fs -q -F -t ext4 -N 200000 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 {image} && sync"
    );
    // All sources are in the host's page cache. Nothing is removed: the host would discard blocks during the measurement.
    let warm = |tree| format!("find {directory}/{tree} -type f -exec cat {{}} + >/dev/null && sync");
    let runner = |name, tree: &'static str, line: &str, files| Runner {
        name,
        before: vec![format.clone(), warm(tree)],
        command: measured(line, files),
        after: vec![format!("e2fsck -fn {image} >/dev/null 2>&1")],
        ..Runner::default()
    };
    let diorite = target::file("release/diorite");
    let ours = |name, tree: &'static str, files| {
        runner(name, tree, &format!("{diorite} cp -a {directory}/{tree} {image}:/{tree}"), files)
    };
    let mut runners =
        vec![ours("few", "few", FEW), ours("many", "many", MANY), ours("mixed", "mixed", MIXED)];
    let ratio = |ours, peer, figure, bound| TargetRatio::of(figure, ours, peer, Bound::AtMost(bound));
    let mut targets = vec![ratio("many", "few", "own_cpu_us_per_file", 1.15)];
    if can_mount() {
        let line = format!(
            "mkdir -p {directory}/mount && mount -o loop {image} {directory}/mount && \
             cp -a {directory}/mixed {directory}/mount/mixed && umount {directory}/mount && sync {image}"
        );
        runners.push(runner("mixed-kernel", "mixed", &line, MIXED));
        targets.push(ratio("mixed", "mixed-kernel", "machine_cpu_s", 1.0));
        targets.push(ratio("mixed", "mixed-kernel", "seconds", 0.8));
    } else {
        println!("SKIPPED: kernel: it needs root");
    }
    let about = format!(
        "few, many: {FEW} and {MANY} files of 0.1 to 3 KB. mixed: {MIXED} files of 0.2 KB to 1.5 MB, 758 MB altogether. \
         `diorite cp -a` into a new ext4 image on the disk, durable when it ends; `cp -a` onto a loop mount of the same image, \
         with mount, unmount and sync of the image in the measured time. The source is in the host's page cache. The CPU time of the machine \
         includes all processes and the kernel, so the machine must be idle otherwise."
    );
    let title = "Trees of files copied into an image";
    RateSuite { name: "tree", title, about, runners, targets }
}

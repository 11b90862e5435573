//! Many inodes: the daemon's memory for the inodes that the kernel knows.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use diorite::Filesystem;

use super::{Served, alone, can_mount};
use crate::common::Bench;

/// `DIORITE_MANY_INODES=1000000 cargo test --release -p diorite-cli --test mount many_inodes` measures the memory that docs/limits.md states.
const INODES: u64 = 100_000;
const FILES_OF_A_DIRECTORY: u64 = 1000;
/// Options, and the daemon's maximum memory in MiB, for any number of inodes. Small caches show other growth.
const PEAKS: [(&str, u64); 2] = [("cache=2M", 48), ("", 100)];

/// An image with this number of empty files.
fn image(bench: &Bench, inodes: u64) {
    let size = 64 + inodes * 384 / (1 << 20);
    bench.run(&format!("mkfs -t ext4 -m 0 -N {} a.img {size}M", inodes + inodes / 50 + 1000));
    let filesystem = Filesystem::open(bench.path("a.img")).expect("open");
    for directory in 0..inodes / FILES_OF_A_DIRECTORY {
        let directory = format!("/{directory}");
        filesystem.create_dir(&directory).expect("mkdir");
        for file in 0..FILES_OF_A_DIRECTORY {
            filesystem.write(format!("{directory}/file-{file}"), "").expect("create");
        }
    }
    filesystem.close().expect("close");
}

/// `stat` of all entries of a directory and of its subdirectories: the number of files, and the sum of their inode numbers.
fn stat_all(directory: &Path) -> (u64, u64) {
    let entries = fs::read_dir(directory).expect("list").map(|entry| entry.expect("an entry").path());
    entries.fold((0, 0), |(files, sum), path| {
        let stat = fs::symlink_metadata(&path).expect("stat");
        let (more, more_sum) = if stat.is_dir() { stat_all(&path) } else { (1, stat.ino()) };
        (files + more, sum + more_sum)
    })
}

/// A table of the inodes that the kernel knows was larger than all caches together.
#[test]
fn many_inodes_that_the_kernel_knows_take_little_memory() {
    if !can_mount() {
        return;
    }
    let wanted = std::env::var("DIORITE_MANY_INODES").ok().map(|number| number.parse().expect("a number"));
    let inodes: u64 = wanted.unwrap_or(INODES);
    let alone = alone();
    let bench = Bench::new();
    image(&bench, inodes);
    let mut served = Served::of(bench, "a.img", PEAKS[0].0, None, alone);
    let mut found = Vec::new();
    for (options, most) in PEAKS {
        if !found.is_empty() {
            served = served.again(options);
        }
        found.push(stat_all(&served.at()));
        let peak = served.peak_memory() >> 20;
        eprintln!("{inodes} inodes, -o {options:?}: the daemon has taken {peak} MiB");
        assert!(peak < most, "{inodes} inodes, -o {options:?}: {peak} MiB");
    }
    assert!(found.iter().all(|all| *all == found[0] && all.0 == inodes), "{found:?}");
    served.must_end_clean();
}

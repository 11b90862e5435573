//! Suites `names` and `appends`: many small files, and synced appends, against the kernel and fuse2fs on the same image.

use super::Options;
use super::rates::{
    Bound, RateSuite, Runner, TargetRatio, build_worker, can_mount, fuse2fs, kernel, library, make_image,
};

/// Files of the library and of the kernel.
const FILES: u32 = 100_000;
/// Files of fuse2fs, which is slow.
const FUSE_FILES: u32 = 5000;

/// Create, stat, list and unlink of 100,000 empty files.
pub(super) fn names(options: &Options) -> Result<(), String> {
    let worker = build_worker()?;
    let directory = &options.directory;
    let image = directory.join("names.img");
    let path = make_image(&image, 1024, "-t ext4 -N 200000 -E lazy_itable_init=0,lazy_journal_init=0")?;
    let mount = directory.join("mount").to_string_lossy().into_owned();
    let mut runners = vec![library(&worker, &format!("names {FILES}"), &path)];
    if can_mount() {
        runners.push(kernel(&worker, &format!("names {FILES}"), &path, &mount));
        runners.push(fuse2fs(&worker, &format!("names {FUSE_FILES}"), &path, &mount));
    } else {
        println!("SKIPPED: kernel and fuse2fs: they need root");
    }
    let mut targets = Vec::new();
    for figure in ["create", "stat", "unlink"] {
        let target = |peer, bound| TargetRatio::of(figure, "diorite", peer, Bound::AtLeast(bound));
        targets.extend([target("kernel", 3.0), target("fuse2fs", 10.0)]);
    }
    targets.push(TargetRatio::of("list", "diorite", "kernel", Bound::AtLeast(1.0)));
    let suite = RateSuite {
        name: "names",
        title: "Many small files: files a second, one thread",
        about: format!(
            "{FILES} empty files in one directory of an ext4 image (fuse2fs: {FUSE_FILES}, which favours it), by relative \
             paths. create is `open(O_CREAT|O_EXCL)` and close of each; create and unlink include the sync at the end \
             (`syncfs`, or `Filesystem::sync`); stat and lists (`first_list`; `readdir`: names counted again; `list`: kept in memory) follow with warm caches; mounting and \
             closing are not measured. The kernel's loop device and the library both bypass the host's page cache."
        ),
        runners,
        targets,
    };
    let result = suite.run(options);
    let _ = std::fs::remove_file(&image);
    result
}

/// Appends of 4 KiB, each synced, by 1 and 8 threads.
pub(super) fn appends(options: &Options) -> Result<(), String> {
    let worker = build_worker()?;
    let directory = &options.directory;
    let image = directory.join("appends.img");
    let path = make_image(&image, 1024, "-t ext4 -E lazy_itable_init=0,lazy_journal_init=0")?;
    let mount = directory.join("mount").to_string_lossy().into_owned();
    let mut runners = Vec::new();
    for (threads, ours, kernels) in [(1, "diorite-1", "kernel-1"), (8, "diorite-8", "kernel-8")] {
        let workload = format!("appends {threads} 2");
        runners.push(Runner { name: ours, ..library(&worker, &workload, &path) });
        if can_mount() {
            runners.push(Runner { name: kernels, ..kernel(&worker, &workload, &path, &mount) });
        }
    }
    let against = |ours, peer, bound| TargetRatio::of("appends", ours, peer, bound);
    let suite = RateSuite {
        name: "appends",
        title: "Synced appends: 4 KiB and fsync, a file for each thread",
        about: "Two seconds of appends of 4 KiB, each followed by `fsync`; every `fsync` ends with a flush of the \
                image file (loop device: `fsync` of it; library: `fdatasync`). Writes and flushes per append are the \
                library's, as issued to the image."
            .to_owned(),
        runners,
        targets: vec![
            against("diorite-1", "kernel-1", Bound::AtLeast(1.0)),
            against("diorite-8", "kernel-8", Bound::AtLeast(1.0)),
            against("diorite-8", "diorite-1", Bound::AtLeast(2.0)),
            TargetRatio::of("flushes_per_append", "diorite-8", "diorite-1", Bound::AtMost(0.5)),
        ],
    };
    let result = suite.run(options);
    let _ = std::fs::remove_file(&image);
    result
}

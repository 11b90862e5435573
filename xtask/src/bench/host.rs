//! Suites `uncached` (many small files) and `host-copy` (one of 8 GiB): copies of files of the host by `rsync` under `diorite uncached` and by
//! `diorite cp`, against `rsync` and `cp`.

use std::path::Path;

use super::Options;
use super::measure::{build, words};
use super::rates::{Bound, RateSuite, Runner, TargetRatio, can_mount, loop_mount, make_image};
use super::tree::{make_mixed_tree, measured};
use crate::command::shell;
use crate::target;

/// Files of the tree.
const FILES: u32 = 50_000;
/// MiB of the large file.
const LARGE_MIB: u32 = 8 << 10;
/// Without a discard, which a removal of the last copy would cause on the host's disk.
const FORMAT: &str = "-t ext4 -N 80000 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0";

/// A source, and an image for its copies.
struct Copies {
    directory: String,
    image: String,
    source: &'static str,
    /// The divisor of the CPU time per file.
    files: u32,
}

impl Copies {
    fn new(directory: &Path, source: &'static str, files: u32, image_mib: u32) -> Result<Self, String> {
        let image = make_image(&directory.join("to.img"), image_mib, FORMAT)?;
        std::fs::create_dir_all(directory.join("mount")).map_err(|error| error.to_string())?;
        Ok(Self { directory: directory.to_string_lossy().into_owned(), image, source, files })
    }

    /// A copy onto a new filesystem. It also prints the MB of its files in the page cache, of the source and of the copy.
    fn runner(&self, workload: &'static str, name: &'static str, before: &str, line: &str) -> Runner {
        let Self { directory, image, source, files } = self;
        let mount = format!("{directory}/mount");
        let [shell, flag, script] = &measured(line, *files)[..] else { return Runner::default() };
        let script = format!(
            r#"cached() {{ find "$@" -type f -print0 | xargs -0 fincore -nbo RES | awk '{{ sum += $1 }} END {{ printf "%f", sum / 1e6 }}'; }}
measured() {{ {script}
}}
figures=$(measured)
echo "${{figures%\}}}}, \"source_cached_mb\": $(cached {directory}/{source}), \"copy_cached_mb\": $(cached {mount})}}""#
        );
        let format = format!("mke2fs -q -F {FORMAT} {image} && sync");
        Runner {
            workload,
            name,
            before: vec![format, loop_mount(image, &mount), before.to_owned()],
            command: words(&[shell, flag, &script]),
            after: vec![format!("umount {mount}")],
        }
    }
}

fn measure(
    options: &Options,
    name: &str,
    suite: impl FnOnce(&Path) -> Result<RateSuite, String>,
) -> Result<(), String> {
    if !can_mount() {
        println!("SKIPPED: {name}: it needs root for the kernel's mounts");
        return Ok(());
    }
    build(&["--package", "diorite-cli"])?;
    let directory = options.directory.join(name);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    let result = suite(&directory).and_then(|suite| suite.run(options));
    let _ = std::fs::remove_dir_all(&directory);
    result
}

pub(super) fn small_files(options: &Options) -> Result<(), String> {
    measure(options, "uncached", |directory| {
        make_mixed_tree(&directory.join("tree"), FILES)?;
        let copies = Copies::new(directory, "tree", FILES, 2048)?;
        let tree = format!("{}/tree", copies.directory);
        let plain = format!("rsync -a {tree} {}/mount", copies.directory);
        let uncached = format!("{} uncached -q -- {plain}", target::file("release/diorite"));
        let warm = format!("find {tree} -type f -exec cat {{}} + >/dev/null");
        let cold = "echo 3 > /proc/sys/vm/drop_caches";
        let runners = [("warm", warm.as_str()), ("cold", cold)].into_iter().flat_map(|(workload, before)| {
            [
                copies.runner(workload, "uncached", before, &uncached),
                copies.runner(workload, "rsync", before, &plain),
            ]
        });
        let at_most = |workload, figure, most| {
            TargetRatio::of(figure, "uncached", "rsync", Bound::AtMost(most)).on(workload)
        };
        let about = format!(
            "`rsync -a` of {FILES} files of 0.2 KB to 1.5 MB onto a new ext4 filesystem on a loop device with direct I/O, alone and under \
             `diorite uncached`, with the source in the page cache (warm) and not (cold). The copy of `rsync` alone is still in memory when it \
             ends; that of `uncached` is written. The figures of the cache are those of the files after the run: a warm source stays."
        );
        Ok(RateSuite {
            name: "uncached",
            title: "Many small files without the page cache",
            about,
            runners: runners.collect(),
            targets: vec![
                at_most("warm", "seconds", 1.1),
                at_most("cold", "seconds", 1.1),
                at_most("warm", "copy_cached_mb", 0.01),
                at_most("cold", "copy_cached_mb", 0.01),
                at_most("cold", "source_cached_mb", 0.01),
            ],
        })
    })
}

pub(super) fn large_file(options: &Options) -> Result<(), String> {
    measure(options, "host-copy", |directory| {
        let file = format!("{}/source/large", directory.display());
        let fill = "openssl enc -aes-128-ctr -nosalt -K 1 -iv 1 -in /dev/zero 2>/dev/null";
        shell(&format!(
            "mkdir {}/source && {{ {fill} || true; }} | head -c {LARGE_MIB}M | dd of={file} bs=1M iflag=fullblock oflag=direct status=none",
            directory.display()
        ))?;
        let copies = Copies::new(directory, "source", 1, LARGE_MIB + 1024)?;
        let diorite = target::file("release/diorite");
        let to = format!("{file} {}/mount/", copies.directory);
        let cold = "echo 3 > /proc/sys/vm/drop_caches";
        let lines = [
            ("copy", "diorite", format!("{diorite} cp {to}")),
            ("copy", "cp", format!("cp {to}")),
            ("rsync", "uncached", format!("{diorite} uncached -q -- rsync -a {to}")),
            ("rsync", "rsync", format!("rsync -a {to}")),
        ];
        let runners = lines.map(|(workload, name, line)| copies.runner(workload, name, cold, &line));
        let at_most = |workload, (ours, peer), figure, most| {
            TargetRatio::of(figure, ours, peer, Bound::AtMost(most)).on(workload)
        };
        let (copy, rsync) = (("diorite", "cp"), ("uncached", "rsync"));
        let about = format!(
            "A file of {LARGE_MIB} MiB, which is not in the page cache, onto a new ext4 filesystem on a loop device with direct I/O: by \
             `diorite cp` and `cp`, and by `rsync -a` under `diorite uncached` and alone. A part of the copies of `cp` and `rsync` is still in \
             memory when they end."
        );
        Ok(RateSuite {
            name: "host-copy",
            title: "A large file of the host",
            about,
            runners: runners.into(),
            targets: vec![
                at_most("copy", copy, "seconds", 1.0 / 1.1),
                at_most("copy", copy, "own_cpu_s", 0.2),
                at_most("copy", copy, "source_cached_mb", 0.01),
                at_most("copy", copy, "copy_cached_mb", 0.01),
                at_most("rsync", rsync, "seconds", 1.1),
                at_most("rsync", rsync, "source_cached_mb", 0.01),
                at_most("rsync", rsync, "copy_cached_mb", 0.01),
            ],
        })
    })
}

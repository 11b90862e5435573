//! Suites `stream` and `scale`: large sequential writes, and large numbers of everything.

use super::Options;
use super::measure::words;
use super::rates::{
    Bound, RateSuite, Runner, TargetRatio, build_worker, can_mount, kernel, library, make_image,
};

/// Sequential writes into fresh files on ext4 against overwriting on ext2.
pub(super) fn stream(options: &Options) -> Result<(), String> {
    const MIB: u32 = 1024;
    // Runs are short: few of them say little.
    const ROUNDS: u32 = 11;
    let worker = build_worker()?;
    let directory = &options.directory;
    let image = directory.join("stream.img");
    let path = make_image(&image, MIB * 5 / 4, "-t ext4")?;
    let mut runners = Vec::new();
    let mut targets = Vec::new();
    for (mode, fresh, overwrite) in [
        ("direct", "ext4-direct-fresh", "ext2-direct-overwrite"),
        ("buffered", "ext4-buffered-fresh", "ext2-buffered-overwrite"),
    ] {
        // All on the same blocks of the host, which differ in speed from place to place.
        let on = |name, what: &str, mke2fs: &str| Runner {
            name,
            before: vec![format!("mke2fs -q -F -E nodiscard{mke2fs} {path}")],
            ..library(&worker, &format!("stream {MIB} {mode} {what}"), &path)
        };
        runners.extend([
            on(fresh, "fresh", ",lazy_itable_init=0,lazy_journal_init=0 -t ext4"),
            on(overwrite, "overwrite", " -t ext2 -b 4096"),
        ]);
        let bound = Bound::AtLeast(0.95);
        targets.push(TargetRatio::of("mb_per_s", fresh, overwrite, bound));
    }
    let about = format!(
        "One file of {MIB} MiB in steps of 1 MiB, then `fdatasync`, which is on the clock; through the library, on one image, \
         formatted anew for each run, of whose blocks the host has written every one before. Before the clock starts the \
         file was written in the same way, and removed where it is to be fresh."
    );
    let title = "Sequential writes: fresh files on ext4, overwriting on ext2";
    let rounds = Some(options.rounds.max(ROUNDS));
    let suite = RateSuite { name: "stream", title, about, rounds, runners, targets };
    let result = suite.run(options);
    let _ = std::fs::remove_file(&image);
    result
}

/// A million names, 16 TiB, 100,000 extents, a full volume: correct, `e2fsck -fn` clean, with times and memory.
pub(super) fn scale(options: &Options) -> Result<(), String> {
    let worker = build_worker()?;
    let directory = &options.directory;
    let image = directory.join("scale.img");
    let path = image.to_string_lossy().into_owned();
    let check = format!("e2fsck -fn {path} && rm {path}");
    let proof = |name, size: &str, mke2fs: &str, workload: &str| Runner {
        name,
        before: vec![format!(
            "rm -f {path}; truncate -s {size} {path} && mke2fs -q -F -t ext4 {mke2fs} {path}"
        )],
        after: vec![check.clone()],
        ..library(&worker, workload, &path)
    };
    let mut far = proof("16-tib", "0", "", "far");
    far.before = vec![format!("rm -f {path}")];
    far.command = words(&[&worker, "far", "--make", &path]);
    let kept = directory.join("scale-full.img");
    // Not run as the superuser, for whom blocks are reserved.
    let copy =
        format!("cp --sparse=always {} {path} && tune2fs -r 300 -u 1 -g 1 {path} >/dev/null", kept.display());
    let mut full = proof("full", "1G", "-m 0", "full");
    full.after = vec![format!("e2fsck -fn {path} && mv {path} {}", kept.display())];
    let mut rest = proof("rest", "0", "", "rest");
    rest.before = vec![copy.clone()];
    let mut suite = RateSuite {
        name: "scale",
        title: "Large numbers of everything",
        about: "Each was correct, or the run would have failed, and `e2fsck -fn` found the image clean. `million`: names in one \
                directory; a tenth is left; 192 MiB of metadata buffers instead of 64. \
                `16-tib`: an image of 16 TiB less 1 MiB, made here. `full`: files of 64 KiB until \
                the volume is full, one of 128 removed (`used_percent`, as df counts), and their places used again four times by \
                files that do not fit them (`churn`); then all files have what was written to them. `rest`: on copies of that \
                image, with 300 blocks kept for the superuser, single blocks to one file until there is no space for others."
            .to_owned(),
        rounds: Some(1),
        runners: vec![
            proof("million", "4G", "-N 1100000", "million 1000000 --metadata-mib 192"),
            proof("extents", "2G", "", "extents 100000"),
            full,
            rest,
            far,
        ],
        targets: vec![],
    };
    if can_mount() {
        // The kernel keeps 2 % for itself unless configured otherwise, and processes with CAP_SYS_RESOURCE may use what is kept.
        let mount = directory.join("mount").to_string_lossy().into_owned();
        let mut peer = kernel(&worker, "rest", &path, &mount);
        peer.name = "rest-kernel";
        peer.before = vec![
            copy,
            peer.before.concat(),
            format!("echo 0 >/sys/fs/ext4/$(basename $(findmnt -no SOURCE {mount}))/reserved_clusters"),
        ];
        peer.command.splice(0..0, words(&["setpriv", "--bounding-set=-sys_resource"]));
        peer.after.push(check);
        suite.runners.insert(4, peer);
        let against = |bound| TargetRatio::of("bytes", "rest", "rest-kernel", bound);
        suite.targets = vec![against(Bound::AtLeast(0.999)), against(Bound::AtMost(1.001))];
    } else {
        println!("SKIPPED: the kernel on the full volume: it needs root");
    }
    suite.targets.push(TargetRatio {
        ours: ("million", "peak_rss_mib"),
        peer: ("million", "allowed_rss_mib"),
        bound: Bound::AtMost(1.0),
    });
    let result = suite.run(options);
    let _ = (std::fs::remove_file(&image), std::fs::remove_file(&kept));
    result
}

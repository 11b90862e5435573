//! Suites `stream` and `scale`: large sequential writes, and large numbers of everything.

use super::Options;
use super::rates::{Bound, RateSuite, Runner, WantedRatio, build_worker, library, make_image};

/// Sequential writes into fresh files on ext4 against overwriting on ext2.
pub(super) fn stream(options: &Options) -> Result<(), String> {
    const MIB: u32 = 1024;
    // A round takes two seconds, and one run of it much less: few of them say little.
    const ROUNDS: u32 = 11;
    let worker = build_worker()?;
    let directory = options.directory.canonicalize().map_err(|error| error.to_string())?;
    let (ext2, ext4) = (directory.join("stream-ext2.img"), directory.join("stream-ext4.img"));
    let full = "-E lazy_itable_init=0,lazy_journal_init=0";
    let old = make_image(&ext2, MIB * 5 / 4, "-t ext2 -b 4096")?;
    let new = make_image(&ext4, MIB * 5 / 4, &format!("-t ext4 {full}"))?;
    let mut runners = Vec::new();
    let mut wanted = Vec::new();
    for (mode, fresh, overwrite) in [
        ("direct", "ext4-direct-fresh", "ext2-direct-overwrite"),
        ("buffered", "ext4-buffered-fresh", "ext2-buffered-overwrite"),
    ] {
        let on = |name, what: &str, image: &str| Runner {
            name,
            ..library(&worker, &format!("stream {MIB} {mode} {what}"), image)
        };
        runners.extend([on(fresh, "fresh", &new), on(overwrite, "overwrite", &old)]);
        let bound = Bound::AtLeast(0.95);
        wanted.push(WantedRatio { ours: (fresh, "mb_per_s"), peer: (overwrite, "mb_per_s"), bound });
    }
    let about = format!(
        "One file of {MIB} MiB in steps of 1 MiB, then `fdatasync`, which is on the clock; through the library, on images \
         of whose blocks the host has written every one before."
    );
    let title = "Sequential writes: fresh files on ext4, overwriting on ext2";
    let suite =
        RateSuite { name: "stream", title, about, rounds: Some(options.rounds.max(ROUNDS)), runners, wanted };
    let result = suite.run(options);
    let _ = (std::fs::remove_file(&ext2), std::fs::remove_file(&ext4));
    result
}

/// A million names, 16 TiB, 100,000 extents, a full volume: correct, `e2fsck -fn` clean, with times and memory.
pub(super) fn scale(options: &Options) -> Result<(), String> {
    let worker = build_worker()?;
    let directory = options.directory.canonicalize().map_err(|error| error.to_string())?;
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
    far.command = vec![worker.clone(), "far".to_owned(), "--make".to_owned(), path.clone()];
    let suite = RateSuite {
        name: "scale",
        title: "Large numbers of everything",
        about: "Each was correct, or the run would have failed, and `e2fsck -fn` found the image clean. `million`: names in one \
                directory; a tenth is left; 192 MiB of metadata buffers instead of 64. \
                `16-tib`: an image of 16 TiB less 1 MiB, made here. `full`: files of 64 KiB until \
                the volume is full, one of four hundred removed, halves of it used again, then one file until there is no space."
            .to_owned(),
        rounds: Some(1),
        runners: vec![
            proof("million", "4G", "-N 1100000", "million 1000000 --metadata-mib 192"),
            proof("extents", "2G", "", "extents 100000"),
            proof("full", "1G", "", "full"),
            far,
        ],
        wanted: vec![],
    };
    let result = suite.run(options);
    let _ = std::fs::remove_file(&image);
    result
}

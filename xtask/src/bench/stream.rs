//! Suite `stream`: sequential writes into fresh files on ext4 against overwriting on ext2.

use super::Options;
use super::rates::{Bound, RateSuite, Runner, TargetRatio, build_worker, library, make_image};

pub(super) fn run(options: &Options) -> Result<(), String> {
    const MIB: u32 = 1024;
    // Runs are short and scatter widely.
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
        // All runners use the same blocks of the host, which differ in speed.
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
        "One file of {MIB} MiB is written through the library in steps of 1 MiB, with `fdatasync` at the end. Each run formats the same \
         image, whose blocks the host has allocated. Before the measurement the file is written in the same way; for the fresh file it \
         is then removed."
    );
    let title = "Sequential writes: fresh files on ext4, overwriting on ext2";
    let suite = RateSuite { name: "stream", title, about, runners, targets };
    let result = suite.run(&Options { rounds: options.rounds.max(ROUNDS), ..options.clone() });
    let _ = std::fs::remove_file(&image);
    result
}

//! Suite `cached`: a cached 4 KiB `read_at` against the kernel's `pread` of a page in its own cache.

use super::Options;
use super::measure::{build, words};
use super::rates::{Bound, RateSuite, Runner, TargetRatio};
use crate::target;

/// The largest ratio to the kernel's time.
const MOST: Bound = Bound::AtMost(0.5);

pub(super) fn run(options: &Options) -> Result<(), String> {
    build(&["--package", "diorite", "--example", "cached_read"])?;
    let directory = format!("TMPDIR={}", options.directory.display());
    let program = target::file("release/examples/cached_read");
    let command = words(&["env", &directory, &program, "--json"]);
    let ratio =
        |ours, peer| TargetRatio { ours: ("", "cached", ours), peer: ("", "cached", peer), bound: MOST };
    let suite = RateSuite {
        name: "cached",
        title: "Cached reads of 4 KiB",
        about: "Nanoseconds of a read, in a file of 256 KiB and of 32 MiB: medians of five interleaved measurements.\n".to_owned(),
        runners: vec![Runner { name: "cached", command, ..Runner::default() }],
        targets: vec![
            ratio("diorite_ns_256_kib", "pread_ns_256_kib"),
            ratio("diorite_ns_32768_kib", "pread_ns_32768_kib"),
        ],
    };
    suite.run(options)
}

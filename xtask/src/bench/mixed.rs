//! Suite `mixed`: a buffered scan and a direct rewrite at the same time, of one file, against the two of files of their own.

use super::Options;
use super::measure::{build, words};
use super::rates::{Bound, RateSuite, Runner, TargetRatio};
use crate::target;

pub(super) fn run(options: &Options) -> Result<(), String> {
    build(&["--package", "diorite", "--example", "mixed_modes"])?;
    let program = target::file("release/examples/mixed_modes");
    let directory = options.directory.to_string_lossy().into_owned();
    let runner = |name: &'static str| Runner {
        name,
        before: Vec::new(),
        command: words(&[&program, name, &directory]),
        after: Vec::new(),
    };
    let target = |figure| TargetRatio::of(figure, "together", "apart", Bound::AtLeast(0.9));
    RateSuite {
        name: "mixed",
        title: "A buffered scan and a direct rewrite of one file",
        about: "Both at once for 4 seconds, in steps of 1 MiB: of one file of 256 MiB, or each of its own, on ext4; the page cache has 64 MiB.\n"
            .to_owned(),
        rounds: None,
        runners: vec![runner("together"), runner("apart")],
        targets: vec![target("sum_mb_per_s"), target("scan_mb_per_s"), target("rewrite_mb_per_s")],
    }
    .run(options)
}

//! Suite `pool`: the buffer pool in a program outside the workspace (`bench/peers/src/bin/pool.rs`). It measures the time of a hit, and a page
//! workload ten times larger than the memory, against the kernel's page cache alone and below the pool.

use super::Options;
use super::measure::{build_peers, words};
use super::rates::{Bound, RateSuite, Runner, TargetRatio};
use crate::target;

/// Frames of the pool: 32 MiB.
const PAGES: &str = "8192";
const SECONDS: &str = "4";
const ENGINES: [&str; 4] = ["pool-direct", "pool-shared", "pool-cached", "kernel"];

pub(super) fn run(options: &Options) -> Result<(), String> {
    build_peers(Some("pool"))?;
    let (program, directory) = (target::file("peers/release/pool"), options.directory.to_string_lossy());
    let hit = Runner { name: "hit", command: words(&[&program, "hit"]), ..Runner::default() };
    let engine = |name: &'static str| Runner {
        workload: "work",
        name,
        command: words(&[&program, "work", name, &directory, PAGES, SECONDS]),
        ..Runner::default()
    };
    let above =
        |peer| TargetRatio::of("ops_per_machine_cpu_s", "pool-direct", peer, Bound::AtLeast(1.0)).on("work");
    let suite = RateSuite {
        name: "pool",
        title: "The buffer pool",
        about: "`hit`: nanoseconds of a fetch and a release, by the number of pages in use (target: at most 60). `work`: an operation changes \
                four pages, one of them at a random offset in 320 MiB. A cgroup limits the memory to 40 MiB, of which the pool has 32; `limited` \
                is 0 if there is no permission for that.\n"
            .to_owned(),
        runners: std::iter::once(hit).chain(ENGINES.map(engine)).collect(),
        targets: ["pool-cached", "kernel"].map(above).into(),
    };
    suite.run(options)
}

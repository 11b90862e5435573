//! Histories of many threads have an order in which each call takes effect at once (ARCHITECTURE invariant 2): in the simulation in
//! shuffled order, and on real threads. `cargo xtask torture history` runs longer.

use std::time::Duration;

use diorite_torture::formats::Format;
use diorite_torture::history::{self, Options};
use diorite_torture::watchdog::Watch;

fn cases(options: &Options, cases: std::ops::Range<u64>) {
    let mut failed = Vec::new();
    for case in cases {
        let _watch = Watch::start(format!("history case {case}"), Duration::from_secs(60));
        if let Err(what) = history::run(options, case) {
            failed.push(what);
        }
    }
    assert!(failed.is_empty(), "{} cases failed:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn calls_of_simulated_threads_have_an_order() {
    cases(&Options::default(), 0..40);
}

#[test]
fn calls_of_real_threads_have_an_order() {
    cases(&Options { real_threads: true, ..Options::default() }, 5000..5040);
}

/// On a full volume, writes that failed, or ended short, had overwritten what lay behind the hole for which there was no space.
#[test]
fn calls_on_full_volumes_have_an_order() {
    let formats = ["ext4-1k", "ext4-4k-inline"].iter().filter_map(|name| Format::by_name(name)).collect();
    cases(&Options { formats, real_threads: true, full: true, ..Options::default() }, 600_000..600_280);
}

/// Handles by two names of a file of the host.
#[test]
fn calls_on_files_of_the_host_have_an_order() {
    cases(&Options { host: true, ..Options::default() }, 9000..9030);
}

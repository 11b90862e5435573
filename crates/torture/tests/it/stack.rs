//! The whole stack in simulated worlds, under every scheduler, in shuffled order (ARCHITECTURE invariants 2 and 11): no call hangs
//! or waits for long. `cargo xtask torture stack` runs longer.

use std::time::Duration;

use diorite_torture::stack;
use diorite_torture::watchdog::Watch;

#[test]
fn no_mix_of_all_ways_in_stops_the_volume() {
    let mut failed = Vec::new();
    for case in 0..24 {
        let _watch = Watch::start(format!("stack case {case}"), Duration::from_secs(60));
        if let Err(what) = stack::run(case, 16) {
            failed.push(what);
        }
    }
    assert!(failed.is_empty(), "{} cases failed:\n{}", failed.len(), failed.join("\n"));
}

//! One byte model for all kinds of calls (ARCHITECTURE invariant 2). `cargo xtask torture model` runs longer.

use std::time::Duration;

use diorite_torture::model;
use diorite_torture::watchdog::Watch;

#[test]
fn every_way_in_sees_the_same_bytes() {
    let mut failed = Vec::new();
    for case in 0..56 {
        let _watch = Watch::start(format!("model case {case}"), Duration::from_secs(60));
        if let Err(what) = model::run(case, 250) {
            failed.push(what);
        }
    }
    assert!(failed.is_empty(), "{} cases failed:\n{}", failed.len(), failed.join("\n"));
}

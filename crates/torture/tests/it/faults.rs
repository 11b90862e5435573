//! An error at every transfer, once and permanently (ARCHITECTURE invariant 9): callers get the error, no call hangs, and
//! durable data is kept. `cargo xtask torture faults` runs longer.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::time::Duration;

use diorite_torture::crash::{Checker, Options, has_e2fsck};
use diorite_torture::formats::{FORMATS, Format};
use diorite_torture::watchdog::Watch;

#[test]
fn an_error_at_any_transfer_is_reported_and_does_no_more_harm() {
    if !has_e2fsck() {
        return println!("SKIPPED: e2fsck is not installed");
    }
    let formats: Vec<Format> = FORMATS.into_iter().filter(|format| format.journal).collect();
    let mut checker = Checker::new(Options { formats, ..Options::default() }).unwrap();
    let mut failed = Vec::new();
    for case in 0..6 {
        let _watch = Watch::start(format!("faults case {case}"), Duration::from_secs(60));
        if let Err(wrong) = checker.run_with_faults(case, 0) {
            failed.push(format!("{:?}: {}", wrong.class, wrong.what));
        }
    }
    assert!(failed.is_empty(), "{} cases failed:\n{}", failed.len(), failed.join("\n"));
}

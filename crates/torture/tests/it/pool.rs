//! Processes that share a buffer pool are killed while they hold pages. `cargo xtask torture pool` runs longer.

use std::time::Duration;

use diorite_torture::pool::Arena;
use diorite_torture::watchdog::Watch;

#[test]
fn a_killed_process_leaves_no_lock_and_no_torn_page() {
    for number in 0..4 {
        let mut arena = Arena::new(env!("CARGO_BIN_EXE_diorite-torture"), number).expect("a pool");
        for case in 0..8 {
            let _watch = Watch::start(format!("kill {case} of pool {number}"), Duration::from_secs(60));
            arena.run(case).expect("whole and current pages");
        }
    }
}

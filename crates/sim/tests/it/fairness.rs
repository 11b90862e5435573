//! Seed 001 at block level: the published rows come out of the three rule sets on the fitted drive, and `inject` beats them
//! where the drive allows it and is no worse where it does not.

use std::time::{Duration, Instant};

use diorite_sim::SimDisk;
use diorite_sim::fairness::{self, Fairness};

const LENGTH: Duration = Duration::from_secs(10);

fn run(disk: &str, scheduler: &str, seed: u64) -> Fairness {
    let disk = SimDisk::named(disk).expect("a known disk");
    fairness::run(&disk, scheduler.parse().expect("a known scheduler"), LENGTH, seed).expect("no deadlock")
}

fn assert_within(percent: f64, got: f64, published: f64, what: &str) {
    let error = (got / published - 1.0) * 100.0;
    assert!(error.abs() <= percent, "{what}: {got:.0}, published {published}, {error:+.1} %");
}

#[test]
fn published_rows_come_out_within_15_percent() {
    // published/fairness-2009.toml
    let rows =
        [("cfq:2.6.32", 2968.0, 101.0), ("cfq:noidle-regression", 19.0, 137.0), ("cfq:fixed", 2728.0, 103.0)];
    for (scheduler, writer, readers) in rows {
        for seed in [1, 2] {
            let row = run("sata-2009", scheduler, seed);
            assert_within(15.0, row.writer_kb_per_s, writer, &format!("{scheduler}: writer"));
            assert_within(15.0, row.readers_mb_per_s, readers, &format!("{scheduler}: readers"));
        }
    }
}

#[test]
fn inject_serves_the_writer_and_the_readers_at_once() {
    let cfq = run("sata-2009", "cfq:fixed", 1);
    for seed in [1, 2, 3] {
        let row = run("sata-2009", "inject", seed);
        assert!(row.writer_kb_per_s >= 3000.0, "{:.0} KB/s", row.writer_kb_per_s);
        assert!(row.readers_mb_per_s >= 130.0, "{:.1} MB/s", row.readers_mb_per_s);
        assert!(row.write_latency.max() < Duration::from_millis(100), "{:?}", row.write_latency.max());
        let longest = cfq.read_latency.max() * 21 / 20;
        assert!(row.read_latency.max() < longest, "a turn of the other reader: {:?}", row.read_latency.max());
    }
}

/// What a write costs the readers there is its owner's: shares are as with slices of its own, a little one way or the other.
#[test]
fn inject_is_no_worse_than_cfq_on_drives_that_mind() {
    for disk in ["sata-2009-stall", "sata-2009-nocache"] {
        for seed in [1, 2] {
            let (cfq, inject) = (run(disk, "cfq:fixed", seed), run(disk, "inject", seed));
            let (writer, readers) = (
                inject.writer_kb_per_s / cfq.writer_kb_per_s,
                inject.readers_mb_per_s / cfq.readers_mb_per_s,
            );
            assert!(writer > 0.97 && readers > 0.8, "{disk}: writer {writer:.3}, readers {readers:.3}");
            assert!(writer + readers > 1.99, "{disk}: writer {writer:.3}, readers {readers:.3}");
        }
    }
}

/// ARCHITECTURE invariant 11, and the promise that ten virtual seconds take less than five real ones.
#[test]
fn one_seed_gives_one_run_and_quickly() {
    let started = Instant::now();
    let first = run("sata-2009", "cfq:fixed", 5);
    let took = started.elapsed();
    let limit = if cfg!(debug_assertions) { 20 } else { 5 };
    assert!(took < Duration::from_secs(limit), "{took:?}");
    let second = run("sata-2009", "cfq:fixed", 5);
    assert_eq!(first.report, second.report);
    assert_ne!(first.report.trace_hash, run("sata-2009", "cfq:fixed", 6).report.trace_hash);
}

//! The fairness table at block level: `cargo run --release -p diorite-sim --example fairness [seconds] [seeds]`

use std::time::{Duration, Instant};

use diorite_sim::{SimDisk, fairness};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let (seconds, seeds) = (arguments.next().unwrap_or(10), arguments.next().unwrap_or(2));
    for disk in ["sata-2009", "sata-2009-stall", "sata-2009-nocache"] {
        println!("{disk}");
        for name in ["cfq:2.6.32", "cfq:noidle-regression", "cfq:fixed", "inject", "deadline", "none"] {
            for seed in 1..=seeds {
                let drive = SimDisk::named(disk).expect("a known name");
                let started = Instant::now();
                let kind = name.parse().expect("a known scheduler");
                let row =
                    fairness::run(&drive, kind, Duration::from_secs(seconds), seed).expect("no deadlock");
                println!(
                    "  {name:22} writer {:6.0} KB/s (max {:?} p99 {:?})  readers {:6.1} MB/s (max {:?})  [{:?}, {} steps]",
                    row.writer_kb_per_s,
                    row.write_latency.max(),
                    row.write_latency.percentile(99.0),
                    row.readers_mb_per_s,
                    row.read_latency.max(),
                    started.elapsed(),
                    row.report.steps,
                );
                if std::env::var_os("STATE").is_some() {
                    println!("{}\n{}", row.scheduler, drive.describe());
                }
            }
        }
    }
}

//! A shortened part of the matrix: the purpose of each mechanism of `inject`.

use std::time::Duration;

use diorite::mkfs::Flavor;
use diorite_bench::{Cancel, Silent};
use diorite_job::{Simulated, parse, run_simulated};
use diorite_repro::matrix::{Cell, Matrix, MatrixOptions, run, workloads};

use super::bounds::bounds;

fn part(disk: &str, workloads: &[&str], schedulers: &[&str]) -> Matrix {
    let options = MatrixOptions {
        disks: vec![disk.to_owned()],
        schedulers: schedulers.iter().map(|name| name.parse().expect("a known scheduler")).collect(),
        workloads: workloads.iter().map(|name| (*name).to_owned()).collect(),
        length: Duration::from_secs(3),
        ..MatrixOptions::default()
    };
    run(&options, &Silent, &Cancel::default()).expect("runs")
}

fn cell<'a>(matrix: &'a Matrix, workload: &str, scheduler: &str) -> &'a Cell {
    let is_it = |cell: &&Cell| cell.workload == workload && cell.scheduler == scheduler;
    matrix.cells.iter().find(is_it).expect("a cell that was run")
}

#[test]
fn a_lone_buffered_reader_gets_the_disk_whatever_its_block_size_and_the_scheduler() {
    let schedulers =
        ["none", "deadline", "cfq:2.6.32", "cfq:noidle-regression", "cfq:fixed", "inject"].map(Some);
    // Without a name it is the default of a rotating disk.
    for scheduler in schedulers.into_iter().chain([None]) {
        for block in ["512", "20k", "1m"] {
            let text = format!("[reader]\nrw=read\nsize=512m\nbs={block}\nruntime=1\n");
            let on = Simulated {
                disk: "sata-2009".to_owned(),
                flavor: Flavor::Ext4,
                scheduler: scheduler.map(|name| name.parse().expect("a known scheduler")),
                read_ahead_bytes: None,
                seed: 1,
            };
            let jobs = parse("reader.fio", &text).expect("a job file");
            let outcome = run_simulated(&jobs, &on, &Silent).expect("runs");
            let got = outcome.results[0].read.bandwidth() / 1e6;
            assert!(got >= 0.97 * 145.0, "{scheduler:?}, blocks of {block}: {got:.1} of 145 MB/s");
        }
    }
}

/// Readers that waited for their slices found pages evicted that had been read ahead for them: a third was read twice.
#[test]
fn buffered_readers_in_slices_have_the_rate_of_the_disk() {
    let matrix = part("sata-2009", &["readers"], &["none", "inject"]);
    let (none, inject) = (cell(&matrix, "readers", "none"), cell(&matrix, "readers", "inject"));
    assert!(inject.mb_per_s > 0.95 * none.mb_per_s, "{:.1} and {:.1}", inject.mb_per_s, none.mb_per_s);
    assert!(inject.jain > 0.95, "{:.2}", inject.jain);
}

/// Slices keep streams apart; what the drive caches goes beside them; a sparse owner is served within a slice.
#[test]
fn streams_get_slices_and_others_do_not_wait_for_them() {
    let matrix =
        part("sata-2009", &["direct-readers", "seed-2009", "sparse-beside-64"], &["none", "cfq", "inject"]);
    let (none, inject) = (cell(&matrix, "direct-readers", "none"), cell(&matrix, "direct-readers", "inject"));
    assert!(inject.mb_per_s > 2.0 * none.mb_per_s, "{:.1} and {:.1}", inject.mb_per_s, none.mb_per_s);
    let writer = &cell(&matrix, "seed-2009", "inject").owners[0];
    assert!(writer.mb_per_s >= 3.0 && writer.max_ms <= 100.0, "{writer:?}");
    let sparse = |scheduler| cell(&matrix, "sparse-beside-64", scheduler).owners[0].p99_ms;
    assert!(
        sparse("inject") * 10.0 < sparse("cfq:fixed"),
        "{} and {}",
        sparse("inject"),
        sparse("cfq:fixed")
    );
}

/// Where there is nothing to gain, `inject` is as if it were not there.
#[test]
fn scattered_requests_and_flash_are_left_to_the_device() {
    for (disk, workloads) in [
        ("sata-2009", &["random-readers", "direct-writers", "random-beside-writer"][..]),
        ("ssd", &["direct-readers", "random-readers"][..]),
    ] {
        let matrix = part(disk, workloads, &["none", "inject"]);
        for workload in workloads {
            let (none, inject) = (cell(&matrix, workload, "none"), cell(&matrix, workload, "inject"));
            let (more, later) = (inject.mb_per_s / none.mb_per_s, inject.worst_p99_ms / none.worst_p99_ms);
            assert!(
                more > 0.95 || later < 0.95,
                "{workload} on {disk}: {more:.2} of the rate, {later:.2} of the latency"
            );
        }
    }
}

/// A single random reader got 13 reads in ten seconds beside a deep random writer and a strided reader, 49 beside a stream. A stream beside two
/// deep random readers waited for ever. CI runs some named workloads and the generated ones; `DIORITE_MATRIX=all` runs all.
#[test]
fn every_owner_gets_a_share_and_a_lone_small_reader_does_not_wait() {
    const PART: &[&str] =
        &["single-reader", "reader-beside", "thinking-reader", "three-deep", "generated-1", "generated-2"];
    let all = std::env::var("DIORITE_MATRIX").is_ok_and(|value| value == "all");
    let is_chosen = |name: &str| all || PART.iter().any(|part| name.starts_with(part));
    let mut broken = Vec::new();
    for workload in workloads().iter().filter(|workload| is_chosen(&workload.name)) {
        let inject = "inject".parse().expect("a known scheduler");
        for bound in bounds(workload, inject, Duration::from_secs(3)) {
            println!("{}: {bound}", workload.name);
            if !bound.holds() {
                broken.push(format!("{}: {bound}", workload.name));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

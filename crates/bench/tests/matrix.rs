//! A part of the matrix, shortened: what each of `inject`'s mechanisms is there for.

use std::time::Duration;

use diorite_bench::matrix::{Cell, Matrix, MatrixOptions, run};
use diorite_bench::{Cancel, Silent};

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
fn a_lone_reader_gets_the_disk_under_every_scheduler() {
    let schedulers = ["none", "deadline", "cfq:fixed", "inject"];
    let matrix = part("sata-2009", &["lone-reader"], &schedulers);
    for scheduler in schedulers {
        let got = cell(&matrix, "lone-reader", scheduler).mb_per_s;
        assert!(got >= 0.97 * 145.0, "{scheduler}: {got:.1} of 145 MB/s");
    }
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
    assert!(sparse("inject") * 5.0 < sparse("cfq:fixed"), "{} and {}", sparse("inject"), sparse("cfq:fixed"));
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

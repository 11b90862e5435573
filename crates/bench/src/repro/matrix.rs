//! Schedulers on workloads on simulated disks, as one of the reproductions.

use super::{Line, Options, Outcome, ReproError};
use crate::Verdict;
use crate::matrix::{self, MARGIN, Matrix, MatrixOptions};
use crate::watch::{Cancel, Observer};

/// Run the whole matrix from one seed.
///
/// # Errors
/// The stack failed.
pub fn matrix(options: &Options, observer: &dyn Observer, cancel: &Cancel) -> Result<Outcome, ReproError> {
    let chosen = MatrixOptions { seeds: vec![options.seed], ..MatrixOptions::default() };
    Ok(outcome_of_matrix(&matrix::run(&chosen, observer, cancel)?))
}

/// A matrix as tables, verdicts and figures.
pub fn outcome_of_matrix(matrix: &Matrix) -> Outcome {
    let summaries = matrix.summaries();
    let mut outcome = Outcome {
        title: "Schedulers on workloads",
        text: "Each workload is a job file that runs through the whole stack on simulated disks, under each I/O scheduler. What counts \
               is total throughput, and the p99 latency of the owner that is served worst.",
        ..Outcome::default()
    };
    for summary in &summaries {
        let row = format!("{} on {}, {}", summary.workload, summary.disk, summary.scheduler);
        let line =
            |column, unit, measured| Line { row: row.clone(), column, unit, published: None, measured };
        outcome.lines.extend([
            line("throughput", "MB/s", summary.mb_per_s),
            line("worst p99", "ms", summary.worst_p99_ms),
            line("longest", "ms", summary.worst_max_ms),
            line("Jain's index", "", summary.jain),
        ]);
    }
    let behind = matrix.dominated("inject");
    for disk in matrix.disks() {
        let count = behind.iter().filter(|it| it.disk == disk).count();
        let name = format!(
            "matrix: workloads on {disk} where another scheduler is better in both by 5 % than inject"
        );
        outcome.verdicts.push(Verdict::at_most(name, 0.0, count as f64));
        let [throughput, latency] = matrix.plots(&disk);
        outcome.dots.push((format!("Throughput on {disk}, by that of the best scheduler"), throughput));
        outcome.dots.push((format!("p99 latency of the owner that is served worst, on {disk}"), latency));
    }
    for it in &behind {
        outcome.notes.push(format!(
            "{} on {}: {} moves {:.2} times as much at {:.2} of inject's latency.",
            it.workload, it.disk, it.by, it.throughput, it.latency
        ));
    }
    let total = summaries.iter().filter(|summary| summary.scheduler == "inject").count();
    outcome.headline = format!(
        "inject is on the front (no other scheduler better in throughput and latency by {:.0} %) on {} of {total} workloads and disks.",
        MARGIN * 100.0,
        total
            - behind
                .iter()
                .map(|it| (it.workload, &it.disk))
                .collect::<std::collections::BTreeSet<_>>()
                .len()
    );
    outcome
}

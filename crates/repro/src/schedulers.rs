//! The matrix of schedulers as a reproduction.

use crate::error::ReproError;
use crate::matrix::{self, MARGIN, Matrix, MatrixOptions};
use crate::outcome::{Line, Options, Outcome};
use diorite_bench::Verdict;
use diorite_bench::{Cancel, Observer};

/// Run the whole matrix from one seed.
///
/// # Errors
/// The stack failed.
pub fn matrix(options: &Options, observer: &dyn Observer, cancel: &Cancel) -> Result<Outcome, ReproError> {
    let chosen = MatrixOptions { seeds: vec![options.seed], ..MatrixOptions::default() };
    Ok(outcome_of_matrix(&matrix::run(&chosen, observer, cancel)?))
}

/// A matrix as table, verdicts and figures.
pub fn outcome_of_matrix(matrix: &Matrix) -> Outcome {
    let summaries = matrix.summaries();
    let mut outcome = Outcome {
        title: "Schedulers on workloads",
        text: "Each workload is a job file that runs on the whole stack on simulated disks, under each I/O scheduler. The figures \
               are total throughput, and the p99 latency of the worst served owner.",
        ..Outcome::default()
    };
    for summary in &summaries {
        let row = format!("{} on {}, {}", summary.workload, summary.disk, summary.scheduler);
        let line = |column, unit, measured| Line::new(&row, column, unit, None, measured);
        outcome.lines.extend([
            line("throughput", "MB/s", summary.mb_per_s),
            line("worst p99", "ms", summary.worst_p99_ms),
            line("longest", "ms", summary.worst_max_ms),
            line("Jain's index", "", summary.jain),
        ]);
    }
    let verdicts = matrix.verdicts("inject");
    for it in &verdicts {
        let name = format!(
            "matrix: {} on {}: factor by which {} is better than inject in both figures",
            it.workload, it.disk, it.other
        );
        outcome.verdicts.push(Verdict::at_most(name, 1.0 + MARGIN, it.lead));
    }
    outcome.headline = format!(
        "inject is on the front (no other scheduler better in throughput and latency by {:.0} %) on {} of {} workloads and disks.",
        MARGIN * 100.0,
        verdicts.iter().filter(|it| !it.is_behind()).count(),
        verdicts.len()
    );
    outcome
}

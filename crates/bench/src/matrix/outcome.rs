//! What the cells come to: medians over seeds, who is on the front, tables and a picture.

use std::fmt::Write;

use serde::Serialize;
use serde_json::{Value, json};

use super::{Cell, Matrix};
use crate::report::{Colour, Dot, DotPlot, DotRow};

/// A scheduler is worse than another one if that one is better by more than this in throughput and in latency.
pub const MARGIN: f64 = 0.05;

/// The cells of one workload, disk and scheduler: medians over seeds.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Name of the workload.
    pub workload: &'static str,
    /// Name of the disk.
    pub disk: String,
    /// Name of the scheduler.
    pub scheduler: String,
    /// All owners together.
    pub mb_per_s: f64,
    /// Jain's index.
    pub jain: f64,
    /// Of the owner that is served worst.
    pub worst_p99_ms: f64,
    /// Longest operation.
    pub worst_max_ms: f64,
}

/// A scheduler that is not on the front of a workload.
#[derive(Clone, Debug, Serialize)]
pub struct Dominated {
    /// Name of the workload.
    pub workload: &'static str,
    /// Name of the disk.
    pub disk: String,
    /// Name of the scheduler.
    pub scheduler: String,
    /// The one that is better.
    pub by: String,
    /// Its throughput by that of the dominated one.
    pub throughput: f64,
    /// Its latency by that of the dominated one.
    pub latency: f64,
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

impl Matrix {
    /// Medians over seeds, in the order of the cells.
    pub fn summaries(&self) -> Vec<Summary> {
        let mut summaries: Vec<Summary> = Vec::new();
        for cell in &self.cells {
            let is_it = |other: &&Cell| {
                (other.workload, &other.disk, &other.scheduler)
                    == (cell.workload, &cell.disk, &cell.scheduler)
            };
            let is_known = summaries.iter().any(|known| {
                (known.workload, &known.disk, &known.scheduler)
                    == (cell.workload, &cell.disk, &cell.scheduler)
            });
            if is_known {
                continue;
            }
            let of = |figure: fn(&Cell) -> f64| median(self.cells.iter().filter(is_it).map(figure));
            summaries.push(Summary {
                workload: cell.workload,
                disk: cell.disk.clone(),
                scheduler: cell.scheduler.clone(),
                mb_per_s: of(|cell| cell.mb_per_s),
                jain: of(|cell| cell.jain),
                worst_p99_ms: of(|cell| cell.worst_p99_ms),
                worst_max_ms: of(|cell| cell.worst_max_ms),
            });
        }
        summaries
    }

    /// Where `scheduler` is not on the front.
    pub fn dominated(&self, scheduler: &str) -> Vec<Dominated> {
        let summaries = self.summaries();
        let mut dominated = Vec::new();
        for ours in summaries.iter().filter(|summary| summary.scheduler == scheduler) {
            let others = summaries.iter().filter(|other| {
                (other.workload, &other.disk) == (ours.workload, &ours.disk) && other.scheduler != scheduler
            });
            for other in others {
                let throughput = other.mb_per_s / ours.mb_per_s.max(1e-9);
                let latency = other.worst_p99_ms / ours.worst_p99_ms.max(1e-9);
                if throughput > 1.0 + MARGIN && latency < 1.0 - MARGIN {
                    dominated.push(Dominated {
                        workload: ours.workload,
                        disk: ours.disk.clone(),
                        scheduler: scheduler.to_owned(),
                        by: other.scheduler.clone(),
                        throughput,
                        latency,
                    });
                }
            }
        }
        dominated
    }

    /// The names of the schedulers, in the order of the cells.
    pub fn schedulers(&self) -> Vec<String> {
        distinct(self.cells.iter().map(|cell| cell.scheduler.clone()))
    }

    /// The names of the disks, in the order of the cells.
    pub fn disks(&self) -> Vec<String> {
        distinct(self.cells.iter().map(|cell| cell.disk.clone()))
    }

    /// A table for each disk: a line for each workload, MB/s and worst p99 in ms of each scheduler; `*` is on the front.
    pub fn text(&self) -> String {
        let (schedulers, summaries) = (self.schedulers(), self.summaries());
        let fronts: Vec<_> = schedulers.iter().map(|scheduler| self.dominated(scheduler)).collect();
        let mut text = String::new();
        for disk in self.disks() {
            let _ = write!(text, "{disk:<24}");
            for scheduler in &schedulers {
                let _ = write!(text, " {scheduler:>20} ");
            }
            text.push('\n');
            for workload in distinct(summaries.iter().map(|summary| summary.workload)) {
                let _ = write!(text, "{workload:<24}");
                for (scheduler, dominated) in schedulers.iter().zip(&fronts) {
                    let cell = summaries.iter().find(|summary| {
                        (summary.workload, &summary.disk, &summary.scheduler) == (workload, &disk, scheduler)
                    });
                    let Some(cell) = cell else { continue };
                    let is_behind = dominated.iter().any(|it| it.workload == workload && it.disk == disk);
                    let mark = if is_behind { ' ' } else { '*' };
                    let _ = write!(text, " {:>8.2} {:>9.2}ms{mark}", cell.mb_per_s, cell.worst_p99_ms);
                }
                text.push('\n');
            }
            text.push('\n');
        }
        text
    }

    /// `{ "cells", "summaries", "dominated" }`.
    pub fn json(&self) -> Value {
        let dominated: Vec<_> =
            self.schedulers().iter().flat_map(|scheduler| self.dominated(scheduler)).collect();
        json!({ "cells": self.cells, "summaries": self.summaries(), "dominated": dominated })
    }

    /// Two plots for a disk: throughput by that of the best scheduler, and worst p99.
    pub fn plots(&self, disk: &str) -> [DotPlot; 2] {
        let summaries: Vec<_> = self.summaries().into_iter().filter(|summary| summary.disk == disk).collect();
        let rows = |of: &dyn Fn(&Summary) -> f64| {
            let row = |workload: &'static str| {
                let cells = summaries.iter().filter(|summary| summary.workload == workload);
                let dot = |cell: &Summary| Dot {
                    label: cell.scheduler.clone(),
                    value: of(cell),
                    colour: colour_of(&cell.scheduler),
                };
                DotRow { label: workload.to_owned(), dots: cells.map(dot).collect() }
            };
            distinct(summaries.iter().map(|summary| summary.workload)).into_iter().map(row).collect()
        };
        let best = |cell: &Summary| {
            let cells = summaries.iter().filter(|other| other.workload == cell.workload);
            cells.map(|other| other.mb_per_s).fold(1e-9, f64::max)
        };
        [
            DotPlot {
                axis: "throughput / the best".to_owned(),
                is_logarithmic: false,
                rows: rows(&|cell| cell.mb_per_s / best(cell)),
            },
            DotPlot {
                axis: "ms".to_owned(),
                is_logarithmic: true,
                rows: rows(&|cell| cell.worst_p99_ms.max(1e-3)),
            },
        ]
    }
}

/// The colour that a scheduler has in every chart.
pub(crate) fn colour_of(scheduler: &str) -> Colour {
    Colour::Series(match scheduler {
        "cfq:2.6.32" | "none" => 3,
        "cfq:noidle-regression" => 4,
        "deadline" => 2,
        "inject" => 6,
        _ => 5,
    })
}

fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.fold(Vec::new(), |mut list, item| {
        if !list.contains(&item) {
            list.push(item);
        }
        list
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(scheduler: &str, seed: u64, mb_per_s: f64, worst_p99_ms: f64) -> Cell {
        Cell {
            workload: "w",
            disk: "d".to_owned(),
            scheduler: scheduler.to_owned(),
            seed,
            owners: Vec::new(),
            mb_per_s,
            jain: 1.0,
            worst_p99_ms,
            worst_max_ms: 0.0,
            state: String::new(),
        }
    }

    #[test]
    fn a_scheduler_is_behind_only_if_another_is_better_in_both_by_the_margin() {
        let cells = vec![
            cell("a", 1, 100.0, 10.0),
            cell("a", 2, 1.0, 10.0),
            cell("a", 3, 100.0, 10.0),
            cell("b", 1, 104.0, 5.0),
            cell("c", 1, 150.0, 10.0),
            cell("d", 1, 90.0, 12.0),
        ];
        let matrix = Matrix { cells };
        assert!(matrix.dominated("a").is_empty(), "c is as slow, b has hardly more");
        let by: Vec<_> = matrix.dominated("d").into_iter().map(|it| it.by).collect();
        assert_eq!(by, ["a", "b", "c"]);
        assert!(matrix.text().contains("*"));
        assert_eq!(matrix.json()["summaries"][0]["mb_per_s"], 100.0);
    }
}

//! Results of the cells: medians over seeds, the front, tables and plots.

use std::fmt::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};

use super::{Cell, Matrix};
use diorite_bench::median;

/// A scheduler is worse than another one that is better by more than this factor (1.05) in throughput and in latency.
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
    /// Of the worst served owner.
    pub worst_p99_ms: f64,
    /// Maximum latency.
    pub worst_max_ms: f64,
}

impl Summary {
    fn key(&self) -> (&str, &str, &str) {
        (self.workload, &self.disk, &self.scheduler)
    }
}

impl Cell {
    fn key(&self) -> (&str, &str, &str) {
        (self.workload, &self.disk, &self.scheduler)
    }
}

/// A scheduler on one workload and disk beside another one.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Name of the workload.
    pub workload: &'static str,
    /// Name of the disk.
    pub disk: String,
    /// Name of the scheduler.
    pub scheduler: String,
    /// The other one.
    pub other: String,
    /// Throughput of the other one, as a multiple.
    pub throughput: f64,
    /// Latency of the other one, as a multiple.
    pub latency: f64,
    /// The factor by which the other one is better in both figures; below 1 if it is worse in one.
    pub lead: f64,
}

impl Comparison {
    fn of(ours: &Summary, other: &Summary) -> Self {
        let throughput = other.mb_per_s / ours.mb_per_s.max(1e-9);
        let latency = other.worst_p99_ms / ours.worst_p99_ms.max(1e-9);
        Self {
            workload: ours.workload,
            disk: ours.disk.clone(),
            scheduler: ours.scheduler.clone(),
            other: other.scheduler.clone(),
            throughput,
            latency,
            lead: throughput.min(1.0 / latency.max(1e-9)),
        }
    }

    /// Whether the other one is better in both figures by more than the margin.
    pub fn is_behind(&self) -> bool {
        self.lead > 1.0 + MARGIN
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workload, disk, scheduler, other, throughput, latency, .. } = self;
        let (word, relation) = if self.is_behind() { ("BEHIND", "is behind") } else { ("front ", "beside") };
        write!(
            f,
            "{word} {disk}, {workload}: {scheduler} {relation} {other}, which has {throughput:.2} of its throughput, {latency:.2} of its p99"
        )
    }
}

impl Matrix {
    /// Medians over seeds, in the order of the cells.
    pub fn summaries(&self) -> Vec<Summary> {
        let mut summaries: Vec<Summary> = Vec::new();
        for cell in &self.cells {
            if summaries.iter().any(|known| known.key() == cell.key()) {
                continue;
            }
            let is_it = |other: &&Cell| other.key() == cell.key();
            let of = |figure: fn(&Cell) -> f64| {
                median(&self.cells.iter().filter(is_it).map(figure).collect::<Vec<_>>())
            };
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

    /// `scheduler` on each workload and disk, beside the strongest other one.
    pub fn verdicts(&self, scheduler: &str) -> Vec<Comparison> {
        let summaries = self.summaries();
        let ours = summaries.iter().filter(|summary| summary.scheduler == scheduler);
        ours.filter_map(|ours| {
            let others = summaries.iter().filter(|other| {
                (other.workload, &other.disk) == (ours.workload, &ours.disk) && other.scheduler != scheduler
            });
            others
                .map(|other| Comparison::of(ours, other))
                .max_by(|one, other| one.lead.total_cmp(&other.lead))
        })
        .collect()
    }

    /// The names of the schedulers, in the order of the cells.
    pub fn schedulers(&self) -> Vec<String> {
        distinct(self.cells.iter().map(|cell| cell.scheduler.clone()))
    }

    /// The names of the disks, in the order of the cells.
    pub fn disks(&self) -> Vec<String> {
        distinct(self.cells.iter().map(|cell| cell.disk.clone()))
    }

    /// A table for each disk: a line for each workload, with MB/s and worst p99 in ms of each scheduler; `*` marks the front.
    pub fn text(&self) -> String {
        let (schedulers, summaries) = (self.schedulers(), self.summaries());
        let verdicts: Vec<_> = schedulers.iter().map(|scheduler| self.verdicts(scheduler)).collect();
        let mut text = String::new();
        for disk in self.disks() {
            let _ = write!(text, "{disk:<24}");
            for scheduler in &schedulers {
                let _ = write!(text, " {scheduler:>20} ");
            }
            text.push('\n');
            for workload in distinct(summaries.iter().map(|summary| summary.workload)) {
                let _ = write!(text, "{workload:<24}");
                for (scheduler, verdicts) in schedulers.iter().zip(&verdicts) {
                    let key = (workload, &*disk, &**scheduler);
                    let cell = summaries.iter().find(|summary| summary.key() == key);
                    let Some(cell) = cell else { continue };
                    let is_it = |it: &&Comparison| it.workload == workload && it.disk == disk;
                    let is_behind = verdicts.iter().find(is_it).is_some_and(Comparison::is_behind);
                    let mark = if is_behind { ' ' } else { '*' };
                    let _ = write!(text, " {:>8.2} {:>9.2}ms{mark}", cell.mb_per_s, cell.worst_p99_ms);
                }
                text.push('\n');
            }
            text.push('\n');
        }
        text
    }

    /// `{ "cells", "summaries", "verdicts" }`; a verdict has `on_front`.
    pub fn json(&self) -> Value {
        let with_word = |it: &Comparison| {
            let mut verdict = json!(it);
            verdict["on_front"] = json!(!it.is_behind());
            verdict
        };
        let verdicts: Vec<_> =
            self.schedulers().iter().flat_map(|scheduler| self.verdicts(scheduler)).collect();
        let verdicts: Vec<_> = verdicts.iter().map(with_word).collect();
        json!({ "cells": self.cells, "summaries": self.summaries(), "verdicts": verdicts })
    }
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

    /// The median of two seeds was the larger figure.
    #[test]
    fn a_figure_of_two_seeds_is_between_theirs() {
        let matrix = Matrix { cells: vec![cell("a", 1, 100.0, 10.0), cell("a", 2, 50.0, 20.0)] };
        let summary = matrix.summaries().remove(0);
        assert_eq!((summary.mb_per_s, summary.worst_p99_ms), (75.0, 15.0));
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
        let verdict = |scheduler| matrix.verdicts(scheduler).remove(0);
        let of_a = verdict("a");
        assert!(!of_a.is_behind(), "c is as slow, b has hardly more: {of_a}");
        let of_d = verdict("d");
        assert!(of_d.is_behind() && of_d.other == "c" && (of_d.lead - 1.2).abs() < 1e-9, "{of_d}");
        assert!(matrix.text().contains('*'));
        assert_eq!(matrix.json()["summaries"][0]["mb_per_s"], 100.0);
        assert_eq!(matrix.json()["verdicts"][0]["on_front"], true);
    }
}

//! Reproductions as a page of figures.

use crate::Machine;
use crate::report::{Bar, BarChart, BarGroup, Colour, Curve, CurveChart, Figure, Page, Section, Table};

use super::Outcome;

/// One page for several reproductions.
pub fn page(outcomes: &[Outcome], machine: &Machine) -> Page {
    let verdicts = outcomes.iter().flat_map(|outcome| &outcome.verdicts);
    Page {
        title: "Diorite: the published tables, reproduced".to_owned(),
        subtitle: format!("diorite {} on {}", env!("CARGO_PKG_VERSION"), machine.name),
        verdicts: verdicts.map(|verdict| (verdict.name.clone(), verdict.holds)).collect(),
        sections: outcomes.iter().map(section).collect(),
    }
}

fn section(outcome: &Outcome) -> Section {
    let mut figures: Vec<(String, Box<dyn Figure>)> = Vec::new();
    for (column, unit) in columns(outcome) {
        figures.push((format!("{column}, {unit}"), Box::new(bars(outcome, column, unit))));
    }
    for (row, timeline) in &outcome.timelines {
        figures
            .push((format!("Who had the disk, and where its head was: {row}"), Box::new(timeline.clone())));
    }
    if !outcome.latencies.is_empty() {
        let curves = outcome.latencies.iter().enumerate().map(|(index, (row, points))| Curve {
            label: row.clone(),
            colour: Colour::Series(index as u8),
            points: points.iter().map(|(percent, ms)| (percent.min(99.995), ms * 1000.0)).collect(),
        });
        figures.push((
            "Latency of single operations".to_owned(),
            Box::new(CurveChart { curves: curves.collect() }),
        ));
    }
    Section {
        heading: outcome.title.to_owned(),
        text: outcome.notes.join(" "),
        legend: vec![
            (Colour::Published, "published".to_owned()),
            (Colour::Series(0), "measured now".to_owned()),
        ],
        figures,
        table: Some(table(outcome)),
    }
}

/// The columns of a table in the order in which they come, each with its unit.
fn columns(outcome: &Outcome) -> Vec<(&'static str, &'static str)> {
    let mut columns: Vec<(&str, &str)> = Vec::new();
    for line in &outcome.lines {
        if !columns.iter().any(|(column, _)| *column == line.column) {
            columns.push((line.column, line.unit));
        }
    }
    columns
}

fn bars(outcome: &Outcome, column: &str, unit: &str) -> BarChart {
    let groups = outcome.lines.iter().filter(|line| line.column == column).map(|line| {
        let published = line.published.map(|value| Bar {
            label: "published".to_owned(),
            value,
            colour: Colour::Published,
        });
        let measured =
            Bar { label: "measured now".to_owned(), value: line.measured, colour: Colour::Series(0) };
        BarGroup { label: line.row.clone(), bars: published.into_iter().chain([measured]).collect() }
    });
    BarChart { axis: unit.to_owned(), groups: groups.collect() }
}

fn table(outcome: &Outcome) -> Table {
    let cell = |value: f64| format!("{value:.2}");
    Table {
        headings: ["row", "figure", "published", "measured", "ratio", "unit"].map(str::to_owned).to_vec(),
        rows: outcome
            .lines
            .iter()
            .map(|line| {
                vec![
                    line.row.clone(),
                    line.column.to_owned(),
                    line.published.map_or_else(String::new, cell),
                    cell(line.measured),
                    line.published.map_or_else(String::new, |published| cell(line.measured / published)),
                    line.unit.to_owned(),
                ]
            })
            .collect(),
    }
}

//! Reproductions as a page of figures.

use diorite_bench::Machine;
use diorite_bench::report::{Bar, BarChart, BarGroup, Captioned, Colour, Page, Section, Table};

use crate::outcome::Outcome;

/// One page for several reproductions.
pub fn page(outcomes: &[Outcome], machine: &Machine) -> Page {
    Page {
        title: "Diorite: the published tables, reproduced".to_owned(),
        subtitle: format!(
            "diorite {} on {} ({}, {} CPUs, {}). Simulated disks run the whole stack in virtual time.",
            env!("CARGO_PKG_VERSION"),
            machine.name,
            machine.cpu,
            machine.cpus,
            machine.system
        ),
        sections: outcomes.iter().map(section).collect(),
    }
}

fn section(outcome: &Outcome) -> Section {
    let has_published = outcome.lines.iter().any(|line| line.published.is_some());
    let mut legend = Vec::new();
    if has_published {
        legend.push((Colour::Published, "published".to_owned()));
        legend.push((Colour::Measured, "measured now".to_owned()));
    }
    Section {
        heading: outcome.title.to_owned(),
        text: outcome.text.to_owned(),
        headline: outcome.headline.clone(),
        verdicts: outcome.verdicts.clone(),
        legend,
        figures: if has_published { figures(outcome) } else { Vec::new() },
        table: Some(table(outcome)),
        notes: outcome.notes.clone(),
    }
}

fn figures(outcome: &Outcome) -> Vec<Captioned> {
    let captioned = |(column, unit): (&str, &str)| {
        let name = capitalised(column);
        let caption = if unit.is_empty() { name } else { format!("{name}, {unit}") };
        Captioned { caption, figure: bars(outcome, column, unit) }
    };
    columns(outcome).into_iter().map(captioned).collect()
}

fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// The columns of a table in order, with their units.
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
            Bar { label: "measured now".to_owned(), value: line.measured, colour: Colour::Measured };
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

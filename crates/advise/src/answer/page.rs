//! The answer as one HTML page.

use diorite_bench::Machine;
use diorite_bench::report::{Bar, BarChart, BarGroup, Captioned, Colour, Page, Section, Table};

use super::report::{confidence, name};
use super::sentence::size;
use super::{Advice, GroupAdvice};
use crate::predict::Way;

/// The page.
pub fn page(program: &str, machine: &Machine, advice: &Advice) -> Page {
    let mut sections: Vec<Section> = advice.groups.iter().map(of_group).collect();
    if !advice.curve.is_empty() {
        sections.push(curve(advice));
    }
    Page {
        title: format!("Direct I/O for {program}?"),
        subtitle: format!("{}, {}, {}", machine.name, machine.system, confidence(advice)),
        sections,
    }
}

fn of_group(group: &GroupAdvice) -> Section {
    let totals = &group.group.totals;
    let ways =
        [(Way::Buffered, &group.buffered, Colour::Published), (group.way, &group.direct, Colour::Measured)];
    let count = if group.way == Way::Buffered { 1 } else { 2 };
    let chart = |axis: &str, value: &dyn Fn(&crate::predict::GroupPrediction) -> f64| BarChart {
        axis: axis.to_owned(),
        groups: ways
            .iter()
            .take(count)
            .map(|(way, figures, colour)| BarGroup {
                label: name(*way).to_owned(),
                bars: vec![Bar { label: name(*way).to_owned(), value: value(figures), colour: *colour }],
            })
            .collect(),
    };
    let gigabytes = totals.bytes().max(1) as f64 / 1e9;
    let rows = ways.iter().take(count).map(|(way, figures, _)| {
        vec![
            name(*way).to_owned(),
            size(totals.read_bytes),
            size(totals.written_bytes),
            format!("{:.0}", totals.bytes() as f64 / 1e6 / figures.seconds().max(1e-9)),
            format!("{:.3}", figures.cpu_s / gigabytes),
            format!("{:.0} %", figures.hit_rate() * 100.0),
            size(figures.cached_bytes),
        ]
    });
    let headings =
        ["way", "read", "written", "MB/s", "CPU s/GB", "hits", "page cache"].map(str::to_owned).to_vec();
    Section {
        heading: group.group.name.clone(),
        text: format!("{} files: {}.", group.group.file_count, group.group.pattern_text()),
        headline: group.sentence.clone(),
        verdicts: Vec::new(),
        legend: vec![
            (Colour::Published, "page cache".to_owned()),
            (Colour::Measured, "direct I/O".to_owned()),
        ],
        figures: vec![
            Captioned {
                caption: "Predicted rate".to_owned(),
                figure: chart("MB/s", &|figures| totals.bytes() as f64 / 1e6 / figures.seconds().max(1e-9)),
            },
            Captioned {
                caption: "Predicted CPU time of the calls".to_owned(),
                figure: chart("s/GB", &|figures| figures.cpu_s / gigabytes),
            },
        ],
        table: Some(Table { headings, rows: rows.collect() }),
        notes: Vec::new(),
    }
}

fn curve(advice: &Advice) -> Section {
    let bars = |kernel: f64, own: f64| {
        vec![
            Bar { label: "kernel".to_owned(), value: kernel * 100.0, colour: Colour::Published },
            Bar { label: "own cache".to_owned(), value: own * 100.0, colour: Colour::Measured },
        ]
    };
    let groups = advice
        .curve
        .iter()
        .map(|point| BarGroup { label: size(point.bytes), bars: bars(point.kernel, point.own) })
        .collect();
    let row = |point: &crate::simulate::CurvePoint| {
        vec![
            size(point.bytes),
            format!("{:.1} %", point.kernel * 100.0),
            format!("{:.1} %", point.own * 100.0),
        ]
    };
    Section {
        heading: "Hit rate over the size of the cache".to_owned(),
        text: "The share of read pages that a cache of each size holds, for all files together.".to_owned(),
        headline: format!(
            "All used pages have {}; the memory for files is {}.",
            size(advice.working_set_bytes),
            size(advice.cache_bytes)
        ),
        verdicts: Vec::new(),
        legend: vec![
            (Colour::Published, "the kernel's two lists".to_owned()),
            (Colour::Measured, "the library's own replacement".to_owned()),
        ],
        figures: vec![Captioned {
            caption: "Hit rate".to_owned(),
            figure: BarChart { axis: "%".to_owned(), groups },
        }],
        table: Some(Table {
            headings: ["cache", "kernel", "own cache"].map(str::to_owned).to_vec(),
            rows: advice.curve.iter().map(row).collect(),
        }),
        notes: advice.assumptions.clone(),
    }
}

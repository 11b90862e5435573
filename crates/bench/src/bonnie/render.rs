//! The text of a comparison: table, CPU time, ratios, verdicts and advice.

use std::fmt::Write as _;

use super::Test;
use super::advice::ratio;
use super::compare::{published, rows_of};
use super::table::{published_line, table_head, table_line};
use crate::published::{BonnieCell, Odirect2001};
use crate::rows::{Better, Engine, Mode, Report, Row, Verdict};

/// The lines of a comparison, in this order.
const WAYS: [(&str, &str, Engine, Mode); 6] = [
    ("host buf", "host, buffered", Engine::Host, Mode::Buffered),
    ("host dir", "host, direct", Engine::Host, Mode::Direct),
    ("host d8", "host, direct, 8 in flight", Engine::Host, Mode::DirectInFlight),
    ("dio buf", "Diorite, buffered", Engine::Diorite, Mode::Buffered),
    ("dio warm", "Diorite, buffered, warm", Engine::Diorite, Mode::BufferedWarm),
    ("dio dir", "Diorite, direct", Engine::Diorite, Mode::Direct),
];
const BLOCK_TESTS: [(Test, &str); 3] =
    [(Test::BlockWrite, "write"), (Test::Rewrite, "rewrite"), (Test::BlockRead, "read")];

/// A comparison for a terminal of 80 columns.
pub fn comparison_text(report: &Report, size_mib: u32) -> String {
    let table = Odirect2001::load();
    let mut text = String::new();
    text.push_str(table_head());
    for (label, _, engine, mode) in WAYS {
        let rows = rows_of(report, engine, mode);
        if !rows.is_empty() {
            text.push_str(&table_line(label, size_mib, &rows));
            text.push('\n');
        }
    }
    text.push_str("Published in 2001 (two Pentium II at 450 MHz, one IDE disk, ext2):\n");
    for (label, runs) in [("buffered", &table.buffered), ("o_direct", &table.direct)] {
        text.push_str(&published_line(label, 400, runs));
        text.push('\n');
    }
    cpu_section(&mut text, report, &table);
    ratio_section(&mut text, report, &table);
    latency_section(&mut text, report);
    verdict_section(&mut text, report);
    for note in report.notes.iter().chain(&report.advice) {
        text.push('\n');
        wrap(&mut text, note);
    }
    text
}

fn cpu_section(text: &mut String, report: &Report, table: &Odirect2001) {
    let _ =
        writeln!(text, "\nCPU seconds per GB, whole machine{:>10}{:>10}{:>10}", "write", "rewrite", "read");
    for (_, name, engine, mode) in WAYS {
        figures(text, name, |test| report.row(engine, mode, test.name())?.cpu_s_per_gb, 3);
    }
    let side = |test, pick: fn((BonnieCell, BonnieCell)) -> BonnieCell| {
        published(table, test).map(|cells| pick(cells).cpu_s_per_gb())
    };
    figures(text, "2001, buffered", |test| side(test, |cells| cells.0), 3);
    figures(text, "2001, direct", |test| side(test, |cells| cells.1), 3);
}

fn ratio_section(text: &mut String, report: &Report, table: &Odirect2001) {
    text.push_str("\nCPU per GB: buffered I/O of the host / this path\n");
    let against = |test: Test, figure: fn(&Row) -> Option<f64>| {
        report.row(Engine::Host, Mode::Buffered, test.name()).and_then(figure)
    };
    for (_, name, engine, mode) in WAYS {
        if (engine, mode) != (Engine::Host, Mode::Buffered) {
            let cpu = |row: &Row| row.cpu_s_per_gb;
            figures(
                text,
                name,
                |test| ratio(against(test, cpu), report.row(engine, mode, test.name()).and_then(cpu)),
                1,
            );
        }
    }
    let cut = |test| published(table, test).map(|(a, b)| a.cpu_s_per_gb() / b.cpu_s_per_gb());
    figures(text, "2001, direct", cut, 1);
    text.push_str("Throughput: this path / buffered I/O of the host\n");
    for (_, name, engine, mode) in WAYS {
        if (engine, mode) != (Engine::Host, Mode::Buffered) {
            let rate = |row: &Row| row.mb_per_s;
            figures(
                text,
                name,
                |test| ratio(report.row(engine, mode, test.name()).and_then(rate), against(test, rate)),
                3,
            );
        }
    }
    figures(text, "2001, direct", |test| published(table, test).map(|(a, b)| b.kps / a.kps), 3);
}

/// A line of three figures, if there is any.
fn figures(text: &mut String, name: &str, figure: impl Fn(Test) -> Option<f64>, digits: usize) {
    let cells: Vec<Option<f64>> = BLOCK_TESTS.iter().map(|(test, _)| figure(*test)).collect();
    if cells.iter().all(Option::is_none) {
        return;
    }
    let _ = write!(text, "  {name:<31}");
    for cell in cells {
        let _ = match cell {
            Some(value) => write!(text, "{value:>10.digits$}"),
            None => write!(text, "{:>10}", "-"),
        };
    }
    text.push('\n');
}

fn latency_section(text: &mut String, report: &Report) {
    let _ =
        writeln!(text, "\n{:<32}{:>9}{:>9}{:>9}{:>9}", "Latency of 1 MiB, us", "p50", "p99", "p99.9", "max");
    for (_, name, engine, mode) in WAYS {
        for test in [Test::BlockWrite, Test::BlockRead] {
            let Some(latency) = report.row(engine, mode, test.name()).and_then(|row| row.latency_us) else {
                continue;
            };
            let what = BLOCK_TESTS.iter().find(|(known, _)| *known == test).map_or("", |(_, word)| word);
            let _ = writeln!(
                text,
                "  {:<30}{:>9.0}{:>9.0}{:>9.0}{:>9.0}",
                format!("{name}: {what}"),
                latency.p50,
                latency.p99,
                latency.p99_9,
                latency.max
            );
        }
    }
}

fn verdict_section(text: &mut String, report: &Report) {
    if report.verdicts.is_empty() {
        text.push_str("\nNo verdicts: the tests were too short to be accurate (+++++). Use a larger -s.\n");
        return;
    }
    text.push('\n');
    for verdict in &report.verdicts {
        text.push_str(&verdict_line(verdict));
        text.push('\n');
    }
}

/// A verdict as a line.
pub fn verdict_line(verdict: &Verdict) -> String {
    let mark = if verdict.holds { "holds " } else { "FAILS " };
    let bound = match verdict.better {
        Better::Higher => "at least",
        Better::Lower => "at most",
    };
    format!("{mark} {}: {} ({bound} {})", verdict.name, short(verdict.measured), short(verdict.target))
}

/// A number with its significant digits.
fn short(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else if value < 2.0 {
        format!("{value:.3}")
    } else {
        format!("{value:.1}")
    }
}

/// Append a sentence in lines of at most 78 columns.
fn wrap(text: &mut String, sentence: &str) {
    let mut column = 0;
    for word in sentence.split_whitespace() {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > 78 {
            text.push('\n');
            column = 0;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += width;
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    fn report() -> Report {
        let mut report = Report::new("bonnie", Machine { cpus: 2, ..Machine::default() });
        for (engine, mode, rate, cpu) in [
            (Engine::Host, Mode::Buffered, 500.0, 1.8),
            (Engine::Host, Mode::Direct, 500.0, 0.25),
            (Engine::Diorite, Mode::Direct, 510.0, 0.2),
        ] {
            for test in Test::ALL {
                let mut row = Row::new(engine, mode, test.name(), 1 << 30, 2.0);
                (row.mb_per_s, row.cpu_s_per_gb, row.cpu_percent) = (Some(rate), Some(cpu), Some(cpu * 50.0));
                row.latency_us = Some(crate::rows::LatencyUs::default());
                report.rows.push(row);
            }
        }
        report.verdicts.push(Verdict::at_least("block_write: CPU", 6.7, 9.0));
        report.notes.push("How it was measured.".to_owned());
        report.advice = crate::bonnie::advice(&report, true);
        report
    }

    #[test]
    fn comparison_fits_a_terminal_and_shows_every_way_beside_2001() {
        let text = comparison_text(&report(), 400);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        for part in ["host buf", "dio dir", "o_direct", "2001, direct", "9.0", "holds  block_write"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(!text.contains("dio warm"), "a way without rows is not shown");
        let last = text.rsplit("\n\n").next().unwrap_or_default().replace('\n', " ");
        assert!(last.starts_with("Use direct I/O here (Diorite, direct): it has 1.02 times"), "{last}");
    }

    #[test]
    fn too_short_runs_say_so() {
        let text = comparison_text(&Report::new("bonnie", Machine::default()), 1);
        assert!(text.contains("too short"), "{text}");
    }
}

//! The text of a run: the seeds' table of 80 columns.
//!
//! Invariant: a line has at most 80 columns. Rates of more than five digits have larger units (`524M` for 524 MiB a second). A
//! result that is too short is `+++++`, and a test that did not run is `xxxx`, as in the announcement.

use crate::published::{BonnieCell, BonnieRuns, mean};
use crate::rows::Row;
use crate::rows::SHORTEST_SECONDS;

use super::Test;

const HEAD: &str = "              -------Sequential Output-------- ---Sequential Input-- --Random--
              -Per Char- --Block--- -Rewrite-- -Per Char- --Block--- --Seeks---
Machine    MB K/sec %CPU K/sec %CPU K/sec %CPU K/sec %CPU K/sec %CPU  /sec %CPU
";
/// Order of the columns; the tests run in another order.
const COLUMNS: [Test; 6] =
    [Test::Putc, Test::BlockWrite, Test::Rewrite, Test::Getc, Test::BlockRead, Test::Seeks];

/// The head of the table and one line.
pub fn table_text(label: &str, size_mib: u32, rows: &[&Row]) -> String {
    format!("{HEAD}{}\n", table_line(label, size_mib, rows))
}

/// The three lines above the figures.
pub(super) const fn table_head() -> &'static str {
    HEAD
}

/// One line of the table, without a line end.
pub fn table_line(label: &str, size_mib: u32, rows: &[&Row]) -> String {
    let mut line = line_start(label, size_mib);
    for test in COLUMNS {
        let row = rows.iter().find(|row| row.test == test.name());
        line.push(' ');
        line.push_str(&match row {
            None => cell_not_run(test),
            Some(row) => cell_of(row, test),
        });
    }
    line
}

/// A published line, the mean of its runs.
pub(super) fn published_line(label: &str, size_mib: u32, runs: &BonnieRuns) -> String {
    let cell = |runs: &[BonnieCell]| {
        let cell = mean(runs);
        format!("{} {}", rate(cell.kps), percent(cell.cpu))
    };
    let [putc, seeks] = [cell_not_run(Test::Putc), cell_not_run(Test::Seeks)];
    let (write, rewrite, read) = (cell(&runs.output), cell(&runs.rewrite), cell(&runs.input));
    format!("{} {putc} {write} {rewrite} {putc} {read} {seeks}", line_start(label, size_mib))
}

fn line_start(label: &str, size_mib: u32) -> String {
    let label: String = label.chars().take(8).collect();
    if size_mib > 9999 {
        format!("{label:<8} {:>3}G", size_mib / 1024)
    } else {
        format!("{label:<8} {size_mib:>4}")
    }
}

fn cell_not_run(test: Test) -> String {
    if test == Test::Seeks { "  xxx  xxx".to_owned() } else { " xxxx xxxx".to_owned() }
}

fn cell_of(row: &Row, test: Test) -> String {
    if row.seconds < SHORTEST_SECONDS {
        return "+++++ ++++".to_owned();
    }
    let cpu = percent(row.cpu_percent.unwrap_or(0.0));
    if test == Test::Seeks {
        let seeks = row.ops_per_s.unwrap_or(0.0);
        let seeks = if seeks < 1000.0 { format!("{seeks:>5.1}") } else { rate(seeks) };
        return format!("{seeks} {cpu}");
    }
    format!("{} {cpu}", rate(row.mb_per_s.unwrap_or(0.0) * 1e6 / 1024.0))
}

/// A rate in five columns.
fn rate(per_second: f64) -> String {
    if per_second < 99_999.5 {
        format!("{per_second:>5.0}")
    } else if per_second < 9_999.5 * 1024.0 {
        format!("{:>4.0}M", per_second / 1024.0)
    } else {
        format!("{:>4.0}G", per_second / 1024.0 / 1024.0)
    }
}

/// A percentage in four columns.
fn percent(value: f64) -> String {
    if value < 99.95 { format!("{value:>4.1}") } else { format!("{value:>4.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::Odirect2001;
    use crate::rows::{Engine, Mode};

    fn row(test: Test, mb_per_s: f64, cpu: f64) -> Row {
        let mut row = Row::new(Engine::Host, Mode::Direct, test.name(), 1 << 30, 2.0);
        row.mb_per_s = Some(mb_per_s);
        row.ops_per_s = Some(mb_per_s);
        row.cpu_percent = Some(cpu);
        row
    }

    /// A line of the announcement is reproduced exactly.
    #[test]
    fn published_line_is_set_as_in_the_announcement() {
        let mut table = Odirect2001::load().buffered;
        for runs in [&mut table.output, &mut table.rewrite, &mut table.input] {
            runs.truncate(1);
        }
        assert_eq!(
            published_line("", 400, &table),
            "          400  xxxx xxxx 12999 12.1  5918 10.8  xxxx xxxx 13412 12.1   xxx  xxx"
        );
    }

    #[test]
    fn no_line_is_wider_than_eighty_columns() {
        for (mb_per_s, cpu) in [(0.001, 0.0), (102.3, 99.96), (123_456.7, 800.0), (9_000_000.0, 6400.0)] {
            let rows: Vec<_> = Test::ALL.map(|test| row(test, mb_per_s, cpu)).into();
            let line = table_line("a-very-long-label", 4_000_000, &rows.iter().collect::<Vec<_>>());
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(HEAD.lines().all(|line| line.len() <= 80));
    }

    #[test]
    fn columns_stand_under_their_heads() {
        let rows: Vec<_> = Test::ALL.map(|test| row(test, 50.0, 12.3)).into();
        let line = table_line("host", 400, &rows.iter().collect::<Vec<_>>());
        assert_eq!(line.len(), HEAD.lines().last().unwrap().len());
        assert!(line.starts_with("host      400 48828 12.3 48828 12.3"), "{line}");
    }

    #[test]
    fn too_short_is_plus_signs_and_not_run_is_crosses() {
        let mut short = row(Test::BlockRead, 50.0, 1.0);
        short.seconds = 0.49;
        let line = table_line("", 1, &[&short]);
        assert!(line.ends_with("+++++ ++++   xxx  xxx"), "{line}");
        assert!(!line.contains("48828"));
    }
}

//! The line of `--csv`: bonnie++'s format 1.98, 50 fields, which its `bon_csv2html` and `bon_csv2txt` read.
//!
//! Throughput is in units of 1024 bytes a second, CPU in whole percent, the maximum latency with its unit. Fields of
//! other tests, such as the creation of many files, are empty. Results that are too short are `+++++,+++`.

use super::Test;
use crate::rows::Row;
use crate::rows::SHORTEST_SECONDS;

/// Fields of a line.
pub(super) const FIELDS: usize = 50;
const FORMAT_VERSION: &str = "1.98";

/// The line for one run, without a line end.
pub fn csv_line(label: &str, size_mib: u32, seeking: super::Seeking, rows: &[&Row]) -> String {
    let mut fields = vec![String::new(); FIELDS];
    let mut set = |index: usize, text: String| {
        if let Some(field) = fields.get_mut(index) {
            *field = text;
        }
    };
    // A comma or a line end in the label would shift the fields after it.
    let label: String = label.chars().map(|c| if c == ',' || c.is_control() { '_' } else { c }).collect();
    set(0, FORMAT_VERSION.to_owned());
    set(1, env!("CARGO_PKG_VERSION").to_owned());
    set(2, label);
    set(3, "1".to_owned());
    set(4, "0".to_owned());
    set(5, format!("{size_mib}M"));
    set(6, "1M".to_owned());
    set(7, seeking.seeks.to_string());
    set(8, seeking.seekers.to_string());
    for (test, at, latency_at) in [
        (Test::Putc, 9, 38),
        (Test::BlockWrite, 11, 39),
        (Test::Rewrite, 13, 40),
        (Test::Getc, 15, 41),
        (Test::BlockRead, 17, 42),
        (Test::Seeks, 19, 43),
    ] {
        let Some(row) = rows.iter().find(|row| row.test == test.name()) else { continue };
        if row.seconds < SHORTEST_SECONDS {
            set(at, "+++++".to_owned());
            set(at + 1, "+++".to_owned());
        } else {
            let rate = match test {
                Test::Seeks => row.ops_per_s.map(|rate| format!("{rate:.1}")),
                _ => row.mb_per_s.map(|rate| format!("{:.0}", rate * 1e6 / 1024.0)),
            };
            set(at, rate.unwrap_or_default());
            set(at + 1, row.cpu_percent.map(|cpu| format!("{cpu:.0}")).unwrap_or_default());
        }
        set(latency_at, row.latency_us.map(|latency| with_unit(latency.max)).unwrap_or_default());
    }
    fields.join(",")
}

/// A latency in the largest unit with about three digits, as bonnie++ writes it.
fn with_unit(microseconds: f64) -> String {
    match microseconds {
        us if us < 100_000.0 => format!("{us:.0}us"),
        us if us < 100_000_000.0 => format!("{:.0}ms", us / 1e3),
        us => format!("{:.0}s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bonnie::Seeking;
    use crate::rows::{Engine, LatencyUs, Mode};

    #[test]
    fn line_has_fifty_fields_in_the_places_of_bonnie_plus_plus() {
        let mut row = Row::new(Engine::Host, Mode::Direct, "block_write", 1 << 30, 2.0);
        row.mb_per_s = Some(512.0);
        row.cpu_percent = Some(12.6);
        row.latency_us = Some(LatencyUs { max: 26_236.0, ..LatencyUs::default() });
        let short = Row::new(Engine::Host, Mode::Direct, "block_read", 1 << 30, 0.1);
        let line = csv_line("my,disk", 400, Seeking::default(), &[&row, &short]);
        let fields: Vec<_> = line.split(',').collect();
        assert_eq!(fields.len(), FIELDS, "{line}");
        assert_eq!(
            (fields[0], fields[2], fields[5], fields[7], fields[8]),
            ("1.98", "my_disk", "400M", "4000", "3")
        );
        assert_eq!((fields[11], fields[12], fields[39]), ("500000", "13", "26236us"));
        assert_eq!((fields[17], fields[18]), ("+++++", "+++"));
        assert_eq!((fields[9], fields[19], fields[49]), ("", "", ""));
    }

    #[test]
    fn latency_has_a_unit() {
        assert_eq!(with_unit(55.4), "55us");
        assert_eq!(with_unit(120_000.0), "120ms");
        assert_eq!(with_unit(200_000_000.0), "200s");
    }
}

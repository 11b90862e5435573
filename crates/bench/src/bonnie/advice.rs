//! The last sentence of a comparison: buffered or direct I/O in this directory.

use super::Test;
use crate::rows::{Engine, Mode, Report, Row};

/// Tests that move a whole file.
const TESTS: [Test; 3] = [Test::BlockWrite, Test::Rewrite, Test::BlockRead];
/// Ways of direct I/O, with their names in the sentence.
const DIRECT: [(Engine, Mode, &str); 3] = [
    (Engine::Host, Mode::Direct, "O_DIRECT on the host's filesystem"),
    (Engine::Host, Mode::DirectInFlight, "O_DIRECT on the host's filesystem, 8 transfers in flight"),
    (Engine::Diorite, Mode::Direct, "Diorite, direct"),
];
/// Within this factor two rates are the same.
const SAME: f64 = 1.05;

/// A way of direct I/O beside buffered I/O of the host: geometric means over the tests.
struct Direct {
    name: &'static str,
    /// Throughput, as a multiple.
    rate: f64,
    /// CPU time per byte, as a multiple; none where it was not measured.
    cpu: Option<f64>,
}

/// The better kind of I/O, with the ratios of throughput and CPU time. `None` if the tests were too short.
///
/// The direct way with the highest throughput is compared with buffered I/O of the host; of two equally fast ways, the one with less
/// CPU time. CPU times count only where `cpu_is_quiet`: other programs did not disturb them.
pub fn advice(report: &Report, cpu_is_quiet: bool) -> Option<String> {
    let has_direct = DIRECT
        .iter()
        .any(|(engine, mode, _)| *engine == Engine::Host && rate(report, *engine, *mode).is_some());
    rate(report, Engine::Host, Mode::Buffered)?;
    if !has_direct {
        return Some("Use buffered I/O here: this filesystem has no O_DIRECT.".to_owned());
    }
    let ways = DIRECT.iter().filter_map(|(engine, mode, name)| {
        let rate = against(report, *engine, *mode, |row| row.mb_per_s)?;
        let cpu = against(report, *engine, *mode, |row| row.cpu_s_per_gb).filter(|_| cpu_is_quiet);
        Some(Direct { name, rate, cpu })
    });
    let best = ways.reduce(|best, way| {
        let is_same = way.rate < best.rate * SAME && best.rate < way.rate * SAME;
        let is_better = if is_same { way.cpu < best.cpu } else { way.rate > best.rate };
        if is_better { way } else { best }
    })?;
    Some(sentence(&best))
}

fn sentence(best: &Direct) -> String {
    let Direct { name, rate, cpu } = best;
    let cost = cpu.map_or_else(
        || "its CPU time was not judged, because other programs were busy".to_owned(),
        |cpu| format!("with {cpu:.2} times the CPU time per byte"),
    );
    let figures = format!("{rate:.2} times the throughput of buffered I/O, {cost}");
    let saves_cpu = cpu.is_some_and(|cpu| cpu < 1.0 / SAME);
    if *rate >= SAME || (*rate > 1.0 / SAME && saves_cpu) {
        format!("Use direct I/O here ({name}): it has {figures}.")
    } else if *rate > 1.0 / SAME {
        format!("Use buffered I/O here: direct I/O ({name}) gains nothing; it has {figures}.")
    } else if saves_cpu {
        format!(
            "Use buffered I/O here for throughput, and direct I/O ({name}) where CPU time or memory is scarce: it has {figures}."
        )
    } else {
        format!("Use buffered I/O here: direct I/O ({name}) is slower; it has {figures}.")
    }
}

/// `a / b`, if both are known and `b` is above zero.
pub(super) fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) if b > 0.0 => Some(a / b),
        _ => None,
    }
}

fn rate(report: &Report, engine: Engine, mode: Mode) -> Option<f64> {
    TESTS.iter().find_map(|test| report.row(engine, mode, test.name())?.mb_per_s)
}

/// The geometric mean of a figure over the tests, as a multiple of buffered I/O of the host.
fn against(report: &Report, engine: Engine, mode: Mode, figure: fn(&Row) -> Option<f64>) -> Option<f64> {
    let of = |engine, mode, test: &Test| report.row(engine, mode, test.name()).and_then(figure);
    let ratios: Vec<f64> = TESTS
        .iter()
        .filter_map(|test| ratio(of(engine, mode, test), of(Engine::Host, Mode::Buffered, test)))
        .filter(|ratio| *ratio > 0.0)
        .collect();
    let logarithms: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (!ratios.is_empty()).then(|| (logarithms / ratios.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    /// A report of rows with these rates and CPU times.
    fn report(rows: &[(Engine, Mode, f64, f64)]) -> Report {
        let mut report = Report::new("bonnie", Machine::default());
        for (engine, mode, rate, cpu) in rows {
            for test in TESTS {
                let mut row = Row::new(*engine, *mode, test.name(), 1 << 30, 2.0);
                (row.mb_per_s, row.cpu_s_per_gb) = (Some(*rate), Some(*cpu));
                report.rows.push(row);
            }
        }
        report
    }

    const BUFFERED: (Engine, Mode, f64, f64) = (Engine::Host, Mode::Buffered, 100.0, 1.0);

    #[test]
    fn the_sentence_says_what_to_use_with_both_ratios() {
        let slow = (Engine::Host, Mode::Direct, 60.0, 0.3);
        let cases = [
            (
                vec![BUFFERED, slow, (Engine::Diorite, Mode::Direct, 240.0, 0.2)],
                "Use direct I/O here (Diorite, direct): it has 2.40 times the throughput of buffered I/O, with 0.20 times the CPU time per byte.",
            ),
            // Of two ways with the same rate, the one that needs less CPU time.
            (
                vec![
                    BUFFERED,
                    (Engine::Host, Mode::DirectInFlight, 102.0, 0.5),
                    (Engine::Diorite, Mode::Direct, 99.0, 0.15),
                ],
                "Use direct I/O here (Diorite, direct): it has 0.99 times the throughput of buffered I/O, with 0.15 times the CPU time per byte.",
            ),
            (
                vec![BUFFERED, slow],
                "Use buffered I/O here for throughput, and direct I/O (O_DIRECT on the host's filesystem) where CPU time or memory is scarce: it has 0.60 times the throughput of buffered I/O, with 0.30 times the CPU time per byte.",
            ),
            (
                vec![BUFFERED, (Engine::Host, Mode::Direct, 60.0, 1.5)],
                "Use buffered I/O here: direct I/O (O_DIRECT on the host's filesystem) is slower; it has 0.60 times the throughput of buffered I/O, with 1.50 times the CPU time per byte.",
            ),
            (
                vec![BUFFERED, (Engine::Host, Mode::Direct, 101.0, 1.0)],
                "Use buffered I/O here: direct I/O (O_DIRECT on the host's filesystem) gains nothing; it has 1.01 times the throughput of buffered I/O, with 1.00 times the CPU time per byte.",
            ),
            (vec![BUFFERED], "Use buffered I/O here: this filesystem has no O_DIRECT."),
        ];
        for (rows, expected) in cases {
            assert_eq!(advice(&report(&rows), true).as_deref(), Some(expected));
        }
        assert_eq!(advice(&report(&[]), true), None, "nothing was measured");
    }

    #[test]
    fn disturbed_cpu_times_are_not_in_the_sentence() {
        let rows = [BUFFERED, (Engine::Host, Mode::Direct, 300.0, 5.0)];
        let said = advice(&report(&rows), false).expect("a sentence");
        assert!(said.starts_with("Use direct I/O here") && said.contains("3.00 times"), "{said}");
        assert!(said.contains("CPU time was not judged"), "{said}");
    }
}

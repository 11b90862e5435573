//! Ways of moving the same data on the same disk, in one interleaved run, beside the table of 2001.
//!
//! Rules of the comparison:
//! - In each round all contenders do each test in turn, in an order that changes from round to round. So drift of disk and machine
//!   affects all contenders. Rates are medians over the rounds.
//! - A host's page cache does not get the memory back that it has just freed, because other contenders run meanwhile. In a virtual
//!   machine that returned free memory to its host, getting memory costs more than copying.
//! - The image and the host's file are on the same filesystem. The image is fully written before the first round.
//! - As in 2001, each block write makes its file anew, on the host and in the image. Allocation and metadata are part
//!   of it. The rewrite overwrites allocated blocks.
//! - In block writes and reads the kernel does writeback and readahead for a buffered file, and Diorite's direct streams keep
//!   several chunks in flight. The host's direct I/O waits for each chunk, as in 2001; another row keeps eight chunks in flight by
//!   threads. Every rewrite waits for each chunk.
//! - The host's old file is removed and its journal committed before a clock starts.
//! - Each write test ends with a sync. Each read test begins with a cold cache, except in the row "warm".
//! - CPU time is that of the whole machine, because kernel threads write back buffered data and complete `io_uring` requests. CPU
//!   time of other programs before and during the run is reported. Above a twentieth of a CPU, there is no verdict on CPU time.

use std::sync::Arc;
use std::time::Duration;

use diorite_block::sync::now;

use super::advice::{advice, ratio};
use super::series::Series;
use super::target::Target;
use super::workload::{Seeking, Workload};
use super::{CHUNK_BYTES, Test};
use crate::error::Error;
use crate::host::FileIo;
use crate::measure::OtherPrograms;
use crate::published::{BonnieCell, Odirect2001, mean};
use crate::rows::{Engine, Mode, Report, Row, Verdict};
use crate::watch::{Cancel, Observer};

/// Most CPU use of other programs, in percent of a CPU, for a verdict on CPU time.
const QUIET_PERCENT: f64 = 5.0;
/// Time of warm readings in a round, and their largest number.
const WARM_SECONDS: f64 = 0.15;
const WARM_READINGS_MAX: u32 = 16;

/// The tests of a round. Each uses the file of the test before.
const ORDER: [Test; 6] =
    [Test::Putc, Test::Getc, Test::BlockWrite, Test::Rewrite, Test::BlockRead, Test::Seeks];

/// One way of moving data.
#[derive(Clone, Debug)]
pub struct Contender {
    /// Target of its file.
    pub target: Arc<dyn Target>,
    /// Path of the data in block tests.
    pub io: FileIo,
    /// Whether the file is read again from the filled cache.
    pub warm: bool,
    /// Whether the per-byte tests run, once.
    pub per_byte: bool,
}

/// Size and length of a comparison.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Size of each file, a multiple of [`CHUNK_BYTES`].
    pub size: u64,
    /// Least rounds.
    pub rounds_min: u32,
    /// Most rounds.
    pub rounds_max: u32,
    /// After this time and `rounds_min` rounds, no round begins.
    pub budget: Duration,
    /// Seeks of a round.
    pub seeking: Seeking,
}

/// Measured series of one contender and mode.
struct Column {
    engine: Engine,
    mode: Mode,
    series: Vec<(Test, Series)>,
}

impl Column {
    fn push(&mut self, sample: super::Sample) {
        let test = sample.test;
        if let Some((_, series)) = self.series.iter_mut().find(|(known, _)| *known == test) {
            series.push(sample);
        } else {
            let mut series = Series::default();
            series.push(sample);
            self.series.push((test, series));
        }
    }
}

/// Measure all contenders and judge the result into `report`.
pub fn measure(
    contenders: &[Contender],
    plan: &Plan,
    cancel: &Cancel,
    observer: &dyn Observer,
    report: &mut Report,
) -> Result<(), Error> {
    let mut columns: Vec<(Column, Column)> = contenders
        .iter()
        .map(|contender| {
            let engine = contender.target.engine();
            let mode = contender.target.mode(contender.io);
            let column = |mode| Column { engine, mode, series: Vec::new() };
            (column(mode), column(Mode::BufferedWarm))
        })
        .collect();
    let start = now();
    let others = OtherPrograms::now();
    for round in 0..plan.rounds_max {
        if round >= plan.rounds_min && now().saturating_sub(start) > plan.budget {
            break;
        }
        for (number, test) in ORDER.into_iter().enumerate() {
            for turn in 0..contenders.len() {
                let index = (turn + number + round as usize) % contenders.len();
                let (contender, (column, warm)) = (&contenders[index], &mut columns[index]);
                let workload = Workload {
                    target: contender.target.as_ref(),
                    io: contender.io,
                    size: plan.size,
                    seeking: plan.seeking,
                    cancel,
                };
                if !test.is_per_byte() || contender.per_byte && round == 0 {
                    let progress = Progress { round, observer };
                    one_test(&workload, test, &progress, column, contender.warm.then_some(warm))?;
                }
            }
        }
    }
    for column in columns.iter().flat_map(|(column, warm)| [column, warm]) {
        for test in Test::ALL {
            let Some((_, series)) = column.series.iter().find(|(known, _)| *known == test) else { continue };
            let mode = if test.is_per_byte() { Mode::Buffered } else { column.mode };
            report.rows.extend(series.row(column.engine, mode));
        }
    }
    let seconds = now().saturating_sub(start).as_secs_f64();
    let meanwhile = 100.0 * others.cpu_s_since() / seconds.max(1e-9);
    report.host.busy_cpu_percent = Some(meanwhile);
    let busy = report.host.background_cpu_percent.unwrap_or(0.0).max(meanwhile);
    report.verdicts = verdicts(report, busy <= QUIET_PERCENT);
    report.advice = advice(report, busy <= QUIET_PERCENT);
    if busy > QUIET_PERCENT {
        report.notes.push(format!(
            "No verdict on CPU time: other programs used up to {busy:.0} % of a CPU before or during the run. The CPU times above \
             include it, which makes direct I/O look worse. Run bonnie again on an idle machine."
        ));
    }
    Ok(())
}

/// Progress of a round.
struct Progress<'a> {
    round: u32,
    observer: &'a dyn Observer,
}

/// One test of one contender: cold, then from the filled cache, if there is a column `warm`.
fn one_test(
    workload: &Workload<'_>,
    test: Test,
    progress: &Progress<'_>,
    column: &mut Column,
    warm: Option<&mut Column>,
) -> Result<(), Error> {
    let Progress { round, observer } = *progress;
    let (target, mode) = (workload.target, column.mode);
    let bytes = match test {
        Test::Seeks => u64::from(workload.seeking.seeks) * CHUNK_BYTES as u64,
        _ => workload.size,
    };
    observer.begin(&format!("round {}: {} {mode}: {}", round + 1, target.engine(), test.doing()), bytes);
    let done = workload.run(test, observer).map(|sample| column.push(sample));
    observer.end();
    let done = done.and_then(|()| match warm {
        Some(warm) if test == Test::BlockRead => read_warm(workload, progress, warm),
        _ => Ok(()),
    });
    done.and_then(|()| target.forget_cached())
}

/// Read from the cache several times: one reading is too short to measure.
fn read_warm(workload: &Workload<'_>, progress: &Progress<'_>, warm: &mut Column) -> Result<(), Error> {
    let Progress { round, observer } = *progress;
    let engine = workload.target.engine();
    let mut seconds = 0.0;
    for _ in 0..WARM_READINGS_MAX {
        // Each reading is a stage of its own: its bar ends at the size of the file.
        let what = format!("round {}: {engine} {}: {}", round + 1, warm.mode, Test::BlockRead.doing());
        observer.begin(&what, workload.size);
        let sample = workload.run(Test::BlockRead, observer);
        observer.end();
        let sample = sample?;
        seconds += sample.spent.seconds;
        warm.push(sample);
        if seconds > WARM_SECONDS {
            break;
        }
    }
    Ok(())
}

/// The verdicts that the rows allow.
fn verdicts(report: &Report, is_quiet: bool) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for (test, times) in [(Test::BlockWrite, 6.7), (Test::Rewrite, 6.7), (Test::BlockRead, 5.0)] {
        let name = test.name();
        let Some(buffered) = report.row(Engine::Host, Mode::Buffered, name) else { continue };
        let Some(direct) = report.row(Engine::Diorite, Mode::Direct, name) else { continue };
        if let Some(measured) = ratio(buffered.cpu_s_per_gb, direct.cpu_s_per_gb).filter(|_| is_quiet) {
            verdicts.push(Verdict::at_least(
                format!("{name}: CPU per GB, host buffered / Diorite direct"),
                times,
                measured,
            ));
        }
        if let Some(measured) = ratio(direct.mb_per_s, buffered.mb_per_s) {
            verdicts.push(Verdict::at_least(
                format!("{name}: throughput, Diorite direct / host buffered"),
                0.985,
                measured,
            ));
        }
    }
    let direct = report.rows.iter().filter(|row| row.engine == Engine::Diorite && row.mode == Mode::Direct);
    let copied: Vec<u64> = direct.filter_map(|row| row.bytes_copied).collect();
    if !copied.is_empty() {
        let total: u64 = copied.iter().sum();
        verdicts.push(Verdict::at_most("Diorite direct: bytes copied by the CPU", 0.0, total as f64));
    }
    verdicts
}

/// The published cells of a test: buffered and direct.
pub(super) fn published(table: &Odirect2001, test: Test) -> Option<(BonnieCell, BonnieCell)> {
    let (buffered, direct) = match test {
        Test::BlockWrite => (&table.buffered.output, &table.direct.output),
        Test::Rewrite => (&table.buffered.rewrite, &table.direct.rewrite),
        Test::BlockRead => (&table.buffered.input, &table.direct.input),
        Test::Putc | Test::Getc | Test::Seeks => return None,
    };
    Some((mean(buffered), mean(direct)))
}

/// The row of a contender, for tables.
pub(super) fn rows_of(report: &Report, engine: Engine, mode: Mode) -> Vec<&Row> {
    report.rows.iter().filter(|row| row.engine == engine && row.mode == mode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bonnie::target::HostTarget;
    use crate::machine::Machine;

    #[test]
    fn verdicts_follow_the_rows() {
        let mut report = Report::new("bonnie", Machine::default());
        for (engine, mode, rate, cpu) in
            [(Engine::Host, Mode::Buffered, 100.0, 1.8), (Engine::Diorite, Mode::Direct, 98.0, 0.2)]
        {
            let mut row = Row::new(engine, mode, "block_write", 1, 1.0);
            (row.mb_per_s, row.cpu_s_per_gb, row.bytes_copied) = (Some(rate), Some(cpu), Some(0));
            report.rows.push(row);
        }
        let quiet = verdicts(&report, true);
        let holds: Vec<_> = quiet.iter().map(|verdict| verdict.holds).collect();
        assert_eq!(holds, [true, false, true], "{quiet:?}");
        let busy = verdicts(&report, false);
        assert!(
            busy.len() == 2 && busy.iter().all(|verdict| !verdict.name.contains("CPU per GB")),
            "{busy:?}"
        );
    }

    /// A bar must not pass its end. With warm readings it went to 1020 of 400 MiB.
    #[derive(Default)]
    struct Bars(std::sync::Mutex<Bar>);

    #[derive(Default)]
    struct Bar {
        stages: u32,
        total: u64,
        done: u64,
    }

    impl Observer for Bars {
        fn begin(&self, _: &str, total: u64) {
            let mut bar = self.0.lock().unwrap();
            (bar.stages, bar.total, bar.done) = (bar.stages + 1, total, 0);
        }

        fn advance(&self, amount: u64) {
            let mut bar = self.0.lock().unwrap();
            bar.done += amount;
            assert!(bar.done <= bar.total, "{} of {}", bar.done, bar.total);
        }

        fn end(&self) {}
    }

    /// Every contender runs every test in every round.
    #[test]
    fn comparison_of_host_modes_has_a_row_for_each_test() {
        let directory = tempfile::tempdir().unwrap();
        let target = |label| Arc::new(HostTarget::new(directory.path(), label).unwrap());
        let contenders = [
            Contender { target: target("a"), io: FileIo::Buffered, warm: true, per_byte: true },
            Contender { target: target("b"), io: FileIo::Buffered, warm: false, per_byte: false },
        ];
        let plan = Plan {
            size: 4 << 20,
            rounds_min: 2,
            rounds_max: 2,
            budget: Duration::ZERO,
            seeking: Seeking { seeks: 6, seekers: 2, update_every: 10 },
        };
        let mut report = Report::new("bonnie", Machine::default());
        let bars = Bars::default();
        measure(&contenders, &plan, &Cancel::default(), &bars, &mut report).unwrap();
        assert!(bars.0.lock().unwrap().stages > 20);
        let count = |test: &str| report.rows.iter().filter(|row| row.test == test).count();
        assert_eq!((count("putc"), count("getc"), count("block_write"), count("seeks")), (1, 1, 2, 2));
        assert_eq!(count("block_read"), 3);
        let cold = report.rows.iter().filter(|row| row.mode == Mode::Buffered);
        assert!(cold.into_iter().all(|row| row.rounds.is_none_or(|rounds| rounds == 2)));
        drop(contenders);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}

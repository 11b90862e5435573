//! The answer as text and as the common object of `--json`.

use std::fmt::Write as _;

use diorite_bench::{CpuScope, Engine, Machine, Mode, Report, Row, Verdict};

use super::sentence::size;
use super::{Advice, Choice, Confidence, GroupAdvice, SAME};
use crate::predict::{GroupPrediction, Way};

/// The object of `--json`: a row for each group and way, a verdict for each group.
pub fn report(command: String, machine: Machine, advice: &Advice) -> Report {
    let mut report = Report::new(command, machine);
    for group in &advice.groups {
        report.rows.push(row(group, Way::Buffered, &group.buffered));
        if group.way != Way::Buffered {
            report.rows.push(row(group, group.way, &group.direct));
        }
        let name = format!("{}: rate of direct I/O", group.group.name);
        let mut verdict = Verdict::at_least(name, SAME, round(group.rate));
        verdict.holds = group.choice == Choice::UseDirect;
        verdict.reason = Some(group.sentence.clone());
        report.verdicts.push(verdict);
    }
    report.notes.clone_from(&advice.assumptions);
    report.notes.push(confidence(advice));
    let sentences: Vec<&str> = advice.groups.iter().map(|group| &*group.sentence).collect();
    report.advice = Some(sentences.join(" "));
    report
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn row(group: &GroupAdvice, way: Way, figures: &GroupPrediction) -> Row {
    let mode = match way {
        Way::Buffered if figures.hit_rate() > 0.5 => Mode::BufferedWarm,
        Way::Buffered => Mode::Buffered,
        Way::DirectAhead => Mode::DirectInFlight,
        Way::Direct | Way::OwnCache => Mode::Direct,
    };
    let bytes = group.group.totals.bytes();
    let mut row = Row::new(Engine::Host, mode, group.group.name.clone(), bytes, figures.seconds());
    row = row.with_rates(figures.cpu_s);
    row.ops_per_s = Some(group.group.totals.calls() as f64 / figures.seconds().max(1e-9));
    row.cpu_scope = Some(CpuScope::Process);
    row
}

/// The confidence, with its reason.
pub(super) fn confidence(advice: &Advice) -> String {
    let word = match advice.confidence {
        Confidence::High => "high",
        Confidence::Middle => "middle",
        Confidence::Low => "low",
    };
    format!(
        "Confidence: {word}. The model takes {:.2} s for the recorded run, which took {:.2} s.",
        advice.modelled_s, advice.recorded_s
    )
}

/// Lines of a table: each group through the page cache and in its best way of direct I/O.
pub fn table(advice: &Advice) -> Vec<String> {
    let mut lines = vec![format!(
        "{:<34} {:>9} {:>9} {:>8} {:>9} {:>6}  {}",
        "", "read", "written", "MB/s", "CPU s/GB", "hits", "way"
    )];
    for group in &advice.groups {
        let totals = &group.group.totals;
        lines.push(shortened(&group.group.name));
        for (way, figures) in [(Way::Buffered, &group.buffered), (group.way, &group.direct)] {
            let gigabytes = totals.bytes().max(1) as f64 / 1e9;
            lines.push(format!(
                "{:<34} {:>9} {:>9} {:>8.0} {:>9.3} {:>5.0}%  {}",
                "",
                size(totals.read_bytes),
                size(totals.written_bytes),
                totals.bytes() as f64 / 1e6 / figures.seconds().max(1e-9),
                figures.cpu_s / gigabytes,
                100.0 * figures.hit_rate(),
                name(way),
            ));
            if group.way == Way::Buffered {
                break;
            }
        }
    }
    let run = |label: &str, seconds: f64, cpu_s: Option<f64>| {
        let cpu = cpu_s.map_or_else(String::new, |cpu_s| format!(", {cpu_s:.2} s of CPU"));
        format!("{label:<34} {seconds:.2} s{cpu}")
    };
    lines.push(String::new());
    lines.push(run("Run through the page cache", advice.buffered.seconds, advice.buffered.cpu_s));
    lines.push(run("Run as advised", advice.advised.seconds, advice.advised.cpu_s));
    lines.push(confidence(advice));
    lines
}

fn shortened(name: &str) -> String {
    const LEN_MAX: usize = 90;
    let skipped = name.chars().count().saturating_sub(LEN_MAX);
    if skipped == 0 {
        name.to_owned()
    } else {
        format!("...{}", name.chars().skip(skipped).collect::<String>())
    }
}

/// A way in words.
pub(super) fn name(way: Way) -> &'static str {
    match way {
        Way::Buffered => "page cache",
        Way::Direct => "direct",
        Way::DirectAhead => "direct, ahead",
        Way::OwnCache => "own cache",
    }
}

/// Lines of a plot: the hit rate over the size of the cache.
pub fn plot(advice: &Advice) -> Vec<String> {
    const WIDTH: f64 = 40.0;
    if advice.curve.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![format!("{:>10}  hit rate: kernel (#), library's own cache (=)", "cache")];
    for point in &advice.curve {
        let mut bars = String::new();
        for (rate, mark) in [(point.kernel, "#"), (point.own, "=")] {
            let mut bar = mark.repeat((rate * WIDTH).round() as usize);
            let _ = write!(bar, " {:.0}%", rate * 100.0);
            let _ = write!(bars, "{bar:<46}");
        }
        lines.push(format!("{:>10}  {}", size(point.bytes), bars.trim_end()));
    }
    let memory = size(advice.cache_bytes);
    lines.push(format!(
        "{:>10}  memory for files now; all used pages: {}",
        memory,
        size(advice.working_set_bytes)
    ));
    lines
}

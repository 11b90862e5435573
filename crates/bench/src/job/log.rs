//! Figures over time in files, as fio writes them: a line for each transfer, or for each `log_avg_msec`.

use std::fmt::Write;
use std::time::Duration;

use super::spec::Logs;

/// A transfer, as it is logged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// When it ended, from the start of the job.
    pub(super) at: Duration,
    /// 0: read, 1: write, 2: hole.
    pub(super) direction: usize,
    pub(super) bytes: u64,
    pub(super) offset: u64,
    /// From its submission.
    pub(super) completion: Duration,
    /// Submitting it, where that is apart.
    pub(super) submission: Duration,
    /// As `ioprio_set` has it: class and level.
    pub(super) priority: u16,
}

/// A log file of a job: name and content.
pub(super) type LogFile = (String, String);

/// What a log is of: the value of one transfer, and whether values of a period are summed.
type Kind<'a> = (&'a Option<String>, &'static str, fn(&Entry) -> f64, Sum);

#[derive(Clone, Copy, PartialEq)]
enum Sum {
    /// Mean of the values.
    Mean,
    /// Values a second.
    Rate,
}

/// The files of worker `number`, counted from 1.
pub(super) fn files(logs: &Logs, entries: &[Entry], number: u64) -> Vec<LogFile> {
    let kinds: [Kind<'_>; 5] = [
        (
            &logs.bandwidth,
            "bw",
            |entry| entry.bytes as f64 / 1024.0 / entry.completion.as_secs_f64().max(1e-9),
            Sum::Rate,
        ),
        (&logs.iops, "iops", |_| 1.0, Sum::Rate),
        (&logs.latency, "lat", |entry| (entry.completion + entry.submission).as_nanos() as f64, Sum::Mean),
        (&logs.latency, "clat", |entry| entry.completion.as_nanos() as f64, Sum::Mean),
        (&logs.latency, "slat", |entry| entry.submission.as_nanos() as f64, Sum::Mean),
    ];
    let wanted = kinds.iter().filter_map(|kind| kind.0.as_ref().map(|prefix| (prefix, kind)));
    wanted
        .map(|(prefix, kind)| (format!("{prefix}_{}.{number}.log", kind.1), text(logs, entries, kind)))
        .collect()
}

fn text(logs: &Logs, entries: &[Entry], (_, name, value, sum): &Kind<'_>) -> String {
    let mut text = String::new();
    let Some(period) = logs.average else {
        for entry in entries {
            write_line(&mut text, logs, entry, value(entry) as u64);
        }
        return text;
    };
    for direction in 0..3 {
        let mut rest: Vec<&Entry> = entries.iter().filter(|entry| entry.direction == direction).collect();
        let mut end = period;
        while !rest.is_empty() {
            let count = rest.partition_point(|entry| entry.at < end);
            let now: Vec<&Entry> = rest.drain(..count).collect();
            if let Some(first) = now.first() {
                let all: f64 = match (*sum, *name) {
                    (Sum::Rate, "bw") => now.iter().map(|entry| entry.bytes as f64 / 1024.0).sum(),
                    _ => now.iter().map(|entry| value(entry)).sum(),
                };
                let figure =
                    if *sum == Sum::Rate { all / period.as_secs_f64() } else { all / now.len() as f64 };
                write_line(&mut text, logs, &Entry { at: end, ..**first }, figure as u64);
            }
            end += period;
        }
    }
    text
}

fn write_line(text: &mut String, logs: &Logs, entry: &Entry, value: u64) {
    let _ = write!(text, "{}, {value}, {}, {}", entry.at.as_millis(), entry.direction, entry.bytes);
    if logs.offset {
        let _ = write!(text, ", {}", entry.offset);
    }
    let _ = if logs.priority {
        writeln!(text, ", 0x{:04x}", entry.priority)
    } else {
        // Class 1, level 0.
        writeln!(text, ", {}", u8::from(entry.priority == 1 << 13))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_fio() {
        let ms = Duration::from_millis;
        let entry = |at, direction| Entry {
            at: ms(at),
            direction,
            bytes: 4096,
            offset: 8192,
            completion: ms(1),
            submission: Duration::ZERO,
            priority: 1 << 13,
        };
        let entries = [entry(3, 0), entry(700, 0), entry(1200, 0), entry(40, 1)];
        let logs = Logs { bandwidth: Some("x".into()), offset: true, ..Logs::default() };
        let all = files(&logs, &entries, 2);
        assert_eq!(all[0].0, "x_bw.2.log");
        assert_eq!(all[0].1.lines().next(), Some("3, 4000, 0, 4096, 8192, 1"));
        let logs = Logs { latency: Some("l".into()), priority: true, ..Logs::default() };
        assert_eq!(files(&logs, &entries, 1)[1], ("l_clat.1.log".into(), "3, 1000000, 0, 4096, 0x2000\n700, 1000000, 0, 4096, 0x2000\n1200, 1000000, 0, 4096, 0x2000\n40, 1000000, 1, 4096, 0x2000\n".into()));
        let logs = Logs { iops: Some("i".into()), average: Some(ms(1000)), ..Logs::default() };
        assert_eq!(
            files(&logs, &entries, 1)[0].1,
            "1000, 2, 0, 4096, 1\n2000, 1, 0, 4096, 1\n1000, 1, 1, 4096, 1\n"
        );
    }
}

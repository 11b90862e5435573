//! The summary as fio prints it.

use std::fmt::Write;

use hdrhistogram::Histogram;

use super::{DirectionResult, JobOutcome, JobResult};

/// The percentiles that fio shows.
pub(super) const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

impl JobOutcome {
    /// fio's familiar summary.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for result in &self.results {
            result.write_text(&mut text);
        }
        for group in &self.groups {
            let _ = writeln!(text, "\nRun status group {} (all jobs):", group.group);
            for (name, direction) in [("READ", &group.read), ("WRITE", &group.write)] {
                self.write_group_line(&mut text, name, group.group, direction);
            }
        }
        if let Some(scheduler) = &self.scheduler {
            text.push_str(&scheduler.text());
        }
        text
    }

    fn write_group_line(&self, text: &mut String, name: &str, group: u32, all: &DirectionResult) {
        if all.ios == 0 {
            return;
        }
        let of_group = || self.results.iter().filter(|result| result.group == group);
        let directions = || {
            of_group()
                .map(|result| if name == "READ" { &result.read } else { &result.write })
                .filter(|d| d.ios > 0)
        };
        let slowest = directions().map(DirectionResult::bandwidth).fold(f64::INFINITY, f64::min);
        let fastest = directions().map(DirectionResult::bandwidth).fold(0.0, f64::max);
        let shortest = directions().map(|direction| direction.runtime).min().unwrap_or_default();
        let _ = writeln!(
            text,
            "{name:>8}: bw={}, {}-{} ({}-{}), io={}, run={}-{}msec",
            bandwidth(all.bandwidth()),
            binary(slowest, "/s"),
            binary(fastest, "/s"),
            decimal(slowest, "/s"),
            decimal(fastest, "/s"),
            both(all.bytes as f64, ""),
            shortest.as_millis(),
            all.runtime.as_millis(),
        );
    }
}

impl JobResult {
    fn write_text(&self, text: &mut String) {
        let settings: Vec<_> = self.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let _ = writeln!(
            text,
            "{}: (groupid={}, jobs={}): {}",
            self.name,
            self.group,
            self.jobs,
            settings.join(", ")
        );
        for (name, direction) in [("read", &self.read), ("write", &self.write)] {
            direction.write_text(text, name);
        }
        if self.sync_ns.ios > 0 {
            let _ = writeln!(text, "  fsync/fdatasync:");
            write_latency(text, "sync", &self.sync_ns.latency_ns);
        }
        let (user, system) = self.cpu_percent();
        let _ = writeln!(text, "  cpu          : usr={user:.2}%, sys={system:.2}%");
        let _ = writeln!(
            text,
            "     issued rwts: total={},{},0,{} short=0,0,0,0 dropped=0,0,0,0",
            self.read.ios, self.write.ios, self.sync_ns.ios
        );
        let _ =
            writeln!(text, "     latency   : target=0, window=0, percentile=100.00%, depth={}", self.depth);
    }
}

impl DirectionResult {
    fn write_text(&self, text: &mut String, name: &str) {
        if self.ios == 0 {
            return;
        }
        let _ = writeln!(
            text,
            "  {name}: IOPS={}, BW={}({}/{}msec)",
            count(self.iops()),
            bandwidth(self.bandwidth()),
            binary(self.bytes as f64, ""),
            self.runtime.as_millis(),
        );
        write_latency(text, "clat", &self.latency_ns);
        write_percentiles(text, &self.latency_ns);
        if let Some((min, max, mean, deviation)) = spread(&self.samples_kib_s) {
            let _ = writeln!(
                text,
                "   bw (  KiB/s): min={min:.0}, max={max:.0}, avg={mean:.2}, stdev={deviation:.2}, samples={}",
                self.samples_kib_s.len()
            );
        }
    }
}

/// Unit for a latency, and nanoseconds in it.
fn unit(nanoseconds: f64) -> (&'static str, f64) {
    if nanoseconds >= 2e6 {
        ("msec", 1e6)
    } else if nanoseconds >= 2e3 {
        ("usec", 1e3)
    } else {
        ("nsec", 1.0)
    }
}

fn write_latency(text: &mut String, name: &str, latency: &Histogram<u64>) {
    let (unit, factor) = unit(latency.mean());
    let digits = if unit == "nsec" { 0 } else { 2 };
    let _ = writeln!(
        text,
        "    {name} ({unit}): min={:.digits$}, max={:.digits$}, avg={:.2}, stdev={:.2}",
        latency.min() as f64 / factor,
        latency.max() as f64 / factor,
        latency.mean() / factor,
        latency.stdev() / factor,
    );
}

fn write_percentiles(text: &mut String, latency: &Histogram<u64>) {
    let (unit, factor) = unit(latency.value_at_quantile(0.5) as f64);
    let digits = usize::from(factor >= 1e6);
    let _ = writeln!(text, "    clat percentiles ({unit}):");
    for row in PERCENTILES.chunks(4) {
        let cells: Vec<_> = row
            .iter()
            .map(|percentile| {
                let value = latency.value_at_quantile(percentile / 100.0) as f64 / factor;
                format!("{percentile:>5.2}th=[{value:>7.digits$}]")
            })
            .collect();
        let _ = writeln!(text, "     | {}", cells.join(", "));
    }
}

/// Least, largest, mean and standard deviation.
pub(super) fn spread(samples: &[f64]) -> Option<(f64, f64, f64, f64)> {
    if samples.is_empty() {
        return None;
    }
    let mean = samples.iter().sum::<f64>() / samples.len() as f64;
    let variance = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / samples.len() as f64;
    let min = samples.iter().copied().fold(f64::INFINITY, f64::min);
    Some((min, samples.iter().copied().fold(0.0, f64::max), mean, variance.sqrt()))
}

/// `100MiB/s (105MB/s)`.
fn bandwidth(bytes: f64) -> String {
    both(bytes, "/s")
}

fn both(bytes: f64, suffix: &str) -> String {
    format!("{} ({})", binary(bytes, suffix), decimal(bytes, suffix))
}

fn binary(value: f64, suffix: &str) -> String {
    scaled(value, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"], suffix)
}

fn decimal(value: f64, suffix: &str) -> String {
    scaled(value, 1000.0, &["B", "kB", "MB", "GB", "TB"], suffix)
}

fn count(value: f64) -> String {
    scaled(value, 1000.0, &["", "k", "M"], "")
}

/// Three significant digits and a unit; a unit is used up to 9999 of the one below it, as fio does.
fn scaled(mut value: f64, step: f64, units: &[&str], suffix: &str) -> String {
    let mut index = 0;
    while value >= step && index + 1 < units.len() {
        value /= step;
        index += 1;
    }
    let digits = match value {
        v if v >= 100.0 || index == 0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}{}{suffix}", units[index])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn figures_read_like_fio() {
        assert_eq!(bandwidth(105_000_000.0), "100MiB/s (105MB/s)");
        assert_eq!(count(67_400.0), "67.4k");
        assert_eq!(binary(500.0, "/s"), "500B/s");
    }

    #[test]
    fn a_summary_names_what_ran_and_leaves_out_what_did_not() {
        let mut read = DirectionResult {
            bytes: 1 << 30,
            ios: 1024,
            runtime: Duration::from_secs(1),
            ..Default::default()
        };
        for _ in 0..1024 {
            read.latency_ns.saturating_record(976_000);
        }
        let result = JobResult { name: "seqread".into(), jobs: 1, read, depth: 1, ..JobResult::default() };
        let text = JobOutcome::collect(vec![result]).text();
        assert!(text.contains("  read: IOPS=1.02k, BW=1.00GiB/s (1.07GB/s)(1.00GiB/1000msec)"), "{text}");
        assert!(text.contains("    READ: bw=1.00GiB/s"), "{text}");
        assert!(!text.contains("WRITE") && !text.contains("write:"), "{text}");
    }
}

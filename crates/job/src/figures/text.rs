//! The summary as fio prints it.

use std::fmt::Write;

use hdrhistogram::Histogram;

use super::result::{DirectionResult, JobOutcome, JobResult};

/// The percentiles that fio shows.
pub(super) const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

impl JobOutcome {
    /// fio's summary.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (heading, count) in &self.headings {
            let _ = writeln!(text, "{heading}{}", if *count > 1 { "\n..." } else { "" });
        }
        let threads: u32 = self.headings.iter().map(|(_, count)| count).sum();
        let plural = if threads == 1 { "" } else { "s" };
        let _ = writeln!(
            text,
            concat!("diorite-", env!("CARGO_PKG_VERSION"), "\nRan {} thread{}\n"),
            threads, plural
        );
        for result in &self.results {
            self.write_result(&mut text, result);
        }
        for group in &self.groups {
            let _ = writeln!(text, "\nRun status group {} (all jobs):", group.group);
            for (name, direction) in [("READ", &group.read), ("WRITE", &group.write)] {
                self.write_group_line(&mut text, name, group.group, direction);
            }
        }
        if let Some(bytes) = self.read_ahead_bytes {
            let _ = writeln!(text, "\nRead-ahead: at most {} KiB", bytes / 1024);
        }
        if !self.disks.is_empty() {
            text.push_str("\nDisk stats (read/write):\n");
        }
        for disk in &self.disks {
            let _ = writeln!(text, "{}", disk.text());
        }
        if let Some(scheduler) = &self.scheduler {
            text.push_str(&scheduler.text());
        }
        text
    }

    fn write_result(&self, text: &mut String, result: &JobResult) {
        let JobResult { name, group, jobs, .. } = result;
        let _ = writeln!(
            text,
            "{name}: (groupid={group}, jobs={jobs}): err= {}: {}",
            result.first_error.unwrap_or(0),
            self.date()
        );
        result.read.write_text(text, "read");
        result.write.write_text(text, "write");
        result.write_text(text);
    }

    fn write_group_line(&self, text: &mut String, name: &str, group: u32, all: &DirectionResult) {
        if all.ios == 0 {
            return;
        }
        let of_group = || self.results.iter().filter(|result| result.group == group);
        let directions = || {
            of_group()
                .map(|result| match name {
                    "READ" => &result.read,
                    _ => &result.write,
                })
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
    /// The part after the directions: syncs, CPU, counts of transfers.
    fn write_text(&self, text: &mut String) {
        if self.sync_ns.ios > 0 {
            let _ = writeln!(text, "  fsync/fdatasync/sync_file_range:");
            write_latency(text, "sync", &self.sync_ns.latency_ns);
            write_percentiles(text, "sync", &self.sync_ns.latency_ns);
        }
        let ((user, system), usage) = (self.cpu_percent(), &self.usage);
        let _ = writeln!(
            text,
            "  cpu          : usr={user:.2}%, sys={system:.2}%, ctx={}, majf={}, minf={}",
            usage.switches, usage.major_faults, usage.minor_faults
        );
        let _ = writeln!(
            text,
            "     issued rwts: total={},{},0,{} short={},{},0,0 dropped=0,0,0,0",
            self.read.ios, self.write.ios, self.sync_ns.ios, self.read.short, self.write.short
        );
        if self.errors > 0 {
            let _ = writeln!(
                text,
                "     errors    : total={}, first_error={}/<{}>",
                self.errors,
                self.first_error.unwrap_or(0),
                std::io::Error::from_raw_os_error(self.first_error.unwrap_or(0))
            );
        }
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
        if !self.submission_ns.is_empty() {
            write_latency(text, "slat", &self.submission_ns);
        }
        write_latency(text, "clat", &self.latency_ns);
        write_latency(text, " lat", &self.total_ns);
        write_percentiles(text, "clat", &self.latency_ns);
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

fn write_latency(text: &mut String, name: &str, times: &Histogram<u64>) {
    let (unit, factor) = unit(times.mean());
    let digits = if unit == "nsec" { 0 } else { 2 };
    let _ = writeln!(
        text,
        "    {name} ({unit}): min={:.digits$}, max={:.digits$}, avg={:.2}, stdev={:.2}",
        times.min() as f64 / factor,
        times.max() as f64 / factor,
        times.mean() / factor,
        times.stdev() / factor,
    );
}

fn write_percentiles(text: &mut String, name: &str, latency: &Histogram<u64>) {
    let (unit, factor) = unit(latency.value_at_quantile(0.5) as f64);
    let digits = usize::from(factor >= 1e6);
    let _ = writeln!(text, "    {name} percentiles ({unit}):");
    let rows = PERCENTILES.chunks(4).map(|row| {
        let cell = |percentile: &f64| {
            let value = latency.value_at_quantile(percentile / 100.0) as f64 / factor;
            format!("{percentile:>5.2}th=[{value:>5.digits$}]")
        };
        format!("     | {}", row.iter().map(cell).collect::<Vec<_>>().join(", "))
    });
    let _ = writeln!(text, "{}", rows.collect::<Vec<_>>().join(",\n"));
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

/// Three significant digits and a unit.
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
            read.latency_ns.record(976_000).unwrap();
        }
        let result = JobResult { name: "seqread".into(), jobs: 1, read, depth: 1, ..JobResult::default() };
        let text = JobOutcome::collect(vec![result]).text();
        assert!(text.contains("  read: IOPS=1.02k, BW=1.00GiB/s (1.07GB/s)(1.00GiB/1000msec)"), "{text}");
        assert!(text.contains("    READ: bw=1.00GiB/s"), "{text}");
        assert!(!text.contains("WRITE") && !text.contains("write:"), "{text}");
    }
}

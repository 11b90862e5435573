//! The page of `top`: lines about the mount, and a table of processes.

use std::time::Duration;

use diorite_mount::status::{Status, TaskStatus, Totals};

use super::Usage;
use crate::failure::visible;

const HEADER: &str = "    PID COMMAND            READ/s    MB/s   p50   p99   WRITE/s    MB/s   p50   p99  SYNC/s   \
                      p99  META/s";

/// The page.
pub(super) fn lines(usage: &Usage, now: &Status) -> Vec<String> {
    let mut lines = vec![title(now), state(now)];
    if let Some(reason) = &now.volume.read_only {
        lines.push(format!("READ-ONLY: {}", visible(reason)));
    }
    lines.push(String::new());
    lines.push(HEADER.to_owned());
    let total = usage.total();
    lines.push(line("", "all", &total, usage.seconds));
    for task in &usage.tasks {
        let pid = if task.pid == 0 { "-".to_owned() } else { task.pid.to_string() };
        let command = if task.command.is_empty() { "?" } else { &task.command };
        lines.push(line(&pid, &visible(command), task, usage.seconds));
    }
    lines
}

fn title(now: &Status) -> String {
    let (seconds, in_flight) = (now.uptime_ms / 1000, &now.in_flight);
    let oldest = in_flight.first().map_or_else(String::new, |request| {
        format!(
            ", the oldest for {} ({})",
            short(Duration::from_micros(request.age_us)),
            visible(&request.operation)
        )
    });
    format!(
        "{} on {}, up {}:{:02}:{:02}; {} requests in flight{oldest}",
        visible(&now.image),
        visible(&now.directory),
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        in_flight.len(),
    )
}

fn state(now: &Status) -> String {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let (cache, journal) = (&now.cache, &now.journal);
    let log = match (journal.log_used, journal.log_blocks) {
        (Some(used), Some(blocks)) => format!("log {used} of {blocks} blocks"),
        _ => "no journal".to_owned(),
    };
    let scheduler = now.scheduler.as_ref().map_or_else(String::new, |scheduler| {
        format!(
            "; {}: {} queued, {} of {} in the device",
            visible(&scheduler.name),
            scheduler.queued,
            scheduler.in_flight,
            scheduler.depth
        )
    });
    format!(
        "cache {:.1} MiB, {:.1} dirty; metadata {:.1} MiB; {log}{scheduler}",
        mib(cache.used),
        mib(cache.dirty),
        mib(cache.metadata_used)
    )
}

fn line(pid: &str, command: &str, task: &TaskStatus, seconds: f64) -> String {
    let rate = |count: u64| count as f64 / seconds;
    let command: String = command.chars().take(15).collect();
    let data = |totals: &Totals| {
        let (ops, mb) = (rate(totals.operations), rate(totals.bytes) / 1e6);
        let latency = |percent| time(totals, percent);
        format!("{ops:>9.0} {mb:>7.1} {:>5} {:>5}", latency(50.0), latency(99.0))
    };
    format!(
        "{pid:>7} {command:<15} {} {} {:>7.0} {:>5} {:>7.0}",
        data(&task.read),
        data(&task.write),
        rate(task.sync.operations),
        time(&task.sync, 99.0),
        rate(task.metadata.operations)
    )
}

fn time(totals: &Totals, percent: f64) -> String {
    if totals.operations == 0 { String::new() } else { short(totals.latencies.percentile(percent)) }
}

/// A time in at most five characters.
fn short(time: Duration) -> String {
    let us = time.as_micros();
    match us {
        0..1000 => format!("{us}us"),
        1000..10_000 => format!("{:.1}ms", us as f64 / 1e3),
        10_000..1_000_000 => format!("{}ms", us / 1000),
        1_000_000..100_000_000 => format!("{:.1}s", us as f64 / 1e6),
        _ => format!("{}s", us / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let shown = |us| short(Duration::from_micros(us));
        let all = [0, 999, 1000, 9_949, 10_000, 999_999, 1_000_000, 99_999_999, 86_400_000_000].map(shown);
        assert_eq!(all, ["0us", "999us", "1.0ms", "9.9ms", "10ms", "999ms", "1.0s", "100.0s", "86400s"]);
    }
}

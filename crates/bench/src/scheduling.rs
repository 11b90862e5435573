//! Service of each owner by an I/O scheduler, as text and JSON.
//!
//! Where it sits: a copy of a scheduler's statistics at the end of a workload, with the names of owners.

use std::fmt::Write;
use std::time::Duration;

use diorite::front_end::{ScheduledDevice, TaskId};
use diorite_scheduler::{Histogram, OwnerStatistics};
use serde_json::{Value, json};

/// Service of one owner.
#[derive(Clone, Debug)]
pub struct OwnerShare {
    /// The owner.
    pub task: TaskId,
    /// Its name: the job's, or the task's number.
    pub name: String,
    /// Its statistics.
    pub statistics: OwnerStatistics,
}

/// A scheduler at the end of a workload.
#[derive(Clone, Debug)]
pub struct SchedulerReport {
    /// `inject`, `cfq`, `deadline`.
    pub name: &'static str,
    /// All owners, in order of their first request.
    pub owners: Vec<OwnerShare>,
    /// The scheduler's state as text.
    pub state: String,
}

impl SchedulerReport {
    /// The present statistics; `name_of` gives the names of owners.
    pub fn of(device: &ScheduledDevice, name_of: impl Fn(TaskId) -> Option<String>) -> Self {
        let statistics = device.statistics();
        let share = |(task, statistics): (TaskId, &OwnerStatistics)| OwnerShare {
            task,
            name: name_of(task).unwrap_or_else(|| task.to_string()),
            statistics: statistics.clone(),
        };
        Self {
            name: device.scheduler_name(),
            owners: statistics.owners().map(share).collect(),
            state: device.describe(),
        }
    }

    /// A table: a line for each owner, times in milliseconds.
    pub fn text(&self) -> String {
        self.heading() + &self.rows()
    }

    /// Reports of several devices as tables, one for each kind of scheduler.
    pub fn text_of_all(reports: &[Self]) -> String {
        let mut text = String::new();
        for (index, report) in reports.iter().enumerate() {
            if index == 0 || reports[index - 1].name != report.name {
                text.push_str(&report.heading());
            }
            text.push_str(&report.rows());
        }
        text
    }

    fn heading(&self) -> String {
        format!(
            "\nI/O scheduler {}, by owner; wait for dispatch and service: percentiles in ms\n{:<14} {:>8} {:>6} {:>8} {:>8} \
             {:>15} {:>15}\n",
            self.name, "", "requests", "merged", "read MB", "write MB", "wait 50/99/max", "serve 50/99/max",
        )
    }

    fn rows(&self) -> String {
        let mut text = String::new();
        for OwnerShare { name, statistics, .. } in &self.owners {
            let _ = writeln!(
                text,
                "{name:<14} {:>8} {:>6} {:>8.1} {:>8.1} {:>15} {:>15}",
                statistics.completed,
                statistics.merged,
                statistics.read_bytes as f64 / 1e6,
                statistics.write_bytes as f64 / 1e6,
                triple(&statistics.wait),
                triple(&statistics.service),
            );
        }
        text
    }

    /// `{ "name", "owners": [{ "task", "name", "ios", "merged", "read_bytes", "write_bytes", "wait_us", "service_us" }] }`.
    pub fn json(&self) -> Value {
        let owners: Vec<_> = self
            .owners
            .iter()
            .map(|OwnerShare { task, name, statistics }| {
                json!({
                    "task": task.0,
                    "name": name,
                    "ios": statistics.completed,
                    "merged": statistics.merged,
                    "read_bytes": statistics.read_bytes,
                    "write_bytes": statistics.write_bytes,
                    "wait_us": percentiles_us(&statistics.wait),
                    "service_us": percentiles_us(&statistics.service),
                })
            })
            .collect();
        json!({ "name": self.name, "owners": owners, "state": self.state.lines().collect::<Vec<_>>() })
    }
}

fn triple(times: &Histogram) -> String {
    let ms = |time: Duration| match time.as_secs_f64() * 1e3 {
        ms if ms >= 100.0 => format!("{ms:.0}"),
        ms if ms >= 10.0 => format!("{ms:.1}"),
        ms => format!("{ms:.2}"),
    };
    format!("{}/{}/{}", ms(times.percentile(50.0)), ms(times.percentile(99.0)), ms(times.max()))
}

fn percentiles_us(times: &Histogram) -> Value {
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    json!({
        "mean": us(times.mean()),
        "p50": us(times.percentile(50.0)),
        "p90": us(times.percentile(90.0)),
        "p99": us(times.percentile(99.0)),
        "p99_9": us(times.percentile(99.9)),
        "max": us(times.max()),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use diorite::front_end::{IoOwner, IoPriority};
    use diorite::{BlockDevice, SchedulerKind};
    use diorite_sim::image::ImageDevice;

    use super::*;

    #[test]
    fn owners_are_told_apart_by_name_bytes_and_times() {
        let memory: Arc<dyn BlockDevice> = ImageDevice::zeroed(1 << 20);
        let device = ScheduledDevice::of_kind(&memory, SchedulerKind::Inject).expect("a scheduler");
        for (task, count) in [(1, 3), (2, 1)] {
            let _charged = IoOwner { task: TaskId(task), priority: IoPriority::default() }.enter();
            let lent: Arc<dyn BlockDevice> = device.clone();
            for _ in 0..count {
                lent.read_bytes(0, &mut [0; 4096]).expect("reads");
            }
        }
        let names = |task: TaskId| (task == TaskId(1)).then(|| "scan".to_owned());
        let report = SchedulerReport::of(&device, names);
        let json = report.json();
        assert_eq!((&json["owners"][0]["name"], &json["owners"][0]["ios"]), (&json!("scan"), &json!(3)));
        assert_eq!(json["owners"][1]["read_bytes"], 4096);
        assert!(json["owners"][1]["service_us"]["max"].as_f64().expect("a number") > 0.0);
        assert!(report.text().contains("task 2"), "{}", report.text());
    }
}

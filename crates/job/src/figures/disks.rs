//! Activity of a simulated drive under the jobs' files.

use std::time::Duration;

use diorite_sim::disk::Activity;
use serde_json::{Value, json};

/// Activity of one drive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskUse {
    /// For instance `sim:sata-2009`.
    pub name: String,
    /// Requests completed: reads, writes.
    pub ios: [u64; 2],
    /// Time that requests took, summed, in milliseconds.
    pub ticks_ms: [u64; 2],
    /// Time that all requests (flushes included) took, in milliseconds.
    pub in_queue_ms: u64,
    /// Share of the time in which the drive was busy.
    pub busy_percent: f64,
}

impl DiskUse {
    /// Between two moments.
    pub(crate) fn of_drive(name: &str, [before, after]: [&Activity; 2], elapsed: Duration) -> Self {
        let ms = |time: Duration| time.as_millis() as u64;
        let took = [0, 1].map(|side| after.took[side].saturating_sub(before.took[side]));
        let flushes_took = after.flushes_took.saturating_sub(before.flushes_took);
        let busy = after.busy.saturating_sub(before.busy);
        Self {
            name: name.to_owned(),
            ios: [0, 1].map(|side| after.ios[side].saturating_sub(before.ios[side])),
            ticks_ms: took.map(ms),
            in_queue_ms: ms(took.iter().sum::<Duration>() + flushes_took),
            busy_percent: 100.0 * busy.as_secs_f64() / elapsed.as_secs_f64().max(1e-9),
        }
    }

    /// fio's object for it. A drive merges nothing.
    pub(super) fn json(&self) -> Value {
        json!({
            "name": self.name,
            "read_ios": self.ios[0],
            "write_ios": self.ios[1],
            "read_merges": 0,
            "write_merges": 0,
            "read_ticks": self.ticks_ms[0],
            "write_ticks": self.ticks_ms[1],
            "in_queue": self.in_queue_ms,
            "util": self.busy_percent,
        })
    }

    /// fio's line for it.
    pub(super) fn text(&self) -> String {
        let Self { name, ios: [reads, writes], ticks_ms: [read_ticks, write_ticks], .. } = self;
        format!(
            "  {name}: ios={reads}/{writes}, merge=0/0, ticks={read_ticks}/{write_ticks}, in_queue={}, util={:.2}%",
            self.in_queue_ms, self.busy_percent
        )
    }
}

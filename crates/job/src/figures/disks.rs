//! Activity of the disks under the jobs' files, as counted by the kernel or the simulated drive.
//!
//! Interface: a [`DiskProbe`] is started before the jobs and finished after them. As in fio, requests of other programs to the
//! same disk are counted too.

use std::path::{Path, PathBuf};
use std::time::Duration;

use diorite_bench::disk_of;
use diorite_block::sync::now;
use diorite_sim::disk::Activity;
use serde_json::{Value, json};

/// Activity of one disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskUse {
    /// `vda`, `sim:sata-2009`.
    pub name: String,
    /// Requests completed: reads, writes.
    pub ios: [u64; 2],
    /// Requests that the kernel merged into another one.
    pub merges: [u64; 2],
    /// Time that requests took, summed, in milliseconds.
    pub ticks_ms: [u64; 2],
    /// Time that all requests (flushes included) took, in milliseconds.
    pub in_queue_ms: u64,
    /// Share of the time in which the disk was busy.
    pub busy_percent: f64,
}

impl DiskUse {
    /// Of a simulated drive, between two moments. The drive merges nothing.
    pub(crate) fn of_drive(name: &str, [before, after]: [&Activity; 2], elapsed: Duration) -> Self {
        let ms = |time: Duration| time.as_millis() as u64;
        let took = [0, 1].map(|side| after.took[side].saturating_sub(before.took[side]));
        let flushes_took = after.flushes_took.saturating_sub(before.flushes_took);
        let busy = after.busy.saturating_sub(before.busy);
        Self {
            name: name.to_owned(),
            ios: [0, 1].map(|side| after.ios[side].saturating_sub(before.ios[side])),
            merges: [0; 2],
            ticks_ms: took.map(ms),
            in_queue_ms: ms(took.iter().sum::<Duration>() + flushes_took),
            busy_percent: 100.0 * busy.as_secs_f64() / elapsed.as_secs_f64().max(1e-9),
        }
    }

    /// fio's object for it.
    pub(super) fn json(&self) -> Value {
        let ([read_ios, write_ios], [read_merges, write_merges], [read_ticks, write_ticks]) =
            (self.ios, self.merges, self.ticks_ms);
        json!({
            "name": self.name,
            "read_ios": read_ios,
            "write_ios": write_ios,
            "read_merges": read_merges,
            "write_merges": write_merges,
            "read_ticks": read_ticks,
            "write_ticks": write_ticks,
            "in_queue": self.in_queue_ms,
            "util": self.busy_percent,
        })
    }

    /// fio's line for it.
    pub(super) fn text(&self) -> String {
        let pair = |of: [u64; 2]| format!("{}/{}", of[0], of[1]);
        format!(
            "  {}: ios={}, merge={}, ticks={}, in_queue={}, util={:.2}%",
            self.name,
            pair(self.ios),
            pair(self.merges),
            pair(self.ticks_ms),
            self.in_queue_ms,
            self.busy_percent
        )
    }
}

/// The kernel's counters of one disk, in the order of its `stat` file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counters([u64; 11]);

impl Counters {
    fn read(directory: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(directory.join("stat")).ok()?;
        let mut numbers = text.split_whitespace().map(str::parse);
        let mut counters = Self::default();
        for counter in &mut counters.0 {
            *counter = numbers.next()?.ok()?;
        }
        Some(counters)
    }

    /// The difference of two readings.
    fn since(&self, earlier: &Self, name: &str, elapsed: Duration) -> DiskUse {
        let of = |at: usize| self.0[at].wrapping_sub(earlier.0[at]);
        let elapsed_ms = elapsed.as_secs_f64() * 1e3;
        DiskUse {
            name: name.to_owned(),
            ios: [of(0), of(4)],
            merges: [of(1), of(5)],
            ticks_ms: [of(3), of(7)],
            in_queue_ms: of(10),
            busy_percent: (100.0 * of(9) as f64 / elapsed_ms.max(1e-3)).min(100.0),
        }
    }
}

/// Counters of disks at the start.
#[derive(Debug)]
pub(crate) struct DiskProbe {
    disks: Vec<(PathBuf, Counters)>,
    started: Duration,
}

impl DiskProbe {
    /// Read the counters of the disks under these files or devices of the host. A file on no disk is ignored.
    pub(crate) fn start(files: &[PathBuf]) -> Self {
        let mut disks: Vec<(PathBuf, Counters)> = Vec::new();
        for directory in files.iter().filter_map(|file| disk_of(file)) {
            if disks.iter().all(|(known, _)| *known != directory)
                && let Some(counters) = Counters::read(&directory)
            {
                disks.push((directory, counters));
            }
        }
        Self { disks, started: now() }
    }

    /// Their activity.
    pub(crate) fn finish(self) -> Vec<DiskUse> {
        let elapsed = now().saturating_sub(self.started);
        let used = |(directory, before): (PathBuf, Counters)| {
            let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Some(Counters::read(&directory)?.since(&before, &name, elapsed))
        };
        self.disks.into_iter().filter_map(used).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_become_fios_figures() {
        let (before, after) = (Counters([1; 11]), Counters([11, 2, 90, 6, 21, 3, 80, 9, 0, 501, 31]));
        let used = after.since(&before, "vda", Duration::from_secs(1));
        assert_eq!((used.ios, used.merges, used.ticks_ms, used.in_queue_ms), ([10, 20], [1, 2], [5, 8], 30));
        assert!((used.busy_percent - 50.0).abs() < 1e-9);
        let text = "  vda: ios=10/20, merge=1/2, ticks=5/8, in_queue=30, util=50.00%";
        assert_eq!(used.text(), text);
    }

    #[test]
    fn a_file_on_no_disk_is_ignored() {
        assert_eq!(DiskProbe::start(&[PathBuf::from("/proc/version")]).finish(), []);
    }
}

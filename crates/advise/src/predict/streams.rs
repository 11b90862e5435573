//! Streams: a reader in order whose data the kernel or the library reads ahead, and a writer whose data they write behind it.

use std::collections::HashMap;

use crate::probe::Cost;

/// One file, read or written in order by one thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stream {
    /// The offset after the last call.
    next: u64,
    /// When the disk has moved what was asked of it, on the clock of the thread.
    moved_s: f64,
    is_begun: bool,
    is_written: bool,
}

/// How a stream uses the disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Time of the disk for a byte.
    pub(super) disk_s_per_byte: f64,
    /// Bytes that the disk may be ahead of the reader, or behind the writer.
    pub(super) window_bytes: f64,
    /// What the first call takes: nothing was read ahead for it.
    pub(super) first: Cost,
}

impl Stream {
    /// Whether a call continues the stream, or starts one at the start of the file. The next call is compared with this one.
    pub(super) fn enter(&mut self, offset: u64, end: u64) -> bool {
        let is_in_order = self.next == offset || offset == 0;
        if !is_in_order || offset == 0 {
            self.is_begun = false;
        }
        self.next = end;
        is_in_order
    }

    /// Read `bytes` that the cache does not hold, at `now` on the clock of the thread. `cost` is what the CPU does for the call.
    pub(super) fn read(&mut self, now: f64, bytes: f64, cost: Cost, pace: Pace) -> Cost {
        let disk = bytes * pace.disk_s_per_byte;
        if self.is_begun {
            // The disk was idle while the window was full.
            let earliest = now - pace.window_bytes * pace.disk_s_per_byte;
            self.moved_s = self.moved_s.max(earliest) + disk;
            return Cost { seconds: cost.cpu_s.max(self.moved_s - now), cpu_s: cost.cpu_s };
        }
        self.is_begun = true;
        self.moved_s = now + pace.first.seconds.max(disk);
        let cpu_s = cost.cpu_s.max(pace.first.cpu_s);
        Cost { seconds: cpu_s.max(self.moved_s - now), cpu_s }
    }

    /// Write `bytes`: the call waits only while the window is full.
    pub(super) fn write(&mut self, now: f64, bytes: f64, cost: Cost, pace: Pace) -> Cost {
        self.moved_s = self.moved_s.max(now) + bytes * pace.disk_s_per_byte;
        self.is_written = true;
        let wait = self.moved_s - pace.window_bytes * pace.disk_s_per_byte - now;
        Cost { seconds: cost.cpu_s.max(wait), cpu_s: cost.cpu_s }
    }

    /// How long a sync of the file waits for writes that the disk has not finished.
    pub(super) fn drain(&self, now: f64) -> f64 {
        (self.moved_s - now).max(0.0)
    }
}

/// All streams, by thread and file.
#[derive(Debug, Default)]
pub(super) struct Streams {
    all: HashMap<(u32, u32), Stream>,
}

impl Streams {
    /// The stream of a thread on a file.
    pub(super) fn of(&mut self, thread: u32, file: u32) -> &mut Stream {
        self.all.entry((thread, file)).or_default()
    }

    /// When the last write of a thread is on the disk.
    pub(super) fn last_write_s(&self, thread: u32) -> f64 {
        let own = self.all.iter().filter(|((owner, _), stream)| *owner == thread && stream.is_written);
        own.map(|(_, stream)| stream.moved_s).fold(0.0, f64::max)
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace =
        Pace { disk_s_per_byte: 1.0, window_bytes: 4.0, first: Cost { seconds: 3.0, cpu_s: 0.1 } };

    fn cpu(cpu_s: f64) -> Cost {
        Cost { seconds: 0.0, cpu_s }
    }

    #[test]
    fn a_reader_waits_for_the_slower_of_disk_and_cpu() {
        let total = |think: f64, cpu_s: f64| {
            let (mut stream, mut now) = (Stream::default(), 0.0);
            for _ in 0..100 {
                now += think;
                now += stream.read(now, 1.0, cpu(cpu_s), PACE).seconds;
            }
            now
        };
        // Disk: 3 s until the first byte, then a second for each.
        assert!((total(0.0, 0.1) - 102.0).abs() < 1.5, "{}", total(0.0, 0.1));
        assert!((total(0.5, 0.1) - 102.0).abs() < 2.0);
        // The reader is slower: the disk is ahead.
        assert!((total(2.0, 0.5) - 250.0).abs() < 4.0, "{}", total(2.0, 0.5));
        assert!((total(0.0, 3.0) - 300.0).abs() < 4.0);
    }

    #[test]
    fn a_writer_waits_for_a_full_window_and_for_syncs() {
        let (mut stream, mut now) = (Stream::default(), 0.0);
        for _ in 0..100 {
            now += stream.write(now, 1.0, cpu(0.1), PACE).seconds;
        }
        assert!((now - 96.0).abs() < 1.0, "{now}");
        let wait = stream.drain(now);
        assert!((wait - 4.0).abs() < 0.5, "{wait}");
        assert!(Stream::default().drain(now).abs() < 1e-9);
    }

    #[test]
    fn order_is_by_thread_and_file() {
        let mut streams = Streams::default();
        assert!(streams.of(0, 0).enter(0, 10));
        assert!(streams.of(0, 0).enter(10, 20));
        assert!(!streams.of(1, 0).enter(20, 30));
        assert!(streams.of(1, 0).enter(30, 40));
        assert!(!streams.of(0, 0).enter(50, 60));
        assert!(streams.of(0, 1).enter(0, 5) && streams.of(0, 0).enter(0, 5));
    }
}

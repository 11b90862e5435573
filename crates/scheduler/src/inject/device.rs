//! Measurements of the device: seek cost, media rate, write cache.

use std::time::Duration;

use super::flow::Mean;
use crate::Request;

/// Seek cost until it is measured: half a revolution at 7200 rpm and a short seek.
const SEEK_AT_FIRST: f64 = 0.006;
/// A full stroke and a revolution. A longer time has another cause.
const SEEK_MOST: f64 = 0.025;
/// Distances beyond this many sectors are seeks.
const FAR_SECTORS: u64 = 8192;
/// A shorter time is no seek: idling for one owner gains nothing.
const SEEK_LEAST: f64 = 0.0005;
/// Share of slow runs from which the device has seeks. Read-ahead hides many seeks of a drive, and a device without seeks has a slow
/// request now and then.
const SLOW_RUNS_LEAST: f64 = 0.25;
/// Runs over which that share is measured: slow requests come in groups.
const SLOW_RUNS_MEMORY: u32 = 64;
/// Most bytes of a run that may come from the drive's memory. A slow request after them is not slow for a seek.
const READ_AHEAD_MOST: u64 = 4 << 20;
/// Transfers of this length show the media rate.
const LONG: u64 = 64 * 1024;
/// Bytes per second until it is measured.
const RATE_AT_FIRST: f64 = 100e6;

/// Weight of the guess of the write-out cost, in writes: a cache holds as many before the drive writes it out.
/// The guess is this part of a seek: the drive sorts the writes.
const WRITE_OUT_LEAST: f64 = 4096.0;
const WRITE_OUT_GUESS: f64 = 2.0;
/// After this many cached writes, older ones lose half their weight.
const WRITE_OUT_MEMORY: f64 = 16_384.0;

/// See the module head. Times in seconds.
#[derive(Debug, Default)]
pub(super) struct Device {
    rotational: bool,
    /// Time per byte of long sequential transfers.
    per_byte: Mean,
    /// Time beyond its bytes of the slowest request at the beginning of a run, which had to wait for the seek. The first request of
    /// a run may be in the drive's memory.
    seeks: Mean,
    /// Share of runs that began with a seek, and the number of runs.
    slow_runs: f64,
    runs: u32,
    run: Run,
    /// Scattered cached writes, and the time that requests waited while the drive wrote them out.
    cached_writes: f64,
    written_out: f64,
    /// Share of cacheable writes that completed quickly.
    quick_writes: Mean,
    /// When the last request that was not injected completed, and the last of any kind.
    last_arm_end: Duration,
    last_end: Duration,
    /// End of the last request that was not injected.
    position: u64,
}

/// Requests without a seek in between.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    is_alone: bool,
    requests: u32,
    bytes: u64,
    slowest: f64,
}

impl Device {
    pub(super) fn new(rotational: bool) -> Self {
        Self { rotational, ..Self::default() }
    }

    /// Cost of a seek.
    pub(super) fn seek(&self) -> f64 {
        self.seeks.trusted().unwrap_or(SEEK_AT_FIRST)
    }

    /// Whether the seek cost is measured.
    pub(super) fn is_known(&self) -> bool {
        self.seeks.trusted().is_some()
    }

    /// Whether the order of requests matters.
    pub(super) fn has_seeks(&self) -> bool {
        self.rotational && (!self.is_known() || self.slow_runs >= SLOW_RUNS_LEAST)
    }

    /// Media time of so many bytes.
    pub(super) fn transfer(&self, bytes: u64) -> f64 {
        bytes as f64 * self.per_byte.trusted().unwrap_or(1.0 / RATE_AT_FIRST)
    }

    /// Media time that a scattered cached write costs later.
    pub(super) fn write_out(&self) -> f64 {
        let guess = self.seek() / WRITE_OUT_GUESS;
        let measured = self.written_out + WRITE_OUT_LEAST * guess;
        (measured / (self.cached_writes + WRITE_OUT_LEAST)).min(self.seek())
    }

    /// Count a cached write. `scattered` is the probability that it is not sequential.
    pub(super) fn write_cached(&mut self, scattered: f64) {
        self.cached_writes += scattered;
        if self.cached_writes > WRITE_OUT_MEMORY {
            self.cached_writes /= 2.0;
            self.written_out /= 2.0;
        }
    }

    /// Note the time of a request. The part beyond its bytes and a seek is time in which the drive wrote out its cache.
    pub(super) fn note_write_out(&mut self, took: f64, bytes: u64) {
        self.written_out += (took - self.transfer(bytes) - 1.5 * self.seek()).max(0.0);
    }

    /// Whether the drive caches writes.
    pub(super) fn caches_writes(&self) -> bool {
        self.quick_writes.get().is_none_or(|share| share >= 0.5)
    }

    /// A request that was not injected has completed; `others` are still in the device. Returns the device time of this request alone,
    /// as far as that can be known.
    pub(super) fn arm_ended(
        &mut self,
        request: &Request,
        dispatched: Duration,
        others: u32,
        now: Duration,
    ) -> f64 {
        let took = now.saturating_sub(dispatched.max(self.last_arm_end)).as_secs_f64();
        let distance = self.distance(request);
        (self.last_arm_end, self.last_end, self.position) = (now, now, request.end().0);
        let bytes = request.bytes();
        let slowness = (took - self.transfer(bytes)).max(0.0);
        if distance > FAR_SECTORS {
            // With several requests in the device the drive sorts them, so this is not the time of one seek.
            let run = std::mem::replace(&mut self.run, Run { is_alone: others == 0, ..Run::default() });
            let is_one_seek = run.requests > 1 || run.requests == 1 && run.is_alone;
            if is_one_seek && run.slowest <= SEEK_MOST {
                self.seeks.add(run.slowest);
                self.runs = SLOW_RUNS_MEMORY.min(self.runs + 1);
                let is_slow = f64::from(u8::from(run.slowest >= SEEK_LEAST));
                self.slow_runs += (is_slow - self.slow_runs) / f64::from(self.runs);
            }
        } else if distance == 0 && bytes >= LONG {
            self.per_byte.add(took / bytes as f64);
        }
        let run = &mut self.run;
        if run.bytes < READ_AHEAD_MOST {
            run.slowest = run.slowest.max(slowness);
        }
        (run.requests, run.bytes) = (run.requests + 1, run.bytes + bytes);
        took
    }

    /// A cacheable write that was not injected has completed. If it was far away or small, and quick, the drive caches it.
    pub(super) fn arm_write_ended(&mut self, took: f64, bytes: u64, distance: u64) {
        if distance > FAR_SECTORS || bytes < LONG {
            self.note_write(took, bytes);
        }
    }

    /// Sectors from the end of the last request that was not injected.
    pub(super) fn distance(&self, request: &Request) -> u64 {
        request.sector.0.abs_diff(self.position)
    }

    /// An injected write has completed.
    pub(super) fn write_ended(&mut self, dispatched: Duration, bytes: u64, now: Duration) -> f64 {
        let took = now.saturating_sub(dispatched.max(self.last_end)).as_secs_f64();
        self.last_end = now;
        self.note_write(took, bytes);
        took
    }

    fn note_write(&mut self, took: f64, bytes: u64) {
        // A write to the medium waits for half a revolution at least.
        let is_quick = took < self.seek() / 2.0 + self.transfer(bytes);
        self.quick_writes.add(f64::from(u8::from(is_quick)));
    }
}

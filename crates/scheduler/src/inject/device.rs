//! What is learned of the device: what a seek costs, how fast the medium is, whether writes are cached.

use std::time::Duration;

use super::flow::Mean;
use crate::Request;

/// A seek of a drive with an arm until it is measured: half a turn at 7200 rpm and a short way.
const SEEK_AT_FIRST: f64 = 0.006;
/// From one end to the other, and a turn: what takes longer is a trip of the arm for another reason.
const SEEK_MOST: f64 = 0.025;
/// Distances beyond this many sectors are seeks.
const FAR_SECTORS: u64 = 8192;
/// What takes less is no seek: nothing is gained then by keeping the device for one owner.
const SEEK_LEAST: f64 = 0.0005;
/// Share of slow runs from which on it is the arm: a drive hides many of its seeks behind what it has read ahead, and a device without an
/// arm has a slow request now and then.
const SLOW_RUNS_LEAST: f64 = 0.25;
/// Runs over which that share is taken: such requests come several at once.
const SLOW_RUNS_MEMORY: u32 = 64;
/// Most bytes at the beginning of a run that a drive may have in its memory. What is slow after them is not slow for the way there.
const READ_AHEAD_MOST: u64 = 4 << 20;
/// Transfers of so many bytes show the rate of the medium.
const LONG: u64 = 64 * 1024;
/// Bytes a second until it is measured.
const RATE_AT_FIRST: f64 = 100e6;

/// Cached writes that outweigh the guess of their cost, as many as a cache holds: it is written out only when it is full. The guess is this
/// part of a seek: the drive sorts them.
const WRITE_OUT_LEAST: f64 = 4096.0;
const WRITE_OUT_GUESS: f64 = 2.0;
/// Once this many cached writes have been measured, older ones lose half their weight.
const WRITE_OUT_MEMORY: f64 = 16_384.0;

/// See the module's head. Times in seconds.
#[derive(Debug)]
pub(super) struct Device {
    rotational: bool,
    /// Time for a byte of long transfers that go on where the last one ended.
    per_byte: Mean,
    /// Time beyond its bytes that the slowest request at the beginning of a run takes: the one for which the arm had to move. The first of
    /// a run may find its bytes in the drive's memory, read ahead.
    seeks: Mean,
    /// Share of runs that began with such a request, of this many.
    slow_runs: f64,
    runs: u32,
    run: Run,
    /// Scattered writes that went into the drive's cache, and the time that requests waited while it was written out.
    cached_writes: f64,
    written_out: f64,
    /// Share of cacheable writes that were quick.
    quick_writes: Mean,
    /// When the last request that needs the arm ended, and the last of any kind.
    last_arm_end: Duration,
    last_end: Duration,
    /// Where the last request that needs the arm ended.
    position: u64,
}

/// Requests that follow each other without a way in between.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    is_alone: bool,
    requests: u32,
    bytes: u64,
    slowest: f64,
}

impl Device {
    pub(super) fn new(rotational: bool) -> Self {
        Self {
            rotational,
            per_byte: Mean::default(),
            seeks: Mean::default(),
            slow_runs: 0.0,
            runs: 0,
            run: Run::default(),
            cached_writes: 0.0,
            written_out: 0.0,
            quick_writes: Mean::default(),
            last_arm_end: Duration::ZERO,
            last_end: Duration::ZERO,
            position: 0,
        }
    }

    /// What it costs to leave a place and come back to another.
    pub(super) fn seek(&self) -> f64 {
        self.seeks.trusted().unwrap_or(SEEK_AT_FIRST)
    }

    /// Whether the cost of a seek was measured.
    pub(super) fn is_known(&self) -> bool {
        self.seeks.trusted().is_some()
    }

    /// Whether the order of requests matters at all.
    pub(super) fn has_seeks(&self) -> bool {
        self.rotational && (!self.is_known() || self.slow_runs >= SLOW_RUNS_LEAST)
    }

    /// What moving so many bytes takes of the medium.
    pub(super) fn transfer(&self, bytes: u64) -> f64 {
        bytes as f64 * self.per_byte.trusted().unwrap_or(1.0 / RATE_AT_FIRST)
    }

    /// What a scattered write in the cache takes of the medium later.
    pub(super) fn write_out(&self) -> f64 {
        let guess = self.seek() / WRITE_OUT_GUESS;
        let measured = self.written_out + WRITE_OUT_LEAST * guess;
        (measured / (self.cached_writes + WRITE_OUT_LEAST)).min(self.seek())
    }

    /// A write goes into the cache. `scattered`: how likely it does not continue the one before it.
    pub(super) fn write_cached(&mut self, scattered: f64) {
        self.cached_writes += scattered;
        if self.cached_writes > WRITE_OUT_MEMORY {
            self.cached_writes /= 2.0;
            self.written_out /= 2.0;
        }
    }

    /// A request took so long: the part that neither its bytes nor a seek explains was the drive writing out its cache.
    pub(super) fn note_write_out(&mut self, took: f64, bytes: u64) {
        self.written_out += (took - self.transfer(bytes) - 1.5 * self.seek()).max(0.0);
    }

    /// Whether writes end in a cache, so that they do not need the arm at once.
    pub(super) fn caches_writes(&self) -> bool {
        self.quick_writes.get().is_none_or(|share| share >= 0.5)
    }

    /// A request that needs the arm has ended; `others` of that kind are still in the device. Returns how long the device worked on
    /// it alone, as far as that can be told.
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
            // With several in the device the drive chooses the way: that says nothing of one seek.
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

    /// A cacheable write that was given the arm has ended. If it was far away, or small, and quick all the same, then the drive caches it.
    pub(super) fn arm_write_ended(&mut self, took: f64, bytes: u64, distance: u64) {
        if distance > FAR_SECTORS || bytes < LONG {
            self.note_write(took, bytes);
        }
    }

    /// Sectors from where the last request ended that needed the arm.
    pub(super) fn distance(&self, request: &Request) -> u64 {
        request.sector.0.abs_diff(self.position)
    }

    /// A cacheable write has ended.
    pub(super) fn write_ended(&mut self, dispatched: Duration, bytes: u64, now: Duration) -> f64 {
        let took = now.saturating_sub(dispatched.max(self.last_end)).as_secs_f64();
        self.last_end = now;
        self.note_write(took, bytes);
        took
    }

    fn note_write(&mut self, took: f64, bytes: u64) {
        // A write that needs the arm waits for half a turn at least.
        let is_quick = took < self.seek() / 2.0 + self.transfer(bytes);
        self.quick_writes.add(f64::from(u8::from(is_quick)));
    }
}

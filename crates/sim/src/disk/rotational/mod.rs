//! A rotating drive: arm, read-ahead segments, write-back cache, firmware, queue.
//!
//! Two parts work at once. The **firmware** (with the bus) takes commands one after the other. A read takes `read_command_us`, and later the
//! transfer. A write takes its command and its transfer; with a write cache the host waits for no more. The **arm** is idle, streams from the
//! medium into a read segment, or writes to the medium.
//!
//! Choices of the model, which affect the shares of owners and which the published rows do not decide:
//! 1. The cache takes writes while the arm reads or destages (queue depth above 1), up to twice its limit.
//! 2. `media_stalls`: the stream stalls while the firmware takes a cached write, without a lost revolution.
//! 3. The running stream serves a read of data that it reaches soon. It reads ahead until `read_ahead_kib` beyond the last request of the host,
//!    or until another request needs the arm. It resumes when half of that is used. A stream that reaches the start of another read serves
//!    that read too.
//! 4. Dirty data is written when it exceeds the limit, when it is too old, after `destage_idle_ms` without other work of the arm, or on a flush. A trip
//!    goes upwards from the arm's position and writes up to `destage_ranges` (idle: one). Between two trips one waiting read is served.
//! 5. A flush is not queued: while it waits for the medium, later writes wait too.
//! 6. Waiting reads are served by shortest positioning time. A read that has waited for `queue_age_ms` goes first.
//!
//! Invariants: [`Rotational::advance`] handles events in the order of their times; a stream's end in its segment never
//! goes back.

mod arm;
mod firmware;
mod reads;
mod writes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::link::SharedLink;
use super::platter::Platter;
use super::{Command, Model, RangeSet, RotationalParameters};

/// The next action of the firmware.
#[derive(Clone, Copy, Debug)]
enum Job {
    /// Decode a read or flush.
    Command(u64),
    /// Decode a write and take its data.
    Write(u64),
    /// Send a read's data.
    Send(u64),
}

/// A contiguous part of the medium in the drive's memory.
#[derive(Clone, Debug)]
struct Segment {
    start: u64,
    end: u64,
    /// End of the last read of the host in this segment.
    asked: u64,
    used: u64,
}

#[derive(Clone, Debug)]
enum Arm {
    Idle {
        since: u64,
    },
    /// Streams into a segment; at byte `from` at time `at`, which is in the future during a seek.
    Read {
        segment: usize,
        from: u64,
        at: u64,
    },
    Write {
        until: u64,
        end: u64,
    },
}

/// A transfer that needs the medium.
#[derive(Clone, Copy, Debug)]
enum MediaJob {
    /// Read from `from`, in a segment.
    Read { segment: usize, from: u64, since: u64 },
    /// Write the command's range through.
    Write { id: u64, since: u64 },
}

impl MediaJob {
    fn since(&self) -> u64 {
        match self {
            Self::Read { since, .. } | Self::Write { since, .. } => *since,
        }
    }
}

/// The drive.
#[derive(Debug)]
pub(super) struct Rotational {
    parameters: RotationalParameters,
    platter: Platter,
    link: Option<Arc<SharedLink>>,
    commands: BTreeMap<u64, Command>,
    /// Commands beyond the drive's queue depth.
    outside: VecDeque<(u64, Command)>,
    firmware: VecDeque<Job>,
    firmware_busy: Option<(u64, Job)>,
    segments: Vec<Segment>,
    /// Reads that wait until the stream into a segment reaches their end.
    waiting: Vec<(u64, usize)>,
    media: Vec<MediaJob>,
    /// Writes and flushes that wait for space in the cache or for the cache to be empty.
    blocked: VecDeque<u64>,
    flushing: Vec<u64>,
    writing_through: Option<u64>,
    arm: Arm,
    position: u64,
    dirty: RangeSet,
    dirty_since: u64,
    destaging: u64,
    /// A trip has just ended: a read goes before the next one.
    read_is_due: bool,
    ended: BTreeSet<(u64, u64)>,
    clock: u64,
}

fn microseconds(us: f64) -> u64 {
    (us * 1e3) as u64
}

impl Rotational {
    pub(super) fn new(parameters: RotationalParameters, seed: u64, link: Option<Arc<SharedLink>>) -> Self {
        let phase = fastrand::Rng::with_seed(seed).f64();
        Self {
            platter: Platter::new(&parameters, phase),
            parameters,
            link,
            commands: BTreeMap::new(),
            outside: VecDeque::new(),
            firmware: VecDeque::new(),
            firmware_busy: None,
            segments: Vec::new(),
            waiting: Vec::new(),
            media: Vec::new(),
            blocked: VecDeque::new(),
            flushing: Vec::new(),
            writing_through: None,
            arm: Arm::Idle { since: 0 },
            position: 0,
            dirty: RangeSet::default(),
            dirty_since: 0,
            destaging: 0,
            read_is_due: false,
            ended: BTreeSet::new(),
            clock: 0,
        }
    }

    fn cache_limit(&self) -> u64 {
        (self.parameters.write_cache_kib * 1024.0) as u64
    }

    fn read_ahead(&self) -> u64 {
        (self.parameters.read_ahead_kib * 1024.0) as u64
    }

    fn has_queue(&self) -> bool {
        self.parameters.queue_depth > 1.0
    }

    fn positioning(&self, now: u64, to: u64) -> u64 {
        (self.platter.positioning(now as f64 / 1e9, self.position, to) * 1e9) as u64
    }

    fn streaming(&self, start: u64, end: u64) -> u64 {
        (self.platter.streaming(start, end) * 1e9) as u64
    }
}

impl Model for Rotational {
    fn submit(&mut self, id: u64, command: Command, now: u64) {
        let mut done = Vec::new();
        self.advance(now.saturating_sub(1), &mut done);
        self.ended.extend(done.into_iter().map(|id| (now, id)));
        self.clock = self.clock.max(now);
        self.outside.push_back((id, command));
        self.let_in(now);
    }

    fn next_event(&self) -> Option<u64> {
        let firmware = self.firmware_busy.map(|(until, _)| until);
        let ended = self.ended.first().map(|(at, _)| *at);
        [firmware, ended, self.arm_event()].into_iter().flatten().min().map(|at| at.max(self.clock))
    }

    fn advance(&mut self, now: u64, done: &mut Vec<u64>) {
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            self.clock = at;
            if self.ended.first().is_some_and(|(end, _)| *end <= at) {
                done.extend(self.ended.pop_first().map(|(_, id)| id));
                self.let_in(at);
            } else if self.firmware_busy.is_some_and(|(until, _)| until <= at) {
                self.firmware_done(at);
            } else {
                self.arm_done(at);
            }
        }
    }
}

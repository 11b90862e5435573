//! A rotating drive: arm, read-ahead segments, write-back cache, firmware, queue.
//!
//! Two things work at once. The **firmware** (with the bus) takes commands one after the other: a read costs it
//! `read_command_us` and later the transfer; a write the command, the transfer and, with the cache on, that is all the host
//! waits for. The **arm** does one of: nothing, stream from the medium into a read segment, write to the medium.
//!
//! Choices of the model, which decide who wins (and which the published rows cannot distinguish):
//! 1. The cache takes writes while the arm reads or destages (queue depth above 1), up to twice its limit.
//! 2. `media_stalls`: the stream stands still for as long as the firmware takes a cached write, without losing a turn.
//! 3. A read whose data is on its way is served by the running stream; the stream goes on reading ahead until `read_ahead_kib`
//!    beyond what the host has asked for, or until another request needs the arm; it resumes when half of that is used up. A stream that
//!    comes to where another read begins goes on with that one.
//! 4. Dirty data goes to the medium when there is more than the limit, when it is too old, when the arm was idle for
//!    `destage_idle_ms`, or on a flush; in ascending order from the arm's position, up to `destage_ranges` on a trip (idle: one).
//!    Between two trips in a row one waiting read is served.
//! 5. A flush is a command that is not queued: while it waits for the medium, writes that come after it do.
//! 6. Waiting reads are served in the order of shortest positioning time, but for one that has waited for `queue_age_ms`.
//!
//! Invariants: [`Rotational::advance`] handles events in the order of their times; a stream's end in its segment never
//! goes back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use diorite_block::Op;

use super::link::SharedLink;
use super::platter::Platter;
use super::{Command, Model, RangeSet, RotationalParameters};

/// What the firmware does next.
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
    /// End of the last read that the host asked for here.
    asked: u64,
    used: u64,
}

#[derive(Clone, Debug)]
enum Arm {
    Idle {
        since: u64,
    },
    /// Streams into a segment; over byte `from` at time `at`, which may lie ahead (the arm is still on its way).
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
    /// Reads that wait for the stream into a segment to reach their end.
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

    // ---- commands and firmware ----

    fn accept(&mut self, id: u64, command: Command, now: u64) {
        self.commands.insert(id, command);
        match command.op {
            Op::Read | Op::Flush => self.firmware.push_back(Job::Command(id)),
            Op::Write | Op::WriteZeroes | Op::Discard => {
                if command.preflush && !self.is_clean() {
                    self.blocked.push_back(id);
                } else {
                    self.firmware.push_back(Job::Write(id));
                }
            }
        }
        self.start_firmware(now);
    }

    fn is_clean(&self) -> bool {
        self.dirty.is_empty() && self.destaging == 0
    }

    /// A flush, or a write after one, waits until nothing is dirty.
    fn is_flushing(&self) -> bool {
        !self.flushing.is_empty() || self.blocked.iter().any(|id| self.commands[id].preflush)
    }

    fn start_firmware(&mut self, now: u64) {
        if self.firmware_busy.is_some() {
            return;
        }
        let Some(job) = self.firmware.pop_front() else { return };
        let command = |id: u64| self.commands[&id];
        let (fixed, bytes) = match job {
            Job::Command(_) => (self.parameters.read_command_us, 0),
            Job::Write(id) => {
                let moved = if command(id).op == Op::Write { command(id).len } else { 0 };
                (self.parameters.write_command_us, moved)
            }
            Job::Send(id) => (0.0, command(id).len),
        };
        let decoded = now + microseconds(fixed);
        let until = match &self.link {
            Some(link) if bytes > 0 => link.reserve(decoded, bytes),
            _ => decoded + (bytes as f64 / (self.parameters.bus_mb_per_s * 1e6) * 1e9) as u64,
        };
        if self.parameters.media_stalls && matches!(job, Job::Write(_)) && self.cache_limit() > 0 {
            self.stall(now, until);
        }
        self.firmware_busy = Some((until, job));
    }

    /// The stream stands still from `now` to `until`.
    fn stall(&mut self, now: u64, until: u64) {
        if let Arm::Read { segment, from, at } = self.arm
            && at <= now
        {
            let reached = self.reached(from, at, now);
            self.segments[segment].end = self.segments[segment].end.max(reached);
            self.arm = Arm::Read { segment, from: reached, at: until };
        }
    }

    fn firmware_done(&mut self, now: u64) {
        let Some((_, job)) = self.firmware_busy.take() else { return };
        match job {
            Job::Send(id) => self.end(id, now),
            Job::Write(id) => self.write_arrived(id, now),
            Job::Command(id) => match self.commands[&id].op {
                Op::Read => self.look_up(id, now),
                _ if self.is_clean() => self.end(id, now),
                _ => {
                    self.flushing.push(id);
                    self.hurry(now);
                }
            },
        }
        self.start_firmware(now);
    }

    fn end(&mut self, id: u64, now: u64) {
        self.commands.remove(&id);
        self.ended.insert((now + microseconds(self.parameters.completion_us), id));
    }

    /// A command has been reported: one that waits outside may come in.
    fn let_in(&mut self, now: u64) {
        while self.commands.len() < self.parameters.queue_depth as usize
            && let Some((id, command)) = self.outside.pop_front()
        {
            self.accept(id, command, now);
        }
    }

    // ---- writes ----

    fn write_arrived(&mut self, id: u64, now: u64) {
        let command = self.commands[&id];
        self.segments.iter_mut().for_each(|segment| {
            if segment.start < command.end() && command.start < segment.end {
                segment.start = segment.end;
            }
        });
        if command.op != Op::Write {
            return self.end(id, now);
        }
        if self.cache_limit() == 0 || command.fua {
            self.media.push(MediaJob::Write { id, since: now });
            return self.hurry(now);
        }
        let full =
            self.dirty.bytes() + self.destaging + command.len > 2 * self.cache_limit().max(command.len);
        let busy = !self.has_queue() && matches!(self.arm, Arm::Write { .. });
        if full || busy || self.is_flushing() {
            self.blocked.push_back(id);
            return self.hurry(now);
        }
        self.store(id, now);
    }

    fn store(&mut self, id: u64, now: u64) {
        let command = self.commands[&id];
        if self.dirty.is_empty() {
            self.dirty_since = now;
        }
        self.dirty.add(command.start, command.end());
        self.end(id, now);
        if self.must_destage(now) {
            self.hurry(now);
        }
    }

    fn must_destage(&self, now: u64) -> bool {
        let age = (self.parameters.destage_age_ms * 1e6) as u64;
        let too_old = age > 0 && now.saturating_sub(self.dirty_since) >= age;
        !self.dirty.is_empty()
            && (self.dirty.bytes() >= self.cache_limit()
                || !self.flushing.is_empty()
                || !self.blocked.is_empty()
                || too_old)
    }

    fn destage(&mut self, now: u64, ranges: usize) {
        let list = self.dirty.take_from(self.position, ranges);
        self.dirty_since = now;
        let mut at = now;
        for (start, end) in list {
            at += self.positioning(at, start);
            at += self.streaming(start, end);
            self.position = end;
            self.destaging += end - start;
        }
        self.arm = Arm::Write { until: at, end: self.position };
    }

    fn write_done(&mut self, end: u64, now: u64) {
        self.position = end;
        self.destaging = 0;
        self.arm = Arm::Idle { since: now };
        match self.writing_through.take() {
            Some(id) => self.end(id, now),
            None => self.read_is_due = true,
        }
        if self.is_clean() {
            for id in std::mem::take(&mut self.flushing) {
                self.end(id, now);
            }
        }
        let mut left = std::mem::take(&mut self.blocked);
        if self.is_clean() {
            let (after_flush, others) = left.into_iter().partition(|id| self.commands[id].preflush);
            left = others;
            let after_flush: VecDeque<u64> = after_flush;
            self.firmware.extend(after_flush.into_iter().map(Job::Write));
        }
        self.blocked = left;
        if !self.is_flushing() {
            for id in std::mem::take(&mut self.blocked) {
                self.store(id, now);
            }
        }
        self.start_firmware(now);
        // What was stored may have started the arm already.
        self.hurry(now);
    }

    // ---- reads ----

    /// Where the stream is at `now`.
    fn reached(&self, from: u64, at: u64, now: u64) -> u64 {
        if now <= at {
            return from;
        }
        let turns = self.platter.turns(from as f64) + (now - at) as f64 / 1e9 / self.platter.turn();
        (self.platter.byte_after(turns).round() as u64).max(from)
    }

    /// When the stream reaches a byte.
    fn reaches(&self, from: u64, at: u64, byte: u64) -> u64 {
        if byte <= from { at } else { at + self.streaming(from, byte) + 2 }
    }

    /// Bring the segment of the running stream up to date.
    fn update_stream(&mut self, now: u64) {
        if let Arm::Read { segment, from, at } = self.arm {
            let limit = self.stream_limit(segment);
            let reached = self.reached(from, at, now).min(limit);
            let keep = self.read_ahead().max(1 << 20);
            let segment = &mut self.segments[segment];
            segment.end = segment.end.max(reached);
            segment.start = segment.start.max(segment.end.saturating_sub(keep).min(segment.asked));
            self.position = reached;
        }
    }

    /// How far a stream goes: what is asked for, and the read-ahead.
    fn stream_limit(&self, segment: usize) -> u64 {
        let asked = self.segments[segment].asked;
        (asked + self.read_ahead()).min((self.parameters.capacity_gb * 1e9) as u64)
    }

    /// A read has been decoded: where is its data?
    fn look_up(&mut self, id: u64, now: u64) {
        self.update_stream(now);
        let command = self.commands[&id];
        let (start, end) = (command.start, command.end());
        if self.dirty.covers(start, end) {
            self.firmware.push_back(Job::Send(id));
            return;
        }
        let streaming = match self.arm {
            Arm::Read { segment, .. } => Some(segment),
            _ => None,
        };
        let planned = |index: usize| {
            self.media.iter().any(|job| matches!(job, MediaJob::Read { segment, .. } if *segment == index))
        };
        let fits = |index: &usize| {
            let segment = &self.segments[*index];
            let growing = streaming == Some(*index) || planned(*index);
            let end = if growing { segment.end.max(segment.asked) } else { segment.end };
            segment.start <= start && start <= end && segment.start < segment.end.max(segment.asked)
        };
        let found = (0..self.segments.len()).filter(fits).max_by_key(|index| self.segments[*index].end);
        let index = found.unwrap_or_else(|| self.new_segment(start, streaming));
        let is_planned =
            self.media.iter().any(|job| matches!(job, MediaJob::Read { segment, .. } if *segment == index));
        let segment = &mut self.segments[index];
        segment.used = now;
        segment.asked = segment.asked.max(end);
        if segment.end >= end {
            self.firmware.push_back(Job::Send(id));
        } else {
            let from = segment.end;
            self.waiting.push((id, index));
            if streaming != Some(index) && !is_planned {
                self.media.push(MediaJob::Read { segment: index, from, since: now });
            }
        }
        self.hurry(now);
    }

    /// The least recently used segment that no thread needs, made empty at `start`.
    fn new_segment(&mut self, start: u64, streaming: Option<usize>) -> usize {
        let fresh = Segment { start, end: start, asked: start, used: 0 };
        let needed = |index: usize| {
            self.waiting.iter().any(|(_, segment)| *segment == index) || streaming == Some(index)
        };
        if self.segments.len() >= self.parameters.read_segments as usize {
            let free = (0..self.segments.len()).filter(|index| !needed(*index));
            if let Some(index) = free.min_by_key(|index| self.segments[*index].used) {
                self.segments[index] = fresh;
                return index;
            }
        }
        self.segments.push(fresh);
        self.segments.len() - 1
    }

    /// Reads whose data has come.
    fn serve_waiting(&mut self, now: u64) {
        self.update_stream(now);
        let mut ready = Vec::new();
        let (segments, commands) = (&self.segments, &self.commands);
        self.waiting.retain(|(id, segment)| {
            let here = segments[*segment].end >= commands[id].end();
            if here {
                ready.push(*id);
            }
            !here
        });
        self.firmware.extend(ready.into_iter().map(Job::Send));
        self.start_firmware(now);
    }

    // ---- the arm ----

    /// Something may be more urgent than what the arm does.
    fn hurry(&mut self, now: u64) {
        self.join_streams(now);
        let may_stop = match self.arm {
            Arm::Idle { .. } => true,
            Arm::Read { segment, .. } => {
                let wanted = self.waiting.iter().any(|(_, waits_for)| *waits_for == segment);
                !wanted && (self.must_destage(now) || !self.media.is_empty())
            }
            Arm::Write { .. } => false,
        };
        if may_stop {
            self.update_stream(now);
            self.next_for_arm(now);
        } else if let Arm::Read { segment, .. } = self.arm
            && self.overdue(now).is_some()
        {
            self.update_stream(now);
            self.media.push(MediaJob::Read { segment, from: self.segments[segment].end, since: now });
            self.next_for_arm(now);
        }
    }

    /// The job that has waited too long for the arm.
    fn overdue(&self, now: u64) -> Option<usize> {
        let age = (self.parameters.queue_age_ms * 1e6) as u64;
        let oldest = (0..self.media.len()).min_by_key(|index| self.media[*index].since())?;
        (now.saturating_sub(self.media[oldest].since()) >= age).then_some(oldest)
    }

    /// Reads that begin where another stream has come meanwhile wait for that one.
    fn join_streams(&mut self, now: u64) {
        if self.media.is_empty() {
            return;
        }
        self.update_stream(now);
        let (mut index, mut is_joined) = (0, false);
        while let Some(job) = self.media.get(index) {
            let MediaJob::Read { segment, from, since } = *job else {
                index += 1;
                continue;
            };
            let reaches = |other: &usize| {
                let it = &self.segments[*other];
                *other != segment && it.start < it.end && (it.start..=it.end).contains(&from)
            };
            let Some(other) = (0..self.segments.len()).find(reaches) else {
                index += 1;
                continue;
            };
            self.media.remove(index);
            is_joined = true;
            let waiting = self.waiting.iter_mut().filter(|(_, waits_for)| *waits_for == segment);
            waiting.for_each(|(_, waits_for)| *waits_for = other);
            let left = &mut self.segments[segment];
            let asked = left.asked;
            (left.start, left.asked) = (left.end, left.end);
            let joined = &mut self.segments[other];
            (joined.asked, joined.used) = (joined.asked.max(asked), now);
            let is_running = matches!(self.arm, Arm::Read { segment, .. } if segment == other);
            let is_planned =
                |job: &MediaJob| matches!(job, MediaJob::Read { segment, .. } if *segment == other);
            if joined.end < joined.asked && !is_running && !self.media.iter().any(is_planned) {
                let from = joined.end;
                self.media.push(MediaJob::Read { segment: other, from, since });
            }
        }
        if is_joined {
            self.serve_waiting(now);
        }
    }

    fn next_for_arm(&mut self, now: u64) {
        if let Arm::Write { .. } = self.arm {
            return;
        }
        let reads_wait = self.media.iter().any(|job| matches!(job, MediaJob::Read { .. }));
        if self.must_destage(now) && !(self.read_is_due && reads_wait) {
            return self.destage(now, self.parameters.destage_ranges as usize);
        }
        let target = |job: &MediaJob| match job {
            MediaJob::Read { from, .. } => *from,
            MediaJob::Write { id, .. } => self.commands[id].start,
        };
        let nearest = (0..self.media.len())
            .min_by_key(|index| (self.positioning(now, target(&self.media[*index])), *index));
        if let Some(index) = self.overdue(now).or(nearest) {
            return self.start_media(self.media[index], index, now);
        }
        if let Arm::Read { .. } = self.arm {
            return;
        }
        let half = self.read_ahead() / 2;
        let hungry = |index: &usize| {
            let segment = &self.segments[*index];
            segment.end > segment.start
                && segment.end < segment.asked.saturating_add(half)
                && segment.asked > segment.start
        };
        let last_used = (0..self.segments.len()).max_by_key(|index| self.segments[*index].used);
        if let Some(segment) = last_used.filter(|index| half > 0 && hungry(index)) {
            let from = self.segments[segment].end;
            if from < self.stream_limit(segment) {
                self.arm = Arm::Read { segment, from, at: now + self.positioning(now, from) };
                return;
            }
        }
        if !matches!(self.arm, Arm::Idle { .. }) {
            self.arm = Arm::Idle { since: now };
        }
    }

    fn start_media(&mut self, job: MediaJob, index: usize, now: u64) {
        self.media.remove(index);
        match job {
            MediaJob::Read { segment, from, .. } => {
                self.read_is_due = false;
                self.arm = Arm::Read { segment, from, at: now + self.positioning(now, from) };
            }
            MediaJob::Write { id, .. } => {
                let command = self.commands[&id];
                let until =
                    now + self.positioning(now, command.start) + self.streaming(command.start, command.end());
                self.writing_through = Some(id);
                self.arm = Arm::Write { until, end: command.end() };
            }
        }
    }

    fn arm_event(&self) -> Option<u64> {
        match self.arm {
            Arm::Idle { since } => {
                let idle = since + (self.parameters.destage_idle_ms * 1e6) as u64;
                (!self.dirty.is_empty()).then_some(idle)
            }
            Arm::Read { segment, from, at } => {
                let limit = self.stream_limit(segment);
                let wanted = self.waiting.iter().filter(|(_, waits_for)| *waits_for == segment);
                let ends = wanted.map(|(id, _)| self.commands[id].end()).chain([limit]);
                ends.min().map(|byte| self.reaches(from, at, byte))
            }
            Arm::Write { until, .. } => Some(until),
        }
    }

    fn arm_done(&mut self, now: u64) {
        match self.arm {
            Arm::Idle { .. } => self.destage(now, 1),
            Arm::Write { end, .. } => self.write_done(end, now),
            Arm::Read { segment, .. } => {
                self.serve_waiting(now);
                if self.segments[segment].end >= self.stream_limit(segment) {
                    self.arm = Arm::Idle { since: now };
                }
                self.hurry(now);
            }
        }
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

    fn describe(&self) -> String {
        format!(
            "arm {:?} at byte {}, {} commands, {} KiB dirty, {} streams",
            self.arm,
            self.position,
            self.commands.len(),
            self.dirty.bytes() / 1024,
            self.segments.len()
        )
    }
}

//! Segments of the medium in the drive's memory, and the stream into one of them.

use super::{Arm, Job, MediaJob, Rotational, Segment};

impl Rotational {
    /// Position of the stream at `now`.
    pub(super) fn reached(&self, from: u64, at: u64, now: u64) -> u64 {
        if now <= at {
            return from;
        }
        let turns = self.platter.turns(from as f64) + (now - at) as f64 / 1e9 / self.platter.turn();
        (self.platter.byte_after(turns).round() as u64).max(from)
    }

    /// Time at which the stream reaches a byte.
    pub(super) fn reaches(&self, from: u64, at: u64, byte: u64) -> u64 {
        if byte <= from { at } else { at + self.streaming(from, byte) + 2 }
    }

    /// Bring the segment of the running stream up to date.
    pub(super) fn update_stream(&mut self, now: u64) {
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

    /// The end of a stream: the requested range plus the drive's readahead.
    pub(super) fn stream_limit(&self, segment: usize) -> u64 {
        let asked = self.segments[segment].asked;
        (asked + self.read_ahead()).min((self.parameters.capacity_gb * 1e9) as u64)
    }

    /// A read has been decoded: find its data in a segment, in the stream or on the medium.
    pub(super) fn look_up(&mut self, id: u64, now: u64) {
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

    /// The least recently used segment that no read needs, emptied at `start`.
    pub(super) fn new_segment(&mut self, start: u64, streaming: Option<usize>) -> usize {
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

    /// Complete reads whose data has arrived.
    pub(super) fn serve_waiting(&mut self, now: u64) {
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
}

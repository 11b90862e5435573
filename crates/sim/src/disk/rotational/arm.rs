//! The arm: its next action, and when that action ends.

use super::{Arm, MediaJob, Rotational};

impl Rotational {
    /// Interrupt the stream for a more urgent job.
    pub(super) fn hurry(&mut self, now: u64) {
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
    pub(super) fn overdue(&self, now: u64) -> Option<usize> {
        let age = (self.parameters.queue_age_ms * 1e6) as u64;
        let oldest = (0..self.media.len()).min_by_key(|index| self.media[*index].since())?;
        (now.saturating_sub(self.media[oldest].since()) >= age).then_some(oldest)
    }

    /// Reads whose start another stream has reached meanwhile wait for that stream.
    pub(super) fn join_streams(&mut self, now: u64) {
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

    pub(super) fn next_for_arm(&mut self, now: u64) {
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

    pub(super) fn start_media(&mut self, job: MediaJob, index: usize, now: u64) {
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

    pub(super) fn arm_event(&self) -> Option<u64> {
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

    pub(super) fn arm_done(&mut self, now: u64) {
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

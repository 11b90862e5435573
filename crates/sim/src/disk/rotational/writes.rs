//! The write cache of the drive: admission, commands that wait for space, and destaging to the medium.

use std::collections::VecDeque;

use diorite_block::Op;

use super::{Arm, Job, MediaJob, Rotational};

impl Rotational {
    pub(super) fn write_arrived(&mut self, id: u64, now: u64) {
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

    pub(super) fn store(&mut self, id: u64, now: u64) {
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

    pub(super) fn must_destage(&self, now: u64) -> bool {
        let age = (self.parameters.destage_age_ms * 1e6) as u64;
        let too_old = age > 0 && now.saturating_sub(self.dirty_since) >= age;
        !self.dirty.is_empty()
            && (self.dirty.bytes() >= self.cache_limit()
                || !self.flushing.is_empty()
                || !self.blocked.is_empty()
                || too_old)
    }

    pub(super) fn destage(&mut self, now: u64, ranges: usize) {
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

    pub(super) fn write_done(&mut self, end: u64, now: u64) {
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
        // The stored data may have started the arm already.
        self.hurry(now);
    }
}

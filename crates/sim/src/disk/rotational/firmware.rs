//! The firmware and the bus, which decode and complete commands one after the other.

use diorite_block::Op;

use super::super::Command;
use super::{Arm, Job, Rotational, microseconds};

impl Rotational {
    pub(super) fn accept(&mut self, id: u64, command: Command, now: u64) {
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

    pub(super) fn is_clean(&self) -> bool {
        self.dirty.is_empty() && self.destaging == 0
    }

    /// A flush, or a write after one, waits until nothing is dirty.
    pub(super) fn is_flushing(&self) -> bool {
        !self.flushing.is_empty() || self.blocked.iter().any(|id| self.commands[id].preflush)
    }

    pub(super) fn start_firmware(&mut self, now: u64) {
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

    /// The stream stalls from `now` to `until`.
    pub(super) fn stall(&mut self, now: u64, until: u64) {
        if let Arm::Read { segment, from, at } = self.arm
            && at <= now
        {
            let reached = self.reached(from, at, now);
            self.segments[segment].end = self.segments[segment].end.max(reached);
            self.arm = Arm::Read { segment, from: reached, at: until };
        }
    }

    pub(super) fn firmware_done(&mut self, now: u64) {
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

    pub(super) fn end(&mut self, id: u64, now: u64) {
        self.commands.remove(&id);
        self.ended.insert((now + microseconds(self.parameters.completion_us), id));
    }

    /// A command has completed, so a command beyond the queue depth enters the drive.
    pub(super) fn let_in(&mut self, now: u64) {
        while self.commands.len() < self.parameters.queue_depth as usize
            && let Some((id, command)) = self.outside.pop_front()
        {
            self.accept(id, command, now);
        }
    }
}

//! A drive without an arm: each command has a latency, many run at once, and the bus moves their data one after the other.
//! With zero latency this is the ideal disk of constant bandwidth.

use std::collections::BTreeSet;
use std::sync::Arc;

use diorite_block::Op;

use super::link::SharedLink;
use super::{Command, FlashParameters, Model};

/// The drive.
#[derive(Debug)]
pub(super) struct Flash {
    parameters: FlashParameters,
    link: Option<Arc<SharedLink>>,
    /// The time at which each parallel unit is free.
    units: Vec<u64>,
    bus_free: u64,
    /// The time at which the last write is in the cells.
    written: u64,
    ends: BTreeSet<(u64, u64)>,
}

impl Flash {
    pub(super) fn new(parameters: FlashParameters, link: Option<Arc<SharedLink>>) -> Self {
        let units = vec![0; parameters.units.max(1.0) as usize];
        Self { parameters, link, units, bus_free: 0, written: 0, ends: BTreeSet::new() }
    }

    fn transfer(&mut self, from: u64, bytes: u64) -> u64 {
        if let Some(link) = &self.link {
            return link.reserve(from, bytes);
        }
        self.bus_free =
            self.bus_free.max(from) + (bytes as f64 / (self.parameters.mb_per_s * 1e6) * 1e9) as u64;
        self.bus_free
    }
}

fn microseconds(us: f64) -> u64 {
    (us * 1000.0) as u64
}

impl Model for Flash {
    fn submit(&mut self, id: u64, command: Command, now: u64) {
        let latency = match command.op {
            Op::Read => microseconds(self.parameters.read_us),
            Op::Write if command.fua => microseconds(self.parameters.write_us + self.parameters.flush_us),
            Op::Write | Op::Discard | Op::WriteZeroes => microseconds(self.parameters.write_us),
            Op::Flush => microseconds(self.parameters.flush_us),
        };
        let moved = if matches!(command.op, Op::Read | Op::Write) { command.len } else { 0 };
        let start = if command.op == Op::Flush || command.preflush { now.max(self.written) } else { now };
        let unit = self.units.iter_mut().min().expect("at least one unit");
        let ready = (*unit).max(start) + latency;
        *unit = ready;
        let end = self.transfer(ready, moved);
        if command.op.is_write() {
            self.written = self.written.max(end);
        }
        self.ends.insert((end, id));
    }

    fn next_event(&self) -> Option<u64> {
        self.ends.first().map(|(end, _)| *end)
    }

    fn advance(&mut self, now: u64, done: &mut Vec<u64>) {
        while self.ends.first().is_some_and(|(end, _)| *end <= now) {
            done.extend(self.ends.pop_first().map(|(_, id)| id));
        }
    }
}

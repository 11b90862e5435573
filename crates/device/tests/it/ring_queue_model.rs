//! Queues over `io_uring` against a vector of bytes: random reads, writes and flushes in flight at once, of one or several pieces, in plain and
//! registered memory, with queues that are dropped while transfers are in flight, on a file, on a loop device and in memory.
//!
//! Transfers complete in any order, so overlapping transfers are never in flight together if one of them writes.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common;
use std::path::Path;
use std::sync::Arc;

use common::{LoopDevice, image, is_root};
use diorite_block::{
    BioFlags, BlockDevice, Completed, IoOwner, IoQueue, Op, Piece, QueuedIo, QueuedMemory, Sector,
};
use diorite_device::{AlignedBuf, Backend, DirectIo, FileDevice, JoinedDevice, OpenOptions};

const UNIT: u64 = 4096;
const UNITS: u64 = 512;
const DEPTH: u32 = 16;

struct Model {
    device: Arc<dyn BlockDevice>,
    queue: Box<dyn IoQueue>,
    bytes: Vec<u8>,
    /// By tag: what is read or written, in the order of its memory.
    flying: Vec<Option<(Op, Vec<std::ops::Range<u64>>)>>,
    random: fastrand::Rng,
    stamp: u8,
}

impl Model {
    fn new(device: Arc<dyn BlockDevice>, seed: u64) -> Self {
        Self {
            queue: Arc::clone(&device).open_queue(DEPTH).unwrap(),
            bytes: vec![0; (UNIT * UNITS) as usize],
            flying: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
            stamp: 0,
            device,
        }
    }

    /// Ranges that can be in flight now for `op`, of one to three pieces, none of which touches another.
    fn ranges(&mut self, op: Op) -> Vec<std::ops::Range<u64>> {
        let mut ranges: Vec<std::ops::Range<u64>> = Vec::new();
        for _ in 0..self.random.u64(1..4) {
            let start = self.random.u64(..UNITS);
            let range = start * UNIT..(start + self.random.u64(1..20)).min(UNITS) * UNIT;
            let meets = |other: &std::ops::Range<u64>| range.start < other.end && other.start < range.end;
            let in_the_way = |(other, ranges): &(Op, Vec<_>)| {
                (op == Op::Write || *other == Op::Write) && ranges.iter().any(meets)
            };
            if !ranges.iter().any(meets) && !self.flying.iter().flatten().any(in_the_way) {
                ranges.push(range);
            }
        }
        ranges
    }

    fn submit(&mut self) {
        let op = match self.random.u32(..20) {
            0 => Op::Flush,
            1..8 => Op::Read,
            _ => Op::Write,
        };
        let ranges = if op == Op::Flush { Vec::new() } else { self.ranges(op) };
        if op != Op::Flush && ranges.is_empty() {
            return;
        }
        let len: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let mut memory = if self.random.bool() {
            AlignedBuf::zeroed(len.max(UNIT) as usize, 4096)
        } else {
            AlignedBuf::registered(len.max(UNIT) as usize, 4096).unwrap()
        };
        self.stamp = self.stamp.wrapping_add(1);
        let mut at = 0;
        let mut pieces = Vec::new();
        for range in &ranges {
            let piece = at..at + (range.end - range.start) as usize;
            if op == Op::Write {
                let stamp = self.stamp;
                let content = piece.clone().map(|at| stamp ^ (at / 512) as u8);
                memory[piece.clone()].iter_mut().zip(content).for_each(|(byte, new)| *byte = new);
                let target = range.start as usize..range.end as usize;
                self.bytes[target].copy_from_slice(&memory[piece.clone()]);
            }
            at = piece.end;
            pieces.push(Piece { sector: Sector::containing(range.start), memory: piece });
        }
        let flags = [BioFlags::NONE, BioFlags::SYNC][self.random.usize(..2)];
        let memory = if op == Op::Flush { QueuedMemory::None } else { QueuedMemory::Owned(Box::new(memory)) };
        let tag = self.flying.len() as u64;
        self.flying.push(Some((op, ranges)));
        let io = QueuedIo { op, pieces, memory, flags, owner: IoOwner::current(), tag };
        assert!(self.queue.submit(io).is_ok(), "there is a place in the queue");
    }

    fn check(&mut self, completed: Completed) {
        completed.result.unwrap();
        let (op, ranges) = self.flying[completed.io.tag as usize].take().expect("it ends once");
        assert_eq!(op, completed.io.op);
        if op != Op::Read {
            return;
        }
        let memory = completed.io.memory.as_owned().unwrap();
        let mut rest = memory.as_slice();
        for range in ranges {
            let (found, later) = rest.split_at((range.end - range.start) as usize);
            assert!(found == &self.bytes[range.start as usize..range.end as usize], "a read of {range:?}");
            rest = later;
        }
    }

    fn reap(&mut self, wait_for: u32) {
        let mut done = Vec::new();
        self.queue.reap(wait_for, &mut done).unwrap();
        for completed in done {
            self.check(completed);
        }
    }

    /// Drop the queue with all that is in flight: it waits, and what was issued is written.
    fn abandon(&mut self) {
        self.queue.issue().unwrap();
        self.queue = Arc::clone(&self.device).open_queue(DEPTH).unwrap();
        self.flying.clear();
    }

    fn compare(&self) {
        let mut found = AlignedBuf::zeroed(self.bytes.len(), 4096);
        self.device.read_bytes(0, &mut found).unwrap();
        let differs = found.iter().zip(&self.bytes).position(|(found, expected)| found != expected);
        assert_eq!(differs, None);
    }

    /// `abandons`: one step in a hundred drops the queue.
    fn run(&mut self, steps: u32, abandons: bool) {
        for _ in 0..steps {
            if self.queue.in_flight() < DEPTH {
                self.submit();
            }
            match self.random.u32(..100) {
                0..10 => self.queue.issue().unwrap(),
                10..30 => self.reap(0),
                30..50 => self.reap(1),
                50..52 => self.reap(self.queue.in_flight()),
                52 if abandons => {
                    self.abandon();
                    self.compare();
                }
                _ => {}
            }
            if self.queue.in_flight() == DEPTH {
                self.reap(1);
            }
        }
        self.reap(self.queue.in_flight());
        assert!(self.flying.iter().all(Option::is_none), "all have ended");
        self.compare();
    }
}

fn run_on(path: &Path, direct: DirectIo, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let options = OpenOptions::read_write().backend(Backend::IoUring).direct(direct);
        let device: Arc<dyn BlockDevice> = FileDevice::open(path, &options).unwrap();
        device.write_bytes(0, &AlignedBuf::zeroed((UNIT * UNITS) as usize, 4096), BioFlags::NONE).unwrap();
        println!("{}, {direct:?}, seed {seed}", path.display());
        Model::new(device, seed).run(400, true);
    }
}

#[test]
fn a_file_holds_what_queues_wrote() {
    let (_directory, path) = image(UNIT * UNITS);
    run_on(&path, DirectIo::Preferred, 0..12);
    run_on(&path, DirectIo::Off, 12..24);
}

/// A device of images in these directories: one, or several that are striped.
fn device_in(directories: &[&Path]) -> Arc<dyn BlockDevice> {
    let bytes = UNIT * UNITS / directories.len() as u64;
    let open = |directory: &&Path| -> Arc<dyn BlockDevice> {
        let path = directory.join(format!("image{}", fastrand::u64(..)));
        common::make_file(&path, bytes);
        FileDevice::open(path, &OpenOptions::read_write()).unwrap()
    };
    let mut children: Vec<_> = directories.iter().map(open).collect();
    if children.len() == 1 { children.remove(0) } else { JoinedDevice::striped(children, 64 << 10).unwrap() }
}

/// On files in memory, calls make the transfers.
#[test]
fn a_device_in_memory_holds_what_queues_wrote() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        return println!("SKIPPED: there is no /dev/shm");
    };
    let disk = tempfile::tempdir().unwrap();
    let (memory, disk) = (memory.path(), disk.path());
    for (directories, seed) in
        [(&[memory][..], 200), (&[memory, memory][..], 201), (&[memory, disk, memory, memory][..], 202)]
    {
        println!("{directories:?}");
        Model::new(device_in(directories), seed).run(4000, true);
    }
}

#[test]
fn a_block_device_holds_what_queues_wrote() {
    if !is_root() {
        return println!("SKIPPED: loop devices need root");
    }
    let (_directory, path) = image(UNIT * UNITS);
    let Some(disk) = LoopDevice::attach(&path, 512) else { return };
    run_on(disk.path(), DirectIo::Preferred, 100..112);
}
